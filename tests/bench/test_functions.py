"""Spark's own examples of its functions: how they are told from what is no function of a row, and how they are counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from evenflow.bench.functions import Example, Outcome, examples, outcome, report, session

LEAST = 0.8
"""Of the examples: equal to batch Spark. What is missing are mostly functions of types that columns cannot have."""


def _example(text: str, wanted: pa.Table | None, raises: bool = False) -> Example:
    return Example("f", "g", text, wanted, raises)


def test_an_example_is_equal_different_or_refused() -> None:
    one = pa.table({"upper(a)": ["A"]})
    assert outcome(_example("SELECT upper('a')", one)) == Outcome(_example("SELECT upper('a')", one))
    assert outcome(_example("SELECT lower('a')", one)).different == "('a',) instead of ('A',)"
    assert "no function 'nowhere'" in str(outcome(_example("SELECT nowhere('a')", one)).refused)
    assert "is int32 instead of string" in str(outcome(_example("SELECT 1", one)).different)


def test_what_fails_in_spark_has_to_fail_here() -> None:
    assert outcome(_example("SELECT 1 / 0", None, True)).different is None
    assert "and Spark raises" in str(outcome(_example("SELECT 1 / 1", None, True)).different)
    assert "DivideByZero" in str(outcome(_example("SELECT 1 / 0", pa.table({"a": [1.0]}))).different)


def test_figures_are_counted() -> None:
    example = _example("SELECT 1", None)
    made = report([Outcome(example), Outcome(example, refused="no"), Outcome(example, different="2 instead of 1")])
    assert (made["examples"], made["equal"]) == (3, 1)
    assert made["refused"] == [{"example": "SELECT 1", "function": "f", "reason": "no"}]
    assert made["different"] == [{"example": "SELECT 1", "function": "f", "reason": "2 instead of 1"}]


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::UserWarning:pyspark")
def test_most_examples_are_equal() -> None:
    with session() as spark:
        outcomes = [outcome(example) for example in examples(spark)]
    assert len(outcomes) > 800
    assert not any(name in {each.example.function for each in outcomes} for name in ("now", "rand", "sum", "explode", "row_number"))
    made = report(outcomes)
    assert made["equal"] >= LEAST * made["examples"], made
