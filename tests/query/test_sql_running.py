"""Running results end as plain Python computes them, however the rows are cut into epochs; only what has changed comes out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.operator.user.process import Process
from evenflow.query.planner import layout
from evenflow.query.script.running import BestRows
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.testing import simulate, source
from evenflow.world.sim.world import SimWorld

COUNT = 400


def table() -> pa.Table:
    """Keys, numbers of which many are equal and some null, doubles of which some are NaN."""
    random = np.random.default_rng(3)
    numbers = [None if v == 9 else int(v) for v in random.integers(0, 10, COUNT)]
    doubles = [math.nan if v > 0.9 else None if v < 0.1 else float(v) for v in random.random(COUNT)]
    keys = [f"k{v}" for v in random.integers(0, 7, COUNT)]
    return pa.table({"k": keys, "n": pa.array(numbers, pa.int64()), "x": pa.array(doubles, pa.float64()), "id": range(COUNT)})


def run(sql: str, epoch_rows: int, sites: int) -> list[dict[str, Any]]:
    flow = ef.Dataflow("q")
    parts = [[table().take(list(range(i, COUNT, 2))).combine_chunks().to_batches()[0]] for i in range(2)]
    ef.sql(sql, {"t": flow.source(ef.sources.memory(parts), name="t")}).to(ef.sinks.memory("out"), name="out")
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=sites, partitions=8), sites=sites, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    rows: list[dict[str, Any]] = world.output("out").to_pylist()
    return rows


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    """ORDER BY x DESC, n, and then the other columns: NaN is greatest and null least."""
    x, n = row["x"], row["n"]
    rank = 2 if x is None else 0 if math.isnan(x) else 1
    return (rank, -x if rank == 1 else 0, n is not None, n or 0, row["k"], row["id"])


@pytest.mark.parametrize(("epoch_rows", "sites"), [(1_000, 1), (7, 3), (40, 2)])
@pytest.mark.parametrize("most", [1, 5, 40])
def test_the_best_rows_of_a_key(most: int, epoch_rows: int, sites: int) -> None:
    sql = f"SELECT k, id, p FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC, n) AS p FROM t) WHERE p <= {most}"
    found = {(row["k"], row["p"]): row["id"] for row in run(sql, epoch_rows, sites)}
    expected = {}
    for key in {f"k{v}" for v in range(7)}:
        best = sorted((row for row in table().to_pylist() if row["k"] == key), key=order)[:most]
        expected.update({(key, place + 1): row["id"] for place, row in enumerate(best)})
    assert found == expected


@pytest.mark.parametrize(("epoch_rows", "sites"), [(1_000, 1), (7, 3), (40, 2)])
def test_sums_follow_running_results(epoch_rows: int, sites: int) -> None:
    sql = """SELECT k, count(*) AS groups, count(most) AS known, sum(most) AS total, avg(most) AS mean FROM
             (SELECT k, id % 3 AS r, max(n * id) AS most FROM t GROUP BY k, id % 3) GROUP BY k"""
    found = {row.pop("k"): row for row in run(sql, epoch_rows, sites)}
    most: dict[tuple[str, int], int | None] = {}
    for row in table().to_pylist():
        group = (row["k"], row["id"] % 3)
        value = None if row["n"] is None else row["n"] * row["id"]
        held = most.get(group)
        most[group] = value if held is None else held if value is None else max(held, value)
    by_key = defaultdict(list)
    for (key, _), value in most.items():
        by_key[key].append(value)
    for key, values in by_key.items():
        known = [value for value in values if value is not None]
        assert found[key] == {
            "groups": len(values), "known": len(known), "total": sum(known), "mean": pytest.approx(sum(known) / len(known)),
        }  # fmt: skip
    assert found.keys() == by_key.keys()


def newest(text: str, schema: pa.Schema, given: Sequence[Sequence[tuple[Any, ...]]]) -> dict[Any, Any]:
    """The newest value of each key. given: the rows of t, an epoch each."""
    flow = ef.Dataflow("q")
    ef.sql(text, {"t": flow.source(source(schema), name="t")}).to(ef.sinks.memory("out"), name="out")
    test = simulate(flow, sites=1)
    for rows in given:
        test.give("t", list(rows)).settle()
    return dict(tuple(row.values()) for row in test.finish().rows("out"))


@pytest.mark.parametrize(
    ("of", "given", "wanted"),
    [
        ("min", [[("a", 1, math.inf)], [("a", 1, 1.0)]], 1.0),
        ("min", [[("a", 1, math.inf), ("a", 1, 1.0)]], 1.0),
        ("min", [[("a", 1, 1e17)], [("a", 2, 1.0)], [("a", 1, 1.0)]], 2.0),
        ("last", [[("a", 1, math.nan)], [("a", 1, 1.0)], [("a", 2, 0.5)]], 1.5),
        ("last", [[("a", 1, 1.0)], [("a", 1, math.nan)]], math.nan),
    ],
)
def test_sums_of_running_results_forget_what_is_replaced(of: str, given: list[list[tuple[Any, ...]]], wanted: float) -> None:
    """Whatever the epochs are: what was infinite, no number or large for one of them leaves nothing behind."""
    schema = pa.schema([("k", pa.string()), ("r", pa.int64()), ("x", pa.float64())])
    inner = f"(SELECT k, r, {of}(x) AS s FROM t GROUP BY k, r)"
    assert newest(f"SELECT k, sum(s) AS s FROM {inner} GROUP BY k", schema, given) == {"a": pytest.approx(wanted, abs=0, nan_ok=True)}
    keys = len({key for rows in given for _, key, _ in rows})
    mean = newest(f"SELECT k, avg(s) AS s FROM {inner} GROUP BY k", schema, given)
    assert mean == {"a": pytest.approx(wanted / keys, abs=0, nan_ok=True)}


def test_sums_of_running_decimals_have_all_their_digits() -> None:
    """As batch Spark's, of which the sum is a decimal(38, 8) and the mean one of (32, 12)."""
    schema = pa.schema([("k", pa.string()), ("r", pa.int64()), ("price", pa.decimal128(18, 8))])
    given = [[("a", 1, Decimal("0.12345678"))], [("a", 2, Decimal("0.00000001")), ("b", 1, None)], [("a", 1, Decimal("1.00000000"))]]
    inner = "(SELECT k, r, sum(price) AS s FROM t GROUP BY k, r)"
    found = newest(f"SELECT k, sum(s) AS s FROM {inner} GROUP BY k", schema, given)
    assert str(found) == "{'a': Decimal('1.12345679'), 'b': None}"
    mean = newest(f"SELECT k, avg(s) AS s FROM {inner} GROUP BY k", schema, given)
    assert str(mean) == "{'a': Decimal('0.561728395000'), 'b': None}"


@pytest.mark.parametrize("most", [3, 40])
def test_only_places_that_are_taken_anew_come_out(most: int) -> None:
    """5 and 3 are held, 4 comes; the place of 5 is as it was."""
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    box = Process(("k",), BestRows(most, (("n", True),), "k string, n bigint", "place"), schema)

    def placed(epoch: int, *numbers: int | None) -> list[tuple[int | None, int]]:
        rows = pa.RecordBatch.from_arrays([pa.array(["a"] * len(numbers)), pa.array(numbers, pa.int64())], schema=schema)
        out, _ = box.process(Rows(rows, np.zeros(len(numbers), np.int32)), Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK))
        return [(row["n"], row["place"]) for row in out.batch.to_pylist()]

    assert placed(1, 3, 5) == [(5, 1), (3, 2)]
    assert placed(2, 4) == [(4, 2), (3, 3)]
    assert placed(3, 4)[:1] == [(4, 3)]
    if most == 3:
        assert placed(4, 3, 2) == []
        assert placed(5, 4) == []
        assert placed(6, None, 6) == [(6, 1), (5, 2), (4, 3)]


def test_only_columns_that_somebody_reads_are_kept() -> None:
    flow = ef.Dataflow("q")
    rows = flow.source(ef.sources.memory(table()), name="t")
    inner = "SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS p FROM t"
    ef.sql(f"SELECT k, p FROM ({inner}) WHERE p <= 2 AND n > 1", {"t": rows}).to(ef.sinks.discard())
    ef.sql(f"SELECT * FROM ({inner}) WHERE p <= 2", {"t": rows}).to(ef.sinks.discard())
    boxes = [box.params["processor"].columns for box in flow.network.of_kind("process")]
    assert boxes == ["k string, n bigint, x double", "k string, n bigint, x double, id bigint"]


@pytest.mark.parametrize(("epoch_rows", "sites"), [(1_000, 1), (7, 3)])
def test_aggregates_of_distinct_values_and_of_filtered_ones(epoch_rows: int, sites: int) -> None:
    sql = """SELECT k, count(DISTINCT n) AS d, count(DISTINCT n, id % 2) AS two, sum(DISTINCT n) FILTER (WHERE id % 3 = 0) AS s,
             mode(n) AS m, try_sum(n) AS t, listagg(n, '') WITHIN GROUP (ORDER BY id DESC) AS l, first(k) FILTER (WHERE n = 4) AS f,
             last(n) FILTER (WHERE n IS NULL) AS none FROM t GROUP BY k"""
    found = {row.pop("k"): row for row in run(sql, epoch_rows, sites)}
    assert len(found) == 7
    for key, row in found.items():
        mine = [each for each in table().to_pylist() if each["k"] == key]
        numbers = [each["n"] for each in mine if each["n"] is not None]
        assert row == {
            "d": len(set(numbers)),
            "two": len({(each["n"], each["id"] % 2) for each in mine if each["n"] is not None}),
            "s": sum({each["n"] for each in mine if each["n"] is not None and each["id"] % 3 == 0}),
            "m": min(set(numbers), key=lambda n: (-numbers.count(n), n)),
            "t": sum(numbers),
            "l": "".join(map(str, reversed(numbers))),
            "f": key if 4 in numbers else None,
            "none": None,
        }
