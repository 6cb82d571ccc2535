"""Every aggregate of every column of edge values gives, by group, what batch Spark SQL gives; where Spark raises, so does Evenflow."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, functions

import evenflow as ef
from evenflow.errors import ArithmeticOverflow, EvenflowError
from evenflow.query.sql.functions import AGGREGATES
from tests.oracle.catalyst import frame_of, interpreted
from tests.oracle.comparing import RAISES, raw, same
from tests.oracle.edge_values import edge_batch
from tests.oracle.running import Cut, run

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]

ROWS: Final = 96
GROUPS: Final = 9
SLICE: Final = 6
"""One in so many columns is tried of each aggregate in `make test`."""
CUT: Final = Cut(1, 2, 40, 1)
FIXED: Final = 20_261_122
TODAY: Final = int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))
KNOWN_OF_AGGREGATES: Final = (
    "`avg` of whole numbers whose total is beyond 2^53",
    "`stddev` of numbers whose squares are beyond the greatest double",
)
"""What differs for a reason; it is listed in docs/sql.md."""
ADDED_UP: Final = ("sum", "avg")
"""Of doubles, their last digits are up to the order in which rows come to a sum, and where the ends of the range are added, all of them."""
ESTIMATES: Final = {"approx_count_distinct": 2}
"""How far an estimate may be from Spark's: the hashes of the two are not the same."""


def rows_of(seed: int) -> pa.RecordBatch:
    """Edge values in groups of some ten rows; of the last group every value is null."""
    batch = edge_batch(seed, ROWS)
    group = np.arange(ROWS) % GROUPS
    empty = pa.array(group == GROUPS - 1)
    columns = {"g": pa.array(group.astype(np.int32))}
    for field in batch.schema:
        if pa.types.is_duration(field.type):
            continue  # Intervals are values of expressions, and no columns.
        values = batch.column(field.name).take(pa.array(np.where(empty, None, np.arange(ROWS)), pa.int64()))
        columns[field.name] = values
    return pa.record_batch(columns)


def ours(batch: pa.RecordBatch, text: str) -> dict[int, Any] | str | None:
    """By group; RAISES if the run ends with an overflow; None if Evenflow says beforehand that it does not do this."""
    table = pa.Table.from_batches([batch])
    try:
        ef.Dataflow("q").source(ef.sources.memory([table.to_batches()])).group_by("g").agg(x=text)
    except EvenflowError:
        return None
    try:
        found = run(lambda source: _aggregated(source, text), table, CUT)
    except ArithmeticOverflow:
        return RAISES
    return dict(zip(raw(found.column("g")), raw(found.column("x"))))


def _aggregated(source: Any, text: str) -> ef.Dataflow:
    flow = ef.Dataflow("q")
    flow.source(source).group_by("g").agg(x=text).to(ef.sinks.memory("out"), name="out")
    return flow


def spark_has(frame: DataFrame, texts: list[str]) -> Iterator[tuple[str, Mapping[int, Any] | str]]:
    """All at once if none raises, else each half."""
    try:
        table = frame.groupBy("g").agg(*[functions.expr(text).alias(f"x{k}") for k, text in enumerate(texts)]).toArrow()
    except Exception:
        if len(texts) == 1:
            yield texts[0], RAISES
            return
        yield from spark_has(frame, texts[: len(texts) // 2])
        yield from spark_has(frame, texts[len(texts) // 2 :])
    else:
        for k, text in enumerate(texts):
            yield text, dict(zip(raw(table.column("g")), raw(table.column(f"x{k}"))))


def check(spark: Any, seed: int, aggregates: Mapping[str, str], every: int = 1) -> None:
    batch = rows_of(seed)
    texts = [f"{name}({c})" for k, name in enumerate(aggregates) for n, c in enumerate(batch.schema.names) if (n + k) % every == 0]
    available = {text: result for text in texts if (result := ours(batch, text)) is not None}
    assert len(available) > 5 * len(aggregates) / every
    wrong = []
    with interpreted(spark):
        for text, wanted in spark_has(frame_of(spark, batch), list(available)):
            got = available[text]
            if isinstance(got, str) or isinstance(wanted, str):
                if got != wanted:
                    wrong.append(f"{text}: {got!r}, Spark has {wanted!r}")
                continue
            name, _, column = text.rstrip(")").partition("(")
            function = AGGREGATES[name]
            by = ESTIMATES.get(function, 0)
            apart = _apart(batch, column) if _added_as_doubles(function, batch.schema.field(column).type) else {}
            wrong += [f"{text} of group {g}: {got.get(g, 'no row')!r}, Spark has {value!r}" for g, value in wanted.items()
                      if g not in got or not (_alike(got[g], value, by) or function == "stddev" and _beyond(got[g], value)
                                              or _within(got[g], value, apart.get(g, 0.0)))]  # fmt: skip
    assert not wrong, f"seed {seed}: {len(wrong)} differ:\n" + "\n".join(wrong[:40])


def _added_as_doubles(function: str, of: pa.DataType) -> bool:
    """Spark adds up doubles for an average of whole numbers, too."""
    return function in ADDED_UP and (pa.types.is_floating(of) or (function == "avg" and pa.types.is_integer(of)))


def _apart(batch: pa.RecordBatch, column: str) -> dict[int, float]:
    """By group, how far two sums of the same doubles may be apart that were added up in different orders: a rounding of the largest sum
    that can come on the way for each of them. Infinite where some order leaves the range of doubles."""
    found: dict[int, float] = {}
    for group, value in zip(raw(batch.column("g")), raw(batch.column(column))):
        found[group] = found.get(group, 0.0) + (abs(float(value)) if value is not None and math.isfinite(value) else 0.0)
    return {group: 0.0 if not size else size * ROWS * np.finfo(np.float64).eps for group, size in found.items()}


def _within(a: Any, b: Any, apart: float) -> bool:
    return isinstance(a, float) and isinstance(b, float) and (math.isinf(apart) or abs(a - b) <= apart)


def _beyond(*found: Any) -> bool:
    """Of squares that leave the range of doubles one system makes infinity, the other NaN."""
    return all(isinstance(value, float) and not math.isfinite(value) for value in found)


def _alike(a: Any, b: Any, by: int) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(x, y, 0) for x, y in zip(a, b))
    if by:
        return abs(int(a) - int(b)) <= by
    return same(a, b, pa.float64()) or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-9 * abs(b))


@pytest.mark.parametrize("every", [SLICE, pytest.param(1, marks=pytest.mark.conformance)])
def test_every_aggregate_of_every_column(spark: Any, every: int) -> None:
    """Or of some columns, and of others for the next aggregate."""
    one_name_each = {function: name for name, function in AGGREGATES.items()}
    check(spark, FIXED, {name: function for function, name in one_name_each.items()}, every)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", [TODAY, TODAY + 1, TODAY + 2])
def test_every_name_of_an_aggregate(spark: Any, seed: int) -> None:
    check(spark, seed, AGGREGATES)
