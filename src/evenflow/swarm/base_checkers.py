"""Some live site has all frames that a partition could need which is lost now, where it begins again from a base (availability.md, B2)."""

from __future__ import annotations

from typing import Final

from evenflow.availability.mode import BASED, Mode, of_segment
from evenflow.exchange.retention import Retention
from evenflow.plan.layout import Segment
from evenflow.site.events import Event
from evenflow.site.view import Block
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

EVERY: Final = 16
"""Events of sites from one look to the next."""


class BaseCheckers(Observer):
    """Looks at what producers of a passive segment keep behind the base from which it would begin again. looked: how often that was.

    _stored: by segment, up to where its sink has all, by the site that knew most of it.
    """

    def __init__(self, world: SimWorld) -> None:
        self.world, self.looked, self._events = world, 0, 0
        self._stored: dict[int, int] = {}
        self._sinks = [segment.id for segment in world.layout.segments if segment.sink is not None]
        world.observers = (*world.observers, self)

    def handled(self, site: SimSite, event: Event) -> None:
        self._events += 1
        self._note_stored(site)
        machine = self.world.coordinator
        if self._events % EVERY or not machine.plan.modes or not machine.running or machine.under_way():
            return
        if machine.recovery.lost():
            return
        for arc in self.world.layout.arcs:
            if machine.plan.mode(arc.consumer) in BASED and machine.reviving.has_base(arc.consumer):
                self.looked += 1
                all_keep(self.world, arc.id, machine.reviving.base_of(arc.consumer))
        for segment, mode in enumerate(machine.plan.modes):
            if mode is Mode.UPSTREAM and machine.journal is None:
                self._all_have(segment, machine.reviving.base_of(segment))

    def _note_stored(self, site: SimSite) -> None:
        for segment in self._sinks if self.world.coordinator.plan.modes else ():
            self._stored[segment] = max(self._stored.get(segment, 0), site.part.releasing.through(segment))

    def _all_have(self, segment: int, base: int) -> None:
        """What a segment has put out up to the epoch from whose end it would begin again is at all who live and consume it, or in its sink:
        it does not make that again."""
        described = self.world.layout.segments[segment]
        sites = [self.world.sites[site] for site in self.world.coordinator.sites if self.world.sites[site].alive]
        live = [cohort for site in sites for cohort in site.part.cohorts.values() if not cohort.number]
        received = [cohort.inboxes[stream].through for cohort in live for stream in described.outputs if stream in cohort.inboxes]
        if described.sink is not None:
            received.append(self._stored.get(segment, 0))
        if min(received, default=base) < base:
            raise AssertionError(f"{described.name} would begin again from the end of epoch {base}, and not all have what came up to there")


def all_keep(world: SimWorld, stream: int, base: int) -> None:
    """Each producer partition has a live site that keeps, or will make, every epoch after the base. Raises AssertionError."""
    machine, sites, producer = world.coordinator, world.sites, world.layout.arcs[stream].producer
    for block in machine.view.blocks(producer):
        live = [sites[site] for site in machine.view.live(block) if sites[site].alive]
        if live and not any(_has(retained, base) for site in live for retained in _kept(site, stream, block)):
            raise AssertionError(
                f"partitions {block.partitions} of segment {producer}: nobody has stream {stream} from epoch {base + 1} on, and what "
                f"consumes it would begin there"
            )


def _kept(site: SimSite, stream: int, block: Block) -> list[Retention]:
    """What the site keeps of the stream from these partitions."""
    mine = [cohort for cohort in site.part.cohorts.values() if stream in cohort.retained]
    return [cohort.retained[stream] for cohort in mine if not set(cohort.partitions).isdisjoint(block.partitions)]


def in_pairs(world: SimWorld) -> list[Segment]:
    """Segments that need a live replica at any time, or will: the others begin again, or anew. A death that is noticed once a change to
    pairs is committed costs what it costs in pairs, also if another one is wanted since that was proposed."""
    machine = world.coordinator
    proposed = () if machine.proposed is None else (machine.proposed.modes,)
    either = (machine.plan.modes, machine.modes.modes, *proposed)
    return [segment for segment in world.layout.segments if any(of_segment(modes, segment.id) is Mode.PAIRS for modes in either)]


def may_begin_again(world: SimWorld) -> bool:
    """Whether all that begins again from a base in this run can be lost now: it has one, and nothing is under way. Or the run goes on from
    its location."""
    machine = world.coordinator
    if machine.journal is not None or not any(mode in BASED for mode in machine.plan.modes):
        return True
    return not machine.under_way() and not machine.view.lacks() and machine.reviving.based()


def one_at_a_time(world: SimWorld) -> bool:
    """What one site has alone is at one other."""
    return world.coordinator.backing.active


def _has(retained: Retention, base: int) -> bool:
    since = retained.since(0)
    return (since[0].epoch if since else retained.produced + 1) <= base + 1
