"""StreamJoin: pairs of rows of two streams with equal keys whose event times are not too far apart (HW 2.2; Spark's stream-stream join)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.holding import Holding
from evenflow.operator.join.join_side import Held, JoinSide, Run, shown_rows
from evenflow.operator.join.pairing import Pairing, Picked, identities
from evenflow.operator.operator import Late, Reaching, Shown
from evenflow.operator.order import event_time
from evenflow.query.join import Join
from evenflow.state.held_changes import HeldChanges, packed, unpacked
from evenflow.state.held_rows import Captured, divide_rows
from evenflow.stream.arrays import Int32s, Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows


@dataclass(frozen=True, slots=True)
class _New:
    """What an epoch brought to one side. run: rows that may match, if any; alone: rows that never will, for a null in their key or no
    time."""

    run: Run | None
    alone: Rows
    late: Rows


class StreamJoin(Late, Shown, Holding, Reaching):
    """Symmetric hash join with bounds in event time. Cost: O((rows + pairs) x log(rows held)), whatever the state's size otherwise.

    left, right: schemas of the inputs. left_time, right_time: their event-time columns; None: a side without one has no late rows and is
    kept for ever. Port 0: pairs as they are found; left and right rows without a partner once the watermark says that none will come
    (at once where there can be none); with `semi` each left row when it meets its first partner. Port 1: late rows of the left, port 2:
    of the right (time < tick.before), as they came. `late_rows` counts them. A key with a null in it equals nothing.
    """

    def __init__(self, join: Join, left: pa.Schema, right: pa.Schema, left_time: str | None, right_time: str | None) -> None:
        self._join = join
        self._pairing = Pairing(join, left, right)
        self._times = (left_time, right_time)
        self._needs_time = join.low_us is not None or join.high_us is not None
        self._kept = _kept(left, self._pairing.left_names), _kept(right, self._pairing.right_names)
        self._left = JoinSide(self._kept[0], join.high_us)
        self._right = JoinSide(self._kept[1], None if join.low_us is None else -join.low_us)
        self.schemas: tuple[pa.Schema, ...] = (self._pairing.schema, left, right)
        self._nothing = Rows.empty(self._pairing.schema)
        self.late_rows = 0
        self._changes = HeldChanges(lambda: (self._left.frozen, self._right.frozen), 2)

    def oldest_us(self, watermark: int) -> int:
        """Each side waits for rows of the other as far as the bounds reach; a side without one is kept for ever."""
        low, high = self._join.low_us, self._join.high_us
        return NO_WATERMARK if low is None or high is None else watermark - max(high, -low, 0)

    def process_sides(self, left: Rows, right: Rows, tick: Tick) -> tuple[Rows, ...]:
        """Fold one epoch of both inputs. Late rows are judged first; then new left rows meet the right's state, then new right rows
        the left's, those of this epoch among them; then the watermark forgets."""
        join = self._join
        self._changes.go_on()
        new_left = self._arrived(left, join.left_keys, self._times[0], self._left, tick.before)
        new_right = self._arrived(right, join.right_keys, self._times[1], self._right, tick.before)
        out: list[Rows] = []
        if new_left.run is not None:
            self._meet_right(new_left.run, out)
            self._left.add(new_left.run)
        if new_right.run is not None:
            self._meet_left(new_right.run, out)
            self._right.add(new_right.run)
        if join.keeps_left and new_left.alone.count:
            out.append(_rows(self._pairing.batch(_all(new_left.alone), None), new_left.alone.partition))
        if join.keeps_right and new_right.alone.count:
            out.append(_rows(self._pairing.batch(None, _all(new_right.alone)), new_right.alone.partition))
        self._forget(tick.watermark, out)
        self.late_rows += new_left.late.count + new_right.late.count
        return _together(out) if out else self._nothing, new_left.late, new_right.late

    def _arrived(self, rows: Rows, keys: tuple[str, ...], time: str | None, side: JoinSide, before: int) -> _New:
        if rows.count == 0:
            return _New(None, rows, rows)
        late = alone = rows.take(np.empty(0, np.int64))
        hashes, checks, possible = identities(rows, keys)
        times = np.zeros(rows.count, np.int64)
        if time is not None:
            column = rows.batch.column(time)
            times = event_time(column)
            known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.ones(rows.count, np.bool_)
            too_old = known & (times < before)
            if too_old.any():
                late = rows.take(np.flatnonzero(too_old))
                in_time = np.flatnonzero(~too_old)
                rows, hashes, checks, times = rows.take(in_time), hashes[in_time], checks[in_time], times[in_time]
                possible, known = possible[in_time], known[in_time]
            if self._needs_time:
                possible &= known
        if not possible.all():
            alone = rows.take(np.flatnonzero(~possible))
            some = np.flatnonzero(possible)
            rows, hashes, checks, times = rows.take(some), hashes[some], checks[some], times[some]
        if rows.count == 0:
            return _New(None, alone, late)
        met, numbers = np.zeros(rows.count, np.bool_), side.numbers(rows.count)
        held = Held(rows.batch.select(side.names), rows.partition, hashes, checks, times, met, numbers)
        return _New(Run.of(held), alone, late)

    def _meet_right(self, new: Run, out: list[Rows]) -> None:
        """New left rows and what is held of the right."""
        row, which, place = self._right.find(new, self._join.low_us, self._join.high_us)
        if row.size == 0:
            return
        left, right = Picked([new.held.batch], row), self._right.pick(which, place)
        true = self._pairing.holding(left, right)
        if true is not None:
            row, which, place, left, right = row[true], which[true], place[true], left.take(true), right.take(true)
        if self._join.pairs:
            self._put(left, right, new.held.partition[row], out)
        elif self._join.how == "semi":
            first = np.unique(row)
            self._put(Picked([new.held.batch], first), None, new.held.partition[first], out)
        new.held.met[row] = True
        if self._join.keeps_right:
            self._right.mark(which, place)

    def _meet_left(self, new: Run, out: list[Rows]) -> None:
        """New right rows and what is held of the left."""
        low, high = self._join.low_us, self._join.high_us
        row, which, place = self._left.find(new, None if high is None else -high, None if low is None else -low)
        if row.size == 0:
            return
        left, right = self._left.pick(which, place), Picked([new.held.batch], row)
        true = self._pairing.holding(left, right)
        if true is not None:
            row, which, place, left, right = row[true], which[true], place[true], left.take(true), right.take(true)
        new.held.met[row] = True
        if self._join.pairs:
            self._put(left, right, new.held.partition[row], out)
        if self._join.keeps_left or self._join.how == "semi":
            first_which, first_place = self._left.mark(which, place)
            if self._join.how == "semi" and first_which.size:
                owners = self._left.partition_of(first_which, first_place)
                self._put(self._left.pick(first_which, first_place), None, owners, out)

    def _put(self, left: Picked | None, right: Picked | None, partition: Int32s, out: list[Rows]) -> None:
        batch = self._pairing.batch(left, right)
        if batch.num_rows:
            out.append(_rows(batch, partition))

    def _forget(self, watermark: int, out: list[Rows]) -> None:
        """What the watermark has passed; with the outer joins those of it come out that never met a partner."""
        which, place = self._left.expire(watermark)
        if self._join.keeps_left and which.size:
            self._put(self._left.pick(which, place), None, self._left.partition_of(which, place), out)
        which, place = self._right.expire(watermark)
        if self._join.keeps_right and which.size:
            self._put(None, self._right.pick(which, place), self._right.partition_of(which, place), out)
        self._left.settle()
        self._right.settle()

    # ------------------------------------------------ partitions

    def capture(self, partition: int) -> _Both | None:
        left, right = self._left.capture(partition), self._right.capture(partition)
        return None if left is None and right is None else _Both(left, right)

    def install(self, partition: int, state: bytes) -> None:
        for at, (side, rows) in enumerate(zip((self._left, self._right), unpacked(state), strict=True)):
            if rows:
                self._changes.installed(partition, side.install(partition, rows), at)

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        sides = [[side for side in those if side] for those in zip(*map(unpacked, states), strict=True)]
        left, right = (divide_rows(side, groups) if side else {} for side in sides)
        return {partition: packed((left.get(partition, b""), right.get(partition, b""))) for partition in sorted({*left, *right})}

    def drop(self, partition: int) -> None:
        self._changes.forget(partition)
        self._left.drop(partition)
        self._right.drop(partition)

    @property
    def shown(self) -> pa.Schema:
        """The rows that may still meet a partner. _side: left or right. _time: their event time, null where their side has none. _met: they
        had a partner. left, right: their columns that are kept, null for a row of the other side; not there if none are."""
        sides = [pa.field(name, pa.struct(list(kept))) for name, kept in zip(("left", "right"), self._kept, strict=True) if kept.names]
        made = [pa.field("_side", pa.string(), False), pa.field("_time", pa.timestamp("us")), pa.field("_met", pa.bool_(), False)]
        return pa.schema([*made, *sides])

    def show(self, partition: int) -> pa.RecordBatch:
        captured = self.capture(partition)
        sides = () if captured is None else (captured.left, captured.right)
        pieces = [
            shown_rows(side.to_bytes(), name, self.shown, self._times[at] is not None)
            for at, (name, side) in enumerate(zip(("left", "right"), sides))
            if side is not None
        ]
        return pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=self.shown)

    def state_bytes(self) -> int:
        return self._left.state_bytes() + self._right.state_bytes() + self._changes.state_bytes()

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        return self._left.partition_bytes(partitions) + self._right.partition_bytes(partitions)


@dataclass(frozen=True, slots=True)
class _Both:
    """One partition's rows of both sides."""

    left: Captured | None
    right: Captured | None

    def to_bytes(self) -> bytes:
        left = b"" if self.left is None else self.left.to_bytes()
        right = b"" if self.right is None else self.right.to_bytes()
        return packed((left, right))


def _kept(schema: pa.Schema, names: list[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _all(rows: Rows) -> Picked:
    return Picked([rows.batch], np.arange(rows.count))


def _rows(batch: pa.RecordBatch, partition: Int32s) -> Rows:
    return Rows(batch, partition)


def _together(out: list[Rows]) -> Rows:
    if len(out) == 1:
        return out[0]
    return Rows(pa.concat_batches([rows.batch for rows in out]), np.concatenate([rows.partition for rows in out]))
