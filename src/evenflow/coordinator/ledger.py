"""What was left out of a run's sources, as its sites tell it (D5): every replica tells of every epoch, and each counts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.exchange.shedding import ALL
from evenflow.plan.layout import Layout
from evenflow.site.facts import RowsShed

REMEMBERED: Final = 100_000
"""Epochs of a partition of which is known what was left out; of older ones only how much."""
CALM_EPOCHS: Final = 256
"""After so many epochs in which nothing was left out of a source, it is news that something is."""


@dataclass(slots=True)
class Ledger:
    """dropped, kept: rows of each source's segment in the epochs in which some were left out."""

    dropped: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    _told: dict[Key, dict[int, RowsShed]] = field(default_factory=dict)
    _forgotten: dict[Key, int] = field(default_factory=dict)
    _newest: dict[int, int] = field(default_factory=dict)

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
        before = self._newest.get(said.segment)
        self._newest[said.segment] = max(said.epoch, before or 0)
        return before is None or said.epoch > before + CALM_EPOCHS

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


def shed_table(layout: Layout, told: Iterable[RowsShed]) -> pa.Table:
    """One row per partition of a source and epoch in which rows were left out. first, end: positions of what the source gave, the latter
    of the row behind. keep: by value class, which share was kept; dropped: by value class, rows."""
    rows = [
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
