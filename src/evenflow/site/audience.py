"""The audience: to whom this site speaks, and of what (protocol A1, T2, E5).

It follows from plan and membership alone, and is worked out when one of them is new, not with every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenflow.availability.mode import BASED
from evenflow.exchange.credit import Credit
from evenflow.plan.layout import Layout
from evenflow.site.cohort import Cohort
from evenflow.site.view import View
from evenflow.stream.ids import SiteId


class Audience:
    """closes: peers that learn in no other way which epochs the ingress here closes. only_acks: peers to which nothing but
    acknowledgements is said.

    received: last epoch of a stream that another site has said to hold. say_closed: tell a peer what the ingress here has closed before.
    all_read: every replica of an ingress partition reads its source for itself (I4).
    """

    def __init__(
        self, layout: Layout, view: View, credit: Credit, *, received: Callable[[SiteId, int], int], say_closed: Callable[[SiteId], None]
    ) -> None:
        self._layout, self._view, self._credit = layout, view, credit
        self._received, self._say_closed = received, say_closed
        self.all_read = False
        self._reading: set[SiteId] = set()
        self.closes: tuple[SiteId, ...] = ()
        self.only_acks: tuple[SiteId, ...] = ()

    def change(self, cohorts: Sequence[Cohort], consumed: Sequence[int], *, stable: Sequence[int]) -> None:
        """Plan or membership are new. cohorts: those here. consumed: the streams that they consume. stable: see `hold`."""
        self.hold(cohorts, stable)
        self._admit(cohorts)
        self._tell_whom(cohorts, consumed)
        assert self._view.site not in self.closes and self._view.site not in self.only_acks, "nobody speaks to himself"

    def _admit(self, cohorts: Sequence[Cohort]) -> None:
        """Keep frames for those who host consumers now, and for nobody else (A1, T2)."""
        view = self._view
        for cohort in cohorts:
            for stream, retained in cohort.retained.items():
                present = view.present(self._layout.arcs[stream].consumer)
                for site in [site for site in retained.acked if site not in present]:
                    retained.dismiss(site)
                for site in present:
                    if site not in retained.acked:
                        retained.admit(site, view.plan.effective)
                        retained.hear(site, self._received(site, stream))  # Who begins again asks for more (`Retention.ask_again`).

    def hold(self, cohorts: Sequence[Cohort], stable: Sequence[int]) -> None:
        """B2: frames for consumers that begin again from a base are kept until it is safe, whoever holds them; and the plans behind it, as
        long as any segment has a mode of its own. stable: by consumer segment, the epoch of the last base."""
        plan = self._view.plan
        for cohort in cohorts if plan.modes else ():
            for stream, retained in cohort.retained.items():
                consumer = self._layout.arcs[stream].consumer
                again = plan.mode(consumer) in BASED
                retained.hold(stable[consumer] if again else None)

    def _tell_whom(self, cohorts: Sequence[Cohort], consumed: Sequence[int]) -> None:
        view, layout = self._view, self._layout
        ingress = {site for segment in layout.segments if segment.kind == "ingress" for site in view.present(segment.id)}
        producers = {site for stream in consumed for site in view.present(layout.arcs[stream].producer)}
        needing = sorted((producers | ingress) - {view.site}) if cohorts else []
        # Where a copy arrives nobody may produce or lead anything; but it is level when it is as far as the others (C3).
        arriving = {copy.target for copy in view.membership.joining} - {view.site} if cohorts else set()
        self._credit.set_sites(view.active(), sorted(arriving.union(needing)))
        fed = {s for c in cohorts for stream in c.retained for s in view.present(layout.arcs[stream].consumer)}
        self._reading = ingress
        closes = self._told_of_closes(cohorts)
        newly = sorted(closes.difference(self.closes))
        self.closes = tuple(sorted(closes))
        for peer in newly:
            # A site that leads from now on must follow what was closed before; if its source has ended nothing else makes it close.
            self._say_closed(peer)
        self.only_acks = tuple(s for s in needing if s not in fed and s not in closes)

    def _readers(self) -> set[SiteId]:
        """Sites that read sources for themselves, and do not hear of every epoch by the frames of all ingress segments: if theirs have
        ended, nothing else says which epoch is the last."""
        view, layout = self._view, self._layout
        found = set[SiteId]()
        for segment in layout.segments:
            if segment.kind == "ingress":
                for stream in segment.outputs:
                    consumers = {site for block in view.blocks(layout.arcs[stream].consumer) for site in view.live(block)}
                    found |= self._reading - consumers
        return found

    def _is_followed(self) -> bool:
        """Some partition of a source has followers. Plans with other modes give it some, or take them away. Who is about to move away, and
        counts as long as the other one does not say that he has taken over, is none."""
        view = self._view
        leaving = {(copy.segment, copy.replaces, p) for copy in view.plan.copies if copy.moves for p in copy.partitions}
        return any(
            sum((segment.id, site, block.partitions[0]) not in leaving for site in view.live(block)) > 1
            for segment in self._layout.segments
            if segment.kind == "ingress"
            for block in view.blocks(segment.id)
        )

    def _told_of_closes(self, cohorts: Sequence[Cohort]) -> set[SiteId]:
        """Other leaders, without those whom this site's frames or records tell."""
        view, layout = self._view, self._layout
        if self.all_read:
            return self._readers() - {view.site}
        rows = [(segment.id, view.membership.leaders[segment.id]) for segment in layout.segments if segment.kind == "ingress"]
        leaders = {leader.site for _, row in rows for leader in row}
        if view.site not in leaders:
            return set()
        if self._is_followed():  # Its records tell a member. One that is joining may ask for later ones only.
            followed = (
                set(view.members(segment, partition))
                for segment, row in rows
                for partition, leader in enumerate(row)
                if leader.site == view.site
            )
            return leaders.difference({view.site}, *followed)
        hears = {
            site
            for cohort in cohorts
            if cohort.segment.kind == "ingress"
            for stream in cohort.retained
            for block in view.blocks(layout.arcs[stream].consumer)
            for site in view.live(block)  # One that is joining gets later epochs only.
        }
        return leaders - {view.site} - hears
