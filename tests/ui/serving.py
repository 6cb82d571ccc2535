"""A page of a simulated run for the tests of this folder, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import evenflow as ef
from evenflow.bench.dashboard import Big
from evenflow.bench.live_sim import EVERY_S, LiveSim, Take
from evenflow.errors import OperationRefused
from evenflow.monitor.web.feed import Feed
from evenflow.monitor.web.guard import Tokens
from evenflow.monitor.web.serve import Server, bound, serve
from evenflow.monitor.web.server import Site
from evenflow.monitor.web.teller import CURVES, Teller
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

TOKENS = Tokens("look", "act")
ROWS = 3_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def sessions() -> ef.Dataflow:
    """Like the demo: a source, a filter, two aggregations behind exchanges, a sink."""
    flow = ef.Dataflow("network_sessions")
    rows = pa.record_batch({"src": pa.array([(i * i) % 500 for i in range(ROWS)], pa.int64()), "bytes": pa.array(range(ROWS), pa.int64())})
    packets = flow.source(ef.sources.memory([rows] * 2_000), name="packets")
    found = packets.where("bytes >= 0", name="whole").group_by("src").agg(n="count(*)", sum="sum(bytes)").name("sessions")
    found.where("n > 1", name="often").group_by("n").agg(most="max(sum)").name("by_app").to(ef.sinks.memory("out"), name="view")
    return flow


class Turning:
    """The run that `bench dashboard` watches: 200 boxes, 100 sites, 1,000 partitions. Nothing can be asked of it."""

    def __init__(self) -> None:
        self._big, self._closed = Big(), threading.Event()

    def run(self, take: Take) -> None:
        scene, reading = self._big.turn()
        take(scene)
        while not self._closed.wait(EVERY_S):
            take(reading)
            _, reading = self._big.turn()

    def close(self) -> None:
        self._closed.set()

    def ask(self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        raise OperationRefused(f"nobody runs here: {name}")


def simulated(flow: ef.Dataflow, *, sites: int = 4, partitions: int = 64, step_s: float = 0.5, every_s: float = 0.1) -> LiveSim:
    """A run of it; virtual time goes faster than the clock, so that a test need not wait. Epochs are few: it runs beside the tests."""
    planned = layout(flow.network, sites=sites, partitions=partitions)
    options = FlowOptions(linger_ms=250.0, heartbeat_ms=500.0)
    world = SimWorld(planned, sites=sites, replicas=2, spares=1, seed=3, options=options, read_every_us=(100_000, 200_000), read_rows=1_500)
    return LiveSim(world, flow.network, every_s=every_s, step_s=step_s)


@dataclass(slots=True)
class Page:
    """url: with the operator's token behind the #. at: the same without."""

    live: Any
    teller: Teller
    at: str
    server: Server | None = None

    def url(self, token: str = "act") -> str:
        return f"{self.at}#token={token}"


@contextlib.contextmanager
def serving(live: Any, **more: Any) -> Iterator[Page]:
    """Serve it at a port of its own, until the end of the block."""
    feed = Feed("nonce", CURVES)
    teller = Teller(feed)
    site = Site(feed, live.ask, lambda: b"evenflow_up 1\n", lambda: None if teller.newest else "no reading yet", TOKENS, **more)
    listening = bound("127.0.0.1", 0)
    begun = threading.Event()
    page = Page(live, teller, f"http://127.0.0.1:{listening.getsockname()[1]}/")

    def note(server: Server) -> None:
        page.server = server
        begun.set()

    threads = [
        threading.Thread(target=live.run, args=(teller.take,), daemon=True),
        threading.Thread(target=serve, args=(site, listening, note), daemon=True),
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    try:
        yield page
    finally:
        live.close()
        assert page.server is not None
        page.server.should_exit = True
        for thread in threads:
            thread.join(20)
        listening.close()


def browser_path() -> tuple[str, dict[str, str]]:
    """The browser, and the environment that it needs: EVENFLOW_BROWSER, else one on PATH, else what tools/fetch_browser.py has fetched.
    Raises AssertionError without any: these tests do not skip."""
    given = os.environ.get("EVENFLOW_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if given:
        return given, {}
    places = (Path(sys.prefix) / "browser", Path(__file__).resolve().parents[2] / ".venv" / "browser")
    fetched = next((place for place in places if (place / "chromium").exists()), None)
    assert fetched is not None, "no browser: python tools/fetch_browser.py, or EVENFLOW_BROWSER=/path/to/chromium"
    return str(fetched / "chromium"), {"LD_LIBRARY_PATH": f"{fetched / 'lib'}{os.pathsep}{fetched}"}


__all__ = ["TOKENS", "Page", "browser_path", "serving", "sessions", "simulated", "Turning"]
