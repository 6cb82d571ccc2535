"""A directory of Parquet files in which whole epochs become visible, each once (protocol O2).

    path/_staging/part-RUN-EPOCH-PARTITION.parquet   written by the writer partitions; nobody reads it
    path/_evenflow/manifest-RUN-EPOCH.json           the decision: these files belong to the output
    path/part-RUN-EPOCH-PARTITION.parquet            published: renamed into place after the decision

Everything is idempotent: a file's name and content are functions of its address, a manifest is written once, and publishing
again what a manifest lists changes nothing. So a crash between two steps is repaired by doing the step again. Readers that skip
names beginning with an underscore (Spark, pyarrow, pandas) see published files only; `read_committed` reads exactly what
manifests list, also while files are being renamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.errors import SinkError
from evenflow.sinks.store import FileStore, Patience, open_store

STAGING: Final = "_staging"
MANIFESTS: Final = "_evenflow"
MANIFEST_NAME: Final = re.compile(r"manifest-(.+)-(\d{12})\.json")
RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("file", pa.string(), False),
        pa.field("rows", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
    ]
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file: the epoch that commits it, the writer partition, its name, and its size in rows and bytes."""

    epoch: int
    partition: int
    file: str
    rows: int
    bytes: int


class CommittedFiles:
    """The directory as one run sees it. Nothing is touched before `prepare`."""

    def __init__(self, store: FileStore, run: str, patience: Patience) -> None:
        self._store, self._run, self._patience = store, run, patience
        self.last_epoch = 0

    def prepare(self) -> None:
        """Create the folders and try to write. Raises SinkError, naming the path and what to do, before any row is at risk."""
        if not re.fullmatch(r"[\w.-]+", self._run):
            raise SinkError(f"parquet sink: run id {self._run!r} cannot be part of a file name; use letters, digits, '.', '_' and '-'")

        def probe() -> None:
            for folder in ("", STAGING, MANIFESTS):
                self._store.make_folder(folder)
            self._store.put(f"{STAGING}/_probe", b"")

        self._patience.attempt("write", probe)

    def stage(self, epoch: int, partition: int, table: pa.Table) -> StagedFile:
        """Write the rows of one partition where nobody reads them yet. Again with the same rows: the same file."""
        name = f"part-{self._run}-{epoch:012d}-{partition:05d}.parquet"
        data = parquet_bytes(table)

        def write() -> None:
            if not self._store.exists(name):  # Published already, by a commit before a crash or by another replica.
                self._store.put(f"{STAGING}/{name}", data)

        self._patience.attempt(f"write {STAGING}/{name}", write)
        return StagedFile(epoch, partition, name, table.num_rows, data.size)

    def recover(self) -> None:
        """Publish what manifests of any run list and a crash left behind, and learn this run's last epoch."""
        manifests = self._patience.attempt("read manifests", lambda: read_manifests(self._store))
        staged = set(self._patience.attempt("list files", lambda: self._store.names(STAGING)))
        for manifest in manifests:
            if manifest["run"] == self._run:
                self.last_epoch = max(self.last_epoch, manifest["epoch"])
            self._publish([entry["file"] for entry in manifest["files"] if entry["file"] in staged])

    def commit(self, epoch: int, files: Sequence[StagedFile]) -> None:
        """Decide that `files` are the output of `epoch`, and publish them. An epoch at or below the last one is a no-op."""
        if epoch <= self.last_epoch or not files:
            return
        ordered = sorted(files, key=lambda f: (f.partition, f.file))
        manifest = {"version": 1, "run": self._run, "epoch": epoch, "files": [asdict(f) for f in ordered]}
        name = f"{MANIFESTS}/manifest-{self._run}-{epoch:012d}.json"
        data = (json.dumps(manifest, indent=1) + "\n").encode()
        self._patience.attempt(f"write {name}", lambda: self._store.put(name, data))
        self._publish([f.file for f in ordered])
        self.last_epoch = epoch

    def _publish(self, names: Sequence[str]) -> None:
        for name in names:
            self._patience.attempt(f"publish {name}", lambda name=name: publish(self._store, name))  # type: ignore[misc]


def publish(store: FileStore, name: str) -> None:
    """Rename one decided file into place. Raises FileNotFoundError if it is neither staged nor published."""
    try:
        store.move(f"{STAGING}/{name}", name)
    except FileNotFoundError:
        if not store.exists(name):
            raise


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """The table as one Parquet file: equal rows give equal bytes."""
    out = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), out, compression="snappy")
    return out.getvalue()


def read_manifests(store: FileStore) -> list[dict[str, Any]]:
    """All decisions, ordered by run and epoch."""
    names = [name for name in store.names(MANIFESTS) if MANIFEST_NAME.fullmatch(name)]
    return [json.loads(store.get(f"{MANIFESTS}/{name}")) for name in names]


def read_committed(path: str) -> pa.Table:
    """The rows of exactly the committed files, ordered by run, epoch and partition. A table without columns if there are none.

    Raises SinkError if a file that a manifest lists is gone.
    """
    store = open_store(str(path))
    tables = []
    for manifest in read_manifests(store):
        for entry in manifest["files"]:
            tables.append(read_listed(store, entry["file"]))
    return pa.concat_tables(tables) if tables else pa.table({})


def read_listed(store: FileStore, name: str) -> pa.Table:
    """One file that a manifest lists, published or about to be."""
    for place in (name, f"{STAGING}/{name}", name):  # The third look: it may be renamed between the first two.
        if store.exists(place):
            try:
                return pq.read_table(pa.BufferReader(store.get(place)))
            except FileNotFoundError:
                continue
    raise SinkError(f"{store.root}: {name} is listed by a manifest but is not there; it was deleted by somebody else")
