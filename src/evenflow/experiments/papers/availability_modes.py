"""`availability-modes`: what a mode costs while nothing fails, and what a lost machine costs then (HW 3.6, tables 3.5 to 3.8, figure 3.9).

The thesis runs a filter, an aggregate and a union on a server that is backed up in each of its ways, and kills it. What it has in bytes
and in milliseconds of recovery is here beside what Evenflow has: active standby is `pairs`; `passive`; `upstream`; and `amnesia`, which
the thesis describes and does not measure, since it costs nothing and keeps nothing. As in the thesis the boxes have a server of their
own: rows come to them from elsewhere, and where they come in and go out costs nothing.

Every run is compared with one of the same rows in which nobody died, by the guarantee of its mode.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any, Final, Protocol

import evenflow as ef
from evenflow.coordinator.events import Happened
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, Deployment, World, difference, output, watch
from evenflow.experiments.result.chart import Bars, Chart, Curves, Line, Whose
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.query.builder import Dataflow
from evenflow.site.options import FlowOptions

RATE: Final = 1_000
"""Rows per second and source partition (HW table 3.5)."""
ROW_US: Final = 10.0
"""CPU of a row in a filter, and in an aggregate for each window that it is in (HW table 3.5). Evenflow counts a row that is in ten windows
as ten where it comes in, so that its aggregate has ten rows."""
CAPTURE_MS: Final = 50.0
"""M, from one capture to the next, and to the next queue-trimming (HW table 3.5)."""
REDIRECT_MS: Final = 40.0
DELAY_MS: Final = 5.0
"""r and d of the thesis."""
LINGER_MS: Final = 5.0
SITES: Final = 4
PARTITIONS: Final = 32
KEYS: Final = 40
SINK: Final = "out"
BEGIN_US: Final = 1_000_000
KILL_S: Final = 2.0
"""Up to so much later: a round of captures goes by."""
KILL_WITHIN_S: Final = 0.5
SECONDS: Final = 4.0
DRAIN_S: Final = 1.0
LOOK_S: Final = 0.002
STALLED_S: Final = 0.01
"""The gap that a death makes begins within so long of it."""
VICTIM: Final = 1
MOST_OVER_NONE: Final = 1.02
"""CPU of amnesia and of upstream backup by that of no protection."""
PASSIVE_BYTES: Final = 1.12
"""Bytes that passive standby adds, by those without protection."""
TRIMMING_BYTES: Final = 0.0064
"""The same of upstream backup, for each input: the thesis' messages that trim queues, and nothing else (HW table 3.6)."""


@dataclass(frozen=True, slots=True)
class Way:
    """A mode, and how many replicas it has for that."""

    name: str
    availability: str
    replicas: int


NONE: Final = Way("none", "pairs", 1)
AMNESIA: Final = Way("amnesia", "amnesia", 1)
UPSTREAM: Final = Way("upstream", "upstream", 2)
PASSIVE: Final = Way("passive", "passive", 2)
PAIRS: Final = Way("pairs", "pairs", 2)


@dataclass(frozen=True, slots=True)
class Case:
    """A network. window_ms, advance_ms: of its aggregates, 0 without. boxes: how many aggregates. inputs: sources. ways: that are run."""

    name: str
    window_ms: int = 0
    advance_ms: int = 0
    boxes: int = 0
    inputs: int = 1
    ways: tuple[Way, ...] = (UPSTREAM, PASSIVE)

    @property
    def row_us(self) -> float:
        """CPU of a row that comes in."""
        return ROW_US * (self.window_ms / self.advance_ms if self.advance_ms else 1)

    @property
    def period_ms(self) -> float:
        """Of outputs, while all is well."""
        return max(LINGER_MS, self.advance_ms)

    def formula_ms(self, way: Way) -> float:
        """Recovery time by HW table 3.3: K + Q p, and nothing in active standby."""
        per_ms, redirect_ms = RATE / 1e3, REDIRECT_MS + DELAY_MS
        rows = {
            "passive": CAPTURE_MS * per_ms / 2,
            "upstream": (self.window_ms * max(1, self.boxes) + CAPTURE_MS + 2 * DELAY_MS) * per_ms,
        }
        return redirect_ms + rows[way.name] * self.row_us / 1e3 if way.name in rows else 0.0


ALL: Final = (AMNESIA, UPSTREAM, PASSIVE, PAIRS)
TYPES: Final = (
    Case("filter", ways=ALL),
    Case("aggregate", 100, 10, 1, ways=ALL),
    Case("union", inputs=2, ways=ALL),
)  # fmt: skip
SIZES: Final = (Case("window_300", 300, 10, 1), Case("window_500", 500, 10, 1))
ADVANCES: Final = (Case("advance_100", 100, 100, 1), Case("advance_25", 100, 25, 1), Case("advance_5", 100, 5, 1))
CHAINS: Final = (Case("boxes_3", 100, 10, 3), Case("boxes_5", 100, 10, 5))
PAPER: Final[Figures] = {
    "recovery_ms_pairs_filter": 1.8, "recovery_ms_pairs_aggregate": 0.07, "recovery_ms_pairs_union": 1.82,
    "recovery_ms_upstream_filter": 47.62, "recovery_ms_upstream_aggregate": 69.86, "recovery_ms_upstream_union": 50.92,
    "recovery_ms_passive_filter": 45.88, "recovery_ms_passive_aggregate": 48.88, "recovery_ms_passive_union": 47.24,
    "bytes_more_upstream_filter": 0.0064, "bytes_more_upstream_aggregate": 0.0064, "bytes_more_upstream_union": 0.0128,
    "bytes_more_pairs_filter": 1.0096, "bytes_more_pairs_aggregate": 1.0096, "bytes_more_pairs_union": 1.0191,
    "bytes_more_passive_filter": 1.0127, "bytes_more_passive_aggregate": 1.1155, "bytes_more_passive_union": 1.019,
    "cpu_by_none_pairs_filter": 2.0,
    "recovery_ms_upstream_window_300": 138.7, "recovery_ms_passive_window_300": 54.6, "bytes_more_passive_window_300": 1.1154,
    "recovery_ms_upstream_window_500": 248.3, "recovery_ms_passive_window_500": 63.9, "bytes_more_passive_window_500": 1.1154,
    "recovery_ms_upstream_advance_100": 62.6, "recovery_ms_passive_advance_100": 47.5, "bytes_more_passive_advance_100": 1.026,
    "recovery_ms_upstream_advance_25": 61.3, "recovery_ms_passive_advance_25": 47.6, "bytes_more_passive_advance_25": 1.056,
    "recovery_ms_upstream_advance_5": 83.8, "recovery_ms_passive_advance_5": 51.6, "bytes_more_passive_advance_5": 1.215,
    "recovery_ms_upstream_boxes_5": 170.0,
}  # fmt: skip
"""HW tables 3.6 to 3.8, figure 3.9: recovery time behind the detection of the failure; active standby works twice."""


class Watching(World, Protocol):
    """A run that counts bytes, and tells of deaths."""

    @property
    def happened(self) -> Sequence[tuple[int, Happened]]: ...

    @property
    def now_us(self) -> int: ...

    @property
    def bytes_said(self) -> int:
        """What sites have said to each other so far."""


StartWatching = Callable[[Deployment], Watching]


def dataflow(case: Case, seconds: float, seed: int) -> Dataflow:
    rate = RATE * SITES // case.inputs
    flow = Dataflow(case.name)

    def source(number: int) -> Any:
        made = ef.sources.generator(rate, KEYS, rows=round(rate * seconds), partitions=SITES, seed=seed + 1_000 * number)
        return flow.source(made.begun(BEGIN_US), name=f"in{number}")

    stream = source(0)
    for number in range(1, case.inputs):
        stream = stream.union(source(number))
    _boxes(stream, case).to(ef.sinks.memory(SINK), name=SINK)
    return flow


def _boxes(stream: Any, case: Case) -> Any:
    if not case.boxes:
        return stream.repartition().where("value >= 0").select("key", "value", "ts")
    window, advance = f"{case.window_ms} milliseconds", f"{case.advance_ms} milliseconds"
    stream = stream.with_watermark("ts", "10 milliseconds").group_by("key").window(window, advance).agg(n="count(*)", s="sum(value)")
    for _ in range(1, case.boxes):
        stream = stream.group_by("key").window(window, advance).agg(n="sum(n)", s="sum(s)")
    return stream


@dataclass(frozen=True, slots=True)
class Run:
    """cpu_s, sent: of a run in which nobody died; bytes between sites. gap_ms: the longest time without output that a death makes;
    recovery_ms: its end behind the death's detection, or behind when the next output was due, if that is later; None without a death.
    lost, repeated: rows, against the run in which nobody died."""

    cpu_s: float
    sent: int
    gap_ms: float | None = None
    recovery_ms: float | None = None
    lost: int = 0
    repeated: int = 0


def measure(setting: Setting, start: StartWatching) -> Measurement:
    cases = TYPES if setting.quick else (*TYPES, *SIZES, *ADVANCES, *CHAINS)
    found: dict[tuple[str, str], list[Run]] = {}
    for case in cases:
        seeds = 1 if setting.quick else 3 if case in TYPES else 2
        for seed in range(seeds):
            for way in (NONE, *case.ways):
                setting.say(f"{case.name}, {way.name}, run {seed + 1} of {seeds}")
                found.setdefault((case.name, way.name), []).append(_run(start, case, way, seed))
    measured = figures(cases, found)
    return Measurement(
        measured, targets(cases), chart(cases, measured), (EMULATED, *NOTES), {name: PAPER[name] for name in PAPER if name in measured}
    )


def _run(start: StartWatching, case: Case, way: Way, seed: int) -> Run:
    deployment = Deployment(
        dataflow(case, SECONDS, seed), SITES, PARTITIONS, replicas=way.replicas, availability=way.availability, row_us=ROW_US,
        seed=seed, ends_free=True, options=FlowOptions(linger_ms=LINGER_MS, capture_max_ms=CAPTURE_MS),
    )  # fmt: skip
    calm = start(replace(deployment, metered=True))
    calm.run_for(SECONDS + DRAIN_S)
    sent = calm.bytes_said + calm.copied_bytes
    if way is NONE:
        return Run(calm.cpu_us() / 1e6, sent)
    kill_s = KILL_S + Random(f"kill of run {seed}").uniform(0, KILL_WITHIN_S)
    world = start(replace(deployment, flow=dataflow(case, SECONDS, seed)))
    began_us = world.now_us
    seen = watch(world, SINK, SECONDS + DRAIN_S, every_s=LOOK_S, acts=[(kill_s, lambda: world.kill(VICTIM))])
    known_s = next((at_us - began_us) / 1e6 for at_us, happened in world.happened if happened.kind == "site_lost")
    gap_s, ends_s = seen.longest_gap(kill_s, kill_s + STALLED_S, SECONDS)
    due_s = max(known_s, ends_s - gap_s + case.period_ms / 1e3)
    lost, repeated = difference(output(calm, SINK), output(world, SINK))
    return Run(calm.cpu_us() / 1e6, sent, gap_s * 1e3, max(0.0, ends_s - due_s) * 1e3, lost, repeated)


def figures(cases: Sequence[Case], found: Mapping[tuple[str, str], list[Run]]) -> Figures:
    """Medians over the runs; of rows the most that any run has lost or repeated."""
    said: dict[str, Any] = {}
    for case in cases:
        none = found[case.name, "none"]
        said[f"cpu_s_none_{case.name}"] = statistics.median(run.cpu_s for run in none)
        for way in case.ways:
            runs, end = found[case.name, way.name], f"{way.name}_{case.name}"
            said[f"cpu_by_none_{end}"] = statistics.median(run.cpu_s / plain.cpu_s for run, plain in zip(runs, none, strict=True))
            said[f"bytes_more_{end}"] = statistics.median(run.sent / plain.sent - 1 for run, plain in zip(runs, none, strict=True))
            said[f"gap_ms_{end}"] = statistics.median(run.gap_ms or 0.0 for run in runs)
            said[f"recovery_ms_{end}"] = statistics.median(run.recovery_ms or 0.0 for run in runs)
            said[f"rows_lost_{end}"] = max(run.lost for run in runs)
            said[f"rows_repeated_{end}"] = max(run.repeated for run in runs)
        said[f"out_of_order_{case.name}"] = out_of_order(case, said)
    return said


def out_of_order(case: Case, said: Figures) -> int:
    """Neighbours that are not in the thesis' order: recovery takes longest with upstream backup, then passive standby, then pairs. What
    differs by less than outputs are apart is equal."""
    slower = [way for way in (UPSTREAM, PASSIVE, PAIRS) if way in case.ways]
    times = [said[f"recovery_ms_{way.name}_{case.name}"] for way in slower]
    return sum(after > before + case.period_ms for before, after in pairwise(times))


def targets(cases: Sequence[Case]) -> dict[str, Bound]:
    bounds: dict[str, Bound] = {}
    for case in cases:
        bounds[f"out_of_order_{case.name}"] = Bound(at_most=0)
        for way in case.ways:
            end = f"{way.name}_{case.name}"
            if way is not AMNESIA:
                bounds[f"rows_lost_{end}"] = bounds[f"rows_repeated_{end}"] = Bound(at_most=0)
                bounds[f"recovery_ms_{end}"] = Bound(at_most=round(case.formula_ms(way) + case.period_ms, 2))
            if way in (AMNESIA, UPSTREAM):
                bounds[f"cpu_by_none_{end}"] = Bound(at_most=MOST_OVER_NONE)
            if way in (UPSTREAM, PASSIVE):
                bounds[f"bytes_more_{end}"] = Bound(at_most=case.inputs * TRIMMING_BYTES if way is UPSTREAM else PASSIVE_BYTES)
    # A window that has lost some of its rows is another row: of amnesia only the filter's output can be repeated.
    return bounds | {"rows_repeated_amnesia_filter": Bound(at_most=0), "rows_lost_amnesia_filter": Bound(at_least=1)}


def chart(cases: Sequence[Case], measured: Figures) -> Chart:
    names = tuple(way.name for way in ALL)

    def bars(title: str, unit: str, figure: str) -> Bars:
        values = tuple(
            (case.name, "ours", tuple(float(measured[f"{figure}_{name}_{case.name}"]) for name in names)) for case in cases if case in TYPES
        )
        return Bars(title, unit, names, values)  # type: ignore[arg-type]

    def of_way(source: Figures, way: Way, case: Case) -> float:
        return float(source.get(f"recovery_ms_{way.name}_{case.name}", "nan"))

    panels: list[Bars | Curves] = [
        bars("CPU", "of no protection", "cpu_by_none"),
        bars("bytes more", "of no protection's", "bytes_more"),
        bars("recovery, behind its detection", "ms", "recovery_ms"),
    ]
    aggregate = TYPES[1]
    whose_figures: tuple[tuple[Whose, Figures], ...] = (("ours", measured), ("paper", PAPER))
    advances = sorted((aggregate, *ADVANCES), key=lambda case: case.advance_ms)
    for title, axis, of in (
        ("window (HW table 3.7)", "ms", {case.window_ms: case for case in (aggregate, *SIZES)}),
        (
            "advance (HW table 3.8)",
            "ms",
            {case.advance_ms: case for case in advances},
        ),
        ("aggregates (HW figure 3.9)", "boxes", {case.boxes: case for case in (aggregate, *CHAINS)}),
    ):
        if all(case in cases for case in of.values()):
            lines = tuple(
                Line(
                    f"{way.name}, {whose}",
                    list(of),
                    [of_way(source, way, case) for case in of.values()],
                    whose,
                    True,
                )
                for way in (UPSTREAM, PASSIVE)
                for whose, source in whose_figures
            )
            panels.append(Curves(title, axis, "recovery, ms", lines))
    return Chart("What a mode costs, and what a lost site costs then (HW 3.6)", tuple(panels), 3)


NOTES: Final = (
    "Recovery is from when the coordinator knows of the death until output comes again, as the thesis has it; the gap has the detection, "
    "too. Lost and repeated rows are against a run of the same rows in which nobody died. What recovery must be is HW table 3.3's formula "
    "with the thesis' r, d and M, and one epoch, or one advance where windows end less often.",
    "Bytes are those of all that sites say to each other, encoded as on executors, and of captures; the thesis' passive and active standby "
    "send all input twice, besides.",
)
