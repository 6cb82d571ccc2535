"""The texts of the 23 queries: all there, and each says what it is about and reads what it says."""

from __future__ import annotations

import pytest

from evenflow import nexmark
from evenflow.errors import QueryError


def test_there_are_23_queries_and_each_says_what_it_is_about() -> None:
    queries = [nexmark.query(name) for name in nexmark.NAMES]
    assert len({query.title for query in queries}) == 23
    assert all(query.title.endswith(".") and query.sql.startswith(("SELECT", "WITH")) for query in queries)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("q0", {"bid"}), ("q3", {"person", "auction"}), ("q5", {"bid"}), ("q8", {"person", "auction"}), ("q13", {"bid", "side_input"})],
)
def test_a_query_knows_what_it_reads(name: str, inputs: set[str]) -> None:
    assert set(nexmark.query(name).inputs) == inputs


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(QueryError, match="q0 to q22"):
        nexmark.query("q23")
