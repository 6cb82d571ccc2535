"""Since when a checkpoint has to have the rows of a table's partitions: of each partition, as of the last checkpoint that became whole.

A partition has a lineage from the first checkpoint on that has all of its rows, until it leaves the table, comes back, or is divided: what
it was is nothing that later rows could be added to, since they lie elsewhere. Values only; who reads rows is `changes`, and where they
are stored nobody here knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from evenflow.stream.arrays import Int64s


class Point(NamedTuple):
    """A partition as of a capture. epoch: at the end of which. mark: the newest that any row of the table had."""

    epoch: int
    mark: int


NOWHERE: Final = Point(-1, 0)
"""Before every row."""


class Lineages:
    """Of one table. since: by partition, the last checkpoint that became whole with it. laid: by partition that has come from such a
    checkpoint, and that none since then has: the pages in which its rows were laid, in their order there."""

    def __init__(self) -> None:
        self.since: dict[int, Point] = {}
        self.laid: dict[int, Int64s] = {}
        self._number = 0
        self._captured: dict[int, Point] = {}

    def restore(self, point: Point, laid: Mapping[int, Int64s]) -> None:
        """These partitions are as the checkpoint of that epoch had them, with the rows where they lie now."""
        self.since |= dict.fromkeys(laid, point)
        self.laid |= laid

    def capture(self, number: int, partitions: Iterable[int], point: Point) -> None:
        """Checkpoint `number` has these partitions as of now. Until it is whole the next one begins where this one did."""
        if number != self._number:
            self._number, self._captured = number, {}
        self._captured |= dict.fromkeys(partitions, point)

    def complete(self, number: int) -> None:
        """The checkpoint is whole. Partitions that were not in it have no lineage any more: nothing that is kept may have their base."""
        self.since = self._captured if number == self._number else {}
        self._number, self._captured, self.laid = 0, {}, {}

    @property
    def ended(self) -> bool:
        """There is none, and no checkpoint under way that would begin one."""
        return not self.since and not self._captured

    def forget(self, partition: int) -> None:
        """Its rows are no more what they were."""
        for of in (self.since, self.laid, self._captured):
            of.pop(partition, None)
