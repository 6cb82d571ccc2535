"""A Delta table as a stream: its rows at one version, and then what is added to it, version by version of its log.

What others compact is no change. A version that deletes or changes rows, or the columns, ends the run: rows cannot be taken back here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.errors import SchemaChanged, SourceError
from evenflow.sources.extras import extra
from evenflow.sources.files import plain_schema
from evenflow.sources.settings import SETTINGS, Settings
from evenflow.sources.versions import DataFile, VersionsSource, made_anew
from evenflow.stream.collations import check_collations
from evenflow.stream.declared import WIDEST, May, row_schema, whole
from evenflow.stream.declared import path as directory

KNOWN_FEATURES = frozenset({"timestampNtz", "appendOnly", "invariants", "checkConstraints", "v2Checkpoint"})


def client() -> Any:
    """The module `deltalake`. Raises QueryError if it is not installed."""
    return extra("deltalake", "a Delta table", "deltalake", "delta")


def table_at(place: str, version: int | None, options: Settings) -> Any:
    """Raises SourceError if there is no such table, or it is one that cannot be read here."""
    delta, name = client(), f"delta table {place}"
    try:
        table = delta.DeltaTable(place, version=version, storage_options=dict(options) or None)
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        features = set(table.protocol().reader_features or ())
    except Exception as error:  # Of whatever store it is.
        raise SourceError(f"cannot read {name}: {type(error).__name__}: {error}") from error
    if mapping != "none" or features - KNOWN_FEATURES:
        which = ", ".join(sorted(features - KNOWN_FEATURES)) or f"columnMapping ({mapping})"
        raise SourceError(f"{name} has {which}, which cannot be read here; read it through Spark, with flow.from_spark")
    return table


def columns_of(place: str, schema: Any) -> pa.Schema:
    """A table's columns. Raises TypeMismatch for one that we have no type for."""
    check_collations(json.loads(schema.to_json()), f"delta table {place}")
    return plain_schema(pa.schema(schema.to_arrow()))


class DeltaLog:
    """The table's log, from a version on."""

    def __init__(self, source: DeltaSource) -> None:
        self._source, self.name = source, f"delta table {source.path}"
        self._fs: Any = None

    def open(self, path: str) -> Any:
        if self._fs is None:
            from deltalake.fs import DeltaStorageHandler

            self._fs = arrow_fs.PyFileSystem(DeltaStorageHandler(self._source.path, dict(self._source.options) or None))
        return self._fs.open_input_file(path)

    def files(self, version: int) -> Sequence[DataFile] | None:
        number = self._source.version + version
        if not version:
            added = pa.table(table_at(self._source.path, number, self._source.options).get_add_actions(flatten=False)).to_pylist()
            return [_file(one["path"], _texts(one.get("partition") or one.get("partition_values") or {})) for one in added]
        actions = self._said(number)
        if actions is None:
            newest = table_at(self._source.path, None, self._source.options).version()
            if newest + 1 < number:
                raise made_anew(self.name, f"version {newest}", f"version {number - 1}")
            if newest < number:
                return None
            actions = self._said(number)  # It may have come between the two looks.
        if actions is None:
            raise SourceError(
                f"{self.name}: version {number} is not in the log any more; keep the log for longer (delta.logRetentionDuration), or "
                "give the dataflow a new location"
            )
        return self._added(number, actions)

    def _said(self, number: int) -> list[Mapping[str, Any]] | None:
        """What the log says of a version; None if there is no such file."""
        try:
            with self.open(f"_delta_log/{number:020d}.json") as file:
                return [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            return None

    def _added(self, number: int, actions: Sequence[Mapping[str, Any]]) -> list[DataFile]:
        found = []
        for action in actions:
            if (meta := action.get("metaData")) is not None:
                now = columns_of(self._source.path, client().Schema.from_json(meta["schemaString"]))
                if not now.equals(self._source.columns):
                    raise SchemaChanged(
                        f"{self.name} has other columns from version {number} on: {', '.join(f'{f.name} {f.type}' for f in now)}. Start a "
                        "dataflow with these, at a location of its own"
                    )
            if (gone := action.get("remove")) is not None and gone.get("dataChange", True):
                raise SourceError(
                    f"{self.name}: version {number} deletes or changes rows, and a stream of what is added cannot say so. Start a new run "
                    "from the table as it is, or let this table be appended to only"
                )
            if (add := action.get("add")) is not None and add.get("dataChange", True):
                found.append(_file(add["path"], add.get("partitionValues") or {}))
        return found


def _file(path_: str, values: Mapping[str, str | None]) -> DataFile:
    return DataFile(unquote(path_), {name: value or None for name, value in values.items()})


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    """As the log has them."""
    lower = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
    return {name: None if value is None else str(value) for name, value in lower.items()}


@dataclass(frozen=True)
class DeltaSource(VersionsSource):
    """See `evenflow.sources.delta`. version: the one with which it begins. options: of the store, as `deltalake` names them."""

    kind: ClassVar[str] = "delta"
    uncut: ClassVar[str] = "the places of its rows begin anywhere and have gaps of any size, and they have no log time"
    looked_up: ClassVar[tuple[str, ...]] = ("version",)
    path: str
    columns: pa.Schema
    version: int
    follow: bool = True
    poll_ms: int = 1000
    options: Settings = field(default=(), repr=False)
    MAY: ClassVar[Mapping[str, May]] = {
        "path": directory("a directory that all sites see, or a URI such as s3://bucket/place"), "columns": row_schema().called("schema"),
        "version": whole(0, WIDEST), "poll_ms": whole(1, 86_400_000), "options": SETTINGS,
    }  # fmt: skip
    option_owner: ClassVar[str] = "delta source"

    @property
    def named(self) -> str:
        return self.path

    def log(self) -> DeltaLog:
        return DeltaLog(self)

    def warm_up(self) -> None:
        client()


__all__ = ["DeltaSource"]
