"""The page of a simulated run: it shows what runs, at every width and in both schemes, and says nothing that it should not."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.looking import is_accessible, is_whole, opened, shows_numbers
from tests.ui.serving import Page

pytestmark = pytest.mark.one_in(2)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_it_is_whole_and_accessible(browser: Browser, page: Page, width: int, scheme: str) -> None:
    with opened(browser, page, width=width, scheme=scheme) as watched:
        shows_numbers(watched.page)
        is_whole(watched.page)
        is_accessible(watched.page)


def test_it_says_what_runs(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        expect(watched.page.locator("h1")).to_have_text("network_sessions")
        expect(watched.page.locator("#redundancy")).to_have_text("redundancy 2 of 2")
        expect(watched.page.locator(".siterow")).to_have_count(5)
        expect(watched.page.locator(".react-flow__node .box")).to_have_count(6)
        expect(watched.page.locator("#held .what")).not_to_have_text("–")


def test_a_box_says_more_when_it_is_chosen_by_keyboard(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        node = watched.page.locator(".react-flow__node[data-id='b:sessions']")
        node.focus()
        watched.page.keyboard.press("Enter")
        expect(watched.page.locator(".detail h3")).to_contain_text("sessions")
        expect(watched.page.locator(".detail")).to_contain_text("Selectivity")
        is_whole(watched.page)


def test_a_box_shows_all_of_its_lines_and_colours_say_what_is_chosen(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        box = watched.page.locator(".react-flow__node[data-id='b:often'] .box")
        expect(box.locator(".line")).to_have_text(["filter n > 1"])
        cut = "all => all.filter((each) => each.scrollHeight > each.clientHeight).map((each) => each.textContent)"
        assert watched.page.locator(".box").evaluate_all(cut) == []
        watched.page.get_by_role("button", name="waiting", exact=True).click()
        expect(watched.page.locator(".legend").first).to_contain_text("epochs behind")
        expect(watched.page.locator(".react-flow__node[data-id='b:sessions'] .now")).to_contain_text("behind")
        is_whole(watched.page)


def asked(page: Page, path: str) -> Any:
    request = urllib.request.Request(f"{page.at}api/v1/{path}", headers={"Authorization": "Bearer look"})
    return json.loads(urllib.request.urlopen(request).read())


def test_a_picture_that_differs_in_a_number_is_drawn_anew_and_events_are_kept_to_a_bound(browser: Browser, page: Page) -> None:
    """64 partitions become 32: as JSON both are as long. Lines keep their places when the oldest events are forgotten."""
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        scene, reading = asked(page, "scene"), asked(page, "reading")
        drawn = watched.page.evaluate(
            """async ([scene, reading]) => {
              const from = (name) => import(new URL(`static/${name}.js`, document.baseURI).href);
              const { Network } = await from("network"), { Model } = await from("model");
              const network = new Network(), turns = [];
              network.draw = () => turns.push(network.count.textContent);
              const first = JSON.stringify(scene), other = first.replaceAll("64 partitions", "32 partitions");
              for (const text of [first, first, other]) {
                const model = new Model();
                model.takeScene(JSON.parse(text));
                model.takeReading({ ...reading, scene: scene.number });
                network.show(model.view());
              }
              return turns.length;
            }""",
            [scene, reading],
        )
        assert drawn == 2
        kept, fresh, last = watched.page.evaluate(
            """async () => {
              const { Happened } = await import(new URL("static/happened.js", document.baseURI).href);
              const happened = new Happened(document.createElement("p"));
              const event = (n) => ({ kind: "checkpoint", at_s: n, site: -1, text: `number ${n}` });
              happened.take(Array.from({ length: 2500 }, (_, n) => event(n)));
              happened.take([event(2500)]);
              return [happened.events.length, happened.list.querySelectorAll(".fresh").length, happened.list.firstElementChild.textContent];
            }"""
        )
        assert (kept, fresh) == (2000, 1) and "number 2500" in last


def test_numbers_are_written_for_people(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        told = watched.page.evaluate(
            """async () => {
              const { at, bytes, ms, short } = await import(new URL("static/format.js", document.baseURI).href);
              return [
                [0, 1023, 1024, 1000 * 1024, 1023.9 * 1024, 5e6].map(bytes), [99.999, 119.97, 3599.97, 3725.4].map(at),
                [0.12, 99.94, 1234, 20_000].map(ms), [0, 0.04, 1, 9.96, 999.6, 20_012.4, null].map(short),
              ];
            }"""
        )
    assert told == [
        ["0 B", "1,023 B", "1.00 KiB", "1,000 KiB", "1,024 KiB", "4.77 MiB"], ["100.00 s", "2:00.0", "1:00:00", "1:02:05"],
        ["0.12 ms", "99.9 ms", "1,234 ms", "20.0 s"], ["0", "0.04", "1", "10.0", "1.00 k", "20.0 k", "–"],
    ]  # fmt: skip


def test_a_box_of_an_sql_cell_that_is_edited_takes_its_cell_apart(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        told = watched.page.evaluate(
            """async () => {
              const { Draft } = await import(new URL("static/editor_draft.js", document.baseURI).href);
              const box = (name, cell) => ({ name, kind: "filter", inputs: [["rows", 0]], params: { where: "a > 1" }, cell, at: [0, 0] });
              const boxes = () => [box("rows"), box("x", "one"), box("one", "one"), box("two", "two")];
              const start = () => new Draft({ boxes: boxes(), cells: { one: "S 1", two: "S 2" } }, "");
              const after = (alter, drawn) => {
                const draft = start(), said = [];
                draft.onDetach = (cell) => said.push(cell);
                alter(draft, drawn);
                return [said, Object.keys(draft.document.cells), draft.boxes.filter((each) => each.cell).map((each) => each.name)];
              };
              const edit = (d) => void (d.boxes[1].params.where = "a > 2");
              return [
                after((draft) => draft.change(edit)), after((draft) => draft.change((d) => d.boxes.forEach((each) => (each.at = [9, 9])))),
                after((draft) => draft.change((d) => { edit(d); d.cells.one = "S 3"; })), after((draft) => draft.change(edit, "one")),
                after((draft) => draft.remove("x")), after((draft) => { draft.change(edit); draft.undo(); }),
              ];
            }"""
        )
    apart, whole = [["one"], ["two"], ["two"]], [[], ["one", "two"], ["x", "one", "two"]]
    assert told == [apart, whole, whole, whole, apart, [["one"], *whole[1:]]]


def test_the_matrix_and_the_table_show_the_same_replicas(browser: Browser, page: Page) -> None:
    """Cells of the canvas are read back: as many are drawn as the scene has replicas of that segment."""
    run = asked(page, "scene")["runs"][0]
    replicas = run["replicas_of"]
    segment = max(run["segments"], key=lambda each: each["partitions"])
    wanted = sum(
        number == segment["segment"] and state == "live" for number, state in zip(replicas["segment"], replicas["state"], strict=True)
    )
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        watched.page.get_by_role("button", name="matrix", exact=True).click()
        canvas = watched.page.locator(".matrix canvas")
        expect(canvas).to_be_visible()
        drawn = canvas.evaluate(
            """(canvas, [columns, rows]) => {
              const wide = canvas.width / columns, tall = canvas.height / rows, draw = canvas.getContext("2d");
              const probe = document.createElement("i"); probe.style.color = "var(--raised)"; document.body.append(probe);
              const empty = getComputedStyle(probe).color.match(/\\d+/g).map(Number); probe.remove();
              const { data } = draw.getImageData(0, 0, canvas.width, canvas.height);
              let found = 0;
              for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
                const at = 4 * ((r * tall + 2) * canvas.width + c * wide + 1);
                if (data[at] !== empty[0] || data[at + 1] !== empty[1] || data[at + 2] !== empty[2]) found++;
              }
              return found;
            }""",
            [segment["partitions"], 5],
        )
        assert drawn == wanted
        watched.page.get_by_role("button", name="table", exact=True).click()
        rows = watched.page.locator("section[aria-label=Exchange] tbody tr")
        expect(rows).to_have_count(segment["partitions"])
        hosts = [cell.split(", ") for cell in rows.locator("td:nth-child(2)").all_inner_texts()]
        assert sum(map(len, hosts)) == wanted
        is_whole(watched.page)


def test_a_site_uses_no_cpu_before_its_first_report(browser: Browser, page: Page) -> None:
    """What it took to begin was shown as what it uses now: several cores."""
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        found = watched.page.evaluate(
            """async ([scene, reading]) => {
              const { Model } = await import(new URL("static/model.js", document.baseURI).href);
              const model = new Model(), some = scene.sites.map((_, i) => i);
              model.takeScene(scene);
              const turn = (number, cpu_us, heard_us) => model.takeReading({
                ...reading, number, scene: scene.number, at_us: number * 1e6, sites: { ...reading.sites, cpu_us, heard_us },
              });
              turn(1, some.map(() => 0), some.map((i) => (i === 1 ? null : 0)));
              turn(2, some.map(() => 5e5), some.map(() => 0));
              return model.view().sites.map((site) => site.cpu);
            }""",
            [asked(page, "scene"), asked(page, "reading")],
        )
        assert found[:3] == [0.5, None, 0.5]
