"""Of an egress with replicas every one sends each epoch: the first copy counts (protocol O1).

Where a sink takes first come, first served, that is so of each partition's rows of an epoch. Replicas may be fed by others, so that what
comes in one portion from one of them comes in several from another.
"""

from __future__ import annotations

from collections.abc import Iterable


class FirstCopy:
    """Every replica sends its epochs in order, and the same ones, so a copy is the first if its number is the highest so far.

    newest: that number.
    """

    def __init__(self) -> None:
        self.newest = 0

    def accept(self, epoch: int) -> bool:
        """Whether this is the first copy."""
        if epoch <= self.newest:
            return False
        self.newest = epoch
        return True


class FirstPortions:
    """Every replica sends each partition's epochs in order, without those that have no rows.

    newest: by stream and producer partition, the last epoch of which its rows have come.
    """

    def __init__(self) -> None:
        self.newest: dict[tuple[int, int], int] = {}

    def accept(self, stream: int, producers: Iterable[int], epoch: int) -> tuple[int, ...]:
        """Those of the partitions of which this is the first copy."""
        fresh = tuple([producer for producer in producers if self.newest.get((stream, producer), 0) < epoch])
        for producer in fresh:
            self.newest[stream, producer] = epoch
        return fresh
