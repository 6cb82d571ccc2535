"""From what a world knows of an engine to scenes and readings: whoever runs dataflows gives `Watching` the facts of the moment.

A scene is made anew only when something that it tells has changed. Nothing here knows a clock, a thread or who looks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from evenflow.coordinator.hosting import hosting
from evenflow.monitor.dataflow import Drawn, drawn
from evenflow.monitor.reading import (
    EngineSites,
    Event,
    FailedRow,
    LogLine,
    Reading,
    RunAccount,
    RunBoxes,
    RunMoves,
    RunReading,
    RunReplicas,
    RunSegments,
    RunSites,
    RunSources,
    RunStreams,
)
from evenflow.monitor.scene import ReplicaState, Scene, SceneCopy, SceneReplicas, SceneRun, SceneSite, SiteRole
from evenflow.plan.layout import Layout
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.query.network import Network
from evenflow.statistics.growing import Grown, SiteSums
from evenflow.statistics.progress import CheckpointProgress, JournalProgress, SlowCode
from evenflow.statistics.standing import ABSENT, NOBODY
from evenflow.statistics.wire import Ints
from evenflow.stream.epoch import END_OF_STREAM, IDLE, NO_WATERMARK

SAID: Final = frozenset({"at_s", "kind", "site", "text"})
"""Of an event in `Run.events`: what has a field of its own."""
OVER_KEPT: Final = 4
"""Runs that are over and still shown."""
FAILED_KEPT: Final = 16
"""More of them, which have failed."""
FAILED_SHOWN: Final = 20
"""Rows of a box that failed."""
SKEW_US: Final = 10_000_000
"""Skew is over so much of the past."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """Of a site's process: CPU time so far, memory, for how long it has said no numbers, and the rest as in `EngineSites`."""

    cpu_us: int = 0
    memory_bytes: int = 0
    heard_us: int | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    refused: int | None = None


@dataclass(frozen=True, slots=True)
class PartCounts:
    """What a site's part of a run has said of itself last: see `RunSites`."""

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    failed_rows: int = 0
    state_bytes: int = 0
    waiting_bytes: int = 0
    finished: int = 0
    epochs_in_flight: int = 0
    taken: tuple[tuple[int, int], ...] = ()
    """(ingress segment, rows) that came to it."""
    waiting: tuple[tuple[int, int], ...] = ()
    """(stream, bytes of its frames that wait there)."""
    late: tuple[tuple[int, str, int], ...] = ()
    """(segment, box, rows that came too late)."""
    failed: tuple[tuple[str, str, str], ...] = ()
    """(box, row, error)."""
    messages: int | None = None
    """Sections sent. None where nobody counts them."""


NOTHING: Final = PartCounts()
SILENT: Final = Gauges()
NO_SUMS: Final = SiteSums()
Logs = tuple[tuple[LogLine, ...], int]
"""The newest warnings of sites, and how many there have been."""
NO_LOGS: Final[Logs] = ((), 0)


@dataclass(frozen=True, slots=True)
class Watched:
    """A run as it is now. network: None where only the layout is known. slots: see `Growing.slots`. live: sites with a replica that counts.
    latency: bucket -> count of its whole time. events_since: as `Run.events_since`. behind: messages by source.
    born: what is of this run alone, and not of another one of its id, which goes on where it ended. dropped: rows of sources that were left
    out, by ingress segment. failure: why it has failed, on one line. account: what `Run.progress` says besides, where somebody knows it.
    """

    run: str
    planned: Layout
    network: Network | None
    plan: Plan
    membership: Membership
    active: bool
    replicas: int
    redundancy: int
    live: Sequence[int]
    elapsed_us: int
    growing: Grown
    slots: Callable[[Iterable[tuple[int, int, int]]], Ints]
    parts: Mapping[int, PartCounts]
    latency: Mapping[int, int]
    events_since: Callable[[int], tuple[Sequence[Mapping[str, Any]], int]]
    slow: tuple[SlowCode, ...] = ()
    journal: JournalProgress | None = None
    checkpoint: CheckpointProgress | None = None
    behind: Mapping[str, int] = field(default_factory=dict)
    born: object = None
    dropped: Mapping[int, int] = field(default_factory=dict)
    failure: str | None = None
    account: RunAccount | None = None


@dataclass(slots=True)
class _Past:
    """told: events so far; kinds: how many of each; stalled_us: of moves. rows: (when, `Growing.rows`) of the last ten seconds."""

    told: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    stalled_us: int = 0
    rows: deque[tuple[int, NDArray[np.int64]]] = field(default_factory=deque)

    def take(self, events: Sequence[Event], count: int) -> None:
        self.told = count
        self.kinds.update([event.kind for event in events])
        self.stalled_us += sum(round(1000 * event.details.get("stall_ms", 0)) for event in events if event.kind == "move_done")

    def recent(self, at_us: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """By how much the sums have grown in the last ten seconds."""
        self.rows.append((at_us, rows))
        while self.rows[0][0] < at_us - SKEW_US:
            self.rows.popleft()
        grown, before = self.rows[-1][1].copy(), self.rows[0][1]
        grown[: before.size] -= before
        return grown


@dataclass(slots=True)
class _Known:
    """What was made of a run for the newest scene. made_of: what it follows from, the first ones compared by identity. slots: of its
    replicas; places: of each, the first place of its segment and its partition. past: what it has told before. born: see `Watched`."""

    made_of: tuple[object, ...]
    born: object
    drawn: Drawn
    scene: SceneRun
    slots: NDArray[np.int64]
    places: NDArray[np.int64]
    past: _Past


class Watching:
    """engine: its id. name: of the application. scene: the newest; None before the first look."""

    def __init__(self, engine: str, name: str) -> None:
        self._engine, self._name = engine, name
        self._known: dict[str, _Known] = {}
        self._readings = 0
        self.scene: Scene | None = None

    def look(
        self,
        at_us: int,
        sites: Sequence[tuple[SceneSite, Gauges]],
        runs: Sequence[Watched],
        logs: Logs = NO_LOGS,
    ) -> tuple[Scene, Reading]:
        """The scene, which is the one of before if nothing of it has changed, and its next reading.

        at_us: microseconds since 1970. sites: ascending. runs: oldest first; of those with one id the newest is shown. Events are in the
        reading that comes first after them. logs: the newest warnings, and how many there have been.
        """
        there = tuple(site for site, _ in sites)
        last = {run.run: run for run in runs}
        newest = [run for run in runs if last[run.run] is run]
        told = [newest[place] for place in shown([(run.planned.name, run.active, run.failure is not None) for run in newest])]
        known = [self._run(run, there) for run in told]
        self._known = {run.run: each for run, each in zip(told, known, strict=True)}
        scenes = tuple(each.scene for each in known)
        if self.scene is None or self.scene.sites != there or not _same(self.scene.runs, scenes):
            self.scene = Scene((0 if self.scene is None else self.scene.number) + 1, self._engine, self._name, there, scenes)
        self._readings += 1
        gauges = [gauge for _, gauge in sites]
        processes = EngineSites(
            tuple([gauge.cpu_us for gauge in gauges]),
            tuple([gauge.memory_bytes for gauge in gauges]),
            tuple([gauge.heard_us for gauge in gauges]),
            _known_of_all([gauge.rss_bytes for gauge in gauges]),
            _known_of_all([gauge.pss_bytes for gauge in gauges]),
            _known_of_all([gauge.refused for gauge in gauges]),
        )
        readings = tuple(_reading(run, each, there, at_us) for run, each in zip(told, known, strict=True))
        return self.scene, Reading(self._readings, self.scene.number, at_us, processes, readings, *logs)

    def _run(self, run: Watched, sites: tuple[SceneSite, ...]) -> _Known:
        known = self._known.get(run.run)
        version = 0 if run.plan.version is None else run.plan.version.number
        made_of = (run.planned, run.network, run.plan, run.membership, run.growing.of)
        places = tuple(site.site for site in sites if site.state in ("live", "leaving"))
        now = (*made_of, places, tuple(site.site for site in sites), run.active, run.redundancy, run.failure)
        same = known is not None and known.born is run.born and all(one is other for one, other in zip(known.made_of, made_of))
        if known is not None and same and known.made_of[len(made_of) :] == now[len(made_of) :]:
            return known
        alike = known is not None and known.made_of[0] is run.planned and known.made_of[1] is run.network
        picture = known.drawn if known is not None and alike else drawn(run.planned, run.network)
        replicas = replicas_of(run.plan, run.membership)
        hosted = hosting(run.plan, run.membership)
        roles: tuple[SiteRole, ...] = tuple(
            "gone" if site.site not in places else hosted[site.site].role if site.site in hosted else "starting" for site in sites
        )
        joining = {copy.number: copy for copy in run.membership.joining}
        scene = SceneRun(
            run=run.run, dataflow=run.planned.name, version=version, active=run.active, replicas=run.replicas, redundancy=run.redundancy,
            plan=run.plan.number, membership=run.membership.number, roles=roles, boxes=picture.boxes, arrows=picture.arrows,
            segments=picture.segments, streams=picture.streams, steps=picture.steps, replicas_of=replicas,
            copies=tuple(
                SceneCopy(c.number, c.segment, c.partitions, c.source, c.target, c.replaces) for c in joining.values()
            ),
            geometry=picture.geometry, failure=run.failure, moved_whole=picture.moved_whole,
        )  # fmt: skip
        slots = run.slots(zip(replicas.segment, replicas.partition, replicas.site))
        firsts = np.cumsum([0, *(segment.partitions for segment in picture.segments)])
        places_of = firsts[np.array(replicas.segment, np.int64)] + np.array(replicas.partition, np.int64)
        goes_on = known is not None and known.born is run.born
        past = known.past if known is not None and goes_on else _Past()
        if known is not None and known.made_of[4] is not run.growing.of:
            past.rows.clear()  # Another generation counts anew.
        return _Known(now, run.born, picture, scene, slots, places_of, past)


def shown(runs: Sequence[tuple[str, bool, bool]]) -> list[int]:
    """Places of those that are told of: the active ones, the newest that are over, and whatever has failed and was not begun again, so that
    nobody overlooks it because others have ended since.

    runs: of each its dataflow, whether it is active and whether it has failed, oldest first.
    """
    newest = {dataflow: place for place, (dataflow, _, _) in enumerate(runs)}
    over = [place for place, (_, active, _) in enumerate(runs) if not active]
    failed = [place for place in over if runs[place][2] and newest[runs[place][0]] == place]
    kept = {*over[-OVER_KEPT:], *failed[-FAILED_KEPT:]}
    return [place for place, (_, active, _) in enumerate(runs) if active or place in kept]


def _same(before: Sequence[SceneRun], now: Sequence[SceneRun]) -> bool:
    return len(before) == len(now) and all(one is other for one, other in zip(before, now))


def replicas_of(plan: Plan, membership: Membership) -> SceneReplicas:
    """What a plan places, less what has been retired; a copy that was given up is not there."""
    joining = {copy.number for copy in membership.joining}
    copies = {copy.number: copy for copy in (*plan.copies, *membership.joining)}.values()
    coming = {(c.segment, p, c.target) for c in copies if c.number in joining for p in c.partitions}
    gone = {(c.segment, p, c.target) for c in copies if c.number in membership.dropped for p in c.partitions}
    gone |= {(c.segment, p, c.replaces) for c in copies if c.number in membership.retired for p in c.partitions}
    there = set(membership.sites)
    found: list[tuple[int, int, int, int, ReplicaState]] = []
    for segment, row in enumerate(plan.placement):
        for partition, sites in enumerate(row):
            for rank, site in enumerate(sites):
                replica = (segment, partition, site)
                if site < 0 or replica in gone:
                    continue
                state: ReplicaState = "lost" if site not in there else "joining" if replica in coming else "live"
                found.append((segment, partition, rank, int(site), state))
    columns = list(zip(*found)) or [()] * 5
    return SceneReplicas(*columns)


def _delivered_ppm(run: Watched) -> int | None:
    """Of the rows of sources of which some may be left out; None if there are none."""
    shed = {segment.id for segment in run.planned.segments if segment.source in run.planned.sheds}
    if not shed:
        return None
    came = sum(rows for part in run.parts.values() for segment, rows in part.taken if segment in shed)
    dropped = sum(run.dropped.values())
    ppm = round(1e6 * (1 - min(1.0, dropped / came))) if came else 1_000_000
    return min(ppm, 999_999) if dropped else ppm  # All is delivered only where nothing is missing.


def _reading(run: Watched, known: _Known, sites: Sequence[SceneSite], at_us: int) -> RunReading:
    growing, scene, past = run.growing, known.scene, known.past
    parts = [run.parts.get(site.site, NOTHING) for site in sites]
    sums = [growing.sites.get(site.site, NO_SUMS) for site in sites]
    said, stands = list(run.parts.values()), growing.stands.of(run.live)
    news, count = run.events_since(past.told)
    events = tuple(_event(number, each) for number, each in enumerate(news, count - len(news)))
    past.take(events, count)
    rows_in, rows_out, failed, busy_us = known.drawn.box_counts(growing.boxes)
    sources = [segment for segment in scene.segments if segment.source is not None]
    return RunReading(
        run=run.run,
        elapsed_us=run.elapsed_us,
        rows_in=sum(part.rows_in for part in said),
        rows_out=sum(part.rows_out for part in said),
        late_rows=sum(part.late_rows for part in said),
        failed_rows=sum(part.failed_rows for part in said),
        epoch=min((run.parts[site].finished for site in run.live if site in run.parts), default=0),
        epochs_in_flight=max((part.epochs_in_flight for part in said), default=0),
        takeovers=past.kinds["take_over"],
        latency=tuple(sorted(run.latency.items())),
        delivered_ppm=_delivered_ppm(run),
        sites=RunSites(
            rows_in=tuple([part.rows_in for part in parts]),
            rows_out=tuple([part.rows_out for part in parts]),
            busy_us=tuple([each.busy_us for each in sums]),
            measured_us=tuple([each.measured_us for each in sums]),
            state_bytes=tuple([part.state_bytes for part in parts]),
            spilled_bytes=tuple([each.spilled_bytes for each in sums]),
            waiting_bytes=tuple([part.waiting_bytes for part in parts]),
            epoch=tuple([part.finished for part in parts]),
            epochs_in_flight=tuple([part.epochs_in_flight for part in parts]),
            waited_us=tuple([each.waited_us for each in sums]),
            messages=None if any(part.messages is None for part in said) else tuple([part.messages or 0 for part in parts]),
        ),
        boxes=RunBoxes(rows_in, rows_out, failed, busy_us, _late(said, scene)),
        segments=RunSegments(
            tuple(growing.segment_rows.tolist()), tuple(growing.segment_busy_us.tolist()), _skew(known, past.recent(at_us, growing.rows))
        ),
        sources=RunSources(
            _taken_in(said, [segment.segment for segment in sources]),
            _watermarks(stands, [segment.segment for segment in sources]),
            tuple([run.behind.get(segment.source or "") for segment in sources]),
        ),
        streams=RunStreams(_waiting(stands, scene), _waiting_bytes(said, scene)),
        replicas=RunReplicas(*[tuple(_at(values, known.slots).tolist()) for values in (growing.rows, growing.state_bytes)]),
        moves=RunMoves(past.kinds["move_begun"], past.kinds["move_done"], past.kinds["move_dropped"], past.stalled_us),
        slow=run.slow,
        journal=run.journal,
        checkpoint=run.checkpoint,
        events=events,
        failed=_failed(said),
        account=run.account,
    )


def _known_of_all(values: Sequence[int | None]) -> tuple[int, ...] | None:
    """A column; None if one of its values is not known."""
    found = tuple([value for value in values if value is not None])
    return found if len(found) == len(values) else None


def _watermarks(stands: tuple[Ints, Ints], sources: Sequence[int]) -> tuple[int | None, ...]:
    """Of sources, by their segments: the least of all sites that take it in. None before there is one, and when it has ended or is idle."""
    done, watermarks = stands
    least = np.where(done == ABSENT, END_OF_STREAM, watermarks).min(axis=0, initial=END_OF_STREAM).tolist()
    return tuple([None if least[source] in (NO_WATERMARK, IDLE, END_OF_STREAM) else least[source] for source in sources])


def _waiting(stands: tuple[Ints, Ints], scene: SceneRun) -> tuple[int | None, ...]:
    """By stream: how many epochs its slowest consumer is behind its fastest producer."""
    done, _ = stands
    fastest, slowest = (
        done.max(axis=0, initial=ABSENT).tolist(),
        np.where(done == ABSENT, NOBODY, done).min(axis=0, initial=NOBODY).tolist(),
    )
    return tuple(
        max(0, fastest[stream.producer] - slowest[stream.consumer])
        if fastest[stream.producer] != ABSENT and slowest[stream.consumer] != NOBODY
        else None
        for stream in scene.streams
    )


def _waiting_bytes(parts: Sequence[PartCounts], scene: SceneRun) -> tuple[int | None, ...]:
    """By stream, at all sites together. None where no site has said anything yet."""
    found = _together([part.waiting for part in parts])
    return tuple([found.get(stream.stream) for stream in scene.streams])


def _together(told: Iterable[Iterable[tuple[int, int]]]) -> dict[int, int]:
    """Sums by number, of those that are named."""
    found: dict[int, int] = {}
    for pairs in told:
        for number, count in pairs:
            found[number] = found.get(number, 0) + count
    return found


def _late(parts: Sequence[PartCounts], scene: SceneRun) -> tuple[int, ...]:
    """By box, over all segments in which it runs."""
    found: Counter[str] = Counter()
    for part in parts:
        for _, box, rows in part.late:
            found[box] += rows
    return tuple([found[box.name] for box in scene.boxes])


def _failed(parts: Sequence[PartCounts]) -> tuple[FailedRow, ...]:
    """The newest of each box. Replicas fail on the same rows: those that are alike are shown once."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for part in parts:
        for box, row, error in part.failed:
            found.setdefault(box, {})[row, error] = None
    return tuple(FailedRow(box, *each) for box in sorted(found) for each in list(found[box])[-FAILED_SHOWN:])


def _taken_in(parts: Sequence[PartCounts], ingress: Sequence[int]) -> tuple[int, ...]:
    """Rows of each source."""
    taken = _together([part.taken for part in parts])
    return tuple([taken.get(segment, 0) for segment in ingress])


def _at(values: Ints, slots: Ints) -> Ints:
    """The values at these places; 0 where a replica is newer than the copy that was made of them."""
    if slots.size and int(slots.max()) >= values.size:
        values = np.concatenate((values, np.zeros(int(slots.max()) + 1 - values.size, np.int64)))
    return values[slots]


def _skew(known: _Known, grown: NDArray[np.int64]) -> tuple[int | None, ...]:
    """By segment. grown: rows by slot. A partition has had as many rows as the replica with most of them."""
    counts = [segment.partitions for segment in known.scene.segments]
    if not counts:
        return ()
    rows = np.zeros(sum(counts), np.int64)
    np.maximum.at(rows, known.places, _at(grown, known.slots))
    firsts = [0, *accumulate(counts[:-1])]
    most, whole = np.maximum.reduceat(rows, firsts).tolist(), np.add.reduceat(rows, firsts).tolist()
    return tuple([top * count * 1_000_000 // rows_in if rows_in else None for top, rows_in, count in zip(most, whole, counts)])


def _event(number: int, told: Mapping[str, Any]) -> Event:
    details = {name: value for name, value in told.items() if name not in SAID}
    return Event(number, round(told["at_s"] * 1e6), str(told["kind"]), told["site"], str(told["text"]), details)
