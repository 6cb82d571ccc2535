"""Calls of a user's processor: what it is given, and what it returned, made into Arrow or refused.

Both styles look the same from here on: rows of some keys, or timers of some keys, go in; a batch comes out with, for each of its rows, the
number of the row or timer that it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.operator.user.declared import Field
from evenflow.operator.user.fields import Attempt, KeyState, StateArrays
from evenflow.operator.user.returned import as_array, as_batch
from evenflow.operator.user.words import python_of
from evenflow.processor import BatchProcessor, Groups, Processor, Timer, Timers
from evenflow.stream.arrays import Int64s
from evenflow.stream.rows import Rows

Output = tuple[pa.RecordBatch, Int64s]
"""Rows that came out, m of them, and int64 (m,), what each of them answers."""


class Calls:
    """Calls one processor. keys: key columns. output: the schema that it declares."""

    def __init__(self, processor: Processor, keys: Sequence[str], output: pa.Schema, box: str) -> None:
        self.processor, self._keys, self._output, self._box = processor, tuple(keys), output, box
        self._none = Rows.empty(output).batch

    def rows(self, batch: pa.RecordBatch, groups: Groups, attempt: Attempt, of: Int64s | None = None) -> Output:
        """Give it rows, those of one key contiguous. of: the keys' numbers among those of the attempt, None if they are all of them.

        Output rows answer rows of the batch. An exception passes through, with a note that names the key where there is one.
        """
        frame = frame_of(batch, self.processor.batch)
        if isinstance(self.processor, BatchProcessor):
            returned = self.processor.process(frame, groups, StateArrays(attempt, of))
            return self._answers(returned, batch.num_rows, "row", "`rows`")
        starts, counts, process = groups.starts.tolist(), groups.counts.tolist(), self.processor.process

        def call(number: int, key: tuple[Any, ...], state: KeyState) -> Any:
            return process(key, part_of(frame, starts[number], counts[number]), state)

        return self._each(call, groups.keys, starts, attempt, of, "processing")

    def expired(self, timer: Field, times: Int64s, keys: pa.RecordBatch, attempt: Attempt, of: Int64s) -> Output:
        """Tell it that timers have come, of these keys. times: int64 (g,), microseconds. Output rows answer timers."""
        if isinstance(self.processor, BatchProcessor):
            returned = self.processor.expired(Timers(timer.name, times.view("datetime64[us]"), keys), StateArrays(attempt, of))
            return self._answers(returned, times.size, "timer", "`timers`")
        expired = self.processor.expired

        def call(number: int, key: tuple[Any, ...], state: KeyState) -> Any:
            return expired(key, Timer(timer.name, python_of(times[number], timer.type)), state)

        return self._each(call, keys, list(range(times.size)), attempt, of, f"told of the timer {timer.name!r} while it was at")

    def _each(
        self,
        call: Callable[[int, tuple[Any, ...], KeyState], Any],
        keys: pa.RecordBatch,
        answers: Sequence[int],
        attempt: Attempt,
        of: Int64s | None,
        doing: str,
    ) -> Output:
        """Call once per key. answers: what the rows that come out for it answer."""
        made = _Made(self._output, self._box)
        values = zip(*(column.to_pylist() for column in keys.columns), strict=True)
        numbers = range(keys.num_rows) if of is None else of.tolist()
        for number, (key, group) in enumerate(zip(values, numbers, strict=True)):
            state = KeyState(attempt, group)
            try:
                made.add(call(number, key, state), answers[number])
                state.close()
            except Exception as e:
                e.add_note(f"box {self._box!r} was {doing} the key {dict(zip(self._keys, key, strict=True))!r}")
                raise
        return made.output()

    def _answers(self, returned: Any, count: int, what: str, whose: str) -> Output:
        """What a BatchProcessor returned. count: of what there is to answer."""
        if returned is None:
            return self._none, np.empty(0, np.int64)
        if not isinstance(returned, tuple) or len(returned) != 2:
            rule = f"a BatchProcessor returns None or (output, at), where at[i] is the {what} of {whose} that output row i answers"
            raise TypeMismatch(f"box {self._box!r} returned {type(returned).__name__}: {rule}")
        output = as_batch(returned[0], self._output, self._box)
        at = as_array(returned[1], output.num_rows, f"box {self._box!r}: `at`")
        if output.num_rows == 0:
            return output, np.empty(0, np.int64)
        if not pa.types.is_integer(at.type) or at.null_count:
            raise TypeMismatch(f"box {self._box!r}: `at` is {at.type}{' with nulls' * bool(at.null_count)}: return {what} numbers")
        numbers = np.asarray(at.cast(pa.int64()).to_numpy(), np.int64)
        if numbers.min() < 0 or numbers.max() >= count:
            limits = f"0 to {count - 1}"
            raise TypeMismatch(f"box {self._box!r}: `at` has a {what} number outside {limits}: number the {what}s of {whose}")
        return output, numbers


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
