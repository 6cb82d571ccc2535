"""Readers that know nothing of Evenflow see whole epochs, in order, whenever they look and wherever a process has died."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pytest

from evenflow.sinks.closings import read_committed

from .dying import EPOCHS, Dying, rows_through


def by_arrow(path: Path) -> Any:
    return ds.dataset(path, format="parquet").to_table().to_pandas()


def by_pandas(path: Path) -> Any:
    return pd.read_parquet(path)


def by_polars(path: Path) -> Any:
    return pl.read_parquet(path / "*.parquet").to_pandas()


def by_duckdb(path: Path) -> Any:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    return duckdb.sql(f"SELECT * FROM read_parquet('{path}/*.parquet')").df()


READERS: dict[str, Callable[[Path], Any]] = {"pyarrow": by_arrow, "pandas": by_pandas, "polars": by_polars}
if importlib.util.find_spec("duckdb") is not None:
    READERS["duckdb"] = by_duckdb


def seen_through(path: Path, read: Callable[[Path], Any]) -> int:
    """The last epoch whose rows a reader sees. Fails unless it sees exactly the rows up to the end of that one."""
    if not any(path.glob("*.parquet")):
        return 0
    frame = read(path)
    rows = sorted(zip(frame["epoch"].tolist(), frame["partition"].tolist(), strict=True))
    assert rows == rows_through(rows[-1][0]), path
    return int(rows[-1][0])


LONG = [(first, 4, file_ms) for file_ms in (0, 2) for first in (1, 2, 3, 4)]


@pytest.mark.parametrize(("first", "every", "file_ms"), [(1, 12, 2), *LONG])
@pytest.mark.conformance
def test_wherever_a_committing_process_is_killed_plain_readers_see_whole_epochs(
    tmp_path: Path, first: int, every: int, file_ms: int
) -> None:
    """Also one that reads all the time. A successor goes on; in the end everything is there once. file_ms: then the last two of three
    commits are one file."""
    failed: list[BaseException] = []
    over, looks = threading.Event(), 0

    def read_on() -> None:
        nonlocal looks
        try:
            while not over.wait(0.002):
                for path in sorted(tmp_path.iterdir())[-2:]:
                    seen_through(path, by_arrow)
                    looks += 1
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=read_on)
    reader.start()
    dying = Dying(tmp_path, first, every, file_ms)
    seen = []
    try:
        for path in dying:
            found = {name: seen_through(path, read) for name, read in READERS.items()}
            assert len(set(found.values())) == 1, found
            seen.append(found["pyarrow"])
    finally:
        over.set()
        reader.join()
    assert failed == []
    assert looks > 0
    if every < 12:
        assert set(seen) == ({0, 1, EPOCHS} if file_ms else {0, 1, 3, EPOCHS})  # It died before, between and after all commits.
    assert len(dying.finished) == dying.kills > 50 // every
    for path in dying.finished:
        assert [seen_through(path, read) for read in READERS.values()] == [EPOCHS] * len(READERS)
        assert read_committed(str(path)).num_rows == len(rows_through(EPOCHS))
        assert len(list(path.glob("*.parquet"))) == (2 if file_ms else 3)
        assert [name for name in (path / "_staging").iterdir() if not name.name.startswith(".")] == []
