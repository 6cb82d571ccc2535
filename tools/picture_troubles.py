"""Make the pictures of docs/operations.md: the page of simulated runs that have a trouble, a flame graph, and the editor.

python tools/picture_troubles.py [NAME...]   # slow, late, unbalanced, degraded, flame, editor; without a name all of them
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ui.editing import editing  # noqa: E402
from tests.ui.serving import browser_path, serving  # noqa: E402

import evenflow as ef  # noqa: E402
from evenflow.bench.live_sim import LiveSim  # noqa: E402
from evenflow.query.planner import layout  # noqa: E402
from evenflow.site.options import FlowOptions  # noqa: E402
from evenflow.world.sim.model import CostModel  # noqa: E402
from evenflow.world.sim.watching import BEGAN_US  # noqa: E402
from evenflow.world.sim.world import SimWorld  # noqa: E402

IMAGES = ROOT / "docs" / "images"
COLOURS = 256
BATCH, BATCHES = 600, 2_000
US_PER_ROW = 89.0
"""Of event time: as many rows a second as the simulated source gives."""
ROW_US = {"visits": 60.0, "traffic": 4.0}
"""Of CPU, where a run shall be busy."""
SEEN_MS = 60_000


class Visits(ef.Processor):
    """How often each address was seen."""

    output = "src bigint, visits bigint"

    def open(self, store: Any) -> None:
        store.value("visits", "bigint", default=0)

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        state.visits += rows.num_rows
        return [(key[0], state.visits)]


def batches(hot: float = 0.0, stands_from: int = BATCHES) -> list[pa.RecordBatch]:
    """hot: share of the rows that have one key. stands_from: the batch from which on event time hardly advances."""
    random, made = np.random.default_rng(7), []
    steps = np.full(BATCHES * BATCH, US_PER_ROW)
    steps[stands_from * BATCH :] /= 20
    times = BEGAN_US + np.cumsum(steps).astype(np.int64)
    for number in range(BATCHES):
        src = random.integers(1, 400, BATCH)
        src[random.random(BATCH) < hot] = 17
        ts = times[number * BATCH : (number + 1) * BATCH]
        made.append(
            pa.record_batch({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "src": src, "length": random.integers(40, 1500, BATCH)})
        )
    return made


def flow_of(rows: list[pa.RecordBatch]) -> ef.Dataflow:
    flow = ef.Dataflow("network_sessions")
    packets = flow.source(ef.sources.memory(rows), name="packets").with_watermark("ts", "1 second")
    large = packets.where("length >= 60", name="large")
    large.key_by("src").process(Visits()).name("visits").to(ef.sinks.memory("visits"), name="seen")
    large.group_by("src").window("1 second").agg(bytes="sum(length)").name("traffic").to(ef.sinks.memory("view"), name="view")
    return flow


def live(flow: ef.Dataflow, *, sites: int = 5, cost: CostModel | None = None) -> LiveSim:
    planned = layout(flow.network, sites=sites, partitions=40)
    options = FlowOptions(linger_ms=50.0, heartbeat_ms=200.0)
    world = SimWorld(planned, sites=sites, replicas=2, seed=5, cost=cost, options=options, read_every_us=(15_000, 25_000), read_rows=BATCH)
    return LiveSim(world, flow.network, every_s=0.25, step_s=0.5)


def picture(page: Page, name: str) -> None:
    """Of what is seen, in few colours: a page has not many."""
    drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS, kmeans=1, dither=Image.Dither.NONE)
    drawn.save(IMAGES / f"{name}.png", optimize=True)
    print(f"{name}.png: {(IMAGES / f'{name}.png').stat().st_size / 1024:.0f} KiB")


def shown(browser: Browser, url: str, height: int = 900) -> Page:
    page = browser.new_context(locale="en-US", viewport={"width": 1280, "height": height}, color_scheme="light").new_page()
    page.goto(url)
    return page


def after(page: Page, readings: int) -> None:
    """So many readings later."""
    root = page.locator("html")
    expect(page.locator("#state")).to_have_text("live", timeout=SEEN_MS)
    last = int(root.get_attribute("data-readings") or 0) + readings
    for _ in range(SEEN_MS // 100):
        if int(root.get_attribute("data-readings") or 0) >= last:
            return
        page.wait_for_timeout(100)


def of_run(browser: Browser, name: str, run: LiveSim, trouble: Callable[[LiveSim], None], readings: int) -> None:
    with serving(run) as served:
        page = shown(browser, served.url())
        after(page, 8)
        trouble(run)
        after(page, readings)
        picture(page, f"operations-{name}")


def slowed(factor: float, *sites: int) -> Callable[[LiveSim], None]:
    """These sites take so many times as long for everything."""

    def wish(world: SimWorld) -> Callable[[SimWorld], bool]:
        for site in sites:
            world.slow_down(site, factor)
        return lambda world: True

    return lambda run: run.do(wish)


def slow(browser: Browser) -> None:
    of_run(browser, "slow", live(flow_of(batches())), slowed(400.0, 3), 40)


def late(browser: Browser) -> None:
    of_run(browser, "late", live(flow_of(batches(stands_from=200))), lambda run: None, 44)


def unbalanced(browser: Browser) -> None:
    of_run(browser, "unbalanced", live(flow_of(batches(hot=0.7)), cost=CostModel(boxes=ROW_US)), lambda run: None, 30)


def degraded(browser: Browser) -> None:
    of_run(browser, "degraded", live(flow_of(batches()), sites=2), lambda run: run.kill(1), 12)


def flame(browser: Browser) -> None:
    with serving(live(flow_of(batches(hot=0.3)))) as served:
        page = shown(browser, served.url(), 760)
        after(page, 4)
        page.get_by_role("button", name="Profile…").click()
        dialog = page.get_by_role("dialog")
        dialog.locator("select[name=site]").select_option("3")
        dialog.locator("input[name=seconds]").fill("8")
        dialog.get_by_role("button", name="Profile").click()
        expect(page.get_by_role("tree")).to_be_visible(timeout=SEEN_MS)
        picture(page, "operations-flame")


def editor(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sessions.json"
        flow = ef.Dataflow("sessions")
        packets = flow.source(ef.sources.packets(rows=1_000), name="packets").with_watermark("ts", "10 seconds")
        packets.where("proto = 6", name="tcp").group_by("src").window("1 minute").agg(bytes="sum(length)").name("traffic").to(
            ef.sinks.console(), name="view"
        )
        path.write_text(flow.to_json(), encoding="utf-8")
        with editing(path) as edited:
            page = shown(browser, edited.url(), 760)
            page.locator(".react-flow__node").nth(3).wait_for(timeout=SEEN_MS)
            page.locator(".react-flow__node").nth(2).click()
            page.get_by_role("button", name="Try it").click()
            expect(page.locator(".taps figure").first).to_contain_text("rows", timeout=SEEN_MS)
            picture(page, "editor")


PICTURES = (slow, late, unbalanced, degraded, flame, editor)


def main() -> int:
    path, needed = browser_path()
    wanted = sys.argv[1:] or [make.__name__ for make in PICTURES]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, env={**os.environ, **needed}, args=["--no-sandbox", "--headless=shell"])
        for make in PICTURES:
            if make.__name__ in wanted:
                make(browser)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
