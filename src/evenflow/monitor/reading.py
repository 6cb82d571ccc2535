"""A reading: the numbers of one scene at one moment. Counters that only grow, gauges, buckets of latencies, and events that are new.

Rates are differences of two readings (`history`). A counter that is smaller than before has begun anew: the run has gone on in another
generation. Columns are tuples in the order of the scene: of sites as `Scene.sites`, of boxes as `SceneRun.boxes`, and so on. None is what
nobody measures, or not yet. Times are whole microseconds, sizes whole bytes.

As JSON a reading is the object of the fields named here, lists of whole numbers for columns; readers let fields be that they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from evenflow.monitor.scene import MAKES
from evenflow.statistics.plain import plain_fields, value_of
from evenflow.statistics.progress import Behind, CheckpointProgress, JournalProgress, LossProgress, OutputProgress, SlowCode, TableProgress

Column = tuple[int, ...]
Gaps = tuple[int | None, ...]
"""A column of which some values are not known."""


@dataclass(frozen=True, slots=True)
class EngineSites:
    """Of the processes, as `Scene.sites`."""

    cpu_us: Column
    """Grows: CPU time of the process."""
    memory_bytes: Column
    """Gauge: what the process takes, shared pages in part where the system tells, else in full. 0 before its first report."""
    heard_us: Gaps
    """Gauge: for how long the site has said no numbers."""
    rss_bytes: Column | None = None
    """Gauge: what the process takes, shared pages in full. This and the next ones as in `SiteProcess`; None of a recording that is older
    than this."""
    pss_bytes: Column | None = None
    """Gauge: the same, shared pages in part; 0 where the system does not tell."""
    refused: Column | None = None
    """Grows: connections that it has refused."""


@dataclass(frozen=True, slots=True)
class RunSites:
    """Of the sites in one run, as `Scene.sites`; 0 where a site has no part."""

    rows_in: Column
    """Grows: rows that it took in from sources."""
    rows_out: Column
    """Grows: rows that it gave to sinks."""
    busy_us: Column
    """Grows: time in which its loop or its thread of user code worked."""
    measured_us: Column
    """Grows: time that `busy_us` is of. Busy is the difference of the one by that of the other."""
    state_bytes: Column
    """Gauge: state in memory."""
    spilled_bytes: Column
    """Gauge: state on its disk."""
    waiting_bytes: Column
    """Gauge: frames that wait or are retained."""
    epoch: Column
    """Gauge: the newest that it has finished."""
    epochs_in_flight: Column
    """Gauge: begun and not finished."""
    waited_us: Gaps
    """Grows: time in which ingresses had rows, and waited because this site had no room or was the last to process. Looked at four times a
    second; those that wait at the same time add up."""
    messages: Column | None = None
    """Grows: sections sent. None of a recording that is older than this."""


@dataclass(frozen=True, slots=True)
class RunBoxes:
    """Of the boxes over all sites, as `SceneRun.boxes`. Replicas count each for itself, so with two of each partition rows count twice."""

    rows_in: Column
    """Grows. Of a source: 0."""
    rows_out: Column
    """Grows. Of a sink: 0."""
    rows_failed: Column
    """Grows: rows on which it raised."""
    busy_us: Column
    """Grows: time in its operators."""
    rows_late: Column | None = None
    """Grows: rows that came after the watermark and were left out. None of a recording that is older than this."""


@dataclass(frozen=True, slots=True)
class RunSegments:
    """Of the segments over all sites, as `SceneRun.segments`. Replicas count each for itself."""

    rows: Column
    """Grows: rows processed."""
    busy_us: Column
    """Grows: the boxes and what lies between them."""
    skew_ppm: Gaps
    """Gauge: rows of the partition with most of them by the mean of all partitions, over the last ten seconds, in parts per million: 10**6
    is even. None without rows."""


@dataclass(frozen=True, slots=True)
class RunSources:
    """Of the sources, as the segments of the scene that have one, in their order."""

    rows_in: Column
    """Grows: rows taken in, each once."""
    watermark_us: Gaps
    """Gauge: event time up to which it is complete. None without one, before the first row and at its end."""
    behind: Gaps
    """Gauge: messages that are there and have not been read. None where the source cannot say so."""


@dataclass(frozen=True, slots=True)
class RunStreams:
    """Of the streams through an exchange, as `SceneRun.streams`: what waits at their consumers, of all sites."""

    waiting_epochs: Gaps
    """Gauge: by how many epochs the slowest consumer is behind the fastest producer."""
    waiting_bytes: Gaps
    """Gauge: frames that wait for their epoch."""


@dataclass(frozen=True, slots=True)
class RunReplicas:
    """Of the replicas, as `SceneRun.replicas_of`."""

    rows: Column
    """Grows: rows processed by a partition at a site."""
    state_bytes: Column
    """Gauge."""


@dataclass(frozen=True, slots=True)
class RunMoves:
    """Moves of partitions so far. All grow."""

    begun: int
    done: int
    dropped: int
    stalled_us: int
    """For how long results of those that are done may have waited, at most, all together."""


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What `Run.progress` says besides, under the same names: see `Progress`."""

    protected: int
    lost: LossProgress | None
    behind: tuple[Behind, ...]
    outputs: tuple[OutputProgress, ...]
    tables: tuple[TableProgress, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run."""

    number: int
    """From 0, of the run."""
    at_us: int
    """Since the run's start."""
    kind: str
    site: int
    """Or -1."""
    text: str
    details: Any
    """What else the event says: see `Run.events`."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A warning of a site, or worse."""

    number: int
    """Of the engine; those that were too many to be told are counted, too."""
    at_us: int
    """Since 1970, by the site's clock."""
    site: int
    level: str
    logger: str
    text: str


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row on which a box raised, as a text, and what it raised."""

    box: str
    row: str
    error: str


@dataclass(frozen=True, slots=True)
class RunReading:
    """Of one run, as `Scene.runs`."""

    run: str
    elapsed_us: int
    """Since its start, or from its start to its end."""
    rows_in: int
    """Grows: rows taken in from sources."""
    rows_out: int
    """Grows: rows given to sinks."""
    late_rows: int
    """Grows: rows that came after the watermark."""
    failed_rows: int
    """Grows: rows left out, because a box raised on them."""
    epoch: int
    """Grows: the newest that is finished everywhere."""
    epochs_in_flight: int
    """Gauge: begun and not finished, at the site with most of them."""
    takeovers: int
    """Grows: deaths after which replicas went on."""
    latency: tuple[tuple[int, int], ...]
    """Grows: (bucket, count) ascending, from an epoch's first row to its sink: see `evenflow.statistics.histogram`."""
    delivered_ppm: int | None
    """Gauge: share of the rows that are delivered, in parts per million. None: nothing is shed."""
    sites: RunSites
    boxes: RunBoxes
    segments: RunSegments
    sources: RunSources
    streams: RunStreams
    replicas: RunReplicas
    moves: RunMoves
    slow: tuple[SlowCode, ...]
    journal: JournalProgress | None
    checkpoint: CheckpointProgress | None
    events: tuple[Event, ...]
    """Those since the reading before, oldest first."""
    failed: tuple[FailedRow, ...] = ()
    """Gauge: the newest of each box. None unless the engine's `keep_failed_rows` is set: they are data."""
    account: RunAccount | None = None
    """None of a recording that is older than this, and of the simulator."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one scene at one moment."""

    number: int
    """From 1; a greater one is newer. Who asks for what is behind a number gets all events since."""
    scene: int
    """Number of the scene."""
    at_us: int
    """Microseconds since 1970, by the driver's clock."""
    sites: EngineSites
    runs: tuple[RunReading, ...]
    logs: tuple[LogLine, ...] = ()
    """Gauge: the newest warnings of all sites, oldest first."""
    logs_count: int = 0
    """Grows: warnings so far, told or not."""

    def to_json(self) -> dict[str, Any]:
        """An object of the fields, with `kind` "reading"."""
        return {"kind": "reading", **plain_fields(self)}

    @staticmethod
    def from_json(data: Any) -> Reading:
        """What `to_json` made. Raises StatisticsError naming the field that is missing or wrong; more fields do no harm."""
        return value_of(Reading, data, "reading", MAKES)

    def run(self, run: str) -> RunReading | None:
        """The run of that id."""
        return next((each for each in self.runs if each.run == run), None)

    def after(self, earlier: Reading) -> Reading:
        """This reading for somebody who has not seen the one before it: with the events of both."""
        runs = []
        for run in self.runs:
            before = earlier.run(run.run)
            runs.append(run if before is None or not before.events else replace(run, events=before.events + run.events))
        return replace(self, runs=tuple(runs))
