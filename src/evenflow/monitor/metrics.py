"""The metrics of an engine, as one table: what Prometheus is told, the page of the docs and Grafana's dashboard are made of it.

No metric has a label per partition, so that their number follows from boxes and sites. A run's id is a label of `evenflow_run_info` only;
of two runs of one dataflow the newest counts. What nobody knows is no sample. Of a run that is over there are counters, and no gauge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from evenflow.monitor.reading import Reading, RunReading
from evenflow.monitor.scene import Scene, SceneRun
from evenflow.statistics.histogram import BUCKETS_PER_DOUBLING, middle_us

DOUBLINGS: Final = range(9, 28)
"""Upper ends of the buckets of latencies, as powers of two of microseconds: from half a millisecond to two minutes."""


@dataclass(frozen=True, slots=True)
class Look:
    """One run at one moment, and the engine around it."""

    scene: Scene
    reading: Reading
    run: SceneRun
    now: RunReading


Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the value."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A row of the table. labels: besides `dataflow`, which all but those of the engine have. of: its samples."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    text: str
    of: Callable[[Look], Iterable[Sample]]


def _sources(look: Look) -> list[str]:
    return [segment.source for segment in look.run.segments if segment.source is not None]


def _by_site(look: Look, column: Iterable[int | None], scale: float = 1.0) -> Iterator[Sample]:
    for site, role, value in zip(look.scene.sites, look.run.roles, column):
        if value is not None and role != "gone":
            yield (str(site.site),), value * scale


def _checkpoint_age_s(look: Look) -> float | None:
    """None where nobody wants any, and there is none."""
    checkpoint = look.now.checkpoint
    if checkpoint is None:
        return None
    return checkpoint.age_s if checkpoint.age_s is not None or checkpoint.every_s is None else look.now.elapsed_us / 1e6


METRICS: Final = (
    Metered("rows_in_total", "counter", ("source",), "Rows taken in from a source.",
        lambda look: [((name,), float(rows)) for name, rows in zip(_sources(look), look.now.sources.rows_in)]),
    Metered("rows_out_total", "counter", (), "Rows given to sinks.", lambda look: [((), float(look.now.rows_out))]),
    Metered("late_rows_total", "counter", (), "Rows that came after the watermark.", lambda look: [((), float(look.now.late_rows))]),
    Metered("failed_rows_total", "counter", (), "Rows left out, because a box raised on them.",
        lambda look: [((), float(look.now.failed_rows))]),
    Metered("box_rows_total", "counter", ("box", "direction"), "Rows into and out of a box. Replicas count each for itself.",
        lambda look: [
            ((box.name, way), float(rows))
            for way, column in (("in", look.now.boxes.rows_in), ("out", look.now.boxes.rows_out))
            for box, rows in zip(look.run.boxes, column)
            if box.steps
        ]),
    Metered("box_failed_rows_total", "counter", ("box",), "Rows on which a box raised. Replicas count each for itself.",
        lambda look: [((box.name,), float(rows)) for box, rows in zip(look.run.boxes, look.now.boxes.rows_failed) if box.steps]),
    Metered("box_late_rows_total", "counter", ("box",), "Rows that came to a box after the watermark. Replicas count each for itself.",
        lambda look: [((box.name,), float(rows)) for box, rows in zip(look.run.boxes, look.now.boxes.rows_late or ()) if box.steps]),
    Metered("box_busy_seconds_total", "counter", ("box",), "Time in a box, over all sites.",
        lambda look: [((box.name,), us / 1e6) for box, us in zip(look.run.boxes, look.now.boxes.busy_us) if box.steps]),
    Metered("watermark_lag_seconds", "gauge", ("source",), "How far a source's watermark is behind the clock.",
        lambda look: [
            ((name,), (look.reading.at_us - us) / 1e6) for name, us in zip(_sources(look), look.now.sources.watermark_us) if us is not None
        ]),
    Metered("source_behind_messages", "gauge", ("source",), "Messages that are there and have not been read.",
        lambda look: [((name,), float(count)) for name, count in zip(_sources(look), look.now.sources.behind) if count is not None]),
    Metered("epochs_total", "counter", (), "Epochs that are finished everywhere.", lambda look: [((), float(look.now.epoch))]),
    Metered("epochs_in_flight", "gauge", (), "Epochs that are begun and not finished, at the site with most of them.",
        lambda look: [((), float(look.now.epochs_in_flight))]),
    Metered("delivered_ratio", "gauge", (), "Share of the rows that are delivered; 1 is all.",
        lambda look: [] if look.now.delivered_ppm is None else [((), look.now.delivered_ppm / 1e6)]),
    Metered("redundancy", "gauge", (), "The least number of live replicas of any partition.",
        lambda look: [((), float(look.run.redundancy))]),
    Metered("replicas", "gauge", (), "The replicas that every partition shall have.", lambda look: [((), float(look.run.replicas))]),
    Metered("partition_skew_ratio", "gauge", ("segment",), "Rows of a segment's fullest partition by the mean of all, over ten seconds.",
        lambda look: [
            ((segment.name,), ppm / 1e6) for segment, ppm in zip(look.run.segments, look.now.segments.skew_ppm)
            if ppm is not None and segment.partitions > 1
        ]),
    Metered("site_busy_seconds_total", "counter", ("site",), "Time in which a site's loop or its thread of user code worked.",
        lambda look: _by_site(look, look.now.sites.busy_us, 1e-6)),
    Metered("site_state_bytes", "gauge", ("site", "where"), "State that a site holds, in memory and on its disk.",
        lambda look: [
            ((*labels, where), value)
            for where, column in (("memory", look.now.sites.state_bytes), ("disk", look.now.sites.spilled_bytes))
            for labels, value in _by_site(look, column)
        ]),
    Metered("site_waiting_bytes", "gauge", ("site",), "Frames that wait or are retained at a site.",
        lambda look: _by_site(look, look.now.sites.waiting_bytes)),
    Metered("ingress_waited_seconds_total", "counter", ("site",), "Time in which the ingress had rows and waited for room at a site.",
        lambda look: _by_site(look, look.now.sites.waited_us, 1e-6)),
    Metered("sites", "gauge", ("role",), "Sites by what they are in a run.",
        lambda look: [((role,), float(look.run.roles.count(role))) for role in ("starting", "live", "joining", "spare")]),
    Metered("moves_total", "counter", ("state",), "Moves of partitions from one site to another: begun, done and given up.",
        lambda look: [
            ((state,), float(count))
            for state, count in (("begun", look.now.moves.begun), ("done", look.now.moves.done), ("dropped", look.now.moves.dropped))
        ]),
    Metered("takeovers_total", "counter", (), "Deaths of sites after which replicas went on.",
        lambda look: [((), float(look.now.takeovers))]),
    Metered("clock_behind_seconds", "gauge", (), "How far the driver's clock is behind the newest time in the journal.",
        lambda look: [] if look.now.journal is None else [((), look.now.journal.clock_behind_s)]),
    Metered("checkpoint_age_seconds", "gauge", (), "Since the newest checkpoint was whole; before there is one, since the run began.",
        lambda look: [] if (age_s := _checkpoint_age_s(look)) is None else [((), age_s)]),
    Metered("checkpoint_failures", "gauge", (), "Checkpoints that were given up since the newest that is whole.",
        lambda look: [] if look.now.checkpoint is None else [((), float(look.now.checkpoint.failures))]),
)  # fmt: skip
"""What is one number per labels. The others are made by hand below: `latency_seconds`, `move_stall_seconds`, and those of the engine."""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric whose samples are made by hand. labels: all of them."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def full_name(self) -> str:
        return f"evenflow_{self.name}"


LATENCY: Final = Described("latency_seconds", "histogram", ("dataflow",), "From an epoch's first row to its sink. The sum is within 5%.")
STALL: Final = Described(
    "move_stall_seconds", "summary", ("dataflow",), "For how long results of partitions that moved may have waited, at most, per move."
)
MEMORY: Final = Described("site_memory_bytes", "gauge", ("site",), "Memory that a site's process takes.")
CPU: Final = Described("site_cpu_seconds_total", "counter", ("site",), "CPU time of a site's process.")
RUN: Final = Described("run_info", "gauge", ("dataflow", "run", "version"), "A run; 1 while it is active.")
FAILED: Final = Described("run_failed", "gauge", ("dataflow",), "1 if the newest run of the dataflow has failed, else 0.")
ENGINE: Final = Described("engine_info", "gauge", ("engine", "name"), "The engine.")
BY_HAND: Final = (LATENCY, STALL, MEMORY, CPU, RUN, FAILED, ENGINE)


class EngineCollector(Collector):
    """Of one scene and reading: what the Prometheus client collects."""

    def __init__(self, scene: Scene, reading: Reading) -> None:
        self._scene, self._reading = scene, reading

    def collect(self) -> Iterator[Metric]:
        looks = self._looks()
        for row in METRICS:
            made = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            family = made(f"evenflow_{row.name}", row.text, labels=("dataflow", *row.labels))
            for look in looks if row.kind == "counter" else [look for look in looks if look.run.active]:
                for labels, value in row.of(look):
                    family.add_metric((look.run.dataflow, *labels), value)
            if family.samples:
                yield family
        yield from self._latencies(looks)
        yield from self._engine(looks)

    def _looks(self) -> list[Look]:
        newest: dict[str, Look] = {}
        for run in self._scene.counted():
            now = self._reading.run(run.run)
            if now is not None:
                newest[run.dataflow] = Look(self._scene, self._reading, run, now)
        return list(newest.values())

    def _latencies(self, looks: list[Look]) -> Iterator[Metric]:
        latency = HistogramMetricFamily(LATENCY.full_name, LATENCY.text, labels=LATENCY.labels)
        stall = SummaryMetricFamily(STALL.full_name, STALL.text, labels=STALL.labels)
        for look in looks:
            buckets = [(str(2**power / 1e6), _up_to(look.now.latency, power)) for power in DOUBLINGS]
            whole = sum(count for _, count in look.now.latency)
            total_s = sum(middle_us(bucket) * count for bucket, count in look.now.latency) / 1e6
            latency.add_metric((look.run.dataflow,), [*buckets, ("+Inf", whole)], total_s)
            stall.add_metric((look.run.dataflow,), look.now.moves.done, look.now.moves.stalled_us / 1e6)
        yield from (latency, stall) if looks else ()

    def _engine(self, looks: list[Look]) -> Iterator[Metric]:
        memory = GaugeMetricFamily(MEMORY.full_name, MEMORY.text, labels=MEMORY.labels)
        cpu = CounterMetricFamily(CPU.full_name, CPU.text, labels=CPU.labels)
        of = self._reading.sites
        for site, memory_bytes, cpu_us, heard_us in zip(self._scene.sites, of.memory_bytes, of.cpu_us, of.heard_us):
            if site.state in ("live", "leaving") and heard_us is not None:
                memory.add_metric((str(site.site),), memory_bytes)
                cpu.add_metric((str(site.site),), cpu_us / 1e6)
        runs = GaugeMetricFamily(RUN.full_name, RUN.text, labels=RUN.labels)
        for look in looks:
            runs.add_metric((look.run.dataflow, look.run.run, str(look.run.version)), float(look.run.active))
        failed = GaugeMetricFamily(FAILED.full_name, FAILED.text, labels=FAILED.labels)
        for run in self._scene.newest():
            failed.add_metric((run.dataflow,), float(run.failure is not None))
        engine = GaugeMetricFamily(ENGINE.full_name, ENGINE.text, labels=ENGINE.labels)
        engine.add_metric((self._scene.engine, self._scene.name), 1.0)
        yield from (memory, cpu, runs, failed, engine)


def _up_to(latency: Iterable[tuple[int, int]], power: int) -> float:
    """How many latencies were below 2**power microseconds, where a bucket ends."""
    return float(sum(count for bucket, count in latency if bucket < power * BUCKETS_PER_DOUBLING))


def exposition(scene: Scene | None, reading: Reading | None) -> bytes:
    """What Prometheus reads, in its text format 0.0.4. Nothing before the first reading."""
    return b"" if scene is None or reading is None else generate_latest(EngineCollector(scene, reading))
