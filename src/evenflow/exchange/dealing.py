"""Dealing: which partition gets which row where any of them could (River, FL 2.4; decision 32).

The place of a row among those of its producer partition and epoch says where it goes, with the plan's weights. So replicas agree without a
word, and a frame that is made again is the same (protocol E3). This file knows neither sites nor load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

GOLDEN: Final = np.uint32(2_654_435_769)
"""2^32 by the golden ratio. Its multiples modulo 2^32 lie evenly however many there are, so weights are kept to in a few rows already."""
EPOCH: Final = 2_246_822_519
PRODUCER: Final = 3_266_489_917
"""Odd numbers that let each epoch and producer partition begin somewhere else: the few rows of small epochs go everywhere in turn."""


def bounds_of(weights: Sequence[int]) -> npt.NDArray[np.uint32]:
    """uint32 (P - 1,): where one partition's share of [0, 2^32) ends and the next one's begins. weights: >= 0, not all 0."""
    ends = np.cumsum(np.array(weights, np.float64))
    bounds: npt.NDArray[np.uint32] = np.minimum(ends[:-1] / ends[-1] * 2.0**32, 2.0**32 - 1).astype(np.uint32)
    return bounds


def deal(producer: npt.NDArray[np.int32], epoch: int, shares: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """int32 (n,): the consumer partition of each row. producer: int32 (n,), those of one partition in order. shares: of `bounds_of`.

    Cost: O(n log P), and O(n log n) where several producer partitions are together.
    """
    offset = producer.astype(np.uint32) * np.uint32(PRODUCER) + np.uint32(epoch * EPOCH % 2**32)
    point = places(producer) * GOLDEN + offset
    found: npt.NDArray[np.int32] = np.searchsorted(shares, point, side="right").astype(np.int32)
    return found


def places(producer: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """uint32 (n,): how many rows of the same producer partition stand before each."""
    count = producer.size
    place = np.arange(count, dtype=np.uint32)
    if not count or (producer == producer[0]).all():
        return place
    order = np.argsort(producer, kind="stable")
    ordered = producer[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = place - np.repeat(begins, np.diff([*begins, count])).astype(np.uint32)
    found = np.empty(count, np.uint32)
    found[order] = ranks
    return found
