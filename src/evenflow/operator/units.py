"""Which rows are in units that stay: windows of a group or keys, whole or not at all, by a hash of what they are and of nothing else.

Where rows enter and behind the windows the same hash is asked, so both sides of a gate mean the same units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.hash import Hashes, hash_columns
from evenflow.plan.layout import Keys, Windows
from evenflow.stream.arrays import Int64s

_BLOCK: Final = "_block"


def unit_hashes(windows: Windows, rows: pa.RecordBatch, columns: Sequence[str], starts: Int64s) -> Hashes:
    """uint64 (n,), below 2^32: of the units of these windows, one per row of a batch. columns: with the group, as they are called there;
    starts: int64 (n,), of the windows. All windows of a group that begin in one block are of one unit."""
    block = pa.array((starts - windows.start_us) // windows.block_us)
    arrays = [*(rows.column(each) for each in columns), block]
    names = [*map(str, range(len(columns))), _BLOCK]
    return hash_columns(pa.RecordBatch.from_arrays(arrays, names), names) >> np.uint64(32)


def key_hashes(rows: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """uint64 (n,), below 2^32: of the keys of the rows, whatever the order of the columns.

    It says nothing of the hash by which rows are dealt out: of each partition's keys as large a share stays.
    """
    hashes = np.zeros(rows.num_rows, np.uint64)
    for each in columns:
        hashes += _hashed(rows.column(each))
    return _hashed(pa.array(hashes.view(np.int64))) >> np.uint64(32)


def _hashed(column: pa.Array) -> Hashes:
    return hash_columns(pa.RecordBatch.from_arrays([column], ["0"]), ["0"])


def staying(whole: Windows | Keys, rows: pa.RecordBatch, kept: int) -> npt.NDArray[np.bool_]:
    """bool (n,): whether a row is in a unit that stays, where `kept` of 2^32 do.

    So does the newest row: event time goes on as if all were here. A row without a time is in no window or session, and stays.
    """
    times = rows.column(whole.time)
    given = integers_of(times)
    if isinstance(whole, Keys):
        stays = key_hashes(rows, whole.columns) < np.uint64(kept)
    else:
        stays = _in_windows(whole, rows, given, kept)
    nulls = nulls_of(times)
    if nulls.size:
        given = np.where(nulls, np.iinfo(np.int64).min, given)
        stays |= nulls.astype(np.bool_)
    if given.size:
        stays[int(np.argmax(given))] = True
    return stays


def _in_windows(windows: Windows, rows: pa.RecordBatch, times: Int64s, kept: int) -> npt.NDArray[np.bool_]:
    slide_us, start_us = windows.slide_us, windows.start_us
    last = (times - start_us) // slide_us * slide_us + start_us
    stays = unit_hashes(windows, rows, windows.columns, last) < np.uint64(kept)
    if windows.block_us != slide_us:
        first = ((times - windows.size_us - start_us) // slide_us + 1) * slide_us + start_us
        stays |= unit_hashes(windows, rows, windows.columns, first) < np.uint64(kept)
    return stays
