"""What sinks into tables of a table format have in common: files that nobody reads are staged, and a commit of the table adds them.

The table's own log decides what readers see, so a commit is one commit of the table, with the run and the epoch in it, and whoever is told
that somebody else was faster looks whether that one has added the same. Names and contents of files are functions of the address (E3) and
are not replaced, as in `evenflow.sinks.committed`. What was staged and is in no commit is found by the table's own cleaning up (VACUUM,
remove_orphan_files): no reader ever sees it.
"""

from __future__ import annotations

import errno
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from evenflow.errors import EvenflowError, SinkError
from evenflow.sinks.committed import TABLE_RECORD_SCHEMA, parquet_bytes
from evenflow.sinks.manifests import StagedFile
from evenflow.sinks.places import is_text, place_of, split_by, without_empty
from evenflow.store.local import LocalStore
from evenflow.store.patience import Patience
from evenflow.stream.digest import digest_of

T = TypeVar("T")

RUN: Final = "evenflow.run"
EPOCH: Final = "evenflow.epoch"
"""Names in the metadata of a commit."""


class PartStore(Protocol):
    """Where files are staged. All methods raise OSError."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file so that it appears whole or not at all. FileExistsError if there is one already."""

    def get(self, path: str) -> bytes:
        """A file's content. FileNotFoundError if there is none."""

    def exists(self, path: str) -> bool:
        """Is there such a file?"""

    def modified_s(self, path: str) -> float | None:
        """When it was written, by the clock of the store, if that says so."""


class TableFiles(ABC):
    """The table as one replica of one run sees it. Nothing is touched before `prepare`. partition_by: of the table that is there."""

    kind: str
    keeps_partition_columns: bool

    def __init__(self, name: str, run: str, patience: Patience) -> None:
        self._name, self._run, self._patience = name, run, patience
        self._partition_by: tuple[str, ...] = ()
        self._store: PartStore
        self.last_epoch = 0

    # ------------------------------------------------ what a format does

    @abstractmethod
    def _open(self) -> None:
        """Find the table, or make it so if that is possible; set `_partition_by` and `_store`."""

    @abstractmethod
    def _done(self) -> int:
        """The last epoch of the run that the table has, looked up now."""

    @abstractmethod
    def _append(self, epoch: int, files: Sequence[StagedFile]) -> bool:
        """One commit that adds the files and says run and epoch. False if somebody else has committed meanwhile, and this one is not in."""

    @abstractmethod
    def _check(self, files: Sequence[StagedFile]) -> None:
        """Raise SinkError if the table that is there now does not take them."""

    def _detail(self, values: Mapping[str, Any], table: pa.Table) -> str:
        """What the log will say of a file besides. values: of the partition columns."""
        return "{}"

    # ------------------------------------------------ the steps

    def prepare(self) -> None:
        """Raises SinkError, naming the table and what to do."""
        if not re.fullmatch(r"[\w.-]+", self._run):
            raise SinkError(f"{self._name}: run id {self._run!r} cannot be part of a file name; use letters, digits, '.', '_' and '-'")
        self._attempt("open the table", self._open)

    def recover(self) -> None:
        """Learn which epoch of the run the table has."""
        self.last_epoch = max(self.last_epoch, self._attempt("read what the table has", self._done))

    def found(self) -> int:
        """The last epoch of the run that the table has. Raises SinkError."""
        self.prepare()
        self.recover()
        return self.last_epoch

    def stage_parts(self, epoch: int, partition: int, table: pa.Table) -> list[StagedFile]:
        """Write a file for each value of the partition columns. Raises SinkError if another replica has written others."""
        return [self._stage(epoch, partition, values, part) for values, part in self._split(table)]

    def _split(self, table: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        if self.keeps_partition_columns:
            yield from split_by(table, self._partition_by, self._name)
            return
        for values, part in split_by(without_empty(table, self._partition_by), self._partition_by, self._name):
            yield values, part.drop_columns(list(self._partition_by))

    def _stage(self, epoch: int, partition: int, values: Mapping[str, Any], table: pa.Table) -> StagedFile:
        path = place_of(values) + f"part-{self._run}-{epoch:012d}-{partition:05d}.parquet"
        data = parquet_bytes(table)
        mine = StagedFile(epoch, partition, path, table.num_rows, data.size, digest_of(data), self._detail(values, table))
        self._attempt(f"write {path}", lambda: self._put(mine, data))
        return mine

    def _put(self, mine: StagedFile, data: pa.Buffer) -> None:
        if isinstance(self._store, LocalStore):
            self._store.make_folder(os.path.dirname(mine.file))
        try:
            self._store.put(mine.file, data)
        except FileExistsError:
            if digest_of(self._store.get(mine.file)) != mine.digest:
                raise SinkError(
                    f"{self._name}: in epoch {mine.epoch} of run {self._run}, partition {mine.partition}, this replica has other rows than "
                    "another one has written. Nothing was replaced. A box of the dataflow gives different results for the same input (a "
                    "clock, random numbers, the order of a set), or the executors have different versions of pyarrow"
                ) from None

    def close(self, before: int) -> None:  # noqa: B027
        """Nothing to do: no commit of a table waits. Its own maintenance makes larger files."""

    def commit(self, epoch: int, files: Sequence[StagedFile], slot: int | None = None) -> None:
        """Add the files to the table, unless it has the epoch. Raises SinkError."""
        assert slot is None
        if epoch <= self.last_epoch or not files:
            return
        ordered = sorted(files, key=lambda f: (f.partition, f.file))
        self._attempt(f"commit epoch {epoch}", lambda: self._commit(epoch, ordered))
        self.last_epoch = epoch

    def _commit(self, epoch: int, files: Sequence[StagedFile]) -> None:
        if self._done() >= epoch:
            return  # Another replica was faster, or a generation of before, and nobody came to hear of it.
        self._check(files)
        for gone in (file for file in files if not self._store.exists(file.file)):
            raise SinkError(
                f"{self._name}: {gone.file} (epoch {gone.epoch}, partition {gone.partition}) has vanished before it was committed; "
                "somebody else deleted it. Clean up files only that are older than a day"
            )
        if not self._append(epoch, files) and self._done() < epoch:
            raise OSError(errno.EAGAIN, "somebody else commits to the table all the time", self._name)

    def _attempt(self, what: str, action: Callable[[], T]) -> T:
        return self._patience.attempt(what, lambda: as_os_error(action, self._name))


def as_os_error(action: Callable[[], T], name: str) -> T:
    """What a library raises, as an error of a store: it may pass."""
    try:
        return action()
    except (EvenflowError, OSError):
        raise
    except Exception as error:  # Of whatever library it is.
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", name) from error


# ---------------------------------------------------------------- columns


def check_columns(name: str, there: pa.Schema, rows: pa.Schema) -> None:
    """Raise SinkError unless every column of the rows is in the table, with its type."""
    for column in rows:
        if column.name not in there.names:
            raise SinkError(
                f"{name} has no column {column.name!r}; it has {', '.join(there.names)}, and the results have {', '.join(rows.names)}. "
                "Write into another table, add the column to this one, or select these columns"
            )
        type_ = there.field(column.name).type
        if not same_type(type_, column.type):
            raise SinkError(
                f"{name}: column {column.name!r} is {type_} there, and {column.type} in the results; cast it, or write into another table"
            )
    for column in there:
        if not column.nullable and column.name not in rows.names:
            raise SinkError(f"{name} wants a value in {column.name!r}, and the results have no such column; add it to them")


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a table's column takes such values: text is text, and times have a zone or have none."""
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    for plain in (is_text, _is_bytes):
        if plain(one) and plain(other):
            return True
    if pa.types.is_map(one) and pa.types.is_map(other):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    if _is_list(one) and _is_list(other):
        return same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [f.name for f in one] == [f.name for f in other] and all(same_type(f.type, other.field(f.name).type) for f in one)
    return bool(one == other)


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or type_ == pa.binary_view())


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def detail_of(file: StagedFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.detail)
    return found


__all__ = ["TABLE_RECORD_SCHEMA", "TableFiles", "check_columns"]
