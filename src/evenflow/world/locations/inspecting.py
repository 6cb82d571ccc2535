"""What a checkpoint has: state by box, and how far its sources had been read. Read from the journal alone, without an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.errors import JournalCorrupt
from evenflow.query.structure import Structure
from evenflow.statistics.plain import plain_fields
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.world.locations.kept import Checkpoint
from evenflow.world.locations.verifying import names_of


@dataclass(frozen=True, slots=True)
class BoxState:
    """The state of one box in a checkpoint. A row of a table's state is a key, or a key and a window; any other state has a row per
    partition."""

    segment: str
    box: str
    kind: str
    partitions: int
    """Of the segment, in the checkpoint."""
    rows: int
    bytes: int
    objects: tuple[str, ...]
    """Names below the location."""
    watermark_us: int | None
    """The least event time that its segment still expected, in microseconds since 1970; None before the first."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far a partition of a source had been read at the checkpoint's epoch: a restart reads on from there."""

    source: str
    partition: int
    position: int
    """Rows taken."""
    ended: bool
    """It has no more."""
    closed_at_us: int
    """When the epoch was closed there, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A checkpoint from inside. dataflow, run: whose it is."""

    checkpoint: Checkpoint
    dataflow: str
    run: str
    boxes: tuple[BoxState, ...]
    sources: tuple[SourcePosition, ...]

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


def inspected(checkpoint: Checkpoint, made: Completed, program: Structure, dataflow: str, run: str) -> Inspected:
    """Raises JournalCorrupt if what goes along with the state is not what it must be."""
    try:
        return Inspected(checkpoint, dataflow, run, _boxes(made, program), _sources(made, program))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalCorrupt(
            f"checkpoint {checkpoint.name} says of its pieces what does not fit the dataflow ({type(error).__name__}: {error})"
        ) from error


def _boxes(made: Completed, program: Structure) -> tuple[BoxState, ...]:
    boxes = []
    for (segment, step), parts in sorted(parts_of(made).items()):
        whole = [piece for piece in made.pieces if piece.segment == segment]
        name, box = names_of(program, segment, step)
        boxes.append(
            BoxState(
                name, box, str(program["segments"][segment]["steps"][step]["kind"]), sum(len(piece.partitions) for piece in whole),
                rows_of(step, parts), sum(stored.bytes for _, stored in parts),
                tuple(stored.name for _, stored in parts), _watermark(whole),
            )
        )  # fmt: skip
    return tuple(boxes)


def parts_of(made: Completed) -> dict[tuple[int, int], list[tuple[Piece, StoredObject]]]:
    """What a checkpoint has of each step with state, by segment and step."""
    found: dict[tuple[int, int], list[tuple[Piece, StoredObject]]] = {}
    for piece in made.pieces:
        for stored in piece.objects:
            found.setdefault((piece.segment, stored.step), []).append((piece, stored))
    return found


def rows_of(step: int, parts: Sequence[tuple[Piece, StoredObject]]) -> int:
    """That a step's state has. Where a table's objects are added to each other, only who has captured it knows."""
    pieces = {piece.site: piece for piece, _ in parts}
    said = {site: piece.facts.get("rows", {}).get(str(step)) for site, piece in pieces.items()}
    return sum(int(count) for count in said.values() if count is not None) + sum(
        stored.rows for piece, stored in parts if said[piece.site] is None
    )


def _watermark(pieces: list[Piece]) -> int | None:
    least = min(int(piece.facts["watermark"]) for piece in pieces)
    return None if least == NO_WATERMARK else least


def _sources(made: Completed, program: Structure) -> tuple[SourcePosition, ...]:
    found = []
    for piece in made.pieces:
        logs: Mapping[str, Any] = piece.facts["logs"]
        for partition, (taken, ended, _, stamp, _) in logs.items():
            source = str(program["segments"][piece.segment]["source"])
            found.append(SourcePosition(source, int(partition), int(taken), bool(ended), int(stamp)))
    return tuple(sorted(found, key=lambda each: (each.source, each.partition)))
