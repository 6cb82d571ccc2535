"""Two partitions that change places: where no move gains, since all sites have as much to do now, but not at other rates (BO 3.1).

The paper's exchange, with Evenflow's potential for its score: the site that is worst over all scenarios gives a partition to another one
and gets one back, such that the busier of the two has less to do over all scenarios, and no more now than can be told from noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from evenflow.policy.load import PartitionLoad
from evenflow.policy.mixes import Mixed

PIECES: Final = 32
"""Of each site so many are looked at, those that cost most: what is small is moved by moves."""
TH_GAIN: Final = 0.05
"""The busier of the two must have less to do by this share: two copies, and two pauses, are not worth less."""
TIES: Final = 0.1
"""Swaps that gain less by no more than this share of the best one's gain are alike."""
DONORS: Final = 4
RECEIVERS: Final = 8


class Swap(NamedTuple):
    """given goes from donor to receiver, and taken comes back. gained: what given costs the receiver, and taken the donor. before, after:
    how busy the busier of the two is over all scenarios."""

    donor: int
    receiver: int
    given: PartitionLoad
    taken: PartitionLoad
    gained: tuple[float, float]
    before: float
    after: float


class Asked(Protocol):
    """Who knows what a round may do."""

    def swappable(self, site: int) -> Sequence[PartitionLoad]:
        """What may leave the site."""

    def cost_there(self, piece: PartitionLoad, site: int, other: int) -> float:
        """What a partition of a site costs at another one, in the present."""

    def may_swap(self, swap: Swap) -> bool:
        """Whether both may go, and it pays."""

    def new_streams(self, swap: Swap) -> float:
        """How many more streams go from site to site; less than 0: fewer."""


def best_swap(mixed: Mixed, asked: Asked, th_gain: float) -> Swap | None:
    """The one that gains most for the worst site that gains at all. th_gain: least share by which the busier of the two must have less to
    do over all scenarios, and half of it is what it may have more to do now. Of those that gain about as much, the one with the fewest new
    streams between sites. Cost: O(PIECES^2 scenarios) for each pair of sites that is looked at."""
    worst = sorted(mixed.loads, key=lambda site: (-float(mixed.worth(mixed.loads[site])), site))
    for donor in worst[:DONORS]:
        pairs = [_of_pair(mixed, donor, receiver, asked, th_gain) for receiver in worst[: -RECEIVERS - 1 : -1] if receiver != donor]
        found = [swap for swap in pairs if swap is not None]
        if found:
            return max(found, key=lambda swap: swap.before - swap.after)
    return None


def _of_pair(mixed: Mixed, donor: int, receiver: int, asked: Asked, th_gain: float) -> Swap | None:
    """The best of these two sites, if there is one."""
    given, taken = _largest(asked.swappable(donor)), _largest(asked.swappable(receiver))
    if not given or not taken:
        return None
    there = [asked.cost_there(piece, donor, receiver) for piece in given]
    here = [asked.cost_there(piece, receiver, donor) for piece in taken]
    mine, theirs = mixed.loads[donor], mixed.loads[receiver]
    leaves = mixed.vectors(given, donor, [piece.cpu_share for piece in given])[:, None]
    arrives = mixed.vectors(given, receiver, there)[:, None]
    comes = mixed.vectors(taken, donor, here)[None]
    goes = mixed.vectors(taken, receiver, [piece.cpu_share for piece in taken])[None]
    less, more = mine - leaves + comes, theirs - goes + arrives
    both, before = np.maximum(less, more), np.maximum(mine, theirs)
    value, values = float(before @ mixed.weights), both @ mixed.weights
    holds = (both[..., 0] <= before[0] * (1 + th_gain / 2)) & (values <= value * (1 - th_gain))
    holds &= mixed.worth(less) + mixed.worth(more) < mixed.worth(mine) + mixed.worth(theirs)
    alike: list[Swap] = []
    for at in np.argsort(np.where(holds, values, np.inf), axis=None, kind="stable")[: int(holds.sum())]:
        i, k = divmod(int(at), len(taken))
        swap = Swap(donor, receiver, given[i], taken[k], (there[i], here[k]), value, float(values[i, k]))
        if alike and (len(alike) == PIECES or value - swap.after < (1 - TIES) * (value - alike[0].after)):
            break
        if asked.may_swap(swap):
            alike.append(swap)
    return min(alike, key=asked.new_streams, default=None)


def _largest(pieces: Sequence[PartitionLoad]) -> list[PartitionLoad]:
    return sorted(pieces, key=lambda piece: (-piece.cpu_share, piece.segment, piece.partition))[:PIECES]
