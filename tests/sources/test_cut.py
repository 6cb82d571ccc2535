"""Sources that are cut by content: what they say of epochs, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, OptionError, QueryError, SourceError
from evenflow.query.planner import layout
from evenflow.sources.cut import EPOCH_COLUMN, CutReader, CutSource, cut_by_content
from evenflow.sources.source import Reader, Source
from evenflow.stream.cut import WHOLE
from evenflow.world.spark.driver.control_port import _cut

ROWS = pa.record_batch([list(range(100))], names=["a"])


def read_all(source: CutSource, sizes: list[int], *, skip: int = 0, step_us: int = 1000) -> list[tuple[int, ...]]:
    """Rows with their epochs, of partition 0. What is said to be whole is."""
    reader = source.open(0, source.partitions(1))
    assert isinstance(reader, CutReader)
    if skip:
        reader.skip(skip)
    found, now_us, turn, whole = [], 0, 0, 0
    while not reader.ended and now_us < 10_000_000:
        batch = reader.read(now_us, sizes[turn % len(sizes)])
        for row in [] if batch is None else batch.to_pylist():
            assert row[EPOCH_COLUMN] > whole, "a row came for an epoch that was said to be whole"
            found.append(tuple(row.values()))
        whole, now_us, turn = reader.complete, now_us + step_us, turn + 1
    assert reader.complete == WHOLE
    return found


MADE: dict[str, Any] = {
    "memory": lambda: cut_by_content(ef.sources.memory([ROWS]), rows=7),
    "rows with a pace": lambda: cut_by_content(ef.sources.generator(500, rows=100, partitions=1), width_ms=9),
    "rows without": lambda: cut_by_content(ef.sources.generator(rows=4000, partitions=1), width_ms=1),
    "packets": lambda: cut_by_content(ef.sources.packets(1000, rows=50, partitions=1), width_ms=5),
    "nexmark": lambda: cut_by_content(ef.sources.nexmark(events=200, partitions=1), rows=11),
}


@pytest.mark.parametrize("name", MADE)
def test_readers_agree_whatever_they_read_at_once_and_whenever(name: str) -> None:
    source = MADE[name]().begun(0)
    whole = read_all(source, [1000])
    assert read_all(source, [3, 1, 8]) == whole == read_all(source, [5], step_us=333)
    behind = next(at for at, row in enumerate(whole) if row[-1] > whole[len(whole) // 2][-1])
    assert read_all(source, [4], skip=behind) == whole[behind:]


def test_a_paced_reader_promises_no_more_than_has_come() -> None:
    source = cut_by_content(ef.sources.generator(2, rows=4, partitions=1), width_ms=20).begun(0)
    reader = source.open(0, 1)
    assert reader.read(0, 10) is not None
    for now_us in range(0, 500_000, 5_000):
        assert reader.read(now_us, 10) is None
        assert reader.complete == now_us // 20_000, "an epoch is whole when it is over"
        assert reader.wake_us is not None and now_us < reader.wake_us <= now_us + 20_000


class NoPlaces(Source):
    kind = "own"

    @property
    def schema(self) -> pa.Schema:
        return ROWS.schema

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> Reader:
        raise SourceError("nobody opens it")


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "tcp": (lambda: ef.sources.tcp_lines("localhost", 1, "a bigint"), {}, "tcp_lines source: it cannot be cut by content: nobody gives"),
    "a source of one's own": (NoPlaces, {}, "own source: it cannot be cut by content: its rows have neither"),
    "memory by time": (lambda: ef.sources.memory([ROWS]), {"cut_by": "time"}, "no log time to be cut by; give cut_by='place'"),
    "width 0": (lambda: ef.sources.memory([ROWS]), {"width_ms": 0}, "width_ms is 0; give"),
    "a negative width": (lambda: ef.sources.memory([ROWS]), {"width_ms": -20}, "width_ms is -20; give"),
    "no width": (lambda: ef.sources.memory([ROWS]), {"width_ms": "wide"}, "width_ms is 'wide'; give"),
    "no rows": (lambda: ef.sources.memory([ROWS]), {"width_rows": 0}, "width_rows is 0; give"),
    "negative rows": (lambda: ef.sources.memory([ROWS]), {"width_rows": -1}, "width_rows is -1; give"),
    "rows by time": (lambda: ef.sources.generator(10), {"width_rows": 5}, "width_rows is for what is cut by place"),
    "ahead by place": (lambda: ef.sources.memory([ROWS]), {"cut_ahead_ms": 5}, "cut_ahead_ms is about log times"),
    "ahead of nothing": (lambda: ef.sources.generator(10), {"cut_ahead_ms": 0}, "cut_ahead_ms is 0; give"),
    "by colour": (lambda: ef.sources.generator(10), {"cut_by": "colour"}, "cut_by is 'colour'; give"),
    "another cut": (lambda: ef.sources.generator(10), {"cut": "clock"}, "cut is 'clock'; give 'leader' or 'content'"),
    "a width for a leader": (lambda: ef.sources.generator(10), {"cut": "leader", "width_ms": 5}, "are for cut='content'"),
    "twice": (lambda: cut_by_content(ef.sources.generator(10)), {}, "it is cut by content already"),
    "other times each time": (
        lambda: ef.sources.replay("tests/sources/test_cut.py", speed=None, keep_time=True, format="csv", schema="a string"),
        {"cut_by": "time"},
        "no log time to be cut by",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_by_content_is_refused_by_name(name: str) -> None:
    make, cut, said = REFUSED[name]
    with pytest.raises(EvenflowError) as error:
        ef.Dataflow("refused").source(make(), **{"cut": "content", **cut})
    assert said in str(error.value), str(error.value)
    assert isinstance(error.value, QueryError | OptionError)


def test_what_tasks_of_spark_push_is_refused_by_name() -> None:
    pushed = ef.sources.SparkSource(ROWS.schema, True, None)
    with pytest.raises(QueryError, match="spark source: it cannot be cut by content: Spark's tasks push its rows"):
        cut_by_content(pushed)


def two(first: dict[str, Any], second: dict[str, Any]) -> ef.Dataflow:
    flow = ef.Dataflow("two")
    left = flow.source(ef.sources.memory([ROWS]), name="left", **first)
    left.union(flow.source(ef.sources.memory([ROWS]), name="right", **second)).to(ef.sinks.discard())
    return flow


def test_sources_of_a_dataflow_are_cut_alike() -> None:
    layout(two({"cut": "content"}, {"cut": "content"}).network, sites=2)
    with pytest.raises(QueryError, match="box 'right': its source has a leader, and that of 'left' is cut by content"):
        layout(two({"cut": "content"}, {}).network, sites=2)
    with pytest.raises(QueryError, match="box 'right': its epochs are 40 ms wide, and those of 'left' 20 ms"):
        layout(two({"cut": "content"}, {"cut": "content", "width_ms": 40}).network, sites=2)


def test_it_is_written_down_and_read() -> None:
    flow = two({"cut": "content", "width_ms": 40, "width_rows": 9}, {"cut": "content", "width_ms": 40})
    again = ef.Dataflow.from_json(flow.to_json())
    assert again.to_json() == flow.to_json()
    source = again.network.box("left").params["source"]
    assert isinstance(source, CutSource) and (source.width_us, source.rows, source.by) == (40_000, 9, "place")


def test_sql_says_it_as_options() -> None:
    made = ef.sql(
        "CREATE VIEW r USING generator OPTIONS (rate '100', cut 'content', width_ms '40', cut_by 'time'); "
        "CREATE TABLE o USING discard; INSERT INTO o SELECT key FROM r"
    )
    source = next(box.params["source"] for box in made.flow.network.of_kind("source"))
    assert isinstance(source, CutSource) and (source.width_us, source.by) == (40_000, "time")
    with pytest.raises(EvenflowError, match="width_ms is -1"):
        ef.sql("CREATE VIEW r USING generator OPTIONS (cut 'content', width_ms '-1'); SELECT key FROM r")


def test_a_reader_is_not_opened_before_the_run_has_begun() -> None:
    with pytest.raises(SourceError, match="where its epochs begin is decided when the run begins"):
        cut_by_content(ef.sources.memory([ROWS])).open(0, 1)


@pytest.mark.parametrize("cut", [{"by": "place", "rows": 3}, {"by": "time", "width_ms": 500}], ids=["place", "time"])
def test_files_are_cut_by_their_times_or_places(tmp_path: Any, cut: dict[str, Any]) -> None:
    times = [0, 400_000, 2_000_000, 1_000_000, 2_100_000, 7_000_000]
    pq.write_table(pa.table({"ts": pa.array(times, pa.timestamp("us")), "a": list(range(6))}), tmp_path / "rows.parquet")
    source = cut_by_content(ef.sources.replay(str(tmp_path / "rows.parquet"), speed=None), **cut).begun(10**15)
    found = [row[-1] for row in read_all(source, [2, 1])]
    assert found == ([1, 1, 1, 2, 2, 2] if cut["by"] == "place" else [1, 1, 5, 5, 5, 15])
    assert source.grid(0).stamp(1) == 10**15 + source.width_us


@pytest.mark.parametrize(("after", "taken"), [(1, 0), (2, 3), (2, 5), (3, 4)])
def test_a_reader_begins_behind_an_epoch_and_goes_on_behind_what_was_taken(after: int, taken: int) -> None:
    rows = pa.record_batch({"k": list(range(40))})
    source = cut_by_content(ef.sources.memory([rows]), rows=10, begin_us=0)

    def read(given: CutSource, skip: int) -> list[tuple[int, int]]:
        reader, found = given.open(0, 1), list[tuple[int, int]]()
        reader.skip(skip)
        while not reader.ended:
            batch = reader.read(0, 3)
            found += [] if batch is None else [(row["k"], row[EPOCH_COLUMN]) for row in batch.to_pylist()]
        return found

    behind = replace(source, after=after)
    assert read(behind, taken) == read(source, 10 * after + taken) == [(k, 1 + k // 10) for k in range(10 * after + taken, 40)]
    assert behind.to_json()["after"] == after and "after" not in source.to_json()


@pytest.mark.parametrize("by", ["time", "place"])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_who_goes_on_behind_an_epoch_and_reads_again_knows_each_row_by_its_own(by: str, epoch: int, tmp_path: Any) -> None:
    """Goal: a region that began near the present has a copy, or a restart, that goes on where it was: rows that are read again are those
    that were taken, and what comes is of its own epoch. Also where nothing was taken since."""
    times = [0, 4, 11, 12, 9, 13, 25, 26, 24, 31, 33]
    rows = pa.record_batch({"ts": pa.array([1000 * at for at in times], pa.timestamp("us"))})
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    cut: dict[str, Any] = {"by": by, "width_ms": 10} if by == "time" else {"by": by, "rows": 3}
    source = cut_by_content(ef.sources.replay(str(tmp_path / "rows.parquet"), speed=None), **cut).begun(10**15)

    def given(reader: Any) -> list[tuple[Any, int]]:
        found = list[tuple[Any, int]]()
        while not reader.ended:
            batch = reader.read(0, 2)
            found += [] if batch is None else [(row["ts"], row[EPOCH_COLUMN]) for row in batch.to_pylist()]
        return found

    every = given(source.open(0, 1))
    for after in range(1, epoch + 1):
        reader = replace(source, after=after).open(0, 1)
        reader.skip(sum(after < e <= epoch for _, e in every))
        reader.begin_behind(epoch)
        assert given(reader) == [(at, e) for at, e in every if e > epoch], f"after {after}"


def test_a_dataflow_is_cut_where_it_is_started_and_stays_as_it_is() -> None:
    flow = two({}, {})
    made = flow.cut(width_ms=40)
    assert made.to_json() == two({"cut": "content", "width_ms": 40}, {"cut": "content", "width_ms": 40}).to_json()
    assert flow.to_json() == two({}, {}).to_json()
    assert flow.cut("leader").to_json() == flow.to_json()
    with pytest.raises(OptionError, match="cut by content already"):
        made.cut(width_ms=40)
    with pytest.raises(OptionError, match="are for cut='content'"):
        flow.cut("leader", width_ms=40)
    with pytest.raises(OptionError, match="cut is 'rows'"):
        flow.cut("rows")  # type: ignore[arg-type]


def test_a_request_says_how_sources_are_cut() -> None:
    flow = two({}, {})
    assert _cut(flow, {"cut": None, "width_ms": None}) is flow
    assert _cut(flow, {"cut": "content", "width_ms": 40.0}).to_json() == flow.cut(width_ms=40).to_json()
    with pytest.raises(OptionError, match="width_ms: these are about cuts by content"):
        _cut(flow, {"width_ms": 40.0})
