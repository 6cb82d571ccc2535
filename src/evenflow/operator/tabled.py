"""State in a table: what operators whose whole state is the rows of one `PagedTable` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.table import PAGE
from evenflow.operator.operator import Changing
from evenflow.state.deadlines import Deadlines
from evenflow.state.page_snapshot import State, divide_pages
from evenflow.state.pages import PIECE_PAGES, PagedTable
from evenflow.state.snapshot import Snapshot
from evenflow.stream.arrays import Int64s


class Tabled(Changing):
    """Mixin: `_table` is all the state that there is. Who has something of it at hand in another form overrides `_installed` and `drop`.

    shares: rows are looked at by their keys only, and nothing is kept beside them, so that several instances may have one table, each with
    partitions of its own.
    """

    _table: PagedTable
    _guest = False
    shares = False

    @property
    def declared(self) -> Sequence[Any]:
        """What the table's rows have, in JSON's words, where that is for the user's code to say: a checkpoint bears it."""
        return ()

    @property
    def table(self) -> PagedTable:
        return self._table

    @property
    def changes(self) -> PagedTable:
        return self._table

    @property
    def object_types(self) -> Sequence[pa.DataType]:
        """Types of the objects that a row of the table has beside its words."""
        return self._table.object_types

    def capture(self, partition: int) -> Snapshot | None:
        return self._table.capture(partition)

    def install(self, partition: int, state: State) -> None:
        for _ in self.installing(partition, state):
            pass

    def installing(self, partition: int, state: State) -> Iterator[int]:
        """`install` in bounded pieces, between which epochs of other partitions may be processed: about how many bytes each took."""
        for slots in self._table.installing(partition, state):
            if slots.size:
                self._installed(slots)
            yield (slots.size or PIECE_PAGES * PAGE) * self._table.width * 8

    def expect(self, rows: int) -> None:
        """So many rows are about to be installed; `filled` says when all of them are."""
        if not self._table.count:
            for _ in self._table.growing(rows):
                pass  # In one step.
            self._table.reserve(rows)
            self._table.arena.in_small_pages(True)

    def filled(self) -> None:
        """What was expected is here."""
        self._table.arena.in_small_pages(False)

    def share(self, other: Tabled) -> None:
        """Have one table with another instance that is the same box at the same site, from the beginning on: whose rows are installed here
        need not be moved when its partitions are to be the other's. Not while either works in another thread."""
        if self.shares:
            self._table, self._guest = other._table, True

    def shares_with(self, other: Tabled) -> bool:
        return self._table is other._table

    def settle(self) -> None:
        """It is a guest no longer."""
        self._guest = False

    def absorb(self, partition: int, other: Tabled) -> None:
        """Take over a partition of another instance in this process. It must not be here yet, and goes on there no more."""
        if other._table is not self._table and other._table.count_of(partition):
            self._installed(self._table.absorb(partition, other._table))

    def _installed(self, slots: Int64s) -> None:
        """These rows have come with a partition. int64, distinct, at least one."""

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        return divide_pages(states, groups, self._table.width, self._table.object_types)

    def drop(self, partition: int) -> None:
        self._table.drop(partition)

    def give_back(self) -> bool:
        """Give back some memory of dropped partitions. Whether there is more of it."""
        return self._table.give_back()

    def state_bytes(self) -> int:
        """0 for a guest in another's table: who has it counts it."""
        return 0 if self._guest else self._table.state_bytes()

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        return self._table.partition_bytes(partitions)


class Expiring(Tabled):
    """Mixin: rows of the table fall due, by `_deadlines`. Who installs rows sets theirs."""

    _deadlines: Deadlines

    def drop(self, partition: int) -> None:
        super().drop(partition)
        if self._table.count == 0:
            self._deadlines.clear()
