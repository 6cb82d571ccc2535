"""The source that reads a group, at real ports: the same rows at the same places whoever reads and whoever answers, or an error by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import OptionError, QueryError, SchemaChanged, SourceError
from evenflow.query.script import sql
from evenflow.sinks import stream
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.sources.cut import EPOCH_COLUMN, CutSource
from evenflow.sources.group import LAST_ROW, POSITION, ROW_BITS, TIME, GroupReader, GroupSource
from evenflow.sources.source import Reader, place
from evenflow.stream.change import CHANGE_FIELD
from evenflow.world.spark.regions.serving import StreamServer
from evenflow.world.spark.regions.upstream import by_subscription

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
WIDTH_US, ORIGIN_US = 50_000, 1_000_000_000_000
FACTS = {"name": "traffic", "origin_us": ORIGIN_US, "width_us": WIDTH_US}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of sixteen or more")


@pytest.fixture
def region() -> Iterator[Callable[..., StreamServer]]:
    opened: list[StreamServer] = []

    def make(facts: dict[str, Any] = FACTS, behind: int = 0) -> StreamServer:
        opened.append(StreamServer(stream(0), "out", facts, behind))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def rows(epoch: int, count: int = 3, *, turned: bool = False) -> pa.RecordBatch:
    numbers = [100 * epoch + at for at in range(count)]
    if turned:
        numbers.reverse()
    return pa.record_batch([numbers, [f"t{number}" for number in numbers]], schema=SCHEMA)


def source(*servers: StreamServer, **options: Any) -> GroupSource:
    return ef.sources.group([f"127.0.0.1:{server.port}" for server in servers], "traffic", "out", SCHEMA, **options)


def reached(of: Any, position: int = 0) -> Reader:
    reader = place(of.open(0, 1), position)
    reader.reach(by_subscription)
    return reader


def read(reader: Reader, most: int = 1000, *, until: Callable[[], bool] = lambda: False) -> list[dict[str, Any]]:
    """What it gives to its end, or until then."""
    found: list[dict[str, Any]] = []
    end_s = time.monotonic() + 20
    while not (reader.ended or until()):
        assert time.monotonic() < end_s, f"only {found} came"
        batch = reader.read(0, most)
        found += [] if batch is None else batch.to_pylist()
    reader.close()
    return found


def publish(server: StreamServer, *epochs: int, turned: bool = False, through: int = 0, ended: bool = True) -> None:
    for epoch in range(1, max(*epochs, through) + 1):
        server.publish(epoch, rows(epoch, turned=turned) if epoch in epochs else rows(epoch, 0))
    if ended:
        server.finish()


def test_regions_whose_rows_have_other_orders_are_read_alike_from_any_place(region: Callable[..., StreamServer]) -> None:
    one, other = region(), region()
    publish(one, 1, 4, 5)
    publish(other, 1, 4, 5, turned=True)
    whole = read(reached(source(one)))
    assert [row["n"] // 100 for row in whole] == [1, 1, 1, 4, 4, 4, 5, 5, 5]
    assert [row[TIME].timestamp() * 1e6 for row in whole] == [ORIGIN_US + WIDTH_US * (row["n"] // 100) for row in whole]
    places = [row[POSITION] for row in whole]
    assert places == sorted(set(places))
    for at, position in enumerate(places):
        assert read(reached(source(other), position + 1), most=2) == whole[at + 1 :]
        assert read(reached(source(other, one), position + 1), most=1) == whole[at + 1 :]


def test_who_goes_on_behind_an_epoch_needs_nothing_of_it(region: Callable[..., StreamServer]) -> None:
    """Goal: a replica that begins behind what regions have forgotten reads on. Method: a region that has nothing up to epoch 2."""
    server = region(behind=2)
    server.publish(3, rows(3))
    server.finish()
    last_of_two = (2 << ROW_BITS) + LAST_ROW
    assert {row["n"] for row in read(reached(source(server), last_of_two + 1))} == {300, 301, 302}
    with pytest.raises(SourceError, match=r"what comes after epoch 0 is kept by no region.*after=2"):
        read(reached(source(server)))


def test_its_cut_is_the_upstream_epoch_and_empty_ones_are_whole_too(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 2, 3, through=9, ended=False)
    cut = CutSource(source(server), "time", WIDTH_US, begin_us=ORIGIN_US)
    reader = reached(cut)
    found = read(reader, 2, until=lambda: reader.complete >= 9)
    assert [row[EPOCH_COLUMN] for row in found] == [2, 2, 2, 3, 3, 3]
    assert reader.complete == 9
    wider = reached(replace(cut, width_us=4 * WIDTH_US))
    assert {row[EPOCH_COLUMN] for row in read(wider, until=lambda: wider.complete >= 2)} == {1}
    assert wider.complete == 2, "eight of nine epochs of a fourth of the width"


def test_a_region_that_begins_at_its_horizon_asks_for_no_more(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 1, 2, 3, 4)
    cut = CutSource(source(server), "time", WIDTH_US, begin_us=ORIGIN_US, after=2)
    assert [row[EPOCH_COLUMN] for row in read(reached(cut))] == [3, 3, 3, 4, 4, 4]
    forgotten = region(behind=2)
    forgotten.publish(3, rows(3))
    forgotten.finish()
    assert [row[EPOCH_COLUMN] for row in read(reached(replace(cut, source=source(forgotten))))] == [3, 3, 3]


def test_some_of_the_columns_are_read_and_others_are_named(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 1)
    only = replace(source(server), columns=pa.schema([SCHEMA.field("text")]))
    assert {tuple(row) for row in read(reached(only))} == {("text", POSITION, TIME)}
    for columns, what in ((pa.schema([("m", pa.int64())]), "m int64"), (pa.schema([("n", pa.int32())]), "n int32")):
        with pytest.raises(SchemaChanged, match=what):
            read(reached(replace(only, columns=columns)))


@pytest.mark.parametrize(
    ("facts", "options", "why"),
    [
        ({"name": "traffic"}, {}, r"'traffic' is no group.*group=ef.group"),
        ({**FACTS, "name": "other"}, {}, "has group 'other', and not 'traffic'"),
        (FACTS, {"secret_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_source(
    region: Callable[..., StreamServer], facts: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(SourceError, match=why):
        read(reached(source(region(facts), **options)))


def test_regions_that_are_away_are_waited_for_and_then_it_says_so() -> None:
    away = ef.sources.group("127.0.0.1:1", "traffic", "out", SCHEMA, patience_s=0.2)
    with pytest.raises(SourceError, match=r"group source out of traffic: .*127.0.0.1:1.*0.2 s"):
        read(reached(away))


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"urls": []}, OptionError, "no region is given"), ({"urls": "here"}, OptionError, "host:port"),
        ({"urls": "far:1"}, OptionError, "needs tls_ca"), ({"urls": "localhost:1,localhost:1"}, OptionError, "twice"),
        ({"after": -1}, OptionError, "after"), ({"patience_s": 0}, OptionError, "patience_s"),
        ({"schema": pa.schema([*SCHEMA, CHANGE_FIELD])}, QueryError, "order of changes"),
        ({"schema": f"n bigint, {POSITION} bigint"}, QueryError, "rename it upstream"),
    ],
)  # fmt: skip
def test_what_is_no_source_is_refused_where_it_is_made(options: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        ef.sources.group(**{"urls": "localhost:1", "group": "g", "sink": "out", "schema": SCHEMA, **options})


def test_nobody_reads_it_outside_of_an_engine() -> None:
    reader = ef.sources.group("localhost:1", "g", "out", SCHEMA).open(0, 1)
    assert isinstance(reader, GroupReader)
    with pytest.raises(SourceError, match="start the dataflow in an engine"):
        reader.read(0, 1)


def test_a_script_says_it_too() -> None:
    text = """
        CREATE VIEW rows (n bigint, text string) USING `group`
        OPTIONS (urls 'localhost:1,localhost:2', group 'traffic', sink 'out', cut 'content', width_ms '50');
        CREATE TABLE o USING discard; INSERT INTO o SELECT n FROM rows;
    """
    flow = sql(text)
    (box,) = flow.flow.network.of_kind("source")
    made = box.params["source"]
    assert isinstance(made, CutSource) and made.source == ef.sources.group(["localhost:1", "localhost:2"], "traffic", "out", SCHEMA)
