"""Process: the user's own keyed, stateful box (protocol S2, E3).

An epoch's rows are grouped by key, the processor is called on the state before the epoch, and what it wrote becomes state when it
has returned. Output rows belong to the partition of the key that they answer, so the result of a partition does not depend on
which others are at the site. From time to time the call is made a second time on the same base, and any difference stops the box.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import NondeterministicBox, QueryError, TypeMismatch
from evenflow.operator.kernels.hash import check_words, hash_columns
from evenflow.operator.returned import as_array, as_batch
from evenflow.operator.state import Attempt, Column, KeyState, StateArrays, Store, python_of, same
from evenflow.operator.store import Base, KeyedStore
from evenflow.operator.tabled import Tabled
from evenflow.processor import BatchProcessor, Groups, Processor
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import parse_ddl

VERIFY_FIRST: Final = 4
"""Non-empty epochs that are verified at the start."""
VERIFY_EVERY: Final = 64
"""After that, epochs whose number is a multiple of this."""

Int64s = npt.NDArray[np.int64]
Output = tuple[pa.RecordBatch, Int64s]


class Process(Tabled):
    """Call a processor once per epoch (`BatchProcessor`) or once per key and epoch (`Processor`).

    keys: key columns; null is a key, all NaN are one key. verify: True calls twice in every epoch and compares, False never, None
    (the default) in the first non-empty epochs and then now and then, unless the processor says `deterministic = False`.

    Output order within a partition: a BatchProcessor's by the input row that each output row answers; otherwise by the key's
    first appearance in the epoch. Cost: O(rows), whatever the state's size. An exception of the processor passes through, with a
    note that names the key where there is one. Raises NondeterministicBox, TypeMismatch for output that is not as declared.
    """

    def __init__(
        self, keys: Sequence[str], processor: Processor, schema: pa.Schema, box: str = "process", verify: bool | None = None
    ) -> None:
        self._output = declared_output(processor, box)
        # Nothing is late here: an `order` step before takes those out. The port exists so that every keyed box has two.
        self.schemas: tuple[pa.Schema, ...] = (self._output, schema)
        self._none = Rows.empty(self._output, keyed=processor.keeps_key)
        self._no_late = Rows.empty(schema, keyed=True)
        self._keys, self._box, self._verify = tuple(keys), box, verify
        self._processor = copy.deepcopy(processor)
        self._keeps_key = processor.keeps_key
        if self._keeps_key and not set(keys) <= set(self._output.names):
            raise QueryError(f"box {box!r} says keeps_key = True, but its output lacks one of {', '.join(keys)}: declare them")
        declared = Store(box)
        self._processor.open(declared)
        self.fields = declared.fields
        self._table: KeyedStore = KeyedStore(declared.fields)
        self._verified = 0

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return self._none, self._no_late
        hashes = hash_columns(rows.batch, self._keys) if rows.hash is None else rows.hash
        base = self._table.touch(rows.partition, hashes, check_words(rows.batch, self._keys), tick.epoch)
        try:
            (output, at), attempt = self._attempt(rows, base, tick)
            position = base.order[at]
            hash_ = self._kept_hash(output, hashes[position])
        except BaseException:
            self._table.abandon(base, tick.epoch)
            raise
        self._table.commit(base, attempt, tick.epoch)
        made = Rows(output, rows.partition[position], hash_)
        if (position[1:] < position[:-1]).any():
            made = made.take(np.argsort(position, kind="stable"))
        return made, self._no_late

    def _attempt(self, rows: Rows, base: Base, tick: Tick) -> tuple[Output, Attempt]:
        """Call the user's code on the base, twice if it is to be verified."""
        batch = rows.batch.take(pa.array(base.order))
        starts, counts = base.starts, base.counts
        groups = Groups(starts, counts, batch.select(list(self._keys)))
        starts.flags.writeable = counts.flags.writeable = False
        output, attempt = self._call(batch, groups, base)
        if self._must_verify(tick):
            self._verified += 1
            again, second = self._call(batch, groups, base)
            self._compare(tick, output, again, attempt, second, groups)
        return output, attempt

    def _call(self, batch: pa.RecordBatch, groups: Groups, base: Base) -> tuple[Output, Attempt]:
        attempt = Attempt(self.fields, base.column, self._box)
        if isinstance(self._processor, BatchProcessor):
            return self._call_once(self._processor, batch, groups, attempt), attempt
        return self._call_per_key(batch, groups, attempt), attempt

    def _call_once(self, processor: BatchProcessor, batch: pa.RecordBatch, groups: Groups, attempt: Attempt) -> Output:
        returned = processor.process(frame_of(batch, processor.batch), groups, StateArrays(attempt))
        if returned is None:
            return self._none.batch, np.empty(0, np.int64)
        if not isinstance(returned, tuple) or len(returned) != 2:
            rule = "a BatchProcessor returns None or (output, at), where at[i] is the row of `rows` that output row i answers"
            raise TypeMismatch(f"box {self._box!r} returned {type(returned).__name__}: {rule}")
        output = as_batch(returned[0], self._output, self._box)
        at = as_array(returned[1], output.num_rows, f"box {self._box!r}: `at`")
        if output.num_rows == 0:
            return output, np.empty(0, np.int64)
        if not pa.types.is_integer(at.type) or at.null_count:
            raise TypeMismatch(f"box {self._box!r}: `at` is {at.type}{' with nulls' * bool(at.null_count)}: return row numbers")
        numbers = np.asarray(at.cast(pa.int64()).to_numpy(), np.int64)
        if numbers.min() < 0 or numbers.max() >= batch.num_rows:
            limits = f"0 to {batch.num_rows - 1}"
            raise TypeMismatch(f"box {self._box!r}: `at` has a row number outside {limits}: number the rows of `rows`")
        return output, numbers

    def _call_per_key(self, batch: pa.RecordBatch, groups: Groups, attempt: Attempt) -> Output:
        frame, made, processor = frame_of(batch, self._processor.batch), _Made(self._output, self._box), self._processor
        keys = list(zip(*(column.to_pylist() for column in groups.keys.columns), strict=True))
        for group, (key, start, count) in enumerate(zip(keys, groups.starts.tolist(), groups.counts.tolist(), strict=True)):
            state = KeyState(attempt, group)
            try:
                made.add(processor.process(key, part_of(frame, start, count), state), start)
                state.close()
            except Exception as e:
                e.add_note(f"box {self._box!r} was processing the key {dict(zip(self._keys, key, strict=True))!r}")
                raise
        return made.output()

    def _kept_hash(self, output: pa.RecordBatch, expected: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64] | None:
        """The hash of each output row's key, if the processor promises that its output has it."""
        if not self._keeps_key:
            return None
        hashes = hash_columns(output, self._keys)
        if not np.array_equal(hashes, expected):
            row = int(np.flatnonzero(hashes != expected)[0])
            came = {name: output.column(name)[row].as_py() for name in self._keys}
            raise TypeMismatch(f"box {self._box!r} says keeps_key = True, but put out {came!r} for another key: set it to False")
        return hashes

    def _must_verify(self, tick: Tick) -> bool:
        if self._verify is not None:
            return self._verify
        return self._processor.deterministic and (self._verified < VERIFY_FIRST or tick.epoch % VERIFY_EVERY == 0)

    def _compare(self, tick: Tick, first: Output, again: Output, one: Attempt, two: Attempt, groups: Groups) -> None:
        found = difference(first, again) or self._state_difference(one, two, groups)
        if found is not None:
            advice = "Remove what is no function of rows and state (clock, random, attributes), or set deterministic = False."
            reason = "gave two different results for the same state and input"
            raise NondeterministicBox(self._box, tick.epoch, f"{found}\n{advice}", reason)

    def _state_difference(self, one: Attempt, two: Attempt, groups: Groups) -> str | None:
        for name in self.fields:
            if name not in one.columns and name not in two.columns:
                continue
            a, b = one.column(name), two.column(name)
            b.own()
            differs = np.flatnonzero(b.changed(a))
            if len(differs):
                group = int(differs[0])
                key = tuple(column[group].as_py() for column in groups.keys.columns)
                return f"state field {name!r} of key {key!r}: {_shown(a, group)} and then {_shown(b, group)}"
        return None


class _Made:
    """Collects the output of the calls per key: rows are gathered and converted together, frames one by one."""

    def __init__(self, schema: pa.Schema, box: str) -> None:
        self._schema, self._box = schema, box
        self._batches: list[pa.RecordBatch] = []
        self._rows: list[Any] = []
        self._at: list[int] = []

    def add(self, returned: Any, at: int) -> None:
        """Take what one call returned. at: the first row of its key."""
        if returned is None:
            return
        frame = isinstance(returned, Mapping | pa.RecordBatch | pa.Table) or hasattr(returned, "columns")
        if frame or isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
            self._flush()
            batch = as_batch(returned, self._schema, self._box)
            self._batches.append(batch)
            self._at.extend([at] * batch.num_rows)
            return
        before = len(self._rows)
        self._rows.extend(returned)
        self._at.extend([at] * (len(self._rows) - before))

    def output(self) -> Output:
        self._flush()
        batch = pa.concat_batches(self._batches) if self._batches else Rows.empty(self._schema).batch
        return batch, np.array(self._at, np.int64)

    def _flush(self) -> None:
        if self._rows:
            self._batches.append(as_batch(self._rows, self._schema, self._box))
            self._rows = []


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


def frame_of(batch: pa.RecordBatch, kind: str) -> Any:
    """The batch as the processor wants it."""
    if kind == "pandas":
        return batch.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(batch)
    return batch


def part_of(frame: Any, start: int, count: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[start : start + count].reset_index(drop=True)
    return frame.slice(start, count)


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
    pairs = zip(_frozen(x), _frozen(y), strict=True)
    return next((i for i, (p, q) in enumerate(pairs) if not same(p, q)), None)


def _frozen(array: pa.Array) -> list[Any]:
    def tuples(value: Any) -> Any:
        return tuple(tuples(each) for each in value) if isinstance(value, list) else value

    return [tuples(value) for value in array.to_pylist()]


def _shown(column: Column, group: int) -> str:
    if not column.given[group]:
        return "nothing"
    if column.words is not None:
        return repr(python_of(column.words[group], column.field.type))
    assert column.objects is not None
    return repr(column.objects[group])
