"""Results as Parquet files: what the user describes, and a writer for one process.

In a run the sites write by themselves: the planner ends the dataflow with the steps `stage` (partitioned) and `commit` (P = 1),
whose parameters are `step_params`; see `evenflow.operator.parquet`. `open` gives the same directory to a single writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import OptionError
from evenflow.sinks.closings import read_committed
from evenflow.sinks.committed import RECORD_SCHEMA, TABLE_RECORD_SCHEMA, CommittedFiles
from evenflow.sinks.places import check_partition_by, directory_of
from evenflow.sinks.sink import MOST_WRITERS, PATIENCE, Sink, Where, Writer
from evenflow.sources.description import LATER
from evenflow.store.arrow import open_file_store
from evenflow.store.patience import Patience, no_wait
from evenflow.stream.declared import Declared, May, each, optional, text, whole
from evenflow.stream.declared import path as directory


class ParquetWriter(Writer):
    """Commits every epoch that has rows as a file of its own."""

    def __init__(self, files: CommittedFiles) -> None:
        self._files = files
        self.newest = files.last_epoch

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows and epoch > self._files.last_epoch:
            self._files.commit(epoch, self._files.stage_parts(epoch, 0, pa.Table.from_batches([batch])))


@dataclass(frozen=True)
class ParquetSink(Declared, Sink):
    """path: a directory or URI. commit_interval_ms: > 0, by the epochs' stamps. writers: partitions of the stage step; None: one per site.
    partition_by: columns for each of whose values there is a folder. file_interval_ms: commits of so long are one file; 0: each is one.
    """

    kind: ClassVar[str] = "parquet"
    where: ClassVar[Where] = "site"
    path: str
    commit_interval_ms: int = 1000
    writers: int | None = None
    partition_by: tuple[str, ...] = field(default=(), metadata=LATER)
    file_interval_ms: int = field(default=0, metadata=LATER)
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {
        **PATIENCE, "path": directory("a directory that all sites see, or a URI such as s3://bucket/place"),
        "commit_interval_ms": whole(1, 10**9), "writers": optional(whole(1, MOST_WRITERS)),
        "partition_by": each(text(), "names of columns"), "file_interval_ms": whole(0, 10**9),
    }  # fmt: skip
    option_owner: ClassVar[str] = "parquet sink"

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.file_interval_ms < self.commit_interval_ms:
            raise OptionError(
                f"parquet sink {self.path}: a file would be of {self.file_interval_ms} ms, and a commit is of {self.commit_interval_ms} ms "
                "already; let files be of more than commits"
            )

    def __str__(self) -> str:
        return f"parquet sink {self.path}"

    @property
    def place(self) -> tuple[object, ...]:
        return self.kind, directory_of(self.path)

    @property
    def record_schema(self) -> pa.Schema:
        return TABLE_RECORD_SCHEMA if self.partition_by else RECORD_SCHEMA

    def prepare(self, run_id: str, schema: pa.Schema) -> int:
        check_partition_by(f"parquet sink {self.path}", self.partition_by, schema)
        return super().prepare(run_id, schema)

    def step_params(self, run: str = "", wait: Callable[[int], None] = no_wait) -> dict[str, Any]:
        """Keyword arguments of ParquetStage and ParquetCommit.

        run: the run's id; the engine sets it before it starts. wait: waits that many milliseconds, for sites that have a clock.
        """
        folders: dict[str, Any] = {"partition_by": self.partition_by} if self.partition_by else {}
        if self.file_interval_ms:
            folders["file_interval_ms"] = self.file_interval_ms
        return {
            "path": self.path, "commit_interval_ms": self.commit_interval_ms, "run": run,
            "retries": self.retries, "backoff_ms": self.backoff_ms, "wait": wait, **folders,
        }  # fmt: skip

    def open(self, run_id: str) -> ParquetWriter:
        """Prepares the directory from this process: also the driver's early check that it is writable. Raises SinkError."""
        store = open_file_store(self.path)
        files = CommittedFiles(store, run_id, Patience(store.root, 0, self.backoff_ms), self.partition_by)
        files.prepare()
        files.recover()
        return ParquetWriter(files)

    def read(self) -> pa.Table:
        """The committed rows."""
        return read_committed(self.path)


__all__ = ["ParquetSink", "ParquetWriter", "read_committed"]
