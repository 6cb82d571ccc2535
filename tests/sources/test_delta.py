"""Delta tables as streams: at once, then version by version, from any place again; what no stream can say ends it."""

from __future__ import annotations

import importlib
import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import SchemaChanged, SourceError, TypeMismatch
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.versions import ROW_BITS
from evenflow.world.sim.world import SimWorld

deltalake = pytest.importorskip("deltalake")
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])


def rows(*ids: int) -> pa.Table:
    day, at = date(2026, 11, 23), datetime(2026, 11, 23, 1, 2, 3, 4, UTC)
    given = [{"id": i, "day": day if i % 3 else None, "at": at, "text": f"a/b {i % 2}" if i % 5 else None} for i in ids]
    return pa.Table.from_pylist(given, SCHEMA)


def write(path: Path, table: pa.Table, **more: Any) -> None:
    deltalake.write_deltalake(str(path), table, mode="append", **{"partition_by": ["day", "text", "at"], **more})


def read(
    source: Any, *, skip: int = 0, partition: int = 0, of: int = 1, most: int = 100, only: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """What is there now. only: of these columns, or of all."""
    reader = source.open_for(partition, of, only) if only else source.open(partition, of)
    if skip:
        reader.skip(skip)
    found = list[dict[str, Any]]()
    while (batch := reader.read(0, most)) is not None:
        assert batch.schema.equals(source.schema) or only
        found += batch.to_pylist()
    return found


def test_a_table_and_what_is_added_from_any_place(tmp_path: Path) -> None:
    write(tmp_path, rows(*range(20)))
    write(tmp_path, rows(*range(20, 25)))
    source = ef.sources.delta(tmp_path)
    assert source.version == 1 and ef.sources.from_json(json.loads(json.dumps(source.to_json()))) == source
    assert sorted(row["id"] for row in read(ef.sources.delta(tmp_path, version=0, follow=False))) == list(range(20))
    write(tmp_path, rows(*range(25, 60)))
    deltalake.DeltaTable(str(tmp_path)).optimize.compact()
    write(tmp_path, rows(60))
    whole = read(source)
    places = [row.pop("table_position") for row in whole]
    assert sorted(whole, key=lambda row: row["id"]) == rows(*range(61)).to_pylist()
    assert places == sorted(set(places))
    for at in (0, 7, 24, 30, 60):
        assert [row["id"] for row in read(source, skip=places[at] + 1, most=3)] == [row["id"] for row in whole[at + 1 :]]
    for only in (("id",), ("text", "table_position"), ("day",), ("table_position",)):
        found = read(source, skip=places[7] + 1, only=only)
        wanted = [{**row, "table_position": place} for row, place in zip(whole[8:], places[8:])]
        assert [{name: row[name] for name in only} for row in found] == [{name: row[name] for name in only} for row in wanted]
    dealt = [row["id"] for part in range(3) for row in read(source, partition=part, of=3)]
    assert sorted(dealt) == list(range(61))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda path: deltalake.DeltaTable(path).delete("id = 1"), SourceError, "version 1 deletes or changes rows"),
        (lambda path: write(path, rows(2).append_column("new", [[1]]), schema_mode="merge"), SchemaChanged, "other columns from version 1"),
        (lambda path: Path(path, "_delta_log", f"{1:020d}.json").unlink(), SourceError, "not in the log any more"),
        (lambda path: [file.unlink() for file in Path(path).glob("*/*/*/*.parquet")], SourceError, "has gone"),
    ],
    ids=["deleted", "columns", "log", "files"],
)
def test_what_no_stream_can_say_ends_it(tmp_path: Path, change: Any, error: type[Exception], says: str) -> None:
    write(tmp_path, rows(1))
    source = ef.sources.delta(tmp_path)
    if says.startswith("not in"):
        write(tmp_path, rows(2))
        write(tmp_path, rows(3))
        deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    change(str(tmp_path))
    with pytest.raises(error, match=says):
        read(source)


def test_a_commit_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a version that comes between the look for its file and the look at the table is read. Method: another writer commits there,
    each time the source is at the end of the log."""
    write(tmp_path, rows(0))
    source = ef.sources.delta(tmp_path)
    module = importlib.import_module("evenflow.sources.delta")  # Of `evenflow.sources` it is the function.
    look, coming = module.table_at, [1, 2, 3]

    def beaten(place: str, version: int | None, options: Any) -> Any:
        if version is None and coming:
            write(tmp_path, rows(coming.pop(0)))
        return look(place, version, options)

    monkeypatch.setattr(module, "table_at", beaten)
    assert [row["id"] for row in read(source)] == [0, 1, 2, 3]
    assert not coming


def test_times_of_spark_are_of_utc_as_the_table_says(tmp_path: Path) -> None:
    """Goal: the files of a Spark that writes INT96, which has no zone. Method: the table's own file, written again so."""
    at = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    zoned = pa.timestamp("us", "UTC")
    inside = pa.struct([pa.field("at", zoned), pa.field("n", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("at", zoned), ("all", pa.list_(zoned)), ("in", inside)])
    given = [{"id": 1, "at": at, "all": [at], "in": {"at": at, "n": 1}}, {"id": 2, "at": None, "all": None, "in": None}]
    write(tmp_path, pa.Table.from_pylist(given, schema), partition_by=[])
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True, store_schema=False)
    assert {found.type for found in pq.read_schema(file)} & {zoned} == set()
    source = ef.sources.delta(tmp_path, follow=False)
    assert [{name: row[name] for name in schema.names} for row in read(source)] == given
    assert [row["at"] for row in read(source, only=("at",))] == [at, None]


def test_a_time_without_a_zone_that_is_no_int96_is_another_column(tmp_path: Path) -> None:
    write(tmp_path, rows(1), partition_by=[])
    (file,) = tmp_path.glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(table.set_column(2, "at", table["at"].cast(pa.timestamp("us"))), file)
    with pytest.raises(SchemaChanged, match="column 'at' is timestamp"):
        read(ef.sources.delta(tmp_path, follow=False))


def collated(path: Path) -> None:
    """The table's columns as a Spark writes them that has collations: strings, with what they are compared by aside."""
    log = path / "_delta_log"
    newest = max(log.glob("*.json"))
    schema = {"type": "struct", "fields": [json.loads(field.to_json()) for field in deltalake.DeltaTable(str(path)).schema().fields]}
    for field in schema["fields"]:
        field["metadata"] = {"__COLLATIONS": {"text": "spark.UTF8_LCASE"}} if field["name"] == "text" else {}
    said = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (meta,) = (action["metaData"] for action in said if "metaData" in action)
    next_ = log / f"{int(newest.stem) + 1:020d}.json"
    next_.write_text(json.dumps({"metaData": {**meta, "schemaString": json.dumps(schema)}}) + "\n")


def test_a_column_with_a_collation_is_refused_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, rows(1))
    source = ef.sources.delta(tmp_path)
    collated(tmp_path)
    for begin in (lambda: read(source), lambda: ef.sources.delta(tmp_path)):
        with pytest.raises(TypeMismatch, match="column 'text' is a string collate UTF8_LCASE"):
            begin()


def test_a_decimal_of_the_log_that_arrow_must_not_be_given_is_an_error(tmp_path: Path) -> None:
    """Whoever may write to the table could end each process that reads it."""
    table = pa.table({"id": [1], "d": pa.array([Decimal("1.50")], pa.decimal128(10, 2))})
    for _ in range(2):
        write(tmp_path, table, partition_by=["d"])
    log = tmp_path / "_delta_log/00000000000000000001.json"
    said = [json.loads(line) for line in log.read_text().splitlines()]
    for added in (each["add"] for each in said if "add" in each):
        added["partitionValues"]["d"] = "1e-999999999"
    source = ef.sources.delta(tmp_path, version=0)
    assert [row["d"] for row in read(source)] == [Decimal("1.50")] * 2
    log.write_text("".join(json.dumps(each) + "\n" for each in said))
    with pytest.raises(SourceError, match="column 'd': 1e-999999999 is no decimal"):
        read(source)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_table_that_was_made_anew_is_not_waited_for(tmp_path: Path, goes_on: bool) -> None:
    """Its versions begin again: a reader would wait for one of the old table's numbers, and miss what is in those before."""
    for _ in range(4):
        write(tmp_path / "t", rows(1))
    source = ef.sources.delta(tmp_path / "t", version=0)
    reader = source.open(0, 1)
    if goes_on:
        reader.skip(4 << ROW_BITS)
    else:
        while reader.read(0, 10) is not None:
            pass
    shutil.rmtree(tmp_path / "t")
    write(tmp_path / "t", rows(2))
    write(tmp_path / "t", rows(3))
    with pytest.raises(SourceError, match="ends with version 1, and version 3 had been read: somebody has made it anew"):
        reader.read(10**7, 10)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read delta table"):
        ef.sources.delta(tmp_path)


def test_a_site_dies_that_reads_a_table(tmp_path: Path) -> None:
    """Goal: every row once. Method: in the simulator, kill the leader of a partition while it reads."""
    for first in range(0, 200, 40):
        write(tmp_path, rows(*range(first, first + 40)), partition_by=[])
    flow = ef.Dataflow("delta")
    source = ef.sources.delta(tmp_path, version=4, follow=False)
    flow.source(source).group_by("day").agg(n="count(*)", s="sum(id)").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=3, partitions=8)
    world = SimWorld(planned, sites=3, replicas=2, options=FlowOptions(linger_ms=0.5, epoch_rows=4), read_rows=3)
    log = world.sites[world.coordinator.membership.leaders[0][0].site].part.leading.logs[0, 0]
    world.run_until(lambda: log.settled > 3, 600.0, "its successor knows of a part of the table")
    world.kill(world.coordinator.membership.leaders[0][0].site)
    world.run_until_quiet(600.0)
    newest = {row["day"]: (row["n"], row["s"]) for row in world.output("out").to_pylist()}
    thirds = [i for i in range(200) if i % 3 == 0]
    assert newest == {None: (len(thirds), sum(thirds)), date(2026, 11, 23): (200 - len(thirds), sum(range(200)) - sum(thirds))}
