"""One browser and one page of a simulated run for all tests of this folder that change nothing about it.

They end with this folder's tests: a simulated run takes CPU for as long as it is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.ui.serving import Page, browser_path, serving, sessions, simulated


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path, needed = browser_path()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--headless=shell", "--font-render-hinting=none"]
        found = playwright.chromium.launch(executable_path=path, env={**os.environ, **needed}, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="package")
def page() -> Iterator[Page]:
    with serving(simulated(sessions())) as served:
        yield served
