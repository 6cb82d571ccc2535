"""What a kind of box owes: its parameters with their types, what it makes of its input, how it runs, and how it is told.

A box of a network carries its parameters as a mapping, so that it can be saved and compared. Its kind reads them once, into fields
with types (`BoxKind.read`); nobody else looks a parameter up by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from evenflow.availability.guarantee import OperatorClass

Order = Literal["event_time", "arrival"]
"""event_time: behind the watermark. arrival: by the frame's address."""

Colours = tuple[str, str]
PLAIN: Colours = ("#ffffff", "#5b7285")
KEEPING: Colours = ("#efeafc", "#6f53c4")
USERS: Colours = ("#fdf0db", "#c27c0e")
JOINING: Colours = ("#e6f0ee", "#2c7a6b")
"""Background and border of a box: a plain one, one that keeps state, one with the user's code, one that joins."""


Origins = tuple[tuple[int, str], ...]
"""(number of the input, column of it) of each that a column is taken from."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a box that keeps state must have whole, or not at all: rows of one window of a group, or all rows of a key. unit: "none" if it
    can do without no row. columns: of its input, the group or the key. time, size_us, slide_us, start_us: of windows. why: what it does
    that needs that. around_us: what it puts out says from when to when it is of rows, in `window_start` and `window_end`, and only rows
    that are so much before could have changed it, too; None: nobody can tell that."""

    unit: Literal["window", "key", "none"]
    columns: tuple[str, ...]
    why: str
    time: str | None = None
    size_us: int = 0
    slide_us: int = 0
    start_us: int = 0
    around_us: int | None = None


def of_keys(keys: Sequence[str], why: str, *, around_us: int | None = None) -> Need:
    """All rows of a key; without a key there is only one, and no part of it to leave out."""
    return Need("key", tuple(keys), why, around_us=around_us) if keys else Need("none", (), f"{why} of all rows together")


@dataclass(frozen=True, slots=True)
class StreamType:
    """What an arrow carries: columns, and the event-time column if there is a watermark on it."""

    schema: pa.Schema
    event_time: str | None = None
    watermark_delay_us: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a box puts out: a schema per port, and the event time of port 0."""

    schemas: tuple[pa.Schema, ...]
    event_time: str | None = None
    watermark_delay_us: int | None = None


@dataclass(frozen=True, slots=True)
class BoxKind:
    """The parameters of a box, and what follows from them. A field with a default may be left out of a box.

    inputs: smallest and largest number of inputs, None for any. stateful: it keeps rows or totals by key, so its input is repartitioned.
    guarded: it can put aside a row on which it raises (`on_error`). refuses_changes: why it cannot take a changelog in, if it cannot.
    operator: module below `evenflow.operator`, and the class in it that runs a step of this kind, built of the input's schema and the
    step's parameters; empty where `operator.catalogue` knows how.
    """

    name: ClassVar[str]
    inputs: ClassVar[tuple[int, int | None]] = (1, 1)
    stateful: ClassVar[bool] = False
    guarded: ClassVar[bool] = False
    refuses_changes: ClassVar[str | None] = None
    colours: ClassVar[Colours] = PLAIN
    operator: ClassVar[str] = ""

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Self:
        """The parameters of a box. Raises KeyError for one that is missing and has no default."""
        return cls(**{f.name: params[f.name] for f in fields(cls) if f.name in params or f.default is MISSING})

    @classmethod
    def of_step(cls, params: Mapping[str, Any]) -> Self:
        """The parameters of a step of this kind, as far as it has those of the box; the others are None."""
        return cls(**{f.name: params.get(f.name) for f in fields(cls) if f.name in params or f.default is MISSING})

    @property
    def repeats(self) -> bool:
        """It gives the same for the same input and state, whenever and wherever it is asked (E3)."""
        return True

    @property
    def depends(self) -> OperatorClass:
        """How what it puts out depends on what it has had: what a mode of availability can bring back of it."""
        if not self.repeats:
            return OperatorClass.ARBITRARY
        return OperatorClass.DETERMINISTIC if self.stateful else OperatorClass.REPEATABLE

    @property
    def reach_us(self) -> int | None:
        """How far back in event time lies what its output depends on; None: there is no bound (W4)."""
        return 0 if self.depends is OperatorClass.REPEATABLE else None

    def may_run_ahead(self, time: str, given: Sequence[str]) -> bool:
        """The event time of its rows may be later than that of the rows they are made of, nobody knows by how much. time: the column that
        it has event time in; given: those of its inputs that have any."""
        return False

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        """What a box of that name makes of its inputs. Raises QueryError or a subclass of it that names the box and says what to do."""
        raise NotImplementedError

    def ports(self) -> int:
        """How many output ports it has without that of the rows on which it raises."""
        return 1

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        """Where a column of its results is taken from as it was; none if it is computed. By default its rows are those of its inputs."""
        return tuple((number, column) for number, schema in enumerate(inputs) if column in schema.names)

    def needs(self, number: int) -> Need | None:
        """What must stay whole of its input of that number if some of its rows are left out under overload; None: nothing need."""
        return None

    def text(self) -> list[str]:
        """What the box does, in phrases."""
        return []

    @classmethod
    def step_text(cls, params: Mapping[str, Any]) -> list[str]:
        """What a step of this kind does, in phrases."""
        return cls.of_step(params).text()


@dataclass(frozen=True, slots=True)
class RowKind(BoxKind):
    """A box whose output is a function of each row alone: it runs where its input is."""

    def step(self, schema: pa.Schema) -> tuple[Mapping[str, Any], bool]:
        """(parameters of its step, whether that calls functions that the user wrote). schema: of its input."""
        raise NotImplementedError

    def keys_behind(self, keys: tuple[str, ...] | None, schema: pa.Schema) -> tuple[str, ...] | None:
        """The columns by which its output is still partitioned, where its input is by `keys`. schema: of its input."""
        return keys


@dataclass(frozen=True, slots=True)
class Fed:
    """What the planner has made of a keyed box's input. schema: of the rows that reach its step. given: of the stream that it reads.

    out: columns that the box puts out. partial: producers have aggregated the rows already. retracts: they are changes.
    """

    schema: pa.Schema
    given: StreamType
    out: pa.Schema
    partial: bool
    retracts: bool


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """How a box with state per key runs.

    cares: its result depends on the order of a key's rows. keeps_key: it puts the key columns out as they were, and what is behind it
    may stay. lag_us: how far the event time of its rows may be behind the watermark.
    """

    params: Mapping[str, Any]
    cares: bool
    keeps_key: bool = True
    lag_us: int = 0
    user_code: bool = False


@dataclass(frozen=True, slots=True)
class KeyedKind(BoxKind):
    """A box with state per key: its input is repartitioned.

    order: in which it has the rows of a key, None where that does not matter. tie_break: columns that order rows of equal time, None for
    all the others.
    """

    stateful: ClassVar[bool] = True
    colours: ClassVar[Colours] = KEEPING

    keys: Sequence[str]
    order: Order | None
    tie_break: Sequence[str] | None

    def ports(self) -> int:
        return 2  # The results, and the late rows.

    def step(self, fed: Fed) -> KeyedStep:
        """How it runs."""
        raise NotImplementedError

    def ties(self, schema: pa.Schema, time: str | None) -> tuple[str, ...]:
        """The columns that order its rows of equal time: by default all the others that can. Keys are equal in what a window sorts."""
        left_out = {time, *(self.keys if self.sorts_itself() else ())}
        rest = (f.name for f in schema if f.name not in left_out and not pa.types.is_nested(f.type))
        return tuple(rest if self.tie_break is None else self.tie_break)

    def sorts_itself(self) -> bool:
        """Whether the box has its rows in the order of event time by its own means: a window, which sorts those that it has at its end.

        Rows that are behind the watermark, and would be late anywhere else, may be of a window that is still open.
        """
        return False

    def judges_late(self, event_time: str | None) -> bool:
        """Whether rows may be late for it. event_time: of what it puts out."""
        return self.order == "event_time"

    def needed(self, event_time: str | None) -> set[str] | None:
        """Columns of the input that it reads; None: all of them."""
        return None


__all__ = [
    "JOINING", "KEEPING", "PLAIN", "USERS", "BoxKind", "Colours", "Fed", "KeyedKind", "KeyedStep", "Need", "Order", "Origins", "Outcome",
    "RowKind", "StreamType", "of_keys",
]  # fmt: skip
