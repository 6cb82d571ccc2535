"""What a move stalls: gaps in the output of the partition that moves, and in that of the others, beside those of a calm time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from evenflow.bench.delivered import rounded
from evenflow.stream.arrays import Floats, Int64s

AFTER_US = 200_000
"""A move's effects on the output may come so much later: what it takes from the coordinator's word to a sink."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One move. asked_us, over_us: when it was asked for and when it was known to be over, by the clock of the outputs. size: bytes."""

    partition: int
    source: int
    target: int
    asked_us: int
    over_us: int
    size: int


class Outputs:
    """When each partition put something out. at_us: int64 (n,), ascending. partition: int32 (n,), of each row."""

    def __init__(self, at_us: Int64s, partition: npt.NDArray[np.int32], partitions: int) -> None:
        order = np.lexsort((at_us, partition))
        edges = np.searchsorted(partition[order], np.arange(partitions + 1))
        self._moments = [np.unique(at_us[order[first:last]]) for first, last in pairwise(edges)]

    def gaps_ms(self, partition: int, begin_us: int, end_us: int) -> Floats:
        """Between two outputs of the partition that follow each other, where some of the time lies between these moments. Where it puts
        nothing out any more, the last gap is as long as the rest of that time."""
        moments = self._moments[partition]
        first = max(0, int(np.searchsorted(moments, begin_us, side="right")) - 1)
        last = int(np.searchsorted(moments, end_us)) + 1
        some = moments[first:last]
        if some.size == 0 or some[-1] < end_us:
            some = np.append(some if some.size else begin_us, end_us)
        gaps: Floats = np.diff(some) / 1e3
        return gaps

    def longest_ms(self, partitions: list[int], begin_us: int, end_us: int) -> float:
        return float(max((self.gaps_ms(partition, begin_us, end_us).max(initial=0.0) for partition in partitions), default=0.0))


def judged(outputs: Outputs, partitions: int, calm: tuple[int, int], moves: list[Moved]) -> dict[str, Any]:
    """The report. calm: from when to when nothing moved, before the moves. Times in milliseconds.

    usual_ms, usual_p99_ms: of the gaps in the calm time. usual_longest_ms: the longest of any partition in a stretch of it as long as a
    move, the median of such stretches: what a longest gap is without a move. stall_ms: the longest gap of the partition that moved, less
    the usual one. others_ms: the longest gap of any other one, nothing taken away; others_over_usual: the median of these over
    usual_longest_ms.
    """
    everybody = list(range(partitions))
    usual = np.concatenate([outputs.gaps_ms(partition, *calm) for partition in everybody])
    usual_ms = float(np.median(usual))
    length_us = int(np.median([move.over_us - move.asked_us + AFTER_US for move in moves]))
    stretches = [outputs.longest_ms(everybody, at, at + length_us) for at in range(calm[0], calm[1] - length_us + 1, length_us)]
    told = [_told(outputs, everybody, move, usual_ms) for move in moves]
    stalls, others = [move["stall_ms"] for move in told], [move["others_ms"] for move in told]
    return {
        "usual_ms": rounded(usual_ms),
        "usual_p99_ms": rounded(float(np.percentile(usual, 99))),
        "usual_longest_ms": rounded(float(np.median(stretches)) if stretches else float("nan")),
        "bytes_p50": int(np.median([move.size for move in moves])),
        "move_ms_p50": rounded(float(np.median([move["ms"] for move in told]))),
        "stall_ms_p50": rounded(float(np.median(stalls))),
        "stall_ms_max": rounded(max(stalls)),
        "others_ms_p50": rounded(float(np.median(others))),
        "others_ms_max": rounded(max(others)),
        "others_over_usual": round(float(np.median(others) / np.median(stretches)), 3) if stretches else None,
        "moves": told,
    }


def _told(outputs: Outputs, everybody: list[int], move: Moved, usual_ms: float) -> dict[str, Any]:
    begin, end = move.asked_us, move.over_us + AFTER_US
    longest = outputs.longest_ms([move.partition], begin, end)
    others = outputs.longest_ms([partition for partition in everybody if partition != move.partition], begin, end)
    return {
        "partition": move.partition,
        "source": move.source,
        "target": move.target,
        "bytes": move.size,
        "ms": rounded((move.over_us - move.asked_us) / 1e3),
        "stall_ms": rounded(max(0.0, longest - usual_ms)),
        "others_ms": rounded(others),
    }
