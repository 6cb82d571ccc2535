"""Layered drawing of a directed acyclic graph, left to right: columns by longest path, rows by where the neighbours are.

Sugiyama's method in its plainest form. It knows rectangles and arrows between them, and nothing of what they mean. Arrows that
pass over a column get a place in it, so that they bend round what stands there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Name = Hashable
SWEEPS: Final = 8


@dataclass(slots=True)
class Item:
    """A rectangle: width and height in pixels; x, y of its upper left corner once it is placed."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Placed:
    """items: with their places, upper left corner of all at 0, 0. edges: right end of each item's column.

    bends: points an arrow passes, per arrow. width, height: of it all.
    """

    items: Mapping[Name, Item]
    edges: Mapping[Name, float]
    bends: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def layered(
    items: Mapping[Name, Item], arrows: Sequence[tuple[Name, Name]], room: Sequence[float], *, row_gap: float,
    first: Sequence[Name] = (), last: Sequence[Name] = (),
) -> Placed:  # fmt: skip
    """Place the items. arrows: (from, to), acyclic. room: per arrow, width wanted between any two columns
    that it joins, pixels. row_gap: between rows, pixels.

    first, last: items that must be in the leftmost or the rightmost column. Equal input gives equal output.
    """
    rank = _ranks(list(items), arrows, first, last)
    whole: dict[Name, Item] = dict(items)
    links: list[tuple[Name, Name]] = []
    chains: list[list[Name]] = []
    for number, (start, end) in enumerate(arrows):
        chain: list[Name] = [("bend", number, r) for r in range(rank[start] + 1, rank[end])]
        for bend, r in zip(chain, range(rank[start] + 1, rank[end]), strict=True):
            whole[bend], rank[bend] = Item(0, 8), r
        path = [start, *chain, end]
        links += pairwise(path)
        chains.append(chain)
    columns: list[list[Name]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for name in whole:
        columns[rank[name]].append(name)
    _set_rows(columns, whole, links, row_gap)
    wanted = [0.0] * len(columns)
    for (start, end), width in zip(arrows, room, strict=True):
        for r in range(rank[start], rank[end]):
            wanted[r] = max(wanted[r], width)
    right = _set_columns(columns, whole, wanted)
    bends = tuple(tuple(end for bend in chain for end in _level(whole[bend])) for chain in chains)
    edges = {name: max(whole[n].x + whole[n].width for n in columns[rank[name]]) for name in items}
    return Placed({name: whole[name] for name in items}, edges, bends, right, max((i.y + i.height for i in whole.values()), default=0.0))


def _level(item: Item) -> tuple[tuple[float, float], tuple[float, float]]:
    return (item.x, item.middle), (item.x + item.width, item.middle)


def _ranks(names: list[Name], arrows: Sequence[tuple[Name, Name]], first: Sequence[Name], last: Sequence[Name]) -> dict[Name, int]:
    """Longest path from the left; then what has no input moves right, next to its reader."""
    shift = 1 if first else 0
    rank: dict[Name, int] = {name: 0 if name in first else shift for name in names}
    for _ in names:
        for start, end in arrows:
            rank[end] = max(rank[end], rank[start] + 1)
    fed = {end for _, end in arrows}
    for name in names:
        readers = [rank[end] for start, end in arrows if start == name]
        if name not in fed and name not in first and readers:
            rank[name] = min(readers) - 1
    if last:
        furthest = max([r for name, r in rank.items() if name not in last], default=-1) + 1
        for name in last:
            rank[name] = max(furthest, rank[name])
    return rank


def _set_rows(columns: list[list[Name]], items: Mapping[Name, Item], links: Sequence[tuple[Name, Name]], gap: float) -> None:
    before: dict[Name, list[Name]] = {name: [] for name in items}
    after: dict[Name, list[Name]] = {name: [] for name in items}
    for start, end in links:
        before[end].append(start)
        after[start].append(end)
    for column in columns:
        _stack(column, items, {}, gap)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = before if forward else after
        for column in columns if forward else reversed(columns):
            wish = {n: sum(items[m].middle for m in near[n]) / len(near[n]) for n in column if near[n]}
            column.sort(key=lambda n: wish.get(n, items[n].middle))
            _stack(column, items, wish, gap)
    top = min((item.y for item in items.values()), default=0.0)
    for item in items.values():
        item.y -= top


def _stack(column: list[Name], items: Mapping[Name, Item], wish: Mapping[Name, float], gap: float) -> None:
    """Put the items of a column as near to where they wish to be as their order and the gap allow."""
    floor = float("-inf")
    for name in column:
        item = items[name]
        item.y = max(wish.get(name, item.middle) - item.height / 2, floor)
        floor = item.y + item.height + gap
    shift = [wish[name] - items[name].middle for name in column if name in wish]
    if shift:  # All were pushed down only: move the whole column back by what they miss on average.
        for name in column:
            items[name].y += sum(shift) / len(shift)


def _set_columns(columns: list[list[Name]], items: Mapping[Name, Item], wanted: Sequence[float]) -> float:
    """Give each column its x; returns where the last one ends."""
    x = 0.0
    end = 0.0
    for column, gap in zip(columns, wanted, strict=True):
        width = max(items[name].width for name in column) if column else 0.0
        for name in column:
            items[name].x = x
            if items[name].width == 0:
                items[name].width = width  # An arrow stays level as long as it passes the column.
        end = x + width
        x = end + gap
    return end
