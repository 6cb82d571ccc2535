"""How a run goes, as one value: what `Run.numbers()` returns, and, as plain JSON values, `Run.progress()`.

Views, benchmarks and operations read its attributes; who has it from a file or another process reads it with `Progress.from_json`. The
names of the fields are the keys of the JSON object, in their order, and stay. Rates are per second; those of a live run are over its last
ten seconds, and so are latencies. None is what is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evenflow.plan.moved_whole import MovedWhole
from evenflow.statistics.plain import plain_fields, value_of

Role = Literal["live", "joining", "spare"]


@dataclass(frozen=True, slots=True)
class SiteProcess:
    """A site, whatever runs there: what the driver knows of its process."""

    site: int
    """Its number."""
    executor: str
    """Spark's id of its executor."""
    host: str
    pid: int
    """Of the Python process, on that host."""
    rss_bytes: int
    """Memory that the process takes, shared pages in full; 0 before its first report."""
    pss_bytes: int
    """The same, shared pages in part; 0 where the system does not tell."""
    refused: int
    """Connections that it has refused."""
    leaving: bool
    """It is being drained."""

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


@dataclass(frozen=True, slots=True)
class SiteProgress(SiteProcess):
    """A site in one run."""

    role: Role
    """joining: it gets replicas that do not count yet. spare: it waits for somebody's death."""
    partitions: int
    """Replicas that count, of all segments together."""
    coming: int
    """Replicas whose state is under way to it."""
    cpu_share: float
    """CPU seconds of its process per second."""
    rows_in_per_s: float
    """Rows that it takes in from sources, per second."""
    state_bytes: int
    """State in memory."""
    spilled_bytes: int
    """State on its disk."""
    buffered_bytes: int
    """Frames that wait or are retained."""
    messages: int
    """Sections sent so far."""
    epoch: int
    """The newest that it has finished."""
    utilization: float | None
    """Share of the last ten seconds in which it worked, from 0 to 1. None before its first report."""


@dataclass(frozen=True, slots=True)
class BoxProgress:
    """A box over all sites, in the last ten seconds. Replicas count each for itself."""

    segment: str
    """Name of its segment."""
    box: str
    """Its name."""
    rows_in_per_s: float
    """Rows per second."""
    cost_us: float | None
    """Microseconds per row in. None where no rows came."""
    selectivity: float | None
    """Rows out per row in. None where no rows came."""
    busy_share: float
    """Seconds of work per second."""


@dataclass(frozen=True, slots=True)
class SlowCode:
    """User code that has not returned for five seconds and more."""

    site: int
    box: str
    epoch: int
    """The one that it is given."""
    seconds: float
    """Since it was called."""


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a source is behind a topic that it reads."""

    source: str
    """Its name."""
    topic: str
    messages: int
    """That are there and have not been read, over all partitions."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A refreshed table of the run."""

    table: str
    """Its name."""
    rows: int
    bytes: int
    version: int
    """The version of the run since which it has these rows."""
    epoch: int
    """The epoch since which it has these rows."""
    read_s: float
    """Seconds since they were read."""
    failures: int
    """Readings since then that failed."""
    error: str | None
    """Why the last one did."""


@dataclass(frozen=True, slots=True)
class JournalProgress:
    """The journal of a run that has a checkpoint location."""

    location: str
    """Where it is."""
    generation: int
    """How many drivers have begun there, this one included."""
    durable: int
    """The newest epoch that sinks may have: what is behind it waits for the store."""
    age_s: float
    """For how long the entry that is being appended has been waiting, in seconds; 0 while none is."""
    append_ms: float | None
    """What the last append took, in milliseconds. None before the first."""
    append_mean_ms: float | None
    """The same over the last ones."""
    appends: int
    """Entries that this driver has appended."""
    bytes: int
    """Size of them all."""
    clock_behind_s: float = 0.0
    """How far the driver's clock is behind the newest time in the journal, in seconds; 0 if it is not. Until it has caught up timers take
    twice as long."""


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """The checkpoints of a run that has a location: the newest that is whole, and how the next ones go. Times are by the driver's clock."""

    number: int | None
    """Of the newest. None if there is none yet."""
    epoch: int | None
    """It has the state as of the end of this epoch."""
    bytes: int | None
    """Of all its objects."""
    age_s: float | None
    """Since it was whole, in seconds."""
    seconds: float | None
    """From its order until it was whole."""
    failures: int
    """How many have been dropped since."""
    under_way: int | None
    """Number of the one that is being made."""
    every_s: float | None = None
    """From one to the next, in seconds. None: there is one only when somebody asks for it."""


@dataclass(frozen=True, slots=True)
class OutputProgress:
    """An output of a dataflow of whose sources rows may be left out under overload."""

    output: str
    """Its name."""
    protected: bool
    """Nothing that it needs is ever left out."""
    dropped: int
    """Rows of sources that it has missed so far."""
    delivered_share: float
    """Of the rows that its sources have given so far. Windows and sessions that were held back, since rows of them may be missing, have not
    been delivered either."""
    age_ms: float | None = None
    """Median age of its answers in its sink, from an epoch's first row, in milliseconds; of a live run over the last 10 s. None where none
    came, and where sites write to its sink and others are there beside it."""
    utility: float | None = None
    """weight * loss(delivered share) * mean of latency(age), by its quality of service; None without one, or where its age is not known."""


@dataclass(frozen=True, slots=True)
class LossProgress:
    """What amnesia has cost a run so far, and restarts a source that is not kept: see `evenflow.coordinator.losses`."""

    partitions: int
    """That have begun anew with nothing, each time counted: their state was lost."""
    frames: int
    """Epochs of producer partitions that were read as empty, of all sites that read them."""
    rows: int
    """That were made for partitions of which nobody was there to receive them."""
    unkept: int
    """Rows of sources with durability="none" that restarts went on without."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run goes."""

    run: str
    """Its id."""
    dataflow: str
    """Name of its dataflow."""
    active: bool
    """It has not ended yet."""
    epoch: int
    """The newest that is finished everywhere."""
    epochs_in_flight: int
    """Begun and not finished, at the site with most of them."""
    rows_in: int
    """Rows taken in from sources so far."""
    rows_out: int
    """Rows given to sinks so far."""
    rows_in_per_s: float
    """Of a run that is over: over all of its time."""
    rows_out_per_s: float
    """Of a run that is over: over all of its time."""
    p50_ms: float | None
    """Median latency, from an epoch's first row to its sink, in milliseconds. Of a run that is over: over all of its time."""
    p99_ms: float | None
    """The same, 99th percentile."""
    total_p50_ms: float | None
    """Median latency over all of its time, in milliseconds."""
    total_p99_ms: float | None
    """The same, 99th percentile."""
    late_rows: int
    """Rows that came after the watermark."""
    failed_rows: int
    """Rows left out, because a box raised on them."""
    replicas: int
    """That every partition shall have."""
    redundancy: int
    """The least number of live replicas of any partition."""
    membership: int
    """Number of the newest membership."""
    moved_whole: tuple[MovedWhole, ...]
    """Segments whose keys can only be moved whole."""
    slow: tuple[SlowCode, ...]
    """User code that does not return."""
    sites: tuple[SiteProgress, ...]
    """All that there are, ascending."""
    boxes: tuple[BoxProgress, ...]
    """In the order of the layout; none before the first report."""
    seconds: float
    """Since its start, or from its start to its end."""
    tables: tuple[TableProgress, ...] = ()
    """Those that are refreshed while it runs."""
    journal: JournalProgress | None = None
    """None if the run has no checkpoint location."""
    checkpoint: CheckpointProgress | None = None
    """None if the run has no checkpoint location."""
    behind: tuple[Behind, ...] = ()
    """Of sources that can say so, such as Kafka's, by topic."""
    outputs: tuple[OutputProgress, ...] = ()
    """All, if rows may be left out for some."""
    protected: int = 0
    """Deaths of sites that nothing would be lost of now, whichever they are. 0: the next one may cost something."""
    lost: LossProgress | None = None
    """None if nothing has been lost, or could be without the run's end."""

    def to_json(self) -> dict[str, Any]:
        """Plain values: objects, lists, texts, numbers and None."""
        return plain_fields(self)

    @staticmethod
    def from_json(data: Any) -> Progress:
        """What `to_json` made. Raises StatisticsError naming the field that is missing or wrong; more fields do no harm."""
        return value_of(Progress, data, "progress", "run.progress() makes what is expected")
