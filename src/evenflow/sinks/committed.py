"""A directory of Parquet files in which whole epochs become visible, each once (protocol O2).

    path/_staging/part-RUN-EPOCH-PARTITION.parquet   written by the writer partitions; nobody reads it
    path/_evenflow/manifest-RUN-EPOCH.json           the decision: these files, with these digests, are the epoch's output
    path/part-RUN-EPOCH-PARTITION.parquet            published: renamed into place after the decision

Every step may be done by several replicas at once, each at its own pace; one may have been stopped in the middle of a step, declared
dead, and go on much later. That is harmless, because

 1. names and contents are functions of the address (E3), and nothing is ever replaced: the first replica to do a step has done it, and
    the others compare their digest with what they find, and raise SinkError if it differs;
 2. a file leaves the staging folder only when it is published, and is published only after the decision, so what is decided and neither
    staged nor published has been published before, and somebody outside has taken it away;
 3. a replica that stages a file late, after its epoch has been decided, finds the decision behind itself and publishes (which here means
    removes) what it has just written; if it dies before that, the next `recover` does so.

Readers that skip names beginning with an underscore (Spark, pyarrow, pandas) see published files only; `read_committed` reads exactly
what manifests list, also while files are being renamed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.errors import SinkError
from evenflow.sinks.store import FileStore, Patience, open_store

STAGING: Final = "_staging"
MANIFESTS: Final = "_evenflow"
MANIFEST_NAME: Final = re.compile(r"manifest-(.+)-(\d{12})\.json")
FILE_NAME: Final = re.compile(r"part-(.+)-(\d{12})-\d{5,}\.parquet")
ABANDONED_S: Final = 24 * 3600
"""A file that was staged this long ago and is in no manifest is nobody's: another run in the same directory commits its own in seconds."""
RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("file", pa.string(), False),
        pa.field("rows", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("digest", pa.string(), False),
        pa.field("epochs", pa.binary(), False),  # int64, those that have rows in the file: for statistics, and in no manifest
    ]
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file: the epoch that commits it, the writer partition, its name, its size in rows and bytes, and a digest of its bytes."""

    epoch: int
    partition: int
    file: str
    rows: int
    bytes: int
    digest: str


Manifest = dict[str, Any]


class CommittedFiles:
    """The directory as one replica of one run sees it. Nothing is touched before `prepare`."""

    def __init__(self, store: FileStore, run: str, patience: Patience) -> None:
        self._store, self._run, self._patience = store, run, patience
        self._now_s: float | None = None
        self.last_epoch = 0

    def prepare(self) -> None:
        """Create the folders and try to write. Raises SinkError, naming the path and what to do, before any row is at risk."""
        if not re.fullmatch(r"[\w.-]+", self._run):
            raise SinkError(f"parquet sink: run id {self._run!r} cannot be part of a file name; use letters, digits, '.', '_' and '-'")

        def probe() -> None:
            for folder in ("", STAGING, MANIFESTS):
                self._store.make_folder(folder)
            path = f"{STAGING}/_probe-{self._run}"
            with suppress(FileExistsError):
                self._store.put(path, b"")
            self._now_s = self._store.modified_s(path)
            with suppress(FileNotFoundError):
                self._store.remove(path)

        self._patience.attempt("write", probe)

    # ------------------------------------------------------------ staging

    def stage(self, epoch: int, partition: int, table: pa.Table) -> StagedFile:
        """Write the rows of one partition where nobody reads them yet; a no-op if another replica has, with the same content.

        Raises SinkError if it has done so with another content.
        """
        name = f"part-{self._run}-{epoch:012d}-{partition:05d}.parquet"
        data = parquet_bytes(table)
        mine = StagedFile(epoch, partition, name, table.num_rows, data.size, digest(data))
        self._patience.attempt(f"write {STAGING}/{name}", lambda: self._stage(mine, data))
        return mine

    def _stage(self, mine: StagedFile, data: pa.Buffer) -> None:
        staged = f"{STAGING}/{mine.file}"
        while (decided := self._decision(mine.epoch)) is None:
            try:
                found = digest(self._store.get(staged))
            except FileNotFoundError:
                try:
                    self._store.put(staged, data)
                except FileExistsError:
                    continue  # Another replica was faster by very little: compare with what it wrote.
                if (decided := self._decision(mine.epoch)) is None:
                    return
                if asdict(mine) in decided["files"]:
                    # The first copy may have been published while this one was being written; or this one is the first, and others rely
                    # on it. Publishing is right for both.
                    publish(self._store, mine.file)
                break
            else:
                if found != mine.digest:
                    raise self._differs(mine.epoch, [mine.partition])
                return
        if asdict(mine) not in decided["files"]:
            raise self._differs(mine.epoch, [mine.partition])

    def _decision(self, epoch: int) -> Manifest | None:
        try:
            decided: Manifest = json.loads(self._store.get(manifest_path(self._run, epoch)))
            return decided
        except FileNotFoundError:
            return None

    def _differs(self, epoch: int, partitions: Sequence[int]) -> SinkError:
        return SinkError(
            f"parquet sink {self._store.root}: in epoch {epoch} of run {self._run}, partition {', '.join(map(str, partitions))}, this "
            "replica has other rows than another one has written. Nothing was replaced. A box of the dataflow gives different results "
            "for the same input (a clock, random numbers, the order of a set), or the executors have different versions of pyarrow"
        )

    # ------------------------------------------------------------ committing

    def recover(self) -> None:
        """Learn this run's last epoch, publish what a crash left between decision and publication, and remove what is nobody's.

        Cost: two listings, and one small file per epoch that is not wholly published; not the directory's whole history.
        """
        decided = self._patience.attempt("read manifests", lambda: decided_epochs(self._store))
        self.last_epoch = max([self.last_epoch, *(epoch for run, epoch in decided if run == self._run)])
        left = self._patience.attempt("list files", lambda: self._store.names(STAGING))
        for name in left:
            self._patience.attempt(f"clean up {STAGING}/{name}", lambda name=name: self._settle(name, decided))  # type: ignore[misc]

    def _settle(self, name: str, decided: set[tuple[str, int]]) -> None:
        """Deal with one file that was found in the staging folder. It may be in use: by this run, or by others in the same directory."""
        match = FILE_NAME.fullmatch(name)
        if match is not None and (match[1], int(match[2])) in decided:
            manifest = json.loads(self._store.get(manifest_path(match[1], int(match[2]))))
            if any(entry["file"] == name for entry in manifest["files"]):
                publish(self._store, name)
                return
        written_s = self._store.modified_s(f"{STAGING}/{name}")
        if self._now_s is not None and written_s is not None and self._now_s - written_s > ABANDONED_S:
            with suppress(FileNotFoundError):
                self._store.remove(f"{STAGING}/{name}")

    def commit(self, epoch: int, files: Sequence[StagedFile]) -> None:
        """Decide that `files` are the output of `epoch`, and publish them. An epoch at or below the last one is a no-op.

        Raises SinkError if another replica has decided otherwise, or a file has vanished before anybody decided.
        """
        if epoch <= self.last_epoch or not files:
            return
        ordered = sorted(files, key=lambda f: (f.partition, f.file))
        self._patience.attempt(f"write {manifest_path(self._run, epoch)}", lambda: self._decide(epoch, ordered))
        for file in ordered:
            self._patience.attempt(f"publish {file.file}", lambda name=file.file: publish(self._store, name))  # type: ignore[misc]
        self.last_epoch = epoch

    def _decide(self, epoch: int, files: Sequence[StagedFile]) -> None:
        mine: Manifest = {"version": 2, "run": self._run, "epoch": epoch, "files": [asdict(f) for f in files]}
        decided = self._decision(epoch)
        if decided is None:
            gone = [f for f in files if not self._store.exists(f"{STAGING}/{f.file}") and not self._store.exists(f.file)]
            decided = self._decision(epoch) if gone else None
            if gone and decided is None:
                raise SinkError(
                    f"parquet sink {self._store.root}: {gone[0].file} (epoch {epoch}, partition {gone[0].partition}) has vanished from "
                    f"{STAGING} before it was committed; somebody else deleted it"
                )
        if decided is None:
            try:
                self._store.put(manifest_path(self._run, epoch), (json.dumps(mine, indent=1) + "\n").encode())
                return
            except FileExistsError:
                decided = self._decision(epoch)
        if decided != mine:
            theirs = {entry["partition"]: entry for entry in (decided or {"files": []})["files"]}
            ours = {entry["partition"]: entry for entry in mine["files"]}
            raise self._differs(epoch, [p for p in sorted(theirs | ours) if theirs.get(p) != ours.get(p)])


def manifest_path(run: str, epoch: int) -> str:
    return f"{MANIFESTS}/manifest-{run}-{epoch:012d}.json"


def publish(store: FileStore, name: str) -> None:
    """Rename one decided file into place, if it is still staged and not there yet."""
    staged = f"{STAGING}/{name}"
    try:
        store.move(staged, name)
    except FileExistsError:
        with suppress(FileNotFoundError):
            store.remove(staged)
    except FileNotFoundError:
        pass  # Another replica has published it; perhaps somebody has even taken it away since.


def digest(data: bytes | pa.Buffer) -> str:
    """128 bits, in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """The table as one Parquet file: equal rows give equal bytes."""
    out = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), out, compression="snappy")
    return out.getvalue()


def decided_epochs(store: FileStore) -> set[tuple[str, int]]:
    """(run, epoch) of all decisions, by their names."""
    matches = [MANIFEST_NAME.fullmatch(name) for name in store.names(MANIFESTS)]
    return {(match[1], int(match[2])) for match in matches if match is not None}


def read_manifests(store: FileStore) -> list[Manifest]:
    """All decisions, ordered by run and epoch."""
    return [json.loads(store.get(manifest_path(run, epoch))) for run, epoch in sorted(decided_epochs(store))]


def read_committed(path: str) -> pa.Table:
    """The rows of exactly the committed files, ordered by run, epoch and partition. A table without columns if there are none.

    Raises SinkError if a file that a manifest lists is gone, or is not what was committed.
    """
    store = open_store(str(path))
    tables = []
    for manifest in read_manifests(store):
        for entry in manifest["files"]:
            tables.append(read_listed(store, entry))
    return pa.concat_tables(tables) if tables else pa.table({})


def read_listed(store: FileStore, entry: dict[str, Any]) -> pa.Table:
    """One file that a manifest lists, published or about to be."""
    name = entry["file"]
    for place in (name, f"{STAGING}/{name}", name):  # The third look: it may be renamed between the first two.
        try:
            data = store.get(place)
        except FileNotFoundError:
            continue
        if digest(data) != entry.get("digest", digest(data)):
            raise SinkError(f"{store.root}: {place} is not what was committed; somebody else has written it")
        return pq.read_table(pa.BufferReader(data))
    raise SinkError(f"{store.root}: {name} is listed by a manifest but is not there; it was deleted by somebody else")
