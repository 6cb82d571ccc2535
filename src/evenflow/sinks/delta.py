"""A Delta table as a sink: a commit of the sink is one of the table's log.

The run is an application in Delta's sense and the epoch its version (`txn` in the log), so the log itself says which epoch of the run is
the last, also after others have compacted the table or cleaned it up, and refuses a commit beside one of the same application. Who is
refused looks up whether the epoch is there now. What others append, compact or delete meanwhile is in nobody's way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs as arrow_fs

from evenflow.errors import SinkError
from evenflow.sinks.manifests import StagedFile
from evenflow.sinks.places import check_partition_by, directory_of, value_text
from evenflow.sinks.sink import MOST_WRITERS, PATIENCE, Sink, Where, Writer
from evenflow.sinks.table_files import EPOCH, RUN, TABLE_RECORD_SCHEMA, TableFiles, as_os_error, check_columns, detail_of
from evenflow.sources.extras import extra
from evenflow.sources.settings import SETTINGS, Settings, check_no_secrets
from evenflow.store.arrow import ArrowStore
from evenflow.store.local import LocalStore
from evenflow.store.patience import Patience, no_wait
from evenflow.stream.declared import Declared, May, each, optional, text, whole
from evenflow.stream.declared import path as directory

LONGEST_STATISTIC: Final = 32
"""Characters of a text up to which the log says the least and the greatest of a file."""


def client() -> Any:
    """The module `deltalake`. Raises QueryError if it is not installed."""
    return extra("deltalake", "a Delta table", "deltalake", "delta")


def local_path(uri: str) -> str | None:
    """The path of a table in a directory; None if it is in an object store."""
    parts = urlsplit(uri)
    return (unquote(parts.path) if parts.scheme else uri) if parts.scheme in ("", "file") else None


class DeltaFiles(TableFiles):
    """One table of Delta, which the driver has made."""

    keeps_partition_columns = False

    def __init__(self, target: DeltaTarget, run: str, patience: Patience, options: Settings) -> None:
        super().__init__(target.name, run, patience)
        self._target, self._options = target, dict(options)
        self._table: Any = None

    def _open(self) -> None:
        self._table = client().DeltaTable(self._target.path, storage_options=self._options or None)
        self._partition_by = tuple(self._table.metadata().partition_columns)
        path = local_path(self._target.path)
        if path is not None:
            self._store = LocalStore(path)
            return
        from deltalake.fs import DeltaStorageHandler

        handler = DeltaStorageHandler(self._target.path, self._options or None)
        self._store = ArrowStore(arrow_fs.PyFileSystem(handler), "", whole_on_close=True)

    def _done(self) -> int:
        self._table.update_incremental()
        return max(0, self._table.transaction_version(self._run) or 0)

    def _check(self, files: Sequence[StagedFile]) -> None:
        there = tuple(self._table.metadata().partition_columns)
        if there != self._partition_by:
            raise SinkError(
                f"{self._name} was partitioned by ({', '.join(self._partition_by)}) when the run began, and is by ({', '.join(there)}) "
                "now: somebody has made it anew. Start the dataflow again"
            )
        names = _columns(self._table).names
        for gone in (name for file in files for name in detail_of(file)["columns"] if name not in names):
            raise SinkError(f"{self._name} has no column {gone!r} any more: somebody has taken it away. Add it again, or select others")

    def _append(self, epoch: int, files: Sequence[StagedFile]) -> bool:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        delta, actions = client(), []
        for file in files:
            detail, written_s = detail_of(file), self._store.modified_s(file.file) or 0.0
            actions.append(AddAction(file.file, file.bytes, detail["values"], int(written_s * 1000), True, json.dumps(detail["stats"])))
        properties = delta.CommitProperties(
            custom_metadata={RUN: self._run, EPOCH: str(epoch)}, app_transactions=[delta.Transaction(self._run, epoch)]
        )
        try:
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), list(self._partition_by) or None, commit_properties=properties
            )
        except CommitFailedError:
            return False
        return True

    def _detail(self, values: Mapping[str, Any], table: pa.Table) -> str:
        texts = {name: value_text(value) or None for name, value in values.items()}
        return json.dumps({"values": texts, "columns": table.column_names, "stats": statistics(table)}, sort_keys=True)


def statistics(table: pa.Table) -> dict[str, Any]:
    """What the log says of a file, by which readers leave files out: the least and the greatest of its plain columns, and their nulls."""
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for name in table.column_names:
        column = table.column(name)
        said = _as_statistic(column.type)
        if said is None:
            continue
        nulls[name] = column.null_count
        try:
            found = pc.min_max(column).as_py()
        except (OverflowError, ValueError):  # Times beyond Python's, of which the log need not say anything.
            continue
        if found["min"] is None or found["min"] != found["min"]:
            continue
        low, high = said(found["min"], False), said(found["max"], True)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _as_statistic(type_: pa.DataType) -> Callable[[Any, bool], Any] | None:
    """How a value is said in the log, the least or the greatest; None for columns of which nothing is said."""
    if pa.types.is_integer(type_):
        return lambda value, greatest: value
    if pa.types.is_date(type_):
        return lambda value, greatest: value.isoformat()
    if pa.types.is_string(type_):
        return lambda value, greatest: value if len(value) <= LONGEST_STATISTIC else None
    if pa.types.is_timestamp(type_):
        return _milliseconds
    return None


def _milliseconds(value: Any, greatest: bool) -> str | None:
    """The log has times in milliseconds, so what lies between two is said as the one beyond."""
    try:
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if greatest and rounded != value:
            rounded += timedelta(milliseconds=1)
    except OverflowError:
        return None
    return str(rounded.replace(tzinfo=None).isoformat("T", "milliseconds")) + ("" if value.tzinfo is None else "Z")


def _columns(table: Any) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


@dataclass(frozen=True)
class DeltaTarget:
    """What the steps of a sink have to know of its table."""

    path: str
    partition_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"delta table {self.path}"

    def files(self, run: str, patience: Patience, options: Settings) -> DeltaFiles:
        return DeltaFiles(self, run, patience, options)


@dataclass(frozen=True)
class DeltaSink(Declared, Sink):
    """See `evenflow.sinks.delta`. options: of the store, as `deltalake` names them."""

    kind: ClassVar[str] = "delta"
    where: ClassVar[Where] = "site"
    record_schema: ClassVar[pa.Schema] = TABLE_RECORD_SCHEMA
    path: str
    commit_s: float = 10.0
    partition_by: tuple[str, ...] = ()
    writers: int | None = None
    options: Settings = field(default=(), repr=False)
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {
        **PATIENCE, "path": directory("a directory that all sites see, or a URI such as s3://bucket/place"),
        "partition_by": each(text(), "names of columns"), "writers": optional(whole(1, MOST_WRITERS)), "options": SETTINGS,
    }  # fmt: skip
    option_owner: ClassVar[str] = "delta sink"

    def __str__(self) -> str:
        return self.target.name

    @property
    def place(self) -> tuple[object, ...]:
        return self.kind, directory_of(self.path)

    @property
    def target(self) -> DeltaTarget:
        return DeltaTarget(self.path, self.partition_by)

    def step_params(self, run: str = "", wait: Callable[[int], None] = no_wait) -> dict[str, Any]:
        """Keyword arguments of ParquetStage and ParquetCommit."""
        return {
            "path": self.path, "commit_interval_ms": max(1, round(self.commit_s * 1000)), "run": run, "retries": self.retries,
            "backoff_ms": self.backoff_ms, "wait": wait, "into": self.target, "options": self.options,
        }  # fmt: skip

    def prepare(self, run_id: str, schema: pa.Schema) -> int:
        """Make the table, or see whether the one that is there takes such rows. Raises SinkError."""
        delta = client()
        name, options = self.target.name, dict(self.options) or None

        def prepared() -> None:
            if not delta.DeltaTable.is_deltatable(self.path, options):
                check_partition_by(name, self.partition_by, schema)
                delta.DeltaTable.create(self.path, schema, "ignore", list(self.partition_by) or None, storage_options=options)
            table = delta.DeltaTable(self.path, storage_options=options)
            there = tuple(table.metadata().partition_columns)
            if self.partition_by and self.partition_by != there:
                raise SinkError(
                    f"{name} is partitioned by ({', '.join(there)}), not by ({', '.join(self.partition_by)}); leave partition_by out, or "
                    "write into another table"
                )
            check_columns(name, _columns(table), schema)
            check_partition_by(name, there, schema)

        patience = Patience(self.path, 0, self.backoff_ms, owner="delta sink")
        patience.attempt("be prepared", lambda: as_os_error(prepared, name))
        return self.target.files(run_id, patience, self.options).found()

    def open(self, run_id: str) -> Writer:
        raise SinkError("a delta sink has no writer: sites write it")

    def read(self) -> pa.Table:
        """The rows of the table as it is now."""
        return client().DeltaTable(self.path, storage_options=dict(self.options) or None).to_pyarrow_table()

    def to_json(self) -> dict[str, Any]:
        check_no_secrets(self.options, self.target.name)
        return super().to_json()


__all__ = ["DeltaFiles", "DeltaSink", "DeltaTarget"]
