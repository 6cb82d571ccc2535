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
    """Mixin: `_table` is all the state that there is. Who keeps something beside it overrides `install` and `drop`."""

    _table: PagedTable

    def capture(self, partition: int) -> Snapshot | None:
        return self._table.capture(partition)

    def install(self, partition: int, state: bytes) -> None:
        self._table.install(partition, state)

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
