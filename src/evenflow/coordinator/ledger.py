"""What was left out of a run's sources, as its sites tell it (D5): every replica tells of every epoch, and each counts once."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.entries import Key, LeftOut
from evenflow.coordinator.thinnings import Thinnings
from evenflow.exchange.shedding import ALL
from evenflow.plan.layout import Layout
from evenflow.site.facts import RowsShed
from evenflow.sources.dropped import METADATA

REMEMBERED: Final = 100_000
"""Epochs of all partitions together of which is known what was left out, some 300 bytes each; of older ones only how much, by partition."""
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
    """before: what was left out in epochs that the run does not begin with, as the journal says it. forgotten: the same of epochs since
    that are not remembered. dropped, kept: rows of each source's segment in the epochs since in which some were left out. arcs: what was
    left out of arcs."""

    before: Mapping[Key, LeftOut] = field(default_factory=dict)
    forgotten: dict[Key, LeftOut] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    arcs: Thinnings = field(default_factory=Thinnings)
    _told: dict[Key, dict[int, bytes]] = field(default_factory=dict)
    _order: deque[tuple[Key, int]] = field(default_factory=deque)
    _spells: dict[int, Spell] = field(default_factory=dict)

    def take(self, said: RowsShed) -> bool:
        """Whether that is the first time after a calm that rows of this source are left out."""
        key = (said.segment, said.partition)
        told = self._told.setdefault(key, {})
        if said.epoch in told or (key in self.forgotten and said.epoch <= self.forgotten[key].epoch):
            return False  # Another replica has told it.
        told[said.epoch] = _packed(said)
        self._order.append((key, said.epoch))
        if len(self._order) > REMEMBERED:
            self._forget(*self._order.popleft())
        self.dropped[said.segment] = self.dropped.get(said.segment, 0) + sum(said.dropped)
        self.kept[said.segment] = self.kept.get(said.segment, 0) + said.kept
        is_first = said.segment not in self._spells
        self._spells.setdefault(said.segment, Spell(said.epoch, said.epoch, said.stamp, said.stamp)).take(said)
        return is_first

    def _forget(self, key: Key, epoch: int) -> None:
        """Which rows these were."""
        said = _unpacked(key, epoch, self._told[key].pop(epoch))
        self.forgotten[key] = self.forgotten.get(key, LeftOut(0, 0, ())).with_more(LeftOut(epoch, said.kept, said.dropped))

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
        for key, told in sorted(self._told.items()):
            for epoch in sorted(told):
                yield _unpacked(key, epoch, told[epoch])

    def packed(self) -> Iterator[bytes]:
        """What is remembered, as it is kept."""
        return (said for told in self._told.values() for said in told.values())

    def copied(self) -> Ledger:
        """What is remembered by now, for whoever reads it while more comes."""
        return Ledger(
            self.before, dict(self.forgotten), arcs=self.arcs.copied(), _told={key: dict(told) for key, told in self._told.items()}
        )

    def totals(self) -> dict[int, int]:
        """Rows that were left out, by ingress segment. From any thread."""
        return dict(self.dropped)


def _packed(said: RowsShed) -> bytes:
    """Of an epoch, without what it is found by: many are remembered."""
    return struct.pack(f"<{4 + 2 * len(said.keep)}q", said.first, said.taken, said.kept, said.stamp, *said.keep, *said.dropped)


def _unpacked(key: Key, epoch: int, packed: bytes) -> RowsShed:
    first, taken, kept, stamp, *rest = struct.unpack(f"<{len(packed) // 8}q", packed)
    classes = len(rest) // 2
    return RowsShed(*key, epoch, first, taken, tuple(rest[:classes]), kept, tuple(rest[classes:]), stamp)


SHED: Final = pa.schema(
    [
        ("source", pa.string()), ("partition", pa.int32()), ("epoch", pa.int64()), ("first", pa.int64()), ("end", pa.int64()),
        ("keep", pa.list_(pa.float64())), ("kept", pa.int64()), ("dropped", pa.list_(pa.int64())), ("arc", pa.string()),
        ("outputs", pa.list_(pa.string())),
    ]
)  # fmt: skip


def shed_table(layout: Layout, ledger: Ledger) -> pa.Table:
    """One row per partition of a source and epoch in which rows were left out, then one per arc and epoch. first, end: positions of what
    the source gave, the latter of the row behind. keep: by value class, which share was kept; dropped: by value class, rows. outputs: that
    miss them. Of an arc, source, partition and positions are null: what it drops is told by all its partitions together.

    Where the run goes on at a checkpoint, what was left out before it is one row per partition, with the last such epoch, and without
    positions and shares (null), which the journal has no more. So is what was left out in epochs older than those that are remembered, of
    sources and of arcs.
    """
    rows: list[dict[str, Any]] = [
        {**_source(layout, segment), "partition": partition, "epoch": gone.epoch, "kept": gone.kept, "dropped": list(gone.dropped)}
        for (segment, partition), gone in (*sorted(ledger.before.items()), *sorted(ledger.forgotten.items()))
    ]
    rows += [
        {
            **_source(layout, said.segment), "partition": said.partition, "epoch": said.epoch, "first": said.first, "end": said.taken,
            "keep": [each / ALL for each in said.keep], "kept": said.kept, "dropped": list(said.dropped),
        }
        for said in ledger
    ]  # fmt: skip
    told = {source: _facts(layout, source) for source in layout.sheds}
    return pa.Table.from_pylist([*rows, *ledger.arcs.rows(layout)], schema=SHED.with_metadata({METADATA: json.dumps(told)}))


def _facts(layout: Layout, source: str) -> dict[str, Any]:
    """What else one must know to tell which rows of a source were left out."""
    shed, partitions = layout.sheds[source], next(segment.partitions for segment in layout.segments if segment.source == source)
    of = {"column": shed.column, "cuts": shed.classes.cuts, "worth": shed.classes.worth, "windows": shed.whole is not None}
    return {"partitions": partitions, **of}


def _source(layout: Layout, segment: int) -> dict[str, Any]:
    name = layout.segments[segment].source or ""
    return {"source": name, "outputs": list(layout.sheds[name].outputs) if name in layout.sheds else []}
