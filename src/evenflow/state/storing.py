"""What a checkpoint wants of a segment's state, as of a capture, until it is objects (K4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from evenflow.state.changes import TablePart
from evenflow.state.held_changes import HeldPart
from evenflow.state.held_objects import held_object
from evenflow.state.objects import Make, Origin, Rest, Written, rows_object, to_file, to_object
from evenflow.state.page_snapshot import State
from evenflow.state.snapshot import Snapshot

WHOLE_BYTES: Final = 32 << 20
"""Of states that are written whole, about so many are read and made one object. Some may be on disk for lack of memory, and all of them
would not fit."""

Part = TablePart | HeldPart
"""Some partitions of a step whose state is rows."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What the states of one step are. box: the step's, for people. types: of the objects in its table's rows, None if it has no table."""

    box: str
    types: tuple[pa.DataType, ...] | None = None


class StateToStore:
    """What a checkpoint wants of one segment from one site, as of the end of an epoch: not read yet. Making one copies nothing.

    kinds: by step. states: (partition, step, snapshot), as `Cohort.capture` gives them. parts: by step, those of a
    capture that may have changes only.
    """

    def __init__(
        self,
        segment: int,
        epoch: int,
        kinds: Sequence[Kind],
        states: Iterable[tuple[int, int, Snapshot]],
        parts: Mapping[int, Sequence[Part]] | None = None,
    ) -> None:
        self.segment, self.epoch = segment, epoch
        self._kinds = tuple(kinds)
        self._by_step: dict[int, list[tuple[int, Snapshot]]] = {}
        for partition, step, snapshot in states:
            self._by_step.setdefault(step, []).append((partition, snapshot))
        self._parts = {step: list(some) for step, some in (parts or {}).items() if some}

    @property
    def empty(self) -> bool:
        """There is no state at all."""
        return not self._by_step and not self._parts

    def objects(self, rest: Rest = lambda: None, make: Make = to_file) -> Iterator[tuple[int, Written]]:
        """(step, object) for each object, made one by one, once. May be called from another thread than the state's.

        What was captured is let go piece by piece as it is read, so that the operators stop keeping old rows for it. rest: is called now
        and then, to give way to others. Raises DiskError where state is on a disk that cannot be read.
        """
        for step in sorted({*self._by_step, *self._parts}):
            origin = Origin(self.segment, step, self._kinds[step].box, self.epoch)
            parts = self._parts.pop(step, [])
            parts.reverse()
            while parts:
                yield step, _object(origin, parts.pop(), rest, make)
            held = self._by_step.pop(step, [])
            held.reverse()
            while held:
                yield step, to_object(origin, _read(held), self._kinds[step].types, make)
                rest()


def _read(held: list[tuple[int, Snapshot]]) -> list[tuple[int, State]]:
    """Some of these states, from the end on, which are let go."""
    read, size = list[tuple[int, State]](), 0
    while held and size < WHOLE_BYTES:
        partition, snapshot = held.pop()
        read.append((partition, snapshot.to_bytes()))
        size += len(read[-1][1])
        del snapshot
    return read


def _object(origin: Origin, part: Part, rest: Rest, make: Make) -> Written:
    if isinstance(part, HeldPart):
        return held_object(origin, part.read(rest), part.sides, rest, make)
    types, rows = part.types, part.rows(rest)
    del part
    return rows_object(origin, rows, types, rest, make)
