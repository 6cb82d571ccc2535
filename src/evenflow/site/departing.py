"""Departing: what goes from here: state for copies (protocol C2), and replicas that have moved or whose copy was dropped (C3, C4).

The state of a copy is taken when its source has finished the epoch before the plan, and is shipped beside the loop. A replica that has
moved goes as if it had died, and one that was being copied here as if it had never come; but what is being processed comes to its end.
"""

from __future__ import annotations

from evenflow.plan.plan import Copy, Plan
from evenflow.site.cohort import Cohort
from evenflow.site.events import CloseSource, Ship
from evenflow.site.feeding import Feeding
from evenflow.site.given import SourceLeft
from evenflow.site.ground import Acts
from evenflow.site.hosted import Hosted
from evenflow.site.housing import Housing
from evenflow.site.ingress import Ingress
from evenflow.site.leading import Leading
from evenflow.site.releasing import Releasing
from evenflow.site.view import View
from evenflow.state.transfer import Capture
from evenflow.stream.ids import NO_COPY, NO_SITE


class Departing:
    """owed: copies from here whose state has not been taken.

    _taken: copies of the newest plan whose state has been. _leaving: partitions that leave their cohort at the end of the epoch that it is
    processing. _gone: cohorts that have gone as a whole and are still processing one, by the key of its outcome.
    """

    def __init__(
        self, view: View, housing: Housing, *, leading: Leading, feeding: Feeding, ingress: Ingress, releasing: Releasing, acts: Acts
    ) -> None:
        self._view, self._housing, self._acts = view, housing, acts
        self._leading, self._feeding, self._ingress, self._releasing = leading, feeding, ingress, releasing
        self.owed: tuple[Copy, ...] = ()
        self._taken: frozenset[int] = frozenset()
        self._leaving: list[tuple[Cohort, tuple[int, ...]]] = []
        self._gone: dict[tuple[int, int], Hosted] = {}

    # ------------------------------------------------------------ copies from here

    def change(self) -> None:
        """Plan or membership are new: replicas whose move is done leave, and other copies may be owed."""
        view = self._view
        for copy in view.plan.copies:
            if copy.replaces == view.site and copy.number in view.membership.retired:
                self.move_out(copy)
        for segment, partitions in view.left_out().items():
            self.move_out(Copy(NO_COPY, segment, partitions, NO_SITE, NO_SITE, view.site))
        self._taken = self._taken.intersection([copy.number for copy in view.plan.copies])
        self.owed = tuple(copy for copy in view.copies() if copy.source == view.site and copy.number not in self._taken)

    def capture(self, cohort: Cohort) -> None:
        """Take the state that copies want from this cohort, if it is at that epoch's end (C2).

        Not before all of it is here: a copied cohort that is live already may have that epoch still to finish, and this one waits for it.
        """
        if cohort.number or not cohort.ready or cohort.hosted.done != self._view.plan.effective - 1:
            return
        assert not cohort.hosted.busy, "state is taken between two epochs"
        for copy in self.owed:
            if copy.segment == cohort.segment.id and set(copy.partitions) <= set(cohort.partitions):
                self._taken |= {copy.number}
                self.owed = tuple(other for other in self.owed if other is not copy)
                facts = {**cohort.facts(copy.partitions), "committed": self._releasing.through(copy.segment)}
                self._acts.act(Ship(copy, Capture(facts, cohort.capture(copy.partitions))))

    # ------------------------------------------------------------ replicas that go

    @property
    def lingering(self) -> bool:
        """Something that has gone is still being processed."""
        return bool(self._gone)

    def drop(self, cohort: Cohort) -> None:
        """C4: the copy that it is for has been given up."""
        del self._housing.cohorts[cohort.key]
        self._feeding.leave(cohort)
        self._vacate(cohort)
        for log in cohort.logs.values():
            self._leading.remember(log)
            self._leading.forget(log)
            if self._ingress.resign(log.segment, log.partition) is not None:
                self._acts.act(CloseSource(log.segment, log.partition))

    def _vacate(self, cohort: Cohort) -> None:
        """It has gone as a whole: tables that it has together with others must not keep its rows, nor get those that come of what is being
        processed now."""
        hosted = cohort.hosted
        if any(other.segment.id == cohort.segment.id and hosted.shares_with(other.hosted) for other in self._housing.cohorts.values()):
            if hosted.busy and cohort.turns is None:
                self._gone[cohort.segment.id, cohort.born] = hosted
            else:
                hosted.leave(hosted.partitions)

    def end_work(self, key: tuple[int, int]) -> None:
        """What a cohort that has gone was processing is over. key: of the outcome."""
        hosted = self._gone.pop(key, None)
        if hosted is not None:
            hosted.leave(hosted.partitions)

    def move_out(self, copy: Copy) -> None:
        """C3: the target of a move is live; the replica here goes as if it had died, and whatever it has not told anybody does."""
        cohorts = self._housing.cohorts
        for key, cohort in list(cohorts.items()):
            leaving = tuple(p for p in self.staying(cohort) if p in copy.partitions) if key[0] == copy.segment else ()
            if not leaving:
                continue
            for partition in leaving:
                log = cohort.logs.pop(partition, None)
                if log is not None:
                    self._leading.remember(log)
                    self._leading.forget(log)
                taken = self._ingress.resign(copy.segment, partition)
                if taken is not None:
                    self._acts.act(CloseSource(copy.segment, partition))
                    self._acts.tell(SourceLeft(copy.segment, partition, taken))
            if set(leaving) >= set(self.staying(cohort)):
                self._feeding.leave(cohort)
                del cohorts[key]
                self._vacate(cohort)
            else:
                self._leaving.append((cohort, leaving))
        self.say_goodbye()
        assert not any(set(self.staying(c)).intersection(copy.partitions) for key, c in cohorts.items() if key[0] == copy.segment)

    def divides_first(self, plan: Plan) -> bool:
        """Something here that goes by a plan, at once or when its copy is live, takes part in a division to come (E1): what is to get its
        state would get nothing, or what has its state would divide it without an owner. The copy may be of a replica that is ahead."""
        view = self._view
        leaves = {*view.leaves_out(view.plan, plan), *[copy.segment for copy in plan.copies if copy.replaces == view.site]}
        return any(
            view.key_groups(cohort.segment, before.effective) is not cohort.hosted.groups
            for cohort in self._housing.cohorts.values()
            if cohort.segment.id in leaves
            for before in view.plans
            if before.effective > cohort.hosted.done
        )

    def staying(self, cohort: Cohort) -> tuple[int, ...]:
        """Its partitions, without those that leave at the end of the epoch that is being processed."""
        leaving = {p for other, partitions in self._leaving if other is cohort for p in partitions}
        return tuple(p for p in cohort.partitions if p not in leaving)

    @property
    def at_work(self) -> bool:
        """State is owed, or partitions are about to leave."""
        return bool(self.owed or self._leaving)

    def say_goodbye(self) -> None:
        """Partitions that have moved away leave their cohort, at the end of an epoch."""
        if not self._leaving:
            return
        for cohort, leaving in [entry for entry in self._leaving if not entry[0].hosted.busy]:
            self._leaving.remove((cohort, leaving))
            if self._housing.cohorts.get(cohort.key) is not cohort:
                continue  # It has gone as a whole, or has joined another one, with what was to leave.
            cohort.leave(leaving, self._view)
            self._feeding.shrunk(cohort)
            self._acts.set_timer("install", 0.0)
