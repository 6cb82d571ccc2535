"""How a run ends: its sources do, somebody stops or drains it, a sink or a box fails for good; and what is said to it afterwards.

Most sources end when all faults are over, and nothing else happens then. In some runs that is when a leader dies, perhaps one that does not
know of the last epoch of all, or when partitions move.
Random numbers are of its own, so that a seed has the same faults otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

from evenflow.coordinator.events import (
    Appended,
    AppendRefused,
    AppendUnknown,
    DrainSite,
    EntryRead,
    MovesRequested,
    PlanChangeRequested,
    ReadFailed,
    RebalanceRequested,
    RepartitionRequested,
    ReplaceRequested,
    RunBroken,
    SiteLost,
    SiteReady,
    StopRequested,
)
from evenflow.errors import BoxFailed, ClusterError, EvenflowError, LocationError, SinkError
from evenflow.plan.plan import Version
from evenflow.policy.move import Move
from evenflow.site.events import (
    BatchDone,
    DrainRequested,
    Event,
    Loaded,
    LoadFailed,
    MembershipChanged,
    RowsArrived,
    SourceEnded,
    Spilled,
    SpillFailed,
    WorkDone,
)
from evenflow.site.given import EpochsGiven
from evenflow.site.outcome import Outcome
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.ids import SiteId
from evenflow.swarm.divisions import divide
from evenflow.swarm.faults import Faults
from evenflow.swarm.taken import all_taken
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

KINDS: Final = {
    "sources": 10, "stop": 1, "drain": 1, "drain_all": 2, "sink": 1, "box": 2, "leader_dies": 3, "last_epoch": 2, "ingress_moves": 3,
}  # fmt: skip
"""How often a run ends how, relative to each other."""
HELD: Final = ("drain_all", "leader_dies", "last_epoch", "ingress_moves")
"""Kinds for which rows must come until all faults are over."""
LOOKS: Final = 1_000
LINGER_S: Final = 0.3
"""Virtual seconds after the end for which the coordinator still hears what was on its way."""
BUSY_S: Final = 4.0
"""A site that is made slow for good is busy for no longer with all rows of the sources, unless it needs longer when it is not slow: else
work is what the end of a run waits for. An epoch goes through a leader and then through its followers, so a run needs more than that."""


def draw_ending(random: Random, *, held: bool, doomed: bool) -> str:
    """held: rows come until all faults are over. doomed: the run is to lose partitions before it ends otherwise."""
    if doomed:
        return "sources"
    able = [kind for kind in KINDS if held or kind not in HELD]
    return random.choices(able, [KINDS[kind] for kind in able])[0]


def bearable(factor: float, alone_s: float) -> float:
    """How many times slower a site may become. factor: as it was drawn. alone_s: seconds that it needs for all rows when it is not slow."""
    return max(1.0, min(factor, BUSY_S / alone_s))


class Ending(Observer):
    """kind: see KINDS. counts: rows of each source partition, by source. until_us: virtual time within which what comes early does.

    stopped, drained: the run has been, before its sources ended.
    """

    def __init__(
        self, world: SimWorld, kind: str, random: Random, counts: Mapping[str, Sequence[int]], until_us: int, faults: Faults
    ) -> None:
        self.world, self.kind, self._random, self._faults = world, kind, random, faults
        self.stopped = self.drained = self._failed = False
        self._unaware: int | None = None
        if kind in ("box", "last_epoch", "ingress_moves", "drain", "drain_all"):
            world.observers = (*world.observers, self)
        self._counts: dict[tuple[int, int], int] = {}
        for segment in world.layout.segments:
            if segment.kind == "ingress":
                of = counts[segment.source or ""]
                self._counts |= {(segment.id, p): of[p] if p < len(of) else 0 for p in range(segment.partitions)}
        self._late = kind == "box" and random.random() < 0.7
        if kind in ("stop", "drain", "sink", "box") and not self._late:
            begin = {"stop": self._stop, "drain": self._drain_behind_a_plan, "sink": self._sink, "box": self._box}[kind]
            world.clock.after(random.randint(1, 2 * until_us), begin)
        elif kind in ("leader_dies", "last_epoch") or (kind == "ingress_moves" and random.random() < 0.5):
            # Some partitions end before the others, so that nobody closes an epoch for their sake any more.
            early = [key for key in self._counts if random.random() < 0.6]
            world.end_early.update(early)
            for key in early:
                world.quotas.pop(key, None)

    def begin(self) -> None:
        """All faults are over, and redundancy is whole: the end may come."""
        world, random = self.world, self._random
        world.quotas.clear()
        if self.kind == "drain_all":
            return
        if self.kind == "leader_dies":
            for _ in range(random.choice([1, 1, 2])):
                world.clock.after(random.randint(0, random.choice([1_000, 5_000, 40_000])), self._leader_dies)
        elif self.kind == "last_epoch":
            self._unaware = self._choose_unaware()
        elif self.kind == "ingress_moves":
            self._ingress_moves()
            world.clock.after(100, lambda: self._end_with_move(looks=LOOKS))
            return
        elif self._late:
            self._box()
        world.sources_may_end = True

    def go_on(self, limit_s: float) -> None:
        """Until the run has ended."""
        world = self.world
        if self.kind == "drain_all":
            world.run_until(self.all_taken, limit_s, "all rows to be taken in")
            world.stop(drain=True)
        world.run_until(lambda: world.ended, limit_s, "the run to end")

    def all_taken(self) -> bool:
        """Every row of every source has been taken in."""
        return sum(self.taken()) == sum(self._counts.values())

    def taken(self) -> list[int]:
        """Rows of each source partition that have been taken in."""
        return all_taken(self.world)

    def expects(self, error: EvenflowError) -> bool:
        """Whether the run was to end with that."""
        match error:
            case SinkError():
                return self.kind == "sink"
            case BoxFailed():
                return self.world.failing is not None and error.epoch == self.world.failing[1]
        return isinstance(error, ClusterError) and not self.world.coordinator.started

    def afterwards(self) -> None:
        """Sites, timers and people do not know yet that it is over: nothing comes of what they say."""
        world, random = self.world, self._random
        machine, driver = world.coordinator, world.driver
        world.linger(LINGER_S)
        site = SiteId(random.choice(machine.sites or (0,)))
        segment = world.layout.segments[0].id
        move = Move(segment, (0,), site, site, "the swarm wants it", asked=True)
        version = Version(10_000, tuple({} for _ in world.layout.segments), tuple(0 for _ in world.layout.segments), ("some",))
        for event in (
            SiteReady(site), SiteReady(SiteId(len(world.sites))), SiteLost(site, "its process has ended"),
            StopRequested(random.random() < 0.5), RunBroken(SinkError("the sink is gone")), PlanChangeRequested(), MovesRequested((move,)),
            DrainSite(site),
            RepartitionRequested((segment,), 1), ReplaceRequested(version), RebalanceRequested(world.collect()),
            Appended(1), AppendRefused(1), AppendUnknown(1, "no answer"), EntryRead(1, None), ReadFailed(1, LocationError("no answer")),
        ):  # fmt: skip
            driver.coordinate(event)

    # ------------------------------------------------------------ what comes early

    def _stop(self) -> None:
        self.stopped = not self.world.ended
        self.world.stop(drain=False)

    def _drain(self) -> None:
        self.drained = not self.world.ended
        self.world.stop(drain=True)

    def _drain_behind_a_plan(self) -> None:
        """Where a plan says what the last rows are: perhaps as soon as one divides state, which may act from far ahead on."""
        world = self.world
        chance = Random(f"what comes before the drain at {world.clock.now_us}")
        if world.coordinator.by_content and chance.random() < 0.5:
            divide(world, chance)
            self._drain_when_divided(world.coordinator.plan.ranges, LOOKS)
        else:
            self._drain()

    def _drain_when_divided(self, before: Any, looks: int) -> None:
        if looks and not self.world.ended and self.world.coordinator.plan.ranges == before:
            self.world.clock.after(100, lambda: self._drain_when_divided(before, looks - 1))
        else:
            self._drain()

    def _sink(self) -> None:
        driver = self.world.driver
        driver.soon(lambda: driver.coordinate(RunBroken(SinkError("the sink refuses for good"))))

    def _box(self) -> None:
        """A box fails soon; the driver hears of it late, the sites are slow, and their disks fail too: much is under way when it does."""
        world, random = self.world, self._random
        if world.ended:
            return
        epoch = 1 + max(site.part.closed for site in world.sites) + random.randint(0, random.choice([0, 2, 8]))
        world.failing = random.randrange(len(world.layout.segments)), epoch
        slow, spoils = random.choice([1.0, 10.0, 40.0]), random.random() < 0.5
        for index in self._faults.living():
            self._slow_down(index, slow)
            disk = world.sites[index].disk
            disk.refuses, disk.spoils = spoils, int(spoils and not disk.wrong)

    def _slow_down(self, site: int, factor: float) -> None:
        """For the rest of the run. What all rows take is what they take in the segment that they are dearest in."""
        cost, rows = self.world.cost, sum(self._counts.values())
        alone_us = cost.factor(site) * max(cost.epoch_us(segment.kind, rows) for segment in self.world.layout.segments)
        self.world.slow_down(site, bearable(factor, alone_us / 1e6))

    def handled(self, site: SimSite, event: Event) -> None:
        """What is on its way to a part when it fails, when it is drained, or when a partition moves away from it, comes all the same."""
        part = site.part
        if self._unaware is not None:
            self._kill_unaware(self._unaware)
        if self.kind == "last_epoch":
            return
        if part.failed and not self._failed:
            self._failed = True
            if not self.world.driver.paused:
                self.world.pause_driver(self._random.choice([0.001, 0.02]))
            tick = Tick(1, 1, NO_WATERMARK, NO_WATERMARK)
            first = next(iter(self._counts))
            words = [*self._of_sources(*first), EpochsGiven(*first, 0)]
            words += [Spilled(0, ()), SpillFailed(0, "full"), Loaded(0, {}), LoadFailed(0, "lost"), WorkDone(Outcome((0, 0), tick, 0))]
            for word in words:
                site.deliver(word, lambda: part.failed)
        elif isinstance(event, DrainRequested) and not part.failed:
            for key in part.ingress.queues:
                for word in self._of_sources(*key):
                    site.deliver(word, lambda k=key: k in part.ingress.queues and part.ingress.queues[k].ended)  # type: ignore[misc]
        elif isinstance(event, MembershipChanged) and not part.failed:
            for move in part.view.plan.copies:
                key = move.segment, move.partitions[0]
                if move.replaces == site.index and move.number in event.membership.retired and key in self._counts:
                    for word in [*self._of_sources(*key), EpochsGiven(*key, 0)]:
                        site.deliver(word, lambda k=key: not part.failed and k not in part.ingress.queues)  # type: ignore[misc]

    def _of_sources(self, segment: int, partition: int) -> list[Event]:
        none = pa.RecordBatch.from_pylist([], schema=self.world.layout.segments[segment].schema)
        return [RowsArrived(segment, partition, none), BatchDone(segment, partition, 0), SourceEnded(segment, partition)]

    # ------------------------------------------------------------ what comes with the end

    def _leader_dies(self) -> None:
        """Of partitions that have ended, rather."""
        world, leaders = self.world, self.world.coordinator.membership.leaders
        keys = [key for key in self._counts if key in world.end_early] or list(self._counts)
        segment, partition = self._random.choice(keys)
        if not world.ended:
            self._faults.lose(leaders[segment][partition].site)

    def _choose_unaware(self) -> int | None:
        """A site that leads ended partitions only, and whose successors, if that can be, host nothing else than they must."""
        world, machine = self.world, self.world.coordinator
        led: dict[int, list[tuple[int, int]]] = {}
        for key in self._counts:
            led.setdefault(machine.view.leader(*key).site, []).append(key)
        able = [site for site, keys in led.items() if world.end_early.issuperset(keys)]
        if world.ended or len(able) == len(led):
            return None
        load = machine.view.load()
        lonely = {site: min(sum(load[s] for s in machine.view.members(*key) if s != site) for key in led[site]) for site in able}
        return min(lonely, key=lambda site: (lonely[site], site), default=None)

    def _kill_unaware(self, site: int) -> None:
        """It dies when the others have closed the last epoch of all, before it hears of that."""
        world, machine = self.world, self.world.coordinator
        others = {machine.view.leader(*key).site for key in self._counts} - {site}
        parts = [world.sites[other].part for other in others]
        if all(queue.announced for part in parts for queue in part.ingress.queues.values()):
            self._unaware = None
            if world.sites[site].part.closed < max([part.ingress.closed for part in parts], default=0):
                world.clock.after(1, lambda: self._lose(site))

    def _lose(self, site: int) -> None:
        if not self.world.ended:
            self._faults.lose(site)

    def _ingress_moves(self) -> None:
        world, random, machine = self.world, self._random, self.world.coordinator
        if world.ended or not machine.running:
            return
        moves = []
        for segment, partition in self._counts:
            live = machine.membership.live(machine.plan, segment, partition)
            able = [site for site in machine.sites if site not in live]
            if able and random.random() < 0.7:
                leader = machine.membership.leaders[segment][partition].site
                moves.append(Move(segment, (partition,), leader, random.choice(able), "the swarm wants it", asked=True))
        world.driver.soon(lambda: world.driver.coordinate(MovesRequested(tuple(moves))))

    def _end_with_move(self, looks: int) -> None:
        """The sources end as soon as a partition is live where it moves to, while the site that it leaves has much to do."""
        world, random = self.world, self._random
        moves = world.coordinator.moving.unconfirmed.values()
        if moves or not looks:
            for move in moves:
                if random.random() < 0.7:
                    self._slow_down(move.replaces, random.choice([3.0, 30.0]))
            world.clock.after(random.randint(0, 1_500), self._end)
        elif not world.ended:
            world.clock.after(100, lambda: self._end_with_move(looks - 1))

    def _end(self) -> None:
        self.world.sources_may_end = True
