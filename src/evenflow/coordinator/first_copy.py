"""Of an egress with replicas every one sends each epoch: the first copy counts (protocol O1)."""

from __future__ import annotations


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
