"""Regions in the simulator: several worlds under one clock that run a dataflow as one run (race.md, W1 to W7).

Each region is a `SimWorld` of its own, with sites, links and a wall clock of its own. They do not hear of each other. Readers hear of all
of them (`SimSubscriber`), and so do the sinks that they share (`SimShared`); what is decided there the cores decide that run on Spark.
What may be lost or cut off stands here, a method each; who draws it, and who checks what comes of it, is `evenflow.swarm`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, assert_never

import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.availability.committing import Appending, Held, Next, Turns
from evenflow.availability.finished import Finished
from evenflow.availability.group import Region
from evenflow.availability.silence import Gate, Reading, Silence, Start, Withheld
from evenflow.coordinator.beginning import begin_at
from evenflow.errors import EvenflowError
from evenflow.kernels.digest import set_of_rows
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_plan
from evenflow.policy.start import place_of
from evenflow.site.events import Release
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.sources.cut import CutSource
from evenflow.stream.ids import SiteId
from evenflow.world.grouping import InGroup, as_region
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.lasting import Lasting
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import SimWorld

BEGIN_US: Final = 60_000_000
"""Virtual time at which regions begin: clocks may be behind by less than that."""
LOOK_US: Final = 10_000
"""Who waits for another region asks the sink so often."""
EXACT: Final = Reading(Start.ORIGIN, 0)


class SimShared:
    """A sink that regions share: what it has of the group, and the one step in which it compares and appends.

    takes_us: least and greatest time of a request. owned: to write it needs to be opened, which ends what another region has under way, as
    a transactional id of Kafka does. held: of all regions' epochs the last. rows: what it has, in order. fencings: how often one region
    took it from another.
    """

    def __init__(self, name: str, clock: VirtualClock, random: Random, takes_us: tuple[int, int], *, owned: bool) -> None:
        self.name, self._clock, self._random, self._takes_us, self.owned = name, clock, random, takes_us, owned
        self.held = Held()
        self.chain: list[Link] = []
        self.rows: list[tuple[int, pa.RecordBatch]] = []
        self.fencings = 0
        self._owner: object | None = None

    def after(self, do: Callable[[], None]) -> None:
        """When a request is answered."""
        self._clock.after(self._random.randint(*self._takes_us), do)

    def open(self, whose: object) -> None:
        """From now on this one writes."""
        if self.owned and self._owner is not whose:
            self.fencings += self._owner is not None
            self._owner = whose

    def append(self, whose: object, link: Link, batch: pa.RecordBatch) -> tuple[bool, bool]:
        """Whether it was taken; whether another one writes now."""
        if self.owned and self._owner is not whose:
            return False, True
        if self.held.epoch != link.prev:
            return False, False
        self.held = Held(link.epoch, link.digest)
        self.chain.append(link)
        self.rows.append((link.epoch, batch))
        return True, False


@dataclass(eq=False)
class SimOutlet:
    """What one life of a region does with the epochs of one sink: keeps them for readers, or brings them to a shared sink.

    finished: what readers may have, of a sink that readers read. shared: the sink, of one that regions share. withheld: what is not given
    out yet. made: each epoch with rows that this life has made. gave: it has given something out. ended: the last epoch is through.
    """

    region: SimRegion
    world: SimWorld
    name: str
    segment: int
    withheld: Withheld[pa.RecordBatch]
    finished: Finished[pa.RecordBatch] | None = None
    shared: SimShared | None = None
    made: dict[int, Link] = field(default_factory=dict)
    appending: Appending | None = None
    gave: bool = False
    ended: bool = False
    error: EvenflowError | None = None
    _waiting: deque[Release] = field(default_factory=deque)
    _giving: deque[tuple[Link, pa.RecordBatch]] = field(default_factory=deque)
    _fed: bool = False
    _busy: bool = False

    def take(self, release: Release) -> None:
        """The driver has the first copy of an epoch."""
        self._waiting.append(release)
        self._go_on()

    @property
    def gone(self) -> bool:
        return self.world.driver.dead or self.error is not None

    def _go_on(self) -> None:
        """Epochs go through one after the other; who waits for another region holds back this one only."""
        while self._waiting and not self._busy and not self.gone:
            release = self._waiting[0]
            if release.batch.num_rows:
                digest = self.region.group.said(self, release.epoch, set_of_rows(release.batch))
                link = self.made[release.epoch] = self.withheld.made(release.epoch, digest, release.batch)
                for told in self.region.group.on_made:
                    told(self, link)
                self.region.finished_one(self.name, link)
            self.give()
            if self._giving:
                self._busy = True
                self._append()
                return
            self._through(self._waiting.popleft())

    def give(self) -> None:
        """Give out what may be."""
        found = self.withheld.given()
        for link, _ in found:
            for told in self.region.group.on_given:
                told(self, link)
            self.gave = True
        if self.shared is not None:
            if found and self.appending is not None and not self._fed:
                self.appending.prev = self.appending.turns.begun = found[0][0].prev
            self._giving.extend(found)
        for link, rows in found if self.finished is not None else ():
            assert self.finished is not None
            if not self._fed:
                self.finished.begin_behind(link.prev)
            self.finished.add(link.epoch, link.digest, rows, max(1, rows.nbytes), self.region.group.clock.now_us)
            self._fed = True
        self._fed = self._fed or bool(found)
        self.region.pump(self.name)

    def _through(self, release: Release) -> None:
        self.world.driver.store(release)
        self.world.driver.soon(lambda: self.world.driver.say_committed(self.segment, release.epoch))
        self._mark(release.epoch)
        if release.last:
            self.ended = True
            if self.finished is not None:
                says = self.withheld.gate.over and self.withheld.known
                if not self._fed and says:
                    self.finished.begin_behind(self.withheld.prev)
                self.finished.ended = says
                self.region.pump(self.name)

    def _mark(self, epoch: int) -> None:
        """All epochs up to this one are through: news for readers that want to know it, unless it is not believed yet."""
        if self.finished is None or not (self.withheld.gate.over and self.withheld.known):
            return
        if not self._fed:
            self.finished.begin_behind(self.withheld.prev)
            self._fed = True
        self.finished.skip(epoch)
        self.region.pump(self.name)

    # ------------------------------------------------------------ shared sinks

    def _append(self) -> None:
        """The next step of the first epoch that is to be given."""
        if self.gone:
            return
        group, appending, shared = self.region.group, self.appending, self.shared
        assert appending is not None and shared is not None
        if self.region.off_sinks:
            group.clock.after(LOOK_US, self._append)
            return
        link, batch = self._giving[0]
        try:
            step = appending.next(link, group.clock.now_us)
        except EvenflowError as error:
            self.error = error
            group.disagreed.append((self.region.name, error))
            return
        match step:
            case Next.LOOK:
                shared.after(lambda: self._looked(shared.held))
            case Next.WAIT:
                group.clock.after(LOOK_US, lambda: self._looked(shared.held))
            case Next.APPEND:
                shared.open(self)
                shared.after(lambda: self._appended(link, shared.append(self, link, batch)))
            case Next.DONE:
                self._giving.popleft()
                if self._giving:
                    self._append()
                    return
                self._busy = False
                self._through(self._waiting.popleft())
                self._go_on()
            case _:
                assert_never(step)

    def _looked(self, held: Held) -> None:
        assert self.appending is not None
        if not self.region.off_sinks:
            self.appending.looked(held, self.region.group.clock.now_us)
        self._append()

    def _appended(self, link: Link, answer: tuple[bool, bool]) -> None:
        assert self.appending is not None
        taken, fenced = answer
        if self.region.off_sinks:
            self.appending.unknown()  # The answer is lost.
        elif taken:
            self.appending.taken(link, self.region.group.clock.now_us)
        else:
            self.appending.refused(fenced=fenced)
        self._append()


@dataclass(frozen=True)
class Given:
    """Of a region. ahead_us: of its wall clock. world: arguments of its `SimWorld`. keep_us: for how long it keeps finished epochs.
    located: it has a checkpoint location, at which each life goes on with what the ones before had."""

    name: str
    sites: int
    replicas: int
    ahead_us: int
    world: Mapping[str, Any]
    keep_us: int = 60_000_000
    located: bool = False


class SimRegion:
    """One region, over its lives. off_source, off_sinks, off_clients: what it is cut off from. outlets: of this life, by sink.
    after: its first epoch comes behind this one."""

    def __init__(self, group: SimRegions, place: int, given: Given) -> None:
        self.group, self.place, self.given, self.name = group, place, given, given.name
        self.off_source = self.off_sinks = self.off_clients = False
        self.lives: list[SimWorld] = []
        self.outlets: dict[str, SimOutlet] = {}
        self.gate, self.after = Gate(), 0
        self.lasting: Lasting | None = None
        self.store: SimStore | None = None
        if given.located:
            self.store = SimStore(group.clock, StoreModel(), Random(f"store of {given.name}, seed {given.world['seed']}"))

    @property
    def over(self) -> bool:
        """Its journal says that the run has ended: there is nothing to go on with."""
        return self.store is not None and self.store.standing().ended is not None

    @property
    def world(self) -> SimWorld:
        return self.lives[-1]

    @property
    def there(self) -> bool:
        """It lives and serves."""
        return bool(self.lives) and not self.world.driver.dead and not self.world.driver.paused

    @property
    def serves(self) -> bool:
        """A reader that can reach it is answered."""
        return self.there and self.gate.over

    def begin(self, reading: Reading = EXACT) -> SimWorld:
        """A life of it: without any state, or, at a location, with what there is. reading: from where, without a location."""
        group, given = self.group, self.given
        assert not self.over, f"the run of {self.name} has ended"
        planned, self.region = group.planned(self.place, given.sites)
        planned = replace(planned, sources={name: _behind(source, reading.after) for name, source in planned.sources.items()})
        place, scheme = place_of("home", planned), given.world.get("placement", "mirrored")
        beginning, plan, lasts = FROM_NOTHING, None, dict[str, int]()
        if self.store is not None:
            assert not reading.after, "who goes on at a location reads on from there"
            standing = self.store.standing()
            beginning = begin_at(standing, planned, tuple(map(SiteId, range(given.sites))), given.replicas, scheme, place)
            plan, lasts = beginning.plans[-1], dict(standing.lasts)
        elif reading.after:
            plan = first_plan(planned, given.sites, given.replicas, scheme, place=place)
            beginning, lasts = Beginning(reading.after, (plan,)), dict.fromkeys(planned.sinks, reading.after)
        if self.lasting is None or self.store is None:
            self.lasting = Lasting(planned.sinks, group.clock)
        self.gate, self.after = Gate(), reading.after
        world = SimWorld(
            planned, sites=given.sites, replicas=given.replicas, lasting=self.lasting, ahead_us=given.ahead_us, plan=plan, store=self.store,
            beginning=beginning, **{**given.world, "seed": given.world["seed"] + 7919 * len(self.lives)},
        )  # fmt: skip
        self.lives.append(world)
        self.outlets = {}
        for segment in planned.segments:
            if segment.sink is not None:
                self.outlets[segment.sink] = self._outlet(world, segment.sink, segment.id, lasts.get(segment.sink, 0))
        world.outlets = self.outlets
        if self.off_source:
            self.cut_source()
        for prepare in group.prepare:
            prepare(self, world)
        return world

    def _outlet(self, world: SimWorld, name: str, segment: int, last: int) -> SimOutlet:
        """last: the last epoch with rows before the first that comes, as far as that is known."""
        shared = self.group.shared.get(name)
        if self.after and shared is None:
            self.gate.silences[name] = Silence.behind(name, self.after)
        made = SimOutlet(self, world, name, segment, Withheld(self.gate, last, known=not self.after))
        if shared is None:
            made.finished = Finished(self.given.keep_us, 1 << 40)
        else:
            made.shared, made.appending = shared, Appending(Turns(name, self.place, begun=self.after), last)
        return made

    def finished_one(self, sink: str, link: Link) -> None:
        """It has made an epoch with rows: what it is silent about is compared with what others have said."""
        if sink in self.gate.silences and not self.gate.over:
            self.gate.silences[sink].made(link)
            self._given()

    def hear(self, sink: str, link: Link, region: str) -> None:
        """A head of a live region has come."""
        if sink in self.gate.silences and not self.gate.over and self.there:
            self.gate.silences[sink].heard(link, region)
            self._given()

    def _given(self) -> None:
        if self.gate.over:
            for outlet in self.outlets.values():
                if outlet.shared is None:
                    outlet.give()

    def pump(self, sink: str) -> None:
        for reader in self.group.readers:
            if reader.sink == sink:
                reader.pump(self.place)

    # ------------------------------------------------------------ what may be lost

    def lose_driver(self) -> None:
        """Its driver is gone; its sites go on for a while, and nobody hears them."""
        self.world.kill_driver()

    def lose(self) -> None:
        """All of it is gone."""
        self.world.lose_all()

    def cut_source(self) -> None:
        """Its sites read nothing any more."""
        self.off_source, world = True, self.world
        world.sources_may_end = False
        for segment in world.layout.segments:
            if segment.kind == "ingress":
                world.quotas |= {(segment.id, partition): 0 for partition in range(segment.partitions)}

    def heal_source(self) -> None:
        self.off_source = False
        self.world.quotas.clear()
        self.world.sources_may_end = True


def _behind(source: Any, after: int) -> Any:
    assert isinstance(source, CutSource), "sources of a group are cut by content"
    return replace(source, after=after)


class SimRegions:
    """See the module. plan: the layout for so many sites. wanted: the group. shared: sinks that regions share, by name; others are read by
    readers. liar: a region, and the epoch from which on it says other digests than the others. disagreed: regions that a shared sink
    contradicts.
    """

    def __init__(
        self, plan: Callable[[int], Layout], wanted: InGroup, given: list[Given], *, seed: int = 0, shared: Mapping[str, bool] = {},
        takes_us: tuple[int, int] = (500, 5_000), clock: VirtualClock | None = None,
    ) -> None:  # fmt: skip
        """shared: by name, whether it has an owner (`SimShared`). clock: of another group, which this one reads."""
        self.clock = VirtualClock(BEGIN_US) if clock is None else clock
        self.random = Random(f"regions of seed {seed}")
        self._plan, self._wanted = plan, wanted
        self.shared = {name: SimShared(name, self.clock, self.random, takes_us, owned=owned) for name, owned in shared.items()}
        self.readers: list[Any] = []
        self.on_made: list[Callable[[SimOutlet, Link], None]] = []
        self.on_given: list[Callable[[SimOutlet, Link], None]] = []
        self.prepare: list[Callable[[SimRegion, SimWorld], None]] = []
        self.disagreed: list[tuple[str, EvenflowError]] = []
        self.liar: tuple[str, int] | None = None
        self.regions = [SimRegion(self, place, each) for place, each in enumerate(given)]

    def planned(self, place: int, sites: int) -> tuple[Layout, Region]:
        """The layout of a region, made for what the group says and not for what it has."""
        wanted = replace(self._wanted, place=place)
        shape = wanted.made_for(sites)
        return as_region(self._plan(shape), wanted, shape)

    def said(self, outlet: SimOutlet, epoch: int, digest: int) -> int:
        """The digest that a region gives for an epoch: another one where it is to contradict the others."""
        lies = self.liar is not None and outlet.region.name == self.liar[0] and epoch >= self.liar[1]
        return digest ^ lies

    def run_for(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        """Let virtual time pass until that is so; False if it is not after `limit_s`."""
        over: list[bool] = []
        self.clock.after(int(limit_s * 1e6), lambda: over.append(True))
        while not over and not reached():
            self.clock.step()
        return reached()


__all__ = ["EXACT", "Given", "SimOutlet", "SimRegion", "SimRegions", "SimShared"]
