"""Arriving: copies to here, from the plan that begins them until they are part of the site's own cohorts (protocol C1-C4).

A copy's partitions are a cohort of their own here: fed from the first epoch of the plan that begins the copy, with the state as of the
epoch before it, which the source takes when it has finished that epoch and ships beside its loop. Nobody waits for such a cohort. When it
is level it says so; when the coordinator has declared it live it is absorbed by the site's live cohort of the segment, at the end of an
epoch that both have finished. If the copy is dropped, the cohort is. How far a copy is, is its `Stage`.

The site has other things to do meanwhile: state is taken in a bounded piece at a time, and where it can it goes into the table of the live
cohort at once, so that nothing need be moved when the two become one (decision 42).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.errors import TransferCorrupt
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy
from evenflow.site.acknowledging import Acknowledging
from evenflow.site.cohort import Cohort
from evenflow.site.copying import Stage, stage_of
from evenflow.site.departing import Departing
from evenflow.site.entered import Entered
from evenflow.site.events import PartTaken, StateArrived, StatePartRead, StateRead
from evenflow.site.facts import CopyFailed, CopyLive, Lacking, TookOver
from evenflow.site.feeding import Feeding
from evenflow.site.ground import Acts
from evenflow.site.housing import Housing
from evenflow.site.leading import Leading
from evenflow.site.own_frames import restore as restore_frames
from evenflow.site.releasing import Releasing
from evenflow.site.spilling import Spilling
from evenflow.site.view import View
from evenflow.state.image import FRAMES
from evenflow.state.page_snapshot import State as StateBytes
from evenflow.state.transfer import Facts, unpacked, verifying
from evenflow.stream.epoch import NO_WATERMARK, Lost
from evenflow.stream.ids import NO_COPY, CopyNumber

LEVEL_EPOCHS: Final = 2
"""A copied cohort is level when it is no further than this behind what all others have processed."""
CATCH_UP_EPOCHS: Final = 2
"""A copied cohort that is not level begins this many epochs for each one of a live cohort here. With one for one it would never become
level at a busy site: both would take turns, and what it was behind at first it would be for ever."""

TURNS_MAX: Final = 128
"""Turns of the loop that the state of a copy takes, however much it is: a turn may be some milliseconds when the machine is busy, and who
has lost a replica waits for all of them."""
WAITS: Final = -1
"""Said by what takes in state instead of a size: it goes on when the disk has answered."""


@dataclass(slots=True)
class State:
    """The state of a copy, as it has come, or a part of that of a base. size: bytes of all of it. pieces: what takes it in, as soon as its
    cohort is here."""

    data: bytes
    size: int
    pieces: Generator[int] | None = None


class Arriving:
    """piece_bytes: about how much state is taken in before the site looks at anything else.

    _newest: the highest number of a copy that any plan known here has begun. _states: by copy, the state that has come and is not all
    taken in: that of a copy to come, or of one that is being installed, in the order in which they are. _read: by segment, parts of that of
    a base, of which the first is being taken in.
    """

    def __init__(
        self,
        layout: Layout,
        view: View,
        housing: Housing,
        departing: Departing,
        *,
        leading: Leading,
        feeding: Feeding,
        acknowledging: Acknowledging,
        releasing: Releasing,
        spilling: Spilling,
        acts: Acts,
        piece_bytes: int,
        restored: Callable[[Cohort, StateRead], None] = lambda cohort, event: None,
        began: Callable[[Cohort], None] = lambda cohort: None,
    ) -> None:
        self._layout, self._view, self._housing, self._departing, self._acts = layout, view, housing, departing, acts
        self._leading, self._feeding, self._acknowledging, self._releasing = leading, feeding, acknowledging, releasing
        self._credit, self._piece_bytes, self._spilling = acknowledging.credit, piece_bytes, spilling
        self._newest, self._restored, self._began = 0, restored, began
        self._states: dict[CopyNumber, State] = {}
        self._read: dict[int, deque[State]] = {}

    # ------------------------------------------------------------ how far they are

    def stage(self, number: CopyNumber) -> Stage:
        """How far a copy to here is, by its number."""
        cohort = next((cohort for cohort in self._housing.cohorts.values() if cohort.number == number), None)
        return self._stage_of(number, cohort)

    def _stage(self, cohort: Cohort) -> Stage:
        """How far the copy is that a cohort here is for."""
        return self._stage_of(cohort.number, cohort)

    def _stage_of(self, number: CopyNumber, cohort: Cohort | None) -> Stage:
        return stage_of(
            planned=number <= self._newest,
            housed=cohort is not None,
            come=number in self._states,
            installed=cohort is not None and cohort.ready,
            reported=cohort is not None and cohort.reported,
            joining=number in self._view.joining,
        )

    def stages(self) -> dict[CopyNumber, Stage]:
        """How far the copies to here are of which something is here, by their number."""
        numbers = {*[cohort.number for cohort in self._housing.cohorts.values() if cohort.number], *self._states}
        return {number: self.stage(number) for number in sorted(numbers)}

    def is_live(self, cohort: Cohort) -> bool:
        """The coordinator has declared it live."""
        return self._stage(cohort) is Stage.LIVE

    # ------------------------------------------------------------ from the plan on

    def drop(self) -> None:
        """Plan or membership are new: what was being copied here and has been given up goes (C4)."""
        view, cohorts = self._view, self._housing.cohorts
        self._newest = max([self._newest, *[copy.number for copy in view.plan.copies]])
        for copy in view.plan.copies:
            if copy.target == view.site and copy.number in view.membership.dropped and (copy.segment, copy.number) in cohorts:
                self._departing.drop(cohorts[copy.segment, copy.number])
                assert self.stage(copy.number) is Stage.OVER

    def begin(self) -> None:
        """Plan or membership are new: copies to here that begin get a cohort (C1)."""
        view = self._view
        for copy in view.copies():
            if copy.target == view.site and self.stage(copy.number) is Stage.TO_COME:
                through = copy.base if copy.revives else view.plan.effective - 1
                cohort = self._housing.move_in(self._layout.segments[copy.segment], copy.partitions, through, copy)
                if copy.void:
                    self._begin_anew(cohort, copy)
                if copy.revives:
                    self._acknowledging.begin_again(cohort)
                assert self.stage(copy.number) is not Stage.TO_COME
        for copy in view.copies():
            if copy.revives:
                self._say_lacking(copy)

    def _say_lacking(self, copy: Copy) -> None:
        """B3: what is here and has less of a stream than who makes it begins again with. Until that lives nobody feeds it, so it gets no
        further; whether an image has what it lacks the coordinator knows."""
        for cohort in self._housing.order:
            for stream, inbox in cohort.inboxes.items():
                if self._layout.arcs[stream].producer == copy.segment and inbox.through < copy.base:
                    self._acts.tell(Lacking(copy.number, cohort.segment.id, cohort.partitions, inbox.through))

    def _begin_anew(self, cohort: Cohort, copy: Copy) -> None:
        """B1: nobody has its state, so there is none to wait for. What a sink has not had of the epochs before, it never gets."""
        done, nobodys = cohort.hosted.done, Entered().to_facts()
        logs = {str(b.partition): [b.taken, b.ended, nobodys, b.stamp, [], done] for b in copy.begins}
        self._settle(cohort, {"epoch": done, "watermark": NO_WATERMARK, "committed": done, "digests": [], "logs": logs})

    def install_early(self) -> None:
        """Take in state that was faster than the plan."""
        early = [number for number, state in self._states.items() if state.pieces is None]
        for number in [number for number in early if number <= self._newest]:
            self.install(StateArrived(number, self._states.pop(number).data))

    # ------------------------------------------------------------ their state

    def install(self, event: StateArrived) -> None:
        """The state of a copy is here; its cohort begins with the epoch after it (C3)."""
        match self.stage(event.copy):
            case Stage.TO_COME:
                self._states[event.copy] = State(event.state, len(event.state))  # It has been faster than the plan that begins the copy.
            case Stage.AWAITED:
                cohort = next(cohort for cohort in self._housing.order if cohort.number == event.copy)
                self._states[event.copy] = State(event.state, len(event.state), self._take_in(cohort, event.state))
                assert self._stage(cohort) is Stage.INSTALLING
                self.go_on()
            case _:
                pass  # It was dropped meanwhile, or the state came twice.

    def restore_part(self, event: StatePartRead) -> None:
        """Some of the state of the partitions of a segment here, as of the base, is read (K9)."""
        cohort = self._housing.own(event.segment)
        if cohort is None or cohort.ready:
            self._acts.act(PartTaken(event.segment))
        else:
            expected = cohort.hosted.bytes_of(event.rows)
            if self._spilling.fits(expected):
                cohort.hosted.expect(event.rows)
            size = max(expected, sum(map(len, event.states.values())))
            self._wait_for(event.segment, State(b"", size, self._take_part(cohort, event)))

    def restore(self, event: StateRead) -> None:
        """All of it is read; they begin with the epoch after it (K9)."""
        cohort = self._housing.own(event.segment)
        if cohort is not None and not cohort.ready:
            self._wait_for(event.segment, State(b"", 0, self._restore(cohort, event)))

    def _wait_for(self, segment: int, state: State) -> None:
        self._read.setdefault(segment, deque()).append(state)
        self.go_on()

    def disk_answered(self) -> None:
        """What waits for the disk may go on."""
        if self._read:
            self.go_on()

    def _take_part(self, cohort: Cohort, event: StatePartRead) -> Generator[int]:
        """Partition by partition, as there is room for it. Not what has left meanwhile: nobody would ever take it away again."""
        for partition in dict.fromkeys(partition for partition, _ in event.states):
            states = {key: data for key, data in event.states.items() if key[0] == partition}
            size = cohort.hosted.weigh(states)
            while partition in cohort.partitions and self._spilling.must_wait(size):
                yield WAITS
            if partition in cohort.partitions:
                group = self._spilling.place(cohort, partition, size)
                pieces = (cohort.hosted if group is None or group.hosted is None else group.hosted).installing(states)
                while partition in cohort.partitions and (took := next(pieces, None)) is not None:
                    yield took
                if group is not None:
                    group.filled()
            cohort.state_bytes += sum(map(len, states.values()))
        self._acts.act(PartTaken(event.segment))

    def _restore(self, cohort: Cohort, event: StateRead) -> Generator[int]:
        """The parts before it are installed; checkpoints go on behind them."""
        if not cohort.ready and self._housing.own(event.segment) is cohort:  # Else it was said twice, or it has left.
            self._settle(cohort, event.facts)
            self._restored(cohort, event)
        yield 0

    def go_on(self) -> None:
        """Take in some of the state that has come, and give back some memory of what has gone; the rest when others have had their turn."""
        restored = [(NO_COPY, segment, parts[0]) for segment, parts in self._read.items()]
        waiting = [*restored, *[(number, -1, state) for number, state in self._states.items() if state.pieces is not None]]
        done, enough = 0, max(self._piece_bytes, sum(state.size for *_, state in waiting) // TURNS_MAX)
        stuck = set[int]()
        for number, segment, state in waiting:
            assert state.pieces is not None
            size = 0
            try:
                while number == NO_COPY or self.stage(number) is Stage.INSTALLING:  # Else it was dropped.
                    if done >= enough or self._departing.lingering:
                        self._acts.set_timer("install", 0.0)
                        return
                    if (size := next(state.pieces)) == WAITS:
                        break
                    done += size
            except StopIteration:
                pass
            except TransferCorrupt as error:
                self._acts.tell(CopyFailed(number, str(error)))
            if size == WAITS:
                stuck.add(segment)
                continue
            state.pieces.close()
            if number:
                self._states.pop(number, None)
            else:
                self._read[segment].popleft()
                self._read = {segment: parts for segment, parts in self._read.items() if parts}
        if self._read.keys() - stuck or any(cohort.hosted.give_back() for cohort in self._housing.order if not cohort.hosted.busy):
            self._acts.set_timer("install", 0.0)

    def _take_in(self, cohort: Cohort, state: bytes) -> Generator[int]:
        """`_install` of a copy's state, when it was found to be what was sent."""
        for size in verifying(state):
            yield size // 4  # It takes that much less time.
        yield from self._install(cohort, *unpacked(state), len(state))

    def _install(self, cohort: Cohort, facts: Facts, states: Mapping[tuple[int, int], StateBytes], size: int) -> Generator[int]:
        """Install state in pieces; its cohort is ready then. Yields about how many bytes each took."""
        hosted = cohort.hosted
        assert facts["epoch"] == hosted.done, f"the state is of epoch {facts['epoch']}, wanted was {hosted.done}"
        yield from hosted.installing({key: state for key, state in states.items() if key[1] != FRAMES})
        restore_frames(cohort, self._view, facts.get("frames", ()), {at: data for (at, step), data in states.items() if step == FRAMES})
        cohort.state_bytes = size
        if not facts["digests"]:
            cohort.digests = np.zeros(0, np.uint64)  # Nobody has compared it so far: what it put out before is not known.
        self._settle(cohort, facts)

    def _settle(self, cohort: Cohort, facts: Facts) -> None:
        """The state is installed, and what goes along with it counts: the cohort is ready."""
        hosted, segment = cohort.hosted, cohort.segment.id
        assert facts["epoch"] == hosted.done, f"the state is of epoch {facts['epoch']}, wanted was {hosted.done}"
        hosted.filled()
        hosted.watermark = facts["watermark"]
        hosted.lost = tuple(Lost(*each) for each in facts.get("lost", ()))
        self._releasing.commit(segment, facts["committed"])
        if facts["digests"] and cohort.digests.size:
            # Those that it was ordered for: some may have left.
            partitions = facts["partitions"] if cohort.copy is None else cohort.copy.partitions
            cohort.digests[list(partitions)] = np.array(facts["digests"], np.uint64)
        for partition, log_facts in facts["logs"].items():
            if int(partition) in cohort.logs:
                cohort.logs[int(partition)].begin(*log_facts)
        cohort.ready = True
        self._began(cohort)

    def give_up(self, segment: int, partition: int) -> None:
        """The epochs that a copied ingress partition needs are not recorded anywhere any more: its leader has died since (C4)."""
        for cohort in self._housing.order:
            if cohort.segment.id == segment and partition in cohort.logs:
                assert cohort.number, f"ingress partition {partition} is live here and lacks epochs that all live members held"
                self._acts.tell(CopyFailed(cohort.number, "the records of its first epochs are gone"))

    def report_live(self) -> None:
        """Say which copied cohorts are level: nobody needs what their source had before, and nobody would wait for them (C3)."""
        for cohort in self._housing.order:
            if cohort.number and self._stage(cohort) is Stage.BEHIND and self._is_level(cohort):
                cohort.reported = True
                self._acts.tell(CopyLive(cohort.number, cohort.state_bytes))

    def _is_level(self, cohort: Cohort) -> bool:
        view, start = self._view, self._view.plan.effective - 1
        if cohort.copy is not None and cohort.copy.revives:
            start = cohort.copy.base  # What follows it is made again here, for whoever lacks it.
        if self._is_behind(cohort):
            return False
        if cohort.segment.sink is not None and self._releasing.through(cohort.segment.id) < start:
            return False
        for stream, retained in cohort.retained.items():
            since = min(start, retained.floor)
            for site in view.present(self._layout.arcs[stream].consumer):
                received = self._feeding.received(stream) if site == view.site else self._acknowledging.received(site, stream)
                if received < since:
                    return False
        return all(self._leading.enrolled((cohort.segment.id, partition)) for partition in cohort.logs)

    def _is_behind(self, cohort: Cohort) -> bool:
        return cohort.hosted.done + LEVEL_EPOCHS < self._credit.surely_processed(self._leading.ingress.pipeline)

    def may_run(self, cohort: Cohort) -> bool:
        """Whether it may begin its next epoch: of two cohorts that are to become one, the one ahead waits; and one that catches up goes
        before those that are level."""
        if cohort.number:
            main = self._housing.own(cohort.segment.id)
            return main is None or not self.is_live(cohort) or cohort.hosted.done < main.hosted.done
        for other in self._housing.order:
            if not other.number:
                continue
            if other.segment.id == cohort.segment.id and self.is_live(other) and cohort.hosted.done >= other.hosted.done:
                return False
            if self._catches_up(other) and other.hosted.done < other.passed.get(cohort.key, 0) + CATCH_UP_EPOCHS:
                return False
        return True

    def _catches_up(self, cohort: Cohort) -> bool:
        """It is behind, and not for want of input: it goes before live cohorts, who throttle the ingress a little by that."""
        if cohort.reported or not self._is_behind(cohort):
            return False
        return cohort.hosted.busy or cohort.has_input()

    def meet(self) -> bool:
        """Let live copied cohorts join the site's own where both have finished the same epoch. True if any did."""
        joined = False
        for cohort in [c for c in self._housing.order if c.number and self.is_live(c) and not c.hosted.busy]:
            main = self._housing.own(cohort.segment.id)
            if main is not None and (main.hosted.busy or main.hosted.done != cohort.hosted.done):
                continue
            self._acts.tell(TookOver(cohort.number))
            if main is None:
                self._become_live(cohort)
            else:
                self._absorb(main, cohort)
            joined = True
        self._housing.sort()
        return joined

    def _become_live(self, cohort: Cohort) -> None:
        assert self._stage(cohort) is Stage.LIVE and not cohort.hosted.busy
        self._feeding.leave(cohort)
        del self._housing.cohorts[cohort.key]
        cohort.number = NO_COPY
        cohort.hosted.settle()
        self._housing.cohorts[cohort.key] = cohort
        self._moved_in(cohort)

    def _absorb(self, main: Cohort, cohort: Cohort) -> None:
        assert self._stage(cohort) is Stage.LIVE and not (cohort.hosted.busy or main.hosted.busy)
        assert cohort.hosted.done == main.hosted.done, f"{cohort.key} has done {cohort.hosted.done}, and {main.key} {main.hosted.done}"
        self._feeding.leave(cohort)
        del self._housing.cohorts[cohort.key]
        main.absorb(cohort, cohort.partitions)
        main.waiting.extend(cohort.waiting)
        self._moved_in(main)

    def _moved_in(self, cohort: Cohort) -> None:
        self._feeding.choose(cohort, anew=True)
        for stream in cohort.retained:
            self._feeding.catch_up(stream)
        self._releasing.become_live(cohort)
