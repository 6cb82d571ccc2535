"""State in a table: what operators whose whole state is the rows of one `PagedTable` have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenflow.operator.deadlines import Deadlines
from evenflow.operator.operator import Snapshot
from evenflow.operator.page_snapshot import divide_pages
from evenflow.operator.pages import PagedTable

Int64s = npt.NDArray[np.int64]


class Tabled:
    """Mixin: `_table` is all the state that there is. Who keeps something beside it overrides `_installed` and `drop`."""

    _table: PagedTable

    def capture(self, partition: int) -> Snapshot | None:
        return self._table.capture(partition)

    def install(self, partition: int, state: bytes) -> None:
        self._installed(self._table.install(partition, state))

    def absorb(self, partition: int, other: Tabled) -> None:
        """Take over a partition of another instance in this process. It must not be here yet, and goes on there no more."""
        if other._table.count_of(partition):
            self._installed(self._table.absorb(partition, other._table))

    def _installed(self, slots: Int64s) -> None:
        """These rows have come with a partition. int64, distinct, at least one."""

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        return divide_pages(states, groups, self._table.width, self._table.object_types)

    def drop(self, partition: int) -> None:
        self._table.drop(partition)

    def state_bytes(self) -> int:
        return self._table.state_bytes()

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        return self._table.partition_bytes(partitions)


class Expiring(Tabled):
    """Mixin: rows of the table fall due, by `_deadlines`. Who installs rows sets theirs."""

    _deadlines: Deadlines

    def drop(self, partition: int) -> None:
        super().drop(partition)
        if self._table.count == 0:
            self._deadlines.clear()
