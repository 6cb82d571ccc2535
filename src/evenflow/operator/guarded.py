"""Guarded boxes: they go on without the rows on which they raise (poison rows), and say which these were.

An epoch is tried whole. If that raises, it is divided and each part is tried by itself, until what raises is a single row. So an epoch
without poison costs nothing, and each poison row about 2 log2(rows) more calls. A row is poison if the box raises for it alone, which is
a function of the row (and, where there is state, of its key's state), so every replica puts the same rows aside.

How an epoch is divided must not show (protocol E3): another replica of a partition may have other partitions beside it. A box without
state treats each row by itself, so halves will do. Where there is state, a partition is divided only if it raises by itself, a key only
if it does; the parts of a key come one after the other, each on the state that the one before has left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import NondeterministicBox
from evenflow.kernels.hash import hash_columns
from evenflow.operator.operator import Failing, Operator, Stateless
from evenflow.operator.user.process import Process
from evenflow.processor import Processor
from evenflow.state.held_rows import join_rows
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import dead_letter_schema

NO_FAULT_OF_A_ROW: Final = (MemoryError, NondeterministicBox)
"""What ends the run all the same: another replica need not meet it, or it is about the box."""

LONGEST_ERROR: Final = 1_000
"""Characters of a dead letter's error, at most."""

LONGEST_ROW: Final = 300
"""Characters of a row that is shown."""

_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")

Run = Callable[[Rows, Tick], tuple[Rows, ...]]
Divide = Callable[[Rows], tuple[Rows, Rows]]
Failed = list[tuple[Rows, str]]
"""Single rows, each with its error."""


class Guarded(Stateless, Failing):
    """A box without state, and one more output port: the rows on which it raises, with an `error`.

    operator: raises for a batch if it raises for one of its rows. schema: of its input. wanted: somebody reads the dead letters; otherwise
    they are only counted. failed: the partition of each in the last epoch.
    """

    def __init__(self, operator: Operator, schema: pa.Schema, wanted: bool) -> None:
        self._operator, self._letters = operator, Letters(schema, wanted)
        self.schemas: tuple[pa.Schema, ...] = (*operator.schemas, self._letters.schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        ports, failed = without_poison(self._operator.process, halves, rows, tick)
        self.failed, self.kept = partitions_of(failed), newest_of(self, failed)
        return (*ports, self._letters.of(failed))


class GuardedProcess(Process, Failing):
    """A `Process`, and one more output port: the rows on which the processor raises, with an `error`. They leave no trace in its state.

    If a key raises, its rows of the epoch are given to the processor in smaller parts, in order, with the timers that come between them.
    What a timer raises at the end of an epoch is no row's fault, and passes through. wanted, failed: as in `Guarded`.
    """

    def __init__(
        self, keys: Sequence[str], processor: Processor, schema: pa.Schema, box: str, verify: bool | None, wanted: bool,
        time: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys, processor, schema, box, verify, time)
        self._letters = Letters(schema, wanted)
        self.schemas = (*self.schemas, self._letters.schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.hash is None:
            rows = Rows(rows.batch, rows.partition, hash_columns(rows.batch, self._keys))
        ports, failed = without_poison(self._try, by_partition_and_key, rows, tick)
        self.failed, self.kept = partitions_of(failed), newest_of(self, failed)
        if self._timers:
            ports = (_joined([ports[0], self._made(self._expire(tick))]), *ports[1:])
        return (*ports, self._letters.of(failed))

    def _try(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return self._made(self._fold(rows, tick)), self._no_late


def without_poison(run: Run, divide: Divide, rows: Rows, tick: Tick) -> tuple[tuple[Rows, ...], Failed]:
    """What `run` gives on each of its ports without the rows on which it raises, and those rows, one by one, each with its error.

    divide: two parts of two or more rows, neither of them empty; the first is run before the second. A run that raises changes nothing.
    """
    made = _Made()
    made.attempt(run, divide, rows, tick)
    if not made.ports:
        return run(rows.slice(0, 0), tick), made.failed
    return tuple(_joined(pieces) for pieces in zip(*made.ports, strict=True)), made.failed


@dataclass(slots=True)
class _Made:
    """ports: what each run that did not raise gave. failed: the rows on which one did."""

    ports: list[tuple[Rows, ...]] = field(default_factory=list)
    failed: Failed = field(default_factory=list)

    def attempt(self, run: Run, divide: Divide, rows: Rows, tick: Tick) -> None:
        try:
            self.ports.append(run(rows, tick))
        except NO_FAULT_OF_A_ROW:
            raise
        except Exception as error:
            if rows.count <= 1:
                if rows.count == 0:
                    raise  # Nothing can be left out, so it is not about a row.
                self.failed.append((rows, described(error)))
                return
            first, second = divide(rows)
            self.attempt(run, divide, first, tick)
            self.attempt(run, divide, second, tick)


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """The first rows and the last ones."""
    middle = rows.count // 2
    return rows.slice(0, middle), rows.slice(middle, rows.count)


def by_partition_and_key(rows: Rows) -> tuple[Rows, Rows]:
    """Rows of several partitions by partition, of one partition by key, of one key in halves; each part in the order of the rows."""
    assert rows.hash is not None
    labels: tuple[npt.NDArray[np.int32] | npt.NDArray[np.uint64], ...] = (rows.partition, rows.hash)
    for label in labels:
        distinct = np.unique(label)
        if distinct.size > 1:
            first = label < distinct[distinct.size // 2]
            return rows.take(np.flatnonzero(first)), rows.take(np.flatnonzero(~first))
    return halves(rows)


def described(error: Exception) -> str:
    """The kind of an error and what it says, the same in every process: without addresses in memory, and not too long."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # It is the user's class.
        text = type(error).__name__
    return _ADDRESS.sub("0x…", text).encode("utf-8", "replace").decode()[:LONGEST_ERROR]


def partitions_of(failed: Failed) -> tuple[int, ...]:
    return tuple(int(row.partition[0]) for row, _ in failed)


def newest_of(box: Failing, failed: Failed) -> tuple[tuple[str, str], ...]:
    """The rows that it keeps, each with its error. Nothing is written down of rows that are not kept."""
    if not failed or not box.keeps:
        return box.kept
    new = [(_text(row), error) for row, error in failed[-box.keeps :]]
    return (*box.kept, *new)[-box.keeps :]


def _text(row: Rows) -> str:
    values = ", ".join(f"{name}={value!r:.60}" for name, value in row.batch.to_pylist()[0].items())
    return values if len(values) <= LONGEST_ROW else f"{values[: LONGEST_ROW - 1]}…"


class Letters:
    """Makes dead letters. schema: of the rows that failed, and then of the letters. wanted: somebody reads them."""

    def __init__(self, schema: pa.Schema, wanted: bool) -> None:
        self.schema, self._wanted = dead_letter_schema(schema), wanted
        self._none = Rows.empty(self.schema)

    def of(self, failed: Failed) -> Rows:
        if not failed or not self._wanted:
            return self._none
        rows = join_rows([row for row, _ in failed], self.schema)
        errors = pa.array([error for _, error in failed], pa.string())
        return Rows(pa.RecordBatch.from_arrays([*rows.batch.columns, errors], schema=self.schema), rows.partition)


def _joined(pieces: Sequence[Rows]) -> Rows:
    """The pieces one after the other."""
    some = [piece for piece in pieces if piece.count]
    return join_rows(some, some[0].batch.schema) if some else pieces[0]
