"""Process: processors against plain Python, any cut into epochs, any placement, moved at any time, verified."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import NondeterministicBox, QueryError, TypeMismatch
from evenflow.kernels.hash import hash_columns
from evenflow.operator.user.process import VERIFY_EVERY, VERIFY_FIRST, Process
from evenflow.processor import BatchProcessor, Processor
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.string()), ("d", pa.float64()), ("x", pa.int64())])
NAN = float("nan")


def rows_of(values: list[tuple[Any, ...]], partitions: int = 4, keys: tuple[str, ...] = ("k", "d")) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array([v[i] for v in values], f.type) for i, f in enumerate(SCHEMA)], schema=SCHEMA)
    hashes = hash_columns(batch, keys)
    return Rows(batch, (hashes % np.uint64(partitions)).astype(np.int32), hashes)


def tick(epoch: int) -> Tick:
    return Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK)


class Everything(Processor):
    """Uses every kind of field and emits a row per input row."""

    output = "k string, d double, x bigint, total bigint, mean double, seen string, most bigint"

    def open(self, store: Any) -> None:
        store.value("total", "bigint", default=0)
        store.value("mean", "double")
        store.value("last", "string")
        store.list("xs", "bigint")
        store.map("times", "bigint", "int")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for x in rows.column("x").to_pylist():
            if x == 9:
                del state.total
                state.mean = state.last = None
                state.xs.clear()
                state.times = {}
                continue
            state.total += x
            state.xs.append(x)
            state.times[x] = state.times.get(x, 0) + 1
            state.mean = state.total / len(state.xs)
            state.last = (state.last or "") + str(x)
            yield (*key, x, state.total, state.mean, state.last, max(state.times, key=lambda v: (state.times[v], v)))


def everything(xs: list[int]) -> list[tuple[Any, ...]]:
    """What `Everything` should emit for one key."""
    out: list[tuple[Any, ...]] = []
    held: list[int] = []
    for x in xs:
        if x == 9:
            held = []
            continue
        held.append(x)
        most = max(set(held), key=lambda v: (held.count(v), v))
        out.append((x, sum(held), sum(held) / len(held), "".join(map(str, held)), most))
    return out


class Sums(BatchProcessor):
    """The running total and the previous value of each key at its last row, vectorised; purges at 9."""

    output = "k string, d double, total bigint, before string, since timestamp"

    def open(self, store: Any) -> None:
        store.value("total", "bigint", default=0)
        store.value("before", "string")
        store.value("since", pa.timestamp("us"))

    def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> Any:
        x = rows.column("x").to_numpy()
        totals = state.total.get() + np.add.reduceat(x, groups.starts)
        before, since = state.before.get(), state.since.get()
        last = x[groups.last]
        state.total.put(totals)
        state.before.put([str(v) for v in last], last != 8)
        state.since.put(totals.astype("datetime64[us]"), ~state.since.exists())
        purge = np.maximum.reduceat(x, groups.starts) == 9
        for field in (state.total, state.before, state.since):
            field.clear(purge)
        out = rows.select(["k", "d"]).take(pa.array(groups.last))
        made = {"k": out["k"], "d": out["d"], "total": totals, "before": pa.array(before, pa.string()), "since": since}
        return made, groups.last


value = st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([0.0, -0.0, 1.5, NAN, None]), st.integers(0, 9))
epochs = st.lists(st.lists(value, max_size=15), max_size=8)


def canonical(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if v != v else v + 0.0 if isinstance(v, float) else v for v in key)


@settings(max_examples=80, deadline=None)
@given(epochs=epochs)
def test_per_key_style_equals_python(epochs: list[list[tuple[Any, ...]]]) -> None:
    operator, inputs = Process(("k", "d"), Everything(), SCHEMA, "all", verify=True), defaultdict(list)
    found: dict[Any, list[Any]] = defaultdict(list)
    for number, values in enumerate(epochs, 1):
        for v in values:
            inputs[canonical(v[:2])].append(v[2])
        made, late = operator.process(rows_of(values), tick(number))
        assert late.count == 0
        for row in zip(*(column.to_pylist() for column in made.batch.columns), strict=True):
            found[canonical(row[:2])].append(row[2:])
    assert dict(found) == {key: everything(xs) for key, xs in inputs.items() if everything(xs)}


@pytest.mark.parametrize("processor", [Everything, Sums])
@settings(max_examples=60, deadline=None)
@given(epochs=epochs, moves=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), max_size=6))
def test_placement_and_moves_are_invisible(
    processor: type[Processor], epochs: list[list[tuple[Any, ...]]], moves: list[tuple[int, int]]
) -> None:
    alone = Process(("k", "d"), processor(), SCHEMA, verify=False)
    sites, home = [Process(("k", "d"), processor(), SCHEMA, verify=False) for _ in range(2)], {p: p % 2 for p in range(4)}
    for number, values in enumerate(epochs, 1):
        rows = rows_of(values)
        (want, _), got = alone.process(rows, tick(number)), {}
        for site, operator in enumerate(sites):
            mine = np.flatnonzero(np.array([home[p] == site for p in rows.partition.tolist()], bool))
            got[site] = operator.process(rows.take(mine), tick(number))[0]
        for p in range(4):
            assert lines(got[home[p]], p) == lines(want, p)
        for at, p in moves:
            if at == number:
                source, target = sites[home[p]], sites[1 - home[p]]
                snapshot, reference = source.capture(p), alone.capture(p)
                source.drop(p)
                assert (snapshot is None) == (reference is None)
                if snapshot is not None and reference is not None:
                    assert snapshot.to_bytes() == reference.to_bytes()
                    target.install(p, snapshot.to_bytes())
                home[p] = 1 - home[p]


def lines(rows: Rows, partition: int) -> list[str]:
    mine = rows.take(np.flatnonzero(rows.partition == partition))
    return [repr(row) for row in zip(*(column.to_pylist() for column in mine.batch.columns), strict=True)]


@settings(max_examples=40, deadline=None)
@given(values=st.lists(value, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_rows_of_a_key_may_be_cut_anywhere(values: list[tuple[Any, ...]], cuts: list[int]) -> None:
    def run(points: list[int]) -> dict[Any, list[Any]]:
        operator, found = Process(("k", "d"), Everything(), SCHEMA), defaultdict(list)
        for number, (a, b) in enumerate(zip([0, *points], [*points, len(values)], strict=True), 1):
            made = operator.process(rows_of(values[a:b]), tick(number))[0]
            for row in zip(*(column.to_pylist() for column in made.batch.columns), strict=True):
                found[canonical(row[:2])].append(row[2:])
        return dict(found)

    assert run(sorted(min(cut, len(values)) for cut in cuts)) == run([])


def test_batch_output_is_ordered_by_the_input_rows_it_answers() -> None:
    class Echo(BatchProcessor):
        output = "x bigint"

        def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> Any:
            at = np.arange(rows.num_rows)[::-1].copy()
            return {"x": rows.column("x").to_numpy()[at]}, at

    made = Process(("k", "d"), Echo(), SCHEMA).process(rows_of([("ab"[i % 2], 0.0, i) for i in range(9)], 1), tick(1))[0]
    assert made.batch.column(0).to_pylist() == list(range(9))


def test_snapshot_is_of_its_epoch() -> None:
    operator = Process(("k", "d"), Everything(), SCHEMA)
    operator.process(rows_of([("a", 0.0, 1), ("gone", 0.0, 3)], 1), tick(1))
    at_once, later = operator.capture(0), operator.capture(0)
    assert at_once is not None
    assert later is not None
    before = at_once.to_bytes()
    operator.process(rows_of([("a", 0.0, 2), ("gone", 0.0, 9), ("b", 0.0, 2)], 1), tick(2))
    operator.process(rows_of([("a", 0.0, 9), ("a", 0.0, 4), ("c", 0.0, 2)], 1), tick(3))
    assert later.to_bytes() == before
    again = Process(("k", "d"), Everything(), SCHEMA)
    again.install(0, before)
    made = again.process(rows_of([("a", 0.0, 5)], 1), tick(2))[0]
    assert made.batch.to_pylist()[0]["total"] == 6


class InPlace(Processor):
    """Counts the rows of a key in structures, which it changes in place. It raises where x is -1."""

    output = "k string, one bigint, many bigint, named bigint"

    def open(self, store: Any) -> None:
        store.value("one", "struct<n:bigint>", default={"n": 0})
        store.list("many", "struct<n:bigint>")
        store.map("named", "string", "struct<n:bigint>")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        if not state.many:
            state.many.append({"n": 0})
        counts = state.one, state.many[0], state.named.setdefault("x", {"n": 0})
        for count in counts:
            count["n"] += rows.num_rows
        if -1 in rows.column("x").to_pylist():
            raise LookupError("no")
        return [(key[0], *(count["n"] for count in counts))]


@pytest.mark.parametrize("verify", [True, False])
def test_structures_that_are_changed_in_place_are_of_their_epoch(verify: bool) -> None:
    operator = Process(("k", "d"), InPlace(), SCHEMA, verify=verify)

    def counted(operator: Process, n: int, epoch: int) -> list[tuple[Any, ...]]:
        made = operator.process(rows_of([("a", 0.0, 1), ("b", 0.0, 1)][: 1 + epoch // 2] * n, 1), tick(epoch))[0]
        return [tuple(row.values()) for row in made.batch.to_pylist()]

    assert counted(operator, 1, 1) == [("a", 1, 1, 1)]
    snapshot = operator.capture(0)
    assert snapshot is not None
    with pytest.raises(LookupError):
        operator.process(rows_of([("a", 0.0, -1)], 1), tick(2))
    expected = [("a", 11, 11, 11), ("b", 10, 10, 10)]
    assert counted(operator, 10, 2) == expected
    again = Process(("k", "d"), InPlace(), SCHEMA, verify=verify)
    again.install(0, snapshot.to_bytes())
    assert counted(again, 10, 2) == expected


class Random(Processor):
    output = "r double"

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        return [(random.random(),)]


class Counting(Processor):
    """Counts its calls on itself, which is not state."""

    output = "x bigint"
    calls = 0

    def open(self, store: Any) -> None:
        store.value("calls", "bigint")

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        self.calls += 1
        state.calls = self.calls


def test_nondeterminism_is_found() -> None:
    with pytest.raises(NondeterministicBox, match=r"'dice'.*epoch 7.*\n.*column 'r'"):
        Process(("k",), Random(), SCHEMA, "dice").process(rows_of([("a", 0.0, 1)]), tick(7))
    with pytest.raises(NondeterministicBox, match=r"field 'calls' of key \('a',\): 1 and then 2"):
        Process(("k",), Counting(), SCHEMA, "dice").process(rows_of([("a", 0.0, 1)]), tick(7))


def calls_in(verify: bool | None, deterministic: bool, epochs: int) -> list[int]:
    class Spy(Processor):
        output = "x bigint"
        seen: ClassVar[list[int]] = []

        def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
            Spy.seen.append(rows.column("x")[0].as_py())

    Spy.deterministic = deterministic
    operator = Process(("k",), Spy(), SCHEMA, verify=verify)
    for epoch in range(1, epochs + 1):
        operator.process(rows_of([("a", 0.0, epoch)] if epoch != 2 else []), tick(epoch))
    return [epoch for epoch in range(1, epochs + 1) if Spy.seen.count(epoch) == 2]


def test_when_a_box_is_verified() -> None:
    assert calls_in(None, True, 2 * VERIFY_EVERY + 1) == [1, *range(3, VERIFY_FIRST + 2), VERIFY_EVERY, 2 * VERIFY_EVERY]
    assert calls_in(None, False, 70) == []
    assert calls_in(False, True, 70) == []
    assert calls_in(True, True, 5) == [1, 3, 4, 5]


def test_a_failed_call_leaves_no_trace_in_the_state() -> None:
    class Fails(Processor):
        output = "total bigint"

        def open(self, store: Any) -> None:
            store.value("total", "bigint", default=0)

        def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
            state.total += sum(rows.column("x").to_pylist())
            if state.total > 100:
                raise RuntimeError("too much")
            return [(state.total,)]

    operator = Process(("k",), Fails(), SCHEMA, "limit")
    operator.process(rows_of([("a", 0.0, 1)], 1), tick(1))
    with pytest.raises(RuntimeError, match="too much") as caught:
        operator.process(rows_of([("b", 0.0, 1), ("a", 0.0, 100)], 1), tick(2))
    assert caught.value.__notes__ == ["box 'limit' was processing the key {'k': 'a'}"]
    made = operator.process(rows_of([("a", 0.0, 2), ("b", 0.0, 2)], 1), tick(2))[0]
    assert made.batch.column(0).to_pylist() == [3, 2]


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_batches_come_as_asked_and_any_frame_may_be_returned(kind: Any) -> None:
    class Framed(Processor):
        output = "k string, x int"
        batch = kind

        def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
            assert type(rows).__module__.split(".")[0] == {"arrow": "pyarrow"}.get(kind, kind)
            return rows.select(["x", "k"]) if kind != "pandas" else rows[["x", "k"]]

    made = Process(("k",), Framed(), SCHEMA).process(rows_of([("a", 0.0, 1), ("b", 0.0, 2), ("a", 0.0, 3)], 1), tick(1))[0]
    assert made.batch.to_pylist() == [{"k": "a", "x": 1}, {"k": "a", "x": 3}, {"k": "b", "x": 2}]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ([(1, 2)], "row .1, 2."),
        ([{"y": 1}], "columns y"),
        ({"x": ["a"]}, "'x'"),
        ({"x": pa.array(["a"])}, "came as string, but is declared bigint"),
        ({"x": np.array([1.5])}, "without loss"),
        ({"x": [1, 2.5]}, "2.5 would become 2"),
        ({"x": [1], "y": [2]}, "columns x, y"),
        (7, "int, not rows"),
        ("ab", "str, not rows"),
    ],
)
def test_output_must_be_as_declared(returned: Any, says: str) -> None:
    class Wrong(Processor):
        output = "x bigint"

        def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
            return returned

    with pytest.raises(TypeMismatch, match=says) as caught:
        Process(("k",), Wrong(), SCHEMA, "wrong").process(rows_of([("a", 0.0, 1)]), tick(1))
    assert "'wrong'" in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"x": [1]}, "returns None or"),
        (({"x": [1]}, [2]), "outside 0 to 1"),
        (({"x": [1]}, [0, 1]), "2 values for 1 rows"),
        (({"x": [1]}, [0.5]), "double"),
        (({"x": [1, 2], "y": [1]}, [0]), "columns x, y"),
    ],
)
def test_batch_output_must_say_what_it_answers(returned: Any, says: str) -> None:
    class Wrong(BatchProcessor):
        output = "x bigint"

        def process(self, rows: Any, groups: Any, state: Any) -> Any:
            return returned

    with pytest.raises(TypeMismatch, match=says) as caught:
        Process(("k",), Wrong(), SCHEMA, "wrong").process(rows_of([("a", 0.0, 1), ("a", 0.0, 1)]), tick(1))
    assert "'wrong'" in str(caught.value)


def test_a_kept_key_keeps_its_hash_and_is_checked() -> None:
    class Keeps(Processor):
        output = "k string, n bigint"
        keeps_key = True

        def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
            return [(key[0] if key[0] != "liar" else "honest", rows.num_rows)]

    operator, rows = Process(("k",), Keeps(), SCHEMA, "kept"), rows_of([("a", 0.0, 1), (None, 0.0, 1)], keys=("k",))
    made = operator.process(rows, tick(1))[0]
    assert made.hash is not None
    assert rows.hash is not None
    assert made.hash.tolist() == rows.hash.tolist()
    with pytest.raises(TypeMismatch, match="'kept' says keeps_key"):
        operator.process(rows_of([("liar", 0.0, 1)], keys=("k",)), tick(2))


def test_says_what_is_wrong_when_built() -> None:
    class Silent(Processor):
        pass

    with pytest.raises(QueryError, match="'b'.*Silent declares no output"):
        Process(("k",), Silent(), SCHEMA, "b")
    with pytest.raises(QueryError, match=r"pass an instance, Everything\(\)"):
        Process(("k",), Everything, SCHEMA, "b")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="not a processor"):
        Process(("k",), object(), SCHEMA, "b")  # type: ignore[arg-type]
