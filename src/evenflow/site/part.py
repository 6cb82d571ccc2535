"""One dataflow's part on one site: the machine that closes epochs, exchanges frames and processes them in order.

Sans-IO: `handle` takes an event and the time at which it was seen, and returns what the world should do; `flush` collects what is to be
said to each peer, once per loop tick. This file knows no clock, socket, thread or Spark. Its two halves:
- the rules (RULES): what each event changes, one row per event and guard, named as in the protocol;
- `_settle`: what follows from the state, in a fixed order, until nothing follows any more: close epochs, process complete ones, finish.

Nothing inside ever waits for room: only the ingress does, by not closing the next epoch (A5). Replicas are no special case. `feeding.py`
knows who feeds whom, `leading.py` who leads, `housing.py` what is copied, `acknowledging.py` what peers hear, `releasing.py` sinks.
"""

from __future__ import annotations

from evenflow.exchange.credit import Credit
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.retention import Kept
from evenflow.exchange.rules import Story
from evenflow.exchange.section import CLOSES, NEVER_US, Mark, Section, close_mark
from evenflow.plan.layout import Layout
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.site import guards
from evenflow.site.acknowledging import Acknowledging
from evenflow.site.cohort import Cohort
from evenflow.site.counting import Counters, Counting
from evenflow.site.entered import Entered
from evenflow.site.events import (
    Action,
    BatchDone,
    CopyFailed,
    Digests,
    DrainRequested,
    Event,
    Fact,
    Heard,
    LinkDown,
    LinkUp,
    MembershipChanged,
    OpenSource,
    PartFinished,
    PlanAborted,
    PlanCommitted,
    PlanMissing,
    PlanProposed,
    Promised,
    Refused,
    RowsArrived,
    Run,
    Say,
    SetTimer,
    SourceEnded,
    Started,
    StateArrived,
    TellCoordinator,
    TimerFired,
    TransferFailed,
    WorkDone,
)
from evenflow.site.feeding import Feeding
from evenflow.site.hosted import Outcome
from evenflow.site.housing import Housing
from evenflow.site.ingress import Ingress
from evenflow.site.leading import Leading
from evenflow.site.options import FlowOptions
from evenflow.site.releasing import Releasing
from evenflow.site.spilling import Spilling
from evenflow.site.view import View
from evenflow.site.waking import Waking
from evenflow.stream.epoch import END_OF_STREAM

DIGEST_EVERY = 64
"""Epochs between two comparisons of replicas."""


class Part:
    """See the module. site: this site's index. options: see FlowOptions.

    processed: last epoch that every live segment here has processed. finished: the same, and sinks have taken it. cohorts: what is
    hosted, by (segment, number). tell_closes_to: peers that learn in no other way which epochs the ingress here closes.
    """

    def __init__(self, layout: Layout, plan: Plan, membership: Membership, site: int, options: FlowOptions) -> None:
        from evenflow.site.rules import RULES

        self._rules = RULES
        self.layout, self.site, self.options = layout, site, options
        self.view = View(layout, plan, membership, site)
        self.counters = Counters()
        self.story = Story()
        self.now_us = 0
        self.started = self.failed = self.completed = False
        self.processed = self.finished = 0
        self.cohorts: dict[tuple[int, int], Cohort] = {}
        self.credit = Credit(site, options.window_epochs)
        self.ingress = Ingress(options)
        self.outbox = Outbox()
        self.leading = Leading(layout, self.view, self.ingress, self.outbox)
        self.feeding = Feeding(layout, self.view, self.outbox, self.cohorts)
        self.acknowledging = Acknowledging(self, self.credit)
        self.releasing = Releasing(self)
        self.counting = Counting(self)
        self.spilling = Spilling(self)
        self.waking = Waking(self)
        self.housing = Housing(layout, self.view, self)
        self.held: dict[int, list[Heard]] = {}
        self.tell_closes_to: tuple[int, ...] = ()

        self._ingress_streams = {a for s in layout.segments if s.kind == "ingress" for a in s.outputs}
        self._actions: list[Action] = []
        self._asked_plan = self._promised = 0
        self._stirred = True
        self.housing.settle_in()

    def __repr__(self) -> str:
        return f"part {self.layout.name!r} at site {self.site} (closed {self.closed}, processed {self.processed}, finished {self.finished})"

    # ------------------------------------------------------------ interface of the worlds

    def handle(self, event: Event, now_us: int) -> list[Action]:
        """Take one event, seen at `now_us`. Returns actions in the order in which they must be carried out."""
        self.now_us = max(self.now_us, now_us)
        self._rules.apply(self, event, self.story)
        if self._stirred:
            self._stirred = False
            self._settle()
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
        queue = self.ingress.queues.get((segment, partition))
        if queue is None or queue.ended or not self.started or self.failed:
            return 0
        return queue.room(self.options.epoch_rows)

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
        return any(record.epoch > closed for record in section.records)

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

    @property
    def buffered_bytes(self) -> int:
        """Frames that wait here for their epoch, for an acknowledgement or for a sink."""
        return sum([cohort.frame_bytes for cohort in self.cohorts.values()]) + self.releasing.frame_bytes

    def state_bytes(self) -> int:
        return sum(cohort.memory_bytes() for cohort in self.cohorts.values())

    def late_rows(self) -> int:
        return sum(c.late_rows() for c in self.cohorts.values() if self.view.counts(c.segment.id, c.partitions))

    def rows_out(self) -> int:
        dropped = sum(c.rows_discarded() for c in self.cohorts.values() if self.view.counts(c.segment.id, c.partitions))
        return self.counters.rows_out + dropped

    # ------------------------------------------------------------ effects of the rules

    def start(self, event: Started) -> None:
        self._stirred = True
        self.started = True
        self.spilling.relief_us = event.relief_us
        self.ingress.last_close_us = self.now_us
        self.housing.start()
        if any(segment.kind == "ingress" for segment in self.layout.segments):
            self.set_timer("heartbeat", self.options.heartbeat_ms)

    def take_rows(self, event: RowsArrived) -> None:
        self._stirred = True
        batch, schema = event.batch, self.layout.segments[event.segment].schema
        if batch.num_columns != len(schema):
            batch = batch.select(schema.names)  # Nobody reads the others.
        self.ingress.queues[event.segment, event.partition].put(batch, self.now_us, event.share)
        self.counters.rows_in += event.batch.num_rows

    def end_batch(self, event: BatchDone) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].end_batch(event.batch)

    def end_source(self, event: SourceEnded) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].ended = True

    def drain(self, event: DrainRequested) -> None:
        self._stirred = True
        self.leading.draining = True
        for queue in self.ingress.queues.values():
            queue.ended = True

    def hear(self, event: Heard) -> None:
        peer, section = event.peer, event.section
        for resume in section.resumes:
            self.feeding.answer(peer, resume)
        if section.ack is not None:
            self._stirred = self.acknowledging.hear(peer, section.ack) or self._stirred
        for bundle in section.bundles:
            self.feeding.put(bundle)
        for mark in section.marks:
            self._take_mark(mark)
        for key in self.leading.confirm(peer, section) if section.settled else ():
            self.housing.give_up(*key)
        if section.records:
            self._stirred = self.leading.hear_records(peer, section.records) or self._stirred
            self._stirred = self.ingress.demand(max([record.epoch for record in section.records])) or self._stirred
        for held in section.held:
            self._stirred = self.leading.hear_held(peer, held) or self._stirred
        for settled in section.settled:
            self._stirred = self.leading.hear_settled(peer, settled) or self._stirred
        if section.marks:
            self.acknowledging.note_received()
        self._stirred = self._stirred or self.housing.joining

    def hold_section(self, event: Heard) -> None:
        self.held.setdefault(event.peer, []).append(event)
        newest = max(mark.plan for mark in event.section.marks) if event.section.marks else 0
        if newest > max(self._asked_plan, self.view.plan.number):
            self._asked_plan = newest
            self.tell(PlanMissing(newest))

    def resume_link(self, event: LinkUp) -> None:
        self._stirred = True
        self.outbox.begin(event.peer)
        self.feeding.link_up(event.peer)
        self.leading.link_up(event.peer)
        self.credit.forget(event.peer)
        if event.peer in self.tell_closes_to:
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
                self.held.pop(site, None)
                self.feeding.link_down(site)
        self.housing.settle_in()
        self._hear_held()

    def install_state(self, event: StateArrived) -> None:
        self._stirred = True
        self.housing.install(event)

    def give_up_copy(self, event: TransferFailed) -> None:
        self.tell(CopyFailed(event.copy, event.why))

    def expire(self, event: TimerFired) -> None:
        self._stirred = True
        if event.name == "ack":
            self.acknowledging.expire()
        elif event.name == "heartbeat":
            self._beat()
        elif event.name == "install":
            self.housing.go_on()
        else:
            self.waking.passed(event.name)

    def finish_work(self, event: WorkDone) -> None:
        self._stirred = True
        cohort = next((c for c in self.cohorts.values() if (c.segment.id, c.born) == event.outcome.key), None)
        if cohort is None:
            self.housing.end_work(event.outcome.key)  # It has gone while an epoch of it ran.
            return
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
        for log in cohort.logs.values():
            log.emitted(hosted.done, self.leading.safe((log.segment, log.partition)))
        self._send(cohort, outcome)
        self.releasing.finish(cohort, outcome)
        self.counters.rows_failed += sum([self.view.counts(hosted.segment.id, (p,)) for p in outcome.failed])
        cohort.roll(outcome.digest)
        if cohort.digests.size and cohort.number == 0 and (hosted.done % DIGEST_EVERY == 0 or outcome.tick.last):
            values = cohort.digests[list(cohort.partitions)].tobytes()
            self.tell(Digests(hosted.segment.id, hosted.done, cohort.partitions, values))

    def fail(self, event: WorkDone) -> None:
        assert event.outcome.error is not None
        self.failed = True
        self.tell(event.outcome.error)

    def promise(self, event: PlanProposed) -> None:
        self._promised = event.plan.number
        self.ingress.hold_from = event.plan.effective
        self.tell(Promised(event.plan.number))

    def refuse(self, event: PlanProposed) -> None:
        self.tell(Refused(event.plan.number, self.ingress.closed))

    def adopt(self, event: PlanCommitted) -> None:
        self._stirred = True
        self.view.adopt(event.plan, self.finished)
        self.ingress.hold_from = None
        self.ingress.want(event.plan.effective)
        self.housing.settle_in()
        self._hear_held()

    def abandon(self, event: PlanAborted) -> None:
        self._stirred = True
        if event.number == self._promised:
            self.ingress.hold_from = None

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

    # ------------------------------------------------------------ what follows from the state

    def _settle(self) -> None:
        if self.failed or not self.started:
            return
        self._close_epochs()
        self.housing.meet()
        self.spilling.relieve()
        self._run_cohorts()
        if self._advance():
            self._run_cohorts()
        self.housing.report_live()
        self.spilling.go_on()

    def _run_cohorts(self) -> None:
        housing = self.housing
        for cohort in housing.order:
            if not cohort.hosted.busy:
                if housing.outgoing:
                    housing.capture(cohort)
                if not (housing.joining or housing.changing or self.ingress.hold_from is not None) or housing.may_run(cohort):
                    if cohort.turns is not None and cohort.turns.groups:
                        self.spilling.begin(cohort)
                    elif (work := cohort.next_work(self.view)) is not None:
                        self.housing.note_begun(cohort)
                        self._actions.append(Run(work))

    def _close_epochs(self) -> bool:
        """Close the next epoch if it is time. True if it was."""
        ingress, credit = self.ingress, self.credit
        if not ingress.queues or any(c.hosted.busy for c in self.housing.order if c.segment.kind == "ingress"):
            return False
        self.waking.demand()
        closed = ingress.may_close(credit.granted, credit.processed, self.now_us)
        if closed:
            self.leading.close(self.now_us)
            for peer in self.tell_closes_to:
                self.say_closed(peer)
        self.waking.wait_for_rows()
        return closed

    def say_closed(self, peer: int) -> None:
        """Tell a peer which epoch the ingress here has closed, unless that is over everywhere: it may have led nothing for a while."""
        epoch = self.ingress.closed
        if epoch <= min(self.finished, self.credit.processed):  # Who leads only is through with what others still wait for.
            return
        plan = self.view.plan_at(max(epoch, self.view.plans[0].effective))  # Older ones are forgotten when this site is through.
        self.outbox[peer].marks.append(close_mark(epoch, plan.number, self.ingress.stamp))

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
            self.credit.advance(processed, finished, room=self.buffered_bytes <= self.options.memory_bytes, due_us=due_us)
            closed = self._close_epochs()
            # Load is much the same everywhere: when rows wait here, a peer's ingress is waiting too, so it is told at once.
            self.acknowledging.tell(at_once=self.ingress.overdue(self.now_us) or self.waking.soon(due_us))
        if live and not self.completed:
            self._complete_if_over()
        return closed

    def _complete_if_over(self) -> None:
        for (_, number), cohort in self.cohorts.items():
            if (number == 0 or self.housing.is_live(cohort)) and cohort.hosted.watermark != END_OF_STREAM:
                return
        if self.finished >= max(cohort.hosted.done for cohort in self.housing.live) and self.releasing.all_stored(self.housing.live):
            self.completed = True
            self.tell(PartFinished(self.finished, self.view.membership.number))

    # ------------------------------------------------------------ exchange

    def _send(self, cohort: Cohort, outcome: Outcome) -> None:
        """Keep an epoch's frames (A1), and hand them to those who have asked for them, here or at a peer."""
        tick = outcome.tick
        plan = self.view.plan_at(tick.epoch).number
        for output, stream in enumerate(cohort.segment.outputs):
            kept = Kept(tick.epoch, plan, tick.mark, tick.stamp, outcome.opened, outcome.made(output))
            if cohort.number == 0:
                self.feeding.produced(stream, cohort.retained[stream], kept)
            else:
                cohort.retained[stream].keep(kept)
        self.acknowledging.note_received()

    def _take_mark(self, mark: Mark) -> None:
        if mark.stream != CLOSES and self.feeding.mark(mark):
            self._stirred = True
        if (mark.stream == CLOSES or mark.stream in self._ingress_streams) and self.ingress.demand(mark.epoch):
            self._stirred = True

    def open_source(self, segment: int, partition: int, rows: int) -> None:
        self._actions.append(OpenSource(segment, partition, rows))

    def stir(self) -> None:
        """Something is new: look what follows from it."""
        self._stirred = True

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def tell(self, fact: Fact) -> None:
        self._actions.append(TellCoordinator(fact))

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

    def set_timer(self, name: str, after_ms: float) -> None:
        self._actions.append(SetTimer(name, self.now_us + int(after_ms * 1000)))  # type: ignore[arg-type]
