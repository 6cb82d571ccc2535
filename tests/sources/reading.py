"""Reading a source to its end, with a clock that the test moves."""

from __future__ import annotations

import select

import pyarrow as pa

from evenflow.sources import Reader, Source


def read_all(source: Source, partition: int = 0, of: int = 1, max_rows: int = 1000) -> pa.Table:
    """Every row of a partition of a source that ends, asking as if time were no matter."""
    reader = source.open(partition, of)
    batches = []
    while not reader.ended:
        batch = reader.read(1_000_000, max_rows)
        if batch is not None:
            assert 0 < batch.num_rows <= max_rows
            assert batch.schema.equals(source.schema)
            batches.append(batch)
    reader.close()
    reader.close()
    return pa.Table.from_batches(batches, source.schema)


def arrivals(reader: Reader, max_rows: int = 1000, start_us: int = 0) -> list[tuple[int, int]]:
    """(now_us, rows) of every read that gave rows, going from one wake-up to the next, until the end."""
    now_us, seen = start_us, []
    while not reader.ended:
        batch = reader.read(now_us, max_rows)
        if batch is not None:
            seen.append((now_us, batch.num_rows))
            continue
        if reader.ended:
            break
        assert reader.wake_us is not None
        assert reader.wake_us > now_us
        now_us = reader.wake_us
    return seen


def wait_readable(reader: Reader) -> None:
    """Until the reader's descriptor is readable: no sleep, and no longer than five seconds."""
    descriptor = reader.fileno()
    assert descriptor is not None
    readable, _, _ = select.select([descriptor], [], [], 5.0)
    assert readable, "nothing came within five seconds"
