"""What a person asks of a run that is under way: empty a site, keep partitions where they are or bring them somewhere. Pure questions about
a run's machine and the events that answer a wish; carrying them out is the world's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.moving import bound_by
from evenflow.errors import OperationRefused
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy
from evenflow.policy.move import Move
from evenflow.stream.ids import SiteId

PINNED = "a person wants them there"
"""The reason of a move that brings partitions to the sites that they are pinned to."""


def obstacles(machine: RunMachine, site: SiteId) -> list[str]:
    """Why not everything can leave a site, one phrase each; nothing if it can."""
    view, layout = machine.view, machine.layout
    found = []
    for segment in layout.segments:
        here = [p for block in view.blocks(segment.id) if site in view.live(block) for p in block.partitions]
        bound = bound_by(layout, segment.id) if here else ""
        if bound:
            found.append(bound)
        pinned = sorted(p for p in here if (segment.id, p) in machine.rounds.pinned)
        if pinned:
            found.append(f"{len(pinned)} partitions of {segment.name} are pinned there (unpin them first)")
    return found


def is_empty(machine: RunMachine, site: SiteId) -> bool:
    """Nothing of the run is at the site, or on its way to or from it: nobody misses it if it ends."""
    if machine.over or site not in machine.sites:
        return True
    if not machine.started:
        return False  # It would end the run before it has begun.
    proposed = machine.proposed.copies if machine.proposed is not None else ()
    under_way: tuple[Copy, ...] = (*machine.membership.joining, *machine.moving.unconfirmed.values(), *proposed)
    if any(site in (copy.source, copy.target, copy.replaces) for copy in under_way):
        return False
    return site not in machine.view.active()


def segments_of(layout: Layout, box: str) -> tuple[int, ...]:
    """Segments in which a box runs, by its name in the query network; also by a segment's own name. Raises OperationRefused, naming all
    boxes.

    What a box does before an exchange (it combines, it picks columns) is in the segment of what is before it, and counts for nothing here.
    """
    names: dict[str, list[int]] = {}
    for segment in layout.segments:
        for name in dict.fromkeys([*(step.box for step in segment.steps), segment.source, segment.sink]):
            if name is not None:
                names.setdefault(name, []).append(segment.id)
    if box in names:
        found = [layout.segments[segment] for segment in names[box]]
        behind = {arc for segment in found for arc in segment.inputs}
        return tuple(segment.id for segment in found if behind.isdisjoint(segment.outputs))
    by_name = tuple(segment.id for segment in layout.segments if segment.name == box)
    if by_name:
        return by_name
    raise OperationRefused(f"dataflow {layout.name!r} has no box {box!r}; it has {', '.join(sorted(names))}")


def chosen(layout: Layout, box: str, partitions: Iterable[int] | None = None) -> frozenset[tuple[int, int]]:
    """(segment, partition) of a box: all, or those named. Raises OperationRefused for a box or a partition that is not there."""
    segments = segments_of(layout, box)
    found: set[tuple[int, int]] = set()
    for segment in segments:
        count = layout.segments[segment].partitions
        wanted = range(count) if partitions is None else list(partitions)
        wrong = [p for p in wanted if not 0 <= p < count]
        if wrong:
            raise OperationRefused(f"box {box!r} has partitions 0 to {count - 1}, not {wrong[0]}")
        found.update((segment, partition) for partition in wanted)
    if not found:
        raise OperationRefused(f"no partition of box {box!r} is named: leave partitions out to mean all")
    return frozenset(found)


def to_repartition(machine: RunMachine, box: str, partitions: int) -> tuple[int, ...]:
    """The segments of a box that can have so many partitions. Raises OperationRefused, with the reason and what to do."""
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise OperationRefused(f"a number of partitions is a whole number from 1 on, not {partitions!r}")
    layout = machine.layout
    found = tuple(s for s in segments_of(layout, box) if layout.segments[s].is_keyed(layout))
    if not found:
        raise OperationRefused(f"box {box!r} has no rows by key, so its partitions cannot be divided anew: name a keyed box")
    for segment in found:
        described = layout.segments[segment]
        if partitions > described.partitions:
            raise OperationRefused(
                f"box {box!r} can have {described.partitions} partitions at most, not {partitions}: start it with the option "
                f"max_partitions={partitions}"
            )
        pinned = sorted(p for other, p in machine.rounds.pinned if other == segment)
        if pinned:
            raise OperationRefused(f"{len(pinned)} partitions of {described.name} are pinned, and some may have to move: unpin them first")
    return found


def moves_to(machine: RunMachine, partitions: Iterable[tuple[int, int]], sites: Sequence[SiteId]) -> tuple[Move, ...]:
    """Moves after which all replicas of these partitions are on these sites, as evenly as may be; what is there already stays.

    Raises OperationRefused if a site is not there or is being emptied, if there are fewer sites than replicas, or if the box is bound to
    its sites.
    """
    view, layout = machine.view, machine.layout
    wanted = sorted(set(sites))
    wrong = [site for site in wanted if site not in machine.sites or site in machine.moving.leaving]
    if wrong or not wanted:
        there = ", ".join(str(site) for site in machine.sites if site not in machine.moving.leaving)
        raise OperationRefused(
            f"there is no site {wrong[0]} to pin to; there are {there}" if wrong else f"no site is named; there are {there}"
        )
    load = Counter(dict.fromkeys(wanted, 0))
    stray: list[tuple[int, int, tuple[SiteId, ...]]] = []
    for segment, partition in sorted(partitions):
        live = view.membership.live(view.plan, segment, partition)
        if len(live) > len(wanted):
            raise OperationRefused(f"{len(live)} replicas need as many sites, and {len(wanted)} are named: two never share one")
        load.update(site for site in live if site in load)
        if any(site not in load for site in live):
            bound = bound_by(layout, segment)
            if bound:
                raise OperationRefused(f"partition {partition} of {layout.segments[segment].name} cannot move: {bound}")
            stray.append((segment, partition, live))
    shares: dict[tuple[int, int, int], list[int]] = {}
    for segment, partition, live in stray:
        taken = set(live)
        for source in live:
            if source not in load:
                target = min((site for site in wanted if site not in taken), key=lambda site: (load[site], site))
                load[target] += 1
                taken.add(target)
                shares.setdefault((segment, source, target), []).append(partition)
    return tuple(Move(segment, tuple(found), source, target, PINNED, asked=True) for (segment, source, target), found in shares.items())
