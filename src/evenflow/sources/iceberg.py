"""An Iceberg table as a stream: its rows at one snapshot, and then what is added to it, snapshot by snapshot.

Snapshots are counted by their sequence numbers, so only tables of format 2 and later are read. What others compact is no change. A snapshot
that deletes or changes rows, or was made with other columns, ends the run: rows cannot be taken back here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import SchemaChanged, SourceError
from evenflow.sources.extras import extra
from evenflow.sources.files import plain_schema
from evenflow.sources.settings import SETTINGS, Settings
from evenflow.sources.versions import DataFile, VersionsSource, made_anew
from evenflow.stream.declared import May, a, row_schema, whole

NAME: Final = a("namespace.name", lambda value: isinstance(value, str) and re.fullmatch(r"[^.\0]+(\.[^.\0]+)+", value) is not None)
MOST: Final = 2**63 - 1


def client() -> Any:
    """The module `pyiceberg.catalog`. Raises QueryError if it is not installed."""
    return extra("pyiceberg.catalog", "an Iceberg table", "pyiceberg", "iceberg")


def table_of(name: str, catalog: str, options: Settings) -> Any:
    """Raises SourceError if there is no such table, or it is one that cannot be read here."""
    library, shown = client(), f"iceberg table {name} of catalog {catalog}"
    try:
        table = library.load_catalog(catalog, **dict(options)).load_table(name)
        version, schemas = table.format_version, table.schemas().values()
        defaults = [column.name for column in table.schema().fields if column.initial_default is not None]
    except Exception as error:  # Of whatever catalog it is.
        raise SourceError(f"cannot read {shown}: {type(error).__name__}: {error}") from error
    if version < 2:
        raise SourceError(f"{shown} has format 1, whose snapshots have no numbers; move it to format 2, or read it through Spark")
    named = {(column.field_id, column.name) for schema in schemas for column in schema.fields}
    if len(named) > min(len({number for number, _ in named}), len({name_ for _, name_ in named})):
        raise SourceError(f"{shown}: columns were renamed, or made again under an old name; read it through Spark, with flow.from_spark")
    if defaults:
        advice = "write these files again, or read it through Spark, with flow.from_spark"
        raise SourceError(f"{shown}: {defaults[0]} has a default for files that are older than it, which cannot be read here; {advice}")
    return table


class IcebergLog:
    """The table's snapshots, from one on."""

    def __init__(self, source: IcebergSource) -> None:
        self._source, self.name = source, f"iceberg table {source.table} of catalog {source.catalog}"
        self._table: Any = None

    def open(self, path: str) -> Any:
        return self._table.io.new_input(path).open()

    def files(self, version: int) -> Sequence[DataFile] | None:
        source = self._source
        if self._table is None:
            self._table = table_of(source.table, source.catalog, source.options)
        if not version:
            return self._first()
        snapshot = self._snapshot(source.sequence + version)
        if snapshot is None:
            self._table = self._table.refresh()
            snapshot = self._snapshot(source.sequence + version)
            newest = self._table.metadata.last_sequence_number
            if snapshot is None and newest + 1 < source.sequence + version:
                raise made_anew(self.name, f"snapshot {newest}", f"snapshot {source.sequence + version - 1}")
        return snapshot if snapshot is None else self._added(snapshot)

    def _first(self) -> list[DataFile]:
        if not self._source.snapshot:
            return []
        if self._table.snapshot_by_id(self._source.snapshot) is None:
            raise self._expired(self._source.sequence)
        tasks = list(self._table.scan(snapshot_id=self._source.snapshot).plan_files())
        if any(task.delete_files for task in tasks):
            raise SourceError(f"{self.name} has files of deleted rows, which cannot be read here; compact it, or read it through Spark")
        return [self._file(task.file, task.file.spec_id) for task in tasks]

    def _file(self, file: Any, spec: int) -> DataFile:
        """With the values of the columns by which the table is divided: files that were taken over from Hive do not have these columns."""
        schema, values = self._table.schema(), dict[str, str | None]()
        for at, by in enumerate(self._table.specs()[spec].fields):
            name, value = schema.find_column_name(by.source_id), file.partition[at]
            if name is None or str(by.transform) != "identity":
                continue
            if isinstance(value, bytes):  # Others than texts cannot be said so, which is an error where they are needed.
                values[name] = value.decode(errors="surrogateescape")
            else:
                values[name] = None if value is None else by.transform.to_human_string(schema.find_type(by.source_id), value)
        return DataFile(file.file_path, values)

    def _snapshot(self, number: int) -> Any:
        """The snapshot with that number; () if there is none of that number in the table's history, None if there is not yet."""
        at = self._table.current_snapshot()
        if at is None or at.sequence_number < number:
            return None
        while at.sequence_number > number:
            if at.parent_snapshot_id is None:
                return ()
            at = self._table.snapshot_by_id(at.parent_snapshot_id)
            if at is None:
                raise self._expired(number)
        return at if at.sequence_number == number else ()

    def _expired(self, number: int) -> SourceError:
        return SourceError(
            f"{self.name}: snapshot {number} has expired and is still needed; keep snapshots until a checkpoint covers them, or give the "
            "dataflow a new location"
        )

    def _added(self, snapshot: Any) -> list[DataFile]:
        if snapshot == ():
            return []
        operation, number = snapshot.summary.operation.value, snapshot.sequence_number
        if operation == "replace":
            return []
        if operation != "append":
            raise SourceError(
                f"{self.name}: snapshot {number} deletes or changes rows ({operation}), and a stream of what is added cannot say so. Start "
                "a new run from the table as it is, or let this table be appended to only"
            )
        schema = self._table.schemas().get(snapshot.schema_id, self._table.schema())
        now = plain_schema(schema.as_arrow())
        if not now.equals(self._source.columns):
            raise SchemaChanged(
                f"{self.name} has other columns from snapshot {number} on: {', '.join(f'{f.name} {f.type}' for f in now)}. Start a "
                "dataflow with these, at a location of its own"
            )
        found = list[DataFile]()
        for manifest in snapshot.manifests(self._table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
                new = [entry.data_file for entry in entries if entry.snapshot_id == snapshot.snapshot_id]
                found += [self._file(file, manifest.partition_spec_id) for file in new]
        return found


@dataclass(frozen=True)
class IcebergSource(VersionsSource):
    """See `evenflow.sources.iceberg`. snapshot, sequence: the one with which it begins, 0 if there was none, and its number. options: of
    the catalog, as PyIceberg names them."""

    kind: ClassVar[str] = "iceberg"
    uncut: ClassVar[str] = "the places of its rows begin anywhere and have gaps of any size, and they have no log time"
    looked_up: ClassVar[tuple[str, ...]] = ("snapshot", "sequence")
    table: str
    catalog: str
    columns: pa.Schema
    snapshot: int
    sequence: int
    follow: bool = True
    poll_ms: int = 1000
    options: Settings = field(default=(), repr=False)
    MAY: ClassVar[Mapping[str, May]] = {
        "table": NAME, "columns": row_schema().called("schema"), "snapshot": whole(0, MOST), "sequence": whole(0, MOST),
        "poll_ms": whole(1, 86_400_000), "options": SETTINGS,
    }  # fmt: skip
    option_owner: ClassVar[str] = "iceberg source"

    @property
    def named(self) -> str:
        return self.table

    def log(self) -> IcebergLog:
        return IcebergLog(self)

    def warm_up(self) -> None:
        client()


__all__ = ["IcebergSource"]
