"""A function of the user's is the one that is called by its name, also where the grammar or a built-in function has that name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.expression import compile_expression
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
    assert rows(stream().where(ef.udf(lambda x: x > 5, "boolean")("x")).select(a=more("x"), b=less(more("x")), c=less("x"))) == [
        {"a": 8, "b": 7, "c": 6}
    ]
