"""User-defined stateful boxes: subclass `Processor` or `BatchProcessor` and pass an instance to `key_by(...).process(...)`.

    class Count(ef.Processor):
        output = "user string, total bigint"

        def open(self, store):
            store.value("total", "bigint", default=0)

        def process(self, key, rows, state):
            state.total += rows.num_rows
            return [(key[0], state.total)]

It feels like Spark's `StatefulProcessor`, with one difference that matters: what a processor returns must be a function of the
rows and the state alone, because replicas compute it twice and compare (protocol E3). No clock, no `random`, no attributes on
`self` that `process` changes, no iteration over sets of strings. The engine checks this from time to time by calling twice and
comparing.

**Timers** are declared beside the state, and set, read and cleared like it: `store.timer("deadline")` in `open`, then `state.deadline =
...`; `store.timeout("quiet", "30 seconds")` is set again by each row of its key. When one has come, `expired` is called.

This file knows nothing of how state is kept (operator/user/fields.py, operator/user/store.py) or of when boxes are called
(operator/user/process.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.stream.arrays import Int64s

if TYPE_CHECKING:
    from evenflow.operator.user.declared import Store
    from evenflow.operator.user.fields import KeyState, StateArrays


class Processor:
    """A stateful box that is called once per key and epoch. The simplest style; tens of thousands of keys per second.

    output: the schema of what `process` returns: Spark DDL such as `"app string, dur double, ts timestamp"`, or a pyarrow schema.
    batch: what `rows` is: "arrow" (RecordBatch), "pandas" or "polars" (DataFrame). In pandas, integers with nulls are floats.
    deterministic: False exempts the box from the engine's checks. It keeps state that no replica would have alike, so it runs with one
    replica and without a checkpoint location. What asks somebody is better asked before it, in `.lookup(...)`, which replicas go by.
    keeps_key: True promises that output rows carry the key columns of the key they answer, unchanged and under their own names,
    so that a box with the same key can follow without an exchange. Checked in every epoch.

    An instance is pickled to the sites, and each site works on a copy of its own.
    """

    output: ClassVar[str | pa.Schema]
    batch: ClassVar[Literal["arrow", "pandas", "polars"]] = "arrow"
    deterministic: ClassVar[bool] = True
    keeps_key: ClassVar[bool] = False

    def open(self, store: Store) -> None:
        """Declare the state of a key: `store.value(name, type)`, `store.list(name, type)`, `store.map(name, key, value)`, and its timers:
        `store.timer(name)`, `store.timeout(name, after)`."""

    def process(self, key: tuple[Any, ...], rows: Any, state: KeyState) -> Any:
        """Fold the rows of one key in one epoch into its state and return output rows, or None.

        key: the values of the key columns; null is None, and a key like any other. rows: the key's rows of this epoch, at least
        one, in order (event time, if the stream has a watermark). state: the declared fields as attributes; assigning None or
        `del` clears a field, and a key whose fields are all clear costs nothing in a snapshot. A timer is set to a datetime;
        `state.now` is the epoch's stamp, the processing time that all replicas agree on.

        Returns a frame, a dict of columns, or an iterable of rows (tuples or dicts) of the declared columns. How the rows of a
        key are cut into calls depends on epochs: a result that depends on the cut is the user's choice, and not reproducible.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process(self, key, rows, state)")

    def expired(self, key: tuple[Any, ...], timer: Timer, state: KeyState) -> Any:
        """A timer of the key has come: change its state, set timers, and return output rows, or None, all as in `process`.

        It fires once, and is not set any more when this is called. A key's rows and timers come in order of time, wherever epochs are
        cut: `process` gets the rows up to the next timer, then this is called, then `process` gets the rows after it. What is set
        here at or before `timer.time` fires in the next epoch.
        """
        raise NotImplementedError(f"{type(self).__name__} has timers and must define expired(self, key, timer, state)")


class BatchProcessor(Processor):
    """A stateful box that is called once per epoch for all keys, with arrays. Millions of rows per second.

    Each key's result must depend on that key's rows and state only: which other keys are in the call depends on placement.
    """

    def process(self, rows: Any, groups: Groups, state: StateArrays) -> Any:  # type: ignore[override]
        """Fold one epoch into the state of its keys and return `(output, at)`, or None for no output.

        rows: all rows, those of one key contiguous and in order. groups: where each key's rows are. state: each declared field as
        `state.field.get()` and `.put(values, mask)`, arrays with one entry per group.

        output: a frame or dict of the declared columns, m rows. at: int array (m,), for each output row the number of the row in
        `rows` that it answers; `groups.last` for one output per key. Output is ordered by where these rows were in the input.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process(self, rows, groups, state)")

    def expired(self, timers: Timers, state: StateArrays) -> Any:  # type: ignore[override]
        """Timers of one name have come, of at most one key each: as in `Processor`, with arrays. Returns `(output, at)`, or None.

        timers: whose, and when. state: each field with one entry per timer. at: int array (m,), for each output row the number of the
        timer that it answers.
        """
        raise NotImplementedError(f"{type(self).__name__} has timers and must define expired(self, timers, state)")


@dataclass(frozen=True)
class Timer:
    """A timer that has come. name: as declared. time: for which it was set, as rows have their event time (UTC if of processing time)."""

    name: str
    time: datetime


@dataclass(frozen=True)
class Timers:
    """Timers of one name that have come, one of each of g keys. times: datetime64[us] (g,), UTC. keys: the key columns, a row per timer."""

    name: str
    times: npt.NDArray[np.datetime64]
    keys: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Groups:
    """The distinct keys of an epoch, g of them, and where their rows are in a batch of n rows grouped by key.

    starts, counts: int64 (g,), first row and number of rows (>= 1) of each group. key_columns: the key of each row. All read-only.
    """

    starts: Int64s
    counts: Int64s
    key_columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def keys(self) -> pa.RecordBatch:
        """The key columns, one row per group."""
        return self.key_columns.take(pa.array(self.starts))

    @cached_property
    def last(self) -> Int64s:
        """int64 (g,): the last row of each group."""
        return self.starts + self.counts - 1

    @cached_property
    def ids(self) -> Int64s:
        """int64 (n,): the group of each row."""
        return np.repeat(np.arange(len(self.starts)), self.counts)


__all__: Sequence[str] = ["BatchProcessor", "Groups", "Processor", "Timer", "Timers"]
