"""Parquet files that the regions of a group write as one run: each epoch with rows is a file, made by whoever is first (race.md, W3).

A file is named by the epoch that came before its own, and a store makes a name only once. So of two regions that bring what follows on an
epoch exactly one makes the file; the other finds it there, and compares what it says of itself: epoch and digest stand in the schema of the
file. The files are the chain: no row, lock or log stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.errors import LocationError, SinkError
from evenflow.sinks.sink import PATIENCE, Appender, Sink, Where, Writer
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.stream.declared import Declared, May, one_of
from evenflow.stream.declared import path as directory
from evenflow.stream.digest import digest_of_json

EPOCH: Final = b"evenflow.epoch"
DIGEST: Final = b"evenflow.digest"
WHOSE: Final = b"evenflow.group"
SUFFIX: Final = ".parquet"


class ParquetAppender(Appender):
    """One region's hand on the files. The newest link is known as far as it was looked at; the chain only grows."""

    def __init__(self, store: Store, begins: str, compression: str, whose: str = "") -> None:
        self._store, self._begins, self._compression, self._whose = store, begins, compression, whose
        self._held = (0, 0)
        self._known = False

    def _name(self, prev: int) -> str:
        return f"{self._begins}{prev:020d}{SUFFIX}"

    def last(self) -> tuple[int, int]:
        if not self._known:
            names = self._store.names(self._begins)
            if names:
                self._read(names[-1])
            self._known = True
        while self._read(self._name(self._held[0])):
            pass
        return self._held

    def _read(self, name: str) -> bool:
        """Take what a file says of itself. False if there is none of that name. Raises SinkError for one that is not of a group."""
        try:
            data = self._store.get(name)
        except FileNotFoundError:
            return False
        try:
            said = pq.read_schema(pa.BufferReader(data)).metadata or {}
            found = int(said[EPOCH]), int(said[DIGEST])
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise SinkError(f"{name} at {self._store.url} is no epoch of a group: {error}; give the sink a directory of its own") from error
        if found[0] <= self._held[0]:
            raise SinkError(f"{name} at {self._store.url} says that it is epoch {found[0]}, and {self._held[0]} comes before it")
        self._held, self.noted = found, said.get(WHOSE, b"").decode()
        return True

    def append(self, prev: int, epoch: int, digest: int, batch: pa.RecordBatch) -> bool:
        if self.last()[0] != prev:
            return False
        said = {EPOCH: str(epoch).encode(), DIGEST: str(digest).encode(), WHOSE: self._whose.encode()}
        schema = batch.schema.with_metadata({**(batch.schema.metadata or {}), **said})
        into = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch.replace_schema_metadata(schema.metadata)]), into, compression=self._compression)
        try:
            self._store.create(self._name(prev), into.getvalue().to_pybytes())
        except FileExistsError:
            return False
        self._held, self.noted = (epoch, digest), self._whose
        return True


@dataclass(frozen=True)
class SharedParquetSink(Declared, Sink):
    """path: a directory that all regions see, or s3:// or webhdfs://, where an object is made only if there is none of its name.
    compression: of the files."""

    kind: ClassVar[str] = "shared_parquet"
    where: ClassVar[Where] = "driver"
    compares: ClassVar[bool] = True
    path: str
    compression: str = "zstd"
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {
        **PATIENCE, "path": directory("a directory that all regions see, s3://bucket/place or webhdfs://host:port/place"),
        "compression": one_of("zstd", "snappy", "none"),
    }  # fmt: skip
    option_owner: ClassVar[str] = "shared Parquet sink"

    def _store(self) -> Store:
        try:
            return open_store(self.path)
        except LocationError as error:
            raise SinkError(f"shared Parquet sink {self.path}: {error}".replace("checkpoint location ", "")) from error

    def open(self, run_id: str) -> Writer:
        raise SinkError(
            f"shared Parquet sink {self.path}: regions of a group write to it, and this run is none; start it with group=ef.group(...), or "
            "use ef.sinks.parquet"
        )

    def open_for_group(self, group: str, name: str, whose: str = "") -> ParquetAppender:
        compression: Literal["zstd", "snappy", "none"] | Any = self.compression
        return ParquetAppender(self._store(), begins_of(group, name), compression, whose)

    def read(self, group: str, name: str) -> pa.Table:
        """The rows that are there, in the order of epochs."""
        store = self._store()
        tables = [pq.read_table(pa.BufferReader(store.get(each))) for each in store.names(begins_of(group, name))]
        return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]) if tables else pa.table({})


def begins_of(group: str, name: str) -> str:
    """What the names of a sink's files begin with. A sink's name may have any letters."""
    return f"{group}-{digest_of_json(name)[:8]}-after-"


__all__ = ["ParquetAppender", "SharedParquetSink"]
