"""One dataflow's part on one site: the machine that closes epochs, exchanges frames and processes them in order.

Sans-IO: `handle` takes an event and the time at which it was seen, and returns what the world should do; `flush` collects what is to be
said to each peer, once per loop tick. This file knows no clock, socket, thread or Spark. Its two halves:

- the rules (RULES): what each event changes, one row per event and guard, named as in the protocol;
- `_settle`: what follows from the state, in a fixed order, until nothing follows any more: close epochs, process complete ones, finish.

Nothing inside ever waits for room: only the ingress does, by not closing the next epoch (A5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from evenflow.errors import ProtocolError
from evenflow.exchange.credit import Credit
from evenflow.exchange.inbox import Inbox
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.retention import Retention
from evenflow.exchange.rules import Rule, RuleTable, Story, always
from evenflow.exchange.section import CLOSES, Ack, Bundle, Mark, Resume, Section, close_mark
from evenflow.query.plan import Layout, Plan
from evenflow.site import guards
from evenflow.site.events import (
    Action,
    BatchDone,
    DrainRequested,
    Event,
    Fact,
    Heard,
    LinkUp,
    PartFinished,
    PlanAborted,
    PlanCommitted,
    PlanMissing,
    PlanProposed,
    Promised,
    Refused,
    Release,
    RowsArrived,
    Run,
    Say,
    SetTimer,
    SinkCommitted,
    SourceEnded,
    Started,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.hosted import Hosted, Outcome, Work
from evenflow.site.ingress import Ingress
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import END_OF_STREAM, Tick


@dataclass(slots=True)
class Counters:
    """What a part has done so far."""

    rows_in: int = 0
    rows_out: int = 0
    sections_out: int = 0


class Part:
    """See the module. site: index in the plan. options: see FlowOptions.

    processed: last epoch that every segment here has processed. finished: the same with sinks' commits.
    sources: (segment, partition, source name) of the readers that the world must run here.
    """

    def __init__(self, layout: Layout, plan: Plan, site: int, options: FlowOptions) -> None:
        self.layout, self.site, self.options = layout, site, options
        self.plans: list[Plan] = [plan]
        self.counters = Counters()
        self.story = Story()
        self.now_us = 0
        self.started = self.failed = self.completed = False
        self.processed = self.finished = 0

        hosts = {s.id: plan.hosts(s.id) for s in layout.segments}
        self.hosted: dict[int, Hosted] = {s.id: Hosted.of(s, layout, plan, site) for s in layout.segments if site in hosts[s.id]}
        self.ingress = Ingress([h for h in self.hosted.values() if h.segment.kind == "ingress"], options)
        self._inner = [h for h in self.hosted.values() if h.segment.kind != "ingress"]
        self.sources = [(h.segment.id, p, h.segment.source or "") for h in self.ingress.hosted for p in h.partitions]
        self.inboxes = {a: Inbox(a, hosts[layout.arcs[a].producer]) for h in self._inner for a in h.segment.inputs}
        self.retained = {
            a: Retention(a, [s for s in hosts[layout.arcs[a].consumer] if s != site])
            for h in self.hosted.values()
            for a in h.segment.outputs
        }
        ingress_sites = {s for seg in layout.segments if seg.kind == "ingress" for s in hosts[seg.id]}
        active = {s for sites in hosts.values() for s in sites}
        producers = {s for a in self.inboxes for s in hosts[layout.arcs[a].producer]}
        consumers = {s for h in self.ingress.hosted for a in h.segment.outputs for s in hosts[layout.arcs[a].consumer]}
        self._ingress_streams = {a for s in layout.segments if s.kind == "ingress" for a in s.outputs}
        self._tell_closes_to = tuple(sorted(ingress_sites - consumers - {site})) if self.ingress.hosted else ()
        listeners = sorted((producers | ingress_sites) - {site}) if self.hosted else []
        self.credit = Credit(site, active, listeners, options.window_epochs)

        audience = {s for h in self.hosted.values() for a in h.segment.outputs for s in hosts[layout.arcs[a].consumer]}
        self._only_acks = tuple(s for s in listeners if s not in audience and s not in self._tell_closes_to)

        self._actions: list[Action] = []
        self._outbox = Outbox()
        self._released_bytes: dict[tuple[int, int], int] = {}
        self._held: dict[int, list[Heard]] = {}
        self._asked_plan = self._promised = 0
        self._last_done = 0
        self._stirred = True
        self._ack_timer_set = False
        self._linger_timer_us: int | None = None

    def __repr__(self) -> str:
        return f"part {self.layout.name!r} at site {self.site} (closed {self.closed}, processed {self.processed}, finished {self.finished})"

    # ------------------------------------------------------------ interface of the worlds

    def handle(self, event: Event, now_us: int) -> list[Action]:
        """Take one event, seen at `now_us`. Returns actions in the order in which they must be carried out."""
        self.now_us = max(self.now_us, now_us)
        RULES.apply(self, event, self.story)
        if self._stirred:
            self._stirred = False
            self._settle()
        actions, self._actions = self._actions, []
        return actions

    def flush(self, now_us: int) -> list[Say]:
        """What is to be said to each peer since the last flush, acknowledgements on the same paper (E4)."""
        if not self._outbox:
            return []
        self.counters.sections_out += len(self._outbox)
        said = []
        for peer, section in self._outbox.take():
            if self.credit.must_tell(peer):
                section.ack = self.credit.tell(peer, self._received_from(peer), now_us)
            said.append(Say(peer, section))
        return said

    def room(self, segment: int, partition: int) -> int:
        """Rows that the source partition may deliver now; 0 means wait."""
        queue = self.ingress.queues[segment, partition]
        if queue.ended or not self.started or self.failed:
            return 0
        return queue.room(self.options.epoch_rows)

    def follows(self, section: Section) -> bool:
        """Whether this section will make the ingress here close an epoch: then sources had better be asked first."""
        for mark in section.marks:
            if mark.epoch > self.ingress.closed and (mark.stream in self._ingress_streams or mark.stream == CLOSES):
                return bool(self.ingress.hosted)
        return False

    @property
    def close_due_us(self) -> int | None:
        """When the ingress here wants to close the epoch whose rows it has, or None if it has none."""
        return self.ingress.linger_due_us

    @property
    def closed(self) -> int:
        """Last epoch that the ingress here has closed."""
        return self.ingress.closed

    @property
    def epochs_in_flight(self) -> int:
        return max(0, self.closed - self.finished)

    @property
    def buffered_bytes(self) -> int:
        """Frames that wait here for their epoch, for an acknowledgement or for a sink."""
        waiting = sum(inbox.frame_bytes for inbox in self.inboxes.values())
        kept = sum(kept.frame_bytes for kept in self.retained.values())
        return waiting + kept + sum(self._released_bytes.values())

    def state_bytes(self) -> int:
        return sum(h.state_bytes() for h in self.hosted.values())

    def late_rows(self) -> int:
        return sum(h.late_rows() for h in self.hosted.values())

    def rows_out(self) -> int:
        return self.counters.rows_out + sum(h.rows_discarded() for h in self.hosted.values())

    def hold_source(self, segment: int, partition: int) -> None:
        """This source partition is fed by whole Spark batches in any order: its event time moves at `BatchDone` only."""
        self.hosted[segment].hold(partition)

    # ------------------------------------------------------------ effects of the rules

    def start(self, event: Started) -> None:
        self._stirred = True
        self.started = True
        self.ingress.last_close_us = self.now_us
        if self.ingress.hosted:
            self._set_timer("heartbeat", self.options.heartbeat_ms)

    def take_rows(self, event: RowsArrived) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].put(event.batch, self.now_us)
        self.counters.rows_in += event.batch.num_rows

    def end_batch(self, event: BatchDone) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].end_batch()

    def end_source(self, event: SourceEnded) -> None:
        self._stirred = True
        self.ingress.queues[event.segment, event.partition].ended = True

    def drain(self, event: DrainRequested) -> None:
        self._stirred = True
        for queue in self.ingress.queues.values():
            queue.ended = True

    def hear(self, event: Heard) -> None:
        peer, section = event.peer, event.section
        for resume in section.resumes:
            self._outbox.again(peer, self.retained[resume.stream].replay(peer, resume.start))
        if section.ack is not None:
            self._take_ack(peer, section.ack)
        for bundle in section.bundles:
            self.inboxes[bundle.stream].put(peer, bundle)
        for mark in section.marks:
            self._take_mark(peer, mark)
        if section.marks:
            self.credit.received_more()
            self._schedule_ack()

    def hold_section(self, event: Heard) -> None:
        self._held.setdefault(event.peer, []).append(event)
        newest = max(mark.plan for mark in event.section.marks) if event.section.marks else 0
        if newest > max(self._asked_plan, self.plans[-1].number):
            self._asked_plan = newest
            self._tell(PlanMissing(newest))

    def resume_link(self, event: LinkUp) -> None:
        section = self._outbox[event.peer]
        for stream, inbox in self.inboxes.items():
            if inbox.hears(event.peer):
                section.resumes.append(Resume(stream, inbox.marked(event.peer) + 1))
        self.credit.forget(event.peer)
        if event.peer in self._tell_closes_to and self.closed:
            section.marks.append(close_mark(self.closed, self._plan_at(self.closed).number, self.ingress.stamp))
        self._held.pop(event.peer, None)

    def expire(self, event: TimerFired) -> None:
        self._stirred = True
        if event.name == "ack":
            self._ack_timer_set = False
            self._send_acks(self.now_us - int(self.options.ack_ms * 1000))
        elif event.name == "linger":
            self._linger_timer_us = None
        else:
            self._beat()

    def finish_work(self, event: WorkDone) -> None:
        self._stirred = True
        outcome = event.outcome
        hosted = self.hosted[outcome.segment]
        hosted.busy = False
        hosted.done, hosted.watermark = outcome.tick.epoch, outcome.tick.watermark
        self._last_done = max(self._last_done, hosted.done)
        self._send(hosted, outcome)
        if outcome.released is not None:
            self._release(hosted, outcome)

    def fail(self, event: WorkDone) -> None:
        assert event.outcome.error is not None
        self.failed = True
        self._tell(event.outcome.error)

    def commit_sink(self, event: SinkCommitted) -> None:
        self._stirred = True
        self.hosted[event.segment].committed = event.epoch
        for key in [k for k in self._released_bytes if k[0] == event.segment and k[1] <= event.epoch]:
            del self._released_bytes[key]

    def promise(self, event: PlanProposed) -> None:
        self._promised = event.plan.number
        self.ingress.hold_from = event.plan.effective
        self._tell(Promised(event.plan.number))

    def refuse(self, event: PlanProposed) -> None:
        self._tell(Refused(event.plan.number, self.closed))

    def adopt(self, event: PlanCommitted) -> None:
        self._stirred = True
        if event.plan.placement != self.plans[-1].placement:
            raise ProtocolError("a plan that moves partitions needs the copy protocol, which this version does not have")
        self.plans = [p for p, after in zip(self.plans, [*self.plans[1:], event.plan], strict=True) if after.effective > self.finished]
        self.plans.append(event.plan)
        self.ingress.hold_from = None
        self.ingress.want(event.plan.effective)
        held, self._held = self._held, {}
        for events in held.values():
            for section in events:
                (self.hear if guards.plans_known(self, section) else self.hold_section)(section)

    def abandon(self, event: PlanAborted) -> None:
        self._stirred = True
        if event.number == self._promised:
            self.ingress.hold_from = None

    def ignore(self, event: Event) -> None:
        """The rule's row says why."""

    # ------------------------------------------------------------ what follows from the state

    def _settle(self) -> None:
        if self.failed or not self.started:
            return
        self._close_epochs()
        for hosted in self._inner:
            if not hosted.busy:
                self._process(hosted)
        self._advance()

    def _close_epochs(self) -> None:
        ingress, credit = self.ingress, self.credit
        while ingress.may_close(credit.granted, credit.processed, self.now_us):
            works = ingress.close(self.now_us)
            for peer in self._tell_closes_to:
                self._outbox[peer].marks.append(close_mark(self.closed, self._plan_at(self.closed).number, self.ingress.stamp))
            self._actions.extend(Run(work) for work in works)
        due = ingress.linger_due_us
        if due is not None and due > self.now_us and self._linger_timer_us is None:
            self._linger_timer_us = due
            self._actions.append(SetTimer("linger", due))

    def _process(self, hosted: Hosted) -> None:
        """Process the next epoch of a segment if every input stream has it whole (E2)."""
        epoch = hosted.done + 1
        streams = hosted.segment.inputs
        for stream in streams:
            if self.inboxes[stream].through < epoch:
                return
        taken = [self.inboxes[stream].pop(epoch) for stream in streams]
        stamp, watermark, opened = taken[0].stamp, taken[0].watermark, taken[0].opened
        for other in taken[1:]:
            stamp, watermark, opened = max(stamp, other.stamp), min(watermark, other.watermark), min(opened, other.opened)
        tick = Tick(epoch, stamp, hosted.watermark, max(hosted.watermark, watermark))
        frames = tuple((stream, given.batches) for stream, given in zip(streams, taken, strict=True) if given.batches)
        rows = sum(batch.num_rows for _, batches in frames for batch in batches)
        hosted.busy = True
        self._actions.append(Run(Work(hosted, frames, (), (), frozenset(), tick, opened, rows)))

    def _advance(self) -> None:
        """Bring processed, finished and granted up to date, and say when everything here is over."""
        processed = finished = self._last_done
        for hosted in self._inner or self.ingress.hosted:
            processed = min(processed, hosted.done)
            finished = min(finished, hosted.done if hosted.segment.sink is None else hosted.committed)
        if processed != self.processed or finished != self.finished:
            self.processed, self.finished = processed, finished
            self.credit.advance(processed, finished, room=self.buffered_bytes <= self.options.memory_bytes)
            self._close_epochs()
            for peer in self._only_acks:
                # Nothing else goes there that this could travel with, and an ingress there may be waiting for it.
                self._outbox.begin(peer)
            if self.ingress.overdue(self.now_us):
                # Load is much the same everywhere: when rows wait here, a peer's ingress is waiting too, so it is told at once.
                self._send_acks(self.now_us)
            else:
                self._schedule_ack()
        if not self.completed:
            self._complete_if_over()

    def _complete_if_over(self) -> None:
        for hosted in self.hosted.values():
            if hosted.watermark != END_OF_STREAM:
                return
        if self.finished >= max((h.done for h in self._inner), default=0):
            self.completed = True
            self._tell(PartFinished(self.finished))

    # ------------------------------------------------------------ exchange

    def _send(self, hosted: Hosted, outcome: Outcome) -> None:
        """Hand an epoch's frames to their consumers, here or at a peer, and keep those that go away (A1)."""
        epoch = outcome.tick.epoch
        plan = self._plan_at(epoch).number
        for arc in hosted.segment.outputs:
            mark = Mark(arc, epoch, plan, outcome.tick.watermark, outcome.tick.stamp, outcome.opened)
            kept = self.retained[arc]
            away = []
            for arc_id, site, rows, size in outcome.bundles:
                if arc_id != arc:
                    continue
                bundle = Bundle(arc, epoch, plan, rows, size)
                if site == self.site:
                    self.inboxes[arc].put(site, bundle)
                else:
                    away.append((site, bundle))
                    self._outbox[site].bundles.append(bundle)
            kept.keep(away, mark)
            for site in kept.consumers:
                self._outbox[site].marks.append(mark)
            if arc in self.inboxes:
                self.inboxes[arc].mark(self.site, mark)

    def _release(self, hosted: Hosted, outcome: Outcome) -> None:
        """O1: whole epochs in order. An empty one needs no sink unless it is the last."""
        assert outcome.released is not None and hosted.segment.sink is not None
        epoch, batch, last = outcome.tick.epoch, outcome.released, outcome.tick.last
        waiting = hosted.committed < epoch - 1
        if batch.num_rows == 0 and not last and not waiting:
            hosted.committed = epoch
            return
        self.counters.rows_out += batch.num_rows
        self._released_bytes[hosted.segment.id, epoch] = batch.nbytes
        self._actions.append(Release(hosted.segment.id, hosted.segment.sink, epoch, batch, outcome.opened, last))

    def _take_mark(self, peer: int, mark: Mark) -> None:
        if mark.stream != CLOSES and self.inboxes[mark.stream].mark(peer, mark):
            self._stirred = True
        if (mark.stream == CLOSES or mark.stream in self._ingress_streams) and self.ingress.demand(mark.epoch):
            self._stirred = True

    def _take_ack(self, peer: int, ack: Ack) -> None:
        for stream, kept in self.retained.items():
            kept.acked(peer, ack.received[stream])
        if self.credit.hear(peer, ack):
            self._stirred = True

    def _received_from(self, peer: int) -> tuple[int, ...]:
        return tuple([self.inboxes[a].marked(peer) if a in self.inboxes else 0 for a in range(len(self.layout.arcs))])

    def _schedule_ack(self) -> None:
        """Something that peers should know has changed. It travels with the next message, or alone after `ack_ms`."""
        if not self._ack_timer_set and self.credit.listeners:
            self._ack_timer_set = True
            self._set_timer("ack", self.options.ack_ms)

    def _send_acks(self, before_us: int) -> None:
        """Say it to the peers that were told nothing since `before_us`; for the others look again later: a message may be going there."""
        for peer in self.credit.untold(before_us):
            self._outbox.begin(peer)
        if any(self.credit.must_tell(peer) and peer not in self._outbox for peer in self.credit.listeners):
            self._schedule_ack()

    # ------------------------------------------------------------ small helpers

    def _beat(self) -> None:
        """Idle for long: an empty epoch moves time on (E5)."""
        if self.completed or all(q.announced for q in self.ingress.queues.values()):
            return
        idle_us = self.now_us - self.ingress.last_close_us
        if idle_us >= self.options.heartbeat_ms * 1000:
            self.ingress.want(self.closed + 1)
            idle_us = 0
        self._set_timer("heartbeat", max(self.options.heartbeat_ms - idle_us / 1000, 1.0))

    def _plan_at(self, epoch: int) -> Plan:
        newest = self.plans[-1]
        return newest if newest.effective <= epoch else next(plan for plan in reversed(self.plans) if plan.effective <= epoch)

    def _set_timer(self, name: str, after_ms: float) -> None:
        self._actions.append(SetTimer(name, self.now_us + int(after_ms * 1000)))  # type: ignore[arg-type]

    def _tell(self, fact: Fact) -> None:
        self._actions.append(TellCoordinator(fact))


def _rules() -> Iterable[Rule[Part]]:
    yield Rule("E5", Started, always, Part.start, "every site is reachable, so epochs may open")
    yield Rule("E5", RowsArrived, guards.is_running, Part.take_rows, "rows wait for the next epoch")
    yield Rule(
        "E5", RowsArrived, guards.has_failed, Part.ignore, "the dataflow has failed; the rows were never acknowledged to their source"
    )
    yield Rule("I2", BatchDone, always, Part.end_batch, "a whole Spark batch is here: its event times count")
    yield Rule("E6", SourceEnded, always, Part.end_source, "end of stream is watermark +inf")
    yield Rule("E6", DrainRequested, always, Part.drain, "a drained source has ended")
    yield Rule("A2", Heard, guards.plans_known, Part.hear, "frames, marks, acknowledgements and resumes of a peer")
    yield Rule("V2", Heard, guards.plan_unknown, Part.hold_section, "a frame of a newer plan waits until the plan is here")
    yield Rule("A3", LinkUp, always, Part.resume_link, "what was under way on the old link is asked for again")
    yield Rule("E5", TimerFired, always, Part.expire, "a deadline has passed")
    yield Rule("E2", WorkDone, guards.went_well, Part.finish_work, "an epoch's frames go to their consumers")
    yield Rule("E3", WorkDone, guards.went_wrong, Part.fail, "a box raised: the part stops and says so")
    yield Rule("E3", WorkDone, guards.has_failed, Part.ignore, "the dataflow has failed; results no longer matter")
    yield Rule("O1", SinkCommitted, always, Part.commit_sink, "the sink has stored the epochs")
    yield Rule("V2", PlanProposed, guards.in_time, Part.promise, "no epoch from the effective one on before commit or abort")
    yield Rule("V2", PlanProposed, guards.too_late, Part.refuse, "the epoch is closed already: name it")
    yield Rule("V2", PlanCommitted, guards.new_plan, Part.adopt, "the plan acts from its effective epoch on")
    yield Rule("V2", PlanCommitted, guards.old_plan, Part.ignore, "known already: a plan that was asked for may come twice")
    yield Rule("V2", PlanAborted, always, Part.abandon, "the promise is over")


RULES: Final[RuleTable[Part]] = RuleTable(_rules())
