"""What each event changes in a part. `rules` say which effect an event has, and `part` what follows from the state then.

Replicas are no special case. `feeding` knows who feeds whom, `leading` who leads, `housing` what is here, `arriving` and `departing`
what is copied, `acknowledging` what peers hear, `releasing` sinks. Nothing here knows a clock, socket, thread or Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evenflow.errors import SourceError
from evenflow.exchange.retention import Kept
from evenflow.exchange.section import CLOSES, Mark
from evenflow.plan.plan import Plan
from evenflow.site import guards
from evenflow.site.arriving import Arriving
from evenflow.site.backing import Backing
from evenflow.site.capturing import Capturing
from evenflow.site.cohort import Cohort
from evenflow.site.content import BrokenPromise, ContentIngress
from evenflow.site.departing import Departing
from evenflow.site.depending import Depending
from evenflow.site.events import (
    BatchDone,
    Checkpoint,
    DrainRequested,
    Durable,
    Event,
    Heard,
    LinkDown,
    LinkUp,
    Meet,
    MembershipChanged,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    RowsArrived,
    SinkCommitted,
    SinkTook,
    SourceEnded,
    Started,
    StateArrived,
    StateMemoryChanged,
    StatePartRead,
    StateRead,
    StateUnread,
    TimerFired,
    TransferFailed,
    WorkDone,
)
from evenflow.site.facts import CopyFailed, Digests, PartFailed, PlanMissing, Promised, Refused, StateUnreadable
from evenflow.site.fittings import Fittings
from evenflow.site.given import EpochsGiven
from evenflow.site.ground import Setup
from evenflow.site.housing import Housing
from evenflow.site.imaging import Imaging
from evenflow.site.kept_rows import RowsRead, RowsStored, RowsUnread
from evenflow.site.log import PartitionLog
from evenflow.site.losing import Losing
from evenflow.site.outcome import Outcome
from evenflow.site.replaying import CannotReplay
from evenflow.site.restoring import wanted
from evenflow.site.spilling import Answer
from evenflow.site.thinned import tell_shed, tell_thinned
from evenflow.stream.ids import FIRST_PLAN
from evenflow.stream.weight import WEIGHT

DIGEST_EVERY: Final = 64
"""Epochs between two comparisons of replicas."""


class Effects(Fittings):
    """See the module. For what it is made of see `Ground` and `Fittings`."""

    housing: Housing

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        layout = setup.layout
        leading, feeding, releasing = self.leading, self.feeding, self.releasing
        self.housing = Housing(
            layout, self.view, self.cohorts, self.beginning, tallies=self.tallies, leading=leading, spilling=self.spilling
        )
        self.departing = Departing(
            self.view, self.housing, leading=leading, feeding=feeding, ingress=self.ingress, releasing=releasing, acts=self
        )
        self.capturing = Capturing(self.site, self.housing, self.departing, releasing, self)
        self.arriving = Arriving(
            layout,
            self.view,
            self.housing,
            self.departing,
            leading=leading,
            feeding=feeding,
            acknowledging=self.acknowledging,
            releasing=releasing,
            spilling=self.spilling,
            acts=self,
            piece_bytes=self.options.piece_bytes,
            restored=self.capturing.restored,
            began=self._read_on,
        )
        for order in wanted(self.housing.cohorts.values(), self.beginning.pieces, self.beginning.epoch) if self.beginning.pieces else ():
            self.act(order)
        self.losing = Losing(layout, self.view, self)
        self.depending = Depending(layout, self.view, self, self.releasing)
        self.backing = Backing(self, layout, self.housing, self.departing, releasing)
        self.imaging = Imaging(self, self.options.image_memory_bytes)
        self._ingress_streams = {a for s in layout.segments if s.kind == "ingress" for a in s.outputs}
        self._asked_plan = self._promised = 0
        self._unsaid: Plan | None = None
        self._settle_in()

    def _settle_in(self) -> None:
        """Plan or membership are new: bring everything that depends on them up to date."""
        self.arriving.drop()
        self.departing.change()
        self.arriving.begin()
        self.housing.sort()
        self.housing.look_ahead()
        self.audience.change(self.housing.order, self.housing.consumed, stable=self.stable)
        self.acknowledging.change(self.audience.only_acks)
        promoted = self.leading.change()
        if self.started:
            self._take_roles(promoted)
        self.arriving.install_early()

    def _read_on(self, cohort: Cohort) -> None:
        """It is known now how far the sources of a cohort's partitions had been read. Who leads itself reads on from there (I4)."""
        if cohort.logs and self.by_content:
            promoted = self.leading.change()
            if self.started:
                self._take_roles(promoted)

    def _take_roles(self, promoted: list[PartitionLog]) -> None:
        """Lead and follow, feed and be fed as plan and membership say."""
        for log in promoted:
            key = (log.segment, log.partition)
            if self.keeping.keeps(log.segment):
                self.keeping.lead(key, log.taken, log.end)
            elif not self.ingress.queues[key].ended:
                self.open_source(*key, log.taken, log.end)
        for cohort in self.housing.order:
            self.feeding.choose(cohort)

    def start(self, event: Started) -> None:
        self._stirred = True
        self.started = True
        self.spilling.relief_us = event.relief_us
        self.ingress.last_close_us = self.now_us
        self._take_roles(self.leading.start())
        if any(segment.kind == "ingress" for segment in self.layout.segments):
            self.set_timer("heartbeat", self.options.heartbeat_ms)

    def take_rows(self, event: RowsArrived) -> None:
        self._may_close = True
        batch, schema = event.batch, self.layout.segments[event.segment].schema
        taken, key = self.counters.taken, (event.segment, event.partition)
        if not self.by_content or self.view.counts(event.segment, (event.partition,)):
            taken[event.segment] = taken.get(event.segment, 0) + event.batch.num_rows
        queue = self.ingress.queues[key]
        if batch.num_columns != len(schema) or schema.names[-1:] == [WEIGHT]:
            batch = queue.narrowed(batch, schema)  # Nobody reads the others.
        if queue.dated:
            due_us = self.now_us if event.due_us is None else event.due_us
            self.ingress.reflex.allowance.offer(batch.num_rows, self.now_us - due_us)
        else:
            self.tallies.source(key).kept += event.batch.num_rows
        if self.keeping.has(key):
            self.keeping.take(key, batch)
        else:
            try:
                queue.put(batch, self.now_us if event.since_us is None else event.since_us, event.share, due_us=event.due_us)
            except BrokenPromise as error:
                self.give_up_promise(event.segment, error)

    def end_batch(self, event: BatchDone) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].end_batch(event.batch)

    def end_source(self, event: SourceEnded) -> None:
        self._stirred = True
        key = (event.segment, event.partition)
        if self.keeping.has(key):
            self.keeping.end(key)
        else:
            self.ingress.queues[key].ended = True

    def note_epochs(self, event: EpochsGiven) -> None:
        ingress = self.ingress
        assert isinstance(ingress, ContentIngress), "only a source that is cut by content says that epochs are whole"
        self._may_close = ingress.reach((event.segment, event.partition), event.epoch) or self._may_close

    def note_rows(self, event: RowsStored) -> None:
        self._stirred = True
        self.keeping.note_stored(event)

    def take_again(self, event: RowsRead) -> None:
        self._stirred = True
        taken = self.counters.taken
        taken[event.segment] = taken.get(event.segment, 0) + event.batch.num_rows
        self.keeping.note_read(event)

    def give_up_rows(self, event: RowsUnread) -> None:
        """Nothing else has these rows: the part stops and says so."""
        self.failed = True
        box = self.layout.segments[event.segment].source or ""
        said = (
            f"object {event.stored.name!r}, with {event.stored.rows} rows of partition {event.partition} from position "
            f"{event.stored.first} on, {event.why}. Nobody else has these rows: give the object back, or give the dataflow a new location"
        )
        self.tell(PartFailed(box, self.ingress.closed + 1, said, said, SourceError.__name__))

    def drain(self, event: DrainRequested) -> None:
        self._stirred = True
        self.ingress.drain()
        self.keeping.drain()

    def hear(self, event: Heard) -> None:
        peer, section = event.peer, event.section
        if section.resumes:
            self.leading.bear_witness_to(peer)
        for resume in section.resumes:
            self.feeding.answer(peer, resume)
        if section.ack is not None and self.acknowledging.hear(peer, section.ack):
            self._may_close = True
        for bundle in section.bundles:
            self.feeding.put(bundle)
        if section.marks:
            self._take_marks(section.marks)
        for key in self.leading.confirm(peer, section) if section.settled else ():
            self.arriving.give_up(*key)
        if section.records:
            self.leading.witness(section.records)
            self._may_begin = self.leading.hear_records(peer, section.records) or self._may_begin
            self._may_close = self.ingress.demand(max([record.epoch for record in section.records]), self.now_us) or self._may_close
        for held in section.held:
            if self.leading.hear_held(peer, held):
                self._may_begin = self._may_close = True
        for settled in section.settled:
            if self.leading.hear_settled(peer, settled):
                self._may_begin = self._may_close = True
        self._stirred = self._stirred or self.housing.joining

    def hold_section(self, event: Heard) -> None:
        self.held.setdefault(event.peer, []).append(event)
        newest = max(mark.plan for mark in event.section.marks) if event.section.marks else FIRST_PLAN
        if newest > max(self._asked_plan, self.view.plan.number):
            self._asked_plan = newest
            self.tell(PlanMissing(newest))

    def resume_link(self, event: LinkUp) -> None:
        self._stirred = True
        self.outbox.begin(event.peer)
        self.feeding.link_up(event.peer)
        self.leading.link_up(event.peer)
        self.credit.forget(event.peer)
        if event.peer in self.audience.closes:
            self.say_closed(event.peer)
        self.held.pop(event.peer, None)

    def lose_link(self, event: LinkDown) -> None:
        self._stirred = True
        self.feeding.link_down(event.peer)
        self.held.pop(event.peer, None)

    def change_membership(self, event: MembershipChanged) -> None:
        self._stirred = True
        before = self.view.membership.sites
        self.view.change(event.membership)
        if self.site not in event.membership.sites:
            self.failed = True  # Fenced: nobody listens to this site any more (V3).
            return
        for site in before:
            if site not in event.membership.sites:
                self.losing.note(site, self.housing.order)
                self.held.pop(site, None)
                self.feeding.link_down(site)
        self._settle_in()
        self._hear_held()

    def install_state(self, event: StateArrived) -> None:
        self._stirred = True
        self.arriving.install(event)

    def restore_part(self, event: StatePartRead) -> None:
        self._stirred = True
        self.arriving.restore_part(event)

    def restore(self, event: StateRead) -> None:
        self._stirred = True
        self.arriving.restore(event)

    def say_unreadable(self, event: StateUnread) -> None:
        self.failed = True
        self.tell(StateUnreadable(event.why))

    def give_up_copy(self, event: TransferFailed) -> None:
        self.tell(CopyFailed(event.copy, event.why))

    def expire(self, event: TimerFired) -> None:
        if event.name == "ack":
            self.acknowledging.expire()  # It is only said what is known: nothing follows from it here.
            return
        if event.name == "linger":
            self._may_close = True
            self.waking.passed(event.name)
            return
        self._stirred = True
        if event.name == "heartbeat":
            self._beat()
        elif event.name == "install":
            self.arriving.go_on()
        else:
            self.waking.passed(event.name)

    def finish_work(self, event: WorkDone) -> None:
        self._may_begin = self._came_further = True
        cohort = self.housing.born(event.outcome.key)
        if cohort is None:
            self._stirred = True
            self.departing.end_work(event.outcome.key)  # It has gone while an epoch of it ran.
            return
        if event.outcome.asked:
            self.leading.answer(cohort.segment.id, event.outcome)
            cohort.hosted.busy = False
            return
        self._may_close |= cohort.segment.kind == "ingress"  # None does while its partitions are at work.
        if cohort.turns is None or cohort.turns.rotation is None:
            self._finish_epoch(cohort, event.outcome)
        else:
            for outcome in self.spilling.take(cohort, event.outcome):
                self._finish_epoch(cohort, outcome)
        cohort.hosted.busy = cohort.turns is not None and cohort.turns.rotation is not None

    def _finish_epoch(self, cohort: Cohort, outcome: Outcome) -> None:
        hosted = cohort.hosted
        assert outcome.tick.epoch > hosted.done, f"{self}: epoch {outcome.tick.epoch} of {cohort.key} comes after {hosted.done}"
        hosted.done, hosted.watermark, hosted.due_us = outcome.tick.epoch, outcome.tick.watermark, outcome.due_us
        hosted.lost = outcome.tick.lost
        for log in cohort.logs.values():
            record = log.record(hosted.done)
            if record.keep:
                tell_shed(self.tell, log, record)
            log.emitted(hosted.done, self.leading.safe((log.segment, log.partition)))
        tell_thinned(self.tell, cohort.segment, outcome)
        self._send(cohort, outcome)
        self.releasing.finish(cohort, outcome)
        if outcome.failed or outcome.ended:
            counted = self.view.counted(hosted.segment.id)
            self.counters.rows_failed += sum([partition in counted for partition in outcome.failed])
            self.counters.rows_out += sum([rows for partition, rows in outcome.ended if partition in counted])
        cohort.roll(outcome.digest)
        alone = self.depending.note(cohort, outcome.tick, self.housing.order)
        if cohort.digests.size and not alone and cohort.number == 0 and (hosted.done % DIGEST_EVERY == 0 or outcome.tick.last):
            values = cohort.digests[list(cohort.partitions)].tobytes()
            self.tell(Digests(hosted.segment.id, hosted.done, cohort.partitions, values))

    def fail(self, event: WorkDone) -> None:
        assert event.outcome.error is not None
        self.failed = True
        self.tell(event.outcome.error)

    def give_up_replay(self, error: CannotReplay) -> None:
        """Rows that were in a journalled epoch are not what they were: the part stops and says so."""
        self.failed = True
        box = self.layout.segments[error.key[0]].source or ""
        self.tell(PartFailed(box, error.epoch, str(error), str(error), SourceError.__name__))

    def give_up_promise(self, segment: int, error: BrokenPromise) -> None:
        """A reader has promised what was not true: the part stops and says so."""
        self.failed = True
        box = self.layout.segments[segment].source or ""
        self.tell(PartFailed(box, self.ingress.closed + 1, str(error), str(error), SourceError.__name__))

    def promise(self, event: PlanProposed) -> None:
        self._promised, self._unsaid = event.plan.number, event.plan
        self.ingress.hold_from = event.plan.effective
        self.say_promised()

    def say_promised(self) -> None:
        plan = self._unsaid
        if plan is not None and not self.departing.divides_first(plan):
            self._unsaid = None
            self.tell(Promised(plan.number, self.leading.promise(plan)))

    def refuse(self, event: PlanProposed) -> None:
        self.tell(Refused(event.plan.number, self.epoch_known))

    def adopt(self, event: PlanCommitted) -> None:
        self._stirred = True
        for segment, names in event.plan.newcomers:
            if names != self.view.plan.came(segment):
                self.act(Meet(segment, names))
        done = [self.finished, *(cohort.hosted.done for cohort in self.cohorts.values())]  # Sources may be behind what was read as empty.
        self.view.adopt(event.plan, self.view.passed(min(done), self.stable))
        self.ingress.hold_from = self.leading.promised = None
        voids = [copy for copy in event.plan.copies if copy.void]
        self.ingress.want(event.plan.effective, insist=bool(voids))
        if event.plan.settings.ends and isinstance(self.ingress, ContentIngress):
            self.ingress.end_by(event.plan.settings.ends)
        self._settle_in()
        if voids:
            self.losing.begin(event.plan, self.cohorts)
        for copy in voids:
            self._may_begin = self.losing.void(copy, self.housing.order, self.feeding) or self._may_begin
        self._hear_held()

    def abandon(self, event: PlanAborted) -> None:
        self._stirred = True
        if event.number == self._promised:
            self.ingress.hold_from = self._unsaid = self.leading.promised = None

    def ignore(self, event: Event) -> None:
        """The rule's row says why."""

    def _hear_held(self) -> None:
        """What waited for a plan or a membership may be understood now."""
        held, self.held = self.held, {}
        for events in held.values():
            for section in events:
                if self.view.is_dead(section.peer):
                    continue
                (self.hear if guards.understood(self, section) else self.hold_section)(section)

    def commit_sink(self, event: SinkCommitted) -> None:
        self._stirred = True
        self.releasing.commit(event.segment, event.epoch)

    def give_way(self, event: SinkTook) -> None:
        self._stirred = True
        self.releasing.take(event.segment, event.epoch)

    def open_ends(self, event: Durable) -> None:
        self._stirred = True
        self.durable = event.epoch
        self.leading.forget_cuts(event.epoch)
        self.releasing.open()

    def tell_journal(self, event: TimerFired) -> None:
        self._stirred = True
        self.journalling.expire()

    def hear_disk(self, event: Answer | StateMemoryChanged) -> None:
        self._stirred = True
        self.spilling.hear(event)
        self.arriving.disk_answered()

    # ------------------------------------------------------------ checkpoints

    def begin_checkpoint(self, event: Checkpoint) -> None:
        self._stirred = True
        self.capturing.begin(event)
        self.captures_at = event.epoch
        self.ingress.want(event.epoch)

    def refuse_checkpoint(self, event: Checkpoint) -> None:
        why = self.capturing.obstacle(event)
        assert why is not None
        self.capturing.give_up(why)

    # ------------------------------------------------------------ exchange

    def _send(self, cohort: Cohort, outcome: Outcome) -> None:
        """Keep an epoch's frames (A1), and hand them to those who have asked for them, here or at a peer."""
        tick, segment = outcome.tick, cohort.hosted.segment
        plan = self.view.terms(segment.id, tick.epoch).plan
        if segment.kind == "ingress" and self.leading.forgets(segment.id):
            self.leading.bear_witness(cohort.logs.values(), tick.epoch, self.feeding.fed())
        for output, stream in enumerate(segment.outputs):
            kept = Kept.of(tick, plan, outcome.opened, outcome.made(output))
            if self.losing.counting:
                self.losing.made(cohort, stream, kept)
            if cohort.number == 0:
                self.feeding.produced(stream, cohort.retained[stream], kept)
            else:
                cohort.retained[stream].keep(kept)

    def _take_marks(self, marks: Sequence[Mark]) -> None:
        closed = 0
        for mark in marks:
            if mark.stream != CLOSES and self.feeding.mark(mark):
                self._may_begin = True
            if mark.epoch > closed and (mark.stream == CLOSES or mark.stream in self._ingress_streams):
                closed = mark.epoch
        if closed and self.ingress.demand(closed, self.now_us):
            self._may_close = True

    def _beat(self) -> None:
        """Idle for long: an empty epoch moves time on (E5)."""
        if self.completed:
            return
        idle_us = self.now_us - self.ingress.last_close_us
        if idle_us >= self.options.heartbeat_ms * 1000:
            if not all(queue.announced for queue in self.ingress.queues.values()):
                self.ingress.want(self.ingress.closed + 1)
            idle_us = 0
        self.set_timer("heartbeat", max(self.options.heartbeat_ms - idle_us / 1000, 1.0))
