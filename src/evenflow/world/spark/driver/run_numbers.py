"""What a run's sites have reported, and `Run.progress` and `Run.statistics` of it. Written by the coordinator's thread, read from any."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from evenflow.availability.mode import Mode
from evenflow.coordinator.hosting import Hosting, hosting, redundancy_of
from evenflow.coordinator.ledger import Ledger
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.thinnings import shares_of
from evenflow.monitor.reading import RunAccount
from evenflow.monitor.watching import PartCounts, Watched
from evenflow.plan.layout import Layout, Quality
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.query.network import Network
from evenflow.query.whole import moved_whole
from evenflow.site.view import NOBODY, View
from evenflow.statistics.growing import Growing
from evenflow.statistics.histogram import RecentLatencies, mean_of, percentile_ms
from evenflow.statistics.progress import (
    Behind,
    BoxProgress,
    CheckpointProgress,
    JournalProgress,
    LossProgress,
    OutputProgress,
    Progress,
    SiteProcess,
    SiteProgress,
    SlowCode,
    TableProgress,
)
from evenflow.statistics.recent import Recent
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.totals import Totals
from evenflow.statistics.wire import Ints, names_of, producers_of
from evenflow.world.spark.net import control

RECENT_S: Final = 10.0
"""Rates and latencies of a live run are over this much of its past."""
PAST_S: Final = 12.0
"""For so long a site's reports are kept: they come up to four times a second."""


@dataclass(slots=True)
class SiteNumbers:
    """The newest and some older reports of one site's part: (time s, cpu s, rows in, rows out)."""

    newest: control.PartReport | None = None
    past: deque[tuple[float, float, int, int]] = field(default_factory=deque)

    def note(self, at_s: float, cpu_s: float, rows_in: int, rows_out: int) -> None:
        """Keep what was reported, and of older reports those of `PAST_S` and one before: an idle site reports seldom."""
        self.past.append((at_s, cpu_s, rows_in, rows_out))
        while len(self.past) > 2 and self.past[1][0] < at_s - PAST_S:
            self.past.popleft()

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
class Hosts:
    """Who hosts what under a plan and a membership. view: of those two, and nobody's who changes it. active: sites with a replica that
    counts. redundancy: see `RunMachine.redundancy`. protected: see `View.protected`, by whether what begins again from a base has one."""

    plan: Plan
    membership: Membership
    view: View
    hosted: Mapping[int, Hosting]
    active: tuple[int, ...]
    redundancy: int
    protected: Mapping[bool, int]


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


def outputs_of(
    layout: Layout,
    ledger: Ledger,
    taken: Iterable[Iterable[tuple[int, int]]],
    epochs: int,
    ages: Mapping[str, Mapping[int, int]],
    passed: Mapping[int, float],
) -> tuple[OutputProgress, ...]:
    """Every output, if rows may be left out for some. taken: (segment, rows) of sources, as parts tell them. epochs: that there were. ages:
    by output, how old answers are, as far as that is known: counts by bucket. passed: see `passed_of`."""
    if not layout.sheds and not layout.thins:
        return ()
    given: dict[int, int] = {}
    for segment, rows in chain.from_iterable(taken):
        given[segment] = given.get(segment, 0) + rows
    dropped, arcs = ledger.totals(), dict(ledger.arcs.totals)
    entered = {segment: 1 - min(1.0, dropped.get(segment, 0) / rows) for segment, rows in given.items() if rows}
    shares = shares_of(layout, entered, arcs, epochs, passed)
    found = []
    for output in layout.sinks:
        sources = [source for source, shed in layout.sheds.items() if output in shed.outputs]
        fed = [segment.id for segment in layout.segments if segment.source in sources]
        thinned = [arc for arc, thin in layout.thins.items() if output in thin.outputs]
        lost = sum(dropped.get(segment, 0) for segment in fed) + sum(sum(arcs[arc].dropped) for arc in thinned if arc in arcs)
        share, of = shares.get(output, 1.0), ages.get(output, {})
        utility = utility_of(layout.qualities.get(output), share, of)
        found.append(OutputProgress(output, not fed and not thinned, lost, round(share, 4), percentile_ms([of], 0.50), utility))
    return tuple(found)


def passed_of(layout: Layout, growing: Growing) -> dict[int, float]:
    """By segment with gates, which share of the results that came to them since the run began has gone on (D4). Replicas of a partition
    have the same ones, so it does not matter that all of them count."""
    found = {}
    for segment in layout.segments:
        gates = [growing.of_step(segment.id, step) for step, each in enumerate(segment.steps) if each.kind == "gate"]
        if came := sum(int(rows_in) for rows_in, *_ in gates):
            found[segment.id] = sum(int(rows_out) for _, rows_out, *_ in gates) / came
    return found


def utility_of(quality: Quality | None, share: float, ages: Mapping[int, int]) -> float | None:
    """What an output is worth of which such a share came, so old; None if nobody says what it should be, or how old answers are."""
    latency = None if quality is None else 1.0 if quality.latency is None else mean_of(ages, quality.latency)
    return None if quality is None or latency is None else round(quality.weight * quality.loss(share) * latency, 4)


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


@dataclass(frozen=True, slots=True)
class WatchedFacts:
    """What those who watch are told of a run besides what its sites report: see `Watched`."""

    network: Network | None
    elapsed_us: int
    journal: JournalProgress | None
    checkpoint: CheckpointProgress | None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Counts by bucket: of the run's whole time; of its last ten seconds while it is active; the latter by output, where they are known.
    passed: see `passed_of`."""

    total: dict[int, int]
    recent: dict[int, int]
    ages: dict[str, dict[int, int]]
    passed: dict[int, float]


class RunNumbers:
    """worked_s: when the first rows were reported, None before; of the clock that `note` is told. replicas: of each partition at first."""

    def __init__(self, run_id: str, machine: RunMachine) -> None:
        self._run_id, self._machine = run_id, machine
        self.replicas = max(len(sites) for segment in machine.plan.placement for sites in segment)
        self._moved_whole = moved_whole(machine.layout)
        self._lock = threading.Lock()
        self._sites: dict[int, SiteNumbers] = {site: SiteNumbers() for site in machine.sites}
        self._growing = Growing(names_of(machine.layout), producers_of(machine.layout))
        self._windows, self._totals = Recent(structures=self._growing.structures), Totals(int(RECENT_S * 1e6))
        self._latencies = RecentLatencies(RECENT_S)
        self._ages: dict[str, RecentLatencies] = {}
        self._hosts: Hosts | None = None
        self.worked_s: float | None = None

    def expect(self, site: int) -> None:
        """It comes to have a part in the run: what it reports from now on counts."""
        with self._lock:
            self._sites.setdefault(site, SiteNumbers())

    def note(self, site: int, report: control.Report, part: control.PartReport, now_s: float) -> bool:
        """part: this run's, of the report. Returns False of a site that was not expected yet."""
        with self._lock:
            numbers = self._sites.get(site)
            if numbers is None:
                return False
            self._growing.structures.of(part.window)  # Of another layout: it raises, and nothing of the report stays.
            numbers.newest = part
            if self.worked_s is None and part.rows_in:
                self.worked_s = now_s
            self._windows.add(part.window)
            self._totals.take(part.window, self._growing.structures)
            self._growing.take(part.window)
            numbers.note(report.at_us / 1e6, report.cpu_s, part.rows_in, part.rows_out)
            self._latencies.add(now_s, part.latencies)
        return True

    def add_latencies(self, of_sinks: Mapping[int, Mapping[int, int]], now_s: float) -> None:
        """Of sinks in the driver, by segment, as sites report theirs."""
        with self._lock:
            for segment, latencies in of_sinks.items():
                self._latencies.add(now_s, latencies)
                output = self._machine.layout.segments[segment].sink or ""
                self._ages.setdefault(output, RecentLatencies(RECENT_S)).add(now_s, latencies)

    def count(self) -> int:
        """Reports so far."""
        with self._lock:
            return self._windows.count

    def since(self, seen: int) -> Statistics:
        """Of all reports behind the first `seen`."""
        with self._lock:
            return self._windows.since(seen)

    def statistics(self, last_s: float) -> Statistics:
        """See Run.statistics."""
        with self._lock:
            windows = self._windows.windows_over(int(last_s * 1e6))
        return self._windows.read(windows)

    def statistics_since(self, seen: int) -> tuple[Statistics, int]:
        """See Run.statistics_since."""
        with self._lock:
            windows, count = self._windows.windows_since(seen), self._windows.count
        return self._windows.read(windows), count

    def _stands(self) -> Hosts:
        """Who hosts what now; counted once per plan and membership, of which there may be newer ones meanwhile.

        From a view of their own: the coordinator's keeps what is counted in it, and would go by what is stored here behind a change."""
        machine, known = self._machine, self._hosts
        plan, membership = machine.plan, machine.membership
        if known is None or known.plan is not plan or known.membership is not membership:
            view = View(machine.layout, plan, membership, NOBODY)
            protected = {based: view.protected(based=based) for based in (False, True)}
            known = Hosts(plan, membership, view, hosting(plan, membership), view.active(), redundancy_of(view), protected)
            self._hosts = known
        return known

    def _slots(self, replicas: Iterable[tuple[int, int, int]]) -> Ints:
        with self._lock:
            return self._growing.slots(replicas)

    def watched(self, active: bool, events_since: Callable[[int], tuple[Sequence[Mapping[str, Any]], int]], facts: WatchedFacts) -> Watched:
        """What those who watch are told. From any thread."""
        with self._lock:
            grown, latencies, numbers = self._growing.now(), self._latencies_now(active), dict(self._sites)
        hosts = self._stands()
        parts = {site: n.newest for site, n in numbers.items() if n.newest is not None}
        account = self._account(active, hosts, numbers, latencies, ())
        behind: dict[str, int] = {}
        for found in account.behind:
            behind[found.source] = behind.get(found.source, 0) + found.messages
        return Watched(
            run=self._run_id,
            planned=self._machine.layout,
            network=facts.network,
            plan=hosts.plan,
            membership=hosts.membership,
            active=active,
            replicas=self.replicas,
            redundancy=hosts.redundancy,
            live=hosts.active,
            elapsed_us=facts.elapsed_us,
            growing=grown,
            slots=self._slots,
            parts={site: counts_of(part) for site, part in parts.items()},
            latency=latencies.total,
            events_since=events_since,
            slow=self._slow(numbers),
            journal=facts.journal,
            checkpoint=facts.checkpoint,
            behind=behind,
            dropped=self._machine.ledger.totals(),
            account=account,
        )

    def _latencies_now(self, active: bool) -> Latencies:
        """Under the lock."""
        machine, total = self._machine, dict(self._latencies.all)
        recent = dict(self._latencies.recent) if active and self._latencies.recent else total
        ages = {output: dict(each.recent if active and each.recent else each.all) for output, each in self._ages.items()}
        if len(machine.layout.sinks) == 1:
            ages = dict.fromkeys(machine.layout.sinks, recent)
        sheds = machine.layout.sheds or machine.layout.thins
        return Latencies(total, recent, ages, passed_of(machine.layout, self._growing) if sheds else {})

    def _account(
        self, active: bool, hosts: Hosts, numbers: Mapping[int, SiteNumbers], latencies: Latencies, tables: tuple[TableProgress, ...]
    ) -> RunAccount:
        machine = self._machine
        parts = {site: n.newest for site, n in numbers.items() if n.newest is not None}
        return RunAccount(
            protected=hosts.protected[machine.reviving.based(view=hosts.view)],
            lost=lost_of(machine),
            behind=_behind([part for site, part in parts.items() if site in machine.sites]) if active else (),
            outputs=outputs_of(
                machine.layout, machine.ledger, [part.taken for part in parts.values()], machine.seen, latencies.ages, latencies.passed
            ),
            tables=tables,
        )

    def _slow(self, numbers: Mapping[int, SiteNumbers]) -> tuple[SlowCode, ...]:
        """User code that does not return."""
        return tuple(
            SlowCode(site=site, box=box, epoch=epoch, seconds=round(for_s, 1))
            for site, n in numbers.items()
            if site in self._machine.sites and n.newest is not None and n.newest.slow is not None
            for box, epoch, for_s in [n.newest.slow]
        )

    def progress(
        self,
        active: bool,
        seconds: float,
        sites: Sequence[SiteProcess],
        tables: tuple[TableProgress, ...],
        journal: JournalProgress | None,
        checkpoint: CheckpointProgress | None,
    ) -> Progress:
        """active: the run goes on. seconds: since it began, until now or its end. See Run.progress for the others."""
        with self._lock:
            latencies, numbers = self._latencies_now(active), dict(self._sites)
            used, boxes = self._totals.utilization(), boxes_of(self._totals)
        # What needs no lock comes behind it: the coordinator's thread must not wait for those who ask.
        parts = [n.newest for n in numbers.values() if n.newest is not None]
        hosts = self._stands()
        account = self._account(active, hosts, numbers, latencies, tables)
        rows_in, rows_out = sum(p.rows_in for p in parts), sum(p.rows_out for p in parts)
        return Progress(
            run=self._run_id,
            dataflow=self._machine.layout.name,
            active=active,
            epoch=min((numbers[site].finished for site in hosts.active if site in numbers), default=0),
            epochs_in_flight=max((p.epochs_in_flight for p in parts), default=0),
            rows_in=rows_in,
            rows_out=rows_out,
            rows_in_per_s=round(sum(n.rate(2) for n in numbers.values()) if active else rows_in / max(seconds, 1e-6), 1),
            rows_out_per_s=round(sum(n.rate(3) for n in numbers.values()) if active else rows_out / max(seconds, 1e-6), 1),
            p50_ms=percentile_ms([latencies.recent], 0.50),
            p99_ms=percentile_ms([latencies.recent], 0.99),
            total_p50_ms=percentile_ms([latencies.total], 0.50),
            total_p99_ms=percentile_ms([latencies.total], 0.99),
            late_rows=sum(p.late_rows for p in parts),
            failed_rows=sum(p.failed_rows for p in parts),
            replicas=self.replicas,
            redundancy=hosts.redundancy,
            membership=self._machine.membership.number,
            moved_whole=self._moved_whole,
            slow=self._slow(numbers),
            sites=tuple(
                site_of(known, numbers.get(known.site, SiteNumbers()), hosts.hosted.get(known.site, Hosting()), used.get(known.site))
                for known in sites
            ),
            boxes=boxes,
            seconds=round(seconds, 3),
            tables=account.tables,
            journal=journal,
            checkpoint=checkpoint,
            behind=account.behind,
            outputs=account.outputs,
            protected=account.protected,
            lost=account.lost,
        )


def lost_of(machine: RunMachine) -> LossProgress | None:
    """What amnesia and restarts have cost, if something may have it."""
    losses = machine.losses
    if Mode.AMNESIA not in machine.plan.modes and not losses.anew and all(source.kept for source in machine.layout.sources.values()):
        return None
    return LossProgress(sum(losses.anew.values()), losses.frames, losses.rows, sum(losses.unkept.values()))


def counts_of(part: control.PartReport) -> PartCounts:
    """What a part has said of itself."""
    return PartCounts(
        part.rows_in, part.rows_out, part.late_rows, part.failed_rows, part.state_bytes, part.buffered_bytes, part.finished,
        part.epochs_in_flight, part.taken, part.waiting, part.late, part.failed, part.sections_out,
    )  # fmt: skip


def _behind(parts: Sequence[control.PartReport]) -> tuple[Behind, ...]:
    """By source and topic."""
    found = dict[tuple[str, str], int]()
    for part in parts:
        for source, topic, messages in part.behind:
            found[source, topic] = found.get((source, topic), 0) + messages
    return tuple(Behind(source, topic, found[source, topic]) for source, topic in sorted(found))
