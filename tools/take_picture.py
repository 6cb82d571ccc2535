"""Take the picture that opens the README: the page of `evenflow demo`, just after an executor was killed and all is whole again.

    python tools/take_picture.py

The demo is a real one, on executors of this machine, and so takes a minute; the browser is that of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import expect, sync_playwright

ROOT: Final = Path(__file__).resolve().parent.parent
TO: Final = ROOT / "docs" / "images" / "dashboard.png"
WIDTH, HEIGHT = 1280, 800
SECONDS: Final = 40
KILL_AFTER_S: Final = 12
PATIENCE_MS: Final = 120_000
ADDRESS: Final = re.compile(r"http://\S+#token=\S+")
COMMAND: Final = (sys.executable, "-c", "from evenflow.cli import main; main()", "demo", "--plain", "--ui")


def address_of(demo: subprocess.Popen[str]) -> str:
    """Where its page is. Raises SystemExit if it ends without having said so."""
    assert demo.stdout is not None
    for line in demo.stdout:
        print(line, end="", file=sys.stderr)
        found = ADDRESS.search(line)
        if found:
            return found.group()
    sys.exit("the demo has no page")


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.ui.serving import browser_path

    path, needed = browser_path()
    command = [*COMMAND, "--seconds", str(SECONDS), "--kill-after", str(KILL_AFTER_S)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=path, env={**os.environ, **needed}, args=["--no-sandbox", "--headless=shell"]
            )
            page = browser.new_page(
                locale="en-US", viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", device_scale_factor=1
            )
            page.goto(address_of(demo))
            happened = page.locator(".happened li b")
            expect(happened.filter(has_text="site lost")).to_have_count(1, timeout=PATIENCE_MS)
            expect(happened.filter(has_text="redundancy")).to_have_count(1, timeout=PATIENCE_MS)
            page.wait_for_timeout(2_000)  # The new site's numbers, and curves that go on.
            page.screenshot(path=TO)
            browser.close()
    finally:
        demo.terminate()
        demo.wait(60)


if __name__ == "__main__":
    main()
