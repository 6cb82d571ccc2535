"""The layout: the query network cut wherever data must be repartitioned, as segments of steps joined by streams.

It says what runs, and never changes while a dataflow runs. Where it runs is said by a `plan.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from evenflow.availability.guarantee import Guarantee, OperatorClass
from evenflow.availability.mode import Mode
from evenflow.stream.curve import Curve
from evenflow.stream.worth import ALIKE, Classes

WHOLE: Final = Curve(((0.0, 0.0), (1.0, 1.0)))
KEY_GROUPS: Final = 4096
"""G of protocol E1. A partition is a range of key groups."""

Ranges = tuple[tuple[int, int], ...]
"""(first key group, partition), ascending from group 0; a range ends where the next begins. Each partition has one at most."""

HASH_COLUMN: Final = "_hash"
FROM_COLUMN: Final = "_from"
TO_COLUMN: Final = "_to"


@dataclass(frozen=True, slots=True)
class Port:
    """Where a step's rows come from: `step` >= 0 is an earlier step of the segment; -1 is the segment's input, -2 its right input.

    port: output port of that step (0 the result, 1 the late rows).
    """

    step: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One operator inside a segment. box: name of the box in the query network, for messages and metrics.

    kind and params choose and configure the operator (see `evenflow.operator.catalogue.build`). schema: of its input.
    user_code: it calls functions that the user wrote, so it runs beside the event loop. other: where the right rows of a join come from.
    """

    box: str
    kind: str
    params: Mapping[str, Any]
    schema: pa.Schema
    source: Port
    user_code: bool = False
    other: Port | None = None


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows go to the partition that owns the hash of these columns."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Single:
    """All rows go to partition 0."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows of producer partition p go to partition p modulo the consumer's partitions."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows go to any partition, by the weights of the plan: which one follows from the row's address (River, FL 2.4)."""


Route = Keyed | Single | Spread | Dealt


@dataclass(frozen=True, slots=True)
class Arc:
    """A stream between two segments. id: its number in the layout. port: which step of the producer feeds it.

    lag_us: how far its event time may be behind its producer's watermark: a join puts out rows that it has kept.
    """

    id: int
    producer: int
    consumer: int
    port: Port
    schema: pa.Schema
    route: Route
    lag_us: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run together on the same partition of rows.

    kind: `ingress` (input 0 is a source), `inner`, or `egress` (a sink is at the end). partitions: P >= 1, how many numbers there are;
    in_use: so many of a keyed segment's own key groups at the start, the others are for when there are to be more; 0: all.
    sensitive: some step cares about row order within an epoch, so input is merged in frame-address order (E2).
    right: streams among `inputs` that are the right input of a join.
    schema: of its input; a source may have more columns, which are left out where rows enter.
    sink: index of the sink that the segment's last step feeds through the engine (`Release`), or None.
    effects: what its first step answers cannot be made again, so each partition has a leader, who runs it, and this is the schema of its
    records, which the others take the answers from (N1); None: all replicas run all steps.
    publishes: its steps leave something outside that bears the epoch's number, so a restart must make the same of that epoch (J3).
    unordered: its sink takes the rows of each producer partition as they come, and not only whole epochs (O1).
    """

    id: int
    name: str
    kind: Literal["ingress", "inner", "egress"]
    partitions: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]
    sensitive: bool = False
    source: str | None = None
    sink: str | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    right: tuple[int, ...] = ()
    in_use: int = 0
    publishes: bool = False
    effects: pa.Schema | None = None
    unordered: bool = False

    @property
    def user_code(self) -> bool:
        return any(step.user_code for step in self.steps)

    @property
    def led(self) -> bool:
        """Its partitions have leaders: what they consume, or answer, is what a leader's records say (I1)."""
        return self.kind == "ingress" or self.effects is not None

    @property
    def recorded(self) -> pa.Schema:
        """Of the rows of a leader's record."""
        return self.schema if self.effects is None else self.effects

    def is_keyed(self, layout: Layout) -> bool:
        """All its rows come by their key, so that its key groups may change hands."""
        return bool(self.inputs) and all(isinstance(layout.arcs[stream].route, Keyed) for stream in self.inputs)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of time that stay whole where rows are left out: all of a group that begin in [start + n block, start + (n + 1) block) come,
    or none. columns: of the group, in the order in which they are hashed; time: names in the rows. All in microseconds."""

    columns: tuple[str, ...]
    time: str
    size_us: int
    slide_us: int
    start_us: int
    block_us: int


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that stay whole where rows are left out: all rows of a key come, or none, while as much is kept. columns: of the key, hashed
    as a set, since the two sides of a join may call them otherwise; time: of the rows' event time."""

    columns: tuple[str, ...]
    time: str


@dataclass(frozen=True, slots=True)
class Shed:
    """What may be left out of a source's rows under overload, row by row, or by windows or keys that stay whole.

    outputs: that the source feeds, none of which is protected. patience_us: L*, the age from which on an answer is worth less, the least of
    theirs. column: of the source, by whose value rows are of different classes; None: all are worth the same. whole: what stays so.
    weighs: rows say how many they stand for. worths: of each of the outputs, its weight, and its utility over the share of all that comes.
    """

    outputs: tuple[str, ...]
    patience_us: int
    column: str | None = None
    classes: Classes = ALIKE
    whole: Windows | Keys | None = None
    weighs: bool = False
    worths: tuple[tuple[float, Curve], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Thin:
    """What may be left out of the rows of an arc, row by row, by the plan. outputs: that they come to, none of which is protected. column,
    classes, weighs: as in `Shed`, of the arc's own columns."""

    outputs: tuple[str, ...]
    column: str | None = None
    classes: Classes = ALIKE
    weighs: bool = False


@dataclass(frozen=True, slots=True)
class Valued:
    """What an output's rows are worth. loss: over the share of them that is delivered. worth: of a row of each class. protected: it has no
    quality of service, so all that it needs comes."""

    weight: float = 1.0
    loss: Curve = WHOLE
    worth: tuple[float, ...] = (1.0,)
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Worth:
    """What an output's answers are worth by their age. latency: (microseconds, utility), falling; none: they are worth the same whenever
    they come. protected: it has no quality of service, so it goes before all that has."""

    weight: float = 1.0
    latency: tuple[tuple[float, float], ...] = ()
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Quality:
    """What is said of an output's answers: its weight, and their utility over the share that is delivered and over their age in
    microseconds; None: age does not matter."""

    weight: float
    loss: Curve
    latency: Curve | None


@dataclass(frozen=True, slots=True)
class Layout:
    """What runs. Segments are in topological order: a segment's producers come before it.

    sheds: by source, what may be left out of it, where that is asked for; not there if nothing may. worths: by segment, of the outputs
    that it feeds; nothing if age matters to none, or to all alike. modes: by segment, which mode of availability its boxes ask for; not
    there if none does. depends: by segment, how what its boxes put out depends on what they have had, (box, class). promised: by sink, what
    it must have through failures, where that is said. ahead: by box whose state closes by event time, the first box before it behind which
    that may be later than all that sources have given; not there if none may. every_us: all who read what comes out want it no more often
    than this; None: as soon as it is there. thins: by arc, what a plan may leave out there; not there if nothing may. valued: by sink, what
    its rows are worth to such a plan; nothing where no arc is thinned. qualities: by sink, what
    is said of its answers; not there if nothing is.
    """

    name: str
    segments: tuple[Segment, ...]
    arcs: tuple[Arc, ...]
    sources: Mapping[str, Any]
    sinks: Mapping[str, Any]
    sheds: Mapping[str, Shed] = field(default_factory=dict)
    worths: Mapping[int, tuple[Worth, ...]] = field(default_factory=dict)
    modes: Mapping[int, Mode] = field(default_factory=dict)
    depends: Mapping[int, tuple[tuple[str, OperatorClass], ...]] = field(default_factory=dict)
    promised: Mapping[str, Guarantee] = field(default_factory=dict)
    ahead: Mapping[str, str] = field(default_factory=dict)
    every_us: int | None = None
    thins: Mapping[int, Thin] = field(default_factory=dict)
    valued: Mapping[str, Valued] = field(default_factory=dict)
    qualities: Mapping[str, Quality] = field(default_factory=dict, compare=False)

    def ends(self, segment: Segment) -> tuple[str, ...]:
        """The sinks that the segment feeds by itself."""
        stages = tuple(step.box for step in segment.steps if step.kind in ("stage", "discard") and step.box in self.sinks)
        return stages if segment.sink is None else (*stages, segment.sink)

    def stages(self) -> tuple[Step, ...]:
        """Steps with which sites write by themselves; each is named after its sink."""
        return tuple(step for segment in self.segments for step in segment.steps if step.kind == "stage")

    def dealt(self) -> tuple[int, ...]:
        """Segments whose rows may go to any of their partitions."""
        return tuple(s.id for s in self.segments if s.inputs and all(isinstance(self.arcs[arc].route, Dealt) for arc in s.inputs))
