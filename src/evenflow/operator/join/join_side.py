"""One side of a join: the rows that may still meet a partner, found by key and time, forgotten by the watermark.

The rows lie in a short list of runs, oldest first. A run never changes: it has its rows in order of arrival, an index sorted by
(key, time) to probe, and one sorted by time of which the watermark takes a prefix. Runs of one level are merged four at a time, so
there are O(log rows held) runs, a row is moved that often, and nothing is done per partition; those that no batch can have together stay
apart. Only the marks of rows that have met a partner are written in place; a snapshot makes the next writer copy them, a byte a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels.probe import probe
from evenflow.operator.join.pairing import Picked
from evenflow.plan.layout import HASH_COLUMN
from evenflow.state.apart import Apart, Lying, counts_for, less, without
from evenflow.state.held_rows import Captured, Frozen, fit, picked
from evenflow.stream.arrays import Bools, Int32s, Int64s, UInt64s
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes

MERGE_RUNS: Final = 4
"""Runs of one level that become one run of the next."""

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
BESIDE: Final = (HASH_COLUMN, "_check", "_time", "_met")
"""What captured rows have behind their columns, which may have the same names."""
ARRAYS: Final = ("partition", "hash", "check", "time", "met", "number")
"""Of held rows, beside their columns."""


@dataclass(frozen=True, slots=True)
class Held:
    """n rows of a side in order of arrival. hash, check: uint64 (n,). time: int64 (n,), microseconds. met: bool (n,), had a partner.
    number: int64 (n,), that no other row of the side has ever had."""

    batch: pa.RecordBatch
    partition: Int32s
    hash: UInt64s
    check: UInt64s
    time: Int64s
    met: Bools
    number: Int64s

    @property
    def count(self) -> int:
        return len(self.time)

    def take(self, index: Int64s) -> Held:
        arrays = self.partition[index], self.hash[index], self.check[index], self.time[index], self.met[index], self.number[index]
        return Held(self.batch.take(pa.array(index)), *arrays)

    def bytes(self) -> int:
        return int(self.batch.nbytes) + self.partition.nbytes + self.hash.nbytes * 2 + self.time.nbytes * 2 + self.met.nbytes


@dataclass(frozen=True, slots=True)
class Run:
    """See the module. by_key, by_time: rows in order of (hash, check, time) and of (time, arrival); hash, check, time: in order of
    by_key; times: in order of by_time. start: rows before it in by_time are forgotten. counts: int64, rows of each partition that are not.
    dead: partitions that left the site."""

    held: Held
    by_key: Int64s
    hash: UInt64s
    check: UInt64s
    time: Int64s
    by_time: Int64s
    times: Int64s
    counts: Int64s
    level: int
    start: int = 0
    dead: tuple[int, ...] = ()

    @staticmethod
    def of(held: Held, level: int = 0) -> Run:
        """A run of new rows."""
        return Run.ordered(held, key_order(held.hash, held.check, held.time, np.argsort(held.hash)), np.argsort(held.time), level)

    @staticmethod
    def ordered(held: Held, by_key: Int64s, by_time: Int64s, level: int) -> Run:
        hash_, check, time, times = held.hash[by_key], held.check[by_key], held.time[by_key], held.time[by_time]
        return Run(held, by_key, hash_, check, time, by_time, times, np.bincount(held.partition), level)

    @staticmethod
    def merged(runs: Sequence[Run], level: int) -> Run:
        """One run of the living rows of several, in order of arrival. Each is in order already, which a stable sort makes use of."""
        living, by_key, by_time, count = [], [], [], 0
        for run in runs:
            alive = run.living()
            now = np.full(run.held.count, -1, np.int64)
            now[alive] = np.arange(count, count + alive.size)
            count += alive.size
            living.append(run.held if alive.size == run.held.count else run.held.take(alive))
            by_key.append(now[run.by_key])
            by_time.append(now[run.by_time])
        held = joined(living)
        keys, times = np.concatenate(by_key), np.concatenate(by_time)
        keys, times = keys[keys >= 0], times[times >= 0]
        if len(runs) > 1:
            keys = key_order(held.hash, held.check, held.time, keys[np.argsort(held.hash[keys], kind="stable")])
            times = times[np.argsort(held.time[times], kind="stable")]
        return Run.ordered(held, keys, times, level)

    def until(self, limit: int) -> int:
        """Position in by_time of the first row whose time is not before `limit`; GREATEST: of the end."""
        return len(self.times) if limit == GREATEST else int(np.searchsorted(self.times, limit, side="left"))

    def bytes(self) -> int:
        """Memory of the rows and the indexes."""
        return self.held.bytes() + 6 * self.times.nbytes

    def bytes_of(self, partitions: Int64s) -> Int64s:
        """About how many bytes each of these partitions has here, int64 (p,)."""
        return counts_for(self.present, partitions) * (self.held.bytes() // max(1, len(self.times)))  # All of it may have been forgotten.

    def forgotten(self, stop: int) -> Run:
        """Without the rows before `stop` in by_time. Cost: O(those)."""
        return replace(self, start=stop, counts=less(self.counts, self.held.partition[self.by_time[self.start : stop]]))

    @property
    def present(self) -> Int64s:
        """int64: rows of each partition that is here."""
        return without(self.counts, self.dead)

    def lying(self) -> Lying:
        alive = None
        if self.start:
            alive = np.ones(self.held.count, np.bool_)
            alive[self.by_time[: self.start]] = False
        return Lying(self.held.partition, 0, alive, self.dead)

    def living(self) -> Int64s:
        """Rows that are neither forgotten nor of a partition that left, in order of arrival."""
        if self.start == 0 and not self.dead:
            return np.arange(self.held.count)
        alive = np.ones(self.held.count, np.bool_)
        alive[self.by_time[: self.start]] = False
        if self.dead:
            alive &= ~np.isin(self.held.partition, self.dead)
        return np.flatnonzero(alive)

    def here(self, places: Int64s) -> Bools:
        """Which of these rows are of partitions that are still here."""
        return ~np.isin(self.held.partition[places], self.dead)


def key_order(hashes: UInt64s, checks: UInt64s, times: Int64s, order: Int64s) -> Int64s:
    """Rows in order of their hash put in order of (hash, check, time), in place: only rows of equal hashes are looked at again."""
    same = hashes[order[1:]] == hashes[order[:-1]]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        some = order[tied]
        order[tied] = some[np.lexsort((times[some], checks[some], hashes[some]))]
    return order


def shifted(times: Int64s, by: int | None, unbounded: int) -> Int64s:
    """times + by, at the ends of int64 where it would leave them; all `unbounded` where there is no bound."""
    if by is None:
        return np.full(times.size, unbounded, np.int64)
    moved = times + np.int64(by)
    if by > 0:
        moved[moved < times] = GREATEST
    elif by < 0:
        moved[moved > times] = LEAST
    return moved


class JoinSide:
    """The rows of one side, over all partitions of the site. schema: of their columns.

    wait_us: how far the watermark must have passed a row's time before nothing can match it any more; None: until the end. Rows are
    named by (which, place): the number of their run and their place in it, which sort in order of arrival and hold until `settle`.
    """

    def __init__(self, schema: pa.Schema, wait_us: int | None) -> None:
        self._schema, self._wait_us = schema, wait_us
        self._runs: list[Run] = []
        self._frozen: FrozenSide | None = None
        self._dropped = self._shared = False
        self._numbered = 0

    @property
    def names(self) -> list[str]:
        """Of the columns that are kept."""
        return list(self._schema.names)

    def numbers(self, count: int) -> Int64s:
        """Of rows that come now."""
        self._numbered += count
        return np.arange(self._numbered - count, self._numbered)

    def find(self, run: Run, low_us: int | None, high_us: int | None) -> tuple[Int64s, Int64s, Int64s]:
        """Pairs of a row of a new run and a row held here with the same key and low_us <= held time - its time <= high_us.

        Returns the new row's place in its run and (which, place) of the held one, int64 (m,) each, in order of arrival of both.
        """
        lows, highs = shifted(run.time, low_us, LEAST), shifted(run.time, high_us, GREATEST)
        rows, which, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, mine in enumerate(self._runs):
            row, found = probe(mine.hash, mine.check, mine.time, run.hash, run.check, lows, highs)
            place = mine.by_key[found]
            if mine.dead:
                here = mine.here(place)
                row, place = row[here], place[here]
            if row.size:
                rows.append(run.by_key[row])
                which.append(np.full(row.size, number, np.int64))
                places.append(place)
        row, number_of, place = np.concatenate(rows), np.concatenate(which), np.concatenate(places)
        order = np.lexsort((place, number_of, row))
        return row[order], number_of[order], place[order]

    def pick(self, which: Int64s, place: Int64s) -> Picked:
        """The columns of these rows."""
        if which.size == 0:
            return Picked([pa.RecordBatch.from_pylist([], schema=self._schema)], place)
        first = int(which[0])
        if bool((which == first).all()):
            return Picked([self._runs[first].held.batch], place)
        return Picked([run.held.batch for run in self._runs], place, which)

    def partition_of(self, which: Int64s, place: Int64s) -> Int32s:
        """int32 (m,): the partition of each of these rows."""
        owners = np.empty(which.size, np.int32)
        for number in np.unique(which).tolist():
            mine = which == number
            owners[mine] = self._runs[number].held.partition[place[mine]]
        return owners

    def mark(self, which: Int64s, place: Int64s) -> tuple[Int64s, Int64s]:
        """These rows have met a partner. Returns those that had not before, each once, in order of arrival."""
        if which.size == 0:
            return which, place
        self._own()
        fresh_which, fresh_place = [], []
        for number in np.unique(which).tolist():
            met = self._runs[number].held.met
            places = np.unique(place[which == number])
            places = places[~met[places]]
            met[places] = True
            fresh_which.append(np.full(places.size, number, np.int64))
            fresh_place.append(places)
        return np.concatenate(fresh_which), np.concatenate(fresh_place)

    def _own(self) -> None:
        """Copy the marks if a snapshot may hold them."""
        self._frozen = None
        if self._shared:
            self._runs = [replace(run, held=replace(run.held, met=run.held.met.copy())) for run in self._runs]
            self._shared = False

    def add(self, run: Run) -> None:
        """Hold the rows of a new run."""
        if run.held.count:
            self._runs.append(run)
            self._frozen = None

    def expire(self, watermark: int) -> tuple[Int64s, Int64s]:
        """Forget the rows that nothing can match any more. Returns (which, place) of those that never met a partner, by time, then
        arrival."""
        if watermark == END_OF_STREAM:
            limit = GREATEST
        else:
            limit = LEAST if self._wait_us is None else min(max(watermark - self._wait_us, LEAST), GREATEST - 1)
        which, places, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, run in enumerate(self._runs):
            stop = run.until(limit)
            if stop <= run.start:
                continue
            gone = run.by_time[run.start : stop]
            alone = ~run.held.met[gone]
            if run.dead:
                alone &= run.here(gone)
            which.append(np.full(int(alone.sum()), number, np.int64))
            places.append(gone[alone])
            times.append(run.times[run.start : stop][alone])
            self._runs[number] = run.forgotten(stop)
            self._frozen = None
        number_of, place = np.concatenate(which), np.concatenate(places)
        order = np.lexsort((place, number_of, np.concatenate(times)))
        return number_of[order], place[order]

    def settle(self) -> None:
        """Give memory back and keep the runs few. Nothing that (which, place) named before means anything afterwards."""
        runs: list[Run] = []
        for run in self._runs:
            if run.start == len(run.times):
                continue
            if self._dropped and run.dead:
                alive = run.living()
                if alive.size == 0:
                    continue
                run = Run.merged([run], run.level) if 2 * alive.size < run.held.count else run
            elif 2 * run.start >= len(run.times):
                run = Run.merged([run], run.level)
            runs.append(run)
            while len(runs) >= MERGE_RUNS and (last := runs[-MERGE_RUNS:])[0].level <= last[-1].level and fit([r.held.batch for r in last]):
                runs[-MERGE_RUNS:] = [Run.merged(last, last[-1].level + 1)]
        if len(runs) != len(self._runs) or any(a is not b for a, b in zip(runs, self._runs, strict=True)):
            self._runs, self._frozen = runs, None
        self._dropped = False

    # ------------------------------------------------ partitions

    @property
    def frozen(self) -> FrozenSide:
        """All rows as of now."""
        if self._frozen is None:
            self._frozen, self._shared = FrozenSide(tuple(self._runs)), True
        return self._frozen

    def capture(self, partition: int) -> Captured | None:
        return self.frozen.capture(partition)

    def install(self, partition: int, state: bytes) -> Int64s:
        """Returns the imprints of its rows."""
        batch, *beside = opened(state)
        hashes, checks, times, met = (each.to_numpy(zero_copy_only=False) for each in beside)
        columns, count = batch.select(self._schema.names), len(times)
        held = Held(columns, np.full(count, partition, np.int32), hashes, checks, times, met.copy(), self.numbers(count))
        self.add(Run.of(held))
        return _imprints(held.number, held.met)

    def drop(self, partition: int) -> None:
        self._runs = [replace(run, dead=(*run.dead, partition)) for run in self._runs]
        self._frozen, self._dropped = None, True

    def state_bytes(self) -> int:
        return sum(run.bytes() for run in self._runs)

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        return sum([run.bytes_of(partitions) for run in self._runs], np.zeros(partitions.size, np.int64))


def opened(state: bytes) -> tuple[pa.RecordBatch, pa.Array, pa.Array, pa.Array, pa.Array]:
    """Captured rows: their columns, and what is beside them."""
    batch = batch_from_bytes(state)
    count = batch.num_columns - len(BESIDE)
    hashes, checks, times, met = batch.columns[count:]
    return batch.select(list(range(count))), hashes, checks, times, met


def shown_rows(state: bytes, side: str, schema: pa.Schema, timed: bool) -> pa.RecordBatch:
    """Captured rows of a side as columns of what a join shows. timed: the side has an event time."""
    batch, _, _, times, met = opened(state)
    count = len(times)
    known = pc.if_else(pc.equal(times, NO_WATERMARK), None, times).view(pa.timestamp("us")) if timed else None
    made = {"_side": pa.array([side] * count, pa.string()), "_time": known, "_met": met}
    if side in schema.names:
        kind = schema.field(side).type
        made[side] = pa.StructArray.from_arrays([batch.column(field.name) for field in kind], fields=list(kind))
    none = [made[f.name] if made.get(f.name) is not None else pa.nulls(count, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(none, schema=schema)


def joined(held: Sequence[Held]) -> Held:
    """The rows of several, one after the other."""
    if len(held) == 1:
        return held[0]
    batch = pa.concat_batches([each.batch for each in held])
    columns = [np.concatenate([getattr(each, name) for each in held]) for name in ARRAYS]
    return Held(batch, *columns)


class FrozenSide(Frozen):
    """One side, taken apart when first needed."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self._runs = runs

    def counts(self) -> Iterable[Int64s]:
        return [run.present for run in self._runs]

    def lying(self) -> Iterable[Lying]:
        return [run.lying() for run in self._runs]

    def imprints(self, partition: int) -> Int64s:
        apart = self.take_apart()
        at = apart.of(partition)
        return _imprints(self._of("number", apart, at), self._of("met", apart, at).astype(np.bool_))

    def _of(self, name: str, apart: Apart, at: Int64s) -> npt.NDArray[Any]:
        return apart.gather([getattr(run.held, name) for run in self._runs], at)

    def some_to_bytes(self, partition: int, which: Int64s) -> bytes:
        apart = self.take_apart()
        at = apart.of(partition)[which]
        batch = picked([run.held.batch for run in self._runs], at)
        columns = [*batch.columns, *(pa.array(self._of(name, apart, at)) for name in ("hash", "check", "time", "met"))]
        return batch_to_bytes(pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *BESIDE]))


def _imprints(numbers: Int64s, met: Bools) -> Int64s:
    """See `Frozen`: a row changes when it meets its first partner."""
    return (numbers << 1) | met
