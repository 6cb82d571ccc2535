"""Lookups at a real web service that is slow, down, talks nonsense and hangs up; and functions that do what functions do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, QueryError, TypeMismatch, UnknownColumn
from evenflow.operator.user.lookup import Lookup
from evenflow.query.effects import check_runs_once
from evenflow.query.export import to_python
from evenflow.query.planner import layout
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.world.sim.world import SimWorld
from tests.services.server import Service, service

SCHEMA = pa.schema([("id", pa.int64()), ("path", pa.string())])
PARAMS = {
    "output": "name string, times int", "on": ("path",), "concurrency": 4, "timeout_us": 5_000_000, "retries": 0, "backoff_us": 0,
    "batch": None, "cache_us": 0, "cache_size": 100, "nulls": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def web() -> Iterator[Service]:
    with service(together=4) as found:
        yield found


@pytest.fixture
def fresh() -> Iterator[Service]:
    with service() as found:
        yield found


def box(function: Callable[..., Any], **params: Any) -> Lookup:
    return Lookup(SCHEMA, function=function, **{**PARAMS, **params})


def rows(*paths: str | None) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(paths)), pa.int64()), pa.array(paths, pa.string())], schema=SCHEMA)
    return Rows(batch, np.arange(len(paths), dtype=np.int32) % 3)


def tick(epoch: int, stamp: int | None = None) -> Tick:
    return Tick(epoch, epoch if stamp is None else stamp, 0, 0)


def told(found: Rows) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.batch.to_pylist()]


# ---------------------------------------------------------------- a service


def test_each_row_has_its_answer_in_order(web: Service) -> None:
    (out,) = box(web.get).process(rows("a", None, "b", "a"), tick(1))
    assert told(out) == [(0, "a", "a", 1), (1, None, None, None), (2, "b", "b", 1), (3, "a", "a", 1)]
    assert out.partition.tolist() == [0, 1, 2, 0]
    assert web.asked["/a"] == web.asked["/b"] == 1


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_so_many_calls_are_under_way_and_no_more(web: Service, kind: str) -> None:
    async def fetch(path: str) -> Any:
        return await asyncio.to_thread(web.get, path)

    web.most = 0
    paths = [f"meet/{kind}{number}" for number in range(12)]
    (out,) = box(web.get if kind == "plain" else fetch).process(rows(*paths), tick(1))  # The service answers four at a time only.
    assert [row[2] for row in told(out)] == [f"meet {path[5:]}" for path in paths] and web.most == 4


def test_what_fails_is_tried_again(fresh: Service) -> None:
    (out,) = box(fresh.get, retries=2).process(rows("third/x"), tick(1))
    assert told(out) == [(0, "third/x", "third x", 3)]
    with pytest.raises(BoxFailed, match="has no answer for 'third/y' in 2 tries") as found:
        box(fresh.get, retries=1).process(rows("third/y"), tick(7))
    assert found.value.epoch == 7 and "HTTP Error 503" in found.value.user_traceback and "server.py" in found.value.user_traceback


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("down/1", "HTTPError: HTTP Error 503"), ("close/1", "RemoteDisconnected"), ("cut/1", "IncompleteRead"),
        ("garbage/1", "JSONDecodeError"),
    ],
)  # fmt: skip
def test_a_service_that_is_not_well(web: Service, path: str, says: str) -> None:
    with pytest.raises(BoxFailed, match=f"has no answer for '{path}' in epoch 1"):
        box(web.get).process(rows("fine", path), tick(1))
    (out,) = box(web.get, nulls=True).process(rows("fine", path), tick(1))
    assert [row[:3] for row in told(out)] == [(0, "fine", "fine"), (1, path, None)]
    skipping = box(web.get, on_error="skip", dead_letters=True)
    out, dead = skipping.process(rows(path, "fine", path), tick(1))
    assert [row[:3] for row in told(out)] == [(1, "fine", "fine")] and out.partition.tolist() == [1]
    assert [row[:2] for row in told(dead)] == [(0, path), (2, path)] and all(row[2].startswith(says) for row in told(dead))
    assert skipping.failed == (0, 2)


def test_nobody_listens() -> None:
    with service() as gone:
        pass
    out, dead = box(gone.get, on_error="skip", dead_letters=True, retries=1).process(rows("x"), tick(1))
    assert out.count == 0 and "Connection refused" in told(dead)[0][2]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_slow_service_is_given_up(fresh: Service, kind: str) -> None:
    async def fetch(path: str) -> Any:
        return await asyncio.to_thread(fresh.get, path)

    slow = box(fresh.get if kind == "plain" else fetch, timeout_us=80_000, nulls=True)
    (out,) = slow.process(rows("slow/1", "quick"), tick(1))
    assert [row[:3] for row in told(out)] == [(0, "slow/1", None), (1, "quick", "quick")]
    with pytest.raises(BoxFailed, match=r"TimeoutError: no answer within 0\.08 s"):
        box(fresh.get, timeout_us=80_000).process(rows("slow/2"), tick(1))


def test_a_service_that_never_answers_costs_its_threads_and_no_more(fresh: Service) -> None:
    slow, before = box(fresh.get, timeout_us=50_000, nulls=True, concurrency=2), threading.active_count()
    for epoch in range(1, 4):
        (out,) = slow.process(rows("slow/1", "slow/2", "slow/3"), tick(epoch))
        assert [row[2] for row in told(out)] == [None] * 3
    assert sum(fresh.asked.values()) == 2 and threading.active_count() <= before + 3 + 2  # Of the box; of the service.
    fresh.gate.set()  # Now it answers, and the threads come back.
    slow._calls._manner = box(fresh.get)._calls._manner
    assert told(slow.process(rows("slow/4"), tick(9))[0]) == [(0, "slow/4", "slow 4", 1)]


def test_after_a_failure_no_more_is_asked(fresh: Service) -> None:
    with pytest.raises(BoxFailed):
        box(fresh.get, concurrency=1).process(rows("a", "down", "b", "c"), tick(1))
    assert set(fresh.asked) == {"/a", "/down"}


# ---------------------------------------------------------------- the function


def failing(key: str) -> Any:
    raise LookupError("never heard of it")


def stopping(key: str) -> Any:
    raise StopIteration


def leaving(key: str) -> Any:
    raise SystemExit(3)


def test_a_function_that_raises() -> None:
    with pytest.raises(BoxFailed, match="LookupError: never heard of it") as found:
        box(failing).process(rows("x"), tick(1))
    assert "in failing" in found.value.user_traceback
    with pytest.raises(BoxFailed, match="StopIteration"):
        box(stopping).process(rows("x"), tick(1))


@pytest.mark.parametrize("policy", [{}, {"nulls": True}, {"on_error": "skip"}])
def test_what_ends_the_process_is_no_fault_of_a_row(policy: dict[str, Any]) -> None:
    with pytest.raises(SystemExit):
        box(leaving, retries=5, **policy).process(rows("x"), tick(1))


@pytest.mark.parametrize(
    "answer",
    [
        {"name": "x"}, {"name": "x", "times": 1, "more": 2}, ("x",), ("x", 1, 2), "x", 7, ("x", "many"), ("x", 1.5), (5, 1), ("x", 2**40),
        object(),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit(answer: Any) -> None:
    asked = []

    def fetch(path: str) -> Any:
        asked.append(path)
        return answer

    with pytest.raises(BoxFailed, match="declares output = 'name string, times int'"):
        box(fetch, retries=3).process(rows("x"), tick(1))
    assert len(asked) == 1  # It would not fit the second time.
    (out,) = box(fetch, nulls=True).process(rows("x"), tick(1))
    assert told(out) == [(0, "x", None, None)]


@pytest.mark.parametrize(
    ("output", "answer", "values"),
    [
        ("n int", 7, (7,)), ("n int", {"n": 7}, (7,)), ("n array<int>", [1, 2], ([1, 2],)), ("n int", None, (None,)),
        ("s struct<a: int>", {"a": 1}, ({"a": 1},)), ("s struct<a: int>", {"s": {"a": 1}}, ({"a": 1},)),
        ("a int, b string", [1, None], (1, None)), ("a int, b string", {"b": "x", "a": 1}, (1, "x")),
    ],
)  # fmt: skip
def test_answers_may_be_what_is_natural(output: str, answer: Any, values: tuple[Any, ...]) -> None:
    (out,) = box(lambda path: answer, output=output).process(rows("x"), tick(1))
    assert told(out) == [(0, "x", *values)]


def test_a_function_that_returns_a_coroutine_is_awaited() -> None:
    async def fetch(path: str) -> tuple[str, int]:
        return path, 1

    (out,) = box(lambda path: fetch(path)).process(rows("x"), tick(1))
    assert told(out) == [(0, "x", "x", 1)]


def test_several_keys_a_call() -> None:
    asked: list[list[str]] = []

    def fetch(paths: list[str]) -> Any:
        asked.append(paths)
        return {path: (path, len(paths)) for path in paths if path != "c"}

    (out,) = box(fetch, batch=2, concurrency=1).process(rows("a", "b", "c", "a"), tick(1))
    assert asked == [["a", "b"], ["c"]]
    assert [row[2:] for row in told(out)] == [("a", 2), ("b", 2), (None, None), ("a", 2)]
    two = box(lambda keys: [(path, at) for at, path in keys], batch=10, on=("id", "path"))
    assert [row[2:] for row in told(two.process(rows("a", "b"), tick(1))[0])] == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("answers", [[], [("a", 1)], "ab", None, 7])
def test_answers_that_are_not_one_for_each_key(answers: Any) -> None:
    with pytest.raises(BoxFailed, match="for 2 keys: return a list with an answer for each of them"):
        box(lambda paths: answers, batch=2).process(rows("a", "b"), tick(1))


def test_answers_are_good_for_a_while() -> None:
    asked: list[str] = []

    def fetch(path: str) -> Any:
        asked.append(path)
        return None if path == "none" else (path, len(asked))

    kept = box(fetch, cache_us=100, cache_size=2, concurrency=1)
    for stamp, path, times in ((0, "a", 1), (99, "a", 1), (100, "a", 2), (101, "none", None), (102, "none", None), (150, "a", 2)):
        assert told(kept.process(rows(path), tick(1, stamp))[0])[0][3] == times
    assert asked == ["a", "a", "none"]
    kept.process(rows("b"), tick(1, 151))  # The one that was not used for longest goes.
    kept.process(rows("a", "none"), tick(1, 152))
    assert asked == ["a", "a", "none", "b", "none"]
    kept.process(rows("b"), tick(1, 10))  # Its stamp is not over yet, and not now: another leader's clock.
    assert asked[-1] == "b"


def test_a_failure_is_not_kept(fresh: Service) -> None:
    kept = box(fresh.get, cache_us=1000, nulls=True)
    assert [told(kept.process(rows("third/x"), tick(epoch))[0])[0][3] for epoch in range(1, 5)] == [None, None, 3, 3]


# ---------------------------------------------------------------- drawing


def stream() -> ef.Stream:
    return ef.Dataflow("orders").source(ef.sources.memory(pa.table({"id": [1, 2], "l": [[1], [2]]})))


def known(key: int) -> tuple[str, int]:
    return f"no {key}", key


async def awaited(key: int) -> str:
    return str(key)


def yields(key: int) -> Iterator[int]:
    yield key


@pytest.mark.parametrize("output", ["name string, n int", pa.schema([("name", pa.string()), ("n", pa.int32())])])
def test_it_is_drawn_saved_and_written(output: Any) -> None:
    made = stream().lookup(known, output, on="id", concurrency=3, timeout="1 second", batch=5, cache="1 minute", on_error="null")
    assert made.schema.names == ["id", "l", "name", "n"] and made.box.name == "lookup"
    made.to(ef.sinks.discard())
    text = made.flow.to_text()
    assert "known() of id, 3 at a time, 1 s each, 5 keys a call, answers kept for 1 min, nulls where there is no answer" in text
    again = ef.Dataflow.from_json(made.flow.to_json(), modules=[__name__])
    assert again.network.box("lookup") == made.box
    assert ".lookup(known, " in to_python(made.flow.network)


def test_what_spark_calls_a_schema() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    schema = types.StructType([types.StructField("name", types.StringType()), types.StructField("n", types.IntegerType())])
    assert stream().lookup(known, schema, on="id").schema.field("n").type == pa.int32()


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"concurrency": 0}, QueryError, "concurrency is a whole number from 1"),
        ({"concurrency": 2.5}, QueryError, "concurrency is a whole number"),
        ({"timeout": "-1 second"}, QueryError, "is not a span of time"),
        ({"timeout": "0 seconds"}, QueryError, "timeout is a time that is more than nothing"),
        ({"retries": -1}, QueryError, "retries is a whole number from 0"),
        ({"batch": 0}, QueryError, "batch is a whole number from 1"),
        ({"cache_size": 0}, QueryError, "cache_size is a whole number from 1"),
        ({"on_error": "ignore"}, QueryError, "on_error is 'fail', 'null' or 'skip'"),
        ({"on": "nothing"}, UnknownColumn, "no column 'nothing'"),
        ({"on": ()}, QueryError, "does not say what is looked up"),
        ({"on": "l"}, TypeMismatch, "cannot look up by 'l'"),
        ({"output": "id int"}, QueryError, "call a column of the answer something else"),
        ({"output": ""}, QueryError, "schema is an empty text"),
        ({"function": 7}, QueryError, "takes a function of a key, not 7"),
        ({"function": yields}, QueryError, "yields"),
        ({"deterministic": 1}, QueryError, "deterministic is true or false"),
    ],
)  # fmt: skip
def test_what_is_refused(wrong: dict[str, Any], kind: type[QueryError], says: str) -> None:
    given: dict[str, Any] = {"function": known, "output": "name string, n int", "on": "id", **wrong}
    with pytest.raises(kind, match=says):
        stream().lookup(given.pop("function"), given.pop("output"), **given)


def test_a_coroutine_is_not_a_function() -> None:
    with pytest.raises(QueryError, match="give the function itself, awaited"):
        stream().lookup(awaited(1), "name string", on="id")


def test_other_boxes_wait_for_nothing() -> None:
    with pytest.raises(QueryError, match="is async"):
        stream().flat_map(awaited, "name string")
    with pytest.raises(QueryError, match="is async"):
        ef.udf(awaited, "string")
    with pytest.raises(QueryError, match="is async"):
        ef.expr("f(id)", f=awaited)


def test_changes_are_not_looked_up() -> None:
    changes = stream().group_by("id").agg(n="count(*)", mode="changelog")
    with pytest.raises(QueryError, match="may get another answer"):
        changes.lookup(known, "name string, m int", on="id")


# ---------------------------------------------------------------- running


def test_it_runs_with_dead_letters_and_what_is_behind(web: Service) -> None:
    paths = [f"{what}/{number}" for number in range(10) for what in ("fine", "down")]
    flow = ef.Dataflow("orders")
    found = flow.source(ef.sources.memory(pa.table({"path": paths}))).lookup(web.get, "name string, times int", on="path", on_error="skip")
    found.group_by("times").agg(n="count(*)", least="min(name)").to(ef.sinks.memory("out"), name="out")
    found.dead_letters().to(ef.sinks.memory("dead"), name="dead")
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=1)
    world.run_until_quiet()
    assert sum(row["n"] for row in world.output("out").to_pylist()[-1:]) == 10
    assert {row["path"] for row in world.output("dead").to_pylist()} == {path for path in paths if path.startswith("down")}


class Dice(ef.Processor):
    output = "id bigint, thrown bigint"
    deterministic = False

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        yield key[0], 4


def test_who_would_be_asked_again() -> None:
    made = stream().lookup(known, "name string, n int", on="id")
    check_runs_once(made.flow.network, 3, None)
    with pytest.raises(QueryError, match="'lookup': a restart at its location would ask again"):
        check_runs_once(made.flow.network, 1, "/tmp/location")
    with pytest.raises(QueryError, match="'lookup': each region of the group would ask by itself"):
        check_runs_once(made.flow.network, 1, None, regions=True)
    stays = stream().lookup(known, "name string, n int", on="id", deterministic=True)
    check_runs_once(stays.flow.network, 3, "/tmp/location")
    check_runs_once(stream().flat_map(len, "n bigint").flow.network, 3, "/tmp/location")
    thrown = stream().key_by("id").process(Dice())
    check_runs_once(thrown.flow.network, 1, None)
    with pytest.raises(QueryError, match=r"'Dice': its state follows from what it was told, .*ask before it, in \.lookup"):
        check_runs_once(thrown.flow.network, 2, None)


def test_where_nobody_leads_nobody_asks() -> None:
    """A lookup is refused where sources are cut by content."""
    flow = ef.Dataflow("orders")
    source = ef.sources.generator(rows=10, rate=10).begun(1_000_000)
    made = flow.source(source, cut="content", width_ms=5.0).lookup(known, "name string, n int", on="key")
    made.to(ef.sinks.discard())
    with pytest.raises(QueryError, match="where sources are cut by content nobody leads"):
        layout(flow.network, sites=2)


def test_functions_that_return_something_else_each_time_are_called_once() -> None:
    """A flat_map that says so runs with replicas, and all have what the leader's call gave."""
    calls = []

    def stamped(batch: pa.RecordBatch) -> Any:
        calls.append(batch.num_rows)
        return {"id": batch["id"], "call": [len(calls)] * batch.num_rows}, range(batch.num_rows)

    flow = ef.Dataflow("orders")
    rows = pa.table({"id": list(range(100))})
    made = flow.source(ef.sources.memory(rows)).flat_map(stamped, "id bigint, call bigint", deterministic=False)
    made.to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, replicas=3)
    world.run_until_quiet()
    assert sorted(world.output("out").column("id").to_pylist()) == list(range(100)) and sum(calls) == 100
