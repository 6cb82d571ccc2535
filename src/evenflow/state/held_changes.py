"""What a checkpoint takes of rows that are held together: of each partition all of them, or those that it has not had as they are (K2, K3).

Where rows lie in a table a row says itself when it was written. Held rows lie in runs that are merged and cut off, so here the state of the
last whole checkpoint is remembered by its rows' imprints (see `Frozen`), eight bytes a row. What has gone is what has no imprint any more,
whether time took it, another row, or a change. Which rows of before are kept is a bit each, and so is where the new ones lie between them:
who adds them up needs to know nothing of the order in which the operator wants its rows. All of it is done beside the loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.state.apart import among
from evenflow.state.changes import parts_of
from evenflow.state.held_rows import Frozen
from evenflow.state.lineages import NOWHERE, Lineages, Point
from evenflow.stream.arrays import Bools, Int64s

MOST: Final = 0.75
"""Changes that have more of a partition's rows than this are written as all of its rows: what went before is then needed no more."""

TOGETHER_ROWS: Final = 1 << 12
"""Of several partitions that are looked at in one go. A step costs the same for a few rows as for hundreds; for many it keeps the loop."""

_LENGTHS: Final = struct.Struct("<qq")

Imprints = tuple[Int64s, ...]
"""Of a partition's rows, by side."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """What a checkpoint has of one partition: its rows if since is -1, else those that were not as they are at the end of epoch `since`.

    state: their bytes; nothing if there are none. counts: by side, how many rows the partition has. kept: by side, bool (m,), which rows of
    before are still there; new: bool (n,), which of its rows are in `state`. Both empty where all rows are.
    """

    partition: int
    since: int
    state: bytes
    counts: tuple[int, ...]
    kept: tuple[Bools, ...] = ()
    new: tuple[Bools, ...] = ()

    @property
    def rows(self) -> int:
        """In `state`."""
        return sum(self.counts) if self.since < 0 else sum(int(bits.sum()) for bits in self.new)


class HeldPart:
    """Some partitions as of a capture, to be read once, in any thread. before: the imprints of those of which only changes are wanted.
    known: where the imprints of all are put down. gone: what nobody needs any more; to give so much memory back takes a while, which is
    for the thread that reads."""

    def __init__(
        self,
        sides: Sequence[Frozen],
        since: Mapping[int, Point],
        before: Mapping[int, Imprints],
        known: dict[int, Imprints],
        gone: Sequence[Mapping[int, Imprints]] = (),
    ) -> None:
        self.since, self.sides = dict(since), len(sides)
        self._frozen, self._before, self._known, self._gone = tuple(sides), before, known, gone

    def read(self, rest: Callable[[], None] = lambda: None) -> list[HeldPartition]:
        """By partition, ascending. rest: is called now and then, to give way. After that the rows may be forgotten."""
        found = []
        for side in self._frozen:
            side.take_apart(rest)
        for some in self._together():
            for side in self._frozen if len(some) > 1 else ():  # Of one alone, which may be large, not all rows may be wanted.
                side.prepare(some)
            for partition in some:
                found.append(self._of(partition))
                rest()
        self._frozen, self._before, self._gone = (), {}, ()
        return found

    def _together(self) -> Iterator[list[int]]:
        """The partitions, ascending: those in one go that have few rows together."""
        some, rows = list[int](), 0
        for partition in sorted(self.since):
            mine = sum(side.count_of(partition) for side in self._frozen)
            if some and rows + mine > TOGETHER_ROWS:
                yield some
                some, rows = [], 0
            some.append(partition)
            rows += mine
        if some:
            yield some

    def _of(self, partition: int) -> HeldPartition:
        imprints = tuple(side.imprints(partition) for side in self._frozen)
        self._known[partition] = imprints
        counts = tuple(each.size for each in imprints)
        before = self._before.get(partition)
        if before is not None:
            kept = tuple(among(old, now) for old, now in zip(before, imprints, strict=True))
            new = tuple(~among(now, old) for old, now in zip(before, imprints, strict=True))
            sides = zip(before, imprints, kept, new, strict=True)
            few_stay = sum(int(bits.sum()) for bits in new) >= MOST * sum(counts)
            if not few_stay and all(np.array_equal(old[stay], now[~come]) for old, now, stay, come in sides):
                since = self.since[partition].epoch
                return HeldPartition(partition, since, self._bytes(partition, new), counts, kept, new)
        # Hardly any row stayed, or those that did lie in another order than before, or there is nothing to add them to.
        return HeldPartition(partition, -1, self._bytes(partition, tuple(np.ones(count, np.bool_) for count in counts)), counts)

    def _bytes(self, partition: int, wanted: Sequence[Bools]) -> bytes:
        which = [np.flatnonzero(bits) for bits in wanted]
        return packed([side.some_to_bytes(partition, some) if some.size else b"" for side, some in zip(self._frozen, which, strict=True)])


class HeldChanges:
    """Of the rows that an operator holds: what the next checkpoint has to have. sides: what is held now, frozen; count: how many there are.

    _known: by epoch, of the checkpoints at whose end lineages may go on, the imprints of each partition; those of one that is under way
    come when it is read. _installed: of partitions that have come since the last epoch, which may be those of a checkpoint.
    """

    def __init__(self, sides: Callable[[], Sequence[Frozen]], count: int = 1) -> None:
        self.lineages = Lineages()
        self._sides, self._count = sides, count
        self._known: dict[int, dict[int, Imprints]] = {}
        self._installed: dict[int, Imprints] = {}

    def count_of(self, partition: int) -> int:
        return sum(side.count_of(partition) for side in self._sides())

    def capture_changes(self, number: int, epoch: int, partitions: Sequence[int], bases: Collection[int]) -> list[HeldPart]:
        """As of a table (see `PagedTable.capture_changes`). Copies nothing."""
        old = self.lineages.since
        since = {p: NOWHERE if p in bases else old.get(p, NOWHERE) for p in partitions}
        before = {p: self._known[point.epoch][p] for p, point in since.items() if point != NOWHERE}
        known = self._known.get(epoch, {})
        needed = sorted({point.epoch for point in old.values()})
        gone = [self._known[each] for each in self._known if each not in (*needed, epoch)]
        self._known = {each: self._known[each] for each in needed} | {epoch: known}
        self._installed.clear()
        self.lineages.capture(number, partitions, Point(epoch, 0))
        sides = tuple(self._sides())
        rows = {p: sum(side.count_of(p) for side in sides) for p in partitions}
        return [HeldPart(sides, of, {p: before[p] for p in of if p in before}, known, gone) for of in parts_of(since, rows)]

    def restored(self, epoch: int, partitions: Collection[int]) -> set[int]:
        """These partitions were installed as a checkpoint of the end of `epoch` has them, and nobody has written since. Returns which of
        them the next one may go on from."""
        here = {p: self._installed[p] for p in partitions if p in self._installed}
        self._known[epoch] = {**self._known.get(epoch, {}), **here}
        self.lineages.since |= dict.fromkeys(here, Point(epoch, 0))
        return set(here)

    def installed(self, partition: int, imprints: Int64s, side: int = 0) -> None:
        """Rows of a partition have come for one side of it, in their order."""
        sides = list(self._installed.get(partition, [np.zeros(0, np.int64)] * self._count))
        sides[side] = imprints
        self._installed[partition] = tuple(sides)

    def go_on(self) -> None:
        """An epoch is worked on: what was installed before and has not been said to be a checkpoint's has come by a copy. Where no lineage
        may go on, since others write, nobody asks for imprints any more."""
        self._installed.clear()
        if self._known and self.lineages.ended:
            self._known.clear()

    def state_bytes(self) -> int:
        """Memory that the imprints take."""
        held = [imprints for known in (*self._known.values(), self._installed) for imprints in list(known.values())]
        return sum(side.nbytes for imprints in held for side in imprints)

    def forget(self, partition: int) -> None:
        """It leaves, or comes anew."""
        self.lineages.forget(partition)
        self._installed.pop(partition, None)


# ---------------------------------------------------------------- sides as bytes


def packed(sides: Sequence[bytes]) -> bytes:
    """One side, or two, as the bytes of a state; nothing if there are no rows at all."""
    if not any(sides) or len(sides) == 1:
        return sides[0]
    left, right = sides
    return b"".join((_LENGTHS.pack(len(left), len(right)), left, right))  # Which lets go of the interpreter where they are large.


def unpacked(state: bytes, sides: int = 2) -> tuple[bytes, ...]:
    """The inverse; nothing where a side has no rows."""
    if sides == 1 or not state:
        return (state,) * sides
    left, right = _LENGTHS.unpack_from(state)
    at = _LENGTHS.size
    if len(state) != at + left + right:
        raise ValueError(f"its sides have {left} and {right} bytes of {len(state) - at}")
    return state[at : at + left], state[at + left :]
