"""Ordinary queries of Structured Streaming port by their last line, and give what batch Spark gives for the same text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from evenflow.bench.corpus import CHAPTERS, CORPUS
from evenflow.bench.corpus.query import Query
from evenflow.bench.corpus.rows import DISORDER_S, tables
from evenflow.bench.corpus.running import SETTINGS, Corpus, Outcome, report
from evenflow.world.spark.cluster.session import QUICK_START, embedded_session, stop_session

SAMPLE = (
    "nested columns: fields of a struct",
    "windows: sliding",
    "joins: left outer",
    "higher-order functions: aggregated",
    "dates: formatted",
    "output modes: all windows",
)
LEAST = 0.95
"""Of the queries: ported, and equal to batch Spark."""


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    conf = {**SETTINGS, "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:+UseSerialGC {QUICK_START}"}
    spark = embedded_session("local[1]", "evenflow-corpus", conf)
    try:
        with Corpus.of(spark) as corpus:
            yield corpus
    finally:
        stop_session(spark)


def test_the_list_is_long_and_each_query_has_its_name() -> None:
    names = [query.name for query in CORPUS]
    assert len(names) == len(set(names)) >= 200
    assert all(chapter.queries for chapter in CHAPTERS)


def test_no_row_is_late() -> None:
    """Batch Spark knows no late rows, so there are none."""
    for table, time in (("events", "ts"), ("orders", "at"), ("impressions", "shown")):
        latest = None
        for value in tables()[table].column(time).to_pylist():
            assert latest is None or (latest - value).total_seconds() < DISORDER_S + 2
            latest = value if latest is None else max(latest, value)


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::UserWarning:pyspark")
def test_some_queries_are_ported_and_equal(corpus: Corpus) -> None:
    for query in CORPUS:
        if query.name in SAMPLE:
            outcome = corpus.outcome(query)
            assert outcome.equal, outcome
            assert outcome.rows > 0


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::UserWarning:pyspark")
def test_a_query_that_is_refused_says_what_and_what_to_do(corpus: Corpus) -> None:
    def build(given: Any) -> Any:
        return (
            given.events.withWatermark("ts", "10 seconds")
            .select("device", "ts")
            .dropDuplicates(["device"])
            .where("size(sentences(device)) > 9")
        )

    outcome = corpus.outcome(Query("refused", "none", build))
    assert not outcome.ported
    assert "device" in str(outcome.expression)
    assert "before withWatermark" in str(outcome.reason)


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::UserWarning:pyspark")
@pytest.mark.timeout(1200)
def test_nearly_all_queries_are_ported_and_equal(corpus: Corpus) -> None:
    outcomes = [corpus.outcome(query) for query in CORPUS]
    assert sum(outcome.equal for outcome in outcomes) >= LEAST * len(outcomes), report(outcomes)
    assert not [outcome for outcome in outcomes if outcome.ported and not outcome.equal]
    assert not [outcome for outcome in outcomes if not outcome.ported and not outcome.reason]


def test_figures_are_counted() -> None:
    outcomes = [Outcome("a", True, True), Outcome("b", True, False, "2 rows instead of 3"), Outcome("c", False, False, "no", "f(x)")]
    made = report(outcomes)
    assert (made["queries"], made["ported"], made["equal"]) == (3, 2, 1)
    assert made["refused"] == [{"query": "c", "reason": "no", "expression": "f(x)"}]
    assert made["different"] == [{"query": "b", "reason": "2 rows instead of 3"}]
