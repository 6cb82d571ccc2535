"""Offered load: what each partition will cost per row that each source offers (distribution.md, one model).

**Structure**: products of selectivities along all paths to a segment, times what a row costs there, times the partition's share of
its rows. It is exact as long as everything is linear. **Correction**: where sources meet, a join's cost is not, and ridge regression of
loads on rates over the last windows is drawn to the structure, so that it changes only what the windows tell.

Offered is not utilization: who sheds, or is held back, is never over 100%. Statistics must be over two window lengths of the query at
least: between emissions selectivity seems to be 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.plan.layout import Layout
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Floats

KEPT: Final = 64
"""Windows of a series: a minute at one second, ten minutes at ten."""
STEPS_US: Final = (1_000_000, 10_000_000)
PULL: Final = 0.1
"""How much the structure counts against the windows: as much as a tenth of them."""

Piece = tuple[int, int]
"""(segment, partition)."""


def sources_of(layout: Layout) -> tuple[int, ...]:
    """The ingress segments, whose order is that of rates."""
    return tuple(segment.id for segment in layout.segments if segment.kind == "ingress")


def rates_of(statistics: Statistics, layout: Layout) -> Floats:
    """float (sources,): rows per second that each source has offered, whether anybody took them or not."""
    rows: dict[int, int] = defaultdict(int)
    for window in statistics.sites:
        for each in window.sources:
            rows[each.segment] += each.offered
    seconds = max(1, statistics.end_us - statistics.begin_us) / 1e6
    return np.array([rows[segment] / seconds for segment in sources_of(layout)])


def counted(statistics: Statistics) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """(rows that entered, by segment; rows that were put on it, by arc), by all replicas. What is not there is 0."""
    entered: dict[int, float] = defaultdict(float)
    put: dict[int, float] = defaultdict(float)
    for window in statistics.sites:
        for segment in window.segments:
            entered[segment.segment] += sum(segment.rows)
            for arc, rows in segment.arc_rows:
                put[arc] += rows
    return entered, put


def reach(entered: Mapping[int, float], put: Mapping[int, float], layout: Layout) -> Floats:
    """float (segments, sources): rows that come to each segment for each row of each source, over all paths.

    Replicas put the same rows on an arc as often as they take them in, so they cancel out.
    """
    sources = sources_of(layout)
    found = np.zeros((len(layout.segments), len(sources)))
    for at, number in enumerate(sources):
        found[number, at] = 1.0
    for described in layout.segments:  # Producers come first.
        for arc in described.inputs:
            producer = layout.arcs[arc].producer
            if entered.get(producer):
                found[described.id] += found[producer] * (put.get(arc, 0.0) / entered[producer])
    return found


def reach_of(statistics: Statistics, layout: Layout) -> Floats:
    """`reach` of one window."""
    return reach(*counted(statistics), layout)


def loads_of(statistics: Statistics, capacity: Mapping[int, float]) -> dict[Piece, float]:
    """CPU seconds per second of one replica of each partition, at a site of capacity 1: its segment's time by its share of the rows.

    capacity: by site; one that is not there has 1. Several replicas: their mean.
    """
    told: dict[Piece, list[float]] = defaultdict(list)
    for window in statistics.sites:
        seconds_us = max(1, window.end_us - window.begin_us)
        for segment in window.segments:
            rows = sum(segment.rows)
            share = segment.busy_us * capacity.get(window.site, 1.0) / seconds_us
            for partition, count in zip(segment.partitions, segment.rows, strict=True):
                told[segment.segment, partition].append(share * count / rows if rows else 0.0)
    return {piece: sum(of) / len(of) for piece, of in sorted(told.items())}


def structure(statistics: Statistics, layout: Layout, capacity: Mapping[int, float]) -> tuple[tuple[Piece, ...], Floats]:
    """(pieces, float (pieces, sources): CPU seconds of one replica per row of each source, at a site of capacity 1)."""
    reach, rows, busy_us = reach_of(statistics, layout), defaultdict[int, int](int), defaultdict[int, float](float)
    by_piece: dict[Piece, int] = defaultdict(int)
    for window in statistics.sites:
        for segment in window.segments:
            rows[segment.segment] += sum(segment.rows)
            busy_us[segment.segment] += segment.busy_us * capacity.get(window.site, 1.0)
            for partition, count in zip(segment.partitions, segment.rows, strict=True):
                by_piece[segment.segment, partition] += count
    pieces = tuple(sorted(by_piece))
    found = np.zeros((len(pieces), reach.shape[1]))
    for at, (number, partition) in enumerate(pieces):
        if rows[number]:
            cost_s = busy_us[number] / rows[number] / 1e6
            found[at] = reach[number] * cost_s * (by_piece[number, partition] / rows[number])
    return pieces, found


def corrected(coefficients: Floats, rates: Floats, loads: Floats, pull: float = PULL) -> Floats:
    """The coefficients (pieces, sources) that explain the loads (windows, pieces) by the rates (windows, sources), drawn to those given.

        min over l of |loads - rates l|^2 + pull sum_k |r_k|^2 (l_k - l0_k)^2          for each piece, and l >= 0

    Only pieces that more than one source reaches are changed: what one source does is measured directly. Rates are scaled, so that no
    source counts more because it has more rows. Cost: O(windows sources pieces).
    """
    meet = (coefficients > 0).sum(axis=1) > 1
    size = np.sqrt((rates**2).sum(axis=0))
    told = size > 0
    if not meet.any() or not told.any():
        return coefficients
    scaled = rates[:, told] / size[told]
    before = coefficients[np.ix_(meet, told)] * size[told]
    off = loads[:, meet] - rates @ coefficients[meet].T
    change = np.linalg.solve(scaled.T @ scaled + pull * np.eye(scaled.shape[1]), scaled.T @ off).T
    found = coefficients.copy()
    found[np.ix_(meet, told)] = np.maximum(0.0, before + change) / size[told]
    return found


Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The last windows of loads and rates. rates: float (windows, sources). loads: (windows, pieces), both oldest first, of `pieces`, each
    of step_us. A change of the pieces begins anew. 2,000 pieces take half a megabyte.

    open_us, open_rates, open_loads: of the window that is not over.
    """

    step_us: int
    pieces: tuple[Piece, ...] = ()
    rates: Singles = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    loads: Singles = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    open_us: int = 0
    open_rates: Floats = field(default_factory=lambda: np.zeros(0))
    open_loads: Floats = field(default_factory=lambda: np.zeros(0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def then(self, statistics: Statistics, layout: Layout, capacity: Mapping[int, float]) -> Series:
        """With what came next, however long it is."""
        by_piece, rates = loads_of(statistics, capacity), rates_of(statistics, layout)
        return self.add(tuple(by_piece), rates, np.array(list(by_piece.values())), statistics.end_us - statistics.begin_us)

    def add(self, pieces: tuple[Piece, ...], rates: Floats, loads: Floats, window_us: int) -> Series:
        if window_us <= 0:
            return self
        series = self
        if pieces != self.pieces or self.rates.shape[1] != rates.size:
            none = np.zeros((0, rates.size), np.float32), np.zeros((0, len(pieces)), np.float32)
            series = Series(self.step_us, pieces, *none, 0, np.zeros(rates.size), np.zeros(len(pieces)))
        open_us = series.open_us + window_us
        open_rates, open_loads = series.open_rates + rates * window_us, series.open_loads + loads * window_us
        if open_us < series.step_us:
            return replace(series, open_us=open_us, open_rates=open_rates, open_loads=open_loads)
        return replace(
            series,
            rates=np.concatenate([series.rates, (open_rates / open_us)[None].astype(np.float32)])[-KEPT:],
            loads=np.concatenate([series.loads, (open_loads / open_us)[None].astype(np.float32)])[-KEPT:],
            open_us=0, open_rates=np.zeros(rates.size), open_loads=np.zeros(len(pieces)),
        )  # fmt: skip
