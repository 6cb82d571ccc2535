"""Operators made for the laws: processors, one per style, with every kind of field; a watermark that shows itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import evenflow as ef
from evenflow.operator.changes.pairs import PairUp
from evenflow.operator.changes.rank import Rank
from evenflow.operator.changes.regroup import Regroup
from evenflow.operator.complete import Complete
from evenflow.operator.explode import Explode
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.operator.user.gathered import Gathered
from evenflow.operator.watermark import Watermark
from evenflow.processor import BatchProcessor, Processor
from evenflow.query.aggregates import COLLECT_ROWS, AggCall
from evenflow.query.changed_pairs import Pairs
from evenflow.query.ranked import Place, Ranked
from evenflow.query.regrouped import Regrouped
from evenflow.query.spanned import Gathered as GatheredParts
from evenflow.query.spanned import Spanned
from evenflow.query.user.aggregator import stored_type
from evenflow.stream.change import CHANGE, KINDS
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Journal(Processor):
    """Per key: remembers in a value, a string, a list and a map; forgets everything when it sees a `small` below -80."""

    output = "k bigint, s string, seen bigint, sum double, names array<string>, most bigint"

    def open(self, store: Any) -> None:
        store.value("seen", "bigint", default=0)
        store.value("sum", "double")
        store.value("last", "string")
        store.list("names", "string")
        store.map("times", "boolean", "bigint")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for row in rows.to_pylist():
            if row["small"] is not None and row["small"] < -80:
                state.seen = state.sum = state.last = None
                state.names, state.times = [], {}
                continue
            state.seen += 1
            state.sum = (state.sum or 0.0) + (row["f"] or 0.0)
            state.names = [*state.names, row["name"]][-3:]
            if row["b"] is not None:
                state.times[row["b"]] = state.times.get(row["b"], 0) + 1
            yield key[0], state.last, state.seen, state.sum, list(state.names), max(state.times.values(), default=None)
            state.last = row["s"]


class Previous(BatchProcessor):
    """Every row with its number within the key and the `f` of the key's row before it."""

    output = "k bigint, number bigint, f double, before double, s string"

    def open(self, store: Any) -> None:
        store.value("count", "bigint", default=0)
        store.value("f", "double")
        store.value("s", "string")

    def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> Any:
        f = rows.column("f").to_numpy(zero_copy_only=False)
        before = np.concatenate(([np.nan], f[:-1]))
        before[groups.starts] = np.where(state.f.exists(), state.f.get(), np.nan)
        place = np.arange(rows.num_rows) - groups.starts[groups.ids]
        number = place + state.count.get()[groups.ids]
        s = np.array([None, *rows.column("s").to_pylist()[:-1]], object)
        s[groups.starts] = state.s.get()
        state.count.put(number[groups.last] + 1)
        state.f.put(f[groups.last])
        state.s.put(rows.column("s").take(pa.array(groups.last)))
        made = {"k": rows.column("k"), "number": number, "f": f, "before": before, "s": pa.array(s, pa.string())}
        return made, np.arange(rows.num_rows)


class Quiet(Processor):
    """Per key: what its rows were, when none has come for a while. Its key, a float and more, is kept with its state."""

    output = "f double, b boolean, rows bigint, names array<string>, at timestamp"

    def open(self, store: Any) -> None:
        store.timeout("quiet", "700 milliseconds")
        store.value("rows", "bigint", default=0)
        store.list("names", "string")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> None:
        state.rows += rows.num_rows
        state.names.extend(name or "" for name in rows["name"].to_pylist())

    def expired(self, key: tuple[Any, ...], timer: Any, state: Any) -> Any:
        yield *key, state.rows, state.names[-4:], timer.time
        state.rows, state.names = 0, []


class QuietArrays(BatchProcessor):
    """The same of numbers, for all keys at once, and two timeouts."""

    output = "s string, rows bigint, name string, at timestamp"

    def open(self, store: Any) -> None:
        store.timeout("quiet", "900 milliseconds")
        store.timeout("silent", "2 seconds")
        store.value("rows", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> None:
        state.rows.put(state.rows.get() + groups.counts)

    def expired(self, timers: Any, state: Any) -> Any:
        made = {"s": timers.keys["s"], "rows": state.rows.get(), "name": [timers.name] * len(timers), "at": timers.times}
        if timers.name == "silent":
            state.rows.clear()
        return made, np.arange(len(timers))


class Reminders(Processor):
    """Timers of both times, set and cleared by what rows say, one of which sets itself again; every row shows what is set."""

    output = "k bigint, what string, alarm timestamp, rest timestamp, now timestamp"

    def open(self, store: Any) -> None:
        store.timer("alarm")
        store.timer("rest", time="processing")
        store.timeout("idle", timedelta(microseconds=1500), time="processing")
        store.value("left", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for row in rows.to_pylist():
            small = row["small"] or 0
            if small % 3 == 0 and row["ts"] is not None:
                state.alarm, state.left = row["ts"] + timedelta(milliseconds=10 * small), small % 4
            elif small % 3 == 1:
                state.rest = state.now + timedelta(microseconds=small * 10)
            elif small % 2:
                state.alarm = None
        yield key[0], "row", state.alarm, state.rest, state.now

    def expired(self, key: tuple[Any, ...], timer: Any, state: Any) -> Any:
        if timer.name == "alarm" and state.left:
            state.alarm, state.left = timer.time + timedelta(seconds=state.left - 1), state.left - 1
        return [(key[0], timer.name, state.alarm, state.rest, timer.time)]


class PickyReminders(Reminders):
    """Refuses multiples of 7, when it has written its state."""

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        yield from super().process(key, rows, state)
        if any(x is not None and x % 7 == 0 for x in rows["small"].to_pylist()):
            raise LookupError(key)


class Watched(Watermark):
    """Port 1: the watermark of every partition that has rows in the epoch. A `small` below -85 begins to hold the partition, one
    above 85 is the end of a batch.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, "ts", 500_000)
        self.schemas = (schema, pa.schema([("watermark", pa.int64())]))

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        (passed,) = super().process(rows, tick)
        small = rows.batch.column("small").fill_null(0).to_numpy(zero_copy_only=False)
        here = np.unique(rows.partition)
        for partition in here.tolist():
            mine = small[rows.partition == partition]
            if (mine < -85).any():
                self.held.add(partition)
            if (mine > 85).any():
                self.batch_done(partition)
        shown = pa.array([self.current(partition) for partition in here.tolist()], pa.int64())
        return passed, Rows(pa.RecordBatch.from_arrays([shown], schema=self.schemas[1]), here)


class InLists(Explode):
    """Explodes a list that is made of the row: none, empty, or of one to three elements."""

    def __init__(self) -> None:
        schema = pa.schema([("k", pa.int64()), ("list", pa.list_(pa.int64()))])
        super().__init__(schema, "list", "element", "at", outer=True)
        self._given = schema

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        small = rows.batch.column("small").to_pylist()
        lists = [None if x is None or x < -50 else list(range(x, x + x % 4)) for x in small]
        batch = pa.RecordBatch.from_arrays([rows.batch.column("k"), pa.array(lists, pa.list_(pa.int64()))], schema=self._given)
        return super().process(Rows(batch, rows.partition, rows.hash), tick)


def picky(batch: pa.RecordBatch) -> pa.Array:
    """`small` as it is; a multiple of 13 is refused."""
    if any(x is not None and x % 13 == 0 for x in batch["small"].to_pylist()):
        raise ArithmeticError("13")
    return batch["small"]


class PickyJournal(Journal):
    """Refuses multiples of 7, when it has written its state."""

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        yield from super().process(key, rows, state)
        if any(x is not None and x % 7 == 0 for x in rows["small"].to_pylist()):
            raise LookupError(key)


class PickyPrevious(Previous):
    """Refuses multiples of 7, whatever key they are of."""

    def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> Any:
        made = super().process(rows, groups, state)
        if any(x is not None and x % 7 == 0 for x in rows["small"].to_pylist()):
            raise LookupError("7")
        return made


class Spread(ef.Aggregator):
    """Greatest minus least, of values that may be null; its state is a tuple."""

    output = "bigint"

    def zero(self) -> Any:
        return None, None

    def update(self, state: Any, x: Any) -> Any:
        return state if x is None else (x, x) if state[0] is None else (min(state[0], x), max(state[1], x))

    def merge(self, one: Any, other: Any) -> Any:
        return self.update(self.update(one, other[0]), other[1])

    def finish(self, state: Any) -> Any:
        return None if state[0] is None else state[1] - state[0]


class Names(ef.Aggregator):
    """The last three different names, each with whether its number was odd: an order that rows must come in, and a state that is changed
    in its place."""

    output = "array<string>"
    state = "array<string>"

    def zero(self) -> Any:
        return []

    def update(self, state: Any, name: Any, i: Any) -> Any:
        if name is not None and i is not None and f"{name}{i % 2}" not in state:
            state.append(f"{name}{i % 2}")
        del state[:-3]
        return state


class Counts(ef.Aggregator):
    """How often each text comes, in a dict that is pickled; mergeable."""

    output = "bigint"

    def zero(self) -> Any:
        return {}

    def update(self, state: Any, text: Any, b: Any) -> Any:
        state[text, b] = state.get((text, b), 0) + 1
        return state

    def merge(self, one: Any, other: Any) -> Any:
        for key, times in other.items():
            one[key] = one.get(key, 0) + times
        return one

    def finish(self, state: Any) -> Any:
        return max(state.values(), default=0)


class Newest(ef.Aggregator):
    """The newest time, how many rows have it, and a value that another time than Python's would not have: how often each day came, by the
    day. Times are kept at every depth: in a structure, a list and the keys of a map."""

    output = "string"
    state = "struct<at: timestamp_ltz, rows: bigint, apart: array<interval day to second>, days: map<date, struct<last: timestamp>>>"

    def zero(self) -> Any:
        return {"at": None, "rows": 0, "apart": [], "days": {}}

    def update(self, state: Any, at: Any) -> Any:
        if at is None:
            return state
        at = at.replace(tzinfo=UTC)
        if state["at"] is not None and at > state["at"]:
            state["apart"] = sorted([*state["apart"], at - state["at"]])[-2:]
        rows = state["rows"] + 1 if state["at"] == at else 1
        days = {day: last for day, last in state["days"].items() if (at.date() - day).days < 2}
        days[at.date()] = {"last": at.replace(tzinfo=None)}
        return {**state, "at": at, "rows": rows, "days": days}

    def merge(self, one: Any, other: Any) -> Any:
        for at in sorted(each["last"] for each in other["days"].values()):
            one = self.update(one, at)
        return one

    def finish(self, state: Any) -> Any:
        return str(state)


class NewestDay(ef.Aggregator):
    """How many rows came in a row with the day of the last one: another number if the day were no date any more, without a word. Its state
    is a list."""

    output = "bigint"
    state = "array<struct<day: date, rows: bigint>>"

    def zero(self) -> Any:
        return []

    def update(self, state: Any, at: Any) -> Any:
        day = None if at is None else at.date()
        rows = state[0]["rows"] + 1 if state and state[0]["day"] == day else 1
        return [{"day": day, "rows": rows}]

    def merge(self, one: Any, other: Any) -> Any:
        same = one and other and one[0]["day"] == other[0]["day"]
        return [{**other[0], "rows": one[0]["rows"] + other[0]["rows"]}] if same else other or one

    def finish(self, state: Any) -> Any:
        return state[0]["rows"] if state else 0


COUNTS = AggCall("counts", "counts", "name", pa.binary(), Counts(), ("b",))
SPREAD = AggCall("spread", "spread", "i", pa.binary(), Spread())
NAMES_OF = AggCall("names", "names", "s", pa.list_(pa.string()), Names(), ("i",))
NEWEST = AggCall("newest", "newest", "ts", stored_type(Newest()), Newest())
NEWEST_DAY = AggCall("newest_day", "newest_day", "ts", stored_type(NewestDay()), NewestDay())
OF_TIMES = [NEWEST, NEWEST_DAY, AggCall("times", "collect_list", "ts", pa.list_(pa.timestamp("us")))]
"""States with times in them, and another object column, which has whole numbers for them."""
ROWS_OF = [
    AggCall(f"rows_{name}", COLLECT_ROWS, name, pa.list_(kind))
    for name, kind in (("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()))
]
"""What functions of the user's make of an aggregate box."""


REPEATED = "k bigint, nth bigint, s string"


def twice_if_even(batch: pa.RecordBatch) -> Any:
    """Rows with an even `small` come out twice, those with a null one not at all; the last rows first."""
    made, index = [], []
    for at, row in reversed(list(enumerate(batch.to_pylist()))):
        times = 0 if row["small"] is None else 2 - row["small"] % 2
        made += [(row["k"], nth, row["s"]) for nth in range(times)]
        index += [at] * times
    return made, index


CHANGES = pa.schema([("k", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("small", pa.int64()), (CHANGE, pa.string())])


def as_changes(rows: Rows) -> Rows:
    """Rows of which about half are taken back, also some that never came: what an operator makes of these must be the same anywhere."""
    small = rows.batch.column("small").fill_null(0).to_numpy(zero_copy_only=False)
    kinds = pa.array(KINDS).take(pa.array(small % 4))
    columns = [
        rows.batch.column("k"),
        pa.array(["a", "b", None]).take(pa.array(small % 3)),
        pa.array(small % 2 / 2),
        pa.array(small % 5),
        kinds,
    ]
    return Rows(
        pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, CHANGES, strict=True)], schema=CHANGES),
        rows.partition,
        rows.hash,
    )


class Whole(Complete):
    """The rows that are left of such changes, by one of their columns, five at most."""

    def __init__(self) -> None:
        super().__init__(CHANGES, every_us=2000, by=[("f", True)], limit=5)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return super().process(as_changes(rows), tick)


class Subtracting(Aggregate):
    """Totals of such changes, which take back what they have counted."""

    def __init__(self) -> None:
        calls = [
            AggCall("n", "count", None, pa.int64()),
            AggCall("t", "sum", "small", pa.int64()),
            AggCall("a", "avg", "small", pa.float64()),
        ]
        self._combine = Combine(CHANGES, ("k",), calls)
        super().__init__(self._combine.schemas[0], ("k",), calls, partial=True, changes=True, retracts=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return super().process(*self._combine.process(as_changes(rows), tick), tick)


CHANGED = [AggCall("most", "max", "small", pa.int64()), AggCall("sum", "sum", "f", pa.float64()), AggCall("n", "count", None, pa.int64())]


class Regrouping(Regroup):
    """Totals of such changes that are made of all rows that are left."""

    def __init__(self) -> None:
        super().__init__(CHANGES, ("k",), Regrouped(tuple(CHANGED), ("k",), "k bigint, small bigint, f double"))

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return super().process(as_changes(rows), tick)


class Ranking(Rank):
    """Such changes in an order, with what is before them and how many."""

    def __init__(self) -> None:
        places = (Place("at", "row_number"), Place("before", "lag", "s", -1), Place("n", "sum", "small", None, 0, True))
        columns = "k bigint, s string, f double, small bigint"
        super().__init__(CHANGES, ("k",), Ranked(columns, (("f", True),), places, ("at", 2, 9)))

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        return super().process(as_changes(rows), tick)


SPANS = Spanned(
    "k bigint, ts timestamp_ntz, small smallint, f double, s string, b boolean",
    "ts",
    tuple(
        Place(f"{function}_{column}_{low}", function, column, low, high, span=True)
        for function, column, low, high in (
            ("sum", "f", -2_000_000, 0), ("avg", "small", -3_000_000, -500_000), ("max", "s", -1, 0), ("count", None, -2_000_000, 0),
            ("first_value", "b", -5_000_000, 0), ("min", "f", -400_000, 0),
        )
    ),
)  # fmt: skip
"""Totals of some seconds, whose rows keep words, texts and booleans."""
SPANS_AHEAD = replace(
    SPANS, places=tuple(replace(place, high=None if place.high is None else place.high + 1_700_000) for place in SPANS.places)
)
"""The same with rows that follow, for which rows wait."""
NEIGHBOURS = replace(SPANS, places=(
    Place("next", "lead", "s", 2), Place("last", "lag", "small", -3), Place("some", "sum", "f", -2, 1), Place("more", "max", "s", 1, 3),
    Place("apart", "stddev", "f", -2, 1),
))  # fmt: skip
"""Rows before and behind, by number."""
SO_FAR = replace(SPANS, ties=("small", "s"), places=(
    Place("sum", "sum", "f", None, 0), Place("mean", "avg", "small", None, 0, peers=True), Place("first", "first_value", "b", None, 0),
    Place("most", "max", "f", None, -2), Place("n", "count", "s", None, -1_000_000, span=True), Place("least", "min", "ts", None, 0),
    Place("at", "rank"), Place("dense", "dense_rank"), Place("last", "last_value", "small", None, -1),
    Place("longest", "max", "s", None, 0), Place("third", "nth_value", "s", None, -1, number=3), Place("whole", "sum", "small", None, 0),
    Place("spread", "stddev", "f", None, 0),
))  # fmt: skip
"""Totals of all rows so far, and ranks."""
SO_FAR_AHEAD = replace(SPANS, places=(
    Place("sum", "sum", "f", None, 2), Place("mean", "avg", "small", None, 700_000, span=True), Place("next", "lead", "s", 1),
    Place("first", "first_value", "f", None, 0, peers=True),
))  # fmt: skip
"""The same with rows that follow."""
AROUND = replace(SPANS, places=(*SPANS_AHEAD.places, *NEIGHBOURS.places))
"""By number and by time."""

PARTS = pa.schema([("k", pa.int64()), ("part__", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())])


class Gathering(Gathered):
    """Parts of the rows of a key: which part a row is, `small` says."""

    def __init__(self) -> None:
        described = GatheredParts("k bigint, s string, f double, b boolean", "part__", (("k", "s"), ("k", "f"), ("k", "b")))
        super().__init__(PARTS, ("k",), described)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        part = rows.batch.column("small").fill_null(0).to_numpy(zero_copy_only=False) % 3
        columns = [pc.if_else(pa.array(part == number), rows.batch.column(name), None) for number, name in enumerate(("s", "f", "b"))]
        made = pa.RecordBatch.from_arrays([rows.batch.column("k"), pa.array(part, pa.int64()), *columns], schema=PARTS)
        return super().process(Rows(made, rows.partition, rows.hash), tick)


SIDES = pa.schema(
    [("key__0", pa.int64()), ("left__", pa.bool_()), ("back__", pa.bool_())]
    + [(f"{side}{at}__", kind) for side in "lr" for at, kind in enumerate((pa.int64(), pa.string(), pa.int64()))]
)


class Pairing(PairUp):
    """A join of such changes with themselves, by their key: those of which `s` is null are the right side."""

    def __init__(self, how: str) -> None:
        columns = [(name, None) for name in ("k", "s", "small")]
        both = [*columns, *((None, name) for name in ("k2", "s2", "small2"))] if how not in ("semi", "anti") else columns
        kinds = ["bigint", "string", "bigint"]
        output = ", ".join(f"{one or other} {kind}" for (one, other), kind in zip(both, kinds * 2, strict=False)) + ", _change string"
        sides = "k bigint, s string, small bigint", "k2 bigint, s2 string, small2 bigint"
        super().__init__(SIDES, ("key__0",), Pairs(output, *sides, how, 1, "l.small + r.small2 > 2", tuple(both)))

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        batch = as_changes(rows).batch
        left = batch.column("s").is_valid()
        back = pc.is_in(batch.column(CHANGE), pa.array(["delete", "update_before"]))
        names = ("k", "s", "small")
        mine = [pc.if_else(left, batch.column(name), None) for name in names]
        theirs = [pc.if_else(left, None, batch.column(name)) for name in names]
        made = pa.RecordBatch.from_arrays([batch.column("k"), left, back, *mine, *theirs], schema=SIDES)
        return super().process(Rows(made, rows.partition, rows.hash), tick)
