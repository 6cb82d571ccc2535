"""What no run survives, however many replicas it has."""

from __future__ import annotations

from random import Random

from evenflow.world.sim.world import SimWorld


def doom(world: SimWorld, random: Random) -> None:
    """All live replicas of one partition, at once or one shortly after the other; or user code of which they die, or never return."""
    view, own = world.coordinator.view, Random(f"doom of seed {world.seed}")
    user = [segment for segment in world.layout.segments if segment.user_code]
    places = own.choice([None, world.deadly, world.endless]) if user else None
    if places is not None:
        segment, closed = own.choice(user), max(world.sites[site].part.closed for site in world.coordinator.sites)
        places.add((segment.id, own.randrange(segment.partitions), closed + own.randint(1, 3)))
        return
    blocks = [block for segment in world.layout.segments for block in view.blocks(segment.id)]
    victims = [site for site in view.live(random.choice(blocks)) if world.sites[site].alive]
    for at, site in enumerate(victims):
        world.clock.after(1 + at * random.choice([0, 500, 5_000]), lambda s=site: world.kill(s))  # type: ignore[misc]
