"""Commits that become one file together, so that files are larger than commits.

    path/_staging/part-RUN-EPOCH-PARTITION.staged    the parts of commits that wait
    path/_evenflow/manifest-RUN-EPOCH.json           the decision on each commit, with the number of its interval (format 5)
    path/_evenflow/joined-RUN-FIRST.json             the decision that these commits, the first of them at epoch FIRST, are one file
    path/commit-RUN-LAST.parquet                     published: all parts of all of them, in order of their epochs

A listing of a directory cannot show one file go in and several go away in one step: between the two a plain reader would have rows
twice, or not at all. So a commit is not published and replaced later. It is decided, which is all that exactly-once is about, and waits
where it was staged; with the first commit of a later interval, or the end of the run, those of the earlier one become visible as one file.
`read_committed` reads what waits, too.

Which commits are in a file is decided by one name: that of the first of them. Whoever would begin another file with the same commit comes
second, takes what was decided, and goes on behind it. So no commit is in two files, and none is left out, whoever closes what when.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from evenflow.errors import SinkError
from evenflow.sinks.manifests import (
    MANIFESTS,
    Manifest,
    decided_epochs,
    name_from,
    read_joined,
    read_manifest,
    read_single,
    read_staged,
)
from evenflow.store.arrow import open_file_store
from evenflow.store.files import FileStore

CLOSING_NAME: Final = re.compile(r"joined-(.+)-(\d{12})\.json")
LOOKS: Final = 5
"""So often a reader begins anew because what waited has been published meanwhile."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The decision that the commits at these epochs of a run, ascending, are one file."""

    run: str
    epochs: tuple[int, ...]

    @property
    def file(self) -> str:
        return commit_name(self.run, self.epochs[-1])

    @property
    def path(self) -> str:
        return closing_path(self.run, self.epochs[0])

    def to_bytes(self) -> bytes:
        return (json.dumps({"version": 5, "run": self.run, "epochs": list(self.epochs), "file": self.file}, indent=1) + "\n").encode()

    def whole(self, store: FileStore) -> Manifest:
        """One decision on all parts. Raises SinkError."""
        parts = [part for epoch in self.epochs for part in read_manifest(store, self.run, epoch).parts]
        return Manifest(self.run, self.epochs[-1], tuple(parts), self.file)


def commit_name(run: str, epoch: int) -> str:
    """The one file as which a commit is published, or several up to that one."""
    return f"commit-{run}-{epoch:012d}.parquet"


def closing_path(run: str, first: int) -> str:
    return f"{MANIFESTS}/joined-{run}-{first:012d}.json"


def closing_from(data: bytes, where: str) -> Closing:
    """Raises SinkError if it is none."""
    try:
        form = json.loads(data)
        closing = Closing(str(form["run"]), tuple(int(epoch) for epoch in form["epochs"]))
        if not closing.epochs or name_from(form["file"]) != closing.file:
            raise ValueError(f"its file is {form['file']!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SinkError(f"{where} is not a decision of a parquet sink ({error!r}); somebody else has written it") from error
    return closing


def read_closing(store: FileStore, run: str, first: int) -> Closing:
    """FileNotFoundError if nobody has decided about a file that begins with that commit."""
    path = closing_path(run, first)
    return closing_from(store.get(path), f"{store.root}: {path}")


def closed_firsts(store: FileStore) -> dict[str, list[int]]:
    """The first commit of each file that was decided about, by run, ascending; by their names."""
    matches = [CLOSING_NAME.fullmatch(name) for name in store.names(MANIFESTS)]
    found: dict[str, list[int]] = {}
    for run, first in sorted((match[1], int(match[2])) for match in matches if match is not None):
        found.setdefault(run, []).append(first)
    return found


def closing_of(store: FileStore, run: str, epoch: int, firsts: Mapping[str, Sequence[int]]) -> Closing | None:
    """The file in which a commit is, by what `closed_firsts` has found; None if it waits."""
    before = [first for first in firsts.get(run, ()) if first <= epoch]
    closing = read_closing(store, run, before[-1]) if before else None
    return closing if closing is not None and epoch in closing.epochs else None


def read_committed(path: str) -> pa.Table:
    """The rows of exactly the committed files, ordered by run, epoch and partition. A table without columns if there are none.

    Raises SinkError if a file that a manifest lists is gone, or is not what was committed.
    """
    store, gone = open_file_store(str(path)), FileNotFoundError()
    for _ in range(LOOKS):
        try:
            return _read_committed(store)
        except FileNotFoundError as error:
            gone = error
    raise SinkError(f"{store.root}: {gone.filename} is listed by a manifest but is not there; somebody has deleted it") from gone


def _read_committed(store: FileStore) -> pa.Table:
    """Raises FileNotFoundError where what waited has been published since the looks at the names."""
    decided, firsts = sorted(decided_epochs(store)), closed_firsts(store)
    manifests = [read_manifest(store, run, epoch) for run, epoch in decided]
    tables = list[pa.Table]()
    for run, of in groupby(manifests, key=lambda manifest: manifest.run):
        closed = -1
        for manifest in of:
            if manifest.epoch <= closed:
                continue
            closing = None if manifest.slot is None else closing_of(store, run, manifest.epoch, firsts)
            if closing is not None:
                closed = closing.epochs[-1]
                tables += _of_file(store, closing.whole(store))
            elif manifest.slot is not None:
                tables += [read_staged(store, manifest, place) for place in manifest.places]
            elif manifest.file is None:
                tables += [read_single(store, part) for part in manifest.parts]
            else:
                tables += _of_file(store, manifest)
    return pa.concat_tables(tables) if tables else pa.table({})


def _of_file(store: FileStore, manifest: Manifest) -> list[pa.Table]:
    return [read_joined(store, manifest, place) for place in manifest.places]


__all__ = ["Closing", "closed_firsts", "closing_from", "closing_of", "commit_name", "read_closing", "read_committed"]
