"""Rows that do not depend on who reads them, or since when."""

from __future__ import annotations

import pyarrow as pa

from evenflow.bench.events import BEGIN_US, ScheduledEvents
from evenflow.sources import Reader

SOURCE = ScheduledEvents(rate=1000, rows=103, keys=10)


def read_all(reader: Reader, first_us: int, step_us: int, most: int) -> list[dict[str, object]]:
    """Everything, asked for every `step_us`. No row may come before its time."""
    rows, now_us = [], first_us
    while not reader.ended:
        batch = reader.read(now_us, most)
        for row in batch.to_pylist() if batch is not None else []:
            rows.append(row)
            assert pa.scalar(row["ts"], pa.timestamp("us")).value <= now_us
        now_us += step_us
    return rows


def test_rows_are_those_of_their_numbers_however_they_are_read() -> None:
    for partition, count in enumerate((26, 26, 26, 25)):
        whole = read_all(SOURCE.open(partition, 4), BEGIN_US, 700, 5)
        assert len(whole) == count
        assert read_all(SOURCE.open(partition, 4), BEGIN_US + 50_000_000, 1, 1000) == whole
        other = SOURCE.open(partition, 4)
        other.skip(11)
        assert read_all(other, BEGIN_US + 2_000, 1_300, 3) == whole[11:]


def test_a_reader_says_when_its_next_row_is_due() -> None:
    reader = SOURCE.open(1, 4)
    assert reader.read(BEGIN_US, 100) is None and reader.wake_us == BEGIN_US + 1_000
    batch = reader.read(reader.wake_us, 100)
    assert batch is not None and batch.num_rows == 1 and reader.wake_us == BEGIN_US + 5_000


def test_nothing_left_is_the_end() -> None:
    reader = SOURCE.open(0, 4)
    reader.skip(26)
    assert reader.ended


def test_the_first_rows_are_there_at_once_with_every_key_once() -> None:
    source = ScheduledEvents(rate=1000, rows=130, keys=30, count=3, begin_us=7_000_000, at_once=30)
    reader = source.open(1, 3)
    assert reader.read(6_999_999, 100) is None and source.due(6_999_999) == 0
    first = [reader.read(7_000_000, 100) for reader in (source.open(partition, 3) for partition in range(3))]
    assert sorted(row["key"] for batch in first for row in batch.to_pylist())[:30] == sorted([*range(30), first[0]["key"][10].as_py()])[:30]
    assert sum(batch.num_rows for batch in first) == 31 == source.due(7_000_000)
    assert source.due(7_010_000) == 41
    assert reader.read(7_000_000, 100).num_rows == 10 and reader.wake_us == 7_001_000
    whole = read_all(source.open(2, 3), 7_000_000, 300, 4)
    assert len(whole) == 43 and read_all(source.open(2, 3), 8_000_000, 1, 1000) == whole
