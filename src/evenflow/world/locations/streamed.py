"""What a restart from a checkpoint reads of streaming DataFrames: the batches that Spark has written at the location, from the position of
the checkpoint on (decision 193). Names of rows come from the objects of batches, so those are read first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evenflow.availability.entries import Completed, StoredObject
from evenflow.errors import LocationError
from evenflow.query.structure import Structure
from evenflow.sources.spooled import FOLDER, Batch, Piece, Spool, SpooledSource
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.proving import Flawed


@dataclass(frozen=True, slots=True)
class Folder:
    """The batches of one DataFrame. batches: by number, of those that are there; Flawed: what is wrong with one. sizes: of all objects
    below `streamed/`, by name."""

    name: str
    batches: Mapping[int, Batch | Flawed]
    sizes: Mapping[str, int]

    def object_of(self, piece: Piece) -> StoredObject:
        """The journal does not say its size: that is what it has there."""
        name = f"{FOLDER}/{self.name}/rows/{piece.name}"
        return StoredObject(name, 0, piece.rows, self.sizes.get(name, 0), piece.digest)

    def batch_name(self, number: int) -> str:
        return f"{FOLDER}/{self.name}/batches/{number:010d}.json"


@dataclass(frozen=True, slots=True)
class Needed:
    """By a restart. rows: objects with rows. flaws: names of batches that are missing or altered, and how."""

    rows: tuple[StoredObject, ...] = ()
    flaws: Mapping[str, Flawed] = field(default_factory=dict)


def folders_of(store: Store, program: Structure | None) -> dict[int, Folder]:
    """By segment whose source is a streaming DataFrame, what is there. program: None where that cannot be read. Raises LocationError."""
    said: Mapping[str, Any] = {} if program is None else program
    sources = said.get("sources", {})
    named = {number: sources.get(segment.get("source"), {}) for number, segment in enumerate(said.get("segments", ()))}
    spooled = {number: str(source["folder"]) for number, source in named.items() if source.get("kind") == SpooledSource.kind}
    if not spooled:
        return {}
    try:
        sizes = store.sizes(f"{FOLDER}/")
        return {number: _folder(store, name, sizes) for number, name in spooled.items()}
    except OSError as error:
        raise LocationError(explain("list what streaming DataFrames wrote", store.url, error)) from error


def _folder(store: Store, name: str, sizes: Mapping[str, int]) -> Folder:
    spool, found = Spool(store, name), dict[int, Batch | Flawed]()
    for number in spool.numbers():
        try:
            batch = spool.batch(number)
        except LocationError:
            found[number] = Flawed("altered", "does not say which rows it means")
        except OSError as error:
            found[number] = Flawed("unreadable", f"cannot be read ({error})")
        else:
            found[number] = Flawed("missing", "is missing") if batch is None else batch
    return Folder(name, found, sizes)


def position_in(made: Completed, segment: int) -> int:
    """How many rows of a source that is read as one partition a checkpoint has behind it; 0 if it does not say."""
    logs = [piece.facts["logs"] for piece in made.pieces if piece.segment == segment and piece.facts.get("logs")]
    return min((int(facts[0]) for each in logs for facts in each.values()), default=0)


def needed_of(folder: Folder, made: Completed, segment: int) -> Needed:
    """What a restart from this checkpoint reads there."""
    position, batches = position_in(made, segment), folder.batches
    if not batches and not position:
        return Needed()
    rows, flaws, behind = list[StoredObject](), dict[str, Flawed](), None
    for number in range(_first(batches, position), max(batches, default=-1) + 1):
        batch = batches.get(number, Flawed("missing", "is missing"))
        if isinstance(batch, Flawed):
            flaws[folder.batch_name(number)], behind = batch, None
            continue
        if behind not in (None, batch.first):
            flaws[folder.batch_name(number)] = Flawed("altered", f"begins behind {batch.first} rows, and {behind} are before it")
        behind, given = batch.behind, max(0, position - batch.first)
        for piece in batch.pieces:
            if piece.rows > given:
                rows.append(folder.object_of(piece))
            given = max(0, given - piece.rows)
    if not flaws and (behind is None or behind < position):
        flaws[folder.batch_name(max(batches, default=-1) + 1)] = Flawed("missing", f"is missing: {position} rows have been read")
    return Needed(tuple(rows), flaws)


def _first(batches: Mapping[int, Batch | Flawed], position: int) -> int:
    """The number of the batch to begin with: the last one that begins there or before, as far as that is known."""
    known = [number for number, batch in batches.items() if isinstance(batch, Batch) and batch.first <= position]
    if known:
        return max(known)
    first = min(batches, default=0)
    return first if isinstance(batches.get(first), Flawed) and position else max(0, first - 1) if position else 0
