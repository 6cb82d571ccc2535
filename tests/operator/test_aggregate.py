"""Running aggregates and their partial form against plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operator import nested_cases
from tests.operator.aggregate_cases import (
    ALL_CALLS,
    IGNORING_NULLS,
    SCHEMA,
    bits,
    by_key,
    call,
    expected,
    make_batch,
    make_rows,
    same,
    tick,
)

from evenflow.errors import ArithmeticOverflow, TypeMismatch, UnknownColumn
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.query.aggregates import (
    COLLECT_ROWS,
    AggCall,
    RowWindow,
    TimeWindow,
    cells,
    combinable,
    order_sensitive,
    result_type,
)
from evenflow.state.pages import PagedTable
from evenflow.stream.rows import Rows
from evenflow.stream.values import plain_values


def test_structures_of_words_are_kept_in_words_and_come_back_as_they_were() -> None:
    """Nulls at every level; first and last, alone and of the same structure, and no object beside the words."""
    rng = np.random.default_rng(11)
    calls = [made for made in nested_cases.CALLS if made.column == "spot" and made.function in ("first", "last")]
    operator, seen = Aggregate(nested_cases.SCHEMA, ("k",), calls), list[dict[str, Any]]()
    assert not operator.object_types
    for epoch in range(1, 5):
        batch = nested_cases.put_together(make_batch(rng, 200))
        seen += batch.to_pylist()
        half = batch.slice(100)  # Structures whose fields begin elsewhere in memory.
        operator.process(make_rows(batch.slice(0, 100), ("k",)), tick(2 * epoch - 1))
        (out,) = operator.process(make_rows(half, ("k",)), tick(2 * epoch))
        groups = by_key(seen, ("k",))
        for row in out.batch.to_pylist():
            for c in calls:
                assert repr(row[c.name]) == repr(expected(c, groups[(row["k"],)])), (row["k"], c.name)
        assert out.batch.schema == operator.schemas[0]
    missing = [row["spot"] is None for row in seen], [row["spot"] is not None and row["spot"]["within"] is None for row in seen]
    assert all(any(each) and not all(each) for each in missing)


def test_rows_with_objects_are_no_state_of_a_box_that_has_none() -> None:
    objects, words = PagedTable(np.zeros(5, np.int64), [nested_cases.SPOT]), PagedTable(np.zeros(9, np.int64))
    assert objects.width == words.width
    objects.find(0, np.ones(1, np.uint64), np.ones(1, np.uint64))
    snapshot = objects.capture(0)
    assert snapshot is not None
    with pytest.raises(ValueError, match="objects"):
        words.install(0, snapshot.to_bytes())


@pytest.mark.parametrize("keys", [("k",), ("name", "k"), ("s",)])
def test_every_function_gives_the_totals_so_far(keys: tuple[str, ...]) -> None:
    rng = np.random.default_rng(7)
    calls = [*ALL_CALLS, *IGNORING_NULLS]
    operator = Aggregate(SCHEMA, keys, calls)
    seen: list[dict[str, Any]] = []
    for epoch in range(1, 6):
        batch = make_batch(rng, 300)
        new = batch.to_pylist()
        seen += new
        (out,) = operator.process(make_rows(batch, keys), tick(epoch))
        groups, found = by_key(seen, keys), {tuple(r[k] for k in keys): r for r in out.batch.to_pylist()}
        assert list(found) == list(by_key(new, keys)), "a row per key of the epoch, in order of first appearance"
        for key, row in found.items():
            for c in calls:
                assert same(row[c.name], expected(c, groups[key])), (key, c.name, row[c.name], expected(c, groups[key]))
        assert out.batch.schema == operator.schemas[0]
        assert out.hash is not None
        assert out.hash.tolist() == make_rows(out.batch, keys).hash.tolist()  # type: ignore[union-attr]
        assert out.partition.tolist() == make_rows(out.batch, keys).partition.tolist()


def test_partial_totals_merge_to_the_same_results() -> None:
    calls = [c for c in ALL_CALLS if combinable([c], SCHEMA)]
    assert {c.function for c in calls} == {"count", "sum", "avg", "stddev", "min", "max"}
    rng = np.random.default_rng(8)
    combine = Combine(SCHEMA, ("k",), calls)
    operator = Aggregate(combine.schemas[0], ("k",), calls, partial=True)
    seen: list[dict[str, Any]] = []
    for epoch in range(1, 4):
        batch = make_batch(rng, 400)
        seen += batch.to_pylist()
        producer = make_rows(batch, ())
        producer.partition[:] = rng.integers(0, 3, 400)
        producer.hash = None
        (partial,) = combine.process(producer, tick(epoch))
        assert partial.count == len({(p, r["k"]) for p, r in zip(producer.partition.tolist(), batch.to_pylist(), strict=True)})
        (out,) = operator.process(make_rows(partial.batch, ("k",)), tick(epoch))
        groups = by_key(seen, ("k",))
        for row in out.batch.to_pylist():
            for c in calls:
                assert same(row[c.name], expected(c, groups[(row["k"],)])), (row["k"], c.name)


def test_partials_are_a_function_of_the_producer_partition_alone() -> None:
    rng = np.random.default_rng(9)
    calls = [call("sum", "f"), call("stddev", "f"), call("count")]
    batch = make_batch(rng, 500)
    rows = make_rows(batch, ("k",))
    rows.partition[:] = rng.integers(0, 4, 500)
    (together,) = Combine(SCHEMA, ("k",), calls).process(rows, tick(1))
    for partition in range(4):
        (alone,) = Combine(SCHEMA, ("k",), calls).process(rows.take(np.flatnonzero(rows.partition == partition)), tick(1))
        mine = together.take(np.flatnonzero(together.partition == partition))
        assert bits(mine.batch) == bits(alone.batch)
        assert mine.hash is not None
        assert alone.hash is not None
        assert mine.hash.tolist() == alone.hash.tolist()


def test_partials_are_hashed_by_their_own_key_whatever_brought_the_rows_here() -> None:
    """Behind another aggregate the rows carry the hash of that one's key; the exchange behind needs the hash of this one's."""
    batch = make_batch(np.random.default_rng(10), 200)
    rows = make_rows(batch, ("k",))
    rows.partition[:] = 0
    brought = Rows(batch, rows.partition, np.arange(200, dtype=np.uint64))
    (partial,) = Combine(SCHEMA, ("k",), [call("count")]).process(brought, tick(1))
    assert partial.hash is not None
    assert partial.count == len(set(batch.column("k").to_pylist()))
    assert partial.hash.tolist() == make_rows(partial.batch, ("k",)).hash.tolist()  # type: ignore[union-attr]


def test_no_keys_is_one_group() -> None:
    operator = Aggregate(SCHEMA, (), [call("count"), call("sum", "small")])
    rng = np.random.default_rng(1)
    first, second = make_batch(rng, 50), make_batch(rng, 50)
    for epoch, batch in enumerate((first, second)):
        (out,) = operator.process(make_rows(batch, ()), tick(epoch))
    total = sum(r["small"] or 0 for b in (first, second) for r in b.to_pylist())
    assert out.batch.to_pylist() == [{"count_all": 100, "sum_small": total}]


def test_null_and_nan_are_keys_and_zeros_are_one_key() -> None:
    keys = pa.array([0.0, -0.0, math.nan, None, math.nan, None, 1.0])
    batch = pa.RecordBatch.from_arrays([keys], ["x"])
    operator = Aggregate(batch.schema, ("x",), [AggCall("n", "count", None, pa.int64())])
    (out,) = operator.process(make_rows(batch, ("x",)), tick(1))
    assert out.batch.column("n").to_pylist() == [2, 2, 2, 1]
    assert str(out.batch.column("x").to_pylist()) == "[0.0, nan, None, 1.0]"


def test_overflow_of_a_bigint_sum_names_the_key() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    operator = Aggregate(schema, ("k",), [AggCall("total", "sum", "v", pa.int64())])
    big = pa.RecordBatch.from_pydict({"k": ["a", "b", "b", "a"], "v": [2**62, 2**62, 2**62, -5]}, schema)
    with pytest.raises(ArithmeticOverflow, match=r"sum\(v\) of key \(k='b'\)"):
        operator.process(make_rows(big, ("k",)), tick(1))


def test_a_sum_may_leave_the_range_on_the_way_to_its_total() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    operator = Aggregate(schema, ("k",), [AggCall("total", "sum", "v", pa.int64()), AggCall("mean", "avg", "v", pa.float64())])
    batch = pa.RecordBatch.from_pydict({"k": [1] * 4, "v": [2**62, 2**62, 2**62, -(2**62)]}, schema)
    shorter = batch.slice(1)
    (out,) = operator.process(make_rows(shorter, ("k",)), tick(1))
    assert out.batch.to_pylist() == [{"k": 1, "total": 2**62, "mean": 2**62 / 3}]


@pytest.mark.parametrize("distinct", [0, 1, 7, 100, 3000, 200_000])
@pytest.mark.parametrize("kind", ["int", "string"])
def test_approximate_distinct_counts_are_close(distinct: int, kind: str) -> None:
    values = np.arange(distinct) * 1_000_003
    array = pa.array(values) if kind == "int" else pa.array([f"v{x}" for x in values.tolist()], pa.string())
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    rows = make_rows(batch, ())
    operator = Aggregate(batch.schema, (), [AggCall("n", "approx_count_distinct", "x", pa.int64())])
    (out,) = operator.process(rows, tick(1))
    if distinct == 0:
        assert out.count == 0
        return
    (again,) = operator.process(rows, tick(2))
    assert again.batch.equals(out.batch), "seeing the same values again changes nothing"
    assert abs(out.batch["n"][0].as_py() - distinct) <= max(0.5, 0.12 * distinct)


def test_distinct_counts_are_unbiased() -> None:
    rng = np.random.default_rng(11)
    keys = np.repeat(np.arange(300), 700)
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(rng.integers(0, 2**60, keys.size))], ["k", "x"])
    operator = Aggregate(batch.schema, ("k",), [AggCall("n", "approx_count_distinct", "x", pa.int64())])
    (out,) = operator.process(make_rows(batch, ("k",)), tick(1))
    errors = np.array(out.batch["n"].to_pylist()) / 700 - 1
    assert abs(errors.mean()) < 0.01
    assert 0.03 < errors.std() < 0.06


def test_result_types_are_sparks() -> None:
    assert result_type("count", None) == pa.int64()
    assert result_type("sum", pa.int8()) == pa.int64()
    assert result_type("sum", pa.float32()) == pa.float64()
    assert result_type("avg", pa.int64()) == result_type("stddev", pa.int32()) == pa.float64()
    assert result_type("min", pa.float32()) == pa.float32()
    assert result_type("collect_list", pa.string()) == pa.list_(pa.string())
    for function, kind in [
        ("sum", pa.string()),
        ("avg", pa.bool_()),
        ("sum", pa.decimal128(10, 2)),
        ("median", pa.int64()),
        ("min", pa.map_(pa.string(), pa.int64())),
        ("sum", None),
    ]:
        with pytest.raises(TypeMismatch):
            result_type(function, kind)
    with pytest.raises(TypeMismatch):
        RowWindow(0, 1)
    with pytest.raises(TypeMismatch):
        TimeWindow("ts", 10, 20)


def test_combine_holds_nothing_between_epochs() -> None:
    """Its table is memory, not state: what an epoch gives is what a new operator gives for it."""
    calls = [call("count"), call("sum", "i"), call("max", "f")]
    used, rng = Combine(SCHEMA, ("name",), calls), np.random.default_rng(4)
    for epoch in range(1, 5):
        rows = make_rows(make_batch(rng, 50 * epoch), ("k",))
        (found,), (wanted,) = used.process(rows, tick(epoch)), Combine(SCHEMA, ("name",), calls).process(rows, tick(epoch))
        assert bits(found.batch) == bits(wanted.batch)
        assert found.partition.tolist() == wanted.partition.tolist()
        assert [used.capture(partition) for partition in range(8)] == [None] * 8


def test_facts_for_the_planner() -> None:
    assert not order_sensitive([call("count"), call("sum", "i"), call("min", "f"), call("avg", "i")], SCHEMA)
    assert order_sensitive([call("avg", "i")]), "without a schema an average may be one of floats"
    for c in (call("sum", "f"), call("avg", "f"), call("stddev", "i"), call("first", "i"), call("collect_list", "i")):
        assert order_sensitive([c], SCHEMA), c
    assert not combinable([call("count"), call("min", "s")], SCHEMA)
    assert not combinable([call("approx_count_distinct", "i")], SCHEMA)
    shared = cells([call("sum", "i"), call("avg", "i"), call("count", "i")], SCHEMA)
    assert [c.kind for c in shared] == ["count", "isum"]
    with pytest.raises(UnknownColumn, match="nothing"):
        cells([AggCall("x", "sum", "nothing", pa.int64())], SCHEMA)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
@pytest.mark.parametrize("function", ["collect_list", "first_known", "last_known", COLLECT_ROWS])
def test_times_beyond_those_of_python_are_kept_and_travel(function: str, kind: pa.DataType) -> None:
    """Python's datetime has the years 1 to 9999, the engine's times have all that their numbers can say."""
    most = 2 ** (kind.bit_width - 1) - 1
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    schema = pa.schema([("k", pa.int64()), ("t", kind)])
    made = AggCall("x", function, "t", result_type(function, kind))
    epochs = [
        pa.record_batch([pa.array([1, 1, 2]), pa.array(values, width).view(kind)], schema=schema)
        for values in ([most, None, -most - 1], [0, -most, 7], [None, 5, 6])
    ]
    operator = Aggregate(schema, ("k",), [made])
    for epoch, batch in enumerate(epochs, 1):
        (out,) = operator.process(make_rows(batch, ("k",)), tick(epoch))
        moved = Aggregate(schema, ("k",), [made])
        for partition in range(8):
            if (snapshot := operator.capture(partition)) is not None:
                moved.install(partition, snapshot.to_bytes())
        operator = moved
    found = out.batch.column("x")
    wanted = {
        "collect_list": [[most, 0, -most, 5], [-most - 1, 7, 6]], COLLECT_ROWS: [[most, None, 0, -most, None, 5], [-most - 1, 7, 6]],
        "first_known": [most, -most - 1], "last_known": [5, 6],
    }[function]  # fmt: skip
    assert plain_values(found) == wanted
