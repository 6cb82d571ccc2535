"""Delta and Iceberg: a commit of the sink is one of the table's own log, each epoch once, whoever else writes there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Transaction

from evenflow import sinks
from evenflow.errors import OptionError, QueryError, SinkError
from evenflow.operator.operator import Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.sinks.delta import statistics
from evenflow.sinks.iceberg import run_property
from evenflow.sinks.places import place_of, split_by, value_text
from evenflow.sinks.table_files import TableFiles
from evenflow.store.patience import Patience
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK

SCHEMA = pa.schema([("key", pa.int64()), ("day", pa.string()), ("ts", pa.timestamp("us"))])
FORMATS = ("delta", "iceberg")


def sink_at(format_: str, path: Path, **options: Any) -> Any:
    if format_ == "delta":
        return sinks.delta(str(path / "table"), **{"commit_s": 0.001, "retries": 0, **options})
    return sinks.iceberg("shop.rows", **{"commit_s": 0.001, "retries": 0, "options": catalog_at(path), **options})


def catalog_at(path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}


class Pair:
    """One replica of both steps."""

    def __init__(self, sink: Any, run: str = "r1", schema: pa.Schema = SCHEMA) -> None:
        self.schema, params = schema, sink.step_params(run)
        self.stage, self.commit = ParquetStage(schema, **params), ParquetCommit(sink.record_schema, **params)

    def epoch(self, epoch: int, *keys: int, last: bool = False) -> list[Any]:
        at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if last else NO_WATERMARK)
        days = [None if key % 3 == 0 else f"d/{key % 3}" for key in keys]
        times = [datetime(2020, 1, 1 + key % 28, 5) for key in keys]
        rows = {"key": list(keys), "day": days, "ts": times}
        batch = pa.RecordBatch.from_pydict({name: rows[name] for name in self.schema.names}, schema=self.schema)
        (records,) = self.stage.process(Rows(batch, np.array([key % 2 for key in keys], np.int32)), at)
        self.commit.process(records, at)
        return records.batch.to_pylist()

    @property
    def files(self) -> TableFiles:
        files = self.commit._files
        assert isinstance(files, TableFiles)
        return files


def begun(sink: Any, *runs: str) -> list[Pair]:
    sink.prepare("r1", SCHEMA)
    return [Pair(sink, run) for run in runs or ("r1",)]


def keys(sink: Any) -> list[int]:
    return sorted(sink.read()["key"].to_pylist())


def commits(format_: str, sink: Any) -> list[tuple[str, str]]:
    """(run, epoch) of all commits that have them."""
    if format_ == "delta":
        found = list(reversed(DeltaTable(sink.path).history()))
    else:
        found = [dict(s.summary.additional_properties) for s in sink.target.catalog_of(sink.options).load_table(sink.table).snapshots()]
    return [(said["evenflow.run"], said["evenflow.epoch"]) for said in found if "evenflow.run" in said]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("partition_by", [(), "day"])
def test_whatever_replicas_and_restarts_repeat_is_there_once(tmp_path: Path, format_: str, partition_by: Any) -> None:
    sink = sink_at(format_, tmp_path, partition_by=partition_by)
    one, other = begun(sink, "r1", "r1")
    for epoch in range(1, 4):
        for replica in (one, other):
            replica.epoch(epoch, epoch * 10, epoch * 10 + 1)
    assert keys(sink) == [10, 11, 20, 21]
    late = Pair(sink)  # Everything was lost, and the run goes on from the beginning.
    for epoch in range(1, 5):
        late.epoch(epoch, epoch * 10, epoch * 10 + 1, last=epoch == 4)
    one.epoch(4, 40, 41, last=True)
    assert keys(sink) == [10, 11, 20, 21, 30, 31, 40, 41]
    assert commits(format_, sink) == [("r1", "2"), ("r1", "3"), ("r1", "4")]
    again = Pair(sink, "r2")
    again.epoch(1, 7, last=True)
    assert keys(sink) == [7, 10, 11, 20, 21, 30, 31, 40, 41], "another run is another one"
    assert [sink.prepare(run, SCHEMA) for run in ("r1", "r2", "r3")] == [4, 1, 0], "the last epoch of each that is there"


@pytest.mark.parametrize("format_", FORMATS)
def test_of_two_that_commit_an_epoch_at_the_same_time_one_does(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an epoch counts once. Method: between a look at the table and the commit, another replica and somebody else commit."""
    sink = sink_at(format_, tmp_path)
    stale, other = begun(sink, "r1", "r1")
    for replica in (stale, other):
        replica.epoch(1, 10)
        replica.epoch(2, 20)
    add, answers = type(stale.files)._append, []

    def slow(files: TableFiles, epoch: int, parts: Any) -> bool:
        if files is stale.files and not answers:
            answers.append(None)
            other.epoch(3, 30)
            somebody_adds(format_, sink, 1000)
            answers[0] = add(files, epoch, parts)
            return answers[0]
        return add(files, epoch, parts)

    monkeypatch.setattr(type(stale.files), "_append", slow)
    stale.epoch(3, 30)
    assert answers == [False]
    assert keys(sink) == [10, 20, 1000]
    assert commits(format_, sink) == [("r1", "2"), ("r1", "3")]


@pytest.mark.parametrize("others", [0, 1])
def test_a_commit_of_iceberg_that_is_in_and_was_reported_as_failed(tmp_path: Path, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nothing is deleted that the table needs. Method: the answer of the catalog is lost and the client, or a proxy, asks again by
    itself, and so is told of a conflict with its own commit; somebody else may have committed behind it, too."""
    sink = sink_at("iceberg", tmp_path)
    (pair,) = begun(sink)
    pair.epoch(1, 10)
    pair.epoch(2, 20)
    catalog = pair.files._table.catalog  # type: ignore[attr-defined]
    commit, answers = catalog.commit_table, [1]

    def twice(*given: Any) -> Any:
        answer = commit(*given)
        if answers:
            answers.clear()
            for key in range(others):
                somebody_adds("iceberg", sink, 1000 + key)
            return commit(*given)
        return answer

    monkeypatch.setattr(catalog, "commit_table", twice)
    pair.epoch(3, 30)
    assert not answers and keys(sink) == [10, 20, *range(1000, 1000 + others)]
    pair.epoch(4, 40, last=True)
    assert keys(sink) == [10, 20, 30, 40, *range(1000, 1000 + others)]
    assert commits("iceberg", sink) == [("r1", str(epoch)) for epoch in (2, 3, 4)]


def test_a_commit_of_iceberg_that_comes_second_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at("iceberg", tmp_path)
    (pair,) = begun(sink)
    pair.epoch(1, 10)
    add, others = type(pair.files)._append, [1000]

    def disturbed(files: TableFiles, epoch: int, parts: Any) -> bool:
        if others:
            somebody_adds("iceberg", sink, others.pop())
            before = {file.name for file in tmp_path.rglob("*.avro")}
            assert not add(files, epoch, parts)
            assert {file.name for file in tmp_path.rglob("*.avro")} == before
            return False
        return add(files, epoch, parts)

    monkeypatch.setattr(type(pair.files), "_append", disturbed)
    with pytest.raises(SinkError, match="somebody else commits"):
        pair.epoch(2, 20)
    assert not others and keys(sink) == [1000]


def test_a_pyiceberg_that_moves_commits_in_another_way_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Transaction, "_rebuild_snapshot_updates")
    with pytest.raises(SinkError, match=r"cannot be written with PyIceberg \d.*; install pyiceberg 0.12"):
        sink_at("iceberg", tmp_path).prepare("r1", SCHEMA)


def somebody_adds(format_: str, sink: Any, key: int) -> None:
    rows = pa.table({"key": [key], "day": ["x"], "ts": [datetime(2021, 1, 1)]}, SCHEMA)
    if format_ == "delta":
        deltalake.write_deltalake(sink.path, rows, mode="append")
    else:
        sink.target.catalog_of(sink.options).load_table(sink.table).append(rows)


@pytest.mark.parametrize("format_", FORMATS)
def test_somebody_else_writes_compacts_and_cleans_up_meanwhile(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(format_, tmp_path, retries=3)
    (pair,) = begun(sink)
    for epoch in range(1, 4):
        pair.epoch(epoch, epoch * 10, epoch * 10 + 1)
    add, others = type(pair.files)._append, iter([1000, 1001])

    def disturbed(files: TableFiles, epoch: int, parts: Any) -> bool:
        for key in others:
            somebody_adds(format_, sink, key)
            break
        return add(files, epoch, parts)

    monkeypatch.setattr(type(pair.files), "_append", disturbed)
    pair.epoch(4, 40)
    clean_up(format_, sink)
    pair.epoch(5, 50)
    pair.epoch(6, 60, last=True)
    expected = [10, 11, 20, 21, 30, 31, 40, 50, 60, 1000, 1001]
    assert keys(sink) == expected
    late = Pair(sink)
    for epoch in range(1, 7):
        late.epoch(epoch, *([epoch * 10, epoch * 10 + 1] if epoch < 4 else [epoch * 10]), last=epoch == 6)
    assert keys(sink) == expected, "compacted, expired and cleaned up, the table still knows what it has"


def clean_up(format_: str, sink: Any) -> None:
    if format_ == "delta":
        table = DeltaTable(sink.path)
        assert table.optimize.compact()["numFilesRemoved"] > 1
        table.create_checkpoint()
        return
    table = sink.target.catalog_of(sink.options).load_table(sink.table)
    table.overwrite(table.scan().to_arrow())  # As Spark's rewrite_data_files would: the same rows in other files.
    old = [snapshot.snapshot_id for snapshot in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_of_other_columns_is_refused_before_a_row_is_read(tmp_path: Path, format_: str) -> None:
    sink = sink_at(format_, tmp_path, partition_by="day")
    sink.prepare("r1", SCHEMA)
    cases: list[tuple[pa.Schema, Any, str]] = [
        (SCHEMA.append(pa.field("more", pa.int64())), sink, "has no column 'more'; it has key, day, ts"),
        (pa.schema([("key", pa.string()), ("day", pa.string())]), sink, "column 'key' is int64 there, and string in the results"),
        (pa.schema([("key", pa.int64())]), sink, "partition_by has 'day', and there is no such column"),
        (SCHEMA, sink_at(format_, tmp_path, partition_by="key"), r"partitioned by \(day\), not by \(key\)"),
    ]
    for schema, one, message in cases:
        with pytest.raises(SinkError, match=message):
            one.prepare("r2", schema)
    pair = Pair(sink_at(format_, tmp_path), schema=pa.schema([("day", pa.string()), ("key", pa.int64())]))
    pair.epoch(1, 10, last=True)
    assert sink.read().select(["key", "day", "ts"]).to_pylist() == [{"key": 10, "day": "d/1", "ts": None}], "partitioned as the table is"
    for bad, message in (("nothing", "there is no such column"), ("key, day, ts", "all columns are in partition_by")):
        with pytest.raises(SinkError, match=message):
            sink_at(format_, tmp_path / "elsewhere", partition_by=bad).prepare("r", SCHEMA)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_column_that_somebody_takes_away_and_a_staged_file_that_is_deleted(tmp_path: Path, format_: str) -> None:
    sink = sink_at(format_, tmp_path)
    (pair,) = begun(sink)
    pair.epoch(1, 10)
    staged = pair.stage._files
    at = Tick(2, 2000, NO_WATERMARK, NO_WATERMARK)
    empty = Rows(pa.RecordBatch.from_pylist([], schema=SCHEMA), np.array([], np.int32))
    (records,) = pair.stage.process(empty, at)
    assert staged is None or records.count == 1
    for file in tmp_path.rglob("part-r1-*.parquet"):
        file.unlink()
    with pytest.raises(SinkError, match=r"part-r1-000000000002-00000.parquet .* has vanished before it was committed"):
        pair.commit.process(records, at)
    assert keys(sink) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_replicas_that_disagree_are_found_out(tmp_path: Path, format_: str) -> None:
    sink = sink_at(format_, tmp_path)
    one, other = begun(sink, "r1", "r1")
    one.epoch(1, 10, 12)
    other.epoch(1, 10, 14)
    one.epoch(2, 20)
    with pytest.raises(SinkError, match="in epoch 2 of run r1, partition 0, this replica has other rows"):
        other.epoch(2, 20)
    assert keys(sink) == [10, 12]


def test_what_deltas_log_says_of_a_file(tmp_path: Path) -> None:
    sink = sink_at("delta", tmp_path, partition_by="day")
    (pair,) = begun(sink)
    pair.epoch(1, 10, 12, 14, last=True)
    actions = [json.loads(line) for line in (tmp_path / "table/_delta_log/00000000000000000001.json").read_text().splitlines()]
    added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    assert [action["txn"] for action in actions if "txn" in action] == [{"appId": "r1", "version": 1}]
    place = "day=d%252F1/part-r1-000000000001-00000.parquet"
    assert set(added) == {place, place.replace("d%252F1", "__HIVE_DEFAULT_PARTITION__"), place.replace("F1", "F2")}
    assert added[place]["partitionValues"] == {"day": "d/1"}
    said = json.loads(added[place]["stats"])
    assert said == {
        "numRecords": 1, "minValues": {"key": 10, "ts": "2020-01-11T05:00:00.000"},
        "maxValues": {"key": 10, "ts": "2020-01-11T05:00:00.000"},
        "nullCount": {"key": 0, "ts": 0},
    }  # fmt: skip
    read = DeltaTable(sink.path).to_pyarrow_table(filters=[("day", "=", "d/1"), ("key", ">", 5)])
    assert read["key"].to_pylist() == [10]


def test_statistics_never_say_less_than_there_is() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999)
    table = pa.table(
        {
            "t": pa.array([datetime(2020, 1, 1, 0, 0, 0, 1234), None]),
            "long": ["x" * 40, "a"],
            "late": [late, late],
            "f": [float("nan"), 1.0],
            "later": pa.array([10**18, 0], pa.timestamp("us")),  # Beyond the years of Python's times.
            "last": pa.array([0, 2**31 - 1], pa.date32()),
        }
    )
    assert statistics(table) == {
        "numRecords": 2, "minValues": {"t": "2020-01-01T00:00:00.001"}, "maxValues": {"t": "2020-01-01T00:00:00.002"},
        "nullCount": {"t": 1, "long": 0, "late": 0, "later": 0, "last": 0},
    }  # fmt: skip


def test_delta_takes_times_beyond_the_years_of_python(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("day", pa.date32())])
    batch = pa.record_batch([pa.array([10**18, 0], pa.timestamp("us")), pa.array([4_000_000, 0], pa.date32())], schema=schema)
    sink = sinks.delta(str(tmp_path / "table"))
    sink.prepare("r1", schema)
    files = sink.target.files("r1", Patience("table", 0, 1), ())
    files.prepare()
    files.commit(1, files.stage_parts(1, 0, pa.Table.from_batches([batch])))
    assert sink.read().equals(pa.Table.from_batches([batch]))


def test_iceberg_by_days_and_the_kinds_of_partition_that_nobody_writes(tmp_path: Path) -> None:
    sink = sink_at("iceberg", tmp_path, partition_by="days(ts)")
    (pair,) = begun(sink)
    pair.epoch(1, 10, 12, 38, last=True)
    catalog = load_catalog("default", **catalog_at(tmp_path))
    table = catalog.load_table("shop.rows")
    days = sorted(str(task.file.partition[0]) for task in table.scan().plan_files())
    assert days == ["18272", "18274"] and table.properties[run_property("r1")] == "1"
    with table.update_spec() as spec:
        spec.add_field("key", "bucket[4]", "buckets")
    with pytest.raises(SinkError, match=r"partitioned by bucket\[4\] of key, which the sink cannot write"):
        sink.prepare("r2", SCHEMA)
    with pytest.raises(QueryError, match="partition_by has 'weeks\\(ts, 2\\)'"):
        sinks.iceberg("a.b", partition_by=["weeks(ts, 2)"])


def test_rows_are_split_by_values_in_their_order() -> None:
    table = pa.table({"a": ["x", None, "x", "y"], "b": [1, 1, 2, 1], "n": range(4)})
    found = [(values, part["n"].to_pylist()) for values, part in split_by(table, ["a", "b"])]
    assert found == [({"a": "x", "b": 1}, [0]), ({"a": None, "b": 1}, [1]), ({"a": "x", "b": 2}, [2]), ({"a": "y", "b": 1}, [3])]
    assert [part["n"].to_pylist() for _, part in split_by(table, ["a"])] == [[0, 2], [1], [3]]
    with pytest.raises(SinkError, match="2,000 values of n in one commit would be as many files"):
        list(split_by(pa.table({"n": range(2000)}), ["n"]))
    assert place_of({"a b": "x/ü", "c": None}) == "a%20b=x%2F%C3%BC/c=__HIVE_DEFAULT_PARTITION__/"
    assert [value_text(v) for v in (None, True, 1, datetime(2020, 1, 1))] == [None, "true", "1", "2020-01-01 00:00:00.000000"]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sinks.delta("/x", commit_s=0), OptionError, "commit_s is 0"),
        (lambda: sinks.iceberg("rows"), OptionError, "give namespace.name"),
        (lambda: sinks.delta("/x", options=3), OptionError, "options of a Delta table"),  # type: ignore[arg-type]
        (lambda: sinks.delta("/x", partition_by=[1]), OptionError, "names of columns"),  # type: ignore[list-item]
        (lambda: sinks.delta("/x", options={"AWS_SECRET_ACCESS_KEY": "s"}).to_json(), QueryError, "saved as plain text"),
    ],
)
def test_wrong_options(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_secrets_are_not_shown() -> None:
    for sink in (sinks.delta("/x", options={"AWS_SECRET_ACCESS_KEY": "hush"}), sinks.iceberg("a.b", options={"token": "hush"})):
        assert "hush" not in repr(sink)
