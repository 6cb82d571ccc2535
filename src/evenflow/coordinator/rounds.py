"""Rounds of load balancing: collect, decide, move, repeat (FL 5.3). Decides through a policy; the machine makes the moves.

The world collects statistics for as long as is said here; then the policy proposes moves, the machine carries them out, and the next
collection begins when they are over. How long they took is the time between two collections, so it is known only when the second one
has ended; if that was shorter than the moves, it is thrown away, and another one follows that is as long (FL 5.3). It would tell of queues
that the moves have left behind more than of the load. Recovery comes first: while anything is missing or under way, what was collected is
thrown away, and so nothing is decided by numbers of another placement.
"""

from __future__ import annotations

from typing import Final

from evenflow.coordinator.events import Collected
from evenflow.coordinator.moving import movable
from evenflow.coordinator.recovery import Recovery
from evenflow.policy.catalogue import DEFAULT, Described, described
from evenflow.policy.hosting import Hosting
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters, Proposal
from evenflow.query.plan import Layout
from evenflow.site.view import View
from evenflow.statistics.window import Statistics

NOTHING: Final = "none"


class Rounds:
    """policy: a name of the catalogue's; parameters: None for the policy's own. spares: so many sites that host nothing are left alone.

    pinned: (segment, partition) that the user wants to stay. moving: the moves of the last decision are not over yet.
    """

    def __init__(
        self, layout: Layout, view: View, recovery: Recovery, policy: str = NOTHING, parameters: Parameters | None = None, spares: int = 0
    ) -> None:
        self._layout, self._view, self._recovery, self.spares = layout, view, recovery, spares
        self.policy: Described = described(policy)
        self.parameters = parameters or self.policy.parameters
        self.active = policy != NOTHING
        self.pinned: set[tuple[int, int]] = set()
        self.moving = False
        self.memory = Memory()
        self._ended_us = 0

    @property
    def collect_us(self) -> int:
        """How long to collect next."""
        return self.memory.delta_us or self.parameters.delta_min_us

    def decide(self, event: Collected) -> Proposal | None:
        """What to move now; None if too little has been collected since the last moves. Called when nothing is missing or under way."""
        if self.moving:
            self.moving = False
            self.memory = self.memory.moved(event.begun_us - self._ended_us)
            if event.ended_us - event.begun_us < self.memory.delta_us:
                return None
        proposal = self.policy.policy(event.statistics, self.hosting(event.statistics), self.parameters, self.memory)
        self.memory, self._ended_us, self.moving = proposal.memory, event.ended_us, bool(proposal.moves)
        return proposal

    def disturbed(self) -> None:
        """Something else came first: nobody knows how long the last moves took."""
        self.moving = False

    def once(self, statistics: Statistics) -> tuple[Move, ...]:
        """What the run's policy would move, or the default one where the run has none: a person has asked for it."""
        asked = self.policy if self.active else described(DEFAULT)
        return asked.policy(statistics, self.hosting(statistics), asked.parameters, Memory()).moves

    def hosting(self, statistics: Statistics | None = None) -> Hosting:
        """The newest placement, as far as it may change. statistics: say what is on disk."""
        view, replicas = self._view, {}
        pinned = set(self.pinned)
        for segment in self._layout.segments:
            fixed = segment.kind == "ingress" or not movable(self._layout, segment.id)
            for block in view.blocks(segment.id):
                live = view.live(block)
                for partition in block.partitions:
                    replicas[segment.id, partition] = live
                    if fixed:
                        pinned.add((segment.id, partition))
        idle = [site for site in view.membership.sites if site not in view.active()]
        aside = {*idle[max(0, len(idle) - self.spares) :], *self._recovery.leaving}
        capacity = {site: 1.0 for site in view.membership.sites if site not in aside}
        hosts = {site: host for site, host in self._recovery.hosts.items() if host}
        windows = statistics.sites if statistics is not None else ()
        on_disk = frozenset((window.site, each.segment, p) for window in windows for each in window.segments for p in each.on_disk)
        return Hosting(replicas, capacity, frozenset(pinned), hosts, on_disk)
