"""How much of a source has entered a run: what the log of a replica that counts says.

A leader that died may have read more. What nobody else had of it has been in no epoch, and its successor has read it again, or not at all
if the run was drained meanwhile.
"""

from __future__ import annotations

from evenflow.world.sim.world import SimWorld


def differing(world: SimWorld) -> str | None:
    """What is wrong where replicas read for themselves and the run has ended: they have all read up to the same row."""
    for segment in world.layout.segments if world.coordinator.by_content else ():
        for partition in range(segment.partitions) if segment.kind == "ingress" else ():
            living = [site for site in world.coordinator.view.members(segment.id, partition) if world.sites[site].alive]
            logs = {site: world.sites[site].part.leading.logs.get((segment.id, partition)) for site in living}
            ends = {site: log.taken for site, log in logs.items() if log is not None}
            if len(set(ends.values())) > 1:
                return f"replicas of partition {partition} of {segment.name} end at different rows, by site: {ends}"
    return None


def taken_in(world: SimWorld, segment: int, partition: int) -> int:
    """Rows of a source's partition that have been taken in. Where no replica of it counts any more: at most."""
    members = world.coordinator.view.members(segment, partition)
    living = [site for site in members if world.sites[site].alive] or list(members)
    logs = [world.sites[site].part.leading.logs.get((segment, partition)) for site in living[:1] or range(len(world.sites))]
    return max([log.taken for log in logs if log is not None], default=0)


def all_taken(world: SimWorld) -> list[int]:
    """The same of each source partition, in turn."""
    return [taken_in(world, s.id, partition) for s in world.layout.segments if s.kind == "ingress" for partition in range(s.partitions)]
