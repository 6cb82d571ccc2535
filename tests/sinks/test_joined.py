"""Joined Parquet files: every reader finds all rows of all parts, whatever their types, and what cannot be joined is refused."""

from __future__ import annotations

import datetime
import decimal
import os
import random
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow.sinks.committed import parquet_bytes
from evenflow.sinks.joined import NotJoinable, Reader, footer_bytes, joined_end, put_struct

SOME: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, -1, 2**63 - 1, -(2**63)],
    pa.int8(): [-128, 127],
    pa.bool_(): [True, False],
    pa.float64(): [0.5, -0.0, float("inf"), 1e-300],
    pa.string(): ["", "a", "ü", "x" * 300],
    pa.binary(): [b"", b"\0PAR1\0", b"\xff" * 40],
    pa.timestamp("us"): [datetime.datetime(2024, 2, 29), datetime.datetime(1901, 1, 1)],
    pa.timestamp("us", "UTC"): [datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)],
    pa.date32(): [datetime.date(1969, 12, 31)],
    pa.decimal128(20, 3): [decimal.Decimal("-1.250"), decimal.Decimal("12345678901234567.890")],
    pa.list_(pa.int64()): [[], [1, None, 3]],
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.bool_()))]): [{"a": "x", "b": [True]}, {"a": None, "b": []}],
    pa.map_(pa.string(), pa.int64()): [[("k", 1)], []],
}


def table(rng: random.Random, schema: pa.Schema, rows: int) -> pa.Table:
    columns = [pa.array([rng.choice([*SOME[field.type], None]) for _ in range(rows)], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def joined(parts: list[bytes]) -> bytes:
    ends = [part[-footer_bytes(part[-8:]) :] for part in parts]
    return b"".join(parts) + joined_end(ends, [len(part) for part in parts])


@pytest.mark.parametrize("seed", range(25))
def test_a_joined_file_has_the_rows_of_all_parts_in_their_order(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    types = rng.choices(list(SOME), k=rng.choice([1, 3, 20]))
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(types)])
    tables = [table(rng, schema, rng.choice([0, 1, 50, 1000])) for _ in range(rng.randint(1, 20))]
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined([bytes(parquet_bytes(each)) for each in tables]))
    whole = pa.concat_tables(tables)
    assert pq.read_table(path).equals(whole)
    assert len(pd.read_parquet(path)) == whole.num_rows
    # Polars reads maps of its own kind only.
    names = [field.name for field in schema if not pa.types.is_map(field.type)]
    if names:
        assert pl.read_parquet(path, columns=names).height == whole.num_rows
    meta = pq.ParquetFile(path).metadata
    assert meta.num_rows == whole.num_rows
    starts = [meta.row_group(i).column(0).data_page_offset for i in range(meta.num_row_groups) if meta.row_group(i).num_rows]
    assert starts == sorted(starts)


def test_statistics_still_lead_readers_past_what_they_need_not_read(tmp_path: Path) -> None:
    """The row groups of a joined file are skipped by the least and greatest values that stand in its footer."""
    path = tmp_path / "joined.parquet"
    path.write_bytes(joined([bytes(parquet_bytes(pa.table({"k": list(range(n * 100, n * 100 + 100))}))) for n in range(5)]))
    statistics = [pq.ParquetFile(path).metadata.row_group(i).column(0).statistics for i in range(5)]
    assert [(s.min, s.max) for s in statistics] == [(n * 100, n * 100 + 99) for n in range(5)]
    assert pq.read_table(path, filters=[("k", "=", 250)])["k"].to_pylist() == [250]


@pytest.mark.parametrize("seed", range(10))
def test_a_footer_is_written_as_it_was_read(seed: int) -> None:
    """Nothing that we know nothing of is lost."""
    rng = random.Random(seed)
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(SOME)], metadata={"origin": "x" * seed * 100})
    data = bytes(parquet_bytes(table(rng, schema, 100)))
    footer = data[-footer_bytes(data[-8:]) : -8]
    out = bytearray()
    put_struct(out, Reader(footer).struct())
    assert bytes(out) == footer


def test_what_is_joined_is_no_longer_than_its_parts_and_one_footer() -> None:
    parts = [bytes(parquet_bytes(pa.table({"k": [n]}))) for n in range(3)]
    assert joined(parts).startswith(b"".join(parts))


def with_page_index() -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1]}), out, write_page_index=True)
    return bytes(out.getvalue())


GOOD = bytes(parquet_bytes(pa.table({"k": [1]})))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (b"", "not PAR1"),
        (GOOD[:-1], "not PAR1"),
        (b"\xff" * 100 + (90).to_bytes(4, "little") + b"PAR1", "footer"),
        (b"\x15" * 100 + (90).to_bytes(4, "little") + b"PAR1", "footer"),
        (bytes(parquet_bytes(pa.table({"k": ["text"]}))), "different columns"),
        (with_page_index(), "index of its pages"),
    ],
    ids=["empty", "cut", "garbage", "more garbage", "other columns", "page index"],
)
def test_what_cannot_be_joined_is_refused(other: bytes, why: str) -> None:
    with pytest.raises(NotJoinable, match=why):
        joined([GOOD, other])


def test_any_damage_to_a_footer_is_refused_or_harmless() -> None:
    """Reading a damaged footer ends, with a footer or with NotJoinable and nothing else."""
    rng = random.Random(os.path.basename(__file__))
    size = footer_bytes(GOOD[-8:])
    refused = 0
    for _ in range(2000):
        end = bytearray(GOOD[-size:])
        for _ in range(rng.randint(1, 3)):
            end[rng.randrange(size - 8)] = rng.randrange(256)
        try:
            joined_end([GOOD[-size:], bytes(end)], [len(GOOD), len(GOOD)])
        except NotJoinable:
            refused += 1
    assert 500 < refused < 1500
