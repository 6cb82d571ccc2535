"""The rows of the benchmarks as Parquet files, so that two systems can read the same ones.

A row is that of `evenflow.sources.generator`: key, ts, value and p0..p5 of eight bytes and a price, 80 bytes in all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.sources.generator import SCHEMA, GeneratorSource

ROW_BYTES: Final = 80
BATCH_ROWS: Final = 1 << 16

Distribution = Literal["uniform", "zipf"]


def write_rows(path: Path, rows: int, keys: int, distribution: Distribution, files: int) -> list[Path]:
    """Write `rows` rows in `files` Parquet files of equal size under `path`, and return the files in order.

    Plain encoding and no compression: what is fastest to read for both sides, 80 bytes per row on disk. Key i is drawn from 0..keys-1,
    uniformly or with probability proportional to (i + 1) ** -1.2. The same arguments give the same rows.
    """
    path.mkdir(parents=True, exist_ok=True)
    source = GeneratorSource(keys=keys, distribution=distribution, rows=rows)
    written = []
    for number in range(files):
        reader, batches = source.open(number, files), []
        while not reader.ended:
            batch = reader.read(0, BATCH_ROWS)
            if batch is not None:
                batches.append(batch)
        written.append(path / f"rows-{number:05d}.parquet")
        table = pa.Table.from_batches(batches, schema=SCHEMA)
        pq.write_table(table, written[-1], compression="none", use_dictionary=False, row_group_size=1 << 22)
    return written


def link_copies(files: list[Path], path: Path, copies: int) -> list[Path]:
    """Offer the same files `copies` times under `path` without writing them again (hard links, same file system)."""
    path.mkdir(parents=True, exist_ok=True)
    linked = []
    for copy in range(copies):
        for file in files:
            linked.append(path / f"{copy:04d}-{file.name}")
            os.link(file, linked[-1])
    return linked
