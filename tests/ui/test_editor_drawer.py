"""Below the drawing: a statement that was typed stays until it is drawn, rows are of what is drawn, and an answer that comes late undoes
no edit."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from evenflow.cli.editing import FileShelf
from tests.query.test_checking import drawn
from tests.ui.editing import editing
from tests.ui.looking import Watched, is_accessible, is_whole, opened

FIRST = "SELECT src, max(length) AS most FROM tcp GROUP BY src"
SECOND = "SELECT src, min(length) AS least FROM tcp GROUP BY src"


@dataclass(frozen=True)
class Trying(FileShelf):
    """Tries at once what the real one needs seconds for: each box gives a row, the number of the try. held: answered only when told to."""

    tried: list[str] = field(default_factory=list)
    held: dict[int, threading.Event] = field(default_factory=dict)

    def preview(self, document: str, samples: Mapping[str, Any] | None, taps: Any, rows: int) -> Mapping[str, Any]:
        self.tried.append(document)
        number = len(self.tried)
        if number in self.held:
            assert self.held[number].wait(60)
        given = [
            {"box": each["name"], "port": 0, "name": "", "columns": ["n"], "rows": [[number]], "count": number}
            for each in json.loads(document)["boxes"]
        ]
        return {"sources": {"packets": {"from": "made", "rows": number}}, "taps": given}


@contextmanager
def drawing(browser: Browser, tmp_path: Path, held: tuple[int, ...] = ()) -> Iterator[tuple[Watched, Trying]]:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    shelf = Trying(path, held={number: threading.Event() for number in held})
    with editing(path, lambda _: shelf) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        expect(watched.page.locator("#state")).to_have_text("valid", timeout=20_000)
        yield watched, shelf


def turn(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def add(page: Page, name: str) -> None:
    page.locator(".palette").get_by_role("button", name=name, exact=True).first.click()


def choose(page: Page, name: str) -> None:
    page.locator(f".react-flow__node[data-id='{name}']").focus()
    page.keyboard.press("Enter")


def type_sql(page: Page, text: str) -> None:
    page.locator(".drawer .cm-content").focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)


def says(page: Page, text: str) -> None:
    """The statement that is shown."""
    expect(page.locator(".drawer .cm-line")).to_have_text(text)


def warns(page: Page) -> bool:
    """Whether the browser asks before it closes the page."""
    return not page.evaluate("() => dispatchEvent(new Event('beforeunload', { cancelable: true }))")


def test_a_statement_that_is_typed_stays_until_it_is_drawn(browser: Browser, tmp_path: Path) -> None:
    with drawing(browser, tmp_path) as (watched, shelf):
        page = watched.page
        turn(page, "SQL")
        type_sql(page, FIRST)
        page.get_by_label("result").fill("most")
        turn(page, "Problems")
        turn(page, "SQL")
        says(page, FIRST)
        expect(page.get_by_label("result")).to_have_value("most")
        assert warns(page)
        expect(page.get_by_role("tab", name="SQL 1")).to_be_visible()
        page.get_by_role("button", name="Fit View").click()  # A drawing may be larger than what is seen of it.
        expect(page.locator(".react-flow__viewport")).to_have_attribute("style", re.compile(r"scale\(0\.[1-5]"))
        is_whole(page)
        is_accessible(page)
        page.keyboard.press("ControlOrMeta+s")
        expect(page.locator("#said")).to_have_text("drawn.json is saved; a statement under SQL is not drawn yet")
        page.get_by_role("button", name="Draw it").click()
        expect(page.locator(".react-flow__node[data-id='most']")).to_be_visible()
        page.keyboard.press("ControlOrMeta+s")
        expect(page.locator("#said")).to_have_text("drawn.json is saved")
        assert not warns(page)
        type_sql(page, SECOND)  # Of the cell that was drawn, and that is drawn still.
        page.get_by_role("button", name="new").click()
        expect(page.locator(".drawer .cm-placeholder")).to_be_visible()
        shelf.path.write_text(json.dumps(drawn() | {"name": "of somebody else"}))
        page.keyboard.press("ControlOrMeta+s")
        expect(page.locator(".drawer .wrong")).to_contain_text("changed by somebody else")
        turn(page, "SQL")
        page.get_by_role("group", name="Cells").get_by_role("button", name="most").click()
        says(page, SECOND)
        choose(page, "most")
        page.keyboard.press("Delete")
        expect(page.locator(".react-flow__node[data-id='most']")).to_have_count(0)
        turn(page, "SQL")
        says(page, SECOND)
        page.get_by_role("button", name="Draw it").click()
        expect(page.locator(".react-flow__node[data-id='most']")).to_be_visible()
        expect(page.get_by_role("tab", name="SQL", exact=True)).to_be_visible()
        watched.said.clear()  # The browser says that saving was refused.


def test_what_was_edited_meanwhile_is_not_put_back_by_a_statement(browser: Browser, tmp_path: Path) -> None:
    with drawing(browser, tmp_path) as (watched, _):
        page, routes = watched.page, list[Route]()
        page.route("**/editor/cell", lambda route: routes.append(route), times=1)
        turn(page, "SQL")
        type_sql(page, FIRST)
        boxes = page.locator(".react-flow__node")
        count = boxes.count()
        with page.expect_request("**/editor/cell"):
            page.get_by_role("button", name="Draw it").click()
        add(page, "Discard")
        expect(boxes).to_have_count(count + 1)
        routes.pop().continue_()
        expect(page.locator(".drawer .wrong")).to_have_text("Something else is drawn now: draw it again.")
        expect(boxes).to_have_count(count + 1)
        says(page, FIRST)
        page.get_by_role("button", name="Draw it").click()
        expect(page.locator(".react-flow__node[data-id='query']")).to_be_visible()
        expect(page.locator(".drawer .wrong:visible")).to_have_count(0)
        assert boxes.count() > count + 1


def test_rows_are_of_what_is_drawn_or_say_so(browser: Browser, tmp_path: Path) -> None:
    with drawing(browser, tmp_path, held=(2,)) as (watched, shelf):
        page, old = watched.page, watched.page.get_by_text("Something else is drawn now: try it again.")
        attempt, taps = page.get_by_role("button", name="Try it"), page.locator(".taps figcaption")
        attempt.click()
        expect(taps.first).to_contain_text("1 rows")
        choose(page, "packets")
        expect(taps).to_have_text(["packets 1 rows"])
        page.get_by_role("button", name="Tidy").click()  # Other places, the same rows.
        expect(page.locator("#said")).to_have_text("Boxes are in order")
        expect(old).to_be_hidden()
        add(page, "Where")
        expect(old).to_be_visible()
        page.get_by_role("button", name="Undo").click()
        expect(old).to_be_hidden()
        attempt.click()  # It is not answered yet, and of two the newer one counts.
        expect(page.get_by_role("button", name="Trying")).to_be_disabled()
        turn(page, "SQL")
        type_sql(page, FIRST)
        add(page, "Packets")
        turn(page, "Rows")
        attempt.click()
        expect(taps.first).to_contain_text("3 rows")
        turn(page, "SQL")
        with page.expect_response("**/editor/preview"):
            shelf.held[2].set()
        says(page, FIRST)
        turn(page, "Rows")
        expect(taps.first).to_contain_text("3 rows")
        expect(old).to_be_hidden()
        choose(page, "packets_2")
        page.get_by_label("rows", exact=True).fill("-1")
        attempt.click()
        expect(page.locator(".drawer .wrong")).to_contain_text("packets source: rows is -1")
        expect(taps).to_have_count(0)
        assert len(shelf.tried) == 3
        page.get_by_label("rows", exact=True).fill("7")
        attempt.click()
        expect(taps.first).to_contain_text("4 rows")
        expect(page.locator(".drawer .wrong:visible")).to_have_count(0)
        watched.said.clear()  # The browser says that a source was refused.
