"""The user's handle on a running dataflow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenflow.coordinator.events import (
    Denied,
    Done,
    MovesRequested,
    Pin,
    PlanChangeRequested,
    RebalanceRequested,
    RepartitionRequested,
)
from evenflow.coordinator.ledger import shed_table
from evenflow.coordinator.operations import chosen, moves_to, to_repartition
from evenflow.errors import ClusterError, EvenflowError, OperationRefused, QueryError, SinkError, in_a_line
from evenflow.monitor.watching import Watched
from evenflow.plan.layout import Layout
from evenflow.statistics.moves import moves_of
from evenflow.statistics.progress import Progress, TableProgress
from evenflow.statistics.statistics import Statistics
from evenflow.store.opening import open_store
from evenflow.stream.ids import SiteId
from evenflow.world.locations.proving import Say
from evenflow.world.locations.savepoints import check_free
from evenflow.world.spark.cluster.interrupts import heeded
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.in_place import SINKS_S, Generations
from evenflow.world.spark.driver.keeping import AskedFor, Keeping
from evenflow.world.spark.driver.modes import ChosenModes
from evenflow.world.spark.driver.notebook import RunDisplay
from evenflow.world.spark.driver.refreshing import Refresher
from evenflow.world.spark.driver.replaced import Replaceable
from evenflow.world.spark.driver.run_loop import RunLoop

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from evenflow.query.network import Network
    from evenflow.world.locations.versions import Programs
    from evenflow.world.spark.bridge.stream_source import Outlook

WAIT_SLICE_S: Final = 0.2
"""Waits are in slices of this, so that Ctrl-C is noticed at once on every platform."""
ROUNDS: Final = 6
"""Of balancing by hand."""
COLLECT_S: Final = 1.0
"""How long statistics are collected for such a round."""
REPORTED_S: Final = 5.0  # How long a site may take until its first report, before load is balanced without it.


ENDS_S: Final = 5.0
"""How long the end of an engine waits for its runs, and then for their sinks as the end of a run does."""


class Run(RunDisplay, AskedFor, ChosenModes, Replaceable):
    """One run of one dataflow; made by `Engine.start`. May be used from any thread."""

    def __init__(
        self,
        generations: Generations,
        coordinator: DriverLoop,
        planner: Callable[..., Layout],
        network: Network | None = None,
        programs: Programs | None = None,
    ) -> None:
        """programs: what the run was and is, if it has a checkpoint location."""
        self._generations, self._coordinator, self._planner, self._network = generations, coordinator, planner, network
        self._programs = programs
        self._versions = threading.Lock()
        self._refresher: Refresher | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._driven.layout.name!r}, {'active' if self.is_active else 'over'}>"

    @property
    def _driven(self) -> RunLoop:
        """The generation that runs now."""
        return self._generations.newest

    @property
    def _keeping(self) -> Keeping:
        """Of the generation that runs now: what is asked of it ends with it."""
        return Keeping(self._driven, self._coordinator)

    @property
    def id(self) -> str:
        """Names the run in sinks and reports; never used twice. With a checkpoint location it is the location's: a restart goes on with the
        same run."""
        return self._driven.run_id

    @property
    def is_active(self) -> bool:
        """It has not ended yet."""
        return not self._generations.over.is_set()

    @property
    def dataflow(self) -> str:
        """Its name."""
        return self._driven.layout.name

    def exception(self) -> EvenflowError | None:
        """Why the run failed; None while it is active and when it ended as it should, as far as sinks are closed: see
        `await_termination`."""
        return self._driven.failure if self._generations.over.is_set() else None

    @heeded()
    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the run has ended and its sinks are closed: True, or False if it has not within `timeout_s`.

        It ends when its sources have ended and every sink has everything, when it is stopped, or when it fails. Then this raises:
        BoxFailed (with the box, the epoch and the user's traceback), SourceError, SinkError, ClusterError for a lost site, or what else
        went wrong. The sinks of a run that was stopped are waited for 10 s at most; then it is a SinkError that they have not been closed.
        """
        began_s, generations = time.monotonic(), self._generations
        if not generations.wait(timeout_s):
            return False
        closed = generations.settle(None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began_s)))
        failure = self._driven.failure
        if failure is not None:
            raise failure
        if not closed and (sinks := generations.given_up()):
            raise SinkError(f"run {self.id} was stopped, and {sinks} not been closed: what came last may be lost there")
        return closed

    @heeded()
    def stop(self, drain: bool = False, timeout_s: float = 60.0) -> bool:
        """End the run and wait until it has ended. Does nothing if it has. Returns whether it has ended as it was to: False if it has
        failed, or was to be drained and had not finished in time, so that what was under way is dropped.

        drain: take no more input, and finish what has been taken in first; else results under way are dropped, and no sink gets part of
        an epoch. What a site is committing at that moment is waited for, a second at most. With durability "no-loss" what was taken in
        before a loss and has not been read again since is not finished, and nobody goes on with it: drain when the run has caught up.
        Sinks in the driver are waited for until they are closed, for 10 s at most; of a run that is drained, for what is left of
        timeout_s. A warning names those that are not.

        Raises OperationRefused for a region of a group that is to be drained, and goes on: what windows had taken in would be given out as
        if it were all, and the other regions have more.
        """
        if drain and self._driven.region is not None:
            raise OperationRefused(
                f"run {self.id} is a region of a group: drained, it would give out windows with what it has taken in, and the other "
                "regions give out whole ones. Stop it as it is (drain=False): what it has given out is whole, and the others go on"
            )
        return self._stop(drain, timeout_s, willed=True) and self.exception() is None

    def _ask_to_stop(self, drain: bool, *, willed: bool) -> None:
        self._coordinator.call_soon(lambda: self._generations.stop(drain, willed=willed))

    def _stop(self, drain: bool, timeout_s: float, *, willed: bool) -> bool:
        """willed: see `StopRequested`. Returns whether it was over in time."""
        began_s = time.monotonic()
        self._ask_to_stop(drain, willed=willed)
        in_time = self._generations.wait(timeout_s)
        if not in_time and drain:
            self._coordinator.call_soon(lambda: self._generations.stop(drain=False))
            self._generations.wait(timeout_s)
        self._generations.settle(max(SINKS_S, timeout_s - (time.monotonic() - began_s)))
        return in_time

    def progress(self) -> dict[str, Any]:
        """How it goes. Rates are per second; latencies from an epoch's first row to its sink, over the last 10 s (the whole run, once it
        is over).

        Its keys, and those of the objects in it, are the fields of `evenflow.statistics.progress.Progress`, which says what each one is:
        rows, rates, latencies and redundancy of the run; moved_whole, where a hot key can only be moved whole; slow, user code that does
        not return; sites and boxes; tables, those that are refreshed; journal and checkpoint, if there is a checkpoint location, else
        None; behind, how far sources are behind; and outputs, which share of what its sources gave each was delivered, if rows may be left
        out for some; protected, how many deaths would cost nothing now, and lost, what amnesia has cost.
        """
        return self.numbers().to_json()

    def numbers(self) -> Progress:
        """The same, with names and types: see `evenflow.statistics.progress`."""
        return replace(self._driven.progress(self._coordinator.describe_sites(), self._tables()), active=self.is_active)

    def _tables(self) -> tuple[TableProgress, ...]:
        return () if self._refresher is None else self._refresher.describe()

    def watched(self) -> Watched:
        """What those who watch the engine are told of it."""
        active, error = self.is_active, self.exception()
        failure = None if active or error is None else in_a_line(error)
        told = self._driven.watched(self._network)
        account = None if told.account is None else replace(told.account, tables=self._tables())
        return replace(told, active=active, failure=failure, account=account)

    def statistics(self, last_s: float = 10.0) -> Statistics:
        """What the sites did in the last so many seconds (of about 30 that are kept): per site busy time and memory, per hosted partition
        rows and state bytes, per box rows and time. Replicas count each for itself. Raises StatisticsError if `last_s` is not > 0.
        """
        return self._driven.numbers.statistics(last_s)

    def statistics_since(self, seen: int = 0) -> tuple[Statistics, int]:
        """What has been reported after the first `seen` reports of sites, and how many there have been: pass that next time, and at least
        every 30 s, to follow the run without a gap. Sites report four times a second, and once more at the end.
        """
        return self._driven.numbers.statistics_since(seen)

    def shed(self) -> pa.Table:
        """What was left out of its sources so far, by earlier drivers at its checkpoint location, too: see
        `evenflow.coordinator.ledger.shed_table`."""
        machine = self._driven.machine
        told = self._coordinator.ask(machine.ledger.copied) if self.is_active else machine.ledger
        return shed_table(machine.layout, told)

    def events(self) -> list[dict[str, Any]]:
        """What has happened to the run's sites, oldest first: at_s (seconds since its start), kind, site (or -1), text. The newest 10,000
        are kept; `events_since` says how many there have been.

        kind: site_lost, take_over, copy_begun, copy_live, copy_dropped, recovery_waits (what is missing, and why), begun_anew (amnesia;
        also segment, partitions, epoch), rows_lost (also source, rows, epoch, through), site_joined, redundancy (every partition has all
        its replicas), move_begun, move_done, move_dropped, move_refused, site_emptied, site_left, round (the policy has proposed moves),
        repartitioned, repartition_refused, availability (also epoch, modes), replaced (also version, epoch, boxes), table_refreshed (also
        table, rows), newcomer (also source, name), refresh_failed (also table), shedding (also source, epoch, partition), never_shed (also
        sources), shedding_ended (also source, epoch, through, rows, seconds: of what was left out since it began), scaling, scaling_waits
        and overloaded (also sites, wanted), user_code_slow (also box, epoch, seconds, where: the stack), user_code_back, disk_trouble,
        not_backed_up, restarted (also epoch, generation), lost (all replicas of something: the run waits for sites and goes on),
        recovered_in_place (also epoch, generation), failed (why the run has ended; also error, its class, and message, all of its text),
        before its start standby_waits, standby_takes_over (also silent_s, waited_s) and standby_ends (all with location, generation of whom
        it waited for), clock_behind (this driver's clock is behind the journal's times: also behind_s), journal_waits (the location's store
        does not take what it should), journal_back, checkpoint_completed, checkpoint_dropped, checkpoint_passed_over (it cannot be read: an
        older one is gone on from), silent (a region that gives nothing out yet; also epoch, the first that is read) or believed (it does
        now; also epoch, behind which). Events of a move have also number, segment, partitions, source, target, reason and bytes, and the
        last one seconds and stall_ms: see `moves`.
        """
        return self._driven.events()

    def events_since(self, seen: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The `events` behind the first `seen`, and how many there have been: pass that next time to follow the run. Events that are
        missing between `seen` and the first one here have been forgotten. Cost: what is returned."""
        return self._driven.happenings.since(seen)

    def moves(self) -> list[dict[str, Any]]:
        """The moves that `events` still tells of, in the order in which they began: at_s, segment, partitions (how many), source, target,
        reason, state (under way, done, dropped), bytes, seconds, and stall_ms: for how long results of these partitions may have waited, at
        most."""
        return moves_of(self.events())

    def rebalance(self, timeout_s: float = 60.0) -> int:
        """Balance the load now, by the run's policy or the default one: rounds of collecting statistics, deciding and moving, until there
        is nothing to move, at most ROUNDS. A site that is new gets one partition in its first round, and more when it has shown how fast it
        is.

        Returns how many moves there were; `moves` shows them. After timeout_s no round begins. Raises OperationRefused if the run is not
        under way, or no site reports.
        """
        deadline_s = time.monotonic() + timeout_s
        moves = 0
        for _ in range(ROUNDS):
            statistics = self._collect()
            begun = self._coordinator.ask(partial(self._decide, statistics))
            moves += begun
            if not begun or not self._await_moves(deadline_s):
                break
        return moves

    def _collect(self) -> Statistics:
        """What all sites do from now on, for COLLECT_S; whoever has not reported by REPORTED_S is left out."""
        began_s = time.monotonic()
        _, seen = self._driven.numbers.statistics_since(0)
        while True:
            self._generations.over.wait(WAIT_SLICE_S)
            statistics, _ = self._driven.numbers.statistics_since(seen)
            passed_s, reported = time.monotonic() - began_s, {window.site for window in statistics.sites}
            machine = self._driven.machine
            if (
                passed_s >= REPORTED_S
                or machine.over
                or (passed_s >= COLLECT_S and reported >= set(machine.sites) - machine.moving.leaving)
            ):
                return statistics

    def _decide(self, statistics: Statistics) -> int:
        """A round, in the coordinator's thread. Returns how many moves the policy wants."""
        self._check_running()
        if not statistics.sites:
            raise OperationRefused(f"no site has reported what it does in run {self.id}: try again in a while")
        answer = self._driven.answer(self._driven.request(lambda number: RebalanceRequested(statistics, number)))
        return int(answer.details["moves"]) if isinstance(answer, Done) else 0

    def _await_moves(self, deadline_s: float) -> bool:
        """Whether all that is wanted has been moved before the deadline."""
        machine = self._driven.machine
        while self._coordinator.ask(lambda: not machine.over and bool(machine.moving.wanted or machine.under_way())):
            if time.monotonic() >= deadline_s:
                return False
            self._generations.over.wait(WAIT_SLICE_S)
        return time.monotonic() < deadline_s and not machine.over

    def pin(self, box: str, sites: Sequence[int] | None = None, partitions: Iterable[int] | None = None) -> int:
        """Keep the partitions of a box where they are: no policy moves them, and their site cannot be drained. A death moves them as any
        other.

        box: its name, as the query network prints it. sites: bring all their replicas to these sites first. partitions: only these, None:
        all. Returns how many moves begin. Raises OperationRefused, and changes nothing, if there is no such box, partition or site, if
        there are fewer sites than replicas, or if the box is bound to where it is.
        """
        machine = self._driven.machine

        def keep() -> frozenset[tuple[int, int]]:
            self._check_running()
            found = chosen(self._driven.layout, box, partitions)
            if sites is not None:
                moves_to(machine, found, [SiteId(site) for site in sites])  # It is refused now or never.
            self._driven.handle(Pin(found))
            return found

        def gather() -> int:
            moves = () if machine.over or sites is None else moves_to(machine, found, [SiteId(site) for site in sites])
            if moves:
                self._driven.handle(MovesRequested(moves))
            return len(moves)

        found = self._coordinator.ask(keep)
        if sites is None:
            return 0
        while self._coordinator.ask(lambda: not machine.over and machine.moving.takes(found)):
            self._generations.over.wait(WAIT_SLICE_S)  # A policy's move of them is under way: where they are is known when it is over.
        return self._coordinator.ask(gather)

    def unpin(self, box: str, partitions: Iterable[int] | None = None) -> None:
        """Policies may move these partitions again. Raises OperationRefused as `pin` does."""

        def unpin() -> None:
            self._check_running()
            self._driven.handle(Pin(chosen(self._driven.layout, box, partitions), pinned=False))

        self._coordinator.ask(unpin)

    def repartition(self, box: str, partitions: int, timeout_s: float = 300.0) -> int:
        """Divide the state of a keyed box into so many partitions from now on, while everything runs: more of them, which can be spread
        more evenly, or fewer. Returns how many there were.

        The widest ranges of key groups are halved, or the narrowest neighbours joined, one plan for all. Replicas of those that are joined
        move to the same sites first. It comes after what else is under way, and waits while replicas are missing. What a site has of
        them is divided in memory, in one go: the box waits there for as long as that takes. Results stay the same.

        box: its name, as the query network prints it; if it runs in several segments, all that are keyed. timeout_s: after that it is not
        wanted any more. Raises OperationRefused, and changes nothing, if there is no such box, if it is not keyed, if partitions of it are
        pinned, if it can have fewer only (option `max_partitions`), or if partitions do not come together; ClusterError when the time is
        over.
        """
        machine, deadline_s = self._driven.machine, time.monotonic() + timeout_s

        def begin() -> tuple[tuple[int, ...], int, int]:
            self._check_running()
            segments = to_repartition(machine, box, partitions)
            before = max(map(machine.repartitioning.count, segments))
            return segments, before, self._driven.request(lambda number: RepartitionRequested(segments, partitions, number))

        segments, before, request = self._coordinator.ask(begin)
        answer = self._await_answer(request, deadline_s)
        if isinstance(answer, Denied):
            raise OperationRefused(answer.why)
        if answer is None and not machine.over:
            self._coordinator.ask(lambda: self._driven.handle(RepartitionRequested(segments, 0)))
            raise ClusterError(f"box {box!r} was not divided into {partitions} partitions within {timeout_s:g} s, and stays as it is")
        return before

    def _await_answer(self, request: int, deadline_s: float) -> Done | Denied | None:
        """None if the run or the time is over before."""
        driven = self._driven
        while True:
            answer, over = self._coordinator.ask(lambda: (driven.answer(request), driven.machine.over))
            if answer is not None or over or time.monotonic() >= deadline_s:
                return answer
            driven.over.wait(WAIT_SLICE_S)

    def set_state_memory(self, mb: float | None, sites: Sequence[int] | None = None) -> None:
        """Let these sites (None: all that there are now) hold so much state of this run in memory from now on, in MiB, or all of it (None).

        What is more goes to disk soon, by whole partitions; what fits again comes back. Results stay the same. Raises ValueError unless
        `mb` is positive, and OperationRefused if there is no such site or the run is over.
        """
        if mb is not None and mb <= 0:
            raise ValueError(f"state memory must be positive, or None for all that there is, not {mb}")
        state_bytes = None if mb is None else max(1, int(mb * 2**20))

        def change() -> None:
            self._check_running()
            there = self._coordinator.present()
            strangers = sorted(set(sites or ()) - set(there))
            if strangers:
                raise OperationRefused(f"there is no site {strangers[0]}; there are {', '.join(map(str, sorted(there)))}")
            self._driven.set_state_memory(state_bytes, sorted(there if sites is None else sites))

        self._coordinator.ask(change)

    def _check_running(self) -> None:
        if not self._driven.machine.running:
            why = "has ended" if self._driven.machine.over else "has not begun yet: its sites are still being prepared"
            raise OperationRefused(f"run {self.id} {why}")

    def suspend(self, target: str | None = None, timeout_s: float = 120.0, say: Say | None = None) -> dict[str, Any]:
        """Make a last checkpoint, after which no sink is given anything, and end the run; no window is closed for that. Who goes on at the
        location, or from the savepoint in `target`, goes on exactly where the sinks stand.

        Returns the checkpoint's number, generation, epoch and bytes, and savepoint (its folder, or None). The run ends when that is whole,
        and gives nothing out while it is copied. Raises as `savepoint` does, and then, or if Ctrl-C breaks it off, the run goes on.
        """
        if target is not None:
            check_free(open_store(target))
        driven, saved = self._driven, None
        keeping = Keeping(driven, self._coordinator)
        with keeping.last(timeout_s) as made:
            if target is not None:  # Before the run ends, since a program may end with it, and its threads, too.
                saved = keeping.export(f"{made['generation']}.{made['number']}", target, say=say).location
            if self._driven is not driven:
                more = "" if saved is None else f" behind the savepoint in {saved}"
                raise ClusterError(f"run {self.id} has lost its sites while it was suspended, and goes on{more}: suspend it again")
            self.stop()
        return made | {"savepoint": saved}

    def change_plan(self) -> None:
        """Ask for a new plan that places everything as it is (protocol V2). Results do not change."""
        self._coordinator.call_soon(lambda: self._driven.handle(PlanChangeRequested()))

    @property
    def plan_number(self) -> int:
        """Number of the newest committed plan."""
        return self._driven.machine.plan.number

    def read_stream(self, spark: SparkSession, sink: str | None = None) -> DataFrame:
        """The results of a `sinks.spark()` sink as a streaming DataFrame, whose offsets are (run, epoch).

        sink: name of the sink's box; may be left out if there is only one. The query may be started while the run is active; it sees
        every epoch once. The run ends when Spark has committed its last epoch. Raises QueryError if there is no such sink.
        """
        from evenflow.world.spark.bridge.stream_source import read_stream

        return read_stream(spark, self._outlook(sink))

    def _outlook(self, sink: str | None) -> Outlook:
        from evenflow.world.spark.bridge.stream_source import Outlook, present_replicas

        layout = self._driven.layout
        names = [s.sink for s in layout.segments if s.sink is not None and layout.sinks[s.sink].where == "spark"]
        if sink is None and len(names) == 1:
            sink = names[0]
        if sink is None or sink not in names:
            raise QueryError(
                f"dataflow {layout.name!r} has no Spark sink {sink!r}: end a stream with .to(sinks.spark()); it has {names or 'none'}"
            )
        segment = next(s for s in layout.segments if s.sink == sink)
        replicas = tuple(present_replicas(self._driven, sink, self._coordinator.sites))
        return Outlook(self.id, self._driven.number, sink, replicas, self._coordinator.port, self._coordinator.secret, segment.schema)


def end_all(runs: Sequence[Run], *, willed: bool) -> None:
    """The engine ends. Stop those that are active, all at once, and wait for them, and for the sinks of all: a program may end now, and
    their threads with it."""
    for run in runs:
        if run.is_active:
            run._ask_to_stop(drain=False, willed=willed)
    late_s = time.monotonic() + ENDS_S
    for run in runs:
        run._generations.wait(late_s - time.monotonic())
    for run in runs:
        run._generations.settle(late_s + SINKS_S - time.monotonic())
