"""What must hold of every page, whatever it shows: nothing said in the console, nothing loaded from elsewhere, no text cut off, nothing
over something else, and what axe asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.ui.serving import Page as Served

READY_MS = 20_000


@dataclass
class Watched:
    """Everything that a page says and asks for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def check(self, home: str) -> None:
        assert self.said == [], self.said
        assert [url for url in self.asked if not url.startswith((home, "data:", "blob:"))] == []


@contextlib.contextmanager
def opened(
    browser: Browser, served: Served | None, *, url: str | None = None, width: int = 1280, scheme: Any = "light", **more: Any
) -> Iterator[Watched]:
    """A page, once it shows numbers; at its end it must have been silent."""
    height = 900 if width > 640 else 800
    context = browser.new_context(
        locale="en-US", viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **more
    )
    try:
        watched = Watched(context.new_page())
        watched.page.on("console", lambda message: watched.said.append(f"{message.type}: {message.text}"))
        watched.page.on("pageerror", lambda error: watched.said.append(str(error)))
        watched.page.on("request", lambda request: watched.asked.append(request.url))
        address = served.url() if url is None and served is not None else url
        assert address is not None
        watched.page.goto(address)
        yield watched
        watched.check(address.split("#")[0])
    finally:
        context.close()


def shows_numbers(page: Page) -> None:
    expect(page.locator("#state")).to_have_text("live", timeout=READY_MS)
    expect(page.locator(".figure").first.locator(".value")).to_contain_text("/s", timeout=READY_MS)
    expect(page.locator(".box .now, .segment .now").first).to_contain_text("/s", timeout=READY_MS)


SCRIPT = (Path(__file__).parent / "looking.js").read_text(encoding="utf-8")

FRAMES = "async () => { for (let i = 0; i < 4; i++) await new Promise(requestAnimationFrame); }"
"""A window that has another size is noticed in the next frame, and drawn in the one behind it."""


def is_whole(page: Page) -> None:
    """No text is cut off and no card lies over another, once the network has its place."""
    page.evaluate(FRAMES)
    expect(page.locator(".network:not([data-fitted])")).to_have_count(0)
    for fault in ("cut", "over"):
        found = page.evaluate(f"{SCRIPT}.{fault}()")
        assert found == [], found


def is_accessible(page: Page) -> None:
    results = Axe().run(page)
    found = [
        (each["id"], node["html"][:120], node.get("failureSummary", "")[:200])
        for each in results.response["violations"]
        for node in each["nodes"]
    ]
    assert found == [], found


NOTE_RED = """() => {
  globalThis.red = {};
  const isRed = (element) => {
    const [red, green, blue] = getComputedStyle(element).backgroundColor.match(/[0-9.]+/g).map(Number);
    return red > 2 * green && red > 2 * blue;
  };
  new MutationObserver(() => {
    for (const row of document.querySelectorAll(".siterow"))
      if (isRed(row.querySelector(".role"))) globalThis.red[row.dataset.key] ??= Date.now();
  }).observe(document.body, { subtree: true, attributes: true, childList: true, characterData: true });
}"""


def note_red(page: Page) -> None:
    """From now on it is noted when a site's role becomes red. To be asked once it shows sites."""
    page.evaluate(NOTE_RED)


def red_at_s(page: Page, site: int) -> float:
    """Seconds since 1970, by the browser's clock, which is that of this machine."""
    return float(page.evaluate("site => globalThis.red[site]", str(site))) / 1000
