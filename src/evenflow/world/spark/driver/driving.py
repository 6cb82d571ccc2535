"""One run as the driver sees it: the coordinator's machine, the sinks that live in the driver, and the numbers.

Everything here happens in the coordinator's thread, except where it says otherwise.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, assert_never

import pyarrow as pa

from evenflow.coordinator.collection import Begin, CalledOff, Collection, LookAgain, Whole
from evenflow.coordinator.events import (
    Collect,
    Collected,
    CoordinatorEvent,
    Denied,
    Done,
    EndRun,
    EpochSeen,
    Happened,
    Kind,
    RunBroken,
    SiteLost,
    SiteReady,
    SiteSaid,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.first_copy import FirstCopy
from evenflow.coordinator.hosting import Hosting, hosting
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.recovery import PATIENCE_MS
from evenflow.errors import EvenflowError
from evenflow.plan.layout import Layout
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.policy.proposal import Parameters
from evenflow.query.whole import moved_whole
from evenflow.site.events import SinkCommitted, StateMemoryChanged
from evenflow.site.facts import CopyLive
from evenflow.site.view import NOBODY
from evenflow.statistics.progress import BoxProgress, Progress, SiteProcess, SiteProgress, SlowCode, TableProgress
from evenflow.statistics.recent import Recent
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.totals import Totals
from evenflow.world.spark.driver.outlet import Finished, Outlet
from evenflow.world.spark.net import control
from evenflow.world.spark.net.histogram import RecentLatencies, percentile_ms
from evenflow.world.spark.net.reactor import Clock
from evenflow.world.spark.net.told_versions import Telling
from evenflow.world.spark.net.wire import decode_release

RECENT_S: Final = 10.0
"""Rates and latencies of a live run are over this much of its past."""
LAST_WORDS_S: Final = 1.0
"""How long a run that has ended waits for the last numbers of its sites."""
WARM_S: Final = 1.0
"""Rounds begin so long after the first rows. Until then sites do everything for the first time, and the one with most of that would look
overloaded: it gave all that it had away, which took ten seconds to mend."""


def boxes_of(totals: Totals) -> tuple[BoxProgress, ...]:
    """Every box, in the layout's order."""
    seconds = max(totals.span_us(), 1) / 1e6
    return tuple(
        BoxProgress(
            segment=segment,
            box=box.name,
            rows_in_per_s=round(box.rows_in / seconds, 1),
            cost_us=None if box.cost_us is None else round(box.cost_us, 4),
            selectivity=None if box.selectivity is None else round(box.selectivity, 4),
            busy_share=round(box.busy_us / 1e6 / seconds, 4),
        )
        for segment, box in totals.boxes()
    )


class SiteCalls(Protocol):
    """What a run asks of the coordinator."""

    clock: Clock

    def send(self, site: int, message: control.FromDriver) -> None: ...
    def call_soon(self, call: Callable[[], None]) -> None: ...
    def call_later(self, delay_s: float, call: Callable[[], None]) -> None: ...
    def present(self) -> list[int]: ...
    def host_of(self, site: int) -> str: ...


@dataclass(slots=True)
class SiteNumbers:
    """The newest and some older reports of one site's part: (time s, cpu s, rows in, rows out)."""

    newest: control.PartReport | None = None
    past: deque[tuple[float, float, int, int]] = field(default_factory=lambda: deque(maxlen=48))

    @property
    def finished(self) -> int:
        return self.newest.finished if self.newest is not None else 0

    def rate(self, index: int) -> float:
        """Change per second of a column of `past` over its length."""
        if len(self.past) < 2:
            return 0.0
        first, last = self.past[0], self.past[-1]
        return (last[index] - first[index]) / max(last[0] - first[0], 1e-6)


@dataclass(frozen=True, slots=True)
class Standing:
    """Who hosts what under a plan and a membership. active: sites with a replica that counts. redundancy: see `RunMachine.redundancy`."""

    plan: Plan
    membership: Membership
    hosted: Mapping[int, Hosting]
    active: tuple[int, ...]
    redundancy: int


class DrivenRun:
    """See the module. over: set when the run has ended; then `error` is final. ingest: asked to begin when all sites have started."""

    def __init__(
        self,
        number: int,
        run_id: str,
        layout: Layout,
        plan: Plan,
        membership: Membership,
        program: bytes,
        calls: SiteCalls,
        patience_ms: float = PATIENCE_MS,
        policy: str = "none",
        parameters: Parameters | None = None,
        spares: int = 0,
    ) -> None:
        self.number, self.run_id, self.layout = number, run_id, layout
        self.replicas = max(len(sites) for segment in plan.placement for sites in segment)
        self.machine = RunMachine(layout, plan, membership, patience_ms, policy=policy, parameters=parameters, spares=spares)
        self._program, self._telling = program, Telling()
        self._moved_whole = moved_whole(layout)
        self.over, self.started = threading.Event(), threading.Event()
        self.error: EvenflowError | None = None
        self.on_started: list[Callable[[], None]] = []
        self.on_over: list[Callable[[], None]] = []
        self._calls = calls
        self._schemas: dict[int, pa.Schema] = {}
        self._pushed: dict[str, control.Pushed] = {}
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._unended: set[int] = set()
        self._answers: dict[int, Done | Denied] = {}
        self._requests = 0
        self._in_user_code: dict[int, tuple[tuple[int, int], ...]] = {}
        self._lock = threading.Lock()
        self._sites = {site: SiteNumbers() for site in membership.sites}
        self._windows, self._totals = Recent(), Totals(int(RECENT_S * 1e6))
        self._worked_s: float | None = None
        self._events: list[dict[str, Any]] = []
        self._begun_s: dict[int, float] = {}
        self._live_s: dict[int, float] = {}
        self._first: dict[int, FirstCopy] = {}
        self._latencies = RecentLatencies(RECENT_S)
        self._standing: Standing | None = None
        self.outlets: dict[int, Outlet] = {}
        for segment in layout.segments:
            if segment.sink is not None and layout.sinks[segment.sink].where == "driver":
                self.outlets[segment.id] = self._outlet(segment.id, segment.sink)

    def _outlet(self, segment: int, name: str) -> Outlet:
        def committed(epoch: int) -> None:  # in the sink's thread
            self._calls.call_soon(lambda: tell(epoch))

        def tell(epoch: int) -> None:
            for host in self.machine.plan.hosts(segment):
                self._deliver(host, SinkCommitted(segment, epoch))

        def failed(error: EvenflowError) -> None:  # in the sink's thread
            self._calls.call_soon(lambda: self.handle(RunBroken(error)))

        return Outlet(name, self.layout.sinks[name], self.run_id, self._calls.clock, committed, failed)

    @property
    def failure(self) -> EvenflowError | None:
        """Why the run failed, or why one of its sinks could not be closed after a run that went well. From any thread."""
        return self.error or next((outlet.error for outlet in self.outlets.values() if outlet.error is not None), None)

    # ------------------------------------------------------------ the machine

    def handle(self, event: CoordinatorEvent) -> None:
        """Give the machine an event and carry out what it asks for."""
        if isinstance(event, SiteSaid) and isinstance(event.fact, CopyLive) and event.fact.number in self._begun_s:
            self._live_s[event.fact.number] = time.monotonic()
        for action in self.machine.handle(event):
            match action:
                case Tell():
                    self._deliver(action.site, action.message)
                case Happened():
                    self._note_event(action)
                case Collect():
                    self._collect(action.for_us)
                case Wake():
                    self._calls.call_later(action.after_ms / 1000, partial(self.handle, Waited(action.pause)))
                case Done() | Denied():
                    self._answers[action.request] = action
                case EndRun():
                    self._end(action.error)
                case _:
                    assert_never(action)
        if isinstance(event, SiteReady) and self.machine.running and not self.started.is_set():
            self.started.set()
            for call in self.on_started:
                call()

    def request(self, make: Callable[[int], CoordinatorEvent]) -> int:
        """Ask the machine for something. make: given the request's number, the event that does. Returns that number."""
        self._requests += 1
        self.handle(make(self._requests))
        return self._requests

    def answer(self, request: int) -> Done | Denied | None:
        """To a request, once; None while there is none."""
        return self._answers.pop(request, None)

    def _collect(self, for_us: int) -> None:
        """What the sites report from now on; what their reports cover of the time before is small."""
        collection = Collection(self.machine, for_us, int(WARM_S * 1e6))
        seen: int | None = None

        def look() -> None:
            nonlocal seen
            now_us = self._calls.clock.now_us()
            worked_us = None if self._worked_s is None else now_us - int((time.monotonic() - self._worked_s) * 1e6)
            with self._lock:
                statistics = Statistics.of(()) if seen is None else self._windows.since(seen)
            match collection.look(now_us, worked_us, {window.site for window in statistics.sites}):
                case Begin(after_us):
                    with self._lock:
                        seen = self._windows.count
                    self._calls.call_later(after_us / 1e6, look)
                case LookAgain(after_us):
                    self._calls.call_later(after_us / 1e6, look)
                case Whole(begun_us):
                    self.handle(Collected(statistics, begun_us, now_us))
                case CalledOff():
                    pass
                case step:
                    assert_never(step)

        look()

    def _deliver(self, site: int, event: control.Delivered) -> None:
        if not self.machine.over:
            self._calls.send(site, control.Deliver(self.number, self._telling.thin(site, event)))

    def set_state_memory(self, state_bytes: int | None, sites: Sequence[int]) -> None:
        """These sites may hold so much state in memory from now on."""
        for site in sites:
            self._deliver(site, StateMemoryChanged(state_bytes))

    def begin(self, site: int) -> None:
        """Let a site build its part: one of the first, or a newcomer."""
        machine = self.machine
        with self._lock:
            self._sites.setdefault(site, SiteNumbers())
        self._telling.began(site, machine.plan)
        self._calls.send(site, control.StartPart(self.number, self.run_id, self._program, machine.plan, machine.membership))
        for pushed in self._pushed.values():
            self._calls.send(site, pushed)

    def pushed(self, message: control.Pushed) -> None:
        """Spark has pushed a batch, or all there are. Every site hears it, those to come too: any may lead an ingress partition later."""
        self._pushed[message.source] = message
        for site in self._calls.present():
            self._calls.send(site, message)

    def note_user_code(self, site: int, works: tuple[tuple[int, int], ...]) -> None:
        """(segment, epoch) of the user code that the site runs from now on: its last words, if it ends there."""
        self._in_user_code[site] = works

    def lose(self, lost: SiteLost) -> None:
        """The site is dead, or has left as planned."""
        self.part_ended(lost.site)
        self.handle(replace(lost, doing=self._in_user_code.pop(lost.site, ())))

    def record(self, kind: Kind, text: str, **details: Any) -> None:
        """Something that the driver has to say of the run, as an event. From any thread."""
        self._note_event(Happened(kind, NOBODY, text, details))

    def _note_event(self, happened: Happened) -> None:
        now_s, details = time.monotonic(), dict(happened.details)
        event = {"at_s": round(now_s - self._began_s, 4), "kind": str(happened.kind), "site": happened.site, "text": happened.text}
        if happened.kind == Kind.MOVE_BEGUN:
            self._begun_s[details["number"]] = now_s
        elif happened.kind in (Kind.MOVE_DONE, Kind.MOVE_DROPPED):
            begun_s, live_s = (times.pop(details["number"], now_s) for times in (self._begun_s, self._live_s))
            details["seconds"] = round(now_s - begun_s, 4)
            details["stall_ms"] = round(1000 * (now_s - live_s), 1)
        with self._lock:
            self._events.append(event | details)

    def events(self) -> list[dict[str, Any]]:
        """See Run.events. From any thread."""
        with self._lock:
            return list(self._events)

    def _end(self, error: EvenflowError | None) -> None:
        """Tell the sites to forget the run, and wait a little for their last numbers."""
        self.error = error
        self._ended_s = time.monotonic()
        self._unended = set(self._calls.present())
        for site in self.machine.sites:
            self._calls.send(site, control.EndPart(self.number))
        for outlet in self.outlets.values():
            outlet.close()
        self._calls.call_later(LAST_WORDS_S, self._finish)
        if not self._unended:
            self._finish()

    def part_ended(self, site: int) -> None:
        """A site has forgotten the run, or is lost."""
        if site in self._unended:
            self._unended.discard(site)
            if not self._unended:
                self._finish()

    def _finish(self) -> None:
        if not self.over.is_set():
            self.over.set()
            self.started.set()
            for call in self.on_over:
                call()

    # ------------------------------------------------------------ what sites say

    def hear(self, site: int, message: control.OfRun) -> None:
        match message:
            case control.InUserCode():
                self.note_user_code(site, message.works)
            case control.PartReady():
                self.handle(SiteReady(site, self._calls.host_of(site)))
            case control.PartBroken():
                self.handle(RunBroken(control.error_from(message, f"site {site}")))
            case control.Said():
                self.handle(SiteSaid(site, message.fact))
            case control.PartEnded():
                self.part_ended(site)
            case control.SinkOpened():
                self._schemas[message.segment] = message.schema
            case _:
                assert_never(message)

    def release(self, body: bytes | memoryview) -> None:
        _, segment, epoch, opened, _, rows = decode_release(body)
        if not self._first.setdefault(segment, FirstCopy()).accept(epoch):
            return  # Another replica was faster (O1).
        self.outlets[segment].put(Finished(epoch, opened, rows, self._schemas[segment]))

    def note(self, site: int, report: control.Report) -> None:
        """Numbers of a site."""
        part = report.parts.get(self.number)
        if part is None:
            return
        now_s = time.monotonic()
        with self._lock:
            numbers = self._sites.get(site)
            if numbers is None:
                return  # It comes to have a part in the run, but its own is not built yet.
            numbers.newest = part
            if self._worked_s is None and part.rows_in:
                self._worked_s = now_s
            self._windows.add(part.window)
            self._totals.add(part.window)
            numbers.past.append((report.at_us / 1e6, report.cpu_s, part.rows_in, part.rows_out))
            self._latencies.add(now_s, part.latencies)
        if not self.machine.over:
            self.handle(EpochSeen(part.closed))

    # ------------------------------------------------------------ numbers, from any thread

    def statistics(self, last_s: float) -> Statistics:
        """See Run.statistics."""
        with self._lock:
            windows = self._windows.windows_over(int(last_s * 1e6))
        return Statistics.of(windows)

    def statistics_since(self, seen: int) -> tuple[Statistics, int]:
        """See Run.statistics_since."""
        with self._lock:
            windows, count = self._windows.windows_since(seen), self._windows.count
        return Statistics.of(windows), count

    def _stands(self) -> Standing:
        """Who hosts what now; counted once per plan and membership."""
        machine, known = self.machine, self._standing
        plan, membership = machine.plan, machine.membership  # Read first: they may be newer ones while the rest is counted.
        if known is None or known.plan is not plan or known.membership is not membership:
            hosted = hosting(plan, membership)
            known = self._standing = Standing(plan, membership, hosted, machine.view.active(), machine.redundancy())
        return known

    def progress(self, sites: Sequence[SiteProcess], tables: tuple[TableProgress, ...] = ()) -> Progress:
        """See Run.progress. sites: what the coordinator knows of each site. tables: those that are refreshed."""
        with self._lock:
            now_s = time.monotonic()
            for outlet in self.outlets.values():
                self._latencies.add(now_s, outlet.take_latencies())
            active, total = not self.over.is_set(), dict(self._latencies.all)
            latencies = dict(self._latencies.recent) if active and self._latencies.recent else total
            numbers = dict(self._sites)
            used, boxes = self._totals.utilization(), boxes_of(self._totals)
        # What needs no lock comes behind it: the coordinator's thread must not wait for those who ask.
        parts = [n.newest for n in numbers.values() if n.newest is not None]
        seconds = (self._ended_s or now_s) - self._began_s
        standing = self._stands()
        rows_in, rows_out = sum(p.rows_in for p in parts), sum(p.rows_out for p in parts)
        return Progress(
            run=self.run_id,
            dataflow=self.layout.name,
            active=active,
            epoch=min((numbers[site].finished for site in standing.active if site in numbers), default=0),
            epochs_in_flight=max((p.epochs_in_flight for p in parts), default=0),
            rows_in=rows_in,
            rows_out=rows_out,
            rows_in_per_s=round(sum(n.rate(2) for n in numbers.values()) if active else rows_in / max(seconds, 1e-6), 1),
            rows_out_per_s=round(sum(n.rate(3) for n in numbers.values()) if active else rows_out / max(seconds, 1e-6), 1),
            p50_ms=percentile_ms([latencies], 0.50),
            p99_ms=percentile_ms([latencies], 0.99),
            total_p50_ms=percentile_ms([total], 0.50),
            total_p99_ms=percentile_ms([total], 0.99),
            late_rows=sum(p.late_rows for p in parts),
            failed_rows=sum(p.failed_rows for p in parts),
            replicas=self.replicas,
            redundancy=standing.redundancy,
            membership=self.machine.membership.number,
            moved_whole=self._moved_whole,
            slow=tuple(
                SlowCode(site=site, box=box, epoch=epoch, seconds=round(for_s, 1))
                for site, n in numbers.items()
                if site in self.machine.sites and n.newest is not None and n.newest.slow is not None
                for box, epoch, for_s in [n.newest.slow]
            ),
            sites=tuple(
                site_of(known, numbers.get(known.site, SiteNumbers()), standing.hosted.get(known.site, Hosting()), used.get(known.site))
                for known in sites
            ),
            boxes=boxes,
            seconds=round(seconds, 3),
            tables=tables,
        )


def site_of(known: SiteProcess, numbers: SiteNumbers, hosting: Hosting, utilization: float | None) -> SiteProgress:
    """A site in `Run.progress`."""
    part = numbers.newest
    return SiteProgress(
        site=known.site,
        executor=known.executor,
        host=known.host,
        pid=known.pid,
        rss_bytes=known.rss_bytes,
        pss_bytes=known.pss_bytes,
        refused=known.refused,
        leaving=known.leaving,
        role=hosting.role,
        partitions=hosting.partitions,
        coming=hosting.coming,
        cpu_share=round(numbers.rate(1), 4),
        rows_in_per_s=round(numbers.rate(2), 1),
        state_bytes=part.state_bytes if part else 0,
        spilled_bytes=part.window.spilled_bytes if part else 0,
        buffered_bytes=part.buffered_bytes if part else 0,
        messages=part.sections_out if part else 0,
        epoch=part.finished if part else 0,
        utilization=None if utilization is None else round(utilization, 4),
    )
