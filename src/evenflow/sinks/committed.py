"""A directory of Parquet files in which whole commits become visible, each once (protocol O2).

    path/_staging/part-RUN-EPOCH-PARTITION.staged    written by the writer partitions; nobody reads it
    path/_evenflow/manifest-RUN-EPOCH.json           the decision: these parts, with these digests, are the output of the commit
    path/commit-RUN-EPOCH.parquet                    published: all parts in one file, put into place in one piece after the decision
    path/day=.../commit-RUN-EPOCH.parquet            the same with partition columns: a file for each of their values, one after another

One file is all that plain readers see of a commit, so they see the whole of it or nothing, in any store in which a file appears whole;
and commits appear in order, because a replica decides about none before it has published the one before. A commit has all rows of the
epochs up to some epoch that no earlier one has (`ParquetStage` sees to that), so what a plain reader sees is always the output up to
the end of some epoch.

Every step may be done by several replicas at once, each at its own pace; one may have been stopped in the middle of a step, declared
dead, and go on much later. That is harmless, because

 1. names and contents are functions of the address (E3), and nothing is ever replaced: the first replica to do a step has done it, and
    the others compare their digests with what they find, and raise SinkError if they differ;
 2. parts leave the staging folder only when their commit is seen in its place, so what is decided, not in its place, and not wholly
    staged any more has been published before, and somebody outside has taken it away;
 3. a replica that stages a part late, after its epoch has been published, finds that out behind itself and removes what it has just
    written; if it dies before that, the next `recover` does so.

Readers that skip names beginning with an underscore (Spark, pyarrow, pandas, DuckDB), or that are given `path/*.parquet`, see published
files only; `read_committed` (evenflow.sinks.manifests) reads exactly what manifests list, also before it is published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.errors import SinkError
from evenflow.sinks.closings import Closing, closed_firsts, closing_of, commit_name, read_closing
from evenflow.sinks.decisions import Decisions
from evenflow.sinks.manifests import (
    MANIFESTS,
    STAGING,
    Manifest,
    StagedFile,
    decided_epochs,
    join_staged,
    manifest_path,
    read_manifest,
)
from evenflow.sinks.places import place_of, split_by, value_text, without_empty
from evenflow.store.files import FileStore
from evenflow.store.patience import Patience
from evenflow.stream.digest import digest_of
from evenflow.stream.ids import run_of

STAGED_NAME: Final = re.compile(r"part-(.+)-(\d{12})-\d{5,}(?:-\d+)?\.(?:staged|parquet)")
"""What a part is called before it is published: in commits of format 2 (see `manifests`) as it is afterwards."""
ABANDONED_S: Final = 24 * 3600
"""A part that was staged this long ago and is in no manifest is nobody's: another run in the same directory commits its own in seconds."""
EVERY_SLOT: Final = 1 << 62
"""Above the number of any interval."""
JOINED_BYTES: Final = 512 << 20
"""Parts of so much in all become one file, or those of one commit that has more: an object store wants a file whole in memory."""
RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), False),
        pa.field("partition", pa.int32(), False),
        pa.field("file", pa.string(), False),
        pa.field("rows", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("digest", pa.string(), False),
        pa.field("epochs", pa.binary(), False),  # int64, those that have rows in the part: for statistics, and in no manifest
    ]
)
TABLE_RECORD_SCHEMA: Final = pa.schema([*RECORD_SCHEMA, pa.field("detail", pa.string(), False)])
"""A record of a staged file with partition columns, or of a table. detail: JSON, what is to be said of the file besides."""


class PartVanished(SinkError):
    """A part that nobody has published is staged no more."""


class Waits(NamedTuple):
    """A commit that is in no file yet: the number of its interval, and how many bytes its parts have."""

    slot: int
    bytes: int

    @staticmethod
    def of(manifests: Iterable[Manifest]) -> dict[int, Waits]:
        """By epoch, those that wait for others."""
        return {each.epoch: Waits(each.slot, each.bytes) for each in manifests if each.slot is not None}


class CommittedFiles:
    """The directory as one replica of one run sees it. Nothing is touched before `prepare`. joins: several commits become one file."""

    def __init__(
        self, store: FileStore, run: str, patience: Patience, partition_by: Sequence[str] = (), joins: bool = False
    ) -> None:  # fmt: skip
        self._store, self._run, self._patience, self._partition_by = store, run, patience, tuple(partition_by)
        self._now_s: float | None = None
        self._joins = joins
        self._waiting: dict[int, Waits] = {}
        self._closed = -1
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

    def stage_parts(self, epoch: int, partition: int, table: pa.Table) -> list[StagedFile]:
        if not self._partition_by:
            return [self.stage(epoch, partition, table)]
        types = [[name, str(table.schema.field(name).type)] for name in self._partition_by]
        found = list[StagedFile]()
        split = split_by(without_empty(table, self._partition_by), self._partition_by, f"parquet sink {self._store.root}")
        for number, (values, part) in enumerate(split):
            texts = {name: value_text(value) for name, value in values.items()}
            detail = json.dumps({"place": place_of(values), "types": types, "values": texts}, sort_keys=True)
            found.append(self.stage(epoch, partition, part.drop_columns(list(self._partition_by)), f"-{number}", detail))
        return found

    def stage(self, epoch: int, partition: int, table: pa.Table, which: str = "", detail: str = "") -> StagedFile:
        """Write the rows of one partition where nobody reads them yet; a no-op if another replica has, with the same content.

        Raises SinkError if it has done so with another content.
        """
        name = f"part-{self._run}-{epoch:012d}-{partition:05d}{which}.staged"
        data = parquet_bytes(table)
        mine = StagedFile(epoch, partition, name, table.num_rows, data.size, digest_of(data), detail)
        self._patience.attempt(f"write {STAGING}/{name}", lambda: self._stage(mine, data))
        return mine

    def _stage(self, mine: StagedFile, data: pa.Buffer) -> None:
        staged = f"{STAGING}/{mine.file}"
        while (decided := self._decision(mine.epoch)) is None:
            try:
                found = digest_of(self._store.get(staged))
            except FileNotFoundError:
                try:
                    self._store.put(staged, data)
                except FileExistsError:
                    continue  # Another replica was faster by very little: compare with what it wrote.
                if (decided := self._decision(mine.epoch)) is None:
                    return
                # The first copy may have been published while this one was being written. Or this one is the first, and others rely on it.
                if self._is_published(mine, decided):
                    remove(self._store, staged)
                break
            else:
                if found != mine.digest:
                    raise self._differs(mine.epoch, [mine.partition])
                return
        if mine not in decided.parts:
            raise self._differs(mine.epoch, [mine.partition])

    def _decision(self, epoch: int) -> Manifest | None:
        try:
            return read_manifest(self._store, self._run, epoch)
        except FileNotFoundError:
            return None

    def _is_published(self, part: StagedFile, decided: Manifest) -> bool:
        file = decided.file
        if decided.slot is not None:
            closing = closing_of(self._store, self._run, part.epoch, closed_firsts(self._store))
            file = None if closing is None else closing.file
        return file is not None and self._store.exists(part.place + file)

    def _differs(self, epoch: int, partitions: Sequence[int]) -> SinkError:
        return SinkError(
            f"parquet sink {self._store.root}: in epoch {epoch} of run {self._run}, partition {', '.join(map(str, partitions))}, this "
            "replica has other rows than another one has written. Nothing was replaced. A box of the dataflow gives different results "
            "for the same input (a clock, random numbers, the order of a set), or the executors have different versions of pyarrow"
        )

    def _vanished(self, part: StagedFile, when: str) -> PartVanished:
        return PartVanished(
            f"parquet sink {self._store.root}: {part.file} (epoch {part.epoch}, partition {part.partition}) has vanished "
            f"from {STAGING} {when}; somebody else deleted it"
        )

    # ------------------------------------------------------------ committing

    def recover(self) -> None:
        """Learn this run's last epoch, publish what a crash left between decision and publication, and remove what is nobody's.

        Cost: two listings, and one small file per epoch that is not wholly published and per file of several; not the directory's whole
        history, and no more where a crash has left many parts of one file.
        """
        decided = self._patience.attempt("read manifests", lambda: decided_epochs(self._store))
        firsts = self._patience.attempt("read manifests", lambda: closed_firsts(self._store))
        known = Decisions(self._store, decided, firsts)
        own = sorted(epoch for run, epoch in decided if run == self._run)
        self.last_epoch = max([self.last_epoch, *own])
        names = self._patience.attempt("list files", lambda: self._store.names(STAGING))
        # Without files of several commits none waits, but for those of a time when there were such files: their parts are staged.
        staged = {int(match[2]) for match in map(STAGED_NAME.fullmatch, names) if match is not None and match[1] == self._run}
        may_wait = own if self._joins else sorted(staged.intersection(own))
        self._patience.attempt("read manifests", lambda: self._learn(may_wait, known))
        left = set[str]()
        for name in names:
            given_up = self._patience.attempt(f"clean up {STAGING}/{name}", lambda name=name: self._settle(name, known))  # type: ignore[misc]
            left |= {given_up} if given_up else set()
        for run in sorted(left):
            self._patience.attempt(f"publish what waits of run {run}", lambda run=run: self._close_for(run, decided))  # type: ignore[misc]

    def _learn(self, own: Sequence[int], known: Decisions) -> None:
        """Which commits of this run wait: those behind the last file that was decided about."""
        begun = known.firsts.get(self._run, ())
        self._closed = known.closing(self._run, begun[-1]).epochs[-1] if begun else -1
        self._waiting = Waits.of([known.manifest(self._run, epoch) for epoch in own if epoch > self._closed])

    def _settle(self, name: str, known: Decisions) -> str | None:
        """Deal with one file that was found in the staging folder. It may be in use: by this run, or by others in the same directory.
        Returns another run whose commits have waited for so long that nobody will publish them."""
        staged = f"{STAGING}/{name}"
        match = STAGED_NAME.fullmatch(name)
        waits = False
        if match is not None and (match[1], int(match[2])) in known.commits:
            manifest = known.manifest(match[1], int(match[2]))
            if any(part.file == name for part in manifest.parts):
                whole = known.file_of(manifest)
                waits = whole is None
                if whole is not None and whole.file is not None:
                    at = whole.run, whole.file
                    if at not in known.cleared and publish(self._store, whole):
                        known.cleared.add(at)
                    if at in known.cleared:
                        return None  # It has gone with the others.
                elif whole is not None:
                    publish(self._store, whole)
                if waits and match[1] != self._run and run_of(match[1]) == run_of(self._run):
                    return match[1]  # Of a generation before, which nobody goes on with.
        written_s = self._store.modified_s(staged)
        if self._now_s is None or written_s is None or self._now_s - written_s <= ABANDONED_S:
            return None
        if not waits:
            remove(self._store, staged)
        return match[1] if waits and match is not None and match[1] != self._run else None

    # ------------------------------------------------------------ committing

    def commit(self, epoch: int, files: Sequence[StagedFile], slot: int | None = None) -> None:
        """Decide that `files` are the output of the commit at `epoch`, and publish them. An epoch at or below the last one is a no-op.

        slot: the number of an interval; then it waits until that is closed. Raises SinkError if another replica has decided otherwise,
        or a part has vanished before anybody decided.
        """
        if epoch <= self.last_epoch or not files:
            return
        ordered = tuple(sorted(files, key=lambda f: (f.partition, f.file)))
        manifest = Manifest(self._run, epoch, ordered, commit_name(self._run, epoch) if slot is None else None, slot)
        self._patience.attempt(f"write {manifest_path(self._run, epoch)}", lambda: self._decide(manifest))
        if slot is not None:
            if epoch > self._closed:  # Others may have been faster by more than this one.
                self._waiting |= Waits.of([manifest])
        else:
            self._patience.attempt(f"publish {manifest.file}", lambda: publish(self._store, manifest))
        self.last_epoch = epoch

    def close(self, before: int) -> None:
        """Publish the commits that wait of all intervals before this number as one file, or several large ones. Raises SinkError."""
        self._close(self._run, self._waiting, before)

    def _close_for(self, run: str, decided: set[tuple[str, int]]) -> None:
        """Publish what a run has left that nobody goes on with."""
        known = Decisions(self._store, decided, closed_firsts(self._store))
        own = [epoch for name, epoch in sorted(decided) if name == run and known.closing_of(run, epoch) is None]
        manifests = [known.manifest(run, epoch) for epoch in own]
        with suppress(PartVanished):  # Who reads that run's rows is told. This run goes on.
            self._close(run, Waits.of(manifests), EVERY_SLOT)

    def _close(self, run: str, waiting: dict[int, Waits], before: int) -> None:
        while due := first_file({epoch: waits.bytes for epoch, waits in waiting.items() if waits.slot < before}):
            wanted = Closing(run, due)
            closing = self._patience.attempt(f"write {wanted.path}", partial(self._decide_file, wanted))
            self._patience.attempt(f"publish {closing.file}", partial(self._publish_whole, closing))
            for epoch in closing.epochs:
                waiting.pop(epoch, None)
            if run == self._run:
                self._closed = max(self._closed, closing.epochs[-1])

    def _publish_whole(self, closing: Closing) -> None:
        publish(self._store, closing.whole(self._store))

    def _decide_file(self, mine: Closing) -> Closing:
        """What was decided about a file that begins with the first of these commits: this, or what somebody else has before."""
        try:
            return read_closing(self._store, mine.run, mine.epochs[0])
        except FileNotFoundError:
            whole = mine.whole(self._store)
        staged = set(self._store.names(STAGING))
        gone = [part for part in whole.parts if part.file not in staged]
        try:
            if not gone:
                with suppress(FileExistsError):
                    self._store.put(mine.path, mine.to_bytes())
            return read_closing(self._store, mine.run, mine.epochs[0])  # Others may have published it since, and removed the parts.
        except FileNotFoundError:
            if not gone:
                raise
            raise self._vanished(gone[0], "while it waited for others to be one file") from None

    def _decide(self, mine: Manifest) -> None:
        decided = self._decision(mine.epoch)
        if decided is None:
            gone = [part for part in mine.parts if not self._store.exists(f"{STAGING}/{part.file}")]
            decided = self._decision(mine.epoch) if gone else None
            if gone and decided is None:
                raise self._vanished(gone[0], "before it was committed")
        if decided is None:
            try:
                self._store.put(manifest_path(self._run, mine.epoch), mine.to_bytes())
                return
            except FileExistsError:
                decided = self._decision(mine.epoch)
        if decided != mine:
            theirs = set(decided.parts) if decided is not None else set()
            raise self._differs(mine.epoch, sorted({part.partition for part in theirs ^ set(mine.parts)}))


def first_file(sizes: Mapping[int, int]) -> tuple[int, ...]:
    """The commits, ascending, that are the first file of these: as many as JOINED_BYTES has room for, one at least.

    sizes: bytes of each, by epoch.
    """
    found, room = list[int](), JOINED_BYTES
    for epoch in sorted(sizes):
        room -= sizes[epoch]
        if found and room < 0:
            break
        found.append(epoch)
    return tuple(found)


def publish(store: FileStore, manifest: Manifest) -> bool:
    """Put what was decided into its place, if it is not there and was not there before, and remove the parts that are there no more for.
    Returns whether none is staged any more."""
    if manifest.file is None:
        for part in manifest.parts:
            publish_single(store, part.file)
        return True
    published = [publish_joined(store, manifest, place) for place in manifest.places]
    return all(published)


def publish_joined(store: FileStore, manifest: Manifest, place: str) -> bool:
    """What is in one folder of a commit. place: the folder, or "" without partition columns. Returns as `publish`."""
    staged, file = manifest.staged(place), f"{place}{manifest.file}"
    try:
        if not store.exists(file):
            if place:
                store.make_folder(place.rstrip("/"))
            join_staged(store, manifest, file, place)
    except FileExistsError:
        pass  # Another replica has published it a moment ago.
    except FileNotFoundError:
        if not store.exists(file):
            if all(store.exists(path) for path, _ in staged):
                raise  # It is something else that is not there.
            return False  # Published before, and somebody has taken it away since. What is left of the parts goes when it is old.
    for path, _ in staged:
        remove(store, path)
    return True


def publish_single(store: FileStore, name: str) -> None:
    """Rename one decided file of a commit of format 2 into place, if it is still staged and not there yet."""
    staged = f"{STAGING}/{name}"
    try:
        store.move(staged, name)
    except FileExistsError:
        remove(store, staged)
    except FileNotFoundError:
        pass  # Somebody else has published it; perhaps somebody has even taken it away since.


def remove(store: FileStore, path: str) -> None:
    """Delete a file, unless another replica has."""
    with suppress(FileNotFoundError):
        store.remove(path)


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """The table as one Parquet file: equal rows give equal bytes."""
    out = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), out, compression="snappy")
    return out.getvalue()
