"""Housing: the cohorts here, in the order in which they are looked at, and what those that count may begin next (protocol C1, E1, V2).

A copy's partitions are a cohort of their own here (decision 18). `arriving` knows how far it is, `departing` what goes from here.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np

from evenflow.exchange.inbox import Inbox
from evenflow.exchange.retention import Retention
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.plan import Copy
from evenflow.site.cohort import Cohort
from evenflow.site.hosted import Hosted
from evenflow.site.leading import Leading
from evenflow.site.log import PartitionLog
from evenflow.site.replaying import Beginning
from evenflow.site.spilling import Spilling
from evenflow.site.tally import Tallies
from evenflow.site.view import View
from evenflow.stream.ids import NO_COPY, SiteId


class Housing:
    """cohorts: by (segment, number); shared with all who look at them. order: the same, in the order in which they are looked at,
    producers first. live: those that others wait for.

    consumed: streams that any cohort here consumes. joining: some cohort here is not live yet. changing: key groups are to change hands,
    or boxes their version, in an epoch that some cohort here has not begun. replicated: the run has replicas, so that they are compared.
    """

    def __init__(
        self,
        layout: Layout,
        view: View,
        cohorts: MutableMapping[tuple[int, int], Cohort],
        beginning: Beginning,
        *,
        tallies: Tallies,
        leading: Leading,
        spilling: Spilling,
    ) -> None:
        self._layout, self._view, self.cohorts = layout, view, cohorts
        self._tallies, self._leading, self._spilling = tallies, leading, spilling
        self.order: list[Cohort] = []
        self.live: list[Cohort] = []
        self.sources: list[Cohort] = []
        self.consumed: tuple[int, ...] = ()
        self.joining = self.changing = False
        # The rank of a move is none of its own: whoever comes while something moves must not take the run for a replicated one.
        moving = {(copy.segment, partition) for copy in view.plan.copies if copy.moves for partition in copy.partitions}
        self.replicated = any(
            len(sites) - ((segment, partition) in moving) > 1
            for segment, row in enumerate(view.plan.placement)
            for partition, sites in enumerate(row)
        )
        for segment in layout.segments:
            hosted = tuple(p for p, sites in enumerate(view.plan.placement[segment.id]) if self._hosts_from_the_start(segment.id, p, sites))
            if hosted:
                self._begin(segment, hosted, beginning)

    def _hosts_from_the_start(self, segment: int, partition: int, sites: tuple[SiteId, ...]) -> bool:
        return self._view.site in sites and self._view.site in self._view.membership.live(self._view.plan, segment, partition)

    def _begin(self, segment: Segment, partitions: tuple[int, ...], beginning: Beginning) -> None:
        """A cohort that is here from the start. Behind a base it has its state to wait for, which is as the epoch of the base has left it:
        if the first plan divides it anew, its first epoch does so. A base without pieces is that of a run which reads from its horizon: its
        state is in the rows that come."""
        cohort = self.move_in(segment, partitions, beginning.epoch, None)
        if beginning.epoch:
            cohort.ready = not beginning.pieces
            cohort.hosted.groups = self._view.key_groups(segment, max(beginning.epoch, self._view.plans[0].effective))
        for partition, log in cohort.logs.items():
            if (segment.id, partition) in beginning.logs:
                log.begin(*beginning.logs[segment.id, partition])

    def own(self, segment: int) -> Cohort | None:
        """The segment's live cohort here."""
        return self.cohorts.get((segment, 0))

    def born(self, key: tuple[int, int]) -> Cohort | None:
        """The cohort of (segment, `born`), if it is still here."""
        segment, number = key
        for cohort in self.cohorts.values():
            if cohort.hosted.segment.id == segment and cohort.born == number:
                return cohort
        return None

    def producing(self, stream: int) -> list[Cohort]:
        return [cohort for cohort in self.order if stream in cohort.retained]

    # ------------------------------------------------------------ who is here

    def move_in(self, segment: Segment, partitions: tuple[int, ...], through: int, copy: Copy | None) -> Cohort:
        """A cohort that has come as far as epoch `through`. copy: what it is for, None if it counts from the start."""
        layout, view = self._layout, self._view
        number = NO_COPY if copy is None else copy.number
        assert (segment.id, number) not in self.cohorts, f"a cohort {segment.id, number} is here already"
        checked = self.replicated and (segment.kind != "ingress" or segment.user_code)
        groups = view.key_groups(segment, through + 1)
        tally, (version, running) = self._tallies.of(segment), view.runs(segment.id, through + 1)
        hosted = Hosted.of(running, layout, partitions, checked=checked, tally=tally, groups=groups, version=version)
        hosted.done = through
        main = self.own(segment.id)
        if main is not None and main.turns is None and self._spilling.budget is None and self._stays(main, hosted):
            hosted.share(main.hosted)
        cohort = Cohort(number, hosted, copy, ready=copy is None, born=number)
        if checked:
            cohort.digests = np.zeros(segment.partitions, np.uint64)
        for stream in segment.inputs:
            cohort.inboxes[stream] = Inbox(stream, layout.segments[layout.arcs[stream].producer].partitions, through)
        for stream in segment.outputs:
            cohort.retained[stream] = Retention(stream, view.present(layout.arcs[stream].consumer), through)
        if segment.led:
            for partition in partitions:
                log = PartitionLog.begun(segment.id, partition, through)
                log.known = copy is None
                cohort.logs[partition] = log
                self._leading.add(log)
        self.cohorts[cohort.key] = cohort
        return cohort

    def _stays(self, main: Cohort, hosted: Hosted) -> bool:
        """Whether the live cohort neither divides its state anew nor hands it to another version in any epoch that it has not finished, nor
        does `hosted` on its way to where that is. It would do so beside the loop, in an epoch that may be running now, so it is the plans
        that are asked: what the cohort has been divided by is changed in the middle of it."""
        view, segment, plans = self._view, main.segment, self._view.plans
        since = max(min(main.hosted.done, hosted.done), plans[0].effective)
        epochs = [since, *[plan.effective for plan in plans if plan.effective > since]]
        return all(
            view.key_groups(segment, epoch) is hosted.groups and view.runs(segment.id, epoch)[0] == hosted.version for epoch in epochs
        )

    def sort(self) -> None:
        """Cohorts have come, gone, or become one."""
        self.order = [self.cohorts[key] for key in sorted(self.cohorts)]
        counted = [cohort for cohort in self.order if cohort.number == 0]
        self.sources = [cohort for cohort in self.order if cohort.segment.kind == "ingress"]
        self.live = [cohort for cohort in counted if cohort.segment.kind != "ingress"] or counted
        self.consumed = tuple(sorted({stream for cohort in self.order for stream in cohort.inboxes}))
        self.joining = any(cohort.number for cohort in self.order)

    # ------------------------------------------------------------ what changes at an epoch

    def may_begin(self, cohort: Cohort, hold: int | None) -> bool:
        """Whether plans let it begin its next epoch. hold: the epoch that this site has promised not to begin.

        A promise holds for followers too: the leader of an ingress partition may know the plan already, and its records come another way.
        """
        if hold is not None and cohort.hosted.done + 1 >= hold and cohort.segment.kind == "ingress":
            return False
        return not self.changing or self._may_change(cohort)

    def note_begun(self, cohort: Cohort) -> None:
        """It begins an epoch."""
        cohort.gathers = False
        if self.changing:
            self.look_ahead()
        if self.joining and not cohort.number:
            for other in self.order:
                if other.number:
                    other.passed[cohort.key] = other.hosted.done

    def look_ahead(self) -> None:
        """See whether anything changes in an epoch to come."""
        self.changing = any(
            self._view.key_groups(cohort.segment, plan.effective) is not cohort.hosted.groups
            or plan.runs(cohort.segment)[0] != cohort.hosted.version
            for cohort in self.order
            for plan in self._view.plans
            if plan.effective > cohort.hosted.done
        )

    def _may_change(self, cohort: Cohort) -> bool:
        """Whether all that its next epoch divides anew (E1), or hands to another version, is in memory; what is to be joined
        to it has been, see `Arriving.may_run`."""
        hosted, epoch = cohort.hosted, cohort.hosted.done + 1
        same = self._view.key_groups(cohort.segment, epoch) is hosted.groups
        same = same and self._view.runs(cohort.segment.id, epoch)[0] == hosted.version
        return same or self._spilling.gather(cohort)
