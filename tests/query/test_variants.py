"""Variants are columns as others: through state, boxes and schemas; they are not compared and no keys."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

from evenflow import sinks
from evenflow.errors import EvenflowError
from evenflow.query.builder import Dataflow
from evenflow.query.expression import compile_expression
from evenflow.query.script import sql
from evenflow.query.sql import variant_form as form
from evenflow.query.sql.variant_text import read_json, to_json
from evenflow.stream.schema import VARIANT, ddl_of, parse_ddl
from evenflow.testing import run as simulate
from evenflow.testing import source

TEXTS: Final = ['{"a":1,"b":[true,null]}', "[1,2.50,3]", None, '"x"', "{"]
TABLE: Final = pa.table({"k": [1, 2, 1, 2, 1], "s": TEXTS})


def rows_of(query: str) -> list[dict[str, Any]]:
    flow = Dataflow("variants")
    out = sql(query, {"t": flow.source(source(TABLE.schema), name="t")})
    out.to(sinks.memory("out"), name="out")
    rows: list[dict[str, Any]] = simulate(out.flow, {"t": TABLE}).table("out").to_pylist()
    return rows


def shown(row: dict[str, bytes] | None) -> str | None:
    return None if row is None else to_json(form.taken_apart(row["value"], row["metadata"]))


def test_they_are_kept_by_key() -> None:
    found = {
        row["k"]: row
        for row in rows_of("SELECT k, first(v) AS f, collect_list(v) AS l FROM (SELECT k, try_parse_json(s) AS v FROM t) GROUP BY k")
    }
    assert {key: (shown(row["f"]), list(map(shown, row["l"]))) for key, row in found.items()} == {
        1: ('{"a":1,"b":[true,null]}', ['{"a":1,"b":[true,null]}']),
        2: ("[1,2.5,3]", ["[1,2.5,3]", '"x"']),
    }


def test_a_path_is_written_with_a_colon() -> None:
    assert rows_of("SELECT k, v:b[0]::boolean AS b FROM (SELECT k, try_parse_json(s) AS v FROM t WHERE k = 1 AND s LIKE '{\"%')") == [
        {"k": 1, "b": True}
    ]


@pytest.mark.parametrize("query", [
    "SELECT v, count(*) AS n FROM (SELECT try_parse_json(s) AS v FROM t) GROUP BY v", "SELECT DISTINCT try_parse_json(s) AS v FROM t",
    "SELECT k, max(try_parse_json(s)) AS m FROM t GROUP BY k",
])  # fmt: skip
def test_they_are_no_keys_and_have_no_order(query: str) -> None:
    with pytest.raises(EvenflowError):
        rows_of(query)


def test_a_schema_says_it() -> None:
    schema = parse_ddl("v variant, l array<variant>")
    assert schema.field(0).type == VARIANT
    assert ddl_of(schema) == "v variant, l array<variant>"
    assert parse_ddl("v struct<value: binary, metadata: binary>").field(0).type != VARIANT


@pytest.mark.parametrize("cut", range(12))
def test_bytes_that_are_no_variant_are_refused(cut: int) -> None:
    value, names = form.put_together(read_json(str(TEXTS[0])))
    broken = pa.record_batch({"v": pa.array([(value[:cut], names), (value, names[:cut])], VARIANT)})
    assert compile_expression("is_valid_variant(v)", broken.schema)(broken).to_pylist() == [False, cut >= len(names)]
