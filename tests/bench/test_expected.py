"""The reference of the failover benchmark agrees with a plain reading of the packets, and finds every kind of wrong output."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from evenflow.bench.expected import Compared, compare, expected_statistics, expected_traffic, second_of
from evenflow.bench.scheduled import ScheduledPackets
from evenflow.sources.pace import FIRST_US
from evenflow.world.flow_file import load_module

EXAMPLE = load_module(Path(__file__).resolve().parents[2] / "examples" / "network_sessions.py")
BEGIN_US = 1_800_000_000_000_000
EXPECTED: dict[Any, tuple[Any, ...]] = {"a": (1, 0.5), "b": (2, 1.5), "c": (3, 2.5)}


@pytest.mark.parametrize(
    ("got", "compared"),
    [
        ([("a", (1, 0.5)), ("c", (3, 2.5)), ("b", (2, 1.5))], Compared(3, 3, 0, 0, 0)),
        ([("a", (1, 0.5 + 1e-13)), ("c", (3, 2.5)), ("b", (2, 1.5))], Compared(3, 3, 0, 0, 0)),
        ([("a", (1, 0.5)), ("c", (3, 2.5))], Compared(3, 2, 1, 0, 0)),
        ([("a", (1, 0.5)), ("b", (2, 1.5)), ("c", (3, 2.5)), ("b", (2, 1.5)), ("b", (2, 1.5))], Compared(3, 5, 0, 2, 0)),
        ([("a", (1, 0.6)), ("b", (2, 1.5)), ("c", (4, 2.5))], Compared(3, 3, 0, 0, 2)),
        ([("a", (1, 0.5)), ("b", (2, 1.5)), ("d", (3, 2.5))], Compared(3, 3, 1, 0, 1)),
        ([], Compared(3, 0, 3, 0, 0)),
    ],
    ids=["another order", "rounding", "lost", "repeated", "other values", "from nowhere", "nothing"],
)
def test_rows_are_compared_one_by_one(got: list[Any], compared: Compared) -> None:
    assert compare(EXPECTED, got) == compared


def all_rows(source: ScheduledPackets, seconds: int) -> list[dict[str, Any]]:
    """Read the way a site does: whatever is due, a few rows at a time."""
    rows = []
    for partition in range(source.count):
        reader = source.open(partition, source.count)
        now_us = source.begin_us + seconds * 1_000_000 - 1
        while (batch := reader.read(now_us, 777)) is not None:
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: row["ts"])


@pytest.mark.parametrize("rate", [997, 20_000])
def test_a_second_of_packets_is_what_the_readers_give(rate: int) -> None:
    source = ScheduledPackets(rate, BEGIN_US)
    rows = all_rows(source, 2)
    packets = [second_of(source, second) for second in (0, 1)]
    assert len(rows) == 2 * rate
    assert [ts for part in packets for ts in part.time.tolist()] == [FIRST_US + n * 1_000_000 // rate for n in range(2 * rate)]
    for name, column in (("src", "src"), ("dst", "dst"), ("length", "length"), ("tcp_flags", "flags"), ("proto", "proto")):
        assert [row[name] for row in rows] == [value for part in packets for value in list(getattr(part, column))]


def test_a_reader_that_comes_later_goes_on_where_the_dead_one_was() -> None:
    source = ScheduledPackets(20_000, BEGIN_US)
    whole, early, late = (source.open(1, 4) for _ in range(3))
    first = early.read(BEGIN_US + 100_000, 1 << 20)
    late.skip(first.num_rows)
    second = late.read(BEGIN_US + 300_000, 1 << 20)
    both = whole.read(BEGIN_US + 300_000, 1 << 20)
    assert both.slice(0, first.num_rows).equals(first) and both.slice(first.num_rows).equals(second)
    assert late.read(BEGIN_US + 300_000, 10) is None and late.wake_us > BEGIN_US + 300_000


def test_expected_traffic_counts_whole_windows() -> None:
    source = ScheduledPackets(5_000, BEGIN_US)
    expected = expected_traffic(source, 10_000, FIRST_US + 1_205_000)
    counted: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for row in all_rows(source, 2):
        start = micros(row["ts"]) // 10_000 * 10_000
        if start + 10_000 <= FIRST_US + 1_205_000:
            counted[row["proto"], start][0] += 1
            counted[row["proto"], start][1] += row["length"]
    assert expected == {key: tuple(value) for key, value in counted.items()} and len({start for _, start in expected}) == 120


def test_expected_statistics_up_to_a_moment_are_a_prefix() -> None:
    source = ScheduledPackets(20_000, BEGIN_US)
    whole = expected_statistics(source, EXAMPLE, FIRST_US + 3_000_000 - 1)
    part = expected_statistics(source, EXAMPLE, FIRST_US + 1_500_000)
    assert len(part) > 20
    assert part == {key: values for key, values in whole.items() if key[2] <= FIRST_US + 1_500_000}  # type: ignore[index]


def micros(moment: Any) -> int:
    from datetime import datetime, timedelta

    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
