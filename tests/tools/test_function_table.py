"""The table of Spark's functions is made of Spark's list and the catalogue as it is, and says of each what is the case."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tools.gen_function_table import NARROWER, PAGE, REASONS, STORED, SYNTAX, known, page, why_not

import evenflow as ef
from evenflow.errors import EvenflowError
from evenflow.query.sql.functions import AGGREGATES, FUNCTIONS

SPARKS = json.loads(STORED.read_text(encoding="utf-8"))["functions"]
OURS_ALONE = frozenset({"charindex", "extract", "nanvl", "isnan", "ilike", "rlike"})
"""Names that Spark has as syntax or not at all."""


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tools/gen_function_table.py"


def test_every_function_of_spark_is_there_or_has_a_reason() -> None:
    assert len(SPARKS) > 500
    assert all(known(name) or len(why_not(name, group)) > 10 for name, group in SPARKS.items())


def test_no_reason_is_given_for_what_is_there() -> None:
    assert [name for name in REASONS if known(name)] == []


def test_of_collations_is_said_what_a_query_can_have() -> None:
    """Method: `collate` as a row of the table says it is written, and another collation, which is refused."""
    for said in ("name COLLATE UTF8_LCASE = 'ann'", "collate(name, 'UTF8_LCASE') = 'ann'"):
        flow = ef.Dataflow("collated")
        flow.source(ef.sources.memory(pa.table({"name": ["Ann", "Bob"]}))).where(said)
    with pytest.raises(EvenflowError, match="Other collations than this and UTF8_BINARY are not available"):
        ef.Dataflow("other").source(ef.sources.memory(pa.table({"name": ["Ann"]}))).where("name COLLATE UNICODE_CI = 'ann'")
    assert known("collate") and "UTF8_LCASE" in NARROWER["collate"]
    assert not known("collations") and "UTF8_LCASE" in why_not("collations", SPARKS["collations"])


def test_what_is_narrower_is_there() -> None:
    assert [name for name in NARROWER if not known(name)] == []


def test_what_is_ours_is_sparks() -> None:
    """A function that Spark does not have would be one that no query can bring along."""
    own = {name for name in (*FUNCTIONS, *AGGREGATES) if name not in SPARKS and not name.startswith("_")}
    assert own - OURS_ALONE == set()
    assert set(SYNTAX) <= set(SPARKS)
