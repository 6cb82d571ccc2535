"""A simulated reader of several regions: `availability.subscribing` with legs that are slow, cut or gone (race.md, W6), and the ear of a
silent region, which hears heads only (W4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.availability.finished import Finished
from evenflow.availability.group import differs
from evenflow.availability.subscribing import Action, Deliver, End, Follow, Subscription, Want
from evenflow.errors import EvenflowError
from evenflow.kernels.digest import in_one_order
from evenflow.sources.group import Begin, GroupSource
from evenflow.world.sim.regions import SimOutlet, SimRegion, SimRegions

AGAIN_US: Final = 50_000
"""From one try to reach a region to the next."""
SEEN_US: Final = 30_000
"""After so long a leg that brings nothing any more is known to be cut."""


@dataclass(eq=False)
class SimLeg:
    """The way to one region. delay_us: one way. outlet: of the region's life that it leads to, None: it leads nowhere. cursor: the last
    epoch that was sent, None: nothing is asked for. passed: up to which epoch without rows it was told. slow_us: so much longer it takes
    for now."""

    region: SimRegion
    delay_us: int
    outlet: SimOutlet | None = None
    cursor: int | None = None
    brings: str = "heads"
    connection: int = 0
    up_us: int | None = None
    passed: int = 0
    busy_until_us: int = 0
    slow_us: int = 0

    @property
    def finished(self) -> Finished[pa.RecordBatch]:
        assert self.outlet is not None and self.outlet.finished is not None
        return self.outlet.finished

    @property
    def cut(self) -> bool:
        """Nothing goes through."""
        return (
            self.region.off_clients
            or self.outlet is not self.region.outlets.get(self.outlet.name if self.outlet else "")
            or (not self.region.serves)
        )


@dataclass(eq=False)
class SimSubscriber:
    """sink: which it reads. after: behind which epoch it begins. marks: regions say, too, up to which epoch nothing has come. got: what it
    has delivered, (link, rows). told: each link that a leg has shown. over: all is delivered. error: why it has stopped."""

    group: SimRegions
    sink: str
    delays_us: list[int]
    race: bool = False
    after: int = 0
    marks: bool = False
    got: list[tuple[Link, pa.RecordBatch]] = field(default_factory=list)
    told: dict[int, set[Link]] = field(default_factory=dict)
    over: bool = False
    error: EvenflowError | None = None

    def __post_init__(self) -> None:
        regions = self.group.regions
        self.legs = [SimLeg(region, delay) for region, delay in zip(regions, self.delays_us, strict=True)]
        now_us = self.group.clock.now_us
        self.subscription = Subscription.of(self.sink, [r.name for r in regions], self.after, now_us, race=self.race, patience_us=10**12)
        self._facts: dict[str, Any] | None = None
        self._due_us: int | None = None
        self.group.readers.append(self)
        for at in range(len(self.legs)):
            self._dial(at)

    def stop(self) -> None:
        """Nobody reads it any more."""
        self.over = True
        if self in self.group.readers:
            self.group.readers.remove(self)

    # ------------------------------------------------------------ legs

    def _later(self, delay_us: int, do: Callable[[], None]) -> None:
        self.group.clock.after(delay_us, do)

    def _dial(self, at: int) -> None:
        """Try to reach a region, and again and again."""
        if self.over or self.error is not None:
            return
        leg = self.legs[at]
        if leg.up_us is None and not leg.region.off_clients and leg.region.serves:
            self._connect(at)
        elif leg.up_us is not None and leg.cut:
            self._lose(at)
        self._later(AGAIN_US if leg.up_us is None else SEEN_US, lambda: self._dial(at))

    def _connect(self, at: int) -> None:
        leg = self.legs[at]
        leg.connection += 1
        leg.outlet, leg.cursor, leg.up_us = leg.region.outlets[self.sink], None, self.group.clock.now_us
        facts = leg.region.region.group.facts()
        try:
            differs(self._facts or facts, facts, leg.region.name)
        except EvenflowError as error:
            self.error = error
            return
        self._facts = self._facts or facts
        self._carry(lambda: self.subscription.joined(at, self.group.clock.now_us))

    def _lose(self, at: int) -> None:
        leg = self.legs[at]
        leg.connection += 1
        leg.outlet, leg.up_us, leg.cursor = None, None, None
        self._carry(lambda: self.subscription.lost(at, self.group.clock.now_us))

    def _ask(self, action: Follow | Want) -> None:
        leg = self.legs[action.leg]
        connection = leg.connection

        def heard() -> None:
            if leg.connection != connection or leg.cut:
                return
            if isinstance(action, Want):
                found = leg.finished.of(action.epoch)
                if found is not None:
                    self._say(action.leg, lambda: self._told(action.leg, found.link, found.rows))
                return
            leg.cursor, leg.brings, leg.passed = action.after, action.brings, 0
            self.pump(action.leg)

        self._later(leg.delay_us + leg.slow_us, heard)

    def pump(self, at: int) -> None:
        """Send what follows, as a region's port does."""
        leg = self.legs[at]
        while leg.outlet is not None and leg.cursor is not None and not leg.cut:
            finished = leg.finished
            if not finished.reaches(leg.cursor):
                floor, leg.cursor = finished.floor, None
                self._say(at, lambda floor=floor: self.subscription.missing(at, floor, self.group.clock.now_us))  # type: ignore[misc]
                return
            found = finished.after(leg.cursor)
            if found is None:
                if self.marks and finished.passed > max(leg.passed, finished.last):
                    leg.passed, last = finished.passed, finished.last
                    self._say(at, lambda last=last, through=leg.passed: self.subscription.passed(at, last, through))  # type: ignore[misc]
                if finished.ended:
                    leg.cursor, last = None, finished.last
                    self._say(at, lambda last=last: self.subscription.ended(at, last))  # type: ignore[misc]
                return
            leg.cursor = found.link.epoch
            rows = found.rows if leg.brings == "rows" else None
            self._say(at, lambda link=found.link, rows=rows: self._told(at, link, rows))  # type: ignore[misc]

    def _told(self, at: int, link: Link, rows: pa.RecordBatch | None) -> list[Action]:
        if self.subscription.legs[at].up:
            self.told.setdefault(link.epoch, set()).add(link)
        return self.subscription.told(at, link, rows, self.group.clock.now_us)

    def _say(self, at: int, tell: Callable[[], list[Action]]) -> None:
        """What a leg says arrives in order, or is lost with its connection."""
        leg = self.legs[at]
        connection, clock = leg.connection, self.group.clock
        leg.busy_until_us = max(leg.busy_until_us, clock.now_us + leg.delay_us + leg.slow_us)
        clock.at(leg.busy_until_us, lambda: self._carry(tell) if leg.connection == connection and not leg.region.off_clients else None)

    # ------------------------------------------------------------ what is to be done

    def _carry(self, decide: Callable[[], list[Action]]) -> None:
        if self.over or self.error is not None:
            return
        try:
            actions = decide()
        except EvenflowError as error:
            self.error = error
            return
        for action in actions:
            match action:
                case Follow() | Want():
                    self._ask(action)
                case Deliver(link, rows):
                    self.got.append((link, rows))
                case End():
                    self.over = True
                case _:
                    assert_never(action)
        self._wait()

    def _wait(self) -> None:
        due_us = self.subscription.due_us
        if due_us is not None and (self._due_us is None or due_us < self._due_us):
            self._due_us = due_us
            self.group.clock.at(due_us, self._tick)

    def _tick(self) -> None:
        self._due_us = None
        self._carry(lambda: self.subscription.tick(self.group.clock.now_us))


class SimUpstream:
    """What the regions of a group have made, as the source of another group's dataflow (`sources.group.Upstream`)."""

    def __init__(self, group: SimRegions, source: GroupSource, begin: Begin, delays_us: list[int]) -> None:
        self.facts = group.planned(0, 1)[1].group.facts()
        self.reader = SimSubscriber(group, source.sink, delays_us, source.race, begin(self.facts), marks=True)
        self._taken = 0

    @property
    def through(self) -> int:
        reader = self.reader
        if self._taken == len(reader.got):
            return reader.subscription.through
        return reader.got[self._taken - 1][0].epoch if self._taken else reader.after

    @property
    def ended(self) -> bool:
        return self.reader.over and self._taken == len(self.reader.got)

    def take(self, wait_s: float) -> tuple[int, pa.RecordBatch] | None:
        if self._taken == len(self.reader.got):
            if self.reader.error is not None:
                raise self.reader.error
            return None
        link, rows = self.reader.got[self._taken]
        self._taken += 1
        return link.epoch, in_one_order(rows)

    def close(self) -> None:
        self.reader.stop()


class SimEar:
    """What a silent region hears of the others: their heads, from where it has begun itself. looks: how often."""

    def __init__(self, region: SimRegion, delay_us: int) -> None:
        self._region, self._delay_us, self._world = region, delay_us, region.world
        self._places: dict[tuple[int, str], tuple[SimOutlet, int]] = {}
        self._look()

    def _look(self) -> None:
        region, group = self._region, self._region.group
        if region.world is not self._world or region.gate.over or self._world.driver.dead:
            return
        for other in group.regions:
            if other is region or not other.serves or other.off_clients or region.off_clients:
                continue
            for sink in region.gate.silences:
                self._hear(other, sink)
        group.clock.after(2_000, self._look)

    def _hear(self, other: SimRegion, sink: str) -> None:
        outlet, key = other.outlets[sink], (other.place, sink)
        assert outlet.finished is not None
        known, cursor = self._places.get(key, (outlet, 0))
        if known is not outlet:
            cursor = 0
        if not outlet.finished.reaches(cursor):
            cursor = outlet.finished.floor
        while (found := outlet.finished.after(cursor)) is not None:
            cursor, link = found.link.epoch, found.link
            self._region.group.clock.after(self._delay_us, lambda link=link: self._arrive(sink, link, other.name))  # type: ignore[misc]
        self._places[key] = (outlet, cursor)

    def _arrive(self, sink: str, link: Link, name: str) -> None:
        if self._region.world is self._world:
            self._region.hear(sink, link, name)
