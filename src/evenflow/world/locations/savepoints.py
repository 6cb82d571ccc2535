"""Savepoints: one checkpoint in a folder of its own, with all that is needed to start from it at another location.

    evenflow.json                    as at any location, and that it is a savepoint; made last, so what has it is whole
    programs/DIGEST.json             what the dataflow is
    journal/000000000001.json        one entry: a generation that begins with that checkpoint
    checkpoints/000000/NNNNNN/...    its objects, each a copy

So whoever reads locations reads savepoints. No driver ever begins in one, nobody deletes anything in it, and it names nothing outside: it
can be moved and copied like any folder. A location that is begun from it gets copies of the objects, too.

Every object is created only if absent, and one that is there already must have the right bytes. So what was broken off is done by doing it
again, and two that write the same savepoint do not get into each other's way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from evenflow.availability.entries import Completed, Entry, StoredObject, entry_name, to_bytes
from evenflow.availability.retained import folder_of
from evenflow.errors import LocationError
from evenflow.query.structure import Structure, structure_digest
from evenflow.statistics.plain import plain_fields
from evenflow.store.location import HEAD, Head, head_bytes, head_of
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import explain
from evenflow.world.locations.kept import Origin
from evenflow.world.locations.programs import program_bytes, program_name
from evenflow.world.locations.proving import Say, each_of, taken

NONCE: Final = "savepoint"
"""No driver's."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that is whole. Its fields are the keys of the JSON object. location: where it is. number, epoch: of its checkpoint.
    bytes, objects: that it has. copied: objects that were not there before."""

    location: str
    dataflow: str
    run: str
    number: int
    epoch: int
    bytes: int
    objects: int
    copied: int

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


def save(
    source: Store, head: Head, made: Completed, origin: Origin, program: Structure, target: Store, say: Say | None = None
) -> Savepoint:
    """Make a savepoint of a checkpoint, or finish one that was broken off.

    Raises CheckpointCorrupt if an object is missing or altered, and LocationError if something else is in the folder, or a store fails.
    """
    moved = in_folder(made)
    content = replace(origin.content, version=0, program="")  # Whoever starts from it says what boxes do.
    begun = replace(origin.begun, content=content, restored=moved, digest=structure_digest(program), behind=None)
    entry = Entry(1, max(1, made.generation), NONCE, begun)
    mine = replace(head, savepoint=True)
    fixed = {program_name(begun.digest): program_bytes(program), entry_name(1): to_bytes(entry)}
    check_free(target, {*fixed, *(stored.name for stored in moved.objects)}, mine)
    try:
        copied = copy_objects(source, target, made.objects, moved.objects, say)
        for name, data in (*fixed.items(), (HEAD, head_bytes(mine))):
            create_same(target, name, data)
    except OSError as error:
        raise LocationError(explain("write the savepoint", target.url, error)) from error
    return Savepoint(target.url, head.dataflow, head.run, made.number, made.epoch, made.bytes, len(made.objects), copied)


def in_folder(made: Completed) -> Completed:
    """The checkpoint with its objects in one folder, that of no generation."""
    folder, names = folder_of(0, made.number), dict.fromkeys(stored.name for stored in made.objects)
    new = {name: f"{folder}/{number:05d}-{name.rpartition('/')[2]}" for number, name in enumerate(names)}
    pieces = tuple(
        replace(piece, objects=tuple(replace(stored, name=new[stored.name]) for stored in piece.objects)) for piece in made.pieces
    )
    return replace(made, pieces=pieces, generation=0)


def copy_objects(source: Store, target: Store, objects: Sequence[StoredObject], made: Sequence[StoredObject], say: Say | None) -> int:
    """Copy each object to the name beside it; returns how many were not there. Raises OSError of the target, and of the source what
    `taken` does."""
    names = {of.name: to.name for of, to in zip(objects, made, strict=True)}
    return sum(each_of(dict.fromkeys(objects), lambda of: create_same(target, names[of.name], taken(source, of)), say))


def create_same(store: Store, name: str, data: bytes) -> bool:
    """Make the object. False: the same one was there. Raises LocationError if another one is."""
    try:
        store.create(name, data)
        return True
    except FileExistsError:
        try:
            same = store.get(name, len(data)) == data
        except TooLarge:
            same = False
        if not same:
            raise LocationError(f"{store.url} has another {name} already: give the savepoint a folder of its own") from None
        return False


def check_free(target: Store, expected: Collection[str] = (), mine: Head | None = None) -> None:
    """The folder is empty, or has parts of this very savepoint. Raises LocationError."""
    there = head_of(target)
    if there is not None and there != mine:
        what = f"a savepoint of run {there.run}" if there.savepoint else f"the checkpoint location of run {there.run}"
        raise LocationError(f"{target.url} is {what} already: give the savepoint a folder of its own")
    try:
        strange = [name for name in target.names() if name not in expected and name != HEAD]
    except OSError as error:
        raise LocationError(explain("look into the folder", target.url, error)) from error
    if strange:
        raise LocationError(f"{target.url} has {strange[0]} already: give the savepoint a folder of its own")
