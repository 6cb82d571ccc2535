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
from evenflow.operator.user.declared import Store
from evenflow.operator.user.fields import Attempt, KeyState, StateArrays
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
    ("interval day to second", datetime.timedelta(days=-3, microseconds=1)),
    ("interval day to second", datetime.timedelta(microseconds=2**63 - 1)),
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


STRUCTURES: list[tuple[str, Any]] = [
    ("struct<n:bigint>", {"n": 1}),
    ("struct<n:bigint,in:struct<xs:array<bigint>>>", {"n": 1, "in": {"xs": [1]}}),
    ("array<struct<n:bigint>>", ({"n": 1},)),
    ("map<string,bigint>", {"n": 1}),
    ("map<string,struct<n:bigint>>", {"a": {"n": 1}}),
    ("map<array<bigint>,bigint>", {(1, 2): 1}),
    ("map<struct<a:bigint>,bigint>", {(1,): 1}),
    ("struct<m:map<string,bigint>>", {"m": {"n": 1}}),
    ("array<map<string,bigint>>", ({"n": 1},)),
]
"""Types of which something that is handed out can be changed, each with a value, as it is handed out."""


def change(value: Any) -> Any:
    """The value, of which something was changed in place, as deep as it goes."""
    if isinstance(value, dict):
        for name, each in value.items():
            value[name] = change(each)
    elif isinstance(value, list):
        value[:] = map(change, value)
    elif isinstance(value, tuple):
        return tuple(map(change, value))
    return value + 1 if isinstance(value, int) else value


@pytest.mark.parametrize(("type_", "value"), STRUCTURES)
def test_what_is_handed_out_is_nobody_elses(type_: str, value: Any) -> None:
    store = declared(one=("value", type_), many=("list", type_), named=("map", "string", type_))
    state = KeyedStore(store.fields)
    attempt = attempt_on(state, store, base := touch(state, [1]))
    key = KeyState(attempt, 0)
    key.one, key.many, key.named = value, [value], {"x": value}
    state.commit(base, attempt, 1)
    snapshot = state.capture(0)
    assert snapshot is not None
    shown = repr([value, [value], {"x": value}])

    first, second = (attempt_on(state, store, base := touch(state, [1], epoch=2)) for _ in range(2))
    key, arrays = KeyState(first, 0), StateArrays(first)
    for handed in (key.one, key.many, key.named, arrays.one.get()[0], list(arrays.many.get()[0]), arrays.named.get()[0]):
        change(handed)
    key, arrays = KeyState(second, 0), StateArrays(second)
    assert repr([key.one, key.many, key.named]) == shown
    assert repr([arrays.one.get()[0], list(arrays.many.get()[0]), arrays.named.get()[0]]) == shown
    other = KeyedStore(store.fields)
    other.install(0, snapshot.to_bytes())
    key = KeyState(attempt_on(other, store, touch(other, [1], epoch=2)), 0)
    assert repr([key.one, key.many, key.named]) == shown


@pytest.mark.parametrize(("type_", "value"), STRUCTURES)
def test_structures_may_be_changed_in_place(type_: str, value: Any) -> None:
    store = declared(one=("value", type_), many=("list", type_), named=("map", "string", type_))
    state = KeyedStore(store.fields)
    for epoch in range(1, 4):
        attempt = attempt_on(state, store, base := touch(state, [1], epoch=epoch))
        key = KeyState(attempt, 0)
        if epoch == 1:
            key.one, key.many, key.named = value, [value], {"x": value}
        elif epoch == 2:
            seen = [key.one, key.many, key.named]
            seen[0] = change(seen[0])
            seen[1:] = [change(each) for each in seen[1:]]
            if isinstance(value, tuple):
                key.one = seen[0]
        else:
            assert repr([key.one, key.many, key.named]) == repr(seen)
        key.close()
        state.commit(base, attempt, epoch)


def test_a_value_that_was_only_read_is_not_written() -> None:
    store = declared(one=("value", "struct<n:bigint>", {"n": 0}))
    state = KeyedStore(store.fields)
    attempt = attempt_on(state, store, base := touch(state, [1]))
    key = KeyState(attempt, 0)
    assert key.one == {"n": 0}
    key.close()
    state.commit(base, attempt, 1)
    assert state.count == 0


@pytest.mark.parametrize(("type_", "value"), STRUCTURES)
def test_a_default_is_each_keys_own(type_: str, value: Any) -> None:
    store = declared(one=("value", type_, value))
    state, shown = KeyedStore(store.fields), repr(value)
    attempt = attempt_on(state, store, touch(state, [1, 2]))
    for handed in (KeyState(attempt, 0).one, StateArrays(attempt).one.get()[0], value):
        change(handed)
    assert repr(KeyState(attempt, 1).one) == shown
    assert repr(StateArrays(attempt).one.get()[1]) == shown


def test_a_default_list_is_as_a_stored_one() -> None:
    default = [1]
    store = declared(xs=("value", "array<bigint>", default))
    state = KeyedStore(store.fields)
    attempt = attempt_on(state, store, touch(state, [1]))
    default.append(2)
    assert KeyState(attempt, 0).xs == StateArrays(attempt).xs.get()[0] == (1,)


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("mask", [None, np.array([True, False])])
def test_texts_of_another_length_are_refused(many: int, mask: Any) -> None:
    store = declared(s=("value", "string"), xs=("list", "bigint"))
    state = KeyedStore(store.fields)
    arrays = StateArrays(attempt_on(state, store, touch(state, [1, 2])))
    with pytest.raises(TypeMismatch, match=f"box 'box': the state field 's' was given {many} values for 2 keys"):
        arrays.s.put(["a"] * many, mask)
    with pytest.raises(TypeMismatch, match=f"box 'box': the state field 'xs' was given {many} values for 2 keys"):
        arrays.xs.put([[1]] * many, mask)
    arrays.s.put("a", mask)
    assert arrays.s.get().tolist() == ["a", "a" if mask is None else None]
    arrays.s.put(None)
    assert arrays.s.get().tolist() == [None, None]


def test_one_decimal_for_all_keys() -> None:
    store = declared(d=("value", "decimal(10,2)"))
    state = KeyedStore(store.fields)
    arrays = StateArrays(attempt_on(state, store, touch(state, [1, 2])))
    arrays.d.put(Decimal("1.50"))
    assert arrays.d.get().tolist() == [Decimal("1.50")] * 2
