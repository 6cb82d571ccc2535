"""What an epoch may have, divided among the sources that wait at a site, so that it is worth most.

Each output's utility is concave in the share of its rows that comes, so pieces of the curves are taken in the order of what a row brings:
a knapsack of fractions. It goes by the rows that wait here, as the reflex does in all: the parts of a source that other sites lead fare
alike, since its rows come to all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from evenflow.plan.layout import Shed

ALIKE: Final = 0.8
"""Pieces of which a row brings so much of what the best one's does are taken in equal parts: what waits is counted by chance."""


class Piece(NamedTuple):
    """Some of a source's rows. gain: utility per row."""

    gain: float
    segment: int
    rows: float


def divided(room: float, waiting: Mapping[int, int], sheds: Mapping[int, Shed]) -> dict[int, float]:
    """By ingress segment, which share of its waiting rows an epoch of `room` rows has: in all as many as there is room for, or all.

    waiting: rows, by segment. Where windows stay whole, rows stand for others, or nobody says what they are worth, all get the same share.
    """
    total = sum(waiting.values())
    if not total or room >= total:
        return dict.fromkeys(waiting, 1.0)
    if len(waiting) == 1 or any(sheds[each].whole or sheds[each].weighs or not sheds[each].worths for each in waiting):
        return dict.fromkeys(waiting, room / total)
    taken: dict[int, float] = defaultdict(float)
    for together in _in_turn(sorted(_pieces(waiting, sheds), reverse=True)):
        rows = sum(piece.rows for piece in together)
        part = min(1.0, room / rows) if rows else 0.0
        for piece in together:
            taken[piece.segment] += part * piece.rows
        room -= part * rows
    return {segment: min(1.0, taken[segment] / count) if count else 1.0 for segment, count in waiting.items()}


def _pieces(waiting: Mapping[int, int], sheds: Mapping[int, Shed]) -> Iterator[Piece]:
    """Between the places at which some output of a source begins to gain more slowly."""
    into: dict[str, int] = defaultdict(int)
    for segment, count in waiting.items():
        for output in sheds[segment].outputs:
            into[output] += count
    for segment, count in waiting.items():
        fed = [
            (weight / max(1, into[name]), loss) for name, (weight, loss) in zip(sheds[segment].outputs, sheds[segment].worths, strict=True)
        ]
        places = sorted({0.0, 1.0, *(x for _, loss in fed for x, _ in loss.points if 0 < x < 1)})
        for low, high in pairwise(places):
            yield Piece(sum(worth * (loss(high) - loss(low)) / (high - low) for worth, loss in fed), segment, (high - low) * count)


def _in_turn(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Those that are about as good together, the best first."""
    together: list[Piece] = []
    for piece in pieces:
        if together and piece.gain < ALIKE * together[0].gain:
            yield together
            together = []
        together.append(piece)
    yield together


__all__ = ["divided"]
