"""Timers of processors: against plain Python, wherever epochs are cut, set in the past, set again, and what is refused."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenflow as ef
from evenflow.errors import NondeterministicBox, QueryError, TypeMismatch
from evenflow.kernels.hash import hash_columns
from evenflow.operator.guarded import GuardedProcess
from evenflow.operator.user.process import Process
from evenflow.operator.user.timers import NEVER
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
GAP = 30

Row = tuple[int, str | None, int]


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)


def micros(time: datetime) -> int:
    return (time.replace(tzinfo=None) - at(0)) // timedelta(microseconds=1)


def rows_of(values: Sequence[Row]) -> Rows:
    columns = [pa.array([v[i] for v in values], pa.int64() if i == 0 else f.type).cast(f.type) for i, f in enumerate(SCHEMA)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    hashes = hash_columns(batch, ("k",))
    return Rows(batch, (hashes % np.uint64(3)).astype(np.int32), hashes)


def tick(epoch: int, watermark: int = NO_WATERMARK, before: int = NO_WATERMARK, stamp: int | None = None) -> Tick:
    return Tick(epoch, epoch if stamp is None else stamp, before, watermark)


def lines(rows: Rows) -> list[tuple[Any, ...]]:
    return [tuple(micros(v) if isinstance(v, datetime) else v for v in row.values()) for row in rows.batch.to_pylist()]


class Visits(ef.Processor):
    """A row per session: its first and last time, its rows and their sum."""

    output = "k string, first timestamp, last timestamp, n bigint, total bigint"

    def open(self, store: Any) -> None:
        store.timeout("quiet", timedelta(microseconds=GAP))
        store.value("first", "timestamp")
        store.value("last", "timestamp")
        store.list("values", "bigint")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
        times = rows["ts"].to_pylist()
        state.first = state.first or times[0]
        state.last = times[-1]
        state.values.extend(rows["v"].to_pylist())

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        assert timer.name == "quiet" and timer.time == state.last + timedelta(microseconds=GAP) and state.quiet is None
        yield key[0], state.first, state.last, len(state.values), sum(state.values)
        state.first = state.last = None
        state.values = []


class VisitArrays(ef.BatchProcessor):
    """The same for all keys at once."""

    output = Visits.output

    def open(self, store: Any) -> None:
        store.timeout("quiet", timedelta(microseconds=GAP))
        for name in ("first", "last"):
            store.value(name, "timestamp")
        for name in ("n", "total"):
            store.value(name, "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: ef.Groups, state: Any) -> None:
        times = rows["ts"].to_numpy(zero_copy_only=False)
        state.first.put(times[groups.starts], ~state.first.exists())
        state.last.put(times[groups.last])
        state.n.put(state.n.get() + groups.counts)
        state.total.put(state.total.get() + np.add.reduceat(rows["v"].to_numpy(), groups.starts))

    def expired(self, timers: ef.Timers, state: Any) -> Any:
        assert timers.name == "quiet" and (timers.times == state.last.get() + np.timedelta64(GAP, "us")).all()
        names = ("first", "last", "n", "total")
        made = {"k": timers.keys["k"], **{name: getattr(state, name).get() for name in names}}
        for name in names:
            getattr(state, name).clear()
        return made, np.arange(len(timers))


def visits(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    by_key: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row[1]].append(row)
    made = []
    for k, mine in by_key.items():
        cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(mine)) if b[0] - a[0] > GAP), len(mine)]
        made += [(k, mine[a][0], mine[b - 1][0], b - a, sum(v for _, _, v in mine[a:b])) for a, b in pairwise(cuts)]
    return made


def cut(rows: Sequence[Row], watermarks: Sequence[int]) -> list[tuple[Rows, Tick]]:
    """Epochs as an `order` step releases them: rows before the watermark."""
    made, before = [], NO_WATERMARK
    for epoch, watermark in enumerate([*sorted(watermarks), END_OF_STREAM], start=1):
        made.append((rows_of([row for row in rows if before <= row[0] < watermark]), tick(epoch, watermark, before)))
        before = watermark
    return made


def run(operator: Process, epochs: Sequence[tuple[Rows, Tick]]) -> list[tuple[Any, ...]]:
    return [line for rows, at_tick in epochs for line in lines(operator.process(rows, at_tick)[0])]


stream = st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["a", "b", "", None]), st.integers(-9, 9)), max_size=40).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)
watermarks = st.lists(st.integers(0, 330), max_size=8)


@pytest.mark.parametrize("processor", [Visits, VisitArrays])
@settings(max_examples=60, deadline=None)
@given(rows=stream, watermarks=watermarks)
def test_timeouts_make_sessions_wherever_epochs_are_cut(processor: type[ef.Processor], rows: list[Row], watermarks: list[int]) -> None:
    def made(marks: list[int]) -> list[tuple[Any, ...]]:
        return run(Process(("k",), processor(), SCHEMA, "visits", True, "ts"), cut(rows, marks))

    found = made(watermarks)
    assert sorted(found, key=repr) == sorted(visits(rows), key=repr)
    assert found == made([]) == sorted(found, key=lambda row: row[2]), "by the time at which they come, wherever epochs are cut"


@settings(max_examples=25, deadline=None)
@given(rows=stream, watermarks=watermarks)
def test_poison_rows_do_not_wind_a_timeout(rows: list[Row], watermarks: list[int]) -> None:
    class Picky(Visits):
        def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
            super().process(key, rows, state)
            if 7 in rows["v"].to_pylist():
                raise LookupError

    operator = GuardedProcess(("k",), Picky(), SCHEMA, "picky", None, True, "ts")
    found, dead = [], []
    for given_rows, at_tick in cut(rows, watermarks):
        made, _, letters = operator.process(given_rows, at_tick)
        found += lines(made)
        dead += lines(letters)
    assert sorted(found, key=repr) == sorted(visits([row for row in rows if row[2] != 7]), key=repr)
    assert len(dead) == sum(row[2] == 7 for row in rows)


class Alarms(ef.Processor):
    """v > 0 sets the alarm so long after the row's time, 0 clears it, v < 0 sets the other one; shows what comes, and every row."""

    output = "k string, what string, at timestamp, first timestamp"

    def open(self, store: Any) -> None:
        store.timer("alarm")
        store.timer("other")
        store.value("again", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for row in rows.to_pylist():
            later = row["ts"] + timedelta(microseconds=abs(row["v"]))
            if row["v"] > 0:
                state.alarm = later
            elif row["v"] < 0:
                state.other, state.again = later, 2
            else:
                del state.alarm
            yield key[0], "row", row["ts"], rows["ts"][0].as_py()

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        if timer.name == "other" and state.again:
            state.other, state.again = timer.time + timedelta(microseconds=10), state.again - 1
        return [(key[0], timer.name, timer.time, None)]


def process_of(processor: ef.Processor, **options: Any) -> Process:
    return Process(("k",), processor, SCHEMA, "box", True, **options)


def test_a_timer_comes_once_between_the_rows_before_and_after_it() -> None:
    operator = process_of(Alarms(), time="ts")
    assert run(operator, [(rows_of([(10, "a", 20), (10, "b", 5)]), tick(1, 15))]) == [("a", "row", 10, 10), ("b", "row", 10, 10)]
    nothing = rows_of([])
    assert run(operator, [(nothing, tick(2, 15)), (nothing, tick(3, 16))]) == [("b", "alarm", 15, None)], "behind the watermark only"
    later = rows_of([(20, "a", 0), (20, "b", 10), (30, "b", 11), (31, "b", 3), (33, "b", 100)])
    assert run(operator, [(later, tick(4, 34))]) == [
        ("a", "row", 20, 20),
        ("b", "row", 20, 20),
        ("b", "row", 30, 20),  # The row of the same time comes first, and sets the alarm again; so does that of 31.
        ("b", "row", 31, 31),
        ("b", "row", 33, 31),
    ]
    assert run(operator, [(nothing, tick(5, END_OF_STREAM))]) == [("b", "alarm", 133, None)]
    assert operator.capture(0) is operator.capture(1) is operator.capture(2) is None, "nothing is left of either key"


def test_pending_timers_divide_the_rows_of_a_key() -> None:
    operator = process_of(Alarms(), time="ts")
    operator.process(rows_of([(0, "a", 10), (0, "a", -20)]), tick(1, 5))
    assert run(operator, [(rows_of([(ts, "a", 0) for ts in (9, 10, 11, 25, 45)]), tick(2, 50))]) == [
        ("a", "row", 9, 9),  # This one clears the alarm that would have come behind the row of 10.
        ("a", "row", 10, 9),
        ("a", "row", 11, 11),
        ("a", "other", 20, None),
        ("a", "row", 25, 25),
        ("a", "other", 30, None),
        ("a", "other", 40, None),
        ("a", "row", 45, 45),
    ]


class Plain(Alarms):
    """The same, with how many rows there were so far instead of how they are given together."""

    def open(self, store: Any) -> None:
        super().open(store)
        store.value("rows", "bigint", default=0)
        store.list("all", "bigint")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for row in super().process(key, rows, state):
            state.rows += 1
            state.all.append(state.rows)
            yield (*row[:3], at(state.rows))

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        assert state.all == list(range(1, state.rows + 1))
        return [(*row[:3], at(state.rows)) for row in super().expired(key, timer, state)]


def row_by_row(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What `Plain` makes of the rows of one key if each is given alone."""
    made: list[tuple[Any, ...]] = []
    due: dict[str, int] = {}
    again = seen = 0

    def until(time: float) -> None:
        nonlocal again
        while due and min(due.values()) < time:
            what = min(due, key=lambda name: (due[name], name))
            at_time = due.pop(what)
            made.append((rows[0][1], what, at_time, seen))
            if what == "other" and again:
                due["other"], again = at_time + 10, again - 1

    for ts, k, v in rows:
        until(ts)
        seen += 1
        made.append((k, "row", ts, seen))
        if v > 0:
            due["alarm"] = ts + v
        elif v < 0:
            due["other"], again = ts - v, 2
        else:
            due.pop("alarm", None)
    last = dict(due)  # What is set behind the last row of the stream comes no more.
    for what in sorted(last, key=lambda name: (last[name], name)):
        made.append((rows[0][1], what, last[what], seen))
    return made


@settings(max_examples=80, deadline=None)
@given(rows=stream, watermarks=watermarks)
def test_a_timer_that_rows_set_comes_between_them_wherever_epochs_are_cut(rows: list[Row], watermarks: list[int]) -> None:
    operator = Process(("k",), Plain(), SCHEMA, "plain", True, "ts")
    epochs = cut(rows, [*watermarks, 10_000])  # All that rows set has come before the end.
    found: dict[str | None, list[Any]] = defaultdict(list)
    for line in run(operator, epochs):
        found[line[0]].append(line)
    for k, lines_of_key in found.items():
        mine = [row for row in rows if row[1] == k]
        wanted = row_by_row([*mine, (9_000, k, 0)])[:-1] if mine else []
        assert lines_of_key == [line for line in wanted if line[1] != "row" or line[2] < 9_000]


def test_what_is_set_in_the_past_comes_at_the_next_opportunity() -> None:
    class Past(ef.Processor):
        output = "k string, at timestamp"

        def open(self, store: Any) -> None:
            store.timer("late")
            store.value("left", "bigint", default=3)

        def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
            state.late = rows["ts"][0].as_py() - timedelta(microseconds=50)

        def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
            state.left -= 1
            if state.left:
                state.late = timer.time
            return [(key[0], timer.time)]

    operator = process_of(Past(), time="ts")
    assert run(operator, [(rows_of([(100, "a", 1)]), tick(1, 101))]) == [("a", 50)], "behind the row that set it"
    assert run(operator, [(rows_of([]), tick(2, 101))]) == [("a", 50)], "set when it had come: in the next epoch"
    assert run(operator, [(rows_of([]), tick(3, 101))]) == [("a", 50)]
    assert run(operator, [(rows_of([]), tick(4, 101))]) == []


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("time", ["event", "processing"])
def test_a_timer_that_sets_itself_ends_with_the_stream(time: Literal["event", "processing"], guarded: bool) -> None:
    class Ticking(ef.Processor):
        output = "k string, at timestamp"

        def open(self, store: Any) -> None:
            store.timer("tick", time=time)

        def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
            state.tick = (rows["ts"][0].as_py() if time == "event" else state.now) + timedelta(microseconds=10)

        def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
            state.tick = timer.time + timedelta(microseconds=10)
            return [(key[0], timer.time)]

    operator = GuardedProcess(("k",), Ticking(), SCHEMA, "box", None, True, "ts") if guarded else process_of(Ticking(), time="ts")
    assert run(operator, [(rows_of([(0, "a", 1)]), tick(1, 1, stamp=0))]) == []
    assert operator.next_us(0) == (NEVER if time == "event" else 10)
    passed = run(operator, [(rows_of([]), tick(2, 36, stamp=35))])
    assert passed == [("a", 10), ("a", 20), ("a", 30)]
    assert run(operator, [(rows_of([]), tick(3, END_OF_STREAM, stamp=36))]) == [("a", 40)]
    for epoch in (4, 5):
        after = tick(epoch, END_OF_STREAM, before=END_OF_STREAM, stamp=100 * epoch)
        assert run(operator, [(rows_of([]), after)]) == [], "also while other sources of the dataflow go on"


class Silence(ef.Processor):
    output = "k string, at timestamp, now timestamp"

    def open(self, store: Any) -> None:
        store.timeout("quiet", timedelta(microseconds=GAP), time="processing")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        if state.now == at(45):
            del state.quiet

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
        return [(key[0], timer.time, state.now)]


def test_processing_time_goes_by_the_stamp() -> None:
    operator = Process(("k",), Silence(), SCHEMA, verify=True)
    row = rows_of([(7, "a", 1)])
    assert run(operator, [(row, tick(1, stamp=10)), (rows_of([(7, "b", 1)]), tick(2, stamp=20))]) == []
    assert operator.next_us(20) == 40
    assert run(operator, [(rows_of([]), tick(3, stamp=39)), (rows_of([]), tick(4, stamp=40))]) == [("a", 40, 40)]
    assert run(operator, [(rows_of([(7, "b", 1)]), tick(5, stamp=45))]) == [], "set again, and taken back"
    assert operator.next_us(45) == 50, "named too early, which an epoch puts right"
    assert run(operator, [(rows_of([]), tick(6, stamp=50))]) == []
    assert operator.next_us(50) == NEVER
    assert run(operator, [(row, tick(7, stamp=60)), (row, tick(8, stamp=99)), (rows_of([]), tick(9, stamp=128))]) == [("a", 90, 99)]
    assert run(operator, [(rows_of([]), tick(10, stamp=129))]) == [("a", 129, 129)]


def test_timers_set_by_arrays() -> None:
    class Arrays(ef.BatchProcessor):
        output = "k string, at timestamp, name string"

        def open(self, store: Any) -> None:
            store.timer("odd")
            store.timer("even", time="processing")

        def process(self, rows: pa.RecordBatch, groups: ef.Groups, state: Any) -> None:
            v = rows["v"].to_numpy()[groups.last]
            state.odd.put(rows["ts"].to_numpy()[groups.last] + v.astype("timedelta64[us]"), v % 2 == 1)
            state.even.put(state.now + np.timedelta64(5, "us"), v % 2 == 0)
            state.odd.clear(v == 4)

        def expired(self, timers: ef.Timers, state: Any) -> Any:
            assert not state.odd.exists().any() or timers.name == "even"
            made = {"k": timers.keys["k"], "at": timers.times, "name": [timers.name] * len(timers)}
            return made, np.arange(len(timers))

    operator = process_of(Arrays(), time="ts")
    assert run(operator, [(rows_of([(1, "a", 3), (1, "b", 2), (1, "c", 9), (2, "c", 4)]), tick(1, 3, stamp=100))]) == []
    assert run(operator, [(rows_of([]), tick(2, 5, stamp=104))]) == [("a", 4, "odd")]
    assert sorted(run(operator, [(rows_of([]), tick(3, 5, stamp=105))])) == [("b", 105, "even"), ("c", 105, "even")]


def test_times_with_a_zone_stay_so() -> None:
    schema = SCHEMA.set(0, pa.field("ts", pa.timestamp("us", "UTC")))

    class Zoned(Alarms):
        output = "k string, what string, at timestamp_ltz, first timestamp_ltz"

    operator = Process(("k",), Zoned(), schema, time="ts")
    rows = rows_of([(10, "a", 20)])
    operator.process(
        Rows(rows.batch.set_column(0, schema.field(0), rows.batch["ts"].cast(schema.field(0).type)), rows.partition), tick(1, 11)
    )
    (made, _) = operator.process(rows_of([]), tick(2, END_OF_STREAM))
    assert made.batch["at"].to_pylist() == [at(30).replace(tzinfo=UTC)]


def test_a_timeout_is_named_once_however_many_rows_come() -> None:
    operator = Process(("k",), Silence(), SCHEMA, verify=False)
    for epoch in range(1, 200):
        operator.process(rows_of([(0, "a", 1)]), tick(epoch, stamp=1000 + epoch))
    held = operator._timers._index["processing"]._deadlines
    assert sum(run.due.size for run in held._runs) <= 8


def test_a_failed_call_leaves_timers_as_they_were() -> None:
    class Fails(Visits):
        def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
            raise LookupError("no")

    operator = process_of(Fails(), time="ts")
    operator.process(rows_of([(0, "a", 1)]), tick(1, 1))
    for _ in range(2):
        with pytest.raises(LookupError) as failed:
            operator.process(rows_of([]), tick(2, 100))
    assert failed.value.__notes__ == ["box 'box' was told of the timer 'quiet' while it was at the key {'k': 'a'}"]


def test_a_timer_that_is_no_function_of_the_state_is_found() -> None:
    class Counting(Visits):
        calls = 0

        def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> None:
            self.calls += 1
            state.quiet = at(1000 + self.calls)

    operator = process_of(Counting(), time="ts")
    operator.process(rows_of([(0, "a", 1)]), tick(1, 1))
    with pytest.raises(NondeterministicBox, match=r"state field 'quiet' of key \('a',\)"):
        operator.process(rows_of([]), tick(2, 100))


def test_another_version_may_have_a_longer_timeout() -> None:
    class Longer(Visits):
        def open(self, store: Any) -> None:
            super().open(store)
            store.fields["quiet"] = dataclasses.replace(store.fields["quiet"], after_us=10 * GAP)

        def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> Any:
            return [(*key, timer.time, None, None, None)]

    before, after = process_of(Visits(), time="ts"), process_of(Longer(), time="ts")
    assert before.fields == after.fields
    before.process(rows_of([(0, "a", 1), (5, "b", 1)]), tick(1, 10))
    for partition in range(3):
        snapshot = before.capture(partition)
        if snapshot is not None:
            after.install(partition, snapshot.to_bytes())
    assert run(after, [(rows_of([(20, "b", 1)]), tick(2, 100))]) == [("a", GAP, None, None, None)]
    assert run(after, [(rows_of([]), tick(3, 1000))]) == [("b", 20 + 10 * GAP, None, None, None)]


@pytest.mark.parametrize("value", [7, 7.0, "1970-01-01", timedelta(seconds=1), np.datetime64("NaT")])
def test_a_timer_takes_times_only(value: Any) -> None:
    class Sets(Visits):
        def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
            state.quiet = value

    class Puts(VisitArrays):
        def process(self, rows: Any, groups: ef.Groups, state: Any) -> None:
            state.quiet.put([value] * len(groups))

    with pytest.raises(TypeMismatch, match=r"the timer 'quiet' is set to a datetime, not to"):
        process_of(Sets(), time="ts").process(rows_of([(0, "a", 1)]), tick(1))
    if not isinstance(value, np.datetime64):
        with pytest.raises(TypeMismatch, match=r"the timer 'quiet' is set to times, not to"):
            process_of(Puts(), time="ts").process(rows_of([(0, "a", 1)]), tick(1))


def test_arrays_of_another_length_are_refused() -> None:
    class Puts(VisitArrays):
        def process(self, rows: Any, groups: ef.Groups, state: Any) -> None:
            state.quiet.put(np.zeros(5, "datetime64[us]"))

    with pytest.raises(TypeMismatch, match="5 times for 2 keys"):
        process_of(Puts(), time="ts").process(rows_of([(0, "a", 1), (0, "b", 1)]), tick(1))


def test_declarations_that_are_refused() -> None:
    def declare(call: Any) -> None:
        class Declares(Visits):
            def open(self, store: Any) -> None:
                call(store)

        Process(("k",), Declares(), SCHEMA, "box", time="ts")

    for call, says in [
        (lambda store: store.timer("t", time="wall"), "the timer 't' goes by 'wall'; use time='event' or time='processing'"),
        (lambda store: store.timeout("t", "0 seconds"), "the timeout 't' comes after 0"),
        (lambda store: store.timeout("t", "soon"), "'soon' is not a span of time"),
        (lambda store: (store.timer("t"), store.value("t", "int")), "declares the state field 't' twice"),
    ]:
        with pytest.raises(QueryError, match=says):
            declare(call)
    with pytest.raises(QueryError, match="the timer 'quiet' goes by event time, and its rows have none"):
        Process(("k",), Visits(), SCHEMA, "box")
