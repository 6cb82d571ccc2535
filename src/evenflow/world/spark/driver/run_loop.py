"""One run as the driver sees it: the coordinator's machine, and the sinks that live in the driver.

Everything here happens in the coordinator's thread, except where it says otherwise. What people are told of the run is said elsewhere, in
any thread: `RunTold`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, assert_never

import pyarrow as pa

from evenflow.availability.group import Region
from evenflow.availability.silence import COMPARED
from evenflow.coordinator.appending import FENCED
from evenflow.coordinator.clocks import told_behind
from evenflow.coordinator.events import (
    Append,
    Collect,
    CoordinatorEvent,
    Denied,
    Done,
    EndRun,
    EntryRead,
    EpochSeen,
    Happened,
    Kind,
    OpenEnds,
    ReadEntry,
    RepartitionRequested,
    ReplaceRequested,
    RunBroken,
    SiteLost,
    SiteReady,
    SiteSaid,
    Sweep,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.first_copy import FirstCopy, FirstPortions
from evenflow.coordinator.journal import Journal
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.recovery import PATIENCE_MS
from evenflow.coordinator.stored import Stored
from evenflow.errors import EvenflowError, Fenced, OperationRefused, UnreadableMessage
from evenflow.exchange.portion import Portion
from evenflow.plan.layout import FROM_COLUMN, Layout
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.policy.proposal import Parameters
from evenflow.policy.shedding.live import Way
from evenflow.site.events import Checkpoint, StateMemoryChanged
from evenflow.site.facts import CopyLive
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.stream.ids import SiteId
from evenflow.world.spark.driver.appending import Answer, Appender
from evenflow.world.spark.driver.checkpoint_numbers import CheckpointNumbers
from evenflow.world.spark.driver.collecting import Later, collect
from evenflow.world.spark.driver.happenings import Happenings
from evenflow.world.spark.driver.living import Living
from evenflow.world.spark.driver.outlet import EVERY_EPOCH, Finished, Given, Outlet
from evenflow.world.spark.driver.run_numbers import RunNumbers
from evenflow.world.spark.driver.run_told import RunTold
from evenflow.world.spark.driver.taking import Taken
from evenflow.world.spark.net import control
from evenflow.world.spark.net.told_versions import Telling
from evenflow.world.spark.net.wire import decode_release
from evenflow.world.spark.regions.appending import opened
from evenflow.world.spark.regions.beginning import Silenced, silenced
from evenflow.world.spark.regions.silent import Silent

log = logging.getLogger("evenflow")

LAST_WORDS_S: Final = 1.0
"""How long a run that has ended waits for its sites: for their last numbers, and what they are committing."""


class SiteCalls(Later, Protocol):
    """What a run asks of the coordinator."""

    def send(self, site: int, message: control.FromDriver) -> None: ...
    def call_soon(self, call: Callable[[], None]) -> None: ...
    def present(self) -> list[int]: ...
    def host_of(self, site: int) -> str: ...


class RunLoop(RunTold):
    """See the module. over: set when the run has ended; then `error` is final. on_started: called then, in this thread."""

    def __init__(
        self,
        number: int,
        run_id: str,
        layout: Layout,
        plan: Plan,
        membership: Membership,
        program: bytes,
        calls: SiteCalls,
        patience_ms: float = PATIENCE_MS,
        policy: str = "none",
        parameters: Parameters | None = None,
        spares: int = 0,
        beginning: Beginning = FROM_NOTHING,
        taken: Taken | None = None,
        *,
        over: bool = False,
        checkpoint_s: float | None = None,
        before: RunLoop | None = None,
        lease_s: float | None = None,
        earlier: Sequence[tuple[Happened, float]] = (),
        region: Region | None = None,
        shedding: Way | None = None,
    ) -> None:
        """over: the run has ended before; nothing is done any more. checkpoint_s: from one checkpoint to the next. before: the generation
        in this process after which it goes on: its sinks stay open, unless they know each by another run, and its events stand before those
        of this one. lease_s: for how long sites live without the driver, which is said at the location; None: nothing is. earlier: what
        happened before it began, and when. region: the group that it is one of; then what rows an epoch has is no decision of this driver.
        shedding: how it is planned what is left out of arcs."""
        self.region = region
        self.number, self.run_id, self.layout = number, run_id, layout
        self.beginning, self.located, self.sinks_run = beginning, taken is not None, taken.standing.sinks_run if taken else run_id
        journal = None if taken is None else Journal.of(taken.standing)
        self.machine = RunMachine(
            layout, plan, membership, patience_ms, policy=policy, parameters=parameters, spares=spares, beginning=beginning,
            journal=journal, checkpoint_ms=None if checkpoint_s is None else 1000 * checkpoint_s, shedding=shedding,
        )  # fmt: skip
        if before is not None:
            self.machine.remember(before.machine)
        self._program, self._telling = program, Telling()
        self.over, self.started = threading.Event(), threading.Event()
        self.error: EvenflowError | None = None
        self.survives: Callable[[EvenflowError], bool] = lambda error: False
        self.on_started: list[Callable[[], None]] = []
        self._on_over, self._ends = list[Callable[[], None]](), threading.Lock()
        self._calls: SiteCalls = calls
        self._schemas: dict[int, pa.Schema] = {}
        self._pushed: dict[str, control.Pushed] = {}
        self._began_s: float = time.monotonic() if before is None else before._began_s
        self._ended_s: float | None = None
        self._unended: set[int] = set()
        self._fenced_in_doubt, self._requests = False, 0
        self._answers: dict[int, Done | Denied] = {}
        self._in_user_code: dict[int, tuple[tuple[int, int], ...]] = {}
        self.happenings: Happenings = Happenings(self._began_s, run_id, layout.name) if before is None else before.happenings
        self.happenings.forget_moves()
        for happened, at_s in earlier:
            self.happenings.note(happened, at_s)
        self.numbers = RunNumbers(run_id, self.machine)
        self._first: dict[int, FirstCopy] = {}
        self._first_portions: dict[int, FirstPortions] = {}
        self._stored = Stored()
        self._appender: Appender | None = None
        self.store_url = None if taken is None else taken.location.store.url
        self.checkpoint_numbers = CheckpointNumbers(() if taken is None else taken.standing.checkpoints, every_s=checkpoint_s)
        if taken is not None:
            self._appender = Appender(run_id, taken.location.store, taken.standing.generation, self._journal_says)
        self._living: Living | None = None
        if taken is not None and lease_s is not None:
            standing, replaced = taken.standing, None if taken.standing.precise else self._broken
            self._living = Living(run_id, taken.location.store, standing.generation, standing.nonce, lease_s, replaced=replaced)
        self.outlets: dict[int, Outlet] = {}
        self._lasts = {} if taken is None else taken.standing.lasts
        self._silenced: Silenced | None = None
        try:
            self._open_sinks({} if before is None or before.sinks_run != self.sinks_run else before.outlets, over=over)
        except BaseException:
            self.abandon()
            raise
        if self._living is not None:
            calls.call_soon(self._say_alive)
        if over:
            self._finish()
        elif taken is not None and taken.standing.generation > 1:
            durable, generation = taken.standing.durable, taken.standing.generation
            kind = Kind.RESTARTED if before is None else Kind.RECOVERED_IN_PLACE
            self.record(kind, f"goes on at {taken.location.store.url}: {taken.standing.told}", epoch=durable, generation=generation)
            if (behind := told_behind(taken.standing.stamp, calls.clock.now_us())) is not None:
                self.happenings.note(behind, time.monotonic())
            for why in taken.passed_over:
                self.record(Kind.CHECKPOINT_PASSED_OVER, why)

    def _open_sinks(self, kept: Mapping[int, Outlet], *, over: bool) -> None:
        """kept: those of the generation before."""
        self._silenced = None if over else silenced(self.layout, self.region)
        if self._silenced is not None:
            self._say_silent(self._silenced.silent)
        outlets = {}
        for segment in self.layout.segments:
            if segment.sink is not None and self.layout.sinks[segment.sink].where == "driver" and not over:
                outlet = outlets[segment.id] = self._outlet(segment.id, segment.sink, kept.get(segment.id))
                if segment.id not in kept:
                    self.outlets[segment.id] = outlet  # What is kept is not closed if another one cannot be made.
        self.outlets = outlets

    def _outlet(self, segment: int, name: str, before: Outlet | None) -> Outlet:
        def committed(epoch: int) -> None:  # in the sink's thread
            self._calls.call_soon(lambda: tell(epoch))

        def tell(epoch: int) -> None:
            for host, said in self._stored.note(self.machine.plan, segment, epoch):
                self._deliver(host, said)

        durable = self.machine.durable
        through = EVERY_EPOCH if durable is None else durable
        known = through if self.sinks_run == self.run_id else 0  # It is a run of its own to them, and they have nothing of it.
        if before is None:
            last = self._lasts.get(name, self.beginning.epoch)
            sink = opened(self.layout.sinks[name], name, self.region, last)
            sink = sink if self._silenced is None else self._silenced.withholding(sink, name)
            return Outlet(name, sink, self.sinks_run, self._calls.clock, committed, self._broken, through, last, known)
        before.succeed(committed, self._broken, through)
        return before

    def _had_rows(self, through: int) -> dict[str, int]:
        """By sink in the driver, the last epoch with rows up to this one, which all sinks have."""
        return {str(self.layout.segments[at].sink): outlet.last_with_rows(through) for at, outlet in self.outlets.items()}

    def _say_silent(self, silent: Silent) -> None:
        text = f"reads from epoch {silent.after + 1} on, and is silent until {COMPARED} epochs in a row are as a live region has them"
        self.record(Kind.SILENT, text, epoch=silent.after + 1)
        believed = "is as a live region: what it makes behind epoch {since} goes out"
        silent.on_believed = lambda since: self.record(Kind.BELIEVED, believed.format(since=since), epoch=since)

    def _journal_says(self, answer: Answer) -> None:  # in the journal's thread
        self._calls.call_soon(lambda: self.handle(answer))

    def _broken(self, error: EvenflowError) -> None:  # from any thread
        self._calls.call_soon(lambda: self.handle(RunBroken(error)))

    def _say_alive(self) -> None:
        """Others see that this driver lives, whatever holds its journal up."""
        if self._living is not None and self._appender is not None and self._ended_s is None:
            self._living.beat(self._appender.appends, 0 if self.machine.journal is None else self.machine.journal.last)
            self._calls.call_later(self._living.every_s, self._say_alive)

    # ------------------------------------------------------------ the machine

    def handle(self, event: CoordinatorEvent) -> None:
        """Give the machine an event and carry out what it asks for. An error that is met over it ends this run, and touches no other."""
        if self.over.is_set():
            return
        try:
            self._handle(event)
        except OperationRefused:
            raise
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """The driver has met an error over this run, which would wait for ever for what was to be done: it ends, as by one at a site."""
        log.error("run %s ends by an error of the driver", self.run_id, exc_info=error)
        broken = error if isinstance(error, EvenflowError) else control.error_from(control.broken(self.number, error), "the driver")
        if self._ended_s is None:
            try:
                self._handle(RunBroken(broken))
            except Exception:
                log.exception("its machine cannot end run %s", self.run_id)
        if self._ended_s is None:
            self._end(broken)

    def _handle(self, event: CoordinatorEvent) -> None:
        if isinstance(event, SiteSaid) and isinstance(event.fact, CopyLive):
            self.happenings.is_live(event.fact.number, time.monotonic())
        for action in self.machine.handle(event):
            match action:
                case Tell():
                    if isinstance(action.message, Checkpoint):
                        self.checkpoint_numbers.ordered(action.message.number)
                    for message in (action.message, *self._stored.behind(action.site, action.message)):
                        self._deliver(action.site, message)
                case Happened():
                    whole = action.kind is Kind.CHECKPOINT_COMPLETED
                    self.happenings.note(action, time.monotonic(), self.checkpoint_numbers.completed() if whole else {})
                case Collect():
                    collect(self.machine, self.numbers, self._calls, action.for_us, self.handle)
                case Wake():
                    self._calls.call_later(action.after_ms / 1000, partial(self.handle, Waited(action.pause)))
                case Append(entry):
                    assert self._appender is not None, "a run without a location journals nothing"
                    self._appender.ask(Append(self.checkpoint_numbers.stamped(entry, self._had_rows)))
                case ReadEntry():
                    assert self._appender is not None, "a run without a location journals nothing"
                    self._appender.ask(action)
                case OpenEnds(epoch):
                    for outlet in self.outlets.values():
                        outlet.open(epoch)
                case Sweep():
                    assert self._appender is not None, "a run without a location has no checkpoints"
                    retained = tuple(self.checkpoint_numbers.retained(action.retained))
                    self._appender.sweep(replace(action, retained=retained))
                case Done() | Denied():
                    self._answers[action.request] = action
                case EndRun():
                    self._end(action.error)
                case _:
                    assert_never(action)
        if isinstance(event, SiteReady) and self.machine.running and not self.started.is_set():
            self.started.set()
            for call in self.on_started:
                call()

    def request(self, make: Callable[[int], CoordinatorEvent]) -> int:
        """Ask the machine for something. make: given the request's number, the event that does. Returns that number."""
        self._requests += 1
        event = make(self._requests)
        if self.region is not None and isinstance(event, RepartitionRequested | ReplaceRequested):
            raise OperationRefused(
                f"run {self.run_id} is a region of a group: its partitions and its program are those of all regions; stop it in all of "
                "them and start the new one as another group"
            )
        self.handle(event)
        return self._requests

    def ask_soon(self, event: CoordinatorEvent) -> None:
        """Give the machine an event. From any thread."""
        self._calls.call_soon(lambda: self.handle(event))

    def answer(self, request: int) -> Done | Denied | None:
        """To a request, once; None while there is none."""
        return self._answers.pop(request, None)

    def _deliver(self, site: int, event: control.Delivered) -> None:
        if not self.machine.over:
            self._calls.send(site, control.Deliver(self.number, self._telling.thin(site, event)))

    def set_state_memory(self, state_bytes: int | None, sites: Sequence[int]) -> None:
        """These sites may hold so much state in memory from now on."""
        for site in sites:
            self._deliver(site, StateMemoryChanged(state_bytes))

    def begin(self, site: int) -> None:
        """Let a site build its part: one of the first, or a newcomer."""
        self.numbers.expect(site)
        self._telling.began(site, self.machine.plan)
        try:
            self._calls.send(site, self._start_part())
            for pushed in self._pushed.values():
                self._calls.send(site, pushed)
        except Exception as error:
            self._break(error)

    def _start_part(self) -> control.StartPart:
        machine = self.machine
        return control.StartPart(
            self.number, self.run_id, self._program, machine.plan, machine.membership, self.beginning,
            journalled=machine.durable is not None, store=self.store_url,
        )  # fmt: skip

    def pushed(self, message: control.Pushed) -> None:
        """Spark has pushed a batch, or all there are. Every site hears it, those to come too: any may lead an ingress partition later."""
        self._pushed[message.source] = message
        for site in self._calls.present():
            self._calls.send(site, message)

    def note_user_code(self, site: int, works: tuple[tuple[int, int], ...]) -> None:
        """(segment, epoch) of the user code that the site runs from now on: its last words, if it ends there."""
        self._in_user_code[site] = works

    def lose(self, lost: SiteLost) -> None:
        """The site is dead, or has left as planned."""
        self.part_ended(lost.site)
        self.handle(replace(lost, doing=self._in_user_code.pop(lost.site, ())))

    def _end(self, error: EvenflowError | None) -> None:
        """Tell all sites that have a part to forget it, a newcomer that has not joined too, and wait a little for their last numbers."""
        self.error = error
        self._ended_s = time.monotonic()
        self._unended = self._telling.sites.union(self.machine.sites).intersection(self._calls.present())
        self._calls.call_later(LAST_WORDS_S, self._finish)
        for site in sorted(self._unended):
            self._calls.send(site, control.EndPart(self.number))
        if error is None or not self.survives(error):
            self.close_sinks()
        self._close_journal(error)
        self._finish_if_said()

    def abandon(self, error: EvenflowError | None = None) -> None:
        """It is over, and no site is told: it has not been begun, or there is no coordinator any more. By whoever has it; what others say
        of it then is ignored. error: why, if it has not ended before."""
        if self._ended_s is None:
            self.error, self._ended_s = error, time.monotonic()
        self.close_sinks()
        if self._living is not None:
            self._living.close()
        if self._appender is not None:
            self._appender.close()
        self._finish()

    def close_sinks(self) -> None:
        """Nothing more is given to them. May be called again."""
        for outlet in self.outlets.values():
            outlet.close(ended=self.error is None and self.machine.exhausted)

    def _close_journal(self, error: EvenflowError | None) -> None:
        """A driver that lost its sites may have been replaced meanwhile: that is what a person should hear then."""
        journal = self.machine.journal
        if self._living is not None:
            self._living.close()
        if self._appender is None or journal is None:
            return
        if error is None or isinstance(error, Fenced):
            self._appender.close()
            return

        def heard(answer: Answer) -> None:
            self._fenced_in_doubt = False
            if isinstance(answer, EntryRead) and answer.entry is not None and not journal.is_own(answer.entry):
                self.error = Fenced(f"{FENCED.format(generation=answer.entry.generation, own=journal.generation)}: {error}")
            self._finish_if_said()

        self._fenced_in_doubt = True
        self._appender.close(journal.last + 1, lambda answer: self._calls.call_soon(lambda: heard(answer)))

    def part_ended(self, site: int) -> None:
        """A site has forgotten the run, or is lost."""
        if site in self._unended:
            self._unended.discard(site)
            self._finish_if_said()

    def _finish_if_said(self) -> None:
        if self._ended_s is not None and not self._unended and not self._fenced_in_doubt:
            self._finish()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call when the run is over, in this thread; at once, in the caller's, if it is: a sink may end it before anybody watches."""
        with self._ends:
            if not self.over.is_set():
                self._on_over.append(call)
                return
        call()

    def _finish(self) -> None:
        with self._ends:
            if self.over.is_set():
                return
            self.over.set()
        self.started.set()
        self._program, self.beginning = b"", FROM_NOTHING  # Nobody begins it any more, and whoever started the run keeps this.
        for call in self._on_over:
            call()

    # ------------------------------------------------------------ what sites say

    def hear(self, site: int, message: control.OfRun) -> None:
        match message:
            case control.InUserCode():
                self.note_user_code(site, message.works)
            case control.PartReady():
                self.handle(SiteReady(SiteId(site), self._calls.host_of(site)))
            case control.PartBroken():
                self.handle(RunBroken(control.error_from(message, f"site {site}")))
            case control.Said():
                self.handle(SiteSaid(SiteId(site), message.fact))
            case control.PartEnded():
                self.part_ended(site)
            case control.SinkOpened():
                if not self.layout.segments[message.segment].unordered or FROM_COLUMN in message.schema.names:
                    self._schemas[message.segment] = message.schema
            case _:
                assert_never(message)

    def release(self, body: bytes | memoryview) -> None:
        """A site has finished an epoch. Raises UnreadableMessage if this is no message of one."""
        try:
            self._release(body)
        except UnreadableMessage:
            raise
        except Exception as error:
            self._break(error)

    def _release(self, body: bytes | memoryview) -> None:
        _, segment, epoch, opened, _, portion, rows = decode_release(body)
        if portion is not None:
            fresh = self._first_portions.setdefault(segment, FirstPortions()).accept(portion.stream, portion.producers, epoch)
            if fresh:
                self.outlets[segment].put(Finished(epoch, opened, rows, self._schemas[segment], portion, Portion(portion.stream, fresh)))
            return
        if not self._first.setdefault(segment, FirstCopy()).accept(epoch):
            return  # Another replica was faster (O1).
        whole = self.layout.segments[segment].unordered
        self.outlets[segment].put(Given(epoch) if whole else Finished(epoch, opened, rows, self._schemas[segment]))

    def note(self, site: int, report: control.Report) -> None:
        """Numbers of a site."""
        part = report.parts.get(self.number)
        if part is not None and self.numbers.note(site, report, part, time.monotonic()) and not self.machine.over:
            self.handle(EpochSeen(part.closed))
