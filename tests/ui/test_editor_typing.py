"""Nothing that was typed is lost, keys do what they say where they are pressed, and a file that cannot be shown says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.query.test_checking import drawn
from tests.ui.editing import editing
from tests.ui.looking import is_accessible, opened


def source_of(path: Path, name: str) -> Any:
    return next(each for each in json.loads(path.read_text())["boxes"] if each["name"] == name)["params"]["source"]["$source"]


def choose(page: Page, name: str) -> None:
    page.locator(f".react-flow__node[data-id='{name}']").focus()
    page.keyboard.press("Enter")


def test_what_was_typed_just_before_is_saved(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    with editing(path) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page, saved = watched.page, watched.page.locator("#said")
        add = page.locator(".palette").get_by_role("button", name="Packets", exact=True)
        add.click()
        add.click()
        expect(page.locator(".panel input[value='packets_2']")).to_be_visible()
        page.get_by_label("rows", exact=True).fill("7")
        choose(page, "packets")
        expect(page.locator(".panel input[value='packets']")).to_be_visible()
        page.get_by_label("rows", exact=True).fill("9")
        page.keyboard.press("ControlOrMeta+s")
        expect(saved).to_have_text("mine.json is saved")
        assert (source_of(path, "packets")["rows"], source_of(path, "packets_2")["rows"]) == (9, 7)
        page.locator(".palette").get_by_role("button", name="Watermark", exact=True).click()
        delay = page.get_by_label("Delay")
        expect(delay).to_be_visible()
        delay.fill("3 s")
        page.keyboard.press("ControlOrMeta+s")
        expect(page.locator("#save")).not_to_have_attribute("data-dirty", "")
        assert (
            next(each for each in json.loads(path.read_text())["boxes"] if each["kind"] == "watermark")["params"]["delay_us"] == 3_000_000
        )


def test_keys_are_meant_for_what_has_the_focus(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    with editing(path) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page, boxes = watched.page, watched.page.locator(".react-flow__node")
        expect(page.locator("#state")).to_have_text("valid", timeout=20_000)
        count = boxes.count()
        choose(page, "tcp")
        tab = page.get_by_role("tab", name="Rows")
        for other in (tab, page.locator("#drawer"), page.locator("#save"), page.get_by_role("button", name="Tidy")):
            other.focus()
            page.keyboard.press("Backspace")
            page.keyboard.press("Delete")
        expect(boxes).to_have_count(count)
        tab.focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="SQL")).to_be_focused()
        page.keyboard.press("End")
        expect(page.get_by_role("tab", selected=True)).to_have_text("Problems")
        page.keyboard.press("ArrowRight")
        expect(tab).to_have_attribute("aria-selected", "true")
        choose(page, "tcp")
        page.keyboard.press("Delete")
        expect(boxes).to_have_count(count - 1)


def test_a_file_that_is_broken_is_not_asked_for_a_token(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    with editing(path) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page = watched.page
        expect(page.locator("#state")).to_have_text("valid", timeout=20_000)
        path.write_text("{ broken")
        page.reload()
        expect(page.locator("h1")).to_have_text("It cannot be shown")
        expect(page.get_by_role("alert")).to_contain_text("JSON")
        is_accessible(page)
        path.write_text(json.dumps(drawn()))
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#state")).to_have_text("valid", timeout=20_000)
        watched.said.clear()  # The browser says that the file was refused.
