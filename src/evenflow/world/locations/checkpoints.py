"""`ef.checkpoints(location)`: the checkpoints of a location or of a savepoint, without Spark.

Who only looks at objects and their digests needs no operators. So what builds them, with kernels that a fresh machine has to compile first,
is imported when the state of a box is read (decision 132).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.availability.entries import Completed
from evenflow.errors import CheckpointCorrupt, LocationError, OperationRefused
from evenflow.query.structure import Structure
from evenflow.store.location import Location, find_location
from evenflow.store.opening import open_store
from evenflow.world.locations.inspecting import Inspected, inspected
from evenflow.world.locations.kept import Checkpoint, Kept, Which, kept_at
from evenflow.world.locations.programs import read_program
from evenflow.world.locations.proving import Say
from evenflow.world.locations.removing import remove
from evenflow.world.locations.savepoints import Savepoint, save
from evenflow.world.locations.verifying import Verified, program_or_none, verified
from evenflow.world.locations.versions import said_of

if TYPE_CHECKING:
    from evenflow.world.locations.reading import BoxRows

AGAIN: Final = 3
"""So often a verification begins, if a live driver has replaced all that it has read."""


class Checkpoints:
    """Made by `ef.checkpoints`. Looks at the location anew each time, so it may be one of a running dataflow.

    A checkpoint is named by its number, by "GENERATION.NUMBER" where several have it, or by None: the newest that is whole. Every method
    raises JournalCorrupt, which names the entry, and LocationError if the store does not answer; OperationRefused if there is no such
    checkpoint.
    """

    def __init__(self, location: Location, options: Mapping[str, Any] | None = None) -> None:
        self._location, self.options = location, dict(options or {})

    def __repr__(self) -> str:
        what = "savepoint" if self._location.head.savepoint else "checkpoint location"
        return f"<Checkpoints of {self.dataflow!r} at {what} {self.url}>"

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self.list())

    @property
    def url(self) -> str:
        """Where the location is."""
        return self._location.store.url

    @property
    def dataflow(self) -> str:
        """Name of the dataflow whose location it is."""
        return self._location.head.dataflow

    @property
    def run(self) -> str:
        """The location's run."""
        return self._location.head.run

    def list(self) -> tuple[Checkpoint, ...]:
        """What there is, oldest first: those that a restart may begin with, and what is left of others. No object is read."""
        return self._kept().checkpoints()

    def inspect(self, which: Which = None) -> Inspected:
        """What a checkpoint has: by box its partitions, rows, bytes and watermark, and positions of the sources. No object is read."""
        kept = self._kept()
        checkpoint = kept.find(which)
        made = self._named(kept, checkpoint)
        return inspected(checkpoint, made, self._program(kept, checkpoint), self.dataflow, self.run)

    def verify(self, which: Which = None, say: Say | None = None) -> Verified:
        """Read every object of one checkpoint, or of all that a restart may begin with (None), and the rows that it would replay where no
        source gives them again or Spark has written them, and compare them with what was written. What is wrong is in the answer, by
        object, box and partitions. Where there is no checkpoint, nothing is whole.
        say: is told how far it is.

        Of a dataflow that runs, objects go while they are read, when newer checkpoints are whole: those of checkpoints with which nobody
        begins any more by then are no faults. Raises OperationRefused if that is the one that was asked for."""
        for _ in range(AGAIN):
            kept = self._kept()
            chosen = kept.shown() if which is None else [self._named(kept, kept.find(which))]
            found = self._verified(kept, chosen, say)
            gone = set() if found.whole else {made.name for made in chosen} - {made.name for made in self._kept().shown()}
            if gone and which is not None:
                raise OperationRefused(f"newer checkpoints have taken the place of checkpoint {which} while it was read: ask for another")
            if not gone or len(gone) < len(chosen):
                return found.without(gone)
        raise OperationRefused(f"newer checkpoints took the place of all that were read at {self.url}, {AGAIN} times: export one first")

    def _verified(self, kept: Kept, chosen: Sequence[Completed], say: Say | None) -> Verified:
        if not chosen:
            return Verified(False, (), 0, 0, ())
        newest = chosen[-1].generation, chosen[-1].number
        program, why = program_or_none(lambda: read_program(self._location.store, kept.origins[newest].begun.digest))
        if why is not None and say is not None:
            say(why)
        return verified(self._location.store, kept, chosen, program, say)

    def remove(self, which: Which, *, force: bool = False, silent_s: float | None = None) -> int:
        """Delete a checkpoint, whole or not; returns how many bytes that frees. What others name stays, and so do all rows that no source
        gives again: a restart from an older one reads more of them, and a driver deletes those that nobody needs.

        force: also the newest whole one, with which a restart would begin; then it waits for `silent_s`, by default 10 s or the lease of
        its driver if that is longer, and refuses if that one says something meanwhile.

        Raises OperationRefused if it is needed. A savepoint is deleted as a folder.
        """
        if which is None:
            raise OperationRefused("say which checkpoint is to go: its number, or GENERATION.NUMBER")
        if self._location.head.savepoint:
            raise OperationRefused(f"{self.url} is a savepoint: delete the whole folder, it has nothing else")
        kept = self._kept()
        return remove(self._location.store, kept, kept.find(which), force=force, silent_s=silent_s)

    def export(
        self, target: str | PathLike[str], which: Which = None, options: Mapping[str, Any] | None = None, say: Say | None = None
    ) -> Savepoint:
        """Copy one checkpoint, with all that is needed to start from it, to an empty folder, as a savepoint. What was broken off goes on
        when it is asked for again. options: of the target's store. say: is told how far it is.

        Raises CheckpointCorrupt if an object is missing or altered, LocationError if the folder has something else.
        """
        kept = self._kept()
        checkpoint = kept.find(which)
        made = self._named(kept, checkpoint)
        origin = kept.origins[checkpoint.place]
        program = said_of(self._location.store, origin.content, origin.begun.digest)
        return save(self._location.store, self._location.head, made, origin, program, open_store(target, options), say)

    def state(
        self, box: str, which: Which = None, *, kind: str | None = None, limit: int | None = None, keys: pa.Table | None = None
    ) -> pa.Table:
        """The rows of a box's state, in memory: for states that fit there. `evenflow.read_state` reads any, with Spark, and says more of
        the arguments. kind: of which of the box's steps, where several have state. limit: so many rows at most, and no more is read
        than it takes. keys: key columns, where the state has not kept them.

        Raises CheckpointCorrupt if an object is missing or altered, OperationRefused if the box has no state.
        """
        from evenflow.world.locations.reading import of_keys

        rows, count = self.rows_of(box, which, kind=kind), 0
        found: list[pa.RecordBatch] = []
        for batch in rows.all_batches(self._location.store) if limit != 0 else ():
            found.append(batch)
            count += batch.num_rows
            if limit is not None and count >= limit and keys is None:
                break
        table = pa.Table.from_batches(found, schema=rows.schema)
        table = table if keys is None else of_keys(rows, table, keys)
        return table if limit is None else table.slice(0, limit)

    def rows_of(self, box: str, which: Which = None, *, kind: str | None = None) -> BoxRows:
        """What there is to read of a box's state; no object is. See `state`."""
        from evenflow.world.locations.reading import find_rows

        kept = self._kept()
        checkpoint = kept.find(which)
        made = self._named(kept, checkpoint)
        if not checkpoint.complete:
            raise CheckpointCorrupt(f"{self.url}: checkpoint {checkpoint.name} cannot be read: {checkpoint.wrong}. Take another checkpoint")
        return find_rows(made, self._program(kept, checkpoint), box, kind)

    # ------------------------------------------------------------ helpers

    def _kept(self) -> Kept:
        return kept_at(self._location.store)

    def _program(self, kept: Kept, checkpoint: Checkpoint) -> Structure:
        return read_program(self._location.store, kept.origins[checkpoint.place].begun.digest)

    @staticmethod
    def _named(kept: Kept, checkpoint: Checkpoint) -> Completed:
        made = kept.completed.get(checkpoint.place)
        if made is None:
            raise LocationError(f"checkpoint {checkpoint.name} is not whole: {checkpoint.wrong}")
        return made


def checkpoints(location: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Checkpoints:
    """The checkpoints of a location or a savepoint: list, inspect, verify, remove and export them. Needs neither Spark nor the program.

    location: a directory or URL, as of `Engine.start`. options: of the store's client. Raises LocationError if there is no location, or one
    of another format, or its store cannot be reached.
    """
    return Checkpoints(find_location(location, options), options)
