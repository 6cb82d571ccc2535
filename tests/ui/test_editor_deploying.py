"""What is drawn goes to an engine only as it was saved and compared, and only when its name is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from evenflow.cli.editing import FileShelf
from tests.query.test_checking import drawn
from tests.ui.editing import editing
from tests.ui.looking import is_accessible, opened


@dataclass(frozen=True)
class Engine(FileShelf):
    """Runs version 3 of what is drawn, of which one box has other code."""

    asked: list[str] = field(default_factory=list)

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(operation)
        if operation == "replace":
            return {"version": 4, "epoch": 17}
        changes = [{"box": "tcp", "change": "other", "keeps_state": False, "why": ""}]
        return {"run": "r1", "version": 3, "possible": True, "changed": ["tcp"], "boxes": changes}


def engine(path: Path) -> Engine:
    path.write_text(json.dumps(drawn()))
    return Engine(path)


def test_what_is_not_saved_is_not_deployed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    shelf = engine(path)
    with editing(path, lambda _: shelf) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page = watched.page
        expect(page.locator("#state")).to_have_text("valid", timeout=20_000)
        page.get_by_role("button", name="Tidy").click()
        path.write_text(json.dumps(drawn() | {"name": "of somebody else"}))
        page.get_by_role("tab", name="Deploy").click()
        for button in ("Compare with what runs", "Start it beside"):
            page.get_by_role("button", name=button).click()
            expect(page.locator(".drawer .wrong")).to_contain_text("changed by somebody else")
        page.get_by_role("tab", name="Python").click()
        expect(page.locator(".python")).to_contain_text("def dataflow")
        assert shelf.asked == [] and not [url for url in watched.asked if url.endswith(("/compare", "/start"))]
        watched.said.clear()  # The browser says that saving was refused.


def test_replace_is_of_what_was_compared_and_asks_again(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    shelf = engine(path)
    with editing(path, lambda _: shelf) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page, sent = watched.page, dict[str, Any]()
        page.on(
            "request",
            lambda request: sent.update({request.url.rsplit("/", 1)[1]: request.post_data_json}) if request.method == "POST" else None,
        )
        expect(page.locator("#state")).to_have_text("valid", timeout=20_000)
        page.get_by_role("tab", name="Deploy").click()
        compare, replace = page.get_by_role("button", name="Compare with what runs"), page.get_by_role("button", name="Replace version 3")
        compare.click()
        expect(replace).to_be_disabled()
        is_accessible(page)
        page.locator(".palette").get_by_role("button", name="Discard").click()
        expect(replace).to_have_count(0)
        compare.click()
        page.locator("input[name=again]").fill(drawn()["name"])
        replace.click()
        expect(page.locator(".drawer")).to_contain_text("Version 4 runs from epoch 17 on.")
        assert shelf.asked == ["compare", "compare", "replace"]
        assert (
            sent["replace"] == {"version": 3, "run": "r1", "tag": edited.ask("document")[1]["tag"]}
            and sent["compare"]["tag"] == sent["replace"]["tag"]
        )
