"""Process: the user's own keyed, stateful box (protocol S2, E3).

An epoch's rows are grouped by key, the processor is called on the state before the epoch, and what it wrote becomes state when it
has returned. Output rows belong to the partition of the key that they answer, so the result of a partition does not depend on
which others are at the site. From time to time the call is made a second time on the same base, and any difference stops the box.

A processor with timers is called more than once: with rows, then for the timers that come between them, and, also in an epoch without rows,
for those that have come by its end (operator/user/timers.py).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import NondeterministicBox, QueryError, TypeMismatch
from evenflow.kernels.hash import Hashes, check_words, hash_columns
from evenflow.operator.operator import Timed
from evenflow.operator.order import event_time
from evenflow.operator.tabled import Tabled
from evenflow.operator.user.calls import Calls, Output
from evenflow.operator.user.declared import Store
from evenflow.operator.user.fields import Attempt, Column
from evenflow.operator.user.kept_fields import declared
from evenflow.operator.user.store import Base, KeyedStore
from evenflow.operator.user.timers import Merged, Piece, Timers, in_order
from evenflow.operator.user.words import python_of
from evenflow.processor import Groups, Processor
from evenflow.state.held_rows import join_rows
from evenflow.state.keys import KeptKeys
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.kept import same
from evenflow.stream.rows import Rows
from evenflow.stream.schema import parse_ddl
from evenflow.stream.values import plain_values

VERIFY_FIRST: Final = 4
"""Non-empty epochs that are verified at the start."""
VERIFY_EVERY: Final = 64
"""After that, epochs whose number is a multiple of this."""


@dataclass(frozen=True, slots=True)
class _Given:
    """Keys of an epoch on which the user's code runs. base: their state. partition, hash, check: of each key. batch, groups: their rows,
    grouped, if they have some. times: int64 (n,), of these rows, by which timers come between them. keys: for timers, their columns."""

    base: Base
    partition: npt.NDArray[np.int32]
    hash: Hashes
    check: Hashes
    batch: pa.RecordBatch | None = None
    groups: Groups | None = None
    times: Int64s | None = None
    keys: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a run put out, in pieces; and for each key of these pieces its partition, hash and check."""

    pieces: list[Piece]
    partition: npt.NDArray[np.int32]
    hash: Hashes
    check: Hashes


class Process(Tabled, Timed):
    """Call a processor once per epoch (`BatchProcessor`) or once per key and epoch (`Processor`); with timers, see `timers.Merged`.

    keys: key columns; null is a key, all NaN are one key. verify: True calls twice in every epoch and compares, False never, None
    (the default) in the first non-empty epochs and then now and then, unless the processor says `deterministic = False`. time: the event
    time by which its rows come sorted, if they do.

    Output order within a partition: a BatchProcessor's by the input row that each output row answers; otherwise by the key's
    first appearance in the epoch; with timers by the time of what is answered. Cost: O(rows + timers that come), whatever the state's size;
    O(rows) once more for each timer that comes between two rows of a key. An exception of the processor passes through, with a note that
    names the key where there is one. Raises NondeterministicBox, TypeMismatch for output that is not as declared, and QueryError.
    """

    def __init__(
        self, keys: Sequence[str], processor: Processor, schema: pa.Schema, box: str = "process", verify: bool | None = None,
        time: str | None = None,
    ) -> None:  # fmt: skip
        self._output = declared_output(processor, box)
        # Nothing is late here: an `order` step before takes those out. The port exists so that every keyed box has two.
        self.schemas: tuple[pa.Schema, ...] = (self._output, schema)
        self._none = Rows.empty(self._output, keyed=processor.keeps_key)
        self._no_late = Rows.empty(schema, keyed=True)
        self._keys, self._box, self._verify, self._time = tuple(keys), box, verify, time
        self._processor = copy.deepcopy(processor)
        self._keeps_key = processor.keeps_key
        if self._keeps_key and not set(keys) <= set(self._output.names):
            raise QueryError(f"box {box!r} says keeps_key = True, but its output lacks one of {', '.join(keys)}: declare them")
        declared = Store(box)
        self._processor.open(declared)
        kind = None if time is None else schema.field(time).type
        self.fields = {
            name: field if kind is None or field.time != "event" else replace(field, type=pa.timestamp("us", kind.tz))
            for name, field in declared.fields.items()
        }
        self._calls = Calls(self._processor, self._keys, self._output, box)
        self._timers = Timers(self.fields)
        if time is None and self._timers.of("event"):
            raise QueryError(f"box {box!r}: the timer {self._timers.of('event')[0].name!r} goes by event time, and its rows have none")
        self._key_schema = pa.schema([schema.field(key) for key in keys])
        self._table: KeyedStore = KeyedStore(self.fields, KeptKeys(schema, keys) if self._timers else None)
        self._verified = 0

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return self._made([*self._fold(rows, tick), *self._expire(tick)]), self._no_late

    def next_us(self, stamp: int) -> int:
        """See `Timers.next_us`."""
        return self._timers.next_us(stamp)

    @property
    def declared(self) -> Sequence[Any]:
        return declared(self.fields.values())

    def drop(self, partition: int) -> None:
        super().drop(partition)
        if self._table.count == 0:
            self._timers.clear()

    def _installed(self, slots: Int64s) -> None:
        self._timers.note(self._table, slots)

    # ------------------------------------------------------------ an epoch

    def _fold(self, rows: Rows, tick: Tick) -> list[_Ran]:
        """Give the rows to the user's code, with the timers that come before one of them."""
        if rows.count == 0:
            return []
        hashes = hash_columns(rows.batch, self._keys) if rows.hash is None else rows.hash
        checks = check_words(rows.batch, self._keys)
        base = self._table.touch(rows.partition, hashes, checks, tick.epoch)
        batch = rows.batch.take(pa.array(base.order))
        starts, counts, first = base.starts, base.counts, base.order[base.starts]
        groups = Groups(starts, counts, batch.select(list(self._keys)))
        starts.flags.writeable = counts.flags.writeable = False
        given = _Given(base, rows.partition[first], hashes[first], checks[first], batch, groups)
        if self._timers:
            self._table.keep_keys(base, rows.batch, self._keys)
            ordered = bool(self._timers.of("event")) and self._time is not None
            times = event_time(batch.column(self._time)) if ordered else np.full(rows.count, tick.stamp)
            given = replace(given, times=times, keys=self._table.keys_of(base.slots, self._key_schema))
        return [self._run(given, tick)]

    def _expire(self, tick: Tick) -> list[_Ran]:
        """Give the timers to the user's code that have come by the end of the epoch. Behind the sources' last epoch none comes."""
        if not self._timers or (tick.last and not tick.ends):
            return []
        slots = self._timers.take(self._table, tick)
        if slots.size == 0:
            return []
        (hashes, checks), partition = self._table.identity_of(slots), self._table.owner_of(slots)
        order = np.lexsort((checks, hashes))
        partition, hashes, checks = partition[order], hashes[order], checks[order]
        base = self._table.touch(partition, hashes, checks, tick.epoch)
        keys = self._table.keys_of(base.slots, self._key_schema)
        return [self._run(_Given(base, partition, hashes, checks, keys=keys), tick)]

    def _run(self, given: _Given, tick: Tick) -> _Ran:
        try:
            pieces, attempt = self._attempt(given, tick)
            if self._keeps_key:
                for piece in pieces:
                    self._check_keys(piece.batch, given.hash[piece.group])
        except BaseException:
            self._table.abandon(given.base, tick.epoch)
            self._timers.note(self._table, given.base.slots)
            raise
        self._table.commit(given.base, attempt, tick.epoch)
        self._timers.note(self._table, given.base.slots)
        return _Ran(pieces, given.partition, given.hash, given.check)

    def _attempt(self, given: _Given, tick: Tick) -> tuple[list[Piece], Attempt]:
        """Call the user's code on the base, twice if it is to be verified."""
        pieces, attempt = self._call(given, tick)
        if self._must_verify(tick):
            self._verified += 1
            again, second = self._call(given, tick)
            self._compare(tick, pieces, again, attempt, second, given)
        return pieces, attempt

    def _call(self, given: _Given, tick: Tick) -> tuple[list[Piece], Attempt]:
        attempt, base = Attempt(self.fields, given.base.column, self._box, tick.stamp), given.base
        if given.keys is not None:
            merged = Merged(self._calls, self._timers, attempt, base, given.keys, tick, given.batch, given.groups, given.times)
            merged.run()
            return merged.pieces, attempt
        assert given.batch is not None and given.groups is not None
        batch, at = self._calls.rows(given.batch, given.groups, attempt)
        return [Piece(batch, given.groups.ids[at], np.zeros(at.size, np.int64), base.order[at])], attempt

    def _made(self, runs: Sequence[_Ran]) -> Rows:
        """What the runs of an epoch have put out, as one."""
        made: list[Rows] = []
        pieces: list[Piece] = []
        keys: list[tuple[Hashes, Hashes]] = []
        groups = 0
        for ran in runs:
            keys.append((ran.hash, ran.check))
            for piece in ran.pieces:
                if piece.group.size:
                    made.append(Rows(piece.batch, ran.partition[piece.group], ran.hash[piece.group] if self._keeps_key else None))
                    pieces.append(replace(piece, group=piece.group + groups))
            groups += ran.hash.size
        if not made:
            return self._none
        if len(made) == 1 and not self._timers:
            row = pieces[0].row
            return made[0].take(np.argsort(row, kind="stable")) if (row[1:] < row[:-1]).any() else made[0]
        whole = join_rows(made, self._output)
        return whole.take(in_order(pieces, [np.concatenate(column) for column in zip(*keys, strict=True)]))

    def _check_keys(self, output: pa.RecordBatch, expected: Hashes) -> None:
        """The processor promises that its output rows have the key that they answer: whose hashes these are."""
        hashes = hash_columns(output, self._keys)
        if not np.array_equal(hashes, expected):
            row = int(np.flatnonzero(hashes != expected)[0])
            came = {name: output.column(name)[row].as_py() for name in self._keys}
            raise TypeMismatch(f"box {self._box!r} says keeps_key = True, but put out {came!r} for another key: set it to False")

    def _must_verify(self, tick: Tick) -> bool:
        if self._verify is not None:
            return self._verify
        return self._processor.deterministic and (self._verified < VERIFY_FIRST or tick.epoch % VERIFY_EVERY == 0)

    def _compare(
        self, tick: Tick, first: Sequence[Piece], again: Sequence[Piece], one: Attempt, two: Attempt, given: _Given
    ) -> None:  # fmt: skip
        found = difference(self._output_of(first), self._output_of(again)) or self._state_difference(one, two, given)
        if found is not None:
            advice = "Remove what is no function of rows and state (clock, random, attributes), or set deterministic = False."
            reason = "gave two different results for the same state and input"
            raise NondeterministicBox(self._box, tick.epoch, f"{found}\n{advice}", reason)

    def _output_of(self, pieces: Sequence[Piece]) -> Output:
        """The rows of all pieces, and what they answer."""
        batch = pa.Table.from_batches([piece.batch for piece in pieces], self._output).combine_chunks().to_batches()
        answers = [array for piece in pieces for array in (piece.group, piece.time, piece.row)]
        return (batch[0] if batch else self._none.batch), np.concatenate([np.empty(0, np.int64), *answers])

    def _state_difference(self, one: Attempt, two: Attempt, given: _Given) -> str | None:
        keys = given.keys if given.groups is None else given.groups.keys
        assert keys is not None
        for name in self.fields:
            if name not in one.columns and name not in two.columns:
                continue
            a, b = one.column(name), two.column(name)
            b.own()
            differs = np.flatnonzero(b.changed(a))
            if len(differs):
                group = int(differs[0])
                key = tuple(column[group].as_py() for column in keys.columns)
                return f"state field {name!r} of key {key!r}: {_shown(a, group)} and then {_shown(b, group)}"
        return None


def declared_output(processor: object, box: str) -> pa.Schema:
    """The schema that a processor declares. Raises QueryError if it declares none, or something else is wrong with the object."""
    if not isinstance(processor, Processor):
        what = processor.__name__ if isinstance(processor, type) else type(processor).__name__
        hint = f"pass an instance, {what}()" if isinstance(processor, type) else "subclass ef.Processor or ef.BatchProcessor"
        raise QueryError(f"box {box!r}: {what} is not a processor: {hint}")
    name = type(processor).__name__
    text = getattr(processor, "output", None)
    if isinstance(text, pa.Schema):
        return text
    if not isinstance(text, str):
        raise QueryError(f'box {box!r}: {name} declares no output: set `output = "app string, dur double"` in the class')
    if processor.batch not in ("arrow", "pandas", "polars"):
        raise QueryError(f'box {box!r}: {name}.batch is {processor.batch!r}: use "arrow", "pandas" or "polars"')
    return parse_ddl(text)


def difference(one: Output, two: Output) -> str | None:
    """What differs, bitwise, between two outputs; None if nothing does."""
    (a, at_a), (b, at_b) = one, two
    if a.num_rows != b.num_rows:
        return f"{a.num_rows} output rows and then {b.num_rows}"
    if not np.array_equal(at_a, at_b):
        return "the output rows answer other input rows"
    for name, x, y in zip(a.schema.names, a.columns, b.columns, strict=True):
        row = _first_difference(x, y)
        if row is not None:
            return f"output column {name!r}, row {row}: {x[row].as_py()!r} and then {y[row].as_py()!r}"
    return None


def _first_difference(x: pa.Array, y: pa.Array) -> int | None:
    floating = pa.types.is_floating(x.type)
    if not floating and not pa.types.is_nested(x.type) and x.equals(y):
        return None
    if floating and x.null_count == 0 and y.null_count == 0:
        bits = f"i{x.type.bit_width // 8}"
        differs = np.flatnonzero(x.to_numpy().view(bits) != y.to_numpy().view(bits))
        return int(differs[0]) if len(differs) else None
    pairs = zip(plain_values(x), plain_values(y), strict=True)
    return next((i for i, (p, q) in enumerate(pairs) if not same(p, q)), None)


def _shown(column: Column, group: int) -> str:
    if not column.given[group]:
        return "nothing"
    if column.words is not None:
        return repr(python_of(column.words[group], column.field.type))
    assert column.objects is not None
    return repr(column.objects[group])
