"""Whether the checkpoints of a location can be restored: every object is there, has its size, and has the bytes that were written. So have
the rows that a restart replays behind them, where no source gives them again, the batches of streaming DataFrames that it reads, and the
programs with which the run was replaced.

Objects that several checkpoints share are read once. What is wrong is told by object, box and partitions; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenflow.availability.entries import Completed, Key, Piece, StoredObject
from evenflow.errors import LocationError
from evenflow.exchange.section import ROWS, RowsObject
from evenflow.query.structure import Structure
from evenflow.statistics.plain import plain_fields
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.kept import Kept, Place
from evenflow.world.locations.proving import Flaw, Flawed, Say, each_of, proven
from evenflow.world.locations.streamed import folders_of, needed_of
from evenflow.world.locations.tables import prove_tables, tables_name
from evenflow.world.locations.versions import stored_versions


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with an object."""

    checkpoint: str
    """generation.number"""
    object: str
    """Its name below the location."""
    segment: str
    """Whose state it has, or whose source's rows."""
    box: str
    """Or the source."""
    partitions: tuple[int, ...]
    """That its site has written."""
    fault: Flaw
    text: str
    """A sentence with all of that."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found. whole: there is a checkpoint, and nothing is wrong. checkpoints: generation.number of those that were looked at.
    objects, bytes: that were read."""

    whole: bool
    checkpoints: tuple[str, ...]
    objects: int
    bytes: int
    faults: tuple[Fault, ...]

    def without(self, gone: Collection[str]) -> Verified:
        """The same, as if these checkpoints had not been looked at."""
        faults = tuple(fault for fault in self.faults if fault.checkpoint not in gone)
        named = tuple(name for name in self.checkpoints if name not in gone)
        return replace(self, whole=bool(named) and not faults, checkpoints=named, faults=faults)

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


def verified(store: Store, kept: Kept, made: Sequence[Completed], program: Structure | None, say: Say | None = None) -> Verified:
    """Look at every object of these checkpoints, and the rows that are replayed behind them. program: says what boxes are called, None
    where that cannot be read. say: is told now and then how far it is. Raises LocationError."""
    rows = _listed(store, {each.place: kept.replayed(each) for each in made})
    programs = stored_versions(store, () if kept.standing.ended is not None else kept.standing.contents)
    needed: dict[StoredObject, None] = {stored: None for each in made for stored in (*each.objects, *rows[each.place], *programs)}
    folders = folders_of(store, program)
    streamed = [
        (each, segment, needed_of(folder, each, segment)) for each in made if kept.continues(each) for segment, folder in folders.items()
    ]
    needed |= {stored: None for _, _, of in streamed for stored in of.rows}
    flaws = each_of(needed, lambda each: _flaw(store, each), say)
    wrong = {stored: flaw for stored, flaw in zip(needed, flaws, strict=True) if flaw is not None}
    faults = [
        _fault(each, piece, stored, wrong[stored], program)
        for each in made
        for piece in each.pieces
        for stored in piece.objects
        if stored in wrong
    ]
    faults += [
        _fault_of_rows(each, key, stored, wrong[stored], program)
        for each in made
        for stored, key in rows[each.place].items()
        if stored in wrong
    ]
    faults += [_fault_of_program(each, stored, wrong[stored]) for each in made for stored in programs if stored in wrong]
    if (wrong_tables := _flaw_of_tables(store, kept, program)) is not None:
        name, flaw, why = wrong_tables
        faults += [Fault(each.name, name, "", "", (), flaw, f"checkpoint {each.name}: {why}") for each in made]
    for each, segment, of in streamed:
        flaws_of = {**of.flaws, **{stored.name: wrong[stored] for stored in of.rows if stored in wrong}}
        faults += [_fault_of_streamed(each, segment, name, flaw, program) for name, flaw in flaws_of.items()]
    return Verified(not faults, tuple(each.name for each in made), len(needed), sum(each.bytes for each in needed), tuple(faults))


def _listed(store: Store, rows: Mapping[Place, Mapping[RowsObject, Key]]) -> dict[Place, dict[StoredObject, Key]]:
    """The same with the sizes that they have there: the journal does not say them."""
    try:
        sizes = store.sizes(ROWS) if any(rows.values()) else {}
    except OSError as error:
        raise LocationError(explain("list the rows", store.url, error)) from error
    return {
        place: {StoredObject(each.name, 0, each.rows, sizes.get(each.name, 0), each.digest): key for each, key in of.items()}
        for place, of in rows.items()
    }


def _flaw(store: Store, stored: StoredObject) -> Flawed | None:
    try:
        proven(store, stored)
    except Flawed as flawed:
        return flawed
    return None


def _fault(made: Completed, piece: Piece, stored: StoredObject, flaw: Flawed, program: Structure | None) -> Fault:
    segment, box = names_of(program, piece.segment, stored.step)
    numbers = ", ".join(map(str, piece.partitions))
    text = f"checkpoint {made.name} (epoch {made.epoch}): {stored.name}, with the state of box {box!r}, partitions {numbers}, {flaw}"
    return Fault(made.name, stored.name, segment, box, piece.partitions, flaw.flaw, text)


def _fault_of_rows(made: Completed, key: Key, stored: StoredObject, flaw: Flawed, program: Structure | None) -> Fault:
    segment, partition = key
    try:
        said: Mapping[str, Any] = {} if program is None else program["segments"][segment]
        name, source = str(said["name"]), str(said["source"])
    except (LookupError, TypeError):
        name, source = f"segment {segment}", f"source of segment {segment}"
    text = (
        f"checkpoint {made.name} (epoch {made.epoch}): {stored.name}, with rows behind it of source {source!r}, partition {partition}, "
        f"that nobody gives again, {flaw}"
    )
    return Fault(made.name, stored.name, name, source, (partition,), flaw.flaw, text)


def _fault_of_program(made: Completed, stored: StoredObject, flaw: Flawed) -> Fault:
    text = f"checkpoint {made.name} (epoch {made.epoch}): {stored.name}, a version that a restart goes on as or makes again, {flaw}"
    return Fault(made.name, stored.name, "", "", (), flaw.flaw, text)


def _flaw_of_tables(store: Store, kept: Kept, program: Structure | None) -> tuple[str, Flaw, str] | None:
    """What is wrong with what refreshed tables had when the run was begun, if a restart needs that: the object, the flaw, and a text."""
    standing = kept.standing
    if program is None or standing.ended is not None or standing.begun is None or all(each.program for each in standing.contents):
        return None
    digest = standing.begun.digest
    try:
        prove_tables(store, digest, program)
    except LocationError as error:
        return tables_name(digest), "missing" if isinstance(error.__cause__, FileNotFoundError) else "altered", str(error)
    return None


def _fault_of_streamed(made: Completed, segment: int, name: str, flaw: Flawed, program: Structure | None) -> Fault:
    assert program is not None, "it says which sources are streaming DataFrames"
    said = program["segments"][segment]
    text = f"checkpoint {made.name} (epoch {made.epoch}): {name}, with rows behind it of streaming DataFrame {said['source']!r}, {flaw}"
    return Fault(made.name, name, str(said["name"]), str(said["source"]), (0,), flaw.flaw, text)


def names_of(program: Structure | None, segment: int, step: int) -> tuple[str, str]:
    """Names of a segment, and of the box of one of its steps; their numbers where the program does not say."""
    try:
        said: Mapping[str, Any] = {} if program is None else program["segments"][segment]
        return str(said["name"]), str(said["steps"][step]["box"])
    except (LookupError, TypeError):
        return f"segment {segment}", f"step {step}"


def program_or_none(read: Callable[[], Structure]) -> tuple[Structure | None, str | None]:
    """The program, or why it cannot be read: faults are told by number then."""
    try:
        return read(), None
    except LocationError as error:
        return None, str(error)
