"""States of the user's aggregators: what is folded, what is combined before the exchange, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import SCHEMA, bits, by_key, make_batch, make_rows, tick
from tests.operator.law_cases import COUNTS, NAMES_OF, ROWS_OF, SPREAD, Names, Spread

import evenflow as ef
from evenflow.errors import TypeMismatch
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.query.aggregates import AggCall, combinable
from evenflow.query.user.aggregator import pack, unpack

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
