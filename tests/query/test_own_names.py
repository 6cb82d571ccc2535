"""A function of the user's is the one that is called by its name, also where the grammar or a built-in function has that name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError
from evenflow.query.expression import compile_expression
from evenflow.query.script.lateral import GENERATORS
from evenflow.query.sql.composed import COMPOSED, OF_DISTINCT
from evenflow.query.sql.functions import AGGREGATES, FUNCTIONS
from evenflow.query.user.scope import scope
from evenflow.testing import run, source
from tests.drawn import one_in

SCHEMA = "k string, x bigint"
ROWS = [(" a ", 5), (" a ", 7)]
BUILT_IN = (
    "trim", "struct", "substring", "position", "overlay", "extract", "transform", "cast", "if", "explode", "window", "array", "date",
    "sum", "count", "min", "avg", "first", "last", "median", "any", "max_by", "concat", "map", "datediff", "collate",
)  # fmt: skip
"""Names that the parser, or who reads what it has made, takes for something of its own."""
KEYWORDS = ("interval", "values", "set", "case", "function", "lateral", "session", "when", "not", "in", "between", "select", "from")


def mine(name: str, type_: str = "bigint") -> Any:
    return ef.udf(lambda x: None if x is None else 4_242, type_, name=name)


def rows(made: ef.Stream) -> list[dict[str, Any]]:
    made.to(ef.sinks.memory("out"), name="out")
    return run(made.flow, {"s": ROWS}, sites=1).rows("out")


def stream() -> ef.Stream:
    return ef.Dataflow("d").source(source(SCHEMA), name="s")


@pytest.mark.parametrize("name", one_in(2, [*BUILT_IN, *KEYWORDS]))
def test_it_is_called_as_a_formula(name: str) -> None:
    assert rows(stream().select(y=mine(name)("x"))) == [{"y": 4_242}] * 2


QUERIES = {
    "SELECT {}(x) AS y FROM t": [{"y": 4_242}] * 2,
    "SELECT x + {}(x) AS y FROM t WHERE {}(x) = 4242": [{"y": 4_247}, {"y": 4_249}],
    "SELECT k, max({}(x)) AS y FROM t GROUP BY k": [{"k": " a ", "y": 4_242}],
}


@pytest.mark.parametrize("name", one_in(2, [*BUILT_IN, *map("`{}`".format, KEYWORDS)]))
def test_it_is_called_in_sql(name: str) -> None:
    for text, wanted in QUERIES.items():
        made = ef.sql(text.replace("{}", name), {"t": stream()}, functions={name.strip("`"): mine("other")}, output_mode="update")
        assert rows(made) == wanted, text


class Sum(ef.Aggregator):
    """An aggregate that is called as a built-in one."""

    output = "bigint"

    def zero(self) -> tuple[int, ...]:
        return ()

    def update(self, state: tuple[int, ...], x: int) -> tuple[int, ...]:
        return (*state, x)

    def finish(self, state: tuple[int, ...]) -> int:
        return -len(state)


def test_an_aggregate_is_called_too() -> None:
    text = "SELECT k, Sum(x) AS a, sum(CAST(x AS decimal(9, 2))) AS b FROM t GROUP BY k"
    made = ef.sql(text, {"t": stream()}, functions={"sum": Sum()}, output_mode="update")
    assert rows(made) == [{"k": " a ", "a": -2, "b": -2}]


def test_what_was_compiled_with_it_calls_it_where_it_is_not_known() -> None:
    schema = pa.schema([("k", pa.string()), ("x", pa.int64())])
    with scope({"trim": mine("trim")}):
        compiled = compile_expression("trim(x) + 1", schema)
    (found,) = {compiled(pa.record_batch([["a"], [5]], schema=schema))[0].as_py()}
    again = type(compiled)(*compiled.__reduce__()[1])
    assert again(pa.record_batch([["a"], [5]], schema=schema))[0].as_py() == found == 4_243
    assert compile_expression("trim(k)", schema)(pa.record_batch([[" a "], [5]], schema=schema))[0].as_py() == "a"


def test_a_lambda_has_a_name_by_itself() -> None:
    more = ef.udf(lambda x: x + 1, "bigint")
    less = ef.udf(
        lambda x: x - 1, "bigint",
    )  # fmt: skip
    one, two = ef.udf(lambda x: x * 10, "bigint"), ef.udf(lambda x: x * 100, "bigint")
    assert rows(stream().where("x > 5").select(d=one(two("x")), e=two("x"))) == [{"d": 7_000, "e": 700}]
    assert rows(stream().where(ef.udf(lambda x: x > 5, "boolean")("x")).select(a=more("x"), b=less(more("x")), c=less("x"))) == [
        {"a": 8, "b": 7, "c": 6}
    ]


class Others(Mapping[str, Any]):
    """A function of every name that a built-in one has, or that is written like one, but for those that a text names."""

    def __init__(self, text: str) -> None:
        written = {word.lower() for word in re.findall(r"\w+", text)}
        self._names = [each for each in BUILT_IN_NAMES if each not in written and not each.startswith("_")]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return mine(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


BUILT_IN_NAMES = frozenset({*FUNCTIONS, *AGGREGATES, *COMPOSED, *OF_DISTINCT, *GENERATORS, "cast", "try_cast", "extract", "overlay"})
WRITTEN = [
    *(f"SELECT k, {name}(x) AS y FROM t GROUP BY k" for name in sorted(set(COMPOSED) | {"stddev"}) if COMPOSED.get(name, (1,))[0] == 1
      and not name.startswith(("count_if", "bool", "every", "any", "some", "bitmap", "schema", "vector"))),
    *(f"SELECT k, {name}(x > 5) AS y FROM t GROUP BY k" for name in ("count_if", "bool_and", "every", "bool_or", "any", "some")),
    *(f"SELECT k, {name}(x, x + 1) AS y FROM t GROUP BY k" for name in ("max_by", "min_by", "corr", "covar_pop", "covar_samp", "regr_count",
                                                                        "regr_slope")),
    *(f"SELECT k, {name}(DISTINCT x) AS y FROM t GROUP BY k" for name in sorted(OF_DISTINCT) if OF_DISTINCT[name][0] == 1
      and name != "count_if"),
    "SELECT k, percentile(x, 0.5) AS y, percentile_approx(x, 0.5) AS z, mode(x) AS m FROM t GROUP BY k",
    "SELECT k, listagg(k, '-') AS y, string_agg(k) AS z FROM t GROUP BY k",
    "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY x DESC) AS y, listagg(k, ',') WITHIN GROUP (ORDER BY x) AS z FROM t GROUP BY k",
    "SELECT k, array_agg(x ORDER BY x DESC) AS y, first(x ORDER BY x) AS z, array_agg(x ORDER BY k DESC, x) AS a FROM t GROUP BY k",
    "SELECT k, count(DISTINCT x) AS y, count(DISTINCT k, x) AS n, count(k, x) AS z FROM t GROUP BY k",
    "SELECT k, count(DISTINCT x) AS y, count(DISTINCT x + 1) AS z, max(x) AS m FROM t GROUP BY k, window(at, '1 minute', '30 seconds')",
    "SELECT k, first(x) FILTER (WHERE x > 5) AS y, sum(x) FILTER (WHERE x > 5) AS z FROM t GROUP BY k",
    "SELECT k, x, variance(x) OVER (PARTITION BY k ORDER BY at) AS y, lag(x, 1, 0) OVER (PARTITION BY k ORDER BY at) AS z FROM t",
    "SELECT k, x, lag(x, 2) IGNORE NULLS OVER (PARTITION BY k ORDER BY at) AS z FROM t",
    "SELECT k, x, approx_count_distinct(x) OVER (PARTITION BY k ORDER BY at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS y FROM t",
    "SELECT k, sum(x) FILTER (WHERE x > 5) OVER (PARTITION BY k ORDER BY at ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS y FROM t",
    "SELECT k, avg(INTERVAL '1' SECOND * x) AS y, sum(INTERVAL '1' SECOND * x) AS z FROM t GROUP BY k",
    "SELECT k, x, sum(x) AS y, grouping(k) AS g, grouping_id() AS i FROM t GROUP BY ROLLUP (k, x)",
    "SELECT * FROM (SELECT k, x FROM t) PIVOT (sum(x) AS s, count(*) AS n FOR x IN (5, 7))",
    "SELECT * FROM (SELECT k, x, x + 1 AS z FROM t) UNPIVOT (y FOR w IN (x, z))",
    "SELECT t.k, v.b FROM t JOIN (VALUES (5, 'five'), (6, 'six')) AS v(a, b) ON t.x = v.a",
    "SELECT k, y FROM t LATERAL VIEW stack(2, x, x + 1) AS y",
    "SELECT k, y FROM t CROSS JOIN UNNEST(array(x, x + 1)) AS u(y)",
    "SELECT k, window(at, '1 minute').end AS y FROM t",
    "SELECT k, window(at, '1 minute', '30 seconds').end AS y FROM t",
    "SELECT k, w.start AS y, count(*) AS n FROM (SELECT k, window(at, '1 minute') AS w FROM t) GROUP BY k, w",
    "SELECT k, session_window(at, '5 seconds').end AS y, count(*) AS n FROM t GROUP BY k, session_window(at, '5 seconds')",
    "SELECT k, session_window(at, CASE WHEN x > 5 THEN '5 seconds' ELSE '6 seconds' END).end AS y, count(*) AS n FROM t "
    "GROUP BY k, session_window(at, CASE WHEN x > 5 THEN '5 seconds' ELSE '6 seconds' END)",
    "SELECT k, x FROM t WHERE x > (SELECT avg(x) FROM t) OR x IN (SELECT x FROM t WHERE x < 6)",
    "SELECT k, x FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.x > t.x)",
    "SELECT k, x FROM t WHERE struct(k, x) IN (SELECT k, x FROM t AS o)",
    "SELECT sum(n) AS y, avg(n) AS z, count(n) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
    "SELECT DISTINCT ON (k) k, x FROM t ORDER BY k, x DESC",
    "SELECT k, x FROM t UNION SELECT k, x + 1 FROM t",
    "SELECT DISTINCT n FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
    "SELECT a.x, b.n FROM (SELECT k, sum(x) AS x FROM t GROUP BY k) a JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) b ON a.k <=> b.k",
    "SELECT struct(x, k AS l) AS y, x::string AS z, CAST(x AS double) / 2 AS w, x >>> 1 AS s, TRY_CAST(k AS int) AS i FROM t",
    "SELECT parse_json('{\"a\": [7]}'):a[0]::int AS y, k ILIKE ANY ('%A%', 'b') AS z, CASE WHEN x > 5 THEN k END AS c FROM t",
    "SELECT k, stddev(x) + count_if(x > 5) AS y FROM t GROUP BY k HAVING bool_or(x > 5)",
]  # fmt: skip


def of_sql(text: str, functions: Any) -> Any:
    """The rows, or the message of why there are none."""
    times = [datetime(2026, 1, 1, 0, 0, second) for second in (1, 3, 40)]
    flow = ef.Dataflow("d")
    given = flow.source(source("k string, x bigint, at timestamp"), name="t").with_watermark("at", "1 second")
    windows = "window(at" in text or "OVER" in text
    try:
        made = ef.sql(text, {"t": given}, functions=functions, output_mode="append" if windows else "changelog")
        made.to(ef.sinks.memory("out"), name="out")
        given.to(ef.sinks.discard())
        found = run(flow, {"t": [(" a ", x, at) for x, at in zip((5, 7, 7), times, strict=True)]}, sites=1).rows("out")
    except EvenflowError as error:
        return f"{type(error).__name__}: {error}"
    return sorted(map(str, found))


@pytest.mark.parametrize("text", one_in(6, WRITTEN))
def test_what_is_made_of_built_in_functions_calls_them(text: str) -> None:
    """Whatever else has their names: the user has a function of each one that the text does not name."""
    assert of_sql(text, Others(text)) == of_sql(text, None)
