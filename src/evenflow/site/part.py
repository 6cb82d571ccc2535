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

import pyarrow as pa

from evenflow.errors import ProtocolError
from evenflow.exchange.inbox import Inbox
from evenflow.exchange.retention import Retention
from evenflow.exchange.rules import Rule, RuleTable, Story, always
from evenflow.exchange.section import Ack, Bundle, Mark, Resume, Section
from evenflow.query.plan import Layout, Plan
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
from evenflow.site.ingress import IngressQueue
from evenflow.site.options import FlowOptions
from evenflow.stream.epoch import END_OF_STREAM, Tick

CLOSES: Final = 65_535
"""Stream number of a mark that only says which epoch its sender's ingress has closed, for ingress peers that consume nothing of it."""


@dataclass(slots=True)
class Counters:
    """What a part has done so far. late_rows: rows that came after the watermark and were not used."""

    rows_in: int = 0
    rows_out: int = 0
    sections_out: int = 0
    sections_in: int = 0


class Part:
    """See the module. site: index in the plan. options: see FlowOptions.

    closed: last epoch that the ingress here has closed. processed: last epoch that every segment here has processed.
    finished: the same with sinks' commits. sources: (segment, partition, source name) of the readers that the world must run here.
    """

    def __init__(self, layout: Layout, plan: Plan, site: int, options: FlowOptions) -> None:
        self.layout, self.site, self.options = layout, site, options
        self.plans: list[Plan] = [plan]
        self.counters = Counters()
        self.story = Story()
        self.now_us = 0
        self.started = False
        self.closed = 0
        self.processed = 0
        self.finished = 0
        self.failed = False
        self.completed = False

        hosts = {s.id: plan.hosts(s.id) for s in layout.segments}
        self.hosted: dict[int, Hosted] = {
            s.id: Hosted.of(s, layout, plan, site) for s in layout.segments if site in hosts[s.id]
        }
        self._ingress = [h for h in self.hosted.values() if h.segment.kind == "ingress"]
        self._inner = [h for h in self.hosted.values() if h.segment.kind != "ingress"]
        self._queues = {(h.segment.id, p): IngressQueue(p) for h in self._ingress for p in h.partitions}
        self.sources: list[tuple[int, int, str]] = [
            (h.segment.id, p, h.segment.source or "") for h in self._ingress for p in h.partitions
        ]
        self.inboxes = {a: Inbox(a, hosts[layout.arcs[a].producer]) for h in self._inner for a in h.segment.inputs}
        self.retained = {
            a: Retention(a, [s for s in hosts[layout.arcs[a].consumer] if s != site])
            for h in self.hosted.values()
            for a in h.segment.outputs
        }
        ingress_sites = {s for seg in layout.segments if seg.kind == "ingress" for s in hosts[seg.id]}
        active = {s for sites in hosts.values() for s in sites}
        producers = {s for a in self.inboxes for s in hosts[layout.arcs[a].producer]}
        consumers = {s for h in self._ingress for a in h.segment.outputs for s in hosts[layout.arcs[a].consumer]}
        self.peers = tuple(sorted(active - {site}))
        self._ack_to = tuple(sorted((producers | ingress_sites) - {site}))
        self._tell_closes_to = tuple(sorted(ingress_sites - consumers - {site})) if self._ingress else ()
        self._granted = {s: options.window_epochs for s in active}
        self._processed = dict.fromkeys(active, 0)

        self._actions: list[Action] = []
        self._outbox: dict[int, Section] = {}
        self._ack: Ack | None = None
        self._ack_told: dict[int, Ack | None] = dict.fromkeys(self._ack_to)
        self._ack_timer_set = False
        self._linger_set = False
        self._demanded = 0
        self._hold_from: int | None = None
        self._last_close_us = 0
        self._last_stamp = 0
        self._draining = False
        self._released_bytes: dict[tuple[int, int], int] = {}
        self._held: dict[int, list[Heard]] = {}
        self._asked_plan = 0

    def __repr__(self) -> str:
        return f"part {self.layout.name!r} at site {self.site} (closed {self.closed}, processed {self.processed}, finished {self.finished})"

    # ------------------------------------------------------------ interface of the worlds

    def handle(self, event: Event, now_us: int) -> list[Action]:
        """Take one event, seen at `now_us`. Returns actions in the order in which they must be carried out."""
        self.now_us = max(self.now_us, now_us)
        RULES.apply(self, event, self.story)
        self._settle()
        actions, self._actions = self._actions, []
        return actions

    def flush(self, now_us: int) -> list[Say]:
        """What is to be said to each peer since the last flush, acknowledgements on the same paper (E4)."""
        if not self._outbox:
            return []
        self.counters.sections_out += len(self._outbox)
        said = []
        for peer, section in self._outbox.items():
            if self._ack is not None and self._ack_told.get(peer, self._ack) is not self._ack:
                section.ack = self._ack_for(peer)
                self._ack_told[peer] = self._ack
            said.append(Say(peer, section))
        self._outbox = {}
        return said

    def room(self, segment: int, partition: int) -> int:
        """Rows that the source partition may deliver now; 0 means wait. Two epochs' worth may wait here, no more."""
        queue = self._queues[segment, partition]
        if queue.ended or not self.started or self.failed:
            return 0
        return max(0, 2 * self.options.epoch_rows - queue.rows)

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
        self.started = True
        self._last_close_us = self.now_us
        if self._ingress:
            self._set_timer("heartbeat", self.options.heartbeat_ms)

    def take_rows(self, event: RowsArrived) -> None:
        self._queues[event.segment, event.partition].put(event.batch, self.now_us)
        self.counters.rows_in += event.batch.num_rows

    def end_batch(self, event: BatchDone) -> None:
        self._queues[event.segment, event.partition].end_batch()

    def end_source(self, event: SourceEnded) -> None:
        self._queues[event.segment, event.partition].ended = True

    def drain(self, event: DrainRequested) -> None:
        self._draining = True
        for queue in self._queues.values():
            queue.ended = True

    def hear(self, event: Heard) -> None:
        self.counters.sections_in += 1
        peer, section = event.peer, event.section
        for resume in section.resumes:
            self._merge_out(peer, self.retained[resume.stream].replay(peer, resume.start))
        if section.ack is not None:
            self._take_ack(peer, section.ack)
        for bundle in section.bundles:
            self.inboxes[bundle.stream].put(peer, bundle)
        for mark in section.marks:
            self._take_mark(peer, mark)
        if section.marks:
            self._update_ack()

    def hold_section(self, event: Heard) -> None:
        self._held.setdefault(event.peer, []).append(event)
        newest = max(mark.plan for mark in event.section.marks) if event.section.marks else 0
        if newest > max(self._asked_plan, self.plans[-1].number):
            self._asked_plan = newest
            self._tell(PlanMissing(newest))

    def resume_link(self, event: LinkUp) -> None:
        section = self._section(event.peer)
        for stream, inbox in self.inboxes.items():
            if event.peer in self._producers(stream):
                section.resumes.append(Resume(stream, inbox.marked(event.peer) + 1))
        if event.peer in self._ack_told:
            self._ack_told[event.peer] = None
        if event.peer in self._tell_closes_to and self.closed:
            section.marks.append(Mark(CLOSES, self.closed, self.plans[-1].number, 0, self._last_stamp, self._last_stamp))
        self._held.pop(event.peer, None)

    def expire(self, event: TimerFired) -> None:
        if event.name == "ack":
            self._ack_timer_set = False
            self._send_acks()
        elif event.name == "linger":
            self._linger_set = False
        else:
            self._beat()

    def finish_work(self, event: WorkDone) -> None:
        outcome = event.outcome
        hosted = self.hosted[outcome.segment]
        hosted.busy = False
        hosted.done, hosted.watermark = outcome.tick.epoch, outcome.tick.watermark
        self._send(hosted, outcome)
        if outcome.released is not None:
            self._release(hosted, outcome)

    def fail(self, event: WorkDone) -> None:
        assert event.outcome.error is not None
        self.failed = True
        self._tell(event.outcome.error)

    def commit_sink(self, event: SinkCommitted) -> None:
        self.hosted[event.segment].committed = event.epoch
        for key in [k for k in self._released_bytes if k[0] == event.segment and k[1] <= event.epoch]:
            del self._released_bytes[key]

    def promise(self, event: PlanProposed) -> None:
        if self._ingress:
            self._hold_from = event.plan.effective
        self._tell(Promised(event.plan.number))

    def refuse(self, event: PlanProposed) -> None:
        self._tell(Refused(event.plan.number, self.closed))

    def adopt(self, event: PlanCommitted) -> None:
        if event.plan.placement != self.plans[-1].placement:
            raise ProtocolError("a plan that moves partitions needs the copy protocol, which this version does not have")
        self.plans.append(event.plan)
        self._hold_from = None
        self._demanded = max(self._demanded, event.plan.effective)
        held, self._held = self._held, {}
        for events in held.values():
            for event_held in events:
                self._actions.extend(self.handle(event_held, self.now_us))

    def abandon(self, event: PlanAborted) -> None:
        self._hold_from = None

    def ignore(self, event: Event) -> None:
        """The rule's row says why."""

    # ------------------------------------------------------------ what follows from the state

    def _settle(self) -> None:
        if self.failed or not self.started:
            return
        while self._can_close():
            self._close()
        for hosted in self._inner:
            self._process(hosted)
        self._advance()

    def _can_close(self) -> bool:
        if not self._ingress or any(h.busy for h in self._ingress):
            return False
        epoch = self.closed + 1
        if self._hold_from is not None and epoch >= self._hold_from:
            return False
        if epoch <= self._demanded:
            return True
        if epoch > min(self._granted.values()):
            return False
        return self._wants_to_close()

    def _wants_to_close(self) -> bool:
        """E5: after `linger_ms` of the first row, or full, or to say that a source has ended; but not while the sites lag behind."""
        queues = self._queues.values()
        since = min((q.since for q in queues if q.since is not None), default=None)
        news = any(q.waiting for q in queues)
        if not news:
            return False
        if self.closed - min(self._processed.values()) >= self.options.pipeline:
            return False
        due = since + int(self.options.linger_ms * 1000) if since is not None else self.now_us
        if self.now_us >= due or any(q.rows >= self.options.epoch_rows for q in queues) or all(q.ended for q in queues):
            return True
        if not self._linger_set:
            self._linger_set = True
            self._actions.append(SetTimer("linger", due))
        return False

    def _close(self) -> None:
        """Close the next epoch: what waits at each ingress partition goes into it (E5), stamped with the monotone wall clock (E6)."""
        self.closed += 1
        self._last_stamp = max(self._last_stamp + 1, self.now_us)
        self._last_close_us = self.now_us
        for peer in self._tell_closes_to:
            mark = Mark(CLOSES, self.closed, self._plan_at(self.closed).number, 0, self._last_stamp, self._last_stamp)
            self._section(peer).marks.append(mark)
        for hosted in self._ingress:
            arrived, done_batches, opened, rows = [], [], self._last_stamp, 0
            for partition in hosted.partitions:
                queue = self._queues[hosted.segment.id, partition]
                if queue.since is not None:
                    opened = min(opened, queue.since)
                batch, batch_done = queue.take(self.options.epoch_rows, self.now_us)
                if batch is not None:
                    arrived.append((partition, batch))
                    rows += batch.num_rows
                if batch_done:
                    done_batches.append(partition)
                queue.announced = queue.over
            ended = frozenset(p for p in hosted.partitions if self._queues[hosted.segment.id, p].over)
            tick = Tick(self.closed, self._last_stamp, hosted.watermark, hosted.watermark)
            hosted.busy = True
            self._actions.append(Run(Work(hosted, (), tuple(arrived), tuple(done_batches), ended, tick, opened, rows)))

    def _process(self, hosted: Hosted) -> None:
        """Process the next epoch of a segment if every input stream has it whole (E2)."""
        epoch = hosted.done + 1
        inputs = hosted.segment.inputs
        if hosted.busy or any(self.inboxes[a].through < epoch for a in inputs):
            return
        taken = [(a, self.inboxes[a].pop(epoch)) for a in inputs]
        tick = Tick(
            epoch,
            max(t.stamp for _, t in taken),
            hosted.watermark,
            max(hosted.watermark, min(t.watermark for _, t in taken)),
        )
        hosted.busy = True
        rows = sum(batch.num_rows for _, t in taken for batch in t.batches)
        frames = tuple((a, t.batches) for a, t in taken)
        self._actions.append(Run(Work(hosted, frames, (), (), frozenset(), tick, min(t.opened for _, t in taken), rows)))

    def _advance(self) -> None:
        """Bring processed, finished and granted up to date, and say when everything here is over."""
        processed = min((h.done for h in self._inner), default=self.closed)
        finished = min([processed, *(h.committed for h in self._inner if h.segment.sink is not None)])
        if not self._inner:
            processed = finished = min((h.done for h in self._ingress), default=0)
        if processed == self.processed and finished == self.finished and self._ack is not None:
            if not self.completed:
                self._complete_if_over()
            return
        self.processed, self.finished = processed, finished
        self._processed[self.site] = processed
        self._update_ack()
        self._complete_if_over()
        while self._can_close():
            self._close()

    def _complete_if_over(self) -> None:
        over = all(h.watermark == END_OF_STREAM for h in self.hosted.values())
        settled = self.finished >= max((h.done for h in self._inner), default=0)
        if over and settled and not self.completed:
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
            for arc_id, site, rows in outcome.bundles:
                if arc_id != arc:
                    continue
                bundle = Bundle(arc, epoch, plan, rows)
                if site == self.site:
                    self.inboxes[arc].put(site, bundle)
                else:
                    away.append((site, bundle))
                    self._section(site).bundles.append(bundle)
            kept.keep(away, mark)
            for site in kept.consumers:
                self._section(site).marks.append(mark)
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
        if mark.stream == CLOSES:
            self._demanded = max(self._demanded, mark.epoch)
            return
        self.inboxes[mark.stream].mark(peer, mark)
        if self.layout.segments[self.layout.arcs[mark.stream].producer].kind == "ingress":
            self._demanded = max(self._demanded, mark.epoch)

    def _take_ack(self, peer: int, ack: Ack) -> None:
        for stream, kept in self.retained.items():
            kept.acked(peer, ack.received[stream])
        self._granted[peer] = max(self._granted[peer], ack.granted)
        self._processed[peer] = max(self._processed[peer], ack.processed)

    def _ack_for(self, peer: int) -> Ack:
        assert self._ack is not None
        received = tuple(self.inboxes[a].marked(peer) if a in self.inboxes else 0 for a in range(len(self.layout.arcs)))
        return Ack(received, self._ack.processed, self._ack.finished, self._ack.granted)

    def _update_ack(self) -> None:
        """Something that peers should know has changed. It travels with the next message, or alone after `ack_ms`, or now if rows wait here:
        load is much the same everywhere, so a peer's ingress will be waiting too."""
        room = self.options.window_epochs if self.buffered_bytes <= self.options.memory_bytes else 1
        granted = max(self.finished + room, self._granted[self.site])
        self._granted[self.site] = granted
        self._ack = Ack((), self.processed, self.finished, granted)
        if any(q.since is not None and self.now_us - q.since > self.options.linger_ms * 1000 for q in self._queues.values()):
            self._send_acks()
        elif not self._ack_timer_set and self._ack_to:
            self._ack_timer_set = True
            self._set_timer("ack", self.options.ack_ms)

    def _send_acks(self) -> None:
        for peer in self._ack_to:
            if self._ack_told[peer] is not self._ack:
                self._section(peer)

    # ------------------------------------------------------------ small helpers

    def _beat(self) -> None:
        """Idle for long: an empty epoch moves time on (E5)."""
        if self.completed or all(q.announced for q in self._queues.values()):
            return
        idle_us = self.now_us - self._last_close_us
        if idle_us >= self.options.heartbeat_ms * 1000 and self.closed == min(self._processed.values()):
            self._demanded = max(self._demanded, self.closed + 1)
            idle_us = 0
        self._set_timer("heartbeat", max(self.options.heartbeat_ms - idle_us / 1000, 1.0))

    def _plan_at(self, epoch: int) -> Plan:
        return next(plan for plan in reversed(self.plans) if plan.effective <= epoch)

    def _producers(self, stream: int) -> tuple[int, ...]:
        return self.plans[-1].hosts(self.layout.arcs[stream].producer)

    def _section(self, peer: int) -> Section:
        section = self._outbox.get(peer)
        if section is None:
            section = self._outbox[peer] = Section()
        return section

    def _merge_out(self, peer: int, replay: Section) -> None:
        section = self._section(peer)
        section.bundles.extend(replay.bundles)
        section.marks.extend(replay.marks)

    def _set_timer(self, name: str, after_ms: float) -> None:
        self._actions.append(SetTimer(name, self.now_us + int(after_ms * 1000)))  # type: ignore[arg-type]

    def _tell(self, fact: Fact) -> None:
        self._actions.append(TellCoordinator(fact))


# ---------------------------------------------------------------- guards


def is_running(part: Part, event: Event) -> bool:
    return not part.failed


def has_failed(part: Part, event: Event) -> bool:
    return part.failed


def in_time(part: Part, event: PlanProposed) -> bool:
    return not part._ingress or part.closed < event.plan.effective


def too_late(part: Part, event: PlanProposed) -> bool:
    return not in_time(part, event)


def plans_known(part: Part, event: Heard) -> bool:
    """Every mark is of a plan that is known here, and nothing of this peer is being held (its order must be kept)."""
    newest = part.plans[-1].number
    return event.peer not in part._held and all(mark.plan <= newest for mark in event.section.marks)


def plan_unknown(part: Part, event: Heard) -> bool:
    return not plans_known(part, event)


def new_plan(part: Part, event: PlanCommitted) -> bool:
    return event.plan.number > part.plans[-1].number


def old_plan(part: Part, event: PlanCommitted) -> bool:
    return not new_plan(part, event)


def went_well(part: Part, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is None


def went_wrong(part: Part, event: WorkDone) -> bool:
    return not part.failed and event.outcome.error is not None


def _rules() -> Iterable[Rule[Part]]:
    yield Rule("E5", Started, always, Part.start, "every site is reachable, so epochs may open")
    yield Rule("E5", RowsArrived, is_running, Part.take_rows, "rows wait for the next epoch")
    yield Rule("E5", RowsArrived, has_failed, Part.ignore, "the dataflow has failed; the rows were never acknowledged to their source")
    yield Rule("I2", BatchDone, always, Part.end_batch, "a whole Spark batch is here: its event times count")
    yield Rule("E6", SourceEnded, always, Part.end_source, "end of stream is watermark +inf")
    yield Rule("E6", DrainRequested, always, Part.drain, "a drained source has ended")
    yield Rule("A2", Heard, plans_known, Part.hear, "frames, marks, acknowledgements and resumes of a peer")
    yield Rule("V2", Heard, plan_unknown, Part.hold_section, "a frame of a newer plan waits until the plan is here")
    yield Rule("A3", LinkUp, always, Part.resume_link, "what was under way on the old link is asked for again")
    yield Rule("E5", TimerFired, always, Part.expire, "a deadline has passed")
    yield Rule("E2", WorkDone, went_well, Part.finish_work, "an epoch's frames go to their consumers")
    yield Rule("E3", WorkDone, went_wrong, Part.fail, "a box raised: the part stops and says so")
    yield Rule("E3", WorkDone, has_failed, Part.ignore, "the dataflow has failed; results no longer matter")
    yield Rule("O1", SinkCommitted, always, Part.commit_sink, "the sink has stored the epochs")
    yield Rule("V2", PlanProposed, in_time, Part.promise, "no epoch from the effective one on before commit or abort")
    yield Rule("V2", PlanProposed, too_late, Part.refuse, "the epoch is closed already: name it")
    yield Rule("V2", PlanCommitted, new_plan, Part.adopt, "the plan acts from its effective epoch on")
    yield Rule("V2", PlanCommitted, old_plan, Part.ignore, "known already: a plan that was asked for may come twice")
    yield Rule("V2", PlanAborted, always, Part.abandon, "the promise is over")


RULES: Final[RuleTable[Part]] = RuleTable(_rules())

__all__ = ["CLOSES", "RULES", "Counters", "Part", "pa"]
