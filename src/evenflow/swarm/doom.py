"""What no run survives, however many replicas it has."""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.world.sim.world import SimWorld

USER_CODE_US: Final = 2_000
"""When what user code does is drawn, from the start of the run on: the sources of a run that is to lose partitions end soon."""


def moment_us(world: SimWorld, until_us: int) -> int:
    """From the start of the run on. until_us: when its last fault begins."""
    return until_us // 2 if _places(world) is None else min(USER_CODE_US, until_us // 2)


def _places(world: SimWorld) -> set[tuple[int, int, int]] | None:
    """Where user code is to end its process, or never to return; None if something else is to happen."""
    user = any(segment.user_code for segment in world.layout.segments)
    drawn = Random(f"doom of seed {world.seed}").choice([None, world.deadly, world.endless])
    return drawn if user else None


def doom(world: SimWorld, random: Random) -> None:
    """All live replicas of one partition, at once or one shortly after the other; or user code of which they die, or never return."""
    view, places = world.coordinator.view, _places(world)
    if places is not None:
        own, user = Random(f"place of doom of seed {world.seed}"), [segment for segment in world.layout.segments if segment.user_code]
        segment, closed = own.choice(user), max(world.sites[site].part.closed for site in world.coordinator.sites)
        places.add((segment.id, own.randrange(segment.partitions), closed + own.randint(1, 3)))
        return
    blocks = [block for segment in world.layout.segments for block in view.blocks(segment.id)]
    victims = [site for site in view.live(random.choice(blocks)) if world.sites[site].alive]
    for at, site in enumerate(victims):
        world.clock.after(1 + at * random.choice([0, 500, 5_000]), lambda s=site: world.kill(s))  # type: ignore[misc]
