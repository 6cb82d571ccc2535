"""Which rows of a source stay where some are left out, by their places alone: whoever knows the places knows the rows."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

ALL_BITS: Final = 32
"""A share is in parts of 2 to this power."""
_GOLDEN, _M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def place_hashes(source: str, partition: int, positions: Positions) -> npt.NDArray[np.uint64]:
    """uint64 (n,), below 2^32: of the places of these rows (the finaliser of SplitMix64)."""
    word = (positions.astype(np.uint64) + np.uint64(crc32(f"{source}/{partition}".encode()) << 31)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _M1
    word = (word ^ (word >> np.uint64(27))) * _M2
    return (word ^ (word >> np.uint64(31))) >> np.uint64(64 - ALL_BITS)
