"""Totals of results that change which cannot be subtracted are those of what is left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.change import CHANGE
from evenflow.world.sim.world import SimWorld

RANDOM = np.random.default_rng(3)
KEYS, VALUES = RANDOM.integers(0, 9, 120).tolist(), RANDOM.integers(-20, 30, 120).tolist()
TABLE = pa.table({"k": pa.array(KEYS, pa.int64()), "v": pa.array(VALUES, pa.int64())})
SUMS = {key: sum(v for k, v in zip(KEYS, VALUES, strict=True) if k == key) for key in set(KEYS)}
COUNTS = Counter(KEYS)


def run(text: str, epoch_rows: int, table: pa.Table = TABLE) -> list[tuple[Any, ...]]:
    """What the changes leave; none takes back what is not there."""
    flow = ef.Dataflow("q")
    stream = ef.sql(text, {"t": flow.source(ef.sources.memory(table), name="t")}, output_mode="changelog")
    stream.to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=2, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    there: Counter[tuple[Any, ...]] = Counter()
    for row in world.output("out").to_pylist():
        change = row.pop(CHANGE)
        key = tuple(tuple(value) if isinstance(value, list) else value for value in row.values())
        there[key] += -1 if change in ("update_before", "delete") else 1
        assert there[key] >= 0
    return sorted((+there).elements(), key=str)


@pytest.mark.parametrize("epoch_rows", [7, 1000])
def test_the_greatest_and_the_least_of_totals(epoch_rows: int) -> None:
    inner = "(SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k)"
    assert run(f"SELECT max(s) AS high, min(s) AS low, count(*) AS n FROM {inner}", epoch_rows) == [
        (max(SUMS.values()), min(SUMS.values()), len(SUMS))
    ]
    odd = {k % 2 == 1: [s for key, s in SUMS.items() if key % 2 == k % 2] for k in (0, 1)}
    text = f"SELECT k % 2 = 1 AS odd, max(s) AS high, count(DISTINCT n) AS n FROM {inner} WHERE s > 0 GROUP BY k % 2 = 1"
    wanted = [
        (side, max(s for s in sums if s > 0), len({COUNTS[k] for k in SUMS if (k % 2 == 1) == side and SUMS[k] > 0}))
        for side, sums in odd.items() if any(s > 0 for s in sums)
    ]  # fmt: skip
    assert run(text, epoch_rows) == sorted(wanted, key=str)


def test_a_group_of_no_rows() -> None:
    text = "SELECT max(n) AS most, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 1000)"
    assert run(text, 7) == [(None, 0)]
    changes = pa.table({"v": [5, 5], CHANGE: ["insert", "delete"]})
    assert run("SELECT min(v) AS m FROM t", 1, changes) == [(None,)]
    assert run("SELECT v, max(v) AS m FROM t GROUP BY v", 1, changes) == []


def test_decimals_dates_and_texts_come_back_as_they_went() -> None:
    table = TABLE.append_column("d", TABLE["v"].cast(pa.decimal128(20, 0)).cast(pa.decimal128(15, 2)))
    table = table.append_column("day", TABLE["v"].cast(pa.int32()).cast(pa.date32())).append_column("s", TABLE["v"].cast(pa.string()))
    wide = "CAST(d AS DECIMAL(38, 2)) AS w"
    one = f"(SELECT k, d, day, s, {wide}, count(*) AS n FROM t GROUP BY k, d, day, s)"
    two = "(SELECT k AS k2, max(d) AS most, max(day) AS last, max(s) AS text FROM t GROUP BY k)"
    text = f"SELECT k, d, day, s, w, n FROM {one} AS a JOIN {two} AS b ON a.k = b.k2 AND a.d = b.most AND a.day = b.last"
    best = {k: max(v for key, v in zip(KEYS, VALUES, strict=True) if key == k) for k in COUNTS}
    found = run(text, 7, table)
    assert sorted((row[0], int(row[1]), int(row[3]), int(row[4])) for row in found) == sorted((k, v, v, v) for k, v in best.items())
