"""The editor in a browser: it is whole and accessible, and a dataflow is drawn, tried and saved with the keyboard alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import evenflow as ef
from tests.query.test_checking import box, drawn
from tests.ui.editing import Edited, editing
from tests.ui.looking import is_accessible, is_whole, opened


def shows(page: Page, state: str) -> None:
    expect(page.locator("#state")).to_have_text(state, timeout=20_000)


LATER = pytest.mark.conformance


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (390, "dark"), pytest.param(1280, "dark", marks=LATER), pytest.param(390, "light", marks=LATER)],
)
def test_it_is_whole_and_accessible(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    document = drawn()
    box(document, "tcp")["params"]["condition"] = "prto = 6"
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(document))
    with editing(path) as edited, opened(browser, edited, width=width, scheme=scheme) as watched:  # type: ignore[arg-type]
        shows(watched.page, "1 wrong")
        watched.page.locator(".react-flow__node[data-id='tcp']").focus()
        watched.page.keyboard.press("Enter")
        expect(watched.page.locator(".panel .field .wrong:visible")).to_contain_text("There is no column 'prto'")
        watched.page.get_by_role("button", name="Fit View").click()  # A drawing may be larger than what is seen of it.
        expect(watched.page.locator(".react-flow__viewport")).to_have_attribute("style", re.compile(r"scale\(0\.[1-5]"))
        is_whole(watched.page)
        is_accessible(watched.page)


def press(page: Page, name: str) -> None:
    button = page.locator(".palette").get_by_role("button", name=name, exact=True).first
    button.focus()
    page.keyboard.press("Enter")


def test_a_dataflow_is_drawn_tried_and_saved_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    with editing(path) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page = watched.page
        shows(page, "empty")
        press(page, "Packets")
        shows(page, "1 lead to no sink")
        press(page, "Where")
        shows(page, "1 wrong")
        page.get_by_label("Condition").focus()
        page.keyboard.type("proto = 6 and lngth > 40")
        expect(page.locator(".panel .wrong:visible")).to_contain_text("did you mean 'length'")
        expect(page.locator(".cm-lintRange-error")).to_have_text("lngth")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("proto = 6 and length > 40")
        shows(page, "1 lead to no sink")
        press(page, "Discard")
        shows(page, "valid")
        page.get_by_role("button", name="Try it").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".taps figure").first).to_contain_text("rows", timeout=60_000)
        page.keyboard.press("ControlOrMeta+s")
        expect(page.locator("#said")).to_have_text("mine.json is saved")
        flow = ef.Dataflow.from_json(path.read_text())
        assert [each.kind for each in flow.network] == ["source", "filter", "sink"]
        assert flow.stream("filter").box.params["condition"] == "proto = 6 and length > 40"
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".react-flow__node")).to_have_count(2)
        page.get_by_role("button", name="Redo").click()
        shows(page, "valid")


def test_an_empty_drawing_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    with editing(tmp_path / "new.json") as edited, opened(browser, edited, width=390) as watched:  # type: ignore[arg-type]
        page = watched.page
        shows(page, "empty")
        begin = page.locator(".beginning")
        expect(begin).to_contain_text("Begin with a source")
        is_whole(page)
        is_accessible(page)
        begin.get_by_role("button", name="Generator").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".react-flow__node")).to_have_count(1)
        expect(begin).to_have_count(0)
        shows(page, "1 lead to no sink")


def test_sql_becomes_boxes_and_the_drawing_python(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    with editing(path) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page = watched.page
        shows(page, "valid")
        page.get_by_role("tab", name="SQL").click()
        page.get_by_label("SQL", exact=True).last.focus()
        page.keyboard.insert_text("SELECT src, max(length) AS most FROM tcp GROUP BY src")
        page.get_by_role("button", name="Draw it").click()
        shows(page, "1 lead to no sink")
        expect(page.locator(".react-flow__node[data-id='query'] .kind")).to_contain_text("SQL")
        page.get_by_role("tab", name="Python").click()
        expect(page.locator(".python")).to_contain_text("def dataflow() -> ef.Dataflow:")


def test_who_may_only_look_is_told_when_saving(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    with editing(path) as edited, opened_to_look(browser, edited) as watched:
        shows(watched, "valid")
        watched.get_by_role("button", name="Tidy").click()
        watched.locator("#save").click()
        expect(watched.locator(".drawer .wrong")).to_contain_text("may look, and change nothing")


@contextmanager
def opened_to_look(browser: Browser, edited: Edited) -> Iterator[Page]:
    """Without the check of the console: the browser notes the refusal there."""
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    try:
        page = context.new_page()
        page.goto(edited.url("look"))
        yield page
    finally:
        context.close()
