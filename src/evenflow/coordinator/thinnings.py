"""What was left out of a run's arcs by its plans, as its sites tell it (D5): every replica tells of every epoch, and each counts once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from evenflow.exchange.shedding import ALL
from evenflow.plan.layout import Layout
from evenflow.site.facts import ArcThinned

REMEMBERED: Final = 100_000
"""Epochs of all arcs together of which is known what was left out; of older ones only how much."""

Counts = npt.NDArray[np.int64]


class OfArc(NamedTuple):
    """Rows by class, over all epochs in which a plan kept less than all. epochs: how many these were."""

    offered: tuple[int, ...]
    dropped: tuple[int, ...]
    epochs: int


@dataclass(slots=True)
class _Epoch:
    keep: tuple[int, ...]
    offered: Counts
    dropped: Counts


@dataclass(slots=True)
class Thinnings:
    """totals: by arc. forgotten: by arc, of epochs that are not remembered, the last one, the rows that went on, and those left out, by
    class."""

    totals: dict[int, OfArc] = field(default_factory=dict)
    forgotten: dict[int, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    _through: dict[tuple[int, int], int] = field(default_factory=dict)
    _told: dict[tuple[int, int], _Epoch] = field(default_factory=dict)
    _order: deque[tuple[int, int]] = field(default_factory=deque)
    _newest: dict[int, int] = field(default_factory=dict)

    def take(self, said: ArcThinned) -> None:
        """A replica's word of an epoch. Each tells its epochs in their order, so what is not newer than what is known of a partition is not
        new."""
        shape = (len(said.partitions), len(said.keep))
        new = [at for at, p in enumerate(said.partitions) if self._through.get((said.arc, p), 0) < said.epoch]
        if not new:
            return
        for at in new:
            self._through[said.arc, said.partitions[at]] = said.epoch
        offered, dropped = (np.frombuffer(each, np.int64).reshape(shape)[new].sum(axis=0) for each in (said.offered, said.dropped))
        before = self.totals.get(said.arc, OfArc((0,) * shape[1], (0,) * shape[1], 0))
        begun = said.epoch > self._newest.get(said.arc, 0)
        self._newest[said.arc] = max(said.epoch, self._newest.get(said.arc, 0))
        self.totals[said.arc] = OfArc(_sum(before.offered, offered), _sum(before.dropped, dropped), before.epochs + begun)
        self._remember(said, offered, dropped)

    def _remember(self, said: ArcThinned, offered: Counts, dropped: Counts) -> None:
        at = (said.arc, said.epoch)
        known = self._told.get(at)
        if known is not None:
            known.offered, known.dropped = known.offered + offered, known.dropped + dropped
            return
        self._told[at] = _Epoch(said.keep, offered, dropped)
        self._order.append(at)
        if len(self._order) > REMEMBERED:
            self._forget(*self._order.popleft())

    def _forget(self, arc: int, epoch: int) -> None:
        of, (last, kept, dropped) = self._told.pop((arc, epoch)), self.forgotten.get(arc, (0, 0, ()))
        self.forgotten[arc] = max(last, epoch), kept + int(of.offered.sum() - of.dropped.sum()), _sum(dropped, of.dropped)

    def copied(self) -> Thinnings:
        """What is remembered by now, for whoever reads it while more comes."""
        return Thinnings(dict(self.totals), dict(self.forgotten), _told=dict(self._told))

    def rows(self, layout: Layout) -> Iterator[dict[str, object]]:
        """For the table of `ledger.shed_table`: what is not remembered, by arc, then what is, by arc and epoch, over all partitions."""
        for arc, (epoch, kept, gone) in sorted(self.forgotten.items()):
            if any(gone):
                yield {**_named(layout, arc), "epoch": epoch, "kept": kept, "dropped": list(gone)}
        for (arc, epoch), of in sorted(self._told.items()):
            if of.dropped.any():
                yield {
                    **_named(layout, arc), "epoch": epoch, "keep": [each / ALL for each in of.keep],
                    "kept": int(of.offered.sum() - of.dropped.sum()), "dropped": of.dropped.tolist(),
                }  # fmt: skip


def _named(layout: Layout, arc: int) -> dict[str, object]:
    return {"arc": arc_name(layout, arc), "outputs": list(layout.thins[arc].outputs)}


def arc_name(layout: Layout, arc: int) -> str:
    """For people."""
    of = layout.arcs[arc]
    return f"{layout.segments[of.producer].name} -> {layout.segments[of.consumer].name}"


def shares_of(
    layout: Layout, entered: Mapping[int, float], totals: Mapping[int, OfArc], epochs: int, passed: Mapping[int, float]
) -> dict[str, float]:
    """By sink, about which share of its rows has come. entered: by ingress segment, of what its source gave. epochs: that have been made;
    those of which nothing was told had as many rows as others and all of them went on. passed: by segment with gates, which share of their
    results these have let go on."""
    share: dict[int, float] = {}
    found: dict[str, list[float]] = {}
    for segment in layout.segments:  # Producers come first.
        above = [share[layout.arcs[arc].producer] * _passed(totals.get(arc), epochs) for arc in segment.inputs]
        share[segment.id] = (sum(above) / len(above) if above else entered.get(segment.id, 1.0)) * passed.get(segment.id, 1.0)
        for sink in layout.ends(segment):
            found.setdefault(sink, []).append(share[segment.id])
    return {sink: sum(of) / len(of) for sink, of in found.items()}


def _passed(of: OfArc | None, epochs: int) -> float:
    offered = 0 if of is None else sum(of.offered)
    if of is None or not offered:
        return 1.0
    return 1 - sum(of.dropped) / offered * min(1.0, of.epochs / max(1, epochs))


def _sum(before: tuple[int, ...], more: Counts) -> tuple[int, ...]:
    """A new version of the dataflow may have other classes: then it begins anew."""
    return tuple(int(a + b) for a, b in zip(before, more, strict=True)) if len(before) == more.size else tuple(map(int, more))


__all__ = ["OfArc", "Thinnings", "arc_name", "shares_of"]
