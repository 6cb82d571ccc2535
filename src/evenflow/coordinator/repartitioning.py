"""Repartitioning: a keyed segment gets more partitions, or fewer, while it runs (protocol E1). Decides; the machine proposes the plan.

First those partitions between which key groups are to change hands come together: ordinary moves bring their replicas to the same sites.
Then one plan changes the ranges. At its epoch each site divides what it has of their state anew, so nothing travels, and nobody waits for
anybody. Whatever happens meanwhile, the next step follows from where the replicas are then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from evenflow.coordinator.events import CoordinatorAction, Denied, Done
from evenflow.plan.layout import Layout, Ranges
from evenflow.plan.plan import Plan
from evenflow.plan.ranges import affected, divided, in_use
from evenflow.policy.move import Move
from evenflow.site.view import View

TOGETHER: Final = "its partitions are to be divided anew"
"""The reason of a move that brings partitions together."""
TRIES_MAX: Final = 20
"""So often partitions are brought together that are moved apart again, or that do not arrive."""


class Repartitioning:
    """wanted: how many partitions, by segment; one segment after the other. done_after: first epoch in which state that the last plan of
    this kind divides is divided: no copy can begin before."""

    def __init__(self, layout: Layout, view: View) -> None:
        self._layout, self._view = layout, view
        self.wanted: dict[int, int] = {}
        self.done_after = view.plan.effective + 1 if len(view.plans) > 1 else 0  # The last plan that it begins with divides state, too.
        self._asked: dict[int, tuple[set[int], str]] = {}
        self._goal: Ranges = ()
        self._tries = 0

    def want(self, segments: Sequence[int], partitions: int, request: int = 0) -> None:
        """Instead of what was wanted of these segments; 0: nothing is wanted of them any more. request: is answered when all of them have
        so many partitions, or will not; 0 for one that nobody waits for."""
        if request and partitions:
            self._asked[request] = set(segments), ""
        elif not partitions:
            self._asked = {asked: (of, why) for asked, (of, why) in self._asked.items() if of.isdisjoint(segments)}
        for segment in segments:
            self.wanted.pop(segment, None)
            if partitions:
                self.wanted[segment] = partitions
        self._start()

    def _start(self) -> None:
        self._goal, self._tries = (), 0

    def count(self, segment: int) -> int:
        """Partitions that the segment has now."""
        return len(self._now(segment))

    def _now(self, segment: int) -> Ranges:
        return self._view.plan.ranges_of(self._layout.segments[segment])

    def _sites(self, segment: int, partition: int) -> set[int]:
        return set(self._view.membership.live(self._view.plan, segment, partition))

    def _aim(self, segment: int) -> Ranges:
        """Its ranges in the end, chosen once."""
        if not self._goal:
            now = self._now(segment)
            used = set(in_use(now))
            free = [p for p in range(self._layout.segments[segment].partitions) if p not in used]
            self._goal = divided(now, self.wanted[segment], free, lambda p, q: self._sites(segment, p) == self._sites(segment, q))
        return self._goal

    def moves(self) -> tuple[Move, ...]:
        """What has to move before the next segment's ranges can change. Called when nothing is missing or under way."""
        if not self.wanted or self._tries >= TRIES_MAX:
            return ()
        segment = next(iter(self.wanted))
        shares: dict[tuple[int, int], list[int]] = {}
        for home, *others in affected(self._now(segment), self._aim(segment)):
            there = self._sites(segment, home)
            for partition in others:
                here = self._sites(segment, partition)
                for pair in zip(sorted(here - there), sorted(there - here), strict=False):
                    shares.setdefault(pair, []).append(partition)
        self._tries += bool(shares)
        return tuple(Move(segment, tuple(sorted(found)), source, target, TOGETHER) for (source, target), found in shares.items())

    def ranges(self) -> tuple[Ranges, ...] | None:
        """Of all segments, as they are to be next; None if those who should be together are not."""
        segment = next(iter(self.wanted))
        goal = self._aim(segment)
        for home, *others in affected(self._now(segment), goal):
            if any(self._sites(segment, partition) != self._sites(segment, home) for partition in others):
                return None
        before = self._view.plan.ranges or ((),) * len(self._layout.segments)
        return tuple(goal if number == segment else ranges for number, ranges in enumerate(before))

    def give_up(self) -> str:
        """The next segment stays as it is. Returns why, for a person."""
        segment = next(iter(self.wanted))
        count = self.wanted.pop(segment)
        self._start()
        name = self._layout.segments[segment].name
        why = f"{name} cannot be divided into {count} partitions: those that have to do with each other do not come to the same sites"
        self._asked = {asked: (of, before or (why if segment in of else "")) for asked, (of, before) in self._asked.items()}
        return why

    def answers(self) -> list[CoordinatorAction]:
        """To requests of which nothing is open any more."""
        over = {asked: why for asked, (of, why) in self._asked.items() if of.isdisjoint(self.wanted)}
        self._asked = {asked: rest for asked, rest in self._asked.items() if asked not in over}
        return [Denied(asked, why) if why else Done(asked) for asked, why in over.items()]

    def committed(self, before: Plan) -> list[dict[str, Any]]:
        """A plan is. Returns what it changes, for a person: segment (its name), partitions, before (how many), epoch."""
        plan = self._view.plan
        if plan.ranges != before.ranges:
            self.done_after = plan.effective + 1
        changed = []
        for segment in [segment for segment, count in self.wanted.items() if self.count(segment) == count]:
            del self.wanted[segment]
            self._start()
            described = self._layout.segments[segment]
            changed.append(
                {
                    "segment": described.name,
                    "partitions": self.count(segment),
                    "before": len(before.ranges_of(described)),
                    "epoch": plan.effective,
                }
            )
        return changed
