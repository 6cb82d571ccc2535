"""What sites that have nothing yet are given, so that all have their part: of every segment, inputs too, and of what has one partition.

Rounds would do that a little at a time, and never with inputs: where those are read is settled at the start. Who is called because there is
too much is to help at once (distribution.md, sites).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from evenflow.policy.hosting import Hosting, Placement
from evenflow.policy.move import Move

REASON: Final = "site {site} has come and has nothing yet"

LESS: Final = 1 - 1e-6
"""Who gives must have more afterwards than who gets had before, and not just change places with it."""

Piece = tuple[int, int]


def spread(hosting: Hosting, newcomers: Iterable[int], loads: Mapping[Piece, float] | None = None) -> tuple[Move, ...]:
    """Moves that bring newcomers their part. loads: of one replica of each partition; None: all count alike.

    First of each segment as much as the others have of it, from the site with most of it; then pieces that even out what all segments
    together cost. No replica moves twice, and two never meet on one site. Deterministic: ties go by number.
    """
    dealing = _Dealing(hosting, loads)
    sites = [site for site in sorted(newcomers) if site in hosting.capacity]
    for segment in sorted({segment for segment, _ in hosting.replicas}):
        dealing.part(segment, sites)
    for site in sites:
        dealing.even(site)
    return dealing.moves()


class _Dealing:
    """Pieces by site while they are dealt out. cost: by piece."""

    def __init__(self, hosting: Hosting, loads: Mapping[Piece, float] | None) -> None:
        self._placement, self._sites = Placement(hosting), sorted(hosting.capacity)
        known = loads or {}
        floor = max(known.values(), default=1.0) * 1e-6 if any(known.values()) else 1.0
        self._cost = {piece: max(floor, known.get(piece, 0.0)) for piece in hosting.replicas}
        self._at: dict[int, set[Piece]] = defaultdict(set)
        for piece, sites in hosting.replicas.items():
            for site in sites:
                self._at[site].add(piece)
        self._chosen: dict[tuple[int, int, int], list[int]] = defaultdict(list)

    def part(self, segment: int, newcomers: Sequence[int]) -> None:
        """Of one segment, by turns, until each has as much of it as the mean, or as those that could give."""
        mine = {site: sorted(piece for piece in self._at[site] if piece[0] == segment) for site in self._sites}
        has = {site: sum(self._cost[piece] for piece in mine[site]) for site in self._sites}
        mean = sum(has.values()) / len(self._sites)
        wanting = list(newcomers)
        while wanting:
            site = min(wanting, key=lambda site: (has[site], site))
            for donor in sorted((other for other in self._sites if other != site), key=lambda other: (-has[other], other)):
                piece = self._best(mine[donor], donor, site, min(mean - has[site], (has[donor] - has[site]) * LESS))
                if piece is not None:
                    mine[donor].remove(piece)
                    has[donor] -= self._cost[piece]
                    has[site] += self._cost[piece]
                    self._move(piece, donor, site)
                    break
            else:
                wanting.remove(site)

    def even(self, site: int) -> None:
        """Of all segments: the busiest site that can gives what lowers the greater of both most, as long as that is anything."""
        while True:
            has = {other: sum(self._cost[piece] for piece in self._at[other]) for other in self._sites}
            for donor in sorted((other for other in self._sites if has[other] > has[site]), key=lambda other: (-has[other], other)):
                piece = self._best(sorted(self._at[donor]), donor, site, (has[donor] - has[site]) / 2)
                if piece is not None:
                    break
            else:
                return
            self._move(piece, donor, site)

    def _best(self, pieces: Sequence[Piece], donor: int, site: int, most: float) -> Piece | None:
        """The largest piece of the donor that is not more than that, but for rounding, and may go to the site."""
        fit = [piece for piece in pieces if self._cost[piece] <= most * (1 + 1e-9) and self._placement.allows(*piece, donor, site)]
        return max(fit, key=lambda piece: (self._cost[piece], piece), default=None)

    def _move(self, piece: Piece, donor: int, site: int) -> None:
        self._placement.move(*piece)
        self._at[donor].remove(piece)
        self._at[site].add(piece)
        self._chosen[piece[0], donor, site].append(piece[1])

    def moves(self) -> tuple[Move, ...]:
        return tuple(
            Move(segment, tuple(sorted(partitions)), donor, site, REASON.format(site=site), asked=True)
            for (segment, donor, site), partitions in self._chosen.items()
        )
