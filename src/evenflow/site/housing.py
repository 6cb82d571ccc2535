"""Housing: what lives at this site, what is on its way here and from here (protocol C1-C5).

A copy's partitions are a cohort of their own here: fed from the first epoch of the plan that begins the copy, with the state as of the
epoch before it, which the source takes when it has finished that epoch and ships beside its loop. Nobody waits for such a cohort. When it
is level it says so; when the coordinator has declared it live it is absorbed by the site's live cohort of the segment, at the end of an
epoch that both have finished. If the copy is dropped, the cohort is.

The site has other things to do meanwhile: state is taken in a bounded piece at a time, and where it can it goes into the table of the live
cohort at once, so that nothing need be moved when the two become one (decision 42).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, Final

import numpy as np

from evenflow.errors import TransferCorrupt
from evenflow.exchange.inbox import Inbox
from evenflow.exchange.retention import Retention
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.plan import Copy
from evenflow.site.cohort import Cohort
from evenflow.site.events import CloseSource, Ship, StateArrived
from evenflow.site.facts import CopyFailed, CopyLive, TookOver
from evenflow.site.fittings import Fittings
from evenflow.site.hosted import Hosted
from evenflow.site.log import PartitionLog
from evenflow.site.view import View
from evenflow.state.transfer import Capture, unpacked, verifying
from evenflow.stream.ids import NO_COPY

LEVEL_EPOCHS: Final = 2
"""A copied cohort is level when it is no further than this behind what all others have processed."""
CATCH_UP_EPOCHS: Final = 2
"""A copied cohort that is not level begins this many epochs for each one of a live cohort here. With one for one it would never become
level at a busy site: both would take turns, and what it was behind at first it would be for ever."""

TURNS_MAX: Final = 128
"""Turns of the loop that the state of a copy takes, however much it is: a turn may be some milliseconds when the machine is busy, and who
has lost a replica waits for all of them."""


class Housing:
    """order: the cohorts in the order in which they are looked at, producers first. live: those that others wait for.

    consumed: streams that any cohort here consumes. joining: some cohort here is not live yet. outgoing: copies from here. changing: key
    groups are to change hands, or boxes their version, in an epoch that some cohort here has not begun.
    """

    def __init__(self, layout: Layout, view: View, part: Fittings) -> None:
        self._layout, self._view, self._part = layout, view, part
        self.order: list[Cohort] = []
        self.live: list[Cohort] = []
        self.consumed: tuple[int, ...] = ()
        self.joining = self.changing = False
        self.outgoing: tuple[Copy, ...] = ()
        self._captured: set[int] = set()
        self._reported: set[int] = set()
        self._dropped: set[int] = set()
        self._retired: set[int] = set()
        self._leaving: list[tuple[Cohort, tuple[int, ...]]] = []
        self._newest_copy = 0
        self._early: dict[int, StateArrived] = {}
        self._installing: deque[tuple[Cohort, int, Generator[int]]] = deque()
        self._gone: dict[tuple[int, int], Hosted] = {}
        # The rank of a move is none of its own: whoever comes while something moves must not take the run for a replicated one.
        moving = {(copy.segment, partition) for copy in view.plan.copies if copy.moves for partition in copy.partitions}
        self._replicated = any(
            len(sites) - ((segment, partition) in moving) > 1
            for segment, row in enumerate(view.plan.placement)
            for partition, sites in enumerate(row)
        )
        for segment in layout.segments:
            hosted = tuple(p for p, sites in enumerate(view.plan.placement[segment.id]) if self._hosts_from_the_start(segment.id, p, sites))
            if hosted:
                self._move_in(segment, hosted, 0, None)

    def _hosts_from_the_start(self, segment: int, partition: int, sites: tuple[int, ...]) -> bool:
        return self._view.site in sites and self._view.site in self._view.membership.live(self._view.plan, segment, partition)

    # ------------------------------------------------------------ moving in and out

    def _move_in(self, segment: Segment, partitions: tuple[int, ...], through: int, copy: Copy | None) -> Cohort:
        """A cohort that has come as far as epoch `through`."""
        layout, view = self._layout, self._view
        checked = self._replicated and (segment.kind != "ingress" or segment.user_code)
        groups = view.key_groups(segment, through + 1)
        tally, (version, running) = self._part.counting.tally(segment), view.runs(segment.id, through + 1)
        hosted = Hosted.of(running, layout, partitions, checked=checked, tally=tally, groups=groups, version=version)
        hosted.done = through
        number = NO_COPY if copy is None else copy.number
        main = self._part.cohorts.get((segment.id, 0))
        if main is not None and main.turns is None and self._part.spilling.budget is None:
            hosted.share(main.hosted)
        cohort = Cohort(number, hosted, copy, ready=copy is None, born=number)
        if checked:
            cohort.digests = np.zeros(segment.partitions, np.uint64)
        for stream in segment.inputs:
            cohort.inboxes[stream] = Inbox(stream, layout.segments[layout.arcs[stream].producer].partitions, through)
        for stream in segment.outputs:
            cohort.retained[stream] = Retention(stream, view.present(layout.arcs[stream].consumer), through)
        if segment.kind == "ingress":
            for partition in partitions:
                log = PartitionLog.begun(segment.id, partition, through)
                cohort.logs[partition] = log
                self._part.leading.add(log)
        self._part.cohorts[cohort.key] = cohort
        return cohort

    def settle_in(self) -> None:
        """Plan or membership are new: bring everything that depends on them up to date."""
        view, part = self._view, self._part
        for copy in view.plan.copies:
            if copy.target == view.site and copy.number in view.membership.dropped and copy.number not in self._dropped:
                self._drop(copy)
        for copy in view.plan.copies:
            if copy.replaces == view.site and copy.number in view.membership.retired and copy.number not in self._retired:
                self._move_out(copy)
        for copy in view.copies():
            if copy.target == view.site and (copy.segment, copy.number) not in part.cohorts and copy.number not in self._reported:
                self._move_in(self._layout.segments[copy.segment], copy.partitions, view.plan.effective - 1, copy)
        self.outgoing = tuple(copy for copy in view.copies() if copy.source == view.site)
        self._sort()
        self._look_ahead()
        self._admit()
        self._tell_whom()
        promoted = part.leading.change()
        if part.started:
            self._take_roles(promoted)
        self._newest_copy = max([self._newest_copy, *[copy.number for copy in view.plan.copies]])
        for number in [number for number in self._early if number <= self._newest_copy]:
            self.install(self._early.pop(number))

    def start(self) -> None:
        """Everybody is reachable: lead and follow, feed and be fed as plan and membership say."""
        self._take_roles(self._part.leading.start())

    def _take_roles(self, promoted: list[PartitionLog]) -> None:
        part = self._part
        for log in promoted:
            if not log.ended and not part.leading.draining:
                part.open_source(log.segment, log.partition, log.taken)
        for cohort in self.order:
            part.feeding.choose(cohort)

    def _drop(self, copy: Copy) -> None:
        self._dropped.add(copy.number)
        cohort = self._part.cohorts.pop((copy.segment, copy.number), None)
        if cohort is None:
            return
        self._part.feeding.leave(cohort)
        self._vacate(cohort)
        for log in cohort.logs.values():
            self._part.leading.forget(log)

    def _vacate(self, cohort: Cohort) -> None:
        """It has gone as a whole: tables that it has together with others must not keep its rows, nor get those that come of what is being
        processed now."""
        hosted = cohort.hosted
        if any(other.segment.id == cohort.segment.id and hosted.shares_with(other.hosted) for other in self._part.cohorts.values()):
            if hosted.busy and cohort.turns is None:
                self._gone[cohort.segment.id, cohort.born] = hosted
            else:
                hosted.leave(hosted.partitions)

    def end_work(self, key: tuple[int, int]) -> None:
        """What a cohort that has gone was processing is over. key: of the outcome."""
        hosted = self._gone.pop(key, None)
        if hosted is not None:
            hosted.leave(hosted.partitions)

    def _move_out(self, copy: Copy) -> None:
        """C3: the target of a move is live; the replica here goes as if it had died, and whatever it has not told anybody does."""
        part = self._part
        self._retired.add(copy.number)
        for key, cohort in list(part.cohorts.items()):
            leaving = tuple(p for p in cohort.partitions if p in copy.partitions) if key[0] == copy.segment else ()
            if not leaving:
                continue
            for partition in leaving:
                log = cohort.logs.pop(partition, None)
                if log is not None:
                    part.leading.forget(log)
                if part.ingress.resign(copy.segment, partition):
                    part.act(CloseSource(copy.segment, partition))
            if set(leaving) >= set(self.staying(cohort)):
                part.feeding.leave(cohort)
                del part.cohorts[key]
                self._vacate(cohort)
            else:
                self._leaving.append((cohort, leaving))
        self._say_goodbye()

    def staying(self, cohort: Cohort) -> tuple[int, ...]:
        """Its partitions, without those that leave at the end of the epoch that is being processed."""
        leaving = {p for other, partitions in self._leaving if other is cohort for p in partitions}
        return tuple(p for p in cohort.partitions if p not in leaving)

    def _say_goodbye(self) -> None:
        """Partitions that have moved away leave their cohort, at the end of an epoch."""
        for cohort, leaving in [entry for entry in self._leaving if not entry[0].hosted.busy]:
            self._leaving.remove((cohort, leaving))
            if self._part.cohorts.get(cohort.key) is not cohort:
                continue  # It has gone as a whole, or has joined another one, with what was to leave.
            cohort.leave(leaving, self._view)
            self._part.feeding.shrunk(cohort)
            self._part.set_timer("install", 0.0)

    def _sort(self) -> None:
        part = self._part
        self.order = [part.cohorts[key] for key in sorted(part.cohorts)]
        counted = [cohort for cohort in self.order if cohort.number == 0]
        self.live = [cohort for cohort in counted if cohort.segment.kind != "ingress"] or counted
        self.consumed = tuple(sorted({stream for cohort in self.order for stream in cohort.inboxes}))
        self.joining = any(cohort.number for cohort in self.order)

    def producing(self, stream: int) -> list[Cohort]:
        return [cohort for cohort in self.order if stream in cohort.retained]

    def _admit(self) -> None:
        """Keep frames for those who host consumers now, and for nobody else (A1, T2)."""
        view, part = self._view, self._part
        for cohort in self.order:
            for stream, retained in cohort.retained.items():
                present = view.present(self._layout.arcs[stream].consumer)
                for site in [site for site in retained.acked if site not in present]:
                    retained.dismiss(site)
                for site in present:
                    if site not in retained.acked:
                        retained.admit(site, view.plan.effective)
                        retained.hear(site, part.acknowledging.received(site, stream))

    def _tell_whom(self) -> None:
        view, part, layout = self._view, self._part, self._layout
        ingress = {site for segment in layout.segments if segment.kind == "ingress" for site in view.present(segment.id)}
        producers = {site for stream in self.consumed for site in view.present(layout.arcs[stream].producer)}
        listeners = sorted((producers | ingress) - {view.site}) if self.order else []
        part.credit.set_sites(view.active(), listeners)
        audience = {s for c in self.order for stream in c.retained for s in view.present(layout.arcs[stream].consumer)}
        leaders = {leader.site for segment in view.membership.leaders for leader in segment}
        closes: set[int] = set()
        if view.site in leaders:
            closes = leaders - {view.site}
            if self._replicated:  # Its records tell a member. One that is joining may ask for later ones only.
                followed = (
                    set(view.members(segment, partition))
                    for segment, row in enumerate(view.membership.leaders)
                    for partition, leader in enumerate(row)
                    if leader.site == view.site
                )
                closes -= set().union(*followed)
            else:
                hears = {
                    site
                    for cohort in self.order
                    if cohort.segment.kind == "ingress"
                    for stream in cohort.retained
                    for block in view.blocks(layout.arcs[stream].consumer)
                    for site in view.live(block)  # One that is joining gets later epochs only.
                }
                closes -= hears
        newly = sorted(closes.difference(part.tell_closes_to))
        part.tell_closes_to = tuple(sorted(closes))
        for peer in newly:
            # A site that leads from now on must follow what was closed before; if its source has ended nothing else makes it close.
            part.say_closed(peer)
        part.acknowledging.only_acks = tuple(s for s in listeners if s not in audience and s not in closes)

    # ------------------------------------------------------------ copies from here

    def capture(self, cohort: Cohort) -> None:
        """Take the state that copies want from this cohort, if it is at that epoch's end (C2).

        Not before all of it is here: a copied cohort that is live already may have that epoch still to finish, and this one waits for it.
        """
        if cohort.number or cohort.hosted.done != self._view.plan.effective - 1:
            return
        for copy in self.outgoing:
            wanted = copy.segment == cohort.segment.id and copy.number not in self._captured
            if wanted and set(copy.partitions) <= set(cohort.partitions):
                self._captured.add(copy.number)
                self._part.act(Ship(copy, Capture(self._facts(cohort, copy), cohort.capture(copy.partitions))))

    def _facts(self, cohort: Cohort, copy: Copy) -> dict[str, Any]:
        logs = {p: cohort.logs[p] for p in copy.partitions} if cohort.logs else {}
        return {
            "epoch": cohort.hosted.done,
            "watermark": cohort.hosted.watermark,
            "committed": self._part.releasing.through(copy.segment),
            "logs": {str(p): log.facts_done() for p, log in logs.items()},
            "digests": [int(value) for value in cohort.digests[list(copy.partitions)]] if cohort.digests.size else [],
        }

    # ------------------------------------------------------------ copies to here

    def install(self, event: StateArrived) -> None:
        """The state of a copy is here; its cohort begins with the epoch after it (C3)."""
        cohort = next((c for c in self.order if c.number == event.copy and not c.ready), None)
        if cohort is None or cohort.copy is None or any(cohort is begun for begun, *_ in self._installing):
            if event.copy > self._newest_copy:
                self._early[event.copy] = event  # It has been faster than the plan that begins the copy.
            return  # Else it was dropped meanwhile, or the state came twice.
        self._installing.append((cohort, len(event.state), self._take_in(cohort, event.state)))
        self.go_on()

    def go_on(self) -> None:
        """Take in some of the state that has come, and give back some memory of what has gone; the rest when others have had their turn."""
        done, waiting = 0, sum(size for _, size, _ in self._installing)
        enough = max(self._part.options.piece_bytes, waiting // TURNS_MAX)
        while self._installing:
            cohort, _, pieces = self._installing[0]
            try:
                while self._part.cohorts.get(cohort.key) is cohort:  # Else it was dropped.
                    if done >= enough or self._gone:
                        self._part.set_timer("install", 0.0)
                        return
                    done += next(pieces)
            except StopIteration:
                pass
            except TransferCorrupt as error:
                self._part.tell(CopyFailed(cohort.number, str(error)))
            pieces.close()
            self._installing.popleft()
        if any(cohort.hosted.give_back() for cohort in self.order if not cohort.hosted.busy):
            self._part.set_timer("install", 0.0)

    def _take_in(self, cohort: Cohort, state: bytes) -> Generator[int]:
        """Install a copy's state in pieces; its cohort is ready then. Yields about how many bytes each took."""
        for size in verifying(state):
            yield size // 4  # It takes that much less time.
        facts, states = unpacked(state)
        part, hosted, segment = self._part, cohort.hosted, cohort.segment.id
        assert facts["epoch"] == hosted.done, f"the state is of epoch {facts['epoch']}, wanted was {hosted.done}"
        yield from hosted.installing(states)
        cohort.state_bytes = len(state)
        hosted.watermark = facts["watermark"]
        part.releasing.commit(segment, facts["committed"])
        if facts["digests"] and cohort.copy is not None:
            cohort.digests[list(cohort.copy.partitions)] = np.array(facts["digests"], np.uint64)
        for partition, log_facts in facts["logs"].items():
            cohort.logs[int(partition)].begin(*log_facts)
        cohort.ready = True

    def give_up(self, segment: int, partition: int) -> None:
        """The epochs that a copied ingress partition needs are not recorded anywhere any more: its leader has died since (C4)."""
        for cohort in self.order:
            if cohort.segment.id == segment and partition in cohort.logs:
                assert cohort.number, f"ingress partition {partition} is live here and lacks epochs that all live members held"
                self._part.tell(CopyFailed(cohort.number, "the records of its first epochs are gone"))

    def report_live(self) -> None:
        """Say which copied cohorts are level: nobody needs what their source had before, and nobody would wait for them (C3)."""
        if not self.joining:
            return
        for cohort in self.order:
            if (
                cohort.copy is not None
                and cohort.number
                and cohort.ready
                and cohort.number not in self._reported
                and self._is_level(cohort)
            ):
                self._reported.add(cohort.number)
                self._part.tell(CopyLive(cohort.number, cohort.state_bytes))

    def _is_level(self, cohort: Cohort) -> bool:
        part, view, start = self._part, self._view, self._view.plan.effective - 1
        if cohort.hosted.done + LEVEL_EPOCHS < part.credit.processed:
            return False
        if cohort.segment.sink is not None and part.releasing.through(cohort.segment.id) < start:
            return False
        for stream in cohort.retained:
            for site in view.present(self._layout.arcs[stream].consumer):
                received = part.feeding.received(stream) if site == view.site else part.acknowledging.received(site, stream)
                if received < start:
                    return False
        return all(part.leading.enrolled((cohort.segment.id, partition)) for partition in cohort.logs)

    def may_run(self, cohort: Cohort) -> bool:
        """Whether it may begin its next epoch: of two cohorts that are to become one, the one ahead waits.

        A promise holds for followers too: the leader of an ingress partition may know the plan already, and its records come another way.
        """
        hold = self._part.ingress.hold_from
        if hold is not None and cohort.hosted.done + 1 >= hold and cohort.segment.kind == "ingress":
            return False
        if self.changing and not self._may_change(cohort):
            return False
        if not self.joining:
            return True
        if cohort.number:
            main = self._part.cohorts.get((cohort.segment.id, 0))
            return main is None or not self.is_live(cohort) or cohort.hosted.done < main.hosted.done
        for other in self.order:
            if not other.number:
                continue
            if other.segment.id == cohort.segment.id and self.is_live(other) and cohort.hosted.done >= other.hosted.done:
                return False
            if self._catches_up(other) and other.hosted.done < other.passed.get(cohort.key, 0) + CATCH_UP_EPOCHS:
                return False
        return True

    def _catches_up(self, cohort: Cohort) -> bool:
        """It is behind, and not for want of input: it goes before live cohorts, who throttle the ingress a little by that."""
        if cohort.number in self._reported or cohort.hosted.done + LEVEL_EPOCHS >= self._part.credit.processed:
            return False
        return cohort.hosted.busy or cohort.has_input()

    def note_begun(self, cohort: Cohort) -> None:
        """It begins an epoch."""
        if self.changing:
            self._part.spilling.gathering.discard(cohort.key)
            self._look_ahead()
        if self.joining and not cohort.number:
            for other in self.order:
                if other.number:
                    other.passed[cohort.key] = other.hosted.done

    def _look_ahead(self) -> None:
        self.changing = any(
            self._view.key_groups(cohort.segment, plan.effective) is not cohort.hosted.groups
            or plan.runs(cohort.segment)[0] != cohort.hosted.version
            for cohort in self.order
            for plan in self._view.plans
            if plan.effective > cohort.hosted.done
        )

    def _may_change(self, cohort: Cohort) -> bool:
        """Whether all that its next epoch divides anew (E1), or hands to another version, is in memory; what is to be joined
        to it has been, see `may_run`."""
        hosted, epoch = cohort.hosted, cohort.hosted.done + 1
        same = self._view.key_groups(cohort.segment, epoch) is hosted.groups
        same = same and self._view.runs(cohort.segment.id, epoch)[0] == hosted.version
        return same or self._part.spilling.gather(cohort)

    def is_live(self, cohort: Cohort) -> bool:
        """The coordinator has declared it live."""
        return cohort.number in self._reported and all(copy.number != cohort.number for copy in self._view.membership.joining)

    def meet(self) -> None:
        """Let live copied cohorts join the site's own where both have finished the same epoch."""
        if self._leaving:
            self._say_goodbye()
        if not self.joining:
            return
        for cohort in [c for c in self.order if c.number and self.is_live(c) and not c.hosted.busy]:
            main = self._part.cohorts.get((cohort.segment.id, 0))
            if main is not None and (main.hosted.busy or main.hosted.done != cohort.hosted.done):
                continue
            self._part.tell(TookOver(cohort.number))
            if main is None:
                self._become_live(cohort)
            else:
                self._absorb(main, cohort)
        self._sort()

    def _become_live(self, cohort: Cohort) -> None:
        part = self._part
        part.feeding.leave(cohort)
        del part.cohorts[cohort.key]
        cohort.number = NO_COPY
        cohort.hosted.settle()
        part.cohorts[cohort.key] = cohort
        self._moved_in(cohort)

    def _absorb(self, main: Cohort, cohort: Cohort) -> None:
        part = self._part
        part.feeding.leave(cohort)
        del part.cohorts[cohort.key]
        assert cohort.copy is not None
        main.absorb(cohort, cohort.partitions)
        main.waiting.extend(cohort.waiting)
        self._moved_in(main)

    def _moved_in(self, cohort: Cohort) -> None:
        part = self._part
        part.completed = False  # What was over here may have ended sources only; now there is more.
        part.feeding.choose(cohort, anew=True)
        for stream in cohort.retained:
            part.feeding.catch_up(stream)
        part.releasing.become_live(cohort)
