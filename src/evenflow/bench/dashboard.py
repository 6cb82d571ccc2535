"""What it costs to be looked at: the driver's share, the page's server with fifty readers, the browser; 1,000 partitions on 100 sites.

Nothing runs here but the watching itself: sites' reports are made up, at the rate at which sites send them. Shares are of one core.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import evenflow as ef
from evenflow.bench.readers import readers
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene, SceneSite
from evenflow.monitor.watching import Gauges, PartCounts, Watched, Watching
from evenflow.plan.placement import first_membership, first_plan
from evenflow.query.planner import layout
from evenflow.statistics.growing import Growing
from evenflow.statistics.window import BoxWindow, SegmentWindow, SiteWindow
from evenflow.statistics.wire import FlatWindow, flat_of, names_of, producers_of
from evenflow.stream.ids import SiteId

SITES: Final = 100
SEGMENTS: Final = 25
PARTITIONS: Final = 40
FILTERS: Final = 6
"""Boxes besides the count and the sink, in each of the chains: 200 boxes and one source in all."""
READERS: Final = 50
EVERY_S: Final = 0.5
REPORTS: Final = 2
"""Of each site, in that time."""
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

Say = Callable[[str], None]


class Big:
    """A run of the target's size, of which a reading is made every half second."""

    def __init__(self) -> None:
        flow = ef.Dataflow("dashboard")
        rows: Any = flow.source(ef.sources.generator(rate=1), name="events")
        for chain in range(SEGMENTS):
            stream = rows.group_by("key").agg(n="count(*)").name(f"count_{chain}")
            for place in range(FILTERS):
                stream = stream.where(f"n >= {place}", name=f"filter_{chain}_{place}")
            stream.to(ef.sinks.discard(), name=f"sink_{chain}")
        self.network, self.planned = flow.network, layout(flow.network, sites=SITES, partitions=PARTITIONS)
        self.plan = first_plan(self.planned, SITES, 2)
        self.membership = first_membership(self.planned, self.plan, map(SiteId, range(SITES)))
        self._growing = Growing(names_of(self.planned), producers_of(self.planned))
        self._watching = Watching("bench", "dashboard")
        self.windows = [flat_of(self._window(site), self._waited(site)) for site in range(SITES)]
        self._sites = [(SceneSite(site, str(site), f"host-{site}", 1000 + site, "live"), Gauges(0, 1 << 28, 0)) for site in range(SITES)]
        self._turns, self._began_us = 0, time.time_ns() // 1000

    def _window(self, site: int) -> SiteWindow:
        segments = []
        for number, row in enumerate(self.plan.placement):
            here = tuple(partition for partition, sites in enumerate(row) if site in sites)
            if here:
                steps = self.planned.segments[number].steps
                boxes = tuple(BoxWindow(step.box, 1000, 900, 50) for step in steps)
                rows = tuple(100 + (partition * 37) % 200 for partition in here)
                segments.append(SegmentWindow(number, f"s{number}", here, rows, (4096,) * len(here), 400, boxes))
        return SiteWindow(site, 0, 250_000, 100_000, segments=tuple(segments))

    def _waited(self, site: int) -> tuple[tuple[int, int], ...]:
        """An ingress has waited for two others."""
        ingress = any(site in sites for segment in self.planned.segments if segment.source for sites in self.plan.placement[segment.id])
        return tuple(((site + step) % SITES, 1_000) for step in (1, 2)) if ingress else ()

    def turn(self) -> tuple[Scene, Reading]:
        """Half a second of reports, and what is read of them."""
        self.report()
        return self.look()

    def report(self) -> None:
        """All sites say what they have done in half a second."""
        self._turns += 1
        for _ in range(REPORTS):
            for window in self.windows:
                self._growing.take(window)

    def look(self) -> tuple[Scene, Reading]:
        """What is read of it now. Its clock goes with the turns, half a second each, however fast they come: an hour's readings are of an
        hour."""
        count = self._turns
        parts = {site: PartCounts(count * 1000, count * 900, 0, 0, 1 << 20, 0, count * 25, 2) for site in range(SITES)}
        watched = Watched(
            run="run-1", planned=self.planned, network=self.network, plan=self.plan, membership=self.membership, active=True, replicas=2,
            redundancy=2, live=range(SITES), elapsed_us=int(count * EVERY_S * 1e6), growing=self._growing.now(), slots=self._growing.slots,
            parts=parts, latency={100: count * 50, 110: count * 2}, events_since=lambda told: ((), 0),
        )  # fmt: skip
        return self._watching.look(self._began_us + int(count * EVERY_S * 1e6), self._sites, [watched])


PARTS: Final = ("driver", "progress", "check", "ui", "browser")


def run(*, quick: bool, say: Say, only: Sequence[str] = PARTS, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of `bench dashboard`. None is what has not been measured: parts that are left out, or a machine without a browser.
    before: an object of another time, of which the parts that are left out are taken."""
    big, turns = Big(), 10 if quick else 60
    big.turn()
    scene = big.turn()[0]
    result: dict[str, Any] = {
        **dict.fromkeys(FIELDS),
        **{name: value for name, value in (before or {}).items() if name in FIELDS},
        "quick": quick,
        "boxes": len(big.network),
        "segments": len(big.planned.segments),
        "sites": SITES,
        "partitions": sum(segment.partitions for segment in big.planned.segments),
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
    }
    if "driver" in only:
        say("the driver's share")
        result |= driver_cost(big, turns)
    if "progress" in only:
        say("progress()")
        result["progress_ms"] = progress_ms(big, turns)
    if "check" in only:
        say("check of the network, cold")
        result["check_ms"] = check_ms(big, 3 if quick else 9)
    seconds = 5.0 if quick else 50.0
    if "ui" in only:
        with server(big, scene) as (url, cost):
            say(f"{READERS} readers")
            with readers(url, "bench", READERS):
                cost(1.0)
                result |= cost(seconds)
    path = browser_path() if "browser" in only else None
    if path is not None:
        say(f"the browser, {path}")
        result |= in_browser(path, big, scene, 100 if quick else HOUR)
    elif "browser" in only:
        say("no browser: set EVENFLOW_BROWSER to measure one")
    return result


FIELDS: Final = (
    "driver_share", "driver_share_unwatched", "driver_share_without_dashboard", "dashboard_share_unwatched",
    "reading_ms_driver", "reading_bytes", "held_ms", "progress_ms", "check_ms",
    "ui_share_50_tabs", "ui_mb", "ui_mb_hour", "reading_ms_browser", "heap_mb", "readings_taken", "first_picture_ms", "first_picture_kb",
)  # fmt: skip
HOUR: Final = 7_200
"""Readings of an hour."""


def driver_cost(big: Big, turns: int) -> dict[str, float]:
    """CPU of the driver for ten seconds of reports, three ways by turns: nobody has a dashboard; one is there, and nobody looks at it; tabs
    are open, all with one stream. All three pay for the sums, which `progress()` and metrics need from the run's begin on; the second one
    for a look in ten seconds, the third for one and its JSON every half second. held_ms: for how long another thread of the driver waited
    for the interpreter at most."""
    ways, looks, unseen, size = {name: list[float]() for name in WAYS}, list[float](), list[float](), 0
    with waiting_thread() as waited:
        for round_ in range(max(1, turns // 5)):
            for name in (*WAYS[round_ % 3 :], *WAYS[: round_ % 3]):
                began_s = time.thread_time()
                for turn in range(UNSEEN_TURNS):
                    big.report()
                    if name == "watched" or (name == "unseen" and turn == UNSEEN_TURNS - 1):
                        summed_s = time.thread_time()
                        size = len(json.dumps(big.look()[1].to_json(), separators=(",", ":")))
                        (looks if name == "watched" else unseen).append(time.thread_time() - summed_s)
                ways[name].append(time.thread_time() - began_s)
    shares = {name: statistics.median(spent) / (UNSEEN_TURNS * EVERY_S) for name, spent in ways.items()}
    return {
        "driver_share": round(shares["watched"], 5),
        "driver_share_unwatched": round(shares["unseen"], 5),
        "driver_share_without_dashboard": round(shares["none"], 5),
        "dashboard_share_unwatched": round(statistics.median(unseen) / (UNSEEN_TURNS * EVERY_S), 5),
        "reading_ms_driver": round(statistics.median(looks) * 1000, 3),
        "reading_bytes": size,
        "held_ms": round(max(waited) * 1000, 3),
    }


WAYS: Final = ("none", "unseen", "watched")
UNSEEN_TURNS: Final = 20
"""Of half a second: while nobody looks a page asks for one reading in them (`cli.ui`)."""


@contextmanager
def waiting_thread() -> Iterator[list[float]]:
    """A thread that wants the interpreter now and then, as the coordinator does, and how late it got it each time, in seconds."""
    from evenflow.world.spark.net.priority import SWITCH_INTERVAL_S

    over, waited, before = threading.Event(), list[float](), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)

    def want() -> None:
        while not over.is_set():
            began_s = time.monotonic()
            time.sleep(PAUSE_S)
            waited.append(time.monotonic() - began_s - PAUSE_S)

    thread = threading.Thread(target=want, daemon=True)
    thread.start()
    try:
        yield waited
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)


PAUSE_S: Final = 0.0005


def progress_ms(big: Big, turns: int) -> float:
    """Of a call of `run.progress()` in a driver that has heard of all sites for ten seconds."""
    from evenflow.statistics.progress import SiteProcess
    from evenflow.world.spark.driver.in_place import Generations
    from evenflow.world.spark.driver.run import Run
    from evenflow.world.spark.driver.run_loop import RunLoop
    from evenflow.world.spark.net.control import PartReport, Report

    calls: Any = SimpleNamespace(clock=None, send=lambda site, message: None, call_later=lambda delay_s, call: None, present=list)
    loop = RunLoop(1, "run-1", big.planned, big.plan, big.membership, b"", calls)
    for at in range(QUARTERS):
        for site, flat in enumerate(big.windows):
            words = flat.words.copy()
            words[1:3] = at * 250_000, (at + 1) * 250_000
            part = PartReport(at * 1000, at * 900, 0, 0, 0, at, 2, 4096, 0, 7, FlatWindow(words), {70: 3})
            loop.note(site, Report(at * 250_000, at * 0.1, 1 << 28, 1 << 27, 0, {1: part}))
    known = [
        SiteProcess(
            site=site, executor=str(site), host=f"host-{site}", pid=1, rss_bytes=1 << 28, pss_bytes=1 << 27, refused=0, leaving=False
        )
        for site in range(SITES)
    ]
    coordinator: Any = SimpleNamespace(describe_sites=lambda: known)
    run, spent = Run(Generations(loop, None, start=lambda generation: None), coordinator, layout), []
    for _ in range(turns):
        began_s = time.thread_time()
        run.progress()
        spent.append(time.thread_time() - began_s)
    return round(statistics.median(spent) * 1000, 3)


QUARTERS: Final = 44
"""Of a second: eleven seconds of reports."""


def check_ms(big: Big, times: int) -> float:
    """Of the editor's check of the whole network, when nothing of it is known; the median of so many times."""
    from evenflow.query.checking import Checker
    from evenflow.query.serial import network_to_json

    document, spent = json.loads(network_to_json(big.network)), []
    for _ in range(times):
        checker, began_s = Checker(), time.thread_time()
        checker.check(document)
        spent.append(time.thread_time() - began_s)
    return round(statistics.median(spent) * 1000, 1)


@contextmanager
def server(big: Big, scene: Scene, every_s: float = EVERY_S) -> Iterator[tuple[str, Callable[[float], Mapping[str, float]]]]:
    """The page's server in a process of its own, which this one tells a reading every half second, or as often as is said. Yields its
    address, and what measures the CPU share and the memory of that process over so many seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{ours.recv()}/"
    closed = threading.Event()

    def feed() -> None:
        ours.send(scene.to_json())
        while not closed.wait(every_s):
            ours.send(big.turn()[1].to_json())

    def cost(seconds: float) -> Mapping[str, float]:
        before, began_s = cpu_of(process.pid or 0), time.monotonic()
        closed.wait(seconds)
        share = (cpu_of(process.pid or 0) - before) / max(time.monotonic() - began_s, 1e-9)
        return {"ui_share_50_tabs": round(share, 4), "ui_mb": round(memory_of(process.pid or 0) / 2**20, 1)}

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield url, cost
    finally:
        closed.set()
        thread.join()
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()


def _serve(told: Connection) -> None:
    """In the server's process."""
    from evenflow.monitor.web.feed import Feed
    from evenflow.monitor.web.guard import Tokens
    from evenflow.monitor.web.serve import Server, bound, serve
    from evenflow.monitor.web.server import Site
    from evenflow.monitor.web.teller import CURVES, Teller

    feed = Feed("bench", CURVES)
    teller = Teller(feed)
    listening = bound("127.0.0.1", 0)

    def nothing(name: str, arguments: Mapping[str, Any], say: Say) -> Mapping[str, Any]:
        return {}

    def hear(server: Server) -> None:
        told.send(listening.getsockname()[1])
        try:
            while True:
                data = told.recv()
                teller.take(Scene.from_json(data) if data["kind"] == "scene" else Reading.from_json(data))
        except EOFError:
            server.should_exit = True

    site = Site(feed, nothing, lambda: b"", lambda: None, Tokens("bench", "bench"))
    serve(site, listening, lambda server: threading.Thread(target=hear, args=(server,), daemon=True).start())


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, where the system has /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def browser_path() -> str | None:
    """EVENFLOW_BROWSER, else one on PATH, else the one that `make test` fetches; None without any, or without Playwright."""

    fetched = Path(sys.prefix) / "browser" / "chromium"
    found = os.environ.get("EVENFLOW_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    return None if find_spec("playwright") is None else found or (str(fetched) if fetched.exists() else None)


def in_browser(path: str, big: Big, scene: Scene, readings: int) -> dict[str, float]:
    """The first picture of 200 boxes in a fresh browser, with the bytes that it took; the median time of the handler of a reading at its
    usual pace, and the heap and the server's memory after so many readings, which then come as fast as the page takes them."""
    from playwright.sync_api import sync_playwright

    beside = Path(path).parent
    needed = {"LD_LIBRARY_PATH": f"{beside / 'lib'}{os.pathsep}{beside}"} if (beside / "lib").is_dir() else {}
    with server(big, scene) as (url, _), sync_playwright() as playwright:
        options = ["--no-sandbox", "--headless=shell", "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=path, env={**os.environ, **needed}, args=options)
        page = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}).new_page()
        began_s = time.monotonic()
        page.goto(f"{url}#token=bench")
        page.locator(".react-flow__node").first.wait_for(timeout=60_000)
        first_s = time.monotonic() - began_s
        sent = page.evaluate("performance.getEntries().filter(each => each.transferSize).reduce((sum, each) => sum + each.transferSize, 0)")
        taken, root = [], page.locator("html")
        for _ in range(20):
            page.wait_for_timeout(EVERY_S * 1000)
            taken.append(float(root.get_attribute("data-ms") or 0))
        browser.close()
    with server(big, scene, FAST_S) as (url, cost), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, env={**os.environ, **needed}, args=options)
        page = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}).new_page()
        page.goto(f"{url}#token=bench")
        page.locator(".react-flow__node").first.wait_for(timeout=60_000)
        root, until_s, seen = page.locator("html"), time.monotonic() + LONGEST_S, 0
        while seen < readings and time.monotonic() < until_s:
            page.wait_for_timeout(500)
            seen = int(root.get_attribute("data-readings") or 0)
        page.evaluate("globalThis.gc?.()")
        heap = float(page.evaluate("performance.memory.usedJSHeapSize"))
        ui_mb = cost(0.0)["ui_mb"]
        browser.close()
    return {
        "reading_ms_browser": round(statistics.median(taken), 1), "heap_mb": round(heap / 2**20, 1), "ui_mb_hour": ui_mb,
        "readings_taken": seen,
        "first_picture_ms": round(first_s * 1000), "first_picture_kb": round(sent / 1000, 1),
    }  # fmt: skip


FAST_S: Final = 0.012
LONGEST_S: Final = 400.0
