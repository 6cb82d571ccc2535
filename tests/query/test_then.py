"""What may come after what, and how it is drawn."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, SourceError
from evenflow.query.planner import layout
from evenflow.query.structure import as_before, structure
from evenflow.sources import from_json
from evenflow.sources.kafka import KafkaSource
from evenflow.sources.pushed import SparkSource
from evenflow.sources.replay import ReplaySource
from evenflow.sources.source import place
from evenflow.sources.then import POSITION, SECOND, AfterSource, ChainSource

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64())])


def rows(*keys: int, ended: bool = True, parts: int = 1) -> Any:
    batch = pa.record_batch([list(keys), [10 * k for k in keys]], schema=SCHEMA)
    return ef.sources.memory([[batch]] * parts, ended=ended)


def batch_of_spark(endless: bool = False) -> SparkSource:
    return SparkSource(SCHEMA, endless)


def read_all(source: ChainSource, partition: int, of: int, position: int = 0) -> list[tuple[int, int]]:
    reader, found = place(source.open(partition, of), position), []
    while not reader.ended:
        batch = reader.read(0, 2)
        if batch is not None:
            found += [(row["k"], row[POSITION]) for row in batch.to_pylist()]
    return found


def test_each_row_says_where_it_is_and_a_reader_goes_on_there() -> None:
    source = ChainSource(rows(1, 2, 3), rows(7, 8))
    every = [(1, 0), (2, 1), (3, 2), (7, SECOND), (8, SECOND + 1)]
    assert read_all(source, 0, 1) == every
    for at, (_, position) in enumerate(every):
        assert read_all(source, 0, 1, position + 1) == every[at + 1 :]


def test_partitions_of_which_only_one_source_has_a_share() -> None:
    first, second = rows(1, parts=1), rows(7, parts=3)
    assert ChainSource(first, second).partitions(2) == ChainSource(second, first).partitions(2) == 3
    assert [read_all(ChainSource(first, second), p, 3) for p in range(3)] == [[(1, 0), (7, SECOND)], [(7, SECOND)], [(7, SECOND)]]
    assert read_all(ChainSource(second, first), 2, 3) == [(7, 0)]


def test_the_second_may_have_more_columns_in_another_order() -> None:
    more = ef.sources.memory(pa.table({"at": [70], "offset": [3], "k": [7]}))
    assert read_all(ChainSource(rows(1), more), 0, 1) == [(1, 0), (7, SECOND)]
    flow = ef.Dataflow("f")
    assert flow.source(rows(1)).then(more).columns == flow.source(batch_of_spark()).then(flow.source(more)).columns == ["k", "at"]


def test_a_place_that_is_too_far() -> None:
    class Placed(type(rows(1))):  # type: ignore[misc]
        position = "at"

    placed = Placed(SCHEMA, ((pa.record_batch([[1], [SECOND]], schema=SCHEMA),),))
    with pytest.raises(SourceError, match="is the last"):
        read_all(ChainSource(placed, rows(7)), 0, 1)


def test_two_sources_become_one_with_the_name_of_the_first() -> None:
    flow = ef.Dataflow("f")
    first = flow.source(rows(1), name="history")
    made = first.then(rows(7, ended=False))
    made.to(ef.sinks.memory("out"))
    assert [box.name for box in flow.network] == ["history", "then", "memory"] and made.columns == ["k", "at"]
    with pytest.raises(QueryError, match=r"go on with the stream that then\(\) has returned"):
        first.where("k > 1")
    again = ef.Dataflow.from_json(flow.to_json())
    assert again.network.box("history").params["source"] == ChainSource(rows(1), rows(7, ended=False))


def test_behind_a_batch_of_spark_sources_wait() -> None:
    flow = ef.Dataflow("f")
    batch = flow.source(batch_of_spark(), name="batch")
    live = flow.source(rows(7), name="live")
    batch.then(live.where("k > 1")).to(ef.sinks.memory("out"))
    assert flow.network.box("live").params["source"] == AfterSource(rows(7), "batch")
    batch.name("history")
    source = layout(flow.network, sites=2).sources["live"]
    assert isinstance(source, AfterSource) and source.after == "history"
    assert from_json(json.loads(json.dumps(source.to_json()))) == source


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (rows(1, ended=False), rows(2), "may go on for ever"),
        (rows(1), batch_of_spark(), "Spark pushes the rows of one of its sources"),
        (rows(1), ef.sources.generator(), "has no column 'k'"),
        (rows(1), ef.sources.memory(pa.table({"at": [1], "k": ["a"]})), "column 'k' is int64 first, and string then"),
        (rows(1), ef.sources.tcp_lines("h", 1, SCHEMA, "json"), "the tcp_lines source gives others"),
        (
            rows(1),
            ReplaySource(("/x.parquet",), "parquet", SCHEMA.append(pa.field("ts", pa.timestamp("us"))), "ts", keep_time=False),
            "the replay source gives others",
        ),
        (batch_of_spark(endless=True), rows(1), "is a stream, so nothing comes after it"),
        (batch_of_spark(), ef.sources.generator(), "has no column 'k'"),
        (rows(1), 7, "not int 7"),
    ],
)
def test_what_cannot_come_after_something(first: Any, second: Any, said: str) -> None:
    flow = ef.Dataflow("f")
    stream = flow.source(first, name="first")
    before = flow.network
    with pytest.raises(ef.EvenflowError, match=said):
        stream.then(second)
    assert flow.network == before and stream.columns == first.schema.names


def test_what_has_been_drawn_otherwise() -> None:
    flow = ef.Dataflow("f")
    stream = flow.source(rows(1), name="first")
    with pytest.raises(QueryError, match="is no source"):
        stream.where("k > 1").then(rows(2))
    with pytest.raises(QueryError, match="is read by others already"):
        stream.then(rows(2))
    with pytest.raises(QueryError, match="cannot come after itself"):
        stream.then(stream)
    batch = flow.source(batch_of_spark(), name="batch")
    later = batch.then(rows(2))
    with pytest.raises(QueryError, match="one batch DataFrame"):
        later.then(rows(3))


def test_a_driver_that_goes_on_has_the_places_that_were_looked_up() -> None:
    """Of the second source, too: partitions and offsets of its topic are those of the first start."""

    def flow(starts: tuple[tuple[int, int], ...]) -> Any:
        made = ef.Dataflow("f")
        live = KafkaSource("host:1", "topic", SCHEMA, "json", starts)
        made.source(rows(1), name="history").then(live).to(ef.sinks.memory("out"))
        return layout(made.network, sites=1)

    then = structure(flow(((0, 5), (1, 7))))
    found = as_before(flow(((0, 50), (1, 70))), json.loads(json.dumps(then))).sources["history"]
    assert isinstance(found, ChainSource) and found.second.starts == ((0, 5), (1, 7))  # type: ignore[attr-defined]
    assert structure(replaced(found)) == then


def replaced(source: ChainSource) -> Any:
    made = ef.Dataflow("f")
    made.source(source.first, name="history").then(source.second).to(ef.sinks.memory("out"))
    return layout(made.network, sites=1)
