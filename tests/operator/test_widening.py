"""A processor's state in a version of it with more fields and wider types: taken over to the last value, or refused with the field."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import make_rows, tick

from evenflow.errors import CheckpointCorrupt
from evenflow.operator.user.declared import Field
from evenflow.operator.user.process import Process
from evenflow.operator.user.widening import Widening, obstacle
from evenflow.processor import Processor
from evenflow.state.changes import TablePart
from evenflow.state.folding import states_of
from evenflow.state.objects import Origin, rewritten, rows_object
from evenflow.stream.digest import digest_of
from evenflow.stream.rows import Rows

PARTITIONS = 4
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
KEYS = ("k", "n")


class Before(Processor):
    """Keeps something in a field of every form. timed: it has a timer, so that its keys are kept, too."""

    output = "k string, what string"

    def __init__(self, *, timed: bool) -> None:
        self.timed = timed

    def open(self, store: Any) -> None:
        store.value("count", "int")
        store.value("last", "string")
        store.value("mean", "float")
        if self.timed:
            store.timer("alarm")
        store.list("seen", "int")
        store.map("times", "int", "int")
        store.value("sum", "decimal(10, 2)")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        for row in rows.to_pylist():
            v = row["v"]
            state.count = (state.count or 0) + 1
            state.last, state.mean = (f"last {v}", v / 2) if v % 3 else (None, None)
            state.seen.append(v)
            state.times[v] = state.times.get(v, 0) + 1
            state.sum = v
            if self.timed:
                state.alarm = row["ts"] + timedelta(days=v)
        return [(key[0], said(state, self.timed))]

    def expired(self, key: tuple[Any, ...], timer: Any, state: Any) -> Any:
        return [(key[0], f"alarm of {key[1]}")]


class After(Before):
    """Other code, and fields between and behind those that were there, which are wider."""

    def open(self, store: Any) -> None:
        store.value("total", "bigint", default=100)
        store.value("count", "bigint")
        store.list("more", "string")
        store.value("last", "string")
        store.value("mean", "double")
        store.value("name", "string", default="nobody")
        if self.timed:
            store.timer("rest", time="processing")
            store.timer("alarm")
        store.list("seen", "bigint")
        store.map("times", "bigint", "bigint")
        store.value("sum", "decimal(20, 4)")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        before = said(state, self.timed)
        yield key[0], f"before {before} {state.total} {list(state.more)} {state.name}"
        state.total += rows.num_rows
        state.count = (state.count or 0) + 2**40
        state.more.append("more")
        yield key[0], f"after {state.count} {state.total} {list(state.more)} {state.name}"


def said(state: Any, timed: bool) -> str:
    fields = [state.count, state.last, state.mean, list(state.seen), dict(state.times), None if state.sum is None else float(state.sum)]
    return str(fields + ([state.alarm] if timed else []))


def rows_of(*given: tuple[str, int, int]) -> Rows:
    columns = [list(column) for column in zip(*given)] if given else [[], [], []]
    columns.append([i * 1_000 for i in range(len(given))])
    return make_rows(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA)], schema=SCHEMA), KEYS, PARTITIONS)


def box(processor: Processor, *, timed: bool) -> Process:
    return Process(KEYS, processor, SCHEMA, "box", False, "ts" if timed else None)


def results(made: tuple[Rows, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in made[0].batch.to_pylist():
        found.setdefault(row["k"], []).append(row["what"])
    return found


def declared(process: Process) -> list[Field]:
    return list(process.fields.values())


def captured(process: Process, number: int) -> list[TablePart]:
    return process.table.capture_changes(number, number, range(PARTITIONS), () if number > 1 else range(PARTITIONS))


@pytest.mark.parametrize("timed", [False, True])
def test_state_is_taken_over_with_fields_that_are_new_and_wider(timed: bool) -> None:
    """Goal: every value that was there is, fields that are new have their defaults, timers come, and it goes on. Method: a base and
    what has changed since, which are written anew."""
    was, now = box(Before(timed=timed), timed=timed), box(After(timed=timed), timed=timed)
    given = [(f"key {i}", i, v) for v, i in enumerate([*range(40), *range(20)])]
    expected = results(was.process(rows_of(*given[:40]), tick(1)))
    widening = Widening.of(declared(was), declared(now), SCHEMA, KEYS)
    assert obstacle(declared(was), declared(now)) is None and widening is not None
    objects, named = {}, []
    for number in (1, 2):
        for at, part in enumerate(captured(was, number)):
            origin = Origin(0, 0, "box", number)
            made = rows_object(origin, part.rows(), part.types, lambda: None)
            name = f"{number}-{at}"
            objects[name] = rewritten(name, made.data, Origin(3, 1, "box", number), widening.widened)
            named.append((name, digest_of(objects[name])))
        was.table.lineages.complete(number)
        if number == 1:
            expected |= results(was.process(rows_of(*given[40:]), tick(2)))
    for partition, state in states_of(named, Origin(3, 1, "box", 2), range(PARTITIONS), objects.__getitem__).items():
        now.install(partition, bytes(state))
    found = results(now.process(rows_of(*[(f"key {i}", i, 1) for i in range(41)]), tick(3)))
    for i in range(40):
        assert found[f"key {i}"][0] == f"before {expected[f'key {i}'][0]} 100 [] nobody"
        count = 2**40 + (2 if i < 20 else 1)
        assert found[f"key {i}"][1] == f"after {count} 101 ['more'] nobody"
    assert found["key 40"][0].startswith("before [None, None, None, [], {}")
    if timed:
        late = results(now.process(rows_of(), tick(4, watermark=10**14)))
        assert all(f"alarm of {i}" in late[f"key {i}"] for i in range(40)), "the timers that were set come, with their keys"


def test_rows_of_another_table_are_no_rows_of_these_fields() -> None:
    was, now = box(Before(timed=False), timed=False), box(After(timed=False), timed=False)
    was.process(rows_of(("a", 1, 1)), tick(1))
    made = rows_object(Origin(0, 0, "box", 1), captured(was, 1)[0].rows(), was.table.object_types, lambda: None)
    other = Widening.of([*declared(was), *[Field(f"more_{i}", "value", pa.int64()) for i in range(9)]], declared(now), SCHEMA, KEYS)
    assert other is not None and Widening.of(declared(was), declared(was), SCHEMA, KEYS) is None
    with pytest.raises(CheckpointCorrupt, match="object 'o' with the state of box 'box' cannot be restored: ValueError: its rows have"):
        rewritten("o", made.data, Origin(0, 0, "box", 1), other.widened)


STAMP = pa.timestamp("us")
FIELDS = [
    Field("n", "value", pa.int32()),
    Field("seen", "list", pa.float32()),
    Field("by", "map", pa.string(), pa.int64()),
    Field("t", "timer", STAMP),
]


@pytest.mark.parametrize(
    ("at", "field", "why"),
    [
        (0, None, "its state field 'n' is gone"),
        (0, Field("n", "value", pa.int16()), "its state field 'n': was int32, is int16; a wider type"),
        (0, Field("n", "value", pa.string()), "its state field 'n': was int32, is string"),
        (0, Field("n", "value", pa.float64()), "its state field 'n': was int32, is double"),
        (0, Field("n", "list", pa.int32()), "its state field 'n' was a value, and is a list"),
        (2, Field("by", "map", pa.string(), pa.string()), "the keys of its state field 'by': was int64, is string"),
        (3, Field("t", "timer", pa.timestamp("us", "UTC")), "its state field 't': was"),
    ],
)
def test_all_else_is_refused_with_the_field(at: int, field: Field | None, why: str) -> None:
    now = [each for each in [*FIELDS[:at], field, *FIELDS[at + 1 :]] if each is not None]
    found = obstacle(FIELDS, now)
    assert found is not None and found.startswith(why), found
    assert obstacle(FIELDS, [Field("first", "value", pa.string()), *FIELDS, Field("other", "timer", STAMP)]) is None


def test_a_timer_cannot_come_where_keys_were_not_kept() -> None:
    found = obstacle(FIELDS[:3], FIELDS)
    assert found == "its timer 't' is given the key, and a state without timers has not kept the keys' columns"
