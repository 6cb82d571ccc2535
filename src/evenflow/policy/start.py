"""Where first replicas lie at the start, by the potential (distribution.md, start): the place that `plan.placement.first_plan` asks for.

What has one partition is a stone: it cannot be shared, so stones must not meet. The many partitions of a keyed segment are the sand
between them: they stay in blocks, so that neighbours in key space share a site, and rounds even them out. With a profile, windows of an
earlier run, costs are known, and so are partitions that are hot; else every segment may cost anything, and any source may burst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from evenflow.plan.layout import Layout, Segment
from evenflow.plan.placement import Place, home
from evenflow.policy.linear import Model
from evenflow.policy.offered import Piece, rates_of, reach, structure
from evenflow.policy.potential import Scenarios, Search
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Bools, Floats

HOT: Final = 2.0
"""A partition with so many times the mean load of its segment's is a stone as well."""


def start(planned: Layout, columns: int, profile: Statistics | None = None) -> Place:
    """Ingress partitions and sand are at home; stones lie where they raise the potential least, those with most effect first, and then
    wherever it is lower. profile: windows of a run of the same layout; what it does not know counts as if there were none.

    Pure, and always the same. Cost: O(stones columns scenarios) for each pass.
    """
    pieces = [(segment.id, p) for segment in planned.segments for p in range(segment.in_use or segment.partitions)]
    coefficients = _unknown(planned, pieces)
    now = None
    if profile is not None:
        known, found = structure(profile, planned, {})
        if found.any():
            at = dict(zip(known, found, strict=True))
            coefficients = np.array([at.get(piece, np.zeros(found.shape[1])) for piece in pieces])
            now = rates_of(profile, planned)
    model = Model(coefficients, np.ones(columns), links(planned, pieces))
    stones = _stones(planned, pieces, coefficients)
    search = Search(model, Scenarios.of(model, now))
    for at_piece, (segment, partition) in enumerate(pieces):
        if not stones[at_piece]:
            search.put(at_piece, home(planned.segments[segment], partition, columns))
    search.fixed = ~stones
    search.fill()
    search.descend()
    placed = {piece: int(column) for piece, column in zip(pieces, search.placed, strict=True)}

    def place(segment: Segment, partition: int, of: int) -> int:
        return placed.get((segment.id, partition), home(segment, partition, of)) if of == columns else home(segment, partition, of)

    return place


def place_of(name: str, planned: Layout) -> Place:
    """By the name that options give it: `home`, or `start` without a profile, which is made for as many columns as are asked for."""
    if name == "home":
        return home
    made: dict[int, Place] = {}

    def place(segment: Segment, partition: int, columns: int) -> int:
        if columns not in made:
            made[columns] = start(planned, columns)
        return made[columns](segment, partition, columns)

    return place


def _unknown(planned: Layout, pieces: list[Piece]) -> Floats:
    """float (pieces, segments + sources): each segment may cost anything, so it is a source of its own; and what one source feeds has more
    to do together, as if all rows passed and cost the same in boxes, and nothing to read."""
    every = dict.fromkeys(range(max(len(planned.segments), len(planned.arcs))), 1.0)
    fed = reach(every, every, planned)
    found = np.zeros((len(pieces), len(planned.segments) + fed.shape[1]))
    for at, (segment, _) in enumerate(pieces):
        described = planned.segments[segment]
        found[at, segment] = 1.0
        found[at, len(planned.segments) :] = fed[segment] * (described.kind != "ingress")
        found[at] /= described.in_use or described.partitions
    return found


def _stones(planned: Layout, pieces: list[Piece], coefficients: Floats) -> Bools:
    """bool (pieces,): alone in their segment, or hot; ingress never, since its sites are the sources'."""
    norms, of = np.linalg.norm(coefficients / np.maximum(coefficients.sum(axis=0), 1e-300), axis=1), np.array([s for s, _ in pieces])
    found = np.zeros(len(pieces), np.bool_)
    for segment in planned.segments:
        mine = of == segment.id
        if segment.kind != "ingress":
            found[mine] = (mine.sum() == 1) | (norms[mine] >= HOT * max(float(norms[mine].mean()), 1e-300))
    return found


def links(planned: Layout, pieces: Sequence[Piece]) -> tuple[tuple[int, int], ...]:
    """Between stones and what feeds them, or they feed; all to all says nothing."""
    by_segment: dict[int, list[int]] = {}
    for at, (segment, _) in enumerate(pieces):
        by_segment.setdefault(segment, []).append(at)
    ends = [(by_segment[arc.producer], by_segment[arc.consumer]) for arc in planned.arcs]
    return tuple((one, other) for ones, others in ends if min(len(ones), len(others)) == 1 for one in ones for other in others)
