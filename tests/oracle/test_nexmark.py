"""Every Nexmark query gives what batch Spark SQL gives for the very same text, for several seeds, however the run is cut up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow import nexmark
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.nexmark_events import STREAMS
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.nexmark.dataflows import create_views, dataflow
from tests.oracle.running import CUTS, Answer, Cut, assert_same_rows, left, newest_per_key

pytestmark = [pytest.mark.oracle, pytest.mark.one_in(2)]

SEEDS = (1, 2, 3)
EVENTS = {"events": 10_000, "event_rate": 100, "disorder": 100}
"""A hundred seconds, in which every event may be a second late."""


def run(name: str, seed: int, cut: Cut, mode: str = "append") -> pa.Table:
    planned = layout(dataflow(name, mode, seed=seed, partitions=cut.inputs, **EVENTS).network, sites=cut.sites, partitions=cut.partitions)
    options = FlowOptions(epoch_rows=min(cut.epoch_rows, 2_000), linger_ms=1)
    world = SimWorld(planned, sites=cut.sites, seed=cut.seed, options=options, read_rows=min(cut.epoch_rows, 2_000))
    world.run_until_quiet()
    return world.output("out")


@pytest.fixture(scope="module", params=[SEEDS[0], *[pytest.param(seed, marks=pytest.mark.conformance) for seed in SEEDS[1:]]])
def seed(request: Any, spark: Any) -> int:
    """A seed whose events are Spark's tables."""
    number: int = request.param
    create_views(spark, (*STREAMS, nexmark.SIDE_INPUT), seed=number, **EVENTS)
    return number


@pytest.mark.parametrize("name", one_in(3, nexmark.NAMES))
def test_a_query_gives_what_batch_spark_gives(spark: Any, seed: int, name: str) -> None:
    query = nexmark.query(name)
    expected = spark.sql(query.sql).cache()
    for cut in CUTS[1:]:
        got = run(name, seed, cut)
        assert_same_rows(newest_per_key(got, query.newest) if query.newest else got, expected)
    assert expected.count() > 0
    expected.unpersist()


@pytest.mark.conformance
@pytest.mark.parametrize("name", nexmark.NAMES)
def test_what_changes_and_the_whole_are_what_batch_spark_gives(spark: Any, seed: int, name: str) -> None:
    """Changes leave the rows that batch Spark has; in complete mode the last table has them."""
    expected = Answer.of(spark.sql(nexmark.query(name).sql))
    assert_same_rows(left(run(name, seed, CUTS[1], "changelog")), expected)
    whole = run(name, seed, CUTS[2], "complete")
    assert_same_rows(whole.slice(whole.num_rows - len(expected.rows)), expected)
