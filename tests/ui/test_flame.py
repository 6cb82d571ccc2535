"""The flame graph of a site: by button, by keyboard, as a table, and as the request gives it."""

from __future__ import annotations

import json
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.looking import is_accessible, is_whole, opened, shows_numbers
from tests.ui.serving import Page

SOON = 20_000


@pytest.mark.conformance
def test_a_site_is_profiled_by_button_and_looked_at_by_keyboard(browser: Browser, page: Page) -> None:
    with opened(browser, page, url=page.url("look")) as watched:
        shows_numbers(watched.page)
        graph = watched.page.get_by_role("tree")
        for seconds in ("2", "4", "8"):  # A site of a machine that has much to do is seen at work more rarely.
            watched.page.get_by_role("button", name="Profile…").click()
            dialog = watched.page.get_by_role("dialog")
            dialog.locator("select[name=site]").select_option("1")
            dialog.locator("input[name=seconds]").fill(seconds)
            dialog.get_by_role("button", name="Profile").click()
            expect(graph).to_be_visible(timeout=SOON)
            if graph.locator(".of-box").count():
                break
            watched.page.keyboard.press("Escape")
            expect(graph).to_have_count(0)
        root = graph.get_by_role("treeitem").first
        expect(root).to_have_text("site 1")
        second = graph.locator("[aria-level='2']").all_inner_texts()
        assert second and "site 1" not in second, "the site is there once"
        expect(graph.locator(".of-box", has_text="box ").first).to_be_visible()
        is_whole(watched.page)
        is_accessible(watched.page)

        root.focus()
        about = watched.page.locator(".profile .about")
        watched.page.keyboard.press("ArrowDown")
        below = watched.page.locator(":focus")
        expect(below).to_have_attribute("aria-level", "2")
        expect(about).to_contain_text(below.inner_text())
        name = below.inner_text()
        watched.page.keyboard.press("Enter")
        expect(watched.page.locator(":focus")).to_have_text(name)
        assert watched.page.locator(":focus").evaluate("each => each.style.width") == "100%"
        watched.page.keyboard.press("Home")
        expect(watched.page.locator(":focus")).to_have_text("site 1")

        watched.page.get_by_role("button", name="table", exact=True).last.click()
        first = watched.page.locator(".profile tbody tr").first
        expect(first).to_contain_text("box ")
        is_accessible(watched.page)
        watched.page.keyboard.press("Escape")
        expect(graph).to_have_count(0)


def test_a_request_gives_the_same(page: Page) -> None:
    body = json.dumps({"site": 0, "seconds": 1}).encode()
    request = urllib.request.Request(f"{page.at}api/v1/profile", body, {"Authorization": "Bearer look"})
    told = json.loads(urllib.request.urlopen(request, timeout=20).read())
    assert told["site"] == 0 and told["samples"] > 5 and told["frames"][0] == "site 0"
    assert {each["box"] for each in told["boxes"]} <= {"packets", "whole", "sessions", "often", "by_app", "view"}
    assert all(0 <= place < len(told["frames"]) for stack in told["stacks"] for place in stack["frames"])
