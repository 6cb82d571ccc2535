"""What an operator owes the engine, and nothing more.

An operator folds one epoch of rows into its state and returns what comes out of it. It knows nothing about sites, replicas,
failures, threads, clocks or Spark. Its state belongs to partitions: it can capture, install and drop any one of them between
two epochs, and nobody can tell from the output (the law in tests/operator/test_laws.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.plan.layout import Keys, Windows
from evenflow.state.lineages import Lineages
from evenflow.state.snapshot import Snapshot
from evenflow.state.storing import Part
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

NEVER_US: Final = 2**63 - 1
"""A stamp that no epoch has."""


class Partitioned(Protocol):
    """What belongs to partitions that come and go.

    schemas: the schema of each output port. Port 0 is the result; port 1, where there is one, has the late rows (of a join: the left's;
    port 2 the right's). The last port of an operator that goes on without the rows on which it raises has those. What else the engine
    may know of an operator it says by a mixin: `Timeless`, `Timed`, `Late`, `Failing`, `End` (see `facts`).
    """

    schemas: tuple[pa.Schema, ...]

    def capture(self, partition: int) -> Snapshot | None:
        """The partition's state, or None if it has none."""

    def install(self, partition: int, state: bytes) -> None:
        """Take over a partition whose state was captured elsewhere. It must not be here yet."""

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        """Captured states of several partitions, at least one, divided anew: by the partition that owns their keys from now on, as bytes.

        groups: int32 (G,), the partition of each key group (protocol E1). A function of its arguments alone, in the order of the states; a
        partition that gets nothing is left out. Cost: O(rows in them).
        """

    def drop(self, partition: int) -> None:
        """Forget a partition."""

    def state_bytes(self) -> int:
        """Memory held by the state, in bytes."""

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """About how many bytes of state each of these partitions has: what a copy would bring. int64 (p,) in and out.

        Cheap, for statistics that are always on; may be called while an epoch runs in another thread.
        """


class Operator(Partitioned, Protocol):
    """One running box on one site."""

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        """Fold one epoch and return one `Rows` per output port, rows of a partition in a deterministic order.

        Called for every epoch, also with no rows (time may still close windows). Must be bitwise a function of each
        partition's own state and input (E3). A stateless operator keeps `partition` (and `hash` where the key columns survive).
        """


class TwoSided(Partitioned, Protocol):
    """A box with two inputs of its own, which differ in their columns: the left and the right of a join."""

    def process_sides(self, left: Rows, right: Rows, tick: Tick) -> tuple[Rows, ...]:
        """The same as `Operator.process`, for an epoch of both inputs."""


class Timeless:
    """Mixin: an epoch without rows changes nothing and puts nothing out, so a partition whose state is on disk can stay there. timeless:
    false where that depends on how the box was built, and does not hold."""

    timeless: bool = True


class Timed:
    """Mixin: there is something to do at some stamp, and an epoch closes then, even without rows."""

    def next_us(self, stamp: int) -> int:
        """The least stamp after this one at which there is; NEVER_US if there is none."""
        raise NotImplementedError


class Reaching:
    """Mixin: its state closes. What it puts out depends on rows of some past only; older ones have left its state for good (HW 3.2.2).
    by_watermark: how far back follows from the watermark alone, and not from the state."""

    by_watermark: bool = True

    def oldest_us(self, watermark: int) -> int:
        """Rows with an event time before that have no effect any more on what it puts out in later epochs. watermark: at the end of the
        epoch that it has processed last, below END_OF_STREAM."""
        raise NotImplementedError


class Late:
    """Mixin: rows that come after the watermark are left out. late_rows: how many, so far."""

    late_rows: int = 0


class Shown:
    """Mixin: its state can be looked at as rows and columns. A property that an operator computes is read when somebody looks, and no epoch
    pays for it."""

    @property
    def shown(self) -> pa.Schema:
        """The columns, those of the query by their names. Names that the engine has made up begin with `_`."""
        raise NotImplementedError

    def show(self, partition: int) -> pa.RecordBatch:
        """All that is kept of a partition that is here, a row per key, window, match or row that waits. Changes nothing."""
        raise NotImplementedError


class Failing:
    """Mixin: it goes on without the rows on which it raises. failed: the partition of each of them, in the last epoch. keeps: how many of
    the newest are kept, with what was raised; kept: these, as texts."""

    failed: tuple[int, ...] = ()
    keeps: int = 0
    kept: tuple[tuple[str, str], ...] = ()


class End:
    """Mixin: rows end here, in a sink. stored: epochs of which rows were stored by the last `process`; ended: how many rows, by partition
    that counts them: (partition, rows)."""

    stored: tuple[int, ...] = ()
    ended: tuple[tuple[int, int], ...] = ()


class Gated:
    """Mixin: it holds back results that are parts, since rows of them were left out under overload. whole: what goes whole or stays.
    around_us: how far before a result a row may be that would have been in it; 0 for windows."""

    whole: Windows | Keys
    around_us: int


class Changes(Protocol):
    """State that a checkpoint may have in part: what has changed since the last one that became whole. lineages: since which."""

    lineages: Lineages

    def count_of(self, partition: int) -> int:
        """How many rows it has of this partition; not fewer."""

    def capture_changes(self, number: int, epoch: int, partitions: Sequence[int], bases: Collection[int]) -> Sequence[Part]:
        """What checkpoint `number`, of the end of `epoch`, takes of these partitions: all rows of those in `bases` and of those without a
        lineage, of the others what has changed since. Copies nothing."""

    def restored(self, epoch: int, partitions: Collection[int]) -> set[int]:
        """These partitions were installed as a checkpoint of the end of `epoch` has them, and nothing has changed since. Returns which of
        them the next one may go on from."""


class Changing:
    """Mixin: all its state is rows, of which a checkpoint may have those only that have changed."""

    @property
    def changes(self) -> Changes:
        raise NotImplementedError


class Unkeyed:
    """Mixin: what an operator keeps, if anything, belongs to a partition and to no key, so no other partition can take any of it."""

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        raise AssertionError("there are no keys to divide this by")


class Stateless(Unkeyed, Timeless):
    """Mixin: an operator whose output is a function of each row alone."""

    def capture(self, partition: int) -> Snapshot | None:
        return None

    def install(self, partition: int, state: bytes) -> None:
        raise AssertionError("a stateless operator has no state to install")

    def drop(self, partition: int) -> None:
        return None

    def state_bytes(self) -> int:
        return 0

    def partition_bytes(self, partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.zeros(partitions.size, np.int64)


__all__ = ["Operator", "Partitioned", "Rows", "Sequence", "Stateless", "Tick", "TwoSided", "Unkeyed"]
