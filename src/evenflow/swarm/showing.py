"""Which seeds can show a planted bug: what they draw is known without running them.

A bug of one mode of availability is in code that most seeds never enter. Of all seeds a third has modes, and of these each mode is in some;
those are run, the others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from evenflow.swarm.based_cases import is_based
from evenflow.swarm.draw import draw
from evenflow.swarm.faults import DEATHS
from evenflow.swarm.generations import losses
from evenflow.swarm.mode_cases import is_moded
from evenflow.swarm.mutation import Mutation
from evenflow.swarm.regional import is_regional
from evenflow.swarm.traits import Traits


@cache
def traits(seed: int) -> Traits:
    """What the seed draws."""
    if is_regional(seed) or not (is_moded(seed) or is_based(seed)):
        return Traits()
    drawn = draw(seed)
    modes = frozenset(drawn.world["layout"].modes.values())
    lasting = is_based(seed)
    deadly = lasting or bool(losses(drawn)) or not DEATHS.keys().isdisjoint(drawn.mix.kinds)
    return Traits(modes, drawn.store is not None, deadly, lasting)


def able(mutation: Mutation, seeds: Iterable[int]) -> Iterator[int]:
    """Those of the seeds that can show the bug."""
    return (seed for seed in seeds if mutation.needs is None or mutation.needs(traits(seed)))
