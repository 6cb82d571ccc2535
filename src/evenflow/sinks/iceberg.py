"""An Iceberg table as a sink: a commit of the sink is a snapshot of the table.

Run and epoch are in the summary of the snapshot, and the run's last epoch is a property of the table, set in the same commit: snapshots
expire, properties do not. A commit is on condition that the table is as it was when that property was read, so of two that add the same
epoch one is refused, and looks up whether the epoch is there now. PyIceberg would add its files to a table that has changed, too (since
0.12): that would add an epoch twice, so here that step of it is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import QueryError, SinkError
from evenflow.sinks.manifests import StagedFile
from evenflow.sinks.places import check_partition_by, split_by
from evenflow.sinks.sink import MOST_WRITERS, PATIENCE, Sink, Where, Writer
from evenflow.sinks.table_files import EPOCH, RUN, TABLE_RECORD_SCHEMA, TableFiles, as_os_error, check_columns, detail_of
from evenflow.sources.extras import extra
from evenflow.sources.settings import SETTINGS, Settings, check_no_secrets
from evenflow.store.local import LocalStore
from evenflow.store.patience import Patience, no_wait
from evenflow.stream.declared import Declared, May, a, each, optional, text, whole

NAME: Final = a("namespace.name", lambda value: isinstance(value, str) and re.fullmatch(r"[^.\0]+(\.[^.\0]+)+", value) is not None)
TERM: Final = re.compile(r"(?:(years|months|days|hours)\(\s*(\S+)\s*\)|(\S+))")
UNITS: Final[Mapping[str, str]] = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
KEPT: Final[Mapping[str, str]] = {
    "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}  # fmt: skip
"""Properties of a table that is made: with a commit every few seconds, what only looks back would pile up otherwise."""
LOOK_AGAIN: Final[Mapping[str, str]] = {
    "commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "0", "commit.retry.max-wait-ms": "0",
    "commit.retry.total-timeout-ms": str(86_400_000),
}  # fmt: skip
"""For PyIceberg while it commits. Of a commit that it is told has failed it looks whether it is in all the same, but only before it tries
again; without that look it deletes what belongs to the commit, which the table may need."""


def client() -> Any:
    """The module `pyiceberg.catalog`. Raises QueryError if it is not installed."""
    return extra("pyiceberg.catalog", "an Iceberg table", "pyiceberg", "iceberg")


MOVES: Final = "_rebuild_snapshot_updates"
"""What PyIceberg calls its step that moves a commit onto the table as it is now."""


def _not_moved() -> None:
    """In its place."""
    from pyiceberg.exceptions import CommitFailedException

    raise CommitFailedException("somebody else has committed")


def run_property(run: str) -> str:
    """Name of the property that has the run's last epoch."""
    return f"evenflow.run.{run}"


@dataclass(frozen=True, slots=True)
class Term:
    """By what a table is divided: a column, or the year, month, day or hour of one."""

    column: str
    unit: str | None

    @property
    def text(self) -> str:
        return self.column if self.unit is None else f"{self.unit}s({self.column})"

    def of(self, table: pa.Table) -> pa.ChunkedArray:
        column = table.column(self.column)
        if self.unit is None:
            return column
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.cast(pa.timestamp("us", "UTC"))  # Iceberg's days are those of UTC.
        return pc.floor_temporal(column, unit=self.unit)


def term_from(said: str) -> Term:
    match = TERM.fullmatch(said.strip())
    if match is None:
        raise QueryError(f"partition_by has {said!r}; give a column, or years(c), months(c), days(c) or hours(c) of a time")
    return Term(match[3], None) if match[3] else Term(match[2], UNITS[match[1]])


def terms_of(table: Any, name: str) -> tuple[Term, ...]:
    """How a table is divided. Raises SinkError if that is another way than the sink knows."""
    found = []
    for each_ in table.spec().fields:
        column, transform = table.schema().find_column_name(each_.source_id), str(each_.transform)
        if transform not in ("identity", "void", *UNITS.values()):
            raise SinkError(
                f"{name} is partitioned by {transform} of {column}, which the sink cannot write; it knows columns, and years, months, days "
                "and hours of times"
            )
        if transform != "void":
            found.append(Term(column, None if transform == "identity" else transform))
    return tuple(found)


class FileIoStore:
    """A folder as PyIceberg's own file access sees it. An object appears when it is closed, as a whole."""

    def __init__(self, io: Any, root: str) -> None:
        self._io, self.root = io, root

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        output = self._io.new_output(f"{self.root}/{path}")
        if output.exists():
            raise FileExistsError(path)
        with output.create(overwrite=True) as out:
            out.write(data)

    def get(self, path: str) -> bytes:
        with self._io.new_input(f"{self.root}/{path}").open() as file:
            return bytes(file.read())

    def exists(self, path: str) -> bool:
        return bool(self._io.new_input(f"{self.root}/{path}").exists())

    def modified_s(self, path: str) -> float | None:
        return None


class IcebergFiles(TableFiles):
    """One table of Iceberg, which the driver has made."""

    def __init__(self, target: IcebergTarget, run: str, patience: Patience, options: Settings) -> None:
        super().__init__(target.name, run, patience)
        self._target, self._options = target, options
        self._table: Any = None
        self._terms: tuple[Term, ...] = ()

    def _open(self) -> None:
        import pyiceberg
        from pyiceberg.table import Transaction

        if not hasattr(Transaction, MOVES):
            raise SinkError(
                f"{self._name} cannot be written with PyIceberg {pyiceberg.__version__}, which moves commits in a way that is not known "
                "here: an epoch could be there twice; install pyiceberg 0.12"
            )
        self._table = self._target.catalog_of(self._options).load_table(self._target.table)
        self._terms = terms_of(self._table, self._name)
        root = f"{self._table.location()}/data"
        parts = urlsplit(root)
        self._store = LocalStore(parts.path) if parts.scheme in ("", "file") else FileIoStore(self._table.io, root)
        self._root = root

    def _done(self) -> int:
        self._table.refresh()
        return int(self._table.properties.get(run_property(self._run), 0))

    def _check(self, files: Sequence[StagedFile]) -> None:
        if terms_of(self._table, self._name) != self._terms:
            raise SinkError(f"{self._name} is partitioned in another way than when the run began: start the dataflow again")
        names = [column.name for column in self._table.schema().fields]
        for gone in (name for file in files for name in detail_of(file)["columns"] if name not in names):
            raise SinkError(f"{self._name} has no column {gone!r} any more: somebody has taken it away. Add it again, or select others")

    def _append(self, epoch: int, files: Sequence[StagedFile]) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        table, said = self._table, self._table.metadata
        table.metadata = said.model_copy(update={"properties": {**said.properties, **LOOK_AGAIN}})
        try:
            transaction = table.transaction()
            setattr(transaction, MOVES, _not_moved)
            transaction.set_properties({run_property(self._run): str(epoch)})
            paths = [f"{self._root}/{file.file}" for file in files]
            transaction.add_files(paths, {RUN: self._run, EPOCH: str(epoch)}, check_duplicate_files=False)
            transaction.commit_transaction()
        except CommitFailedException:
            return False
        return True

    def _split(self, table: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        """The files have the columns of the partitions, too: there PyIceberg reads which partition each belongs to."""
        own = table.num_columns
        for number, term in enumerate(self._terms):
            table = table.append_column(f"{number} {term.text}", term.of(table))
        places = table.column_names[own:]
        for values, part in split_by(table, places, self._name):
            yield {term.text: values[place] for term, place in zip(self._terms, places)}, part.select(range(own))

    def _detail(self, values: Mapping[str, Any], table: pa.Table) -> str:
        return json.dumps({"columns": table.column_names})


@dataclass(frozen=True)
class IcebergTarget:
    """What the steps of a sink have to know of its table."""

    table: str
    catalog: str

    @property
    def name(self) -> str:
        return f"iceberg table {self.table} of catalog {self.catalog}"

    def catalog_of(self, options: Settings) -> Any:
        return client().load_catalog(self.catalog, **dict(options))

    def files(self, run: str, patience: Patience, options: Settings) -> IcebergFiles:
        return IcebergFiles(self, run, patience, options)


@dataclass(frozen=True)
class IcebergSink(Declared, Sink):
    """See `evenflow.sinks.iceberg`. options: of the catalog, as PyIceberg names them."""

    kind: ClassVar[str] = "iceberg"
    where: ClassVar[Where] = "site"
    record_schema: ClassVar[pa.Schema] = TABLE_RECORD_SCHEMA
    table: str
    catalog: str = "default"
    commit_s: float = 10.0
    partition_by: tuple[str, ...] = ()
    writers: int | None = None
    options: Settings = field(default=(), repr=False)
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {
        **PATIENCE, "table": NAME, "partition_by": each(text(), "names of columns, or years(c), months(c), days(c), hours(c)"),
        "writers": optional(whole(1, MOST_WRITERS)), "options": SETTINGS,
    }  # fmt: skip
    option_owner: ClassVar[str] = "iceberg sink"

    def __post_init__(self) -> None:
        super().__post_init__()
        for said in self.partition_by:
            term_from(said)

    def __str__(self) -> str:
        return self.target.name

    @property
    def place(self) -> tuple[object, ...]:
        return self.kind, self.table

    @property
    def target(self) -> IcebergTarget:
        return IcebergTarget(self.table, self.catalog)

    def step_params(self, run: str = "", wait: Callable[[int], None] = no_wait) -> dict[str, Any]:
        """Keyword arguments of ParquetStage and ParquetCommit."""
        return {
            "path": self.table, "commit_interval_ms": max(1, round(self.commit_s * 1000)), "run": run, "retries": self.retries,
            "backoff_ms": self.backoff_ms, "wait": wait, "into": self.target, "options": self.options,
        }  # fmt: skip

    def prepare(self, run_id: str, schema: pa.Schema) -> int:
        """Make the table, or see whether the one that is there takes such rows. Raises SinkError."""
        name = self.target.name
        client()
        patience = Patience(self.table, 0, self.backoff_ms, owner="iceberg sink")
        patience.attempt("be prepared", lambda: as_os_error(lambda: self._prepare(name, schema), name))
        return self.target.files(run_id, patience, self.options).found()

    def _prepare(self, name: str, schema: pa.Schema) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        terms = tuple(map(term_from, self.partition_by))
        check_terms(name, terms, schema)
        catalog = self.target.catalog_of(self.options)
        if not catalog.table_exists(self.table):
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            try:
                with catalog.create_table_transaction(self.table, schema, properties=dict(KEPT)) as making, making.update_spec() as spec:
                    for term in terms:
                        spec.add_field(term.column, term.unit or "identity", term.text.replace("(", "_").rstrip(")"))
            except TableAlreadyExistsError:
                pass  # Another run has made it a moment ago.
        table = catalog.load_table(self.table)
        there = terms_of(table, name)
        if terms and terms != there:
            texts = [", ".join(term.text for term in each_) for each_ in (there, terms)]
            raise SinkError(
                f"{name} is partitioned by ({texts[0]}), not by ({texts[1]}); leave partition_by out, or write into another table"
            )
        check_columns(name, table.schema().as_arrow(), schema)
        check_terms(name, there, schema)

    def open(self, run_id: str) -> Writer:
        raise SinkError("an iceberg sink has no writer: sites write it")

    def read(self) -> pa.Table:
        """The rows of the table as it is now."""
        return self.target.catalog_of(self.options).load_table(self.table).scan().to_arrow()

    def to_json(self) -> dict[str, Any]:
        check_no_secrets(self.options, self.target.name)
        return super().to_json()


def check_terms(name: str, terms: Sequence[Term], schema: pa.Schema) -> None:
    """Raise SinkError if rows of these columns cannot be told apart by them."""
    check_partition_by(name, [term.column for term in terms if term.unit is None], schema)
    for term in terms:
        if term.unit is not None and (
            term.column not in schema.names
            or not any(fit(schema.field(term.column).type) for fit in (pa.types.is_timestamp, pa.types.is_date))
        ):
            raise SinkError(f"{name}: partition_by has {term.text}, and {term.column!r} is no column with times")


__all__ = ["IcebergFiles", "IcebergSink", "IcebergTarget"]
