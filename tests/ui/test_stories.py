"""What an operator lives through, at the page: a site dies, a site is drained, the connection is lost, the server dies."""

from __future__ import annotations

import json
import re
import time
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.looking import is_accessible, is_whole, note_red, opened, red_at_s, shows_numbers
from tests.ui.proxy import proxied
from tests.ui.serving import Page, Turning, serving, sessions, simulated

SOON = 15_000


@pytest.mark.conformance
def test_a_kill_is_seen_as_dead_then_take_over_then_redundancy(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page) as watched:
        shows_numbers(watched.page)
        page.live.kill(2)
        row = watched.page.locator(".siterow[data-key='2']")
        expect(row).to_have_attribute("data-role", "dead", timeout=SOON)
        happened = watched.page.locator(".happened li")
        expect(happened.locator("b", has_text="redundancy")).to_be_visible(timeout=SOON)
        kinds = happened.evaluate_all("all => all.map(each => each.dataset.kind).reverse()")
        assert [kinds.index(kind) for kind in ("site_lost", "take_over", "copies", "redundancy")] == sorted(
            kinds.index(kind) for kind in ("site_lost", "take_over", "copies", "redundancy")
        )
        expect(watched.page.locator("#redundancy")).to_have_text("redundancy 2 of 2", timeout=SOON)
        expect(watched.page.locator("#said")).to_contain_text("redundancy")
        is_whole(watched.page)
        is_accessible(watched.page)


def red_after(browser: Browser, kills: tuple[int, ...]) -> list[float]:
    """Seconds from each kill until the page shows it. Method: the page notes when a site's role becomes red."""
    took_s = []
    with serving(simulated(sessions(), sites=7)) as page, opened(browser, page) as watched:
        shows_numbers(watched.page)
        note_red(watched.page)
        for killed in kills:
            began_s = time.time()
            page.live.kill(killed)
            expect(watched.page.locator(f".siterow[data-key='{killed}']")).to_have_attribute("data-role", "dead", timeout=SOON)
            took_s.append(red_at_s(watched.page, killed) - began_s)
            expect(watched.page.locator("#redundancy")).to_have_text("redundancy 2 of 2", timeout=SOON)
        assert watched.page.evaluate("Object.keys(globalThis.red)") == [str(killed) for killed in kills], "those who live are not red"
    return took_s


def test_a_kill_is_red(browser: Browser) -> None:
    assert all(took_s > 0 for took_s in red_after(browser, (2,)))


@pytest.mark.conformance  # How soon says nothing where others work on the same cores.
def test_a_kill_is_red_within_a_second(browser: Browser) -> None:
    took_s = red_after(browser, (2, 4, 5))
    assert max(took_s) <= 1.0, took_s


def test_a_site_is_drained_by_click_and_by_a_request(browser: Browser) -> None:
    with serving(simulated(sessions(), sites=5)) as page, opened(browser, page) as watched:
        shows_numbers(watched.page)
        watched.page.get_by_role("button", name="Drain…").click()
        dialog = watched.page.get_by_role("dialog")
        dialog.locator("select[name=site]").select_option("1")
        go = dialog.get_by_role("button", name="Drain")
        expect(go).to_be_disabled()
        is_accessible(watched.page)
        dialog.locator("input[name=again]").fill("site 1")
        go.click()
        expect(watched.page.locator(".siterow[data-key='1'] .role")).to_have_text("left", timeout=SOON)
        request = urllib.request.Request(f"{page.at}api/v1/drain", b'{"site": 3}', {"Authorization": "Bearer act"}, method="POST")
        assert json.loads(urllib.request.urlopen(request, timeout=20).read())["left"][0]["site"] == 3
        expect(watched.page.locator(".siterow[data-key='3'] .role")).to_have_text("left", timeout=SOON)


def test_every_dialog_is_whole_on_a_telephone_and_speaks_plainly(browser: Browser, page: Page) -> None:
    """Method: each is opened by its button with the keyboard, and left with Escape, which leads back to the button."""
    with opened(browser, page, width=390) as watched:
        shows_numbers(watched.page)
        buttons, dialog = watched.page.locator("[data-operation]"), watched.page.get_by_role("dialog")
        expect(buttons.first).to_be_visible()
        seen = 0
        for place in range(buttons.count()):
            button = buttons.nth(place)
            if "…" not in button.inner_text() or button.get_attribute("data-operation") == "sites":
                continue
            button.focus()
            watched.page.keyboard.press("Enter")
            expect(dialog).to_be_visible()
            is_whole(watched.page)
            text = dialog.inner_text()
            assert "`" not in text and "undefined" not in text, text
            labels = dialog.locator("label:has(small)").evaluate_all("all => all.map(each => each.firstChild.textContent)")
            assert labels and all(label[0].isupper() and "_" not in label for label in labels), labels
            box = dialog.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
            watched.page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            expect(button).to_be_focused()
            seen += 1
        assert seen >= 10
        watched.page.get_by_role("button", name="Sites…", exact=True).click()
        expect(dialog.locator("h3", has_text="Sites")).to_be_visible()
        expect(dialog.locator("tbody tr")).to_have_count(5)
        expect(dialog.locator("pre")).to_have_count(0)
        is_whole(watched.page)
        is_accessible(watched.page)


def test_who_may_only_look_has_no_buttons_that_change_something(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page, url=page.url("look")) as watched:
        shows_numbers(watched.page)
        expect(watched.page.locator("[data-operation=state]")).to_be_visible()
        expect(watched.page.locator("[data-operation=drain]")).to_have_count(0)


def test_a_wrong_token_shows_no_number(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page, url=page.url("guessed")) as watched:
        expect(watched.page.locator("h1")).to_have_text("Who asks?")
        expect(watched.page.locator(".wrong")).to_contain_text("a token is needed")
        is_accessible(watched.page)
        assert watched.said == ["error: Failed to load resource: the server responded with a status of 401 (Unauthorized)"]
        watched.said.clear()
        watched.page.get_by_label("Token").fill("act")
        watched.page.get_by_role("button", name="Look").click()
        shows_numbers(watched.page)


def test_the_run_goes_on_when_its_page_dies(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page) as watched:
        shows_numbers(watched.page)
        assert page.server is not None
        page.server.should_exit = True
        expect(watched.page.locator("#state")).to_have_text("connection lost", timeout=SOON)
        before = page.live.readings
        page.live.kill(0)
        page.live.kill(1)
        assert page.live.readings > before
        watched.said.clear()  # The browser says that nobody answers.


def test_the_end_of_the_engine_is_said(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page) as watched:
        shows_numbers(watched.page)
        page.live.close()
        page.teller.feed.end("there is no control file")
        expect(watched.page.locator("#state")).to_have_text("engine has ended", timeout=SOON)


def test_a_system_without_a_language_has_curves(browser: Browser) -> None:
    with serving(simulated(sessions())) as page, opened(browser, page, url="about:blank") as watched:
        watched.page.add_init_script("Object.defineProperty(navigator, 'language', {value: 'en-US@posix', configurable: true})")
        watched.page.goto(page.url())
        shows_numbers(watched.page)
        expect(watched.page.locator(".uplot").first).to_be_visible()
        watched.asked.clear()


@pytest.mark.conformance
def test_it_works_behind_a_prefix_and_in_a_foreign_frame(browser: Browser) -> None:
    with serving(simulated(sessions()), hosts=("spark.example",), ancestors="http://localhost:*") as page, proxied(page.at) as proxy:
        with opened(browser, page, url=f"{proxy}/some/where/#token=act") as watched:
            shows_numbers(watched.page)
            watched.page.get_by_role("button", name="Add sites…").click()
            watched.page.get_by_role("dialog").locator("input[name=count]").fill("1")
            watched.page.get_by_role("dialog").get_by_role("button", name="Add sites").click()
            expect(watched.page.locator(".siterow")).to_have_count(6, timeout=SOON)
        context = browser.new_context(locale="en-US")
        outer = context.new_page()
        outer.goto(f"{proxy.replace('127.0.0.1', 'localhost')}/outer")
        expect(outer.frame_locator("#inner").locator("#state")).to_have_text("live", timeout=SOON)
        context.close()


@pytest.mark.conformance
def test_numbers_come_where_a_proxy_keeps_the_stream_back(browser: Browser) -> None:
    with (
        serving(simulated(sessions()), hosts=("spark.example",)) as page,
        proxied(page.at, holds=True) as proxy,
        opened(browser, page, url=f"{proxy}/some/where/#token=act") as watched,
    ):
        expect(watched.page.locator("#state")).to_have_text("live, polled", timeout=SOON)
        expect(watched.page.locator(".box .now").first).to_contain_text("/s", timeout=SOON)
        expect(watched.page.locator("[data-operation=drain]")).to_be_visible(timeout=SOON)
        page.live.kill(2)
        expect(watched.page.locator(".siterow[data-key='2']")).to_have_attribute("data-role", "dead", timeout=SOON)
        expect(watched.page.locator(".happened li b", has_text="site lost")).to_have_count(1, timeout=SOON)


TROUBLED = """async () => {
  const { troubledFirst } = await import("./static/sites.js");
  const sites = (...all) => all.map(([site, role]) => ({ site, role })), names = (all) => all.map((each) => each.site);
  const many = sites([1, "live"], [2, "spare"], [3, null], [7, "dead"], [9, "left"]);
  return [names(troubledFirst(many, 4)), names(troubledFirst(sites([1, "live"], [3, "dead"]), 4))];
}"""

THROUGH_CARDS = """() => {
  const cards = [...document.querySelectorAll(".segment")].map((card) => [card.textContent, card.getBoundingClientRect()]);
  const found = new Set(), inside = (x, y, card) => x > card.left + 2 && x < card.right - 2 && y > card.top + 2 && y < card.bottom - 2;
  for (const path of document.querySelectorAll(".arrow")) {
    const to = path.getScreenCTM(), length = path.getTotalLength();
    for (let at = 0; at <= length; at += 4) {
      const { x, y } = path.getPointAtLength(at).matrixTransform(to);
      for (const [name, card] of cards) if (inside(x, y, card)) found.add(name);
    }
  }
  return [...found];
}"""


@pytest.mark.conformance
def test_two_hundred_boxes_are_read_as_segments_and_seen_as_boxes_on_request(browser: Browser) -> None:
    with serving(Turning()) as page:
        with opened(browser, page, scheme="dark") as watched:
            shows_numbers(watched.page)
            expect(watched.page.locator(".segment")).to_have_count(26)
            expect(watched.page.locator(".siterow")).to_have_count(100)
            assert watched.page.evaluate(THROUGH_CARDS) == []
            is_whole(watched.page)
            is_accessible(watched.page)
            watched.page.get_by_role("button", name="boxes", exact=True).click()
            expect(watched.page.locator(".react-flow__node .box")).to_have_count(201)
            expect(watched.page.locator(".react-flow__viewport")).to_have_attribute("style", re.compile(r"scale\(0\.[6-9]"))
            expect(watched.page.locator(".react-flow__node[data-id='b:events'] .box")).to_be_in_viewport()
            assert watched.page.evaluate(TROUBLED) == [[7, 3, 1, 2, 9], [1, 3]], "who needs somebody is first among many"
        with opened(browser, page, width=390) as watched:
            shows_numbers(watched.page)
            is_whole(watched.page)
