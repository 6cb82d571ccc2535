"""How long a reader of two regions waits behind a kill or a cut: no longer than a width, a hedge, the difference of the ways and 50 ms."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from typing import Any, Final

import pytest

from evenflow.availability.chain import Link
from evenflow.availability.subscribing import Action, Deliver, Follow, Subscription, Want
from evenflow.policy.hedge import MOST_US
from tests.drawn import one_in

WIDTH_US: Final = 50_000
DELAYS_US: Final = (1_000, 10_000)
MUST_US: Final = WIDTH_US + MOST_US + (DELAYS_US[1] - DELAYS_US[0]) + 50_000
WATCHED_US: Final = 2_000_000
CUT_US: Final = 3_000_000


@dataclass(eq=False)
class Way:
    """To one region, which makes every epoch and may be dead or cut off. held: what a cut keeps back, in order."""

    number: int
    alive: bool = True
    cut: bool = False
    up: bool = False
    connection: int = 0
    last: int = 0
    after: int | None = None
    rows: bool = False
    again_us: int = 50_000
    held: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    arrived_us: list[int] = field(default_factory=lambda: [0, 0])


class Schedule:
    """Twelve events, each of the region that brings the rows. waits: of each, (kind, the longest wait behind it)."""

    def __init__(self, seed: int) -> None:
        self.random, self.now_us, self._places = Random(seed), 0, count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self.reader = Subscription.of("out", ["near", "far"], 0, 0, patience_us=10**12)
        self.ways = [Way(0), Way(1)]
        self.got: list[tuple[int, int]] = []
        self.events: list[tuple[str, int]] = []
        self._over = False

    def run(self) -> list[tuple[str, int]]:
        for way in self.ways:
            self._dial(way)
        self._publish(1)
        self._at(3_000_000, self._strike)
        while self._due:
            self.now_us, _, do = heapq.heappop(self._due)
            do()
        return [(kind, self._wait(at_us)) for kind, at_us in self.events]

    def _wait(self, at_us: int) -> int:
        return max(later - at for (at, _), (later, _) in pairwise(self.got) if later > at_us and at <= at_us + WATCHED_US)

    def _at(self, at_us: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_us, next(self._places), do))

    # ------------------------------------------------------------ the ways

    def _send(self, way: Way, back: bool, do: Callable[[], None]) -> None:
        """In order; what is said into a cut arrives when it is whole, and what is said on a connection is lost with it."""
        connection = way.connection

        def arrive() -> None:
            way.arrived_us[back] = max(way.arrived_us[back], self.now_us + DELAYS_US[way.number])
            self._at(way.arrived_us[back], lambda: do() if way.connection == connection else None)

        if way.cut:
            way.held.append((connection, arrive))
        else:
            arrive()

    def _tell(self, way: Way, epoch: int, *, rows: bool) -> None:
        link = Link(epoch - 1, epoch, epoch)
        self._send(way, True, lambda: self._carry(self.reader.told(way.number, link, epoch if rows else None, self.now_us)))

    def _pump(self, way: Way) -> None:
        while way.alive and way.after is not None and way.after < way.last:
            way.after += 1
            self._tell(way, way.after, rows=way.rows)

    def _dial(self, way: Way) -> None:
        if not way.alive or way.cut:
            self._again(way)
            return
        way.connection, way.after, way.arrived_us, way.again_us = way.connection + 1, None, [0, 0], 50_000
        connection = way.connection

        def joined() -> None:
            if way.connection == connection:
                way.up = True
                self._carry(self.reader.joined(way.number, self.now_us))

        self._at(self.now_us + 4 * DELAYS_US[way.number] + 1_000, joined)

    def _again(self, way: Way) -> None:
        self._at(self.now_us + way.again_us, lambda: None if self._over else self._dial(way))
        way.again_us = min(2_000_000, 2 * way.again_us)

    def _lose(self, way: Way) -> None:
        way.up = False
        self._carry(self.reader.lost(way.number, self.now_us))
        self._again(way)

    # ------------------------------------------------------------ what happens

    def _publish(self, epoch: int) -> None:
        for way in self.ways:
            self._at(self.now_us + 5_000 + self.random.randrange(4_000), lambda way=way: self._made(way, epoch))  # type: ignore[misc]
        if not self._over:
            self._at(self.now_us + WIDTH_US, lambda: self._publish(epoch + 1))

    def _made(self, way: Way, epoch: int) -> None:
        way.last = epoch
        if way.up:
            self._pump(way)

    def _strike(self) -> None:
        way, kind = self.ways[self.reader.rows_from or 0], self.random.choice(["cut", "kill"])
        self.events.append((kind, self.now_us))
        lasts_us = CUT_US if kind == "cut" else self.random.randint(4_000_000, 12_000_000)
        if kind == "cut":
            way.cut = True
        else:
            way.alive, way.connection = False, way.connection + 1
            self._at(self.now_us + DELAYS_US[way.number] + self.random.randrange(60_000), lambda: self._lose(way))
        self._at(self.now_us + lasts_us, lambda: self._mend(way))
        self._at(self.now_us + lasts_us + 4_100_000, self._strike if len(self.events) < 12 else self._end)

    def _mend(self, way: Way) -> None:
        way.alive, way.cut = True, False
        held, way.held = way.held, []
        for connection, arrive in held:
            if connection == way.connection:
                arrive()

    def _end(self) -> None:
        self._over = True

    # ------------------------------------------------------------ the reader

    def _carry(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Follow(leg, brings, after):
                    self._send(self.ways[leg], False, lambda leg=leg, b=brings, a=after: self._follow(self.ways[leg], b, a))  # type: ignore[misc]
                case Want(leg, epoch):
                    self._send(self.ways[leg], False, lambda leg=leg, epoch=epoch: self._tell(self.ways[leg], epoch, rows=True))  # type: ignore[misc]
                case Deliver(link, _):
                    self.got.append((self.now_us, link.epoch))
        due_us = self.reader.due_us
        if due_us is not None:
            self._at(max(due_us, self.now_us), self._tick)

    def _follow(self, way: Way, brings: Any, after: int) -> None:
        way.after, way.rows = after, brings == "rows"
        self._pump(way)

    def _tick(self) -> None:
        due_us = self.reader.due_us
        if due_us is not None and due_us <= self.now_us:
            self._carry(self.reader.tick(self.now_us))


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_behind_a_kill_or_a_cut_a_reader_waits_for_a_width_a_hedge_and_the_ways(seed: int) -> None:
    schedule = Schedule(seed)
    waits = schedule.run()
    assert [epoch for _, epoch in schedule.got] == list(range(1, len(schedule.got) + 1)) and len(schedule.got) > 1_000
    assert [(kind, wait) for kind, wait in waits if wait > MUST_US] == []


def test_schedules_meet_both() -> None:
    waits = [each for seed in (0, 4) for each in Schedule(seed).run()]
    assert {kind for kind, _ in waits} == {"cut", "kill"}
    assert max(wait for _, wait in waits) > WIDTH_US + MOST_US // 2, "a hedge was waited for"
