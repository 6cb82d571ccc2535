"""Since when a checkpoint has to have the rows of a table's partitions: of each partition, as of the last checkpoint that became whole.

A partition has a lineage from the first checkpoint on that has all of its rows, until it leaves the table, comes back, or is divided: what
it was is nothing that later rows could be added to, since they lie elsewhere. Values only; who reads rows is `changes`, and where they
are stored nobody here knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class Point(NamedTuple):
    """A partition as of a capture. epoch: at the end of which. mark: the newest that any row of the table had."""

    epoch: int
    mark: int


NOWHERE: Final = Point(-1, 0)
"""Before every row."""


class Lineages:
    """Of one table. since: by partition, the last checkpoint that became whole with it."""

    def __init__(self) -> None:
        self.since: dict[int, Point] = {}
        self._number = 0
        self._captured: dict[int, Point] = {}

    def capture(self, number: int, partitions: Iterable[int], point: Point) -> None:
        """Checkpoint `number` has these partitions as of now. Until it is whole the next one begins where this one did."""
        if number != self._number:
            self._number, self._captured = number, {}
        self._captured |= dict.fromkeys(partitions, point)

    def complete(self, number: int) -> None:
        """The checkpoint is whole. Partitions that were not in it have no lineage any more: nothing that is kept may have their base."""
        self.since = self._captured if number == self._number else {}
        self._number, self._captured = 0, {}

    def forget(self, partition: int) -> None:
        """Its rows are no more what they were."""
        self.since.pop(partition, None)
        self._captured.pop(partition, None)
