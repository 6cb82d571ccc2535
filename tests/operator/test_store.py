"""The keyed store and what user code sees of it."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import QueryError, TypeMismatch
from evenflow.operator.user.fields import Attempt, KeyState, StateArrays, Store
from evenflow.operator.user.store import Base, KeyedStore

WHEN = datetime.datetime(2024, 2, 29, 12, 30, 0, 1)
VALUES: list[tuple[str, Any]] = [
    ("boolean", True),
    ("tinyint", -128),
    ("smallint", 300),
    ("int", -(2**31)),
    ("bigint", 2**63 - 1),
    ("float", 0.5),
    ("double", -0.0),
    ("double", math.inf),
    ("string", "ä"),
    ("binary", b"\x00\xff"),
    ("date", datetime.date(1969, 12, 31)),
    ("timestamp", WHEN),
    ("timestamp_ltz", WHEN.replace(tzinfo=zoneinfo.ZoneInfo("UTC"))),
    ("decimal(10,2)", Decimal("-1.25")),
    ("array<bigint>", (1, 2)),
]


def declared(**fields: Any) -> Store:
    store = Store("box")
    for name, (kind, *types) in fields.items():
        getattr(store, kind)(name, *types)
    return store


def touch(state: KeyedStore, keys: list[int], partition: int = 0, epoch: int = 1) -> Base:
    words = np.array(keys, np.uint64)
    return state.touch(np.full(len(keys), partition, np.int32), words * np.uint64(0x9E3779B97F4A7C15), words, epoch)


def attempt_on(state: KeyedStore, store: Store, base: Base) -> Attempt:
    return Attempt(store.fields, base.column, "box")


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_every_type_comes_back_bit_by_bit(type_: str, value: Any) -> None:
    store = declared(one=("value", type_), many=("list", type_), named=("map", "string", type_))
    state, other = KeyedStore(store.fields), KeyedStore(store.fields)
    attempt = attempt_on(state, store, base := touch(state, [1, 2]))
    key = KeyState(attempt, 1)
    key.one = value
    key.many = [value, None, value]
    key.named["x"] = value
    key.close()
    state.commit(base, attempt, 1)
    snapshot = state.capture(0)
    assert snapshot is not None
    other.install(0, snapshot.to_bytes())
    for where in (state, other):
        read = KeyState(attempt_on(where, store, touch(where, [2], epoch=2)), 0)
        assert repr(read.one) == repr(value)
        assert repr(read.many) == repr([value, None, value])
        assert repr(read.named) == repr({"x": value})
    again = other.capture(0)
    assert again is not None
    assert again.to_bytes() == snapshot.to_bytes()


def test_arrays_read_put_and_clear() -> None:
    store = Store("box")
    store.value("n", "int", default=7)
    store.value("t", "timestamp")
    store.value("s", "string")
    state = KeyedStore(store.fields)
    base = touch(state, [5, 6, 5, 7])
    assert base.order.tolist() == [0, 2, 1, 3]
    assert base.counts.tolist() == [2, 1, 1]
    attempt = attempt_on(state, store, base)
    arrays = StateArrays(attempt)
    assert arrays.n.get().tolist() == [7, 7, 7]
    assert arrays.n.get().dtype == np.int32
    assert np.isnat(arrays.t.get()).all()
    arrays.n.put([1, None, 3])
    arrays.n.put(9, np.array([False, False, True]))
    arrays.t.put(np.array([1, 2, 3]))
    arrays.t.clear(np.array([True, False, False]))
    arrays.s.put(["a", "b", None])
    assert arrays.n.get().tolist() == [1, 7, 9]
    assert arrays.n.exists().tolist() == [True, False, True]
    assert arrays.t.get().astype(np.int64)[1:].tolist() == [2, 3]
    assert arrays.s.get().tolist() == ["a", "b", None]
    assert arrays.s.get("none").tolist() == ["a", "b", "none"]
    state.commit(base, attempt, 1)
    assert StateArrays(attempt_on(state, store, touch(state, [7, 6], epoch=2))).n.get().tolist() == [9, 7]


def test_writes_are_buffered_and_seen_by_their_own_attempt_only() -> None:
    store = declared(n=("value", "bigint"), xs=("list", "bigint"))
    state = KeyedStore(store.fields)
    base = touch(state, [1])
    first, second = attempt_on(state, store, base), attempt_on(state, store, base)
    key = KeyState(first, 0)
    key.n = 1
    key.xs.append(1)
    key.close()
    assert KeyState(first, 0).n == 1
    assert KeyState(second, 0).n is None
    assert KeyState(second, 0).xs == []
    state.commit(base, second, 1)
    assert state.count == 0


def test_a_key_with_nothing_given_has_no_row() -> None:
    store = declared(n=("value", "bigint"), s=("value", "string"))
    state = KeyedStore(store.fields)
    base = touch(state, [1, 2, 3])
    attempt = attempt_on(state, store, base)
    StateArrays(attempt).n.put([0, None, None])
    StateArrays(attempt).s.put([None, "", None])
    state.commit(base, attempt, 1)
    assert state.count == 2
    state.abandon(touch(state, [1, 9], epoch=2), 2)
    assert state.count == 2
    base = touch(state, [1, 2], epoch=3)
    attempt = attempt_on(state, store, base)
    StateArrays(attempt).n.clear()
    StateArrays(attempt).s.clear()
    state.commit(base, attempt, 3)
    assert state.count == 0
    assert state.capture(0) is None


def test_nan_and_negative_zero_are_values_of_their_own() -> None:
    store = declared(d=("value", "double"))
    state = KeyedStore(store.fields)
    base = touch(state, [1, 2])
    one, two = attempt_on(state, store, base), attempt_on(state, store, base)
    StateArrays(one).d.put(np.array([math.nan, 0.0]))
    StateArrays(two).d.put(np.array([math.nan, -0.0]))
    assert two.column("d").changed(one.column("d")).tolist() == [False, True]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("n", 2**31, "'n' is int"),
        ("n", "x", "'n' is int"),
        ("n", 1.5, "'n' is int"),
        ("xs", ["a"], "'xs' is a list of int"),
        ("xs", [1, 1.5], "'xs' is a list of int"),
        ("s", 1, "'s'"),
        ("s", "half \ud83d", "'s' is a value of string"),
    ],
)
def test_refuses_what_would_be_lost(field: str, value: Any, says: str) -> None:
    store = declared(n=("value", "int"), xs=("list", "int"), s=("value", "string"))
    state = KeyedStore(store.fields)
    attempt = attempt_on(state, store, touch(state, [1]))
    with pytest.raises(TypeMismatch, match=says):
        setattr(KeyState(attempt, 0), field, value)
    with pytest.raises(TypeMismatch, match=says):
        getattr(StateArrays(attempt), field).put([value])


def test_strings_that_are_none_are_refused_where_others_are_with_them() -> None:
    """A character cut in two has no UTF-8: nothing that is made of the state could be written or sent."""
    store = declared(s=("value", "string"))
    state = KeyedStore(store.fields)
    attempt = attempt_on(state, store, touch(state, [1, 2, 3]))
    StateArrays(attempt).s.put(["a", None, "ä \U0001f600"])
    assert StateArrays(attempt).s.get().tolist() == ["a", None, "ä \U0001f600"]
    for values in (["a", "\ude00", None], ["ä", "\ud83d", "\ude00"]):
        with pytest.raises(TypeMismatch, match="surrogates not allowed"):
            StateArrays(attempt).s.put(values)


def test_names_are_checked() -> None:
    store = declared(n=("value", "int"))
    with pytest.raises(QueryError, match="twice"):
        store.list("n", "int")
    with pytest.raises(QueryError, match="underscore"):
        store.value("_n", "int")
    with pytest.raises(TypeMismatch, match="'x'"):
        store.value("x", "int", default="seven")
    state = KeyedStore(store.fields)
    with pytest.raises(AttributeError, match="no state field 'm'.*declared: n"):
        _ = KeyState(attempt_on(state, store, touch(state, [1])), 0).m


def test_all_sixty_four_fields() -> None:
    store = Store("box")
    for i in range(64):
        store.value(f"f{i}", "bigint")
    with pytest.raises(QueryError, match="more than 64"):
        store.value("one_more", "bigint")
    state = KeyedStore(store.fields)
    base = touch(state, [1])
    attempt = attempt_on(state, store, base)
    KeyState(attempt, 0).f63 = 5
    state.commit(base, attempt, 1)
    key = KeyState(attempt_on(state, store, touch(state, [1], epoch=2)), 0)
    assert (key.f62, key.f63) == (None, 5)


def test_lists_of_lists_survive_a_move() -> None:
    store = declared(xs=("list", pa.list_(pa.int64())))
    state, other = KeyedStore(store.fields), KeyedStore(store.fields)
    base = touch(state, [1])
    attempt = attempt_on(state, store, base)
    KeyState(attempt, 0).xs = [[1, 2], [3]]
    state.commit(base, attempt, 1)
    snapshot = state.capture(0)
    assert snapshot is not None
    other.install(0, snapshot.to_bytes())
    here, there = (where.read(store.fields["xs"], np.array([0])).objects for where in (state, other))
    assert repr(here) == repr(there)
