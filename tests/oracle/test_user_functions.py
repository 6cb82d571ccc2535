"""Functions of the user's give what they give in batch Spark SQL: those that PySpark has decorated, as they are."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.user.function import UserFunction
from tests.oracle.running import Cut, assert_same_rows, newest_per_key, run

pytestmark = [
    pytest.mark.one_in(2),
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::UserWarning:pyspark", "ignore::FutureWarning:pyspark"),
]

TABLE = pa.table({
    "k": pa.array([None if i % 11 == 0 else f"k{i % 4}" for i in range(300)]),
    "n": pa.array([None if i % 5 == 1 else i * 37 % 101 for i in range(300)], pa.int64()),
    "x": pa.array([float("nan") if i % 17 == 3 else None if i % 13 == 2 else i / 8 for i in range(300)]),
    "ts": pa.array([i * 250_000 for i in range(300)], pa.timestamp("us")),
})  # fmt: skip


@pytest.fixture(scope="module")
def functions(spark: Any) -> dict[str, Any]:
    """Registered in the session under these names, and decorated by PySpark."""
    from pyspark.sql import functions as F

    @F.udf("string")
    def shout(k: Any) -> Any:
        return None if k is None else k.upper() + "!"

    @F.pandas_udf("double")
    def scaled(n: pd.Series, x: pd.Series) -> pd.Series:
        return n * 2 + x

    @F.pandas_udf("double")
    def spread(n: pd.Series) -> float:
        return float(n.max() - n.min())

    @F.pandas_udf("double")
    def weighted(n: pd.Series, x: pd.Series) -> float:
        return float((n.fillna(0) * x.fillna(1)).sum())

    @F.pandas_udf("timestamp_ntz")
    def later(ts: pd.Series) -> pd.Series:
        return ts + pd.Timedelta(seconds=90)

    made = {"shout": shout, "scaled": scaled, "spread": spread, "weighted": weighted, "later": later}
    for name, function in made.items():
        spark.udf.register(name, function)
    rows = [tuple(row.values()) for row in TABLE.to_pylist()]
    spark.createDataFrame(rows, "k string, n bigint, x double, ts timestamp_ntz").createOrReplaceTempView("t")
    return made


QUERIES = {
    "rows": ("SELECT shout(k) AS s, scaled(n, x) AS y, scaled(n + 1, 2.0D) AS z, later(ts) AS at FROM t WHERE scaled(n, n) > 30", ()),
    "groups": ("SELECT k, spread(n) AS s, weighted(n, x) + 1 AS w FROM t GROUP BY k", ("k",)),
    "windows": (
        "SELECT k, window.start AS b, spread(n) AS s, weighted(scaled(n, 1D), x) AS w FROM t "
        "GROUP BY k, window(ts, '20 seconds', '10 seconds') HAVING spread(n) > 1", ()),
    "sessions": ("SELECT k, session_window.end AS e, spread(n) AS s FROM t WHERE n < 60 GROUP BY k, session_window(ts, '1 second')", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_the_same_as_in_spark(spark: Any, functions: dict[str, Any], name: str) -> None:
    text, keys = QUERIES[name]

    def build(source: Any) -> ef.Dataflow:
        flow = ef.Dataflow(name)
        t = flow.source(source, name="t").with_watermark("ts", "1 minute")
        ef.sql(text, {"t": t}, functions=functions).to(ef.sinks.memory("out"), name="out")
        return flow

    got = run(build, TABLE, Cut(3, 7, 64, 2, seed=1))
    assert_same_rows(newest_per_key(got, keys) if keys else got, spark.sql(text))


def test_functions_that_are_registered_in_a_session_are_found(spark: Any, functions: dict[str, Any]) -> None:
    known = ef.registered(spark)
    assert isinstance(known["Spread"], UserFunction) and known["spread"].aggregate and known["shout"].takes == "rows"
    assert known.get("nosuch") is None and known.get("upper") is None
    flow = ef.Dataflow("found")
    t = flow.source(ef.sources.memory(TABLE), name="t")
    made = ef.sql("SELECT shout(k) AS s, upper(k) AS u FROM t", {"t": t}, functions=known)
    assert made.schema.types == [pa.string(), pa.string()]
    with pytest.raises(QueryError, match="there is no function 'nosuch'"):
        ef.sql("SELECT nosuch(k) AS s FROM t", {"t": t}, functions=known)
    with pytest.raises(QueryError, match="takes a classic Spark session"):
        ef.registered(None)  # type: ignore[arg-type]
