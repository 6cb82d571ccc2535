"""`to(sink, every=...)`: epochs as often as they are wanted, and results that are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.export import to_python
from evenflow.query.planner import layout
from evenflow.query.structure import structure
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
BATCH = pa.record_batch([np.arange(3_000) % 7, np.arange(3_000)], ROWS)


def flow_with(*every: Any) -> ef.Dataflow:
    flow = ef.Dataflow("paced")
    counted = flow.source(ef.sources.memory([BATCH]), name="in").group_by("k").agg(n="count(*)")
    for at, each in enumerate(every):
        counted.to(ef.sinks.memory(f"{at}"), every=each, name=f"out {at}")
    return flow


@pytest.mark.parametrize(
    ("asked", "found"), [((None,), None), (("1 second",), 1_000_000), (("1 second", "0.2 seconds"), 200_000), (("1 second", None), None)]
)
def test_who_wants_rows_most_often_decides(asked: tuple[str | None, ...], found: int | None) -> None:
    assert layout(flow_with(*asked).network, sites=2).every_us == found


def test_nobody_reads_what_is_discarded() -> None:
    flow = flow_with("1 second")
    flow.source(ef.sources.memory([BATCH]), name="more").to(ef.sinks.discard(), name="away")
    assert layout(flow.network, sites=2).every_us == 1_000_000


def test_it_is_in_all_that_draws_and_is_no_content() -> None:
    flow = flow_with("1 second")
    assert ef.Dataflow.from_json(flow.to_json()).network == flow.network and "memory, every 1 s" in flow.to_text()
    assert "every='1 s', name='out 0'" in to_python(flow.network).replace('"', "'")
    assert structure(layout(flow.network, sites=2)) == structure(layout(flow_with(None).network, sites=2)), "a restart may have another one"


@pytest.mark.parametrize("every", ["0 seconds", "2 hours"])
def test_what_is_no_pace_is_refused(every: str) -> None:
    with pytest.raises(QueryError, match="box 'out 0': rows are wanted every .* microseconds; give up to an hour"):
        flow_with(every)


def test_the_linger_grows_and_never_shrinks() -> None:
    options = FlowOptions(linger_ms=5.0, heartbeat_ms=100.0)
    assert options.paced(None) is options and options.paced(2_000) == options
    slow = options.paced(300_000)
    assert (slow.linger_ms, slow.heartbeat_ms) == (300.0, 300.0)


def test_epochs_are_fewer_and_results_the_same() -> None:
    """Virtual time: the rows come over some 150 ms, in epochs of 1 ms or of 50 ms."""

    def run(every: str | None) -> tuple[int, set[tuple[int, int]]]:
        planned = layout(flow_with(every).network, sites=2, partitions=4)
        options = FlowOptions(linger_ms=1.0)
        world = SimWorld(planned, sites=2, seed=3, options=options, read_rows=20, read_every_us=(1_000, 1_000))
        world.run_until_quiet(5.0)
        table = world.output("out 0")
        last = dict(zip(table.column("k").to_pylist(), table.column("n").to_pylist(), strict=True))
        return max(epoch for epoch, _ in world.released["out 0"]), {*last.items()}

    (often, totals), (seldom, same) = run(None), run("0.05 seconds")
    assert totals == same == {(k, len(range(k, 3_000, 7))) for k in range(7)}
    assert often > 50 and seldom < 10, f"{often} and {seldom} epochs"
