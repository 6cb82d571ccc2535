"""Several parts with a way between them, and nothing else: what a coordinator and a world would do, the test does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

import evenflow as ef
from evenflow.exchange.section import Section
from evenflow.plan.layout import Layout
from evenflow.plan.membership import Membership
from evenflow.plan.placement import Scheme, first_membership, first_plan
from evenflow.plan.plan import Copy, Plan
from evenflow.plan.ranges import Ranges
from evenflow.query.planner import layout
from evenflow.sinks.sink import Sink
from evenflow.site.events import (
    Event,
    Heard,
    LinkDown,
    LinkUp,
    MembershipChanged,
    OpenSource,
    PlanCommitted,
    Release,
    RowsArrived,
    Run,
    SetTimer,
    Ship,
    SinkCommitted,
    SourceEnded,
    Started,
    StateArrived,
    StoreState,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import Fact
from evenflow.site.ground import Setup
from evenflow.site.hosted import Work
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SOURCE, TOTALS, OUT = 0, 1, 2
"""The segments of `totals`."""


def totals(partitions: int = 8, sites: int = 2, sources: int = 2, sink: Sink | None = None) -> Layout:
    """source -> running count and sum by key -> sink."""
    flow = ef.Dataflow("totals")
    stream = flow.source(ef.sources.memory([[] for _ in range(sources)], sources, schema=SCHEMA))
    stream.group_by("k").agg(n="count(*)", total="sum(v)").to(sink or ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=sites, partitions=partitions)


@dataclass
class Message:
    sender: int
    section: Section


class Cluster:
    """parts: by site; the dead are no longer in it. facts: (site, fact), as they were told. ships: captures that are not under way yet.

    stores: (site, what it wants to be stored).

    sourced: rows by source partition, for whoever opens it. opened: (site, how) it was. paused: (site, segment) whose works
    only end when `finish` says so. released: (epoch, rows) by site. shuffle:
    draws which message is delivered next, and whether others come along with it; without it the oldest one is.
    """

    def __init__(
        self,
        planned: Layout,
        sites: int,
        replicas: int = 2,
        spares: int = 0,
        scheme: Scheme = "mirrored",
        shuffle: Random | None = None,
        piece_bytes: int = 2**18,
        *,
        journalled: bool = False,
    ) -> None:
        self.layout = planned
        self.plan: Plan = first_plan(planned, sites, replicas, scheme)
        self.membership: Membership = first_membership(planned, self.plan, range(sites + spares))
        options = FlowOptions(linger_ms=0.01, epoch_rows=50, piece_bytes=piece_bytes)
        self.parts = {
            i: SiteMachine(Setup(planned, self.plan, self.membership, i, options, journalled=journalled)) for i in range(sites + spares)
        }
        self.shuffle = shuffle
        self.now_us = 1_000_000
        self.facts: list[tuple[int, Fact]] = []
        self.opened: list[tuple[int, OpenSource]] = []
        self.sourced: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.ships: list[Ship] = []
        self.stores: list[tuple[int, StoreState]] = []
        self.paused: set[tuple[int, int]] = set()
        self.works: list[tuple[int, Work]] = []
        self.released: dict[int, list[tuple[int, list[dict[str, Any]]]]] = defaultdict(list)
        self.committed = 0
        self.links: dict[tuple[int, int], list[Section]] = {(a, b): [] for a in self.parts for b in self.parts if a != b}
        self.down: set[tuple[int, int]] = set()
        self._timers: dict[tuple[int, str], int] = {}
        for site in self.parts:
            self.give(site, Started())
        self.talk()

    # ------------------------------------------------------------ events

    def give(self, site: int, event: Event) -> None:
        part = self.parts[site]
        opened: list[OpenSource] = []
        self.now_us += 10
        todo = part.handle(event, self.now_us)
        while todo:
            action = todo.pop(0)
            match action:
                case Run(work) if (site, work.segment) in self.paused:
                    self.works.append((site, work))
                case Run(work):
                    todo.extend(part.handle(WorkDone(work.run()), self.now_us))
                case SetTimer(name, at_us):
                    self._timers[site, name] = at_us
                case TellCoordinator(fact):
                    self.facts.append((site, fact))
                case OpenSource():
                    opened.append(action)
                case Ship():
                    self.ships.append(action)
                case StoreState():
                    self.stores.append((site, action))
                case Release():
                    self.released[site].append((action.epoch, action.batch.to_pylist()))
        for said in part.flush(self.now_us):
            if (site, said.peer) not in self.down and said.peer in self.parts:
                self.links[site, said.peer].append(said.section)
        for source in opened:
            self.opened.append((site, source))
            if self.sourced[source.partition][source.rows :]:
                self.give(site, arrived(source.partition, self.sourced[source.partition][source.rows :]))

    def step(self) -> bool:
        """Deliver one message, or, if there is none, let the timers expire that do not come of idleness. False if there is nothing."""
        ready = [link for link, sections in self.links.items() if sections]
        if ready:
            sender, site = self.shuffle.choice(ready) if self.shuffle else ready[0]
            if self.shuffle and self.shuffle.random() < 0.5:  # One wake-up brings several, and what follows is looked at once.
                for peer, _ in [(peer, here) for peer, here in ready if here == site and peer != sender]:
                    self.parts[site].take(Heard(peer, self.links[peer, site].pop(0)), self.now_us)
            self.give(site, Heard(sender, self.links[sender, site].pop(0)))
            return True
        due = [key for key in self._timers if key[1] != "heartbeat" and key[0] in self.parts]
        for key in due:
            self.now_us = max(self.now_us, self._timers.pop(key))
            self.give(key[0], TimerFired(key[1]))  # type: ignore[arg-type]
        return bool(due)

    def talk(self, *, commit: bool = True) -> None:
        """Until nobody says anything any more. commit: the sink stores what it gets."""
        for _ in range(100_000):
            if not self.step() and not (commit and self.store()):
                return
        raise AssertionError(f"they do not come to an end: {list(self.parts.values())}")

    def store(self) -> bool:
        """The sink stores the first copy of every epoch that it was given, and all hear of it (O1). False if there was nothing new."""
        newest = max((epoch for given in self.released.values() for epoch, _ in given), default=0)
        if newest == self.committed:
            return False
        self.committed = newest
        for site in list(self.parts):
            self.give(site, SinkCommitted(OUT, newest))
        return True

    # ------------------------------------------------------------ what a world or a coordinator would do

    def rows(self, *pairs: tuple[int, int], partition: int = 0) -> None:
        """A source partition has more rows (k, v), which its leader reads."""
        self.sourced[partition] += pairs
        self.give(self.membership.leaders[SOURCE][partition].site, arrived(partition, list(pairs)))

    def end(self) -> None:
        for partition, leader in enumerate(self.membership.leaders[SOURCE]):
            self.give(leader.site, SourceEnded(SOURCE, partition))

    def cut(self, a: int, b: int, *, told: Callable[[int], bool] = lambda site: True) -> None:
        """Lose the connection and what is under way on it. told: which of the two notice."""
        for x, y in ((a, b), (b, a)):
            self.down.add((x, y))
            self.links[x, y].clear()
        for x, y in ((a, b), (b, a)):
            if x in self.parts and told(x):
                self.give(x, LinkDown(y))

    def join(self, a: int, b: int) -> None:
        for x, y in ((a, b), (b, a)):
            self.down.discard((x, y))
        self.give(a, LinkUp(b))
        self.give(b, LinkUp(a))

    def kill(self, site: int) -> None:
        del self.parts[site]
        for (a, b), sections in self.links.items():
            if site in (a, b):
                sections.clear()
        for peer in list(self.parts):
            self.give(peer, LinkDown(site))

    def declare(self, **changes: Any) -> None:
        """A new membership, to all."""
        self.membership = replace(self.membership, number=self.membership.number + 1, **changes)
        for site in list(self.parts):
            self.give(site, MembershipChanged(self.membership))

    def copy(
        self, segment: int, partitions: tuple[int, ...], source: int, target: int, number: int = 1, replacing: int = -1, ahead: int = 2,
        *, moves: bool = False,
    ) -> Copy:  # fmt: skip
        """Commit a plan that begins this copy some epochs from now. replacing: whose place the target takes. moves: from its source."""
        closed = max(part.closed for part in self.parts.values())
        copy = Copy(number, segment, partitions, source, target, replaces=source if moves else -1)
        rows = [list(row) for row in self.plan.placement]
        for partition in partitions:
            rows[segment][partition] = tuple(target if site == replacing else site for site in rows[segment][partition])
            rows[segment][partition] += (target,) if moves else ()
        rest = {"effective": closed + ahead, "placement": tuple(map(tuple, rows)), "copies": (copy,)}
        self.plan = replace(self.plan, number=self.plan.number + 1, **rest)
        self.declare(joining=(copy,))
        for site in list(self.parts):
            self.give(site, PlanCommitted(self.plan))
        return copy

    def divide(self, segment: int, ranges: Ranges) -> None:
        """Commit a plan by which a segment's key groups are divided so from the next epoch on."""
        closed = max(part.closed for part in self.parts.values())
        every = tuple(ranges if other == segment else () for other in range(len(self.layout.segments)))
        self.plan = replace(self.plan, number=self.plan.number + 1, effective=closed + 1, copies=()).with_settings(ranges=every)
        for site in list(self.parts):
            self.give(site, PlanCommitted(self.plan))

    def finish(self, cohort: int) -> None:
        """The work of this cohort that is paused comes to its end."""
        site, work = next((site, work) for site, work in self.works if work.cohort == cohort)
        self.works.remove((site, work))
        self.give(site, WorkDone(work.run()))

    def arrive(self, ship: Ship) -> None:
        self.give(ship.copy.target, StateArrived(ship.copy.number, ship.capture.to_bytes()))

    # ------------------------------------------------------------ what came of it

    def told(self, kind: type) -> list[Any]:
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def output(self) -> list[tuple[int, int, int]]:
        """The last row of every key, in what the sink got: the first copy of every epoch."""
        first: dict[int, list[dict[str, Any]]] = {}
        for given in self.released.values():
            for epoch, rows in given:
                assert first.setdefault(epoch, rows) == rows or sorted(map(str, first[epoch])) == sorted(map(str, rows)), f"epoch {epoch}"
        last = {row["k"]: (row["k"], row["n"], row["total"]) for _, rows in sorted(first.items()) for row in rows}
        return sorted(last.values())


def arrived(partition: int, pairs: list[tuple[int, int]]) -> RowsArrived:
    return RowsArrived(SOURCE, partition, pa.record_batch([[k for k, _ in pairs], [v for _, v in pairs]], schema=SCHEMA))


def expected(rows: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for k, v in rows:
        groups[k].append(v)
    return sorted((k, len(vs), sum(vs)) for k, vs in groups.items())
