"""What was left out of a run's sources, as its sites tell it (D5): every replica tells of every epoch, and each counts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.entries import Key, LeftOut
from evenflow.exchange.shedding import ALL
from evenflow.plan.layout import Layout
from evenflow.site.facts import RowsShed

REMEMBERED: Final = 100_000
"""Epochs of a partition of which is known what was left out; of older ones only how much."""
CALM_EPOCHS: Final = 256
"""After so many epochs in which nothing was left out of a source, that is over, and it is news if something is again."""


@dataclass(slots=True)
class Spell:
    """From when rows of a source are left out, until none have been for a while. first, last: epochs. begun_us, ended_us: when the earliest
    and the latest of these epochs were cut, wall clock. dropped: rows."""

    first: int
    last: int
    begun_us: int
    ended_us: int
    dropped: int = 0

    def take(self, said: RowsShed) -> None:
        self.first, self.last = min(self.first, said.epoch), max(self.last, said.epoch)
        self.begun_us, self.ended_us = min(self.begun_us, said.stamp), max(self.ended_us, said.stamp)
        self.dropped += sum(said.dropped)


@dataclass(slots=True)
class Ledger:
    """before: what was left out in epochs that the run does not begin with, as the journal says it. dropped, kept: rows of each source's
    segment in the epochs since in which some were left out."""

    before: Mapping[Key, LeftOut] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    _told: dict[Key, dict[int, RowsShed]] = field(default_factory=dict)
    _forgotten: dict[Key, int] = field(default_factory=dict)
    _spells: dict[int, Spell] = field(default_factory=dict)

    def take(self, said: RowsShed) -> bool:
        """Whether that is the first time after a calm that rows of this source are left out."""
        key = (said.segment, said.partition)
        told = self._told.setdefault(key, {})
        if said.epoch in told or said.epoch <= self._forgotten.get(key, 0):
            return False  # Another replica has told it.
        told[said.epoch] = said
        if len(told) > REMEMBERED:
            self._forgotten[key] = oldest = min(told)
            del told[oldest]
        self.dropped[said.segment] = self.dropped.get(said.segment, 0) + sum(said.dropped)
        self.kept[said.segment] = self.kept.get(said.segment, 0) + said.kept
        is_first = said.segment not in self._spells
        self._spells.setdefault(said.segment, Spell(said.epoch, said.epoch, said.stamp, said.stamp)).take(said)
        return is_first

    def ended(self, seen: int) -> dict[int, Spell]:
        """By ingress segment, what is over with this epoch. Told once."""
        found = {segment: spell for segment, spell in self._spells.items() if seen > spell.last + CALM_EPOCHS}
        return found if not found else self._end(found)

    def ended_all(self) -> dict[int, Spell]:
        """What is over since the run is. Told once."""
        return self._end(dict(self._spells))

    def _end(self, spells: dict[int, Spell]) -> dict[int, Spell]:
        for segment in spells:
            del self._spells[segment]
        return spells

    def __iter__(self) -> Iterator[RowsShed]:
        """What is remembered, by partition and epoch."""
        for _, told in sorted(self._told.items()):
            yield from (told[epoch] for epoch in sorted(told))

    def totals(self) -> dict[int, int]:
        """Rows that were left out, by ingress segment. From any thread."""
        return dict(self.dropped)


SHED: Final = pa.schema(
    [
        ("source", pa.string()), ("partition", pa.int32()), ("epoch", pa.int64()), ("first", pa.int64()), ("end", pa.int64()),
        ("keep", pa.list_(pa.float64())), ("kept", pa.int64()), ("dropped", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def shed_table(layout: Layout, told: Iterable[RowsShed], before: Mapping[Key, LeftOut]) -> pa.Table:
    """One row per partition of a source and epoch in which rows were left out. first, end: positions of what the source gave, the latter
    of the row behind. keep: by value class, which share was kept; dropped: by value class, rows.

    Where the run goes on at a checkpoint, what was left out before it is one row per partition, with the last such epoch, and without
    positions and shares (null), which the journal has no more.
    """
    rows: list[tuple[Any, ...]] = [
        (layout.segments[segment].source or "", partition, gone.epoch, None, None, None, gone.kept, list(gone.dropped))
        for (segment, partition), gone in sorted(before.items())
    ]
    rows += [
        (
            layout.segments[said.segment].source or "",
            said.partition,
            said.epoch,
            said.first,
            said.taken,
            [each / ALL for each in said.keep],
            said.kept,
            list(said.dropped),
        )
        for said in told
    ]
    return pa.Table.from_pylist([dict(zip(SHED.names, row, strict=True)) for row in rows], schema=SHED)
