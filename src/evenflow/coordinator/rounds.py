"""Rounds of load balancing: collect, decide, move, repeat (FL 5.3). Decides through a policy; the machine makes the moves.

The world collects statistics for as long as is said here; then the policy proposes moves, the machine carries them out, and the next
collection begins when they are over. How long they took is the time between two collections, so it is known only when the second one
has ended; if that was shorter than the moves, it is thrown away, and another one follows that is as long (FL 5.3). It would tell of queues
that the moves have left behind more than of the load. Recovery comes first: while anything is missing or under way, what was collected is
thrown away, and so nothing is decided by numbers of another placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from evenflow.coordinator.events import Collected, Pin, SparesChanged
from evenflow.coordinator.moving import movable
from evenflow.coordinator.recovery import Recovery
from evenflow.plan.layout import Layout
from evenflow.policy.catalogue import DEFAULT, Described, described
from evenflow.policy.hosting import Hosting
from evenflow.policy.move import Move
from evenflow.policy.own import threshold
from evenflow.policy.proposal import Memory, Parameters
from evenflow.policy.river import river
from evenflow.policy.shedding.live import FlowPlanner, Way
from evenflow.site.view import View
from evenflow.statistics.statistics import Statistics
from evenflow.stream.ids import SiteId

NOTHING: Final = "none"
SHED_US: Final = 500_000
"""How long is collected where nothing is balanced, and only what is left out is planned."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a round has decided; one of several. text: for people. moves: what is to move; without any, a plan with other settings is
    wanted, which the rounds know."""

    text: str
    moves: tuple[Move, ...] = ()


class Rounds:
    """policy: a name of the catalogue's; parameters: None for the policy's own. spares: so many sites that host nothing are left alone.

    pinned: (segment, partition) that the user wants to stay. shedding: how what is left out of arcs is planned; None if nothing is.
    moving: what the last decision wanted is not over yet. weights, keeps: those of the next plan; without `shedding` it keeps all, whatever
    that of the run before has kept. balances: load is moved.
    """

    def __init__(
        self, layout: Layout, view: View, recovery: Recovery, policy: str = NOTHING, parameters: Parameters | None = None, spares: int = 0,
        shedding: Way | None = None,
    ) -> None:  # fmt: skip
        self._layout, self._view, self._recovery, self.spares = layout, view, recovery, spares
        self.policy: Described = described(policy)
        self.parameters = parameters or self.policy.parameters
        self.balances = policy != NOTHING
        self.flow = None if shedding is None or not layout.thins else FlowPlanner(layout, shedding)
        self._shed_us = SHED_US if parameters is None else parameters.delta_min_us
        self.active = self.balances or self.flow is not None
        self.pinned: set[tuple[int, int]] = set()
        self.moving = False
        self.weights, self.keeps = view.plan.weights, () if self.flow is None else view.plan.settings.keeps
        self.memory = Memory()
        self._ended_us = 0

    @property
    def relief_us(self) -> int:
        """How long sites wait for its moves before they write state to disk."""
        return self.parameters.relief_us if self.balances else 0

    @property
    def collect_us(self) -> int:
        """How long to collect next."""
        if not self.balances:
            return self._shed_us
        return self.memory.delta_us or self.parameters.delta_min_us

    def decide(self, event: Collected, offered: Mapping[int, tuple[int, ...]] | None = None) -> list[Answer]:
        """What is to happen now, in this order; nothing if that is all as it should be, or too little has been collected since the last
        moves. Called when nothing is missing or under way.

        Where rows are dealt out and nothing is to move, `weights` change instead, for which a plan is enough. Where nothing moves and more
        is offered than can be done, so do `keeps`. offered: by arc and class, as `FlowPlanner.decide`.
        """
        if self.moving:
            self.moving = False
            if self.balances:
                self.memory = self.memory.moved(event.begun_us - self._ended_us)
            if event.ended_us - event.begun_us < self.memory.delta_us:
                return []
        hosting = self.hosting(event.statistics)
        proposal = self.policy.policy(event.statistics, hosting, self.parameters, self.memory)
        if not proposal.moves and self._layout.dealt():
            th_imb = threshold(self.parameters, proposal.memory.noise)
            parameters = replace(self.parameters, th_imb=th_imb)
            self.weights, text = river(event.statistics, hosting, parameters, self._layout, self.weights)
            if text:  # What sites did under other weights says nothing of what they will do.
                proposal = replace(proposal, text=text, memory=replace(proposal.memory, evidence=None))
        self.memory, self._ended_us = proposal.memory, event.ended_us
        text = proposal.text
        if self.flow is not None and not proposal.moves:
            decided = self.flow.decide(event.statistics, offered or {}, self.keeps)
            if decided is not None:
                self.keeps, text = decided.keeps, decided.text
        settled = (self.weights, self.keeps) == (self._view.plan.weights, self._view.plan.settings.keeps)
        self.moving = bool(proposal.moves) or not settled
        return [Answer(text, proposal.moves)] if self.moving else []

    def disturbed(self) -> None:
        """Something else came first: nobody knows how long the last moves took."""
        self.moving = False

    def once(self, statistics: Statistics) -> tuple[Move, ...]:
        """What the run's policy would move, or the default one where the run has none: a person has asked for it."""
        asked = self.policy if self.balances else described(DEFAULT)
        return asked.policy(statistics, self.hosting(statistics), asked.parameters, Memory()).moves

    def hosting(self, statistics: Statistics | None = None, *, inputs: bool = False) -> Hosting:
        """The newest placement, as far as it may change. statistics: say what is on disk. inputs: these may move, too, and what is
        dealt out everywhere, as when a site leaves: that is no round's business, but of who brings sites."""
        view, replicas = self._view, {}
        pinned = set(self.pinned)
        active = view.active()
        idle = [site for site in view.membership.sites if site not in active]
        aside = {*idle[max(0, len(idle) - self.spares) :], *self._recovery.leaving}
        for segment in self._layout.segments:
            settled = not inputs and (segment.kind == "ingress" or self._dealt_everywhere(segment.id, aside))
            fixed = settled or not movable(self._layout, segment.id)
            for block in view.blocks(segment.id):
                live = view.live(block)
                for partition in block.partitions:
                    replicas[segment.id, partition] = live
                    if fixed:
                        pinned.add((segment.id, partition))
        capacity: dict[int, float] = {site: 1.0 for site in view.membership.sites if site not in aside}
        hosts: dict[int, str] = {site: host for site, host in self._recovery.hosts.items() if host}
        windows = statistics.sites if statistics is not None else ()
        on_disk = frozenset((window.site, each.segment, p) for window in windows for each in window.segments for p in each.on_disk)
        return Hosting(replicas, capacity, frozenset(pinned), hosts, on_disk, self._layout)

    def _dealt_everywhere(self, segment: int, aside: set[SiteId]) -> bool:
        """Every site that may host has some of a segment whose rows are dealt out: weights say who gets how many."""
        if segment not in self._layout.dealt():
            return False
        hosts = {site for block in self._view.blocks(segment) for site in self._view.live(block)}
        return hosts >= set(self._view.membership.sites) - aside


class Balanced(Protocol):
    """A run whose load is balanced."""

    @property
    def rounds(self) -> Rounds: ...


def pin(machine: Balanced, event: Pin) -> None:
    """Effect of a rule C6."""
    (machine.rounds.pinned.update if event.pinned else machine.rounds.pinned.difference_update)(event.partitions)


def change_spares(machine: Balanced, event: SparesChanged) -> None:
    """Effect of a rule C6."""
    machine.rounds.spares = event.spares
