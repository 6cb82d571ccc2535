"""States of the user's aggregators: kept as immutable objects beside the words of a row, folded a row at a time.

A state is unpacked once per epoch and key, updated by the key's rows in order, and packed again, so a snapshot that holds the object
before has it unchanged (protocol S1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.query.aggregates import AggCall, Cell
from evenflow.query.user.aggregator import Aggregator, pack, pickled, unpack, unpickled
from evenflow.query.user.calling import values_of
from evenflow.state.pages import Touched
from evenflow.stream.arrays import Int64s


def fold_states(call: AggCall, made: Aggregator, column: npt.NDArray[np.object_], batch: pa.RecordBatch, touched: Touched) -> None:
    """Fold an epoch into the states of the keys that it touched. batch: rows, or partial results of rows, whose states are merged."""
    (partial,) = Cell("state", None, call.name).partial_names
    slots = touched.slots.tolist()
    if partial in batch.schema.names:
        parts = batch.column(partial).take(pa.array(_by_group(touched.ordinals))).to_pylist()
        for slot, (start, stop) in zip(slots, _bounds(touched.ordinals, len(slots)), strict=True):
            states = [unpickled(made, part) for part in parts[start:stop]]
            if column[slot] is not None:
                states.insert(0, unpack(made, column[slot]))
            column[slot] = pack(made, _united(made, states))
        return
    for slot, rows in zip(slots, _rows(call, batch, touched.ordinals, len(slots)), strict=True):
        state = made.zero() if column[slot] is None else unpack(made, column[slot])
        for values in rows:
            state = made.update(state, *values)
        column[slot] = pack(made, state)


def first_states(call: AggCall, made: Aggregator, batch: pa.RecordBatch, ordinals: Int64s, groups: int) -> pa.Array:
    """binary (g,): the state of each group of rows, pickled. ordinals: int64 (n,), the group of each row."""
    states = []
    for rows in _rows(call, batch, ordinals, groups):
        state = made.zero()
        for values in rows:
            state = made.update(state, *values)
        pack(made, state)  # What is sent is judged as what is kept.
        states.append(pickled(made, state))
    return pa.array(states, pa.binary())


def timed(calls: Sequence[AggCall]) -> list[int]:
    """Which of these calls, each with an object column, keep times as Python's: a declared state has them as the methods return them."""
    return [at for at, call in enumerate(calls) if call.made is not None]


def united_states(made: Aggregator, kept: Sequence[Any]) -> Any:
    """Several states of one group as one, in their order. kept: as `pack` made them, and so is the result."""
    return kept[0] if len(kept) == 1 else pack(made, _united(made, [unpack(made, each) for each in kept]))


def _united(made: Aggregator, states: Sequence[Any]) -> Any:
    state, *others = states
    for other in others:
        state = made.merge(state, other)
    return state


def _rows(call: AggCall, batch: pa.RecordBatch, ordinals: Int64s, groups: int) -> Iterator[list[tuple[Any, ...]]]:
    """The arguments of each group's rows, in order."""
    order = pa.array(_by_group(ordinals))
    rows = list(zip(*(values_of(batch.column(name).take(order)) for name in call.columns), strict=True))
    return (rows[start:stop] for start, stop in _bounds(ordinals, groups))


def _by_group(ordinals: Int64s) -> Int64s:
    return np.argsort(ordinals, kind="stable")


def _bounds(ordinals: Int64s, groups: int) -> list[tuple[int, int]]:
    """Where each group begins and ends among the rows by group."""
    ends = np.cumsum(np.bincount(ordinals, minlength=groups))
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))
