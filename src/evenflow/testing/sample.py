"""Rows to try a dataflow with, where nobody has given any: what a source makes by itself, or rows made up from its columns."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from evenflow.sources.source import Source

BY_ITSELF: Final = ("generator", "memory", "nexmark", "packets")
"""Sources that ask nobody for their rows."""
BEGIN: Final = datetime(2026, 1, 1)
WORDS: Final = ("ant", "bee", "cat", "dog", "eel")


def sample_of(source: Source, rows: int) -> tuple[pa.Table, str]:
    """At most so many rows of it, and where they are from: "source" or "made"."""
    if source.kind in BY_ITSELF:
        found = _read(source, rows)
        if found.num_rows:
            return found, "source"
    return made_of(source.schema, rows), "made"


def _read(source: Source, rows: int) -> pa.Table:
    """What its partitions give first, in turns."""
    batches: list[pa.RecordBatch] = []
    count = source.partitions(1)
    for partition in range(count):
        reader = source.open(partition, count)
        wanted, now_us = -(-rows // count), 1_767_225_600_000_000
        try:
            for _ in range(100):
                if wanted <= 0 or reader.ended:
                    break
                batch = reader.read(now_us, wanted)
                now_us += 1_000_000
                if batch is not None:
                    batches.append(batch)
                    wanted -= batch.num_rows
        finally:
            reader.close()
    return pa.Table.from_batches(batches, schema=source.schema).slice(0, rows)


def made_of(schema: pa.Schema, rows: int) -> pa.Table:
    """So many rows of these columns: few words and numbers that come again, so that groups have members, and times a second apart."""
    columns = [pa.array([made_value(field.type, row, 3 * at) for row in range(rows)], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def made_value(kind: pa.DataType, row: int, column: int = 0) -> Any:
    """A value of that type, a function of the numbers of row and column."""
    t = pa.types
    if t.is_boolean(kind):
        return row % 2 == 0
    if t.is_integer(kind):
        return (row * 7 + column) % (20 if kind.bit_width < 32 else 100)
    if t.is_floating(kind):
        return (row * 7 + column) % 100 * 1.5
    if t.is_decimal(kind):
        return Decimal(row % 10).scaleb(-min(kind.scale, 1)) if kind.precision > kind.scale else Decimal(0)
    if t.is_timestamp(kind):
        at = BEGIN + timedelta(seconds=row)
        return at if kind.tz is None else at.replace(tzinfo=UTC)
    if t.is_date(kind):
        return date(2026, 1, 1) + timedelta(days=row % 7)
    if t.is_duration(kind):
        return timedelta(seconds=row % 10)
    if t.is_dictionary(kind):
        return made_value(kind.value_type, row)
    if t.is_list(kind) or t.is_large_list(kind):
        return [made_value(kind.value_type, row + more) for more in range(row % 3)]
    if t.is_struct(kind):
        return {field.name: made_value(field.type, row) for field in kind}
    if t.is_map(kind):
        return [(made_value(kind.key_type, row), made_value(kind.item_type, row))]
    if t.is_binary(kind) or t.is_large_binary(kind):
        return WORDS[(row + column) % len(WORDS)].encode()
    if t.is_string(kind) or t.is_large_string(kind):
        return WORDS[(row + column) % len(WORDS)]
    return None


__all__ = ["made_of", "made_value", "sample_of"]
