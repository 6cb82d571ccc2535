"""The query of the failover benchmark puts out what its reference says, and an output with a fault is told from one without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.monitored import Monitored
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.flow_file import load_module
from evenflow.world.sim.world import SimWorld

EXAMPLE = load_module(Path(__file__).resolve().parents[2] / "examples" / "network_sessions.py")
RATE, SECONDS = 12_000, 2
Released = list[tuple[int, pa.RecordBatch]]


@pytest.fixture(scope="module")
def released() -> dict[str, Released]:
    """What a failure-free run in the simulator gives to its two sinks."""
    monitored = Monitored(EXAMPLE, RATE, 0)
    source = monitored.source
    share = RATE * SECONDS // source.count
    packets = ef.sources.memory([[source.rows(partition, 0, share)] for partition in range(source.count)])
    planned = layout(monitored.dataflow(packets).network, sites=4, partitions=16)
    world = SimWorld(planned, sites=4, seed=3, options=FlowOptions(epoch_rows=600, linger_ms=1), read_rows=500)
    world.run_until_quiet()
    return {sink: list(world.released[sink]) for sink in ("traffic", "view")}


def given(traffic: Released, view: Released) -> Monitored:
    monitored = Monitored(EXAMPLE, RATE, 0)
    for sink, output in ((monitored.traffic, traffic), (monitored.statistics, view)):
        for epoch, batch in output:
            sink(epoch, batch)
    return monitored


def test_the_query_is_its_reference(released: dict[str, Released]) -> None:
    compared = given(released["traffic"], released["view"]).compare()
    assert compared.got == compared.expected > 2 * 100 * SECONDS
    assert (compared.lost, compared.repeated, compared.wrong) == (0, 0, 0)


@pytest.mark.parametrize("sink", ["traffic", "view"])
def test_a_lost_and_a_repeated_epoch_are_found(released: dict[str, Released], sink: str) -> None:
    full = [at for at, (_, batch) in enumerate(released[sink]) if batch.num_rows]
    at = full[len(full) // 2]
    rows = released[sink][at][1].num_rows
    lost = given(**{**released, sink: released[sink][:at] + released[sink][at + 1 :]})
    assert (lost.compare().lost, lost.compare().repeated) == (rows, 0)
    repeated = given(**{**released, sink: released[sink][: at + 1] + released[sink][at:]})
    assert (repeated.compare().lost, repeated.compare().repeated) == (0, rows)
    output: Any = repeated.traffic if sink == "traffic" else repeated.statistics
    assert output.repeated_epochs == 1


def test_a_sink_that_stops_or_is_given_nothing_has_lost_what_it_should_have_had(released: dict[str, Released]) -> None:
    """Goal: an output is compared as far as the counts came, less a second, and not only as far as it came itself."""
    whole = given(released["traffic"], released["view"]).compare()
    never = given(released["traffic"], []).compare()
    counts = given(released["traffic"], [])
    counts.sessions = False
    rows = counts.compare().expected
    assert never.got == rows and 0 < never.lost == never.expected - rows < whole.expected - rows
    full = [batch for batch in released["view"] if batch[1].num_rows]
    stopped = given(released["traffic"], full[: len(full) // 10]).compare()
    assert stopped.lost > 0 and stopped.expected == never.expected


def test_what_comes_first_come_is_compared_as_far_as_the_counts_came(released: dict[str, Released]) -> None:
    monitored = Monitored(EXAMPLE, RATE, 0, unordered=True)
    assert monitored.first_come is not None
    for epoch, batch in released["traffic"]:
        monitored.traffic(epoch, batch)
    none = monitored.compare_first_come()
    assert none.got == 0 < none.lost == none.expected
    for epoch, batch in released["traffic"]:
        monitored.first_come(epoch, batch)
    assert monitored.compare_first_come().lost == 0


def test_ages_are_counted_from_when_a_packet_was_due(released: dict[str, Released]) -> None:
    monitored = given(released["traffic"], released["view"])
    moments, ages = monitored.ages()
    assert len(moments) == len(ages) == sum(batch.num_rows for _, batch in released["traffic"])
    # The schedule began in 1970, so all packets have been due for as long, but for the seconds that lie between them.
    assert ages.max() - ages.min() == pytest.approx(SECONDS, abs=0.5)
