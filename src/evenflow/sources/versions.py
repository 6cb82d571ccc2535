"""Tables that have versions: the files of one version first, and then those that each later one has added.

A row's place is (version, row): the version counted from the first one, and the number of the row among this partition's rows of that
version, files in the order of their names. Both are in the log of the table, so whoever reads again reads the same rows at the same places.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenflow.errors import EvenflowError, QueryError, SourceError
from evenflow.sources.decimals import check_decimals
from evenflow.sources.files import BATCH_ROWS, check_schema, conform, parquet_file, plain_type, wanted_of, without_zones
from evenflow.sources.settings import Settings, check_no_secrets
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import Declared

POSITION: Final = "table_position"
ROW_BITS: Final = 38
"""Of a position; the version has the rest."""


class DataFile(NamedTuple):
    """path: as the table names it. values: of partition columns that the file itself does not have, as text; None: no value."""

    path: str
    values: Mapping[str, str | None]


def made_anew(name: str, newest: str, had: str) -> SourceError:
    """A table's versions only grow. Who waited for the next one of a table that was dropped and made again would miss all before it."""
    return SourceError(f"{name} ends with {newest}, and {had} had been read: somebody has made it anew. Give the dataflow a new location")


class Log(Protocol):
    """A table as a reader sees it. Methods raise SourceError, SchemaChanged, and whatever the library raises."""

    name: str

    def files(self, version: int) -> Sequence[DataFile] | None:
        """What a version, counted from the first, has added; the first has all that was there. None if there is no such version yet."""

    def open(self, path: str) -> Any:
        """A data file, as pyarrow reads it. Raises FileNotFoundError."""


class VersionsReader(Reader):
    """One partition: every so many files of each version are its own."""

    def __init__(
        self, log: Log, columns: pa.Schema, partition: int, of: int, follow: bool, poll_ms: int, only: Collection[str] | None = None
    ) -> None:
        """columns: of the table. only: those of them that are wanted; without them all."""
        self._log, self._columns, self._partition, self._of = log, columns, partition, of
        wanted = [column for column in columns if only is None or column.name in only] or [columns.field(0)]
        self._wanted = pa.schema(wanted)
        self._follow, self._poll_us = follow, poll_ms * 1000
        self._version, self._row = 0, 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._left: pa.RecordBatch | None = None
        self._schema = with_position(self._wanted)

    def skip(self, rows: int) -> None:
        """rows: the position behind the last row."""
        self._version, self._row = rows >> ROW_BITS, rows & ((1 << ROW_BITS) - 1)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        self.wake_us = None
        while True:
            if self._left is None and not self._next(now_us):
                return None
            batch, self._left = self._left, None
            if batch is None or not batch.num_rows:
                continue
            if batch.num_rows > max_rows:
                batch, self._left = batch.slice(0, max_rows), batch.slice(max_rows)
            first = (self._version << ROW_BITS) + self._row
            self._row += batch.num_rows
            places = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
            return pa.RecordBatch.from_arrays([*batch.columns, places], schema=self._schema)

    def _next(self, now_us: int) -> bool:
        """The next batch, if there is one now."""
        try:
            if self._batches is None:
                if self._version and not self._follow:
                    self.ended = True
                    return False
                files = self._log.files(self._version)
                if files is None:
                    self.wake_us = now_us + self._poll_us
                    return False
                own = sorted(files)[self._partition :: self._of]
                self._batches = self._rows(own, self._row)
            self._left = next(self._batches, None)
        except EvenflowError:
            raise
        except FileNotFoundError as error:
            raise SourceError(
                f"{self._log.name}: a file of version {self._version} after the first one read has gone ({error}); it was compacted or "
                "deleted, and cleaned up. Keep files until a checkpoint covers them, or give the dataflow a new location"
            ) from error
        except Exception as error:  # Of whatever library it is.
            raise SourceError(f"cannot read {self._log.name}: {type(error).__name__}: {error}") from error
        if self._left is None:
            self._batches, self._version, self._row = None, self._version + 1, 0
            self.ended = not self._follow
            return not self.ended
        return True

    def _rows(self, files: Sequence[DataFile], skip: int) -> Iterator[pa.RecordBatch]:
        for file in files:
            with parquet_file(self._log.open(file.path)) as source:
                rows = source.metadata.num_rows
                if rows <= skip:
                    skip -= rows
                    continue
                schema = with_zones(source, self._columns)
                check_schema(file.path, with_values(schema.empty_table(), file.values, self._columns).schema, self._columns)
                inside = wanted_of(source, self._wanted.names)
                if inside == []:  # Rows have to be counted by something.
                    inside = source.schema_arrow.names[:1]
                for raw in source.iter_batches(BATCH_ROWS, columns=inside):
                    cut = raw.slice(min(skip, raw.num_rows))
                    skip -= raw.num_rows - cut.num_rows
                    zoned = pa.Table.from_batches([cut]).cast(pa.schema([schema.field(name) for name in raw.schema.names]))
                    whole = with_values(zoned, file.values, self._wanted)
                    for batch in whole.combine_chunks().to_batches():
                        yield conform(batch, self._wanted)


class VersionsSource(Declared, Source):
    """The description of such a table. Subclasses are frozen dataclasses with at least these fields, and say what its log is.

    columns: of the table. follow: later versions come, too; poll_ms: it is looked for them so
    often. options: of who reads it.
    """

    blocking: ClassVar[bool] = True
    columns: pa.Schema
    follow: bool
    poll_ms: int
    options: Settings

    @property
    @abstractmethod
    def named(self) -> str:
        """As people have named the table."""

    @abstractmethod
    def log(self) -> Log:
        """For one reader."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if POSITION in self.columns.names:
            raise QueryError(f"{self.option_owner} {self.named}: the table has a column {POSITION!r}, which every row gets; rename it")

    @property
    def schema(self) -> pa.Schema:
        return with_position(self.columns)

    @property
    def streaming(self) -> bool:
        return self.follow

    @property
    def position(self) -> str:
        return POSITION

    def partitions(self, sites: int) -> int:
        return sites

    def open(self, partition: int, of: int) -> VersionsReader:
        return VersionsReader(self.log(), self.columns, partition, of, self.follow, self.poll_ms)

    def open_for(self, partition: int, of: int, columns: Sequence[str]) -> VersionsReader:
        return VersionsReader(self.log(), self.columns, partition, of, self.follow, self.poll_ms, columns)

    def to_json(self) -> dict[str, Any]:
        check_no_secrets(self.options, f"{self.option_owner} {self.named}")
        return super().to_json()


def with_zones(source: pq.ParquetFile, columns: pa.Schema) -> pa.Schema:
    """The columns of a file. Times of INT96, which has no zone, are of that which the table says: Spark writes all of UTC."""
    found = source.schema_arrow.remove_metadata()
    old = {leaf.path for leaf in map(source.schema.column, range(len(source.schema))) if leaf.physical_type == "INT96"}
    for at, field in enumerate(found) if old else ():
        said = columns.field(field.name).type if field.name in columns.names else field.type
        if any(path == field.name or path.startswith(f"{field.name}.") for path in old) and without_zones(field.type) == without_zones(
            said
        ):
            found = found.set(at, pa.field(field.name, said))
    return found


def with_position(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, pa.field(POSITION, pa.int64(), False)])


def with_values(table: pa.Table, values: Mapping[str, str | None], columns: pa.Schema) -> pa.Table:
    """The table with all columns: those by which it is divided, and nothing in those that came after it had been written."""
    for column in columns:
        if column.name not in table.column_names:
            text = pa.scalar(values.get(column.name), pa.string())
            table = table.append_column(column.name, pa.repeat(_typed(column.name, text, column.type), table.num_rows))
    return table.select(columns.names)


def _typed(name: str, text: pa.Scalar, type_: pa.DataType) -> pa.Scalar:
    """The value of a partition column, as the log says it. Raises ArrowInvalid."""
    if pa.types.is_timestamp(type_) and type_.tz is not None and text.is_valid:
        naive = pa.scalar(text.as_py().removesuffix("Z").removesuffix("+00:00").replace("T", " "), pa.string()).cast(pa.timestamp("us"))
        return pc.assume_timezone(naive, "UTC").cast(type_)
    if pa.types.is_decimal(type_) and text.is_valid:
        check_decimals(name, [text.as_py()], type_)
    return text.cast(plain_type(type_))


__all__ = ["POSITION", "DataFile", "Log", "VersionsReader", "VersionsSource", "made_anew"]
