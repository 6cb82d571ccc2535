"""Two partitions that change places: where no move gains, since all sites have as much to do now, but not at other rates (BO 3.1).

The paper's exchange, with Evenflow's potential for its score: the site that is worst over all scenarios gives a partition to another one
and gets one back, such that the busier of the two has less to do over all scenarios, and no more now than can be told from noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from evenflow.policy.load import PartitionLoad
from evenflow.policy.mixes import Mixed

PIECES: Final = 32
"""Of each site so many are looked at, those that cost most: what is small is moved by moves."""
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


def best_swap(
    mixed: Mixed,
    free: Callable[[int], Sequence[PartitionLoad]],
    cost: Callable[[PartitionLoad, int, int], float],
    allowed: Callable[[Swap], bool],
    th_gain: float,
) -> Swap | None:
    """The one that gains most for the worst site that gains at all. free: of a site, what may leave it. cost: of a partition at a site,
    what it costs at another one. th_gain: least share by which the busier of the two must have less to do, and half of it is what it may
    have more to do now. Cost: O(PIECES^2 scenarios) for each pair of sites that is looked at."""
    worst = sorted(mixed.loads, key=lambda site: (-float(mixed.worth(mixed.loads[site])), site))
    for donor in worst[:DONORS]:
        receivers = worst[: -RECEIVERS - 1 : -1]
        found = [swap for receiver in receivers for swap in _of_pair(mixed, donor, receiver, free, cost, allowed, th_gain)]
        if found:
            return max(found, key=lambda swap: swap.before - swap.after)
    return None


def _of_pair(
    mixed: Mixed,
    donor: int,
    receiver: int,
    free: Callable[[int], Sequence[PartitionLoad]],
    cost: Callable[[PartitionLoad, int, int], float],
    allowed: Callable[[Swap], bool],
    th_gain: float,
) -> Iterator[Swap]:
    """The best of these two sites, if there is one."""
    given, taken = _largest(free(donor)), _largest(free(receiver))
    if donor == receiver or not given or not taken:
        return
    there = [cost(piece, donor, receiver) for piece in given]
    here = [cost(piece, receiver, donor) for piece in taken]
    mine, theirs = mixed.loads[donor], mixed.loads[receiver]
    leaves = mixed.vectors(given, donor, [piece.cpu_share for piece in given])[:, None]
    arrives = mixed.vectors(given, receiver, there)[:, None]
    comes = mixed.vectors(taken, donor, here)[None]
    goes = mixed.vectors(taken, receiver, [piece.cpu_share for piece in taken])[None]
    less, more = mine - leaves + comes, theirs - goes + arrives
    both = np.maximum(less, more)
    before = np.maximum(mine, theirs)
    value, values = float(before @ mixed.weights), both @ mixed.weights
    holds = (both[..., 0] <= before[0] * (1 + th_gain / 2)) & (values <= value * (1 - th_gain))
    holds &= mixed.worth(less) + mixed.worth(more) < mixed.worth(mine) + mixed.worth(theirs)
    for at in np.argsort(np.where(holds, values, np.inf), axis=None, kind="stable")[: int(holds.sum())]:
        i, k = divmod(int(at), len(taken))
        swap = Swap(donor, receiver, given[i], taken[k], (there[i], here[k]), value, float(values[i, k]))
        if allowed(swap):
            yield swap
            return


def _largest(pieces: Sequence[PartitionLoad]) -> list[PartitionLoad]:
    return sorted(pieces, key=lambda piece: (-piece.cpu_share, piece.segment, piece.partition))[:PIECES]
