"""Who leads the ingress partitions after a death and after a move (protocol I1). Pure questions about the newest plan and membership."""

from __future__ import annotations

from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Copy, Plan
from evenflow.site.view import View
from evenflow.stream.ids import Term

Led = tuple[tuple[Leader, ...], ...]


class Leaders:
    """view: the coordinator's, shared."""

    def __init__(self, view: View) -> None:
        self._view = view

    def successors(self, after: Membership) -> Led:
        """In a membership without the dead: the next live replica by rank leads what one of them has led."""

        def successor(segment: int, partition: int, leader: Leader) -> Leader:
            if leader.site in after.sites:
                return leader
            live = after.live(self._view.plan, segment, partition)
            return Leader(live[0], after.number) if live else leader  # Nobody leads until it begins anew (B4).

        return tuple(
            tuple(successor(segment, partition, leader) for partition, leader in enumerate(row))
            for segment, row in enumerate(after.leaders)
        )

    def begun_anew(self, plan: Plan, before: Membership) -> Led:
        """In the next membership: the targets of copies from nothing lead what they get."""
        targets = {(c.segment, p): c.target for c in plan.copies if c.void for p in c.partitions}
        term = Term(before.number + 1)
        return tuple(
            tuple(
                Leader(targets[segment, partition], term) if (segment, partition) in targets else leader
                for partition, leader in enumerate(row)
            )
            for segment, row in enumerate(before.leaders)
        )

    def after_move(self, move: Copy) -> Led:
        """In the next membership: who takes a replica over leads what it has led."""
        before = self._view.membership
        leaders = list(before.leaders)
        leaders[move.segment] = tuple(
            Leader(move.target, Term(before.number + 1)) if leader.site == move.replaces and p in move.partitions else leader
            for p, leader in enumerate(leaders[move.segment])
        )
        return tuple(leaders)
