"""What `evenflow bench moves` reports, from outputs that did not take place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.bench.events import ScheduledEvents
from evenflow.bench.monitored import Output
from evenflow.bench.moves import QUICK, Moving, dataflow, move, outputs_of
from evenflow.bench.stalls import AFTER_US, Moved, Outputs, judged
from evenflow.errors import ClusterError
from evenflow.kernels.hash import hash_columns
from evenflow.query.planner import layout

EVERY_US = 10_000


def outputs(until_us: int, missing: dict[int, tuple[int, int]], partitions: int = 3) -> Outputs:
    """Something of each partition every 10 ms, except of these, strictly between these moments."""
    at = np.arange(0, until_us + 1, EVERY_US)
    owners = np.repeat(np.arange(partitions, dtype=np.int32), at.size)
    times = np.tile(at, partitions)
    kept = np.ones(times.size, np.bool_)
    for partition, (begin, end) in missing.items():
        kept &= ~((owners == partition) & (times > begin) & (times < end))
    return Outputs(times[kept], owners[kept], partitions)


def test_a_gap_counts_whole_where_it_reaches_into_the_time() -> None:
    seen = outputs(1_000_000, {1: (400_000, 460_000)})
    assert seen.gaps_ms(1, 445_000, 475_000).tolist() == [60.0, 10.0, 10.0]
    assert seen.longest_ms([0, 2], 0, 1_000_000) == 10.0
    assert outputs(1_000_000, {1: (500_000, 2_000_000)}).gaps_ms(1, 490_000, 1_200_000).max() == 700.0, "it never comes back"
    assert Outputs(np.array([5]), np.array([0], np.int32), 2).gaps_ms(1, 10, 1_010).tolist() == [1.0], "it never came"


def test_stalls_are_beside_what_is_usual() -> None:
    seen = outputs(6_000_000, {1: (3_100_000, 3_135_000), 2: (5_000_000, 5_020_000)})
    moves = [Moved(1, 0, 3, 3_000_000, 3_400_000, 9), Moved(0, 3, 1, 4_700_000, 5_000_000 - AFTER_US // 2, 11)]
    report = judged(seen, 3, (0, 2_000_000), moves)
    assert (report["usual_ms"], report["usual_p99_ms"], report["usual_longest_ms"]) == (10.0, 10.0, 10.0)
    assert [move["stall_ms"] for move in report["moves"]] == [30.0, 0.0]
    assert [move["others_ms"] for move in report["moves"]] == [10.0, 20.0]
    assert (report["stall_ms_max"], report["others_ms_max"], report["bytes_p50"]) == (30.0, 20.0, 10)
    assert report["moves"][0] == {
        "partition": 1, "source": 0, "target": 3, "bytes": 9, "ms": 400.0, "stall_ms": 30.0, "others_ms": 10.0,
    }  # fmt: skip


@pytest.mark.parametrize("setting", [Moving(), QUICK])
def test_rows_are_told_apart_by_the_partitions_that_the_run_has(setting: Moving) -> None:
    source = ScheduledEvents(100, 1000, 50)
    planned = layout(dataflow(source, Output()).network, sites=4, partitions=setting.partitions, writers=None)
    assert next(segment for segment in planned.segments if segment.name == "totals").partitions == setting.partitions
    answers, keys = Output(), pa.array(range(50))
    answers(1, pa.RecordBatch.from_arrays([keys], names=["key"]))
    seen = outputs_of(answers, setting.partitions)
    groups = hash_columns(pa.RecordBatch.from_arrays([keys], names=["key"]), ["key"]) >> np.uint64(52)
    owners = set((groups.astype(np.int64) * setting.partitions // 4096).tolist())
    assert {p for p in range(setting.partitions) if seen._moments[p].size} == owners


class Told:
    """A run whose moves end as they are told to. At first all is at site 0."""

    def __init__(self, state: str) -> None:
        self._state, self._told = state, list[dict[str, Any]]()

    def pin(self, box: str, sites: list[int], partitions: list[int]) -> int:
        if sites == [0]:
            return 0
        self._told.append({"state": self._state, "bytes": 7, "source": 0, "target": sites[0]})
        return 1

    def moves(self) -> list[dict[str, Any]]:
        return self._told

    def await_termination(self, seconds: float) -> bool:
        return False


def test_a_move_goes_where_the_partition_is_not_and_must_arrive() -> None:
    moved = move(Told("done"), 4, QUICK, str)  # type: ignore[arg-type]
    assert (moved.partition, moved.source, moved.target, moved.size) == (4, 0, 1, 7) and moved.over_us >= moved.asked_us
    with pytest.raises(ClusterError, match="partition 4 has not come to site 1"):
        move(Told("dropped"), 4, QUICK, str)  # type: ignore[arg-type]


def test_nothing_that_comes_out_is_an_error() -> None:
    with pytest.raises(ClusterError, match="nothing came out"):
        outputs_of(Output(), 4)
