"""States of the user's aggregators: what is folded, what is combined before the exchange, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.operator.aggregate_cases import SCHEMA, bits, by_key, make_batch, make_rows, tick
from tests.operator.law_cases import COUNTS, NAMES_OF, OF_TIMES, ROWS_OF, SPREAD, Names, Spread

import evenflow as ef
from evenflow.errors import TypeMismatch
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.operator.totals.own_sessions import OwnSessionAggregate
from evenflow.operator.totals.session_window import SessionWindowAggregate
from evenflow.operator.totals.time_window import TimeWindowAggregate
from evenflow.operator.totals.user_states import united_states
from evenflow.query.aggregates import AggCall, OwnSessions, SessionWindow, TimeWindow, combinable
from evenflow.query.user.aggregator import pack, stored_type, unpack
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

KEYS = ("k",)


def folded(call: AggCall, rows: list[dict[str, Any]]) -> Any:
    made: Any = call.made
    state = made.zero()
    for row in rows:
        state = made.update(state, *(row[column] for column in call.columns))
    return state


def test_a_state_is_that_of_all_rows_so_far() -> None:
    rng, seen = np.random.default_rng(1), []
    operator = Aggregate(SCHEMA, KEYS, [COUNTS, SPREAD, NAMES_OF, *ROWS_OF])
    for epoch in range(1, 5):
        rows = make_rows(make_batch(rng, 60, keys=5), KEYS)
        seen += rows.batch.to_pylist()
        (out,) = operator.process(rows, tick(epoch))
        groups = by_key(seen, KEYS)
        for row in out.batch.to_pylist():
            mine = groups[(row["k"],)]
            assert unpack(COUNTS.made, row["counts"]) == folded(COUNTS, mine)
            assert unpack(SPREAD.made, row["spread"]) == folded(SPREAD, mine)
            assert row["names"] == folded(NAMES_OF, mine)
            assert row["rows_i"] == [each["i"] for each in mine] and row["rows_s"] == [each["s"] for each in mine]


@pytest.mark.parametrize("places", [4, 1024])
def test_states_are_merged_behind_the_exchange(places: int) -> None:
    calls = [COUNTS, SPREAD]
    assert combinable(calls, SCHEMA) and not combinable([NAMES_OF], SCHEMA) and not combinable(ROWS_OF[:1], SCHEMA)
    combine = Combine(SCHEMA, KEYS, calls, places=places)
    behind, whole = Aggregate(combine.schemas[0], KEYS, calls, partial=True), Aggregate(SCHEMA, KEYS, calls)
    rng = np.random.default_rng(2)
    for epoch in range(1, 4):
        rows = make_rows(make_batch(rng, 200, keys=30), KEYS)
        (parts,) = combine.process(rows, tick(epoch))
        assert parts.count < rows.count
        (got,), (wanted,) = behind.process(parts, tick(epoch)), whole.process(rows, tick(epoch))
        states = [{row["k"]: [unpack(c.made, row[c.name]) for c in calls] for row in out.batch.to_pylist()} for out in (got, wanted)]
        assert states[0] == states[1]


def test_a_captured_state_does_not_change() -> None:
    operator = Aggregate(SCHEMA, KEYS, [NAMES_OF, COUNTS])
    rng = np.random.default_rng(3)
    operator.process(make_rows(make_batch(rng, 50, keys=3), KEYS, 1), tick(1))
    other = Aggregate(SCHEMA, KEYS, [NAMES_OF, COUNTS])
    snapshot = operator.capture(0)
    assert snapshot is not None
    again = make_rows(make_batch(rng, 50, keys=3), KEYS, 1)
    (before,) = operator.process(again, tick(2))
    other.install(0, snapshot.to_bytes())
    (after,) = other.process(again, tick(2))
    assert bits(before.batch) == bits(after.batch)


WITH_ENDS = SCHEMA.append(pa.field("until", pa.timestamp("us")))
OF_TIMES_BY: dict[str, Callable[[], Any]] = {
    "totals": lambda: Aggregate(WITH_ENDS, KEYS, OF_TIMES),
    "windows": lambda: TimeWindowAggregate(WITH_ENDS, KEYS, OF_TIMES, window=TimeWindow("ts", 10**12, 10**12)),
    "sessions": lambda: SessionWindowAggregate(WITH_ENDS, KEYS, OF_TIMES, window=SessionWindow("ts", 10**12)),
    "sessions with ends of their own": lambda: OwnSessionAggregate(WITH_ENDS, KEYS, OF_TIMES, window=OwnSessions("ts", ends="until")),
}


@pytest.mark.parametrize("factory", OF_TIMES_BY.values(), ids=OF_TIMES_BY)
def test_times_in_a_declared_state_are_the_same_values_wherever_it_goes(factory: Callable[[], Any]) -> None:
    """Python's, as they were put in, and those of other calls whole numbers; and so is every result after that."""
    rng, stayed, moved = np.random.default_rng(6), factory(), factory()

    def some() -> Rows:
        batch = make_batch(rng, 50, keys=3)
        until = pc.add(batch["ts"], pa.scalar(timedelta(hours=1)))
        return make_rows(pa.RecordBatch.from_arrays([*batch.columns, until], schema=WITH_ENDS), KEYS, 1)

    stayed.process(some(), tick(1))
    moved.install(0, stayed.capture(0).to_bytes())
    kept, came = ([sorted(map(repr, column[made._table.slots_of(0)])) for column in made._table.objects] for made in (stayed, moved))
    assert kept[:3] == came[:3]
    assert ["datetime" in "".join(column) for column in kept[:3]] == [True, True, False]
    again = some()
    (before, *_), (after, *_) = (made.process(again, Tick(2, 2000, NO_WATERMARK, 10**13)) for made in (stayed, moved))
    assert bits(before.batch) == bits(after.batch) and before.count


class Counted(ef.Aggregator):
    """Counts rows in a state that it changes in place. zero: a state of no rows. path: to the count in it."""

    output = "bigint"

    def __init__(self, state: str, zero: Any, path: list[Any]) -> None:
        self.state, self._zero, self._path = state, zero, path  # type: ignore[misc]

    def zero(self) -> Any:
        return copy.deepcopy(self._zero)

    def update(self, state: Any, *values: Any) -> Any:
        return self._more(state, 1)

    def merge(self, one: Any, other: Any) -> Any:
        return self._more(one, self.finish(other))

    def finish(self, state: Any) -> Any:
        for at in self._path:
            state = state[at]
        return state

    def _more(self, state: Any, rows: int) -> Any:
        holder = state
        for at in self._path[:-1]:
            holder = holder[at]
        holder[self._path[-1]] += rows
        return state


@pytest.mark.parametrize(
    ("state", "zero", "path"),
    [
        ("struct<n:bigint>", {"n": 0}, ["n"]),
        ("array<struct<n:bigint>>", [{"n": 0}], [0, "n"]),
        ("array<array<bigint>>", [[0]], [0, 0]),
        ("map<string,bigint>", {"n": 0}, ["n"]),
        ("map<string,struct<n:bigint>>", {"x": {"n": 0}}, ["x", "n"]),
        ("struct<m:map<string,bigint>>", {"m": {"n": 0}}, ["m", "n"]),
        ("struct<l:array<bigint>>", {"l": [0]}, ["l", 0]),
    ],
)
def test_a_declared_state_may_be_changed_in_place(state: str, zero: Any, path: list[Any]) -> None:
    """Snapshots have what was, and a map is a dict."""
    made = Counted(state, zero, path)
    call = AggCall("n", "n", "i", stored_type(made), made)
    combine = Combine(SCHEMA, KEYS, [call])
    rows = [make_rows(make_batch(np.random.default_rng(5), size, nulls=False, keys=1), KEYS, 1) for size in (1, 10)]
    for schema, epochs in (SCHEMA, rows), (combine.schemas[0], [combine.process(each, tick(1))[0] for each in rows]):
        operator, again = (Aggregate(schema, KEYS, [call], partial=schema is not SCHEMA) for _ in range(2))
        operator.process(epochs[0], tick(1))
        snapshot = operator.capture(0)
        assert snapshot is not None
        operator.process(epochs[1], tick(2))
        again.install(0, snapshot.to_bytes())
        for epoch, counted in (2, 11), (3, 21):
            (out,) = again.process(epochs[1], tick(epoch))
            assert made.finish(unpack(made, out.batch["n"][0].as_py())) == counted
    kept = pack(made, zero)
    assert made.finish(unpack(made, united_states(made, [pack(made, made.update(made.zero())), kept]))) == 1
    made.update(unpack(made, kept))
    assert made.finish(unpack(made, kept)) == 0


class Forgetful(Spread):
    def update(self, state: Any, x: Any) -> Any:
        self.zero()


class Opaque(Spread):
    def update(self, state: Any, x: Any) -> Any:
        return lambda: x


class Wrong(Names):
    def update(self, state: Any, *values: Any) -> Any:
        return 7


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Forgetful(), "Forgetful has None for a state; zero, update and merge return the state"),
        (Opaque(), "Opaque: its state .* cannot be pickled .* make it of numbers"),
        (Wrong(), r"Wrong: its state is array<string>, and cannot be 7"),
    ],
)
def test_a_state_that_cannot_be_kept(made: ef.Aggregator, says: str) -> None:
    stored = pa.binary() if made.state is None else pa.list_(pa.string())
    operator = Aggregate(SCHEMA, KEYS, [AggCall("x", "x", "i", stored, made)])
    with pytest.raises(TypeMismatch, match=says):
        operator.process(make_rows(make_batch(np.random.default_rng(4), 5), KEYS), tick(1))


def test_aggregators_that_were_given_the_same_are_the_same() -> None:
    class Above(Spread):
        def __init__(self, least: int) -> None:
            self.least = least

    one, other = Above(1), Above(1)
    pack(one, (1, 2))
    assert one == other and hash(one) == hash(other) and one != Above(2) and one != Spread()
