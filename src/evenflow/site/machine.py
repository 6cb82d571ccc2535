"""One dataflow's part on one site: the machine that closes epochs, exchanges frames and processes them in order.

Sans-IO: `handle` takes an event and the time at which it was seen, and returns what the world should do. Who has several may let it `take`
each of them, and `look` once at what follows from all. `flush` collects what is to be said to each peer, once per loop tick. This file
knows no clock, socket, thread or Spark. Its two halves:
- the rules (`rules`, and `effects`): what each event changes, one row per event and guard, named as in the protocol;
- `_settle`: what follows from the state, in a fixed order, until nothing follows any more: close epochs, process complete ones, finish.

Nothing inside ever waits for room: only the ingress does, by not closing the next epoch (A5).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from evenflow.exchange.rules import Story
from evenflow.exchange.section import CLOSES, NEVER_US, Section
from evenflow.site.cohort import Cohort
from evenflow.site.effects import Effects
from evenflow.site.entered import Entered
from evenflow.site.events import (
    Action,
    Event,
    Run,
    Say,
)
from evenflow.site.facts import PartFinished
from evenflow.site.ground import Setup
from evenflow.site.replaying import CannotReplay
from evenflow.site.rules import RULES
from evenflow.stream.epoch import END_OF_STREAM

KEPT_ROWS: Final = 20
"""Of those on which a box raised, if they are kept: so many of each box and cohort."""


class SiteMachine(Effects):
    """See the module. For what it is made of see `Ground`, `Fittings` and `Effects`."""

    def __init__(self, setup: Setup) -> None:
        self.story = Story()
        super().__init__(setup)

    def __repr__(self) -> str:
        return f"part {self.layout.name!r} at site {self.site} (closed {self.closed}, processed {self.processed}, finished {self.finished})"

    # ------------------------------------------------------------ interface of the worlds

    def handle(self, event: Event, now_us: int) -> list[Action]:
        """Take one event, seen at `now_us`. Returns actions in the order in which they must be carried out."""
        self.take(event, now_us)
        return self.look()

    def take(self, event: Event, now_us: int) -> None:
        """What an event changes by its rule. What follows from that waits for `look`."""
        if now_us > self.now_us:
            self.now_us = now_us
        RULES.apply(self, event, self.story)

    def look(self) -> list[Action]:
        """What follows from all that was taken since the last look. Returns actions in the order in which they must be carried out."""
        self.acknowledging.note_received()
        if self._stirred or self._may_close or self._may_begin or self._came_further:
            everything = self._stirred or not self._ordinary
            news = self._may_close, self._may_begin, self._came_further
            self._stirred = self._may_close = self._may_begin = self._came_further = False
            if everything:
                self._settle()
            elif self.started and not self.failed:
                self._follow(*news)
        actions, self._actions = self._actions, []
        return actions

    def flush(self, now_us: int) -> list[Say]:
        """What is to be said to each peer since the last flush, acknowledgements on the same paper (E4)."""
        if not self.outbox:
            return []
        self.counters.sections_out += len(self.outbox)
        said = []
        for peer, section in self.outbox.take():
            self.acknowledging.put(peer, section, now_us)
            said.append(Say(peer, section))
        return said

    def room(self, segment: int, partition: int) -> int:
        """Rows that the source partition may deliver now; 0 means wait."""
        if not self.started or self.failed:
            return 0
        key = (segment, partition)
        return self.keeping.room(key, self.ingress.room(key))

    def replays(self, segment: int, partition: int) -> bool:
        """Whether the source partition has rows to give again, also when the run is drained."""
        key = (segment, partition)
        return not self.keeping.has(key) and self.ingress.replays(key)

    def settled_rows(self, segment: int, partition: int) -> int:
        """Rows of the source partition that all live members have in their logs (I1)."""
        return self.leading.logs[segment, partition].taken_settled

    def entered(self, segment: int, partition: int) -> Entered:
        """What of Spark's tasks is in the log of this partition (I2)."""
        return self.leading.logs[segment, partition].entered()

    def follows(self, section: Section) -> bool:
        """Whether this section will make the ingress here close an epoch: then sources had better be asked first."""
        if not self.ingress.queues:
            return False
        closed = self.ingress.closed
        for mark in section.marks:
            if mark.epoch > closed and (mark.stream in self._ingress_streams or mark.stream == CLOSES):
                return True
        return bool(section.records) and any(record.epoch > closed for record in section.records)

    @property
    def close_due_us(self) -> int | None:
        """When the ingress here wants to close the epoch whose rows it has, or None if it has none."""
        return self.ingress.linger_due_us

    @property
    def closed(self) -> int:
        """Last epoch that the ingress here has closed, or that it follows."""
        return max([self.ingress.closed, *[log.end for log in self.leading.logs.values()]])

    @property
    def epochs_in_flight(self) -> int:
        return max(0, self.closed - self.finished)

    @property
    def user_code(self) -> bool:
        return any(cohort.hosted.user_code for cohort in self.cohorts.values())

    def state_bytes(self) -> int:
        return sum(cohort.memory_bytes() for cohort in self.cohorts.values())

    def late_rows(self) -> int:
        return sum(rows for _, _, rows in self.late_by_box())

    def failed_rows(self) -> tuple[tuple[str, str, str], ...]:
        """(box, row, error): the newest rows on which boxes here have raised. None unless they are to be kept; from the first call on."""
        if not self.options.keep_failed_rows:
            return ()
        found: list[tuple[str, str, str]] = []
        for cohort in self.cohorts.values():
            for step, operator in zip(cohort.segment.steps, cohort.hosted.facts.failed):
                if operator is not None:
                    operator.keeps = KEPT_ROWS
                    found += [(step.box, row, error) for row, error in operator.kept]
        return tuple(found)

    def late_by_box(self) -> tuple[tuple[int, str, int], ...]:
        """(segment, box, rows that came too late), of partitions that this site counts for; none of a box without any."""
        found: Counter[tuple[int, str]] = Counter()
        for cohort in self.cohorts.values():
            if self.view.counts(cohort.segment.id, cohort.partitions):
                for step, rows in cohort.late_rows().items():
                    found[cohort.segment.id, cohort.segment.steps[step].box] += rows
        return tuple((segment, box, rows) for (segment, box), rows in sorted(found.items()) if rows)

    # ------------------------------------------------------------ what follows from the state

    def _settle(self) -> None:
        if self.failed or not self.started:
            return
        self._close_epochs()
        if self.journalled:
            self.journalling.look()
            self.keeping.look()
        self.departing.say_goodbye()
        if self.housing.joining and self.arriving.meet():
            self.completed = False  # What was over here may have ended sources only; now there is more.
        self.spilling.relieve()
        self._run_cohorts()
        if self._advance():
            self._run_cohorts()
        self.say_promised()
        if self.housing.joining:
            self.arriving.report_live()
        self.spilling.go_on()
        if self.capturing.open is not None:
            self.capturing.go_on()
        if self.backing.units:
            self.backing.go_on()

    @property
    def _ordinary(self) -> bool:
        """Nothing comes, goes, changes, is captured, journalled or written to disk: then nothing follows but what `_follow` looks at."""
        return not (
            self.journalled
            or self.housing.joining
            or self.housing.changing
            or self.ingress.hold_from is not None
            or self.departing.at_work
            or self.capturing.open is not None
            or self.spilling.at_work
            or self.backing.at_work
        )

    def _follow(self, may_close: bool, may_begin: bool, came_further: bool) -> None:
        """What follows from epochs that came further, here or at peers, in the order of `_settle`. For what is new see `Ground`."""
        if may_close and self._close_epochs():
            may_begin = True
        if may_begin:
            self._begin_epochs()
        if came_further and self._advance():
            self._begin_epochs()

    def _begin_epochs(self) -> None:
        """`_run_cohorts`, where nothing is out of the ordinary."""
        for cohort in self.housing.order:
            if not cohort.hosted.busy:
                work = cohort.next_work(self.view)
                if work is not None:
                    self._actions.append(Run(work))

    def _run_cohorts(self) -> None:
        housing, departing, capturing, backing = self.housing, self.departing, self.capturing, self.backing
        for cohort in housing.order:
            if not cohort.hosted.busy:
                if departing.owed:
                    departing.capture(cohort)
                if capturing.open is not None:
                    capturing.capture(cohort)
                if backing.units:
                    backing.capture(cohort)
                if cohort.hosted.done >= self.durable and cohort.segment.publishes:
                    continue  # J3: what it leaves outside could be made otherwise by a restart.
                if not (housing.joining or housing.changing or self.ingress.hold_from is not None) or self._may_run(cohort):
                    if cohort.turns is not None and cohort.turns.groups:
                        self.spilling.begin(cohort)
                    elif (work := cohort.next_work(self.view)) is not None:
                        housing.note_begun(cohort)
                        self._actions.append(Run(work))

    def _may_run(self, cohort: Cohort) -> bool:
        """Whether plans and copies let the cohort begin its next epoch."""
        housing, hold = self.housing, self.ingress.hold_from
        if (housing.changing or hold is not None) and not housing.may_begin(cohort, hold):
            return False
        return not housing.joining or self.arriving.may_run(cohort)

    def _close_epochs(self) -> bool:
        """Close the next epoch if it is time. True if it was."""
        ingress, credit = self.ingress, self.credit
        if not ingress.queues or (ingress.at_rest and not credit.timed):
            return False
        if ingress.reflex.active:
            ingress.reflex.allowance.note(credit.processed, self.now_us, credit.shares())
        for cohort in self.housing.sources:
            if cohort.hosted.busy:
                return False
        self.waking.demand()
        try:
            self.leading.catch_up(self.now_us)
            closed = ingress.may_close(credit.granted, credit.processed, self.now_us)
            if closed:
                self.leading.close(self.now_us)
        except CannotReplay as error:
            self.give_up_replay(error)
            return False
        if closed:
            for peer in self.audience.closes:
                self.say_closed(peer)
        self.waking.wait_for_rows()
        return closed

    def _advance(self) -> bool:
        """Bring processed, finished and granted up to date, and say when everything here is over. True if that closed an epoch."""
        live, closed = self.housing.live, False
        processed = finished = live[0].hosted.done if live else 0
        for cohort in live:
            hosted = cohort.hosted
            processed, finished = min(processed, hosted.done), min(finished, hosted.done)
            if hosted.segment.sink is not None:
                finished = min(finished, self.releasing.taken(hosted.segment.id))
        if live and (processed != self.processed or finished != self.finished):
            self.processed, self.finished = processed, finished
            due_us = min([cohort.hosted.due_us for cohort in live], default=NEVER_US)
            room, share = self.buffered_bytes <= self.options.memory_bytes, self.ingress.reflex.allowance.told
            self.credit.advance(processed, finished, room=room, due_us=due_us, share=share)
            closed = self._close_epochs()
            # Load is much the same everywhere: when rows wait here, a peer's ingress is waiting too, so it is told at once.
            self.acknowledging.tell(at_once=self.ingress.overdue(self.now_us) or self.waking.soon(due_us))
        if live and not self.completed:
            self._complete_if_over()
        return closed

    def _complete_if_over(self) -> None:
        for (_, number), cohort in self.cohorts.items():
            if (number == 0 or self.arriving.is_live(cohort)) and cohort.hosted.watermark != END_OF_STREAM:
                return
        if self.finished > self.durable:
            return  # Who ends now takes part in the end of the run, and the journal does not have all of it.
        if self.finished >= max(cohort.hosted.done for cohort in self.housing.live) and self.releasing.all_stored(self.housing.live):
            self.completed = True
            self.tell(PartFinished(self.finished, self.view.membership.number))
