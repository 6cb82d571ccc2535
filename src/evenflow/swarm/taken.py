"""How much of a source has entered a run: what the log of a replica that counts says.

A leader that died may have read more. What nobody else had of it has been in no epoch, and its successor has read it again, or not at all
if the run was drained meanwhile.
"""

from __future__ import annotations

from evenflow.world.sim.world import SimWorld


def taken_in(world: SimWorld, segment: int, partition: int) -> int:
    """Rows of a source's partition that have been taken in. Where no replica of it counts any more: at most."""
    members = world.coordinator.view.members(segment, partition)
    living = [site for site in members if world.sites[site].alive] or list(members)
    logs = [world.sites[site].part.leading.logs.get((segment, partition)) for site in living[:1] or range(len(world.sites))]
    return max([log.taken for log in logs if log is not None], default=0)
