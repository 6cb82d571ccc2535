"""Iceberg tables as streams: at once, then snapshot by snapshot, from any place again; what no stream can say ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import SchemaChanged, SourceError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.versions import ROW_BITS
from evenflow.world.sim.world import SimWorld
from tests.sources.test_delta import read

catalogs = pytest.importorskip("pyiceberg.catalog")
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("text", pa.string())])


def rows(*ids: int) -> pa.Table:
    given = [{"id": i, "day": date(2026, 11, 20 + i % 3), "text": f"t{i}" if i % 5 else None} for i in ids]
    return pa.Table.from_pylist(given, SCHEMA)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}


@pytest.fixture
def table(options: dict[str, str]) -> Any:
    catalog = catalogs.load_catalog("default", **options)
    catalog.create_namespace("shop")
    made = catalog.create_table(
        "shop.rows", SCHEMA, properties={"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    )
    with made.update_spec() as spec:
        spec.add_identity("day")
    return made


def test_a_table_and_what_is_added_from_any_place(table: Any, options: dict[str, str]) -> None:
    empty = ef.sources.iceberg("shop.rows", options=options)
    table.append(rows(*range(20)))
    source = ef.sources.iceberg("shop.rows", options=options)
    assert ef.sources.from_json(json.loads(json.dumps(source.to_json()))) == source
    assert sorted(row["id"] for row in read(ef.sources.iceberg("shop.rows", follow=False, options=options))) == list(range(20))
    for first in range(20, 60, 10):
        table.append(rows(*range(first, first + 10)))
    whole = read(source)
    places = [row.pop("table_position") for row in whole]
    assert sorted(whole, key=lambda row: row["id"]) == rows(*range(60)).to_pylist()
    assert places == sorted(set(places))
    for at in (0, 7, 19, 30, 58):
        assert [row["id"] for row in read(source, skip=places[at] + 1, most=3)] == [row["id"] for row in whole[at + 1 :]]
    for of in (1, 3):
        assert sorted(row["id"] for part in range(of) for row in read(empty, partition=part, of=of)) == list(range(60))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_table_that_was_made_anew_is_not_waited_for(table: Any, options: dict[str, str], goes_on: bool) -> None:
    """Its snapshots are counted from 1 again, and what is in those up to the old table's number would be missed."""
    for first in range(4):
        table.append(rows(first))
    source = ef.sources.iceberg("shop.rows", options=options)
    reader = source.open(0, 1)
    while reader.read(0, 10) is not None:
        pass
    catalog = catalogs.load_catalog("default", **options)
    catalog.drop_table("shop.rows")
    catalog.create_table("shop.rows", SCHEMA).append(rows(9))
    if goes_on:
        reader = source.open(0, 1)
        reader.skip(1 << ROW_BITS)
    with pytest.raises(SourceError, match="ends with snapshot 1, and snapshot 4 had been read: somebody has made it anew|UUID"):
        reader.read(10**7, 10)


VALUES: dict[str, Any] = {
    "day": date(1969, 7, 20), "text": "a/b %", "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "local": datetime(1960, 1, 2, 3, 4, 5, 6),
    "price": Decimal("-1.50"), "yes": True, "n": -7, "empty": "", "none": None, "data": b"ab",
}  # fmt: skip
TYPES: dict[str, pa.DataType] = {
    "day": pa.date32(), "text": pa.string(), "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "price": pa.decimal128(9, 2),
    "yes": pa.bool_(), "n": pa.int32(), "empty": pa.string(), "none": pa.string(), "data": pa.binary(),
}  # fmt: skip


def take_over(table: Any, path: Path, rows: pa.Table, values: list[Any]) -> None:
    """As Spark's procedures take files of Hive over, which have no columns for what is in the names of their folders."""
    manifest, typedef = pytest.importorskip("pyiceberg.manifest"), pytest.importorskip("pyiceberg.typedef")
    pq.write_table(rows, path)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(
            manifest.DataFile.from_args(
                content=manifest.DataFileContent.DATA, file_path=f"file://{path}", file_format=manifest.FileFormat.PARQUET,
                partition=typedef.Record(*values), record_count=rows.num_rows, file_size_in_bytes=path.stat().st_size, column_sizes={},
                value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}, spec_id=table.spec().spec_id,
            )
        )  # fmt: skip


def test_files_that_were_taken_over_have_the_values_of_their_folders(tmp_path: Path, options: dict[str, str]) -> None:
    """Goal: what is read is what PyIceberg's own scan reads. Method: such files at once and followed, beside one of Iceberg's, and another
    way to divide the table in between."""
    catalog = catalogs.load_catalog("default", **options)
    catalog.create_namespace("shop")
    schema = pa.schema([("id", pa.int64()), *TYPES.items()])
    names = [{"field-id": at + 1, "names": [name]} for at, name in enumerate(schema.names)]
    table = catalog.create_table("shop.rows", schema, properties={"schema.name-mapping.default": json.dumps(names)})
    with table.update_spec() as spec:
        for name in TYPES:
            spec.add_identity(name)
        spec.add_field("id", pytest.importorskip("pyiceberg.transforms").BucketTransform(4), "id_bucket")
    micros = {name: (VALUES[name].replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1) for name in ("at", "local")}
    raw = {**VALUES, "day": -165, **micros}
    take_over(table, tmp_path / "a.parquet", pa.table({"id": pa.array([1, 2], pa.int64())}), [*raw.values(), 3])
    source = ef.sources.iceberg("shop.rows", options=options)
    take_over(table, tmp_path / "b.parquet", pa.table({"id": pa.array([3], pa.int64())}), [*raw.values(), 3])
    with table.update_spec() as spec:
        for name in TYPES:
            if name != "day":
                spec.remove_field(name)
    rest = pa.table({"id": pa.array([4], pa.int64()), **{name: pa.array([VALUES[name]], TYPES[name]) for name in TYPES if name != "day"}})
    take_over(table, tmp_path / "c.parquet", rest, [raw["day"], 3])
    found = [{name: row[name] for name in schema.names} for row in read(source)]
    assert found == [{"id": id_, **VALUES} for id_ in (1, 2, 3, 4)]
    scanned = table.scan().to_arrow().select(schema.names).to_pylist()
    assert sorted(scanned, key=lambda row: row["id"]) == found
    assert [row["day"] for row in read(source, only=("day",))] == [VALUES["day"]] * 4


def test_a_table_whose_older_files_have_a_default(table: Any, options: dict[str, str]) -> None:
    """Goal: it is refused, since such a column would be read as null. Method: in the metadata, since PyIceberg writes no format 3."""
    table.append(rows(1))
    path = Path(table.metadata_location.removeprefix("file://"))
    said = json.loads(path.read_text())
    said["format-version"], said["next-row-id"] = 3, 10
    said["schemas"][-1]["fields"][-1]["initial-default"] = "none"
    path.write_text(json.dumps(said))
    with pytest.raises(SourceError, match="text has a default for files that are older than it"):
        ef.sources.iceberg("shop.rows", options=options)


def with_a_column(table: Any) -> None:
    with table.update_schema() as change:
        change.add_column("new", catalogs_types().LongType())
    table.append(rows(2).append_column("new", [[1]]))


def catalogs_types() -> Any:
    return pytest.importorskip("pyiceberg.types")


def expired(table: Any) -> None:
    table.append(rows(2))
    table.append(rows(3))
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    table.maintenance.expire_snapshots().by_ids(ids[:2]).commit()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda table: table.delete("id = 1"), SourceError, "snapshot 2 deletes or changes rows"),
        (with_a_column, SchemaChanged, "other columns from snapshot 2"),
        (expired, SourceError, "has expired"),
    ],
    ids=["deleted", "columns", "expired"],
)
def test_what_no_stream_can_say_ends_it(
    table: Any, options: dict[str, str], change: Callable[[Any], None], error: type[Exception], says: str
) -> None:
    table.append(rows(1, 4, 7))
    source = ef.sources.iceberg("shop.rows", options=options)
    change(table)
    with pytest.raises(error, match=says):
        read(source)


def test_tables_that_cannot_be_read(table: Any, options: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="cannot read iceberg table shop.none"):
        ef.sources.iceberg("shop.none", options=options)
    with table.update_schema() as change:
        change.rename_column("text", "other")
    with pytest.raises(SourceError, match="renamed"):
        ef.sources.iceberg("shop.rows", options=options)


def test_a_site_dies_that_reads_a_table(table: Any, options: dict[str, str]) -> None:
    """Goal: every row once. Method: in the simulator, kill the leader of a partition while it reads what later snapshots have added."""
    table.append(rows(*range(40)))
    source = ef.sources.iceberg("shop.rows", poll_ms=1, options=options)
    for first in range(40, 160, 40):
        table.append(rows(*range(first, first + 40)))
    flow = ef.Dataflow("iceberg")
    flow.source(source).group_by("day").agg(n="count(*)", s="sum(id)").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=3, partitions=8)
    world = SimWorld(planned, sites=3, replicas=2, options=FlowOptions(linger_ms=0.5, epoch_rows=4), read_rows=3)
    log = world.sites[world.coordinator.membership.leaders[0][0].site].part.leading.logs[0, 0]
    world.run_until(lambda: log.settled > 3, 600.0, "its successor knows of a part of the table")

    def newest() -> dict[Any, tuple[int, int]]:
        return {row["day"]: (row["n"], row["s"]) for row in world.output("out").to_pylist()}

    assert sum(n for n, _ in newest().values()) < 160
    world.kill(world.coordinator.membership.leaders[0][0].site)
    world.run_until(lambda: sum(n for n, _ in newest().values()) >= 160, 600.0, "all rows are counted")
    days = [[i for i in range(160) if i % 3 == at] for at in range(3)]
    assert newest() == {date(2026, 11, 20 + at): (len(of), sum(of)) for at, of in enumerate(days)}
