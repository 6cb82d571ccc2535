"""A segment as one site runs it: its operators, and one epoch of work at a time.

All partitions of the segment that live here are processed in one vectorised pass (the papers' FluxPooler); only partitions that are being
copied here are a cohort of their own until they have come as far as the others. `Work.run` is the only place where operators run; it may
be called on another thread than the machine's, one epoch of a cohort at a time.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import BoxFailed, EvenflowError
from evenflow.exchange.routing import Pieces, Router, Split, gathered, owners
from evenflow.exchange.section import NEVER_US
from evenflow.kernels.digest import add_digests
from evenflow.kernels.hash import Hashes, table_of_ranges
from evenflow.operator.catalogue import build
from evenflow.operator.facts import Facts, together
from evenflow.operator.operator import Failing, Late, Operator, TwoSided
from evenflow.plan.layout import KEY_GROUPS, Arc, Keyed, Layout, Segment
from evenflow.site.asked import as_effects, from_effects
from evenflow.site.event_time import EventTime
from evenflow.site.facts import PartFailed
from evenflow.site.outcome import Effects, Outcome, Results
from evenflow.site.tally import NowNs, Tally, no_clock
from evenflow.state.page_snapshot import State, count_rows
from evenflow.state.snapshot import Snapshot
from evenflow.stream.epoch import NO_WATERMARK, Lost, Tick
from evenflow.stream.rows import Rows


@dataclass(frozen=True, slots=True)
class Work:
    """One epoch of one cohort, ready to run. rows: how many rows it will read.

    cohort, born: 0, or the number of the copy that these partitions come from: as long as they are copied, and ever after. splits: of the
    output arcs under the epoch's plan. stamps: of the records of ingress partitions; the tick's is the greatest of those that happen to
    live here. groups: the partition of each key group from this epoch on, if that changes with it: the state is divided anew first.
    version: (its number, the segment as it runs from this epoch on), if that changes with it. asks: the first step only, for these
    partitions; effects: what it has answered, so it does not run (N1). thinned: ingress partitions of which rows were left out (D2).
    """

    hosted: Hosted
    cohort: int
    splits: tuple[Split, ...]
    inputs: tuple[tuple[int, tuple[pa.RecordBatch, ...]], ...]
    arrived: tuple[tuple[int, pa.RecordBatch], ...]
    done_batches: tuple[int, ...]
    ended: frozenset[int]
    tick: Tick
    opened: int
    rows: int
    stamps: Mapping[int, int] = field(default_factory=dict)
    groups: npt.NDArray[np.int32] | None = None
    version: tuple[int, Segment] | None = None
    born: int = 0
    asks: tuple[int, ...] = ()
    effects: Effects | None = None
    thinned: tuple[int, ...] = ()

    @property
    def calls(self) -> bool:
        """The user's code is called."""
        if self.effects is not None:
            return any(step.user_code for step in self.hosted.segment.steps[1:]) and not self.idle
        return self.hosted.user_code and not self.idle and not (self.asks and not self.rows)

    @property
    def beside(self) -> bool:
        """It may take long: the user's code is called, or the state is divided anew or handed over."""
        return self.calls or self.groups is not None or self.version is not None

    @property
    def idle(self) -> bool:
        """No rows came, nothing changes with this epoch, and no operator has to be asked what comes of it."""
        if self.rows or self.asks or self.groups is not None or self.version is not None:
            return False
        rest = self.hosted.rest
        return rest is not None and rest.splits is self.splits and rest.partitions is self.hosted.partitions

    @property
    def segment(self) -> int:
        return self.hosted.segment.id

    def run(self, now_ns: NowNs = no_clock) -> Outcome:
        """Process the epoch, and count what was done. A failing box is an outcome; raises KeyboardInterrupt only, which may be the user's
        own. now_ns: the world's clock."""
        return self.hosted.run(self, now_ns)

    def failed(self, error: BaseException) -> Outcome:
        """What comes of it if it ends by an error that `run` lets through."""
        return Outcome((self.segment, self.born), self.tick, self.opened, error=self.hosted._failure(error, self.tick.epoch))


@dataclass(frozen=True, slots=True)
class Rest:
    """What comes of an epoch without rows, of operators in which such an epoch changes nothing (`Timeless`): always the same, for these
    splits and partitions. released, digest: as in Outcome; the digest is all zeros."""

    splits: tuple[Split, ...]
    partitions: tuple[int, ...]
    pieces: tuple[Pieces, ...]
    released: pa.RecordBatch | None
    digest: Hashes | None

    def outcome(self, work: Work, tick: Tick) -> Outcome:
        return Outcome((work.hosted.segment.id, work.born), tick, work.opened, self.pieces, self.released, digest=self.digest)


@dataclass(slots=True)
class Hosted:
    """Partitions of one segment at one site that have come equally far: a cohort.

    done: last epoch processed; watermark: at its end; lost: as in Tick, at its end; busy: an epoch of it is being processed. groups: int32
    (G,), the partition of each key group in the epoch after `done`. nothing: the input of an empty epoch, made once, of both sides for a
    join.
    version: number of the one that the boxes are of. due_us: the least stamp at which a timer comes, of the outcome of `done`.
    checked: what comes out is digested, so that replicas can be compared (E3). tally: where what is done is counted.
    rest: what came of the last epoch without rows, if the next one like it need not ask the operators again.
    """

    segment: Segment
    partitions: tuple[int, ...]
    operators: list[Operator | TwoSided]
    routers: list[Router]
    arcs: tuple[Arc, ...]
    groups: npt.NDArray[np.int32]
    user_code: bool
    nothing: tuple[Rows, ...]
    checked: bool
    tally: Tally
    done: int = 0
    watermark: int = NO_WATERMARK
    due_us: int = NEVER_US
    lost: tuple[Lost, ...] = ()
    busy: bool = False
    version: int = 0
    _current_box: str = ""
    rest: Rest | None = None
    facts: Facts = field(init=False)
    _event_time: EventTime = field(init=False)

    def __post_init__(self) -> None:
        self.facts, self._event_time = Facts.of(self.operators), EventTime.of(self.operators)

    @staticmethod
    def of(
        segment: Segment,
        layout: Layout,
        partitions: tuple[int, ...],
        *,
        checked: bool = False,
        tally: Tally | None = None,
        groups: npt.NDArray[np.int32] | None = None,
        version: int = 0,
    ) -> Hosted:
        """Build the operators. Kernels and expressions are ready afterwards. tally: one of its own, if none is given. groups: as at the
        start, if none are given."""
        operators = [build(step) for step in segment.steps]
        hosted = Hosted(
            segment=segment,
            partitions=partitions,
            operators=operators,
            routers=[Router.of(layout.arcs[a], layout) for a in segment.outputs],
            arcs=tuple(layout.arcs[a] for a in segment.inputs),
            groups=table_of_ranges(segment.in_use or segment.partitions, KEY_GROUPS) if groups is None else groups,
            user_code=segment.user_code,
            nothing=_nothing(segment, layout),
            checked=checked,
            tally=Tally.of(segment) if tally is None else tally,
            version=version,
        )
        if segment.source is not None and getattr(layout.sources[segment.source], "batched", False):
            hosted._event_time.hold(partitions)
        return hosted

    @property
    def box(self) -> str:
        """The box that runs, or ran last. From any thread."""
        return self._current_box

    # -- state

    def capture(self, partitions: tuple[int, ...], *, without: Collection[int] = ()) -> list[tuple[int, int, Snapshot]]:
        """(partition, step, state) of these partitions as of now, where there is state. Copies nothing; not while an epoch runs. without:
        steps that are not wanted."""
        found = []
        for step, operator in enumerate(self.operators):
            for partition in () if step in without else partitions:
                snapshot = operator.capture(partition)
                if snapshot is not None:
                    found.append((partition, step, snapshot))
        return found

    def install(self, state: Mapping[tuple[int, int], State]) -> None:
        """Take over captured partitions. state: by (partition, step)."""
        for _ in self.installing(state):
            pass

    def installing(self, state: Mapping[tuple[int, int], State]) -> Iterator[int]:
        """`install` in pieces, bounded where the state is a table's: about how many bytes each took."""
        self._make_room(state)
        for (partition, step), data in state.items():
            operator = self.operators[step]
            tabled = self.facts.shares[step]
            if tabled is not None:
                yield from tabled.installing(partition, data)
            else:
                operator.install(partition, bytes(data))
                yield len(data)

    def _make_room(self, state: Mapping[tuple[int, int], State]) -> None:
        """Tables that have nothing yet, which nobody waits for, are made as large as all of it needs them, once."""
        rows: dict[int, int] = {}
        for (_, step), data in state.items():
            rows[step] = rows.get(step, 0) + count_rows(data)
        self.expect(rows)

    def bytes_of(self, rows: Mapping[int, int]) -> int:
        """About how many bytes so many rows are, by step, in tables."""
        shares = enumerate(self.facts.shares)
        return sum(rows[step] * tabled.table.row_bytes for step, tabled in shares if tabled is not None and step in rows)

    def weigh(self, state: Mapping[tuple[int, int], State]) -> int:
        """About what `partition_bytes` of captured partitions will be when they are installed."""
        sizes = [max(len(data), self.bytes_of({step: count_rows(data)})) for (_, step), data in state.items()]
        return sum(sizes)

    def expect(self, rows: Mapping[int, int]) -> None:
        """So many rows are about to be installed, by step: tables are made as large as they need."""
        for step, tabled in enumerate(self.facts.shares):
            if tabled is not None and step in rows:
                tabled.expect(rows[step])

    def filled(self) -> None:
        """All that was expected is installed."""
        for tabled in self.facts.shares:
            if tabled is not None:
                tabled.filled()

    def share(self, other: Hosted) -> None:
        """Have one table with another cohort of the segment where that can be, so that neither need be moved when it is absorbed. Not where
        either's state is to be divided anew before they are one, or is at it."""
        if self.user_code or other.user_code or self.version != other.version:
            return  # What the user's code runs in is a thread of its own, and a table has one user at a time.
        for own, given in zip(self.facts.shares, other.facts.shares, strict=True):
            if own is not None and given is not None:
                own.share(given)

    def shares_with(self, other: Hosted) -> bool:
        """Whether some table is of both."""
        tabled = [given for given in other.facts.shares if given is not None]
        return any(own is not None and any(own.shares_with(given) for given in tabled) for own in self.facts.shares)

    def settle(self) -> None:
        """Tables that it was a guest in are its own: whose they were has gone."""
        for tabled in [each for each in self.facts.shares if each is not None]:
            tabled.settle()

    def absorb(self, other: Hosted) -> None:
        """Take over the partitions of another cohort that has come as far; it is not to be used again."""
        tables = zip(self.facts.shares, other.facts.shares, strict=True)
        for own, given, (mine, its) in zip(self.operators, other.operators, tables, strict=True):
            for partition in other.partitions:
                if mine is not None and its is not None:
                    mine.absorb(partition, its)
                elif (snapshot := given.capture(partition)) is not None:
                    own.install(partition, snapshot.to_bytes())
        self._event_time.absorb(other._event_time)
        self.partitions = tuple(sorted((*self.partitions, *other.partitions)))
        self.due_us, self.lost = min(self.due_us, other.due_us), together(self.lost, other.lost)

    def leave(self, partitions: tuple[int, ...]) -> None:
        """Forget partitions whose replica here is needed no more; others stay. Their memory is given back later, by `give_back`."""
        for operator in self.operators:
            for partition in partitions:
                operator.drop(partition)
        self.partitions = tuple(p for p in self.partitions if p not in partitions)

    def give_back(self) -> bool:
        """Give back some memory of partitions that have left. Whether there is more of it. Not while an epoch runs."""
        return any(tabled.give_back() for tabled in self.facts.shares if tabled is not None)

    def divide(self, groups: npt.NDArray[np.int32]) -> None:
        """Key groups change hands between partitions that are here: their state does, too (E1). groups: int32 (G,), the new owners.

        Cost: O(state of the partitions between which they do).
        """
        changed = self.groups != groups
        concerned = np.unique(np.append(self.groups[changed], groups[changed]))
        mine = np.intersect1d(concerned, self.partitions).tolist()
        for operator in self.operators:
            states = [snapshot.to_bytes() for partition in mine if (snapshot := operator.capture(partition)) is not None]
            for partition in mine:
                operator.drop(partition)
            while self.give_back():
                pass  # Rows of who has gone would be found in place of those that come with the same keys.
            for partition, state in (operator.divide(states, groups) if states else {}).items():
                assert partition in mine, f"key groups of {mine} go to partition {partition}, which is not here"
                operator.install(partition, state)
        self.groups = groups

    def change(self, version: int, segment: Segment) -> None:
        """The boxes of another version from here on: the same ones, of which some do something else (V2). State stays,
        and counts go on.

        Cost: O(state of the boxes with state that change).
        """
        for at, (before, step) in enumerate(zip(self.segment.steps, segment.steps, strict=True)):
            if step != before:
                operator, former = build(step), self.operators[at]
                for partition in self.partitions:
                    snapshot = former.capture(partition)
                    if snapshot is not None:
                        operator.install(partition, snapshot.to_bytes())
                if isinstance(operator, Late) and isinstance(former, Late):
                    operator.late_rows = former.late_rows
                if isinstance(operator, Failing) and isinstance(former, Failing):
                    operator.keeps, operator.kept = former.keeps, former.kept
                self.operators[at] = operator
        self.facts, self._event_time, self.rest = Facts.of(self.operators), EventTime.of(self.operators), None
        self.version, self.segment, self.user_code = version, segment, segment.user_code

    def owners(self, stream: int, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """int32 (n,): the partition of each row of a bundle of an input stream. groups: of the bundle's epoch."""
        arc = next(arc for arc in self.arcs if arc.id == stream)
        return owners(rows, arc, groups, self.segment.partitions)[0]

    # -- input

    def _gather(self, work: Work, right: bool) -> Rows:
        """All input rows of the epoch as one batch with the partition of each row, in address order where order matters (E2).

        right: those of the right side of a join, else of the left, or the only one.
        """
        parts: list[tuple[pa.RecordBatch, npt.NDArray[np.int32], npt.NDArray[np.uint64] | None]] = []
        if self.segment.kind == "ingress":
            parts = [(batch, np.full(batch.num_rows, p, np.int32), None) for p, batch in work.arrived]
        else:
            for arc_id, batches in work.inputs:
                if batches and (arc_id in self.segment.right) == right:
                    arc = next(a for a in self.arcs if a.id == arc_id)
                    parts.append(gathered(batches, arc, self.groups, self.segment.partitions))
        if not parts:
            return self.nothing[right]
        if len(parts) == 1:
            return Rows(*parts[0])
        batch = pa.concat_batches([part[0] for part in parts])
        hashes = None if parts[0][2] is None else np.concatenate([part[2] for part in parts if part[2] is not None])
        return Rows(batch, np.concatenate([part[1] for part in parts]), hashes)

    # -- work

    def run(self, work: Work, now_ns: NowNs = no_clock) -> Outcome:
        if self.rest is not None and work.idle:
            return self.rest.outcome(work, self._ended(work))
        begin_ns, tick = now_ns(), work.tick
        self._current_box = self.segment.name
        try:
            if work.groups is not None:
                self.divide(work.groups)
            if work.version is not None:
                self.change(*work.version)
            inputs = [self._gather(work, right=False), *([self._gather(work, right=True)] if self.segment.right else [])]
            if work.asks:
                return self._answer(work, inputs[0], begin_ns, now_ns)
            for rows in inputs:
                self.tally.count(rows, work.arrived)
            results = self._run_steps(inputs, tick, now_ns, work.effects)
            made, digest = [], np.zeros(self.segment.partitions, np.uint64) if self.checked else None
            for at, (router, split) in enumerate(zip(self.routers, work.splits, strict=True)):
                out = results(router.arc.port.step, router.arc.port.port)
                self.tally.arc_rows[at] += out.partition.size
                made.append(router.split(out, split, self.partitions, tick.epoch))
                if digest is not None and out.count:
                    add_digests(out.batch, out.partition, digest)
            released = None
            if self.segment.sink is not None:
                last = results(len(self.operators) - 1, 0)
                released = last.batch
                if digest is not None and last.count:
                    add_digests(last.batch, last.partition, digest)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # User code may call sys.exit; what panics in native code is no Exception either.
            return Outcome((self.segment.id, work.born), tick, work.opened, error=self._failure(error, tick.epoch))
        tick, pieces = self._ended(work), tuple(made)
        self.tally.busy_ns += now_ns() - begin_ns
        rows_in, ends = sum([rows.count for rows in inputs]), self.facts.ends
        silent = not rows_in and (released is None or released.num_rows == 0) and all(piece.rows is None for piece in made)
        if silent and self.facts.timeless and not self.facts.timed:
            self.rest = Rest(work.splits, self.partitions, pieces, released, digest)
        return Outcome(
            (self.segment.id, work.born), tick, work.opened, pieces, released, rows_in, results.failed, digest,
            due_us=self._due_us(tick) if self.facts.timed else NEVER_US,
            stored=tuple([epoch for end in ends for epoch in end.stored]) if ends else (),
            ended=tuple([rows for end in ends for rows in end.ended]) if ends else (),
        )  # fmt: skip

    def _ended(self, work: Work) -> Tick:
        """The work's tick, with the watermark that the segment makes if it makes one."""
        if self._event_time.watermarks or self.segment.kind == "ingress":
            return self._event_time.after(
                work.tick, self.partitions, work.thinned, stamps=work.stamps, done_batches=work.done_batches, ended=work.ended
            )
        return work.tick

    def _due_us(self, tick: Tick) -> int:
        """The least stamp at which a timer comes, of an epoch after this one."""
        return NEVER_US if tick.last else min([timed.next_us(tick.stamp) for timed in self.facts.timed], default=NEVER_US)

    def _answer(self, work: Work, rows: Rows, begin_ns: int, now_ns: NowNs) -> Outcome:
        """What the first step says of the rows of some partitions, as records have it."""
        assert self.segment.effects is not None
        step, operator = self.segment.steps[0], cast(Operator, self.operators[0])
        self._current_box = step.box
        effects: Effects = ()
        if rows.count and (mine := np.isin(rows.partition, work.asks)).any():
            rows = rows if mine.all() else rows.take(np.flatnonzero(mine))
            effects = as_effects(operator.process(rows, work.tick), work.asks, self.segment.effects)
        took_ns = now_ns() - begin_ns
        self.tally.busy_ns += took_ns
        self.tally.box_ns[0] += took_ns
        return Outcome((self.segment.id, work.born), work.tick, work.opened, asked=work.asks, effects=effects)

    def _run_steps(self, inputs: Sequence[Rows], tick: Tick, now_ns: NowNs, effects: Effects | None = None) -> Results:
        """effects: what the first step has answered."""
        results, tally, at_ns = Results(inputs), self.tally, now_ns()
        for number, (step, operator) in enumerate(zip(self.segment.steps, self.operators, strict=True)):
            self._current_box = step.box
            taken = results(step.source.step, step.source.port)
            rows_in = taken.partition.size
            if number == 0 and effects is not None:
                given = from_effects(effects, operator.schemas)
            elif step.other is None:
                given = operator.process(taken, tick)  # type: ignore[union-attr]
            else:
                right = results(step.other.step, step.other.port)
                rows_in += right.partition.size
                given = operator.process_sides(taken, right, tick)  # type: ignore[union-attr]
            results.by_step.append(given)
            begun_ns, at_ns = at_ns, now_ns()
            tally.rows_in[number] += rows_in
            failing = self.facts.failed[number]
            if failing is not None:
                failed = failing.failed if number or effects is None else tuple(given[-1].partition.tolist())
                tally.rows_failed[number] += len(failed)
                results.failed += failed
            if given:
                tally.rows_out[number] += given[0].partition.size
            tally.box_ns[number] += at_ns - begun_ns
        return results

    def _failure(self, error: BaseException, epoch: int) -> PartFailed:
        reason = "raised an exception"
        if isinstance(error, BoxFailed):
            return PartFailed(self._current_box, epoch, error.user_traceback, error.reason, type(error).__name__)
        if isinstance(error, EvenflowError):
            return PartFailed(self._current_box, epoch, str(error), reason, type(error).__name__)
        frames: Sequence[str] = traceback.format_exception(error)
        return PartFailed(self._current_box, epoch, "".join(frames), reason, "BoxFailed")

    # -- statistics

    def state_bytes(self) -> int:
        return sum(operator.state_bytes() for operator in self.operators)

    def partition_bytes(self, partitions: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """int64 (p,): about how many bytes of state each of these partitions has."""
        asked = np.array(partitions, np.int64)
        held = np.zeros(asked.size, np.int64)
        for operator in self.operators:
            held += operator.partition_bytes(asked)
        return held

    @property
    def ends(self) -> bool:
        """Rows are stored here, by a step."""
        return bool(self.facts.ends)


def _nothing(segment: Segment, layout: Layout) -> tuple[Rows, ...]:
    """The inputs of an empty epoch."""
    keyed = any(isinstance(layout.arcs[a].route, Keyed) for a in segment.inputs)
    schemas = [segment.schema, *(layout.arcs[a].schema for a in segment.right[:1])]
    return tuple(Rows.empty(schema, keyed=keyed) for schema in schemas)
