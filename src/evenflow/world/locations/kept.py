"""What a location's journal and its listing say of its checkpoints: which there are, and which of them are whole as far as a listing shows.

A checkpoint is one by its entry in the journal. Those that a restart may begin with are shown: the newest that are retained, and older ones
of which everything is still there. Objects that no entry names are of a checkpoint that is under way or never became whole. A checkpoint
that a person has removed has a mark in its folder, so that it is not taken for one that has lost its objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Completed, Entry, Key, Logged, Snapshot
from evenflow.availability.retained import CHECKPOINTS, RETAINED, folder_of, needed, place_of, removed_name
from evenflow.availability.standing import Standing
from evenflow.errors import LocationError, OperationRefused
from evenflow.exchange.section import RowsObject
from evenflow.statistics.plain import plain_fields
from evenflow.store.journal import fold
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.proving import fault_listed

Place = tuple[int, int]
"""(generation, number) of a checkpoint."""
Which = int | str | None
"""How a person names a checkpoint: its number, "generation.number", or None for the newest that is whole."""
UNNAMED: Final = "no entry of the journal names it: it is under way, or never became whole"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint at a location, as `evenflow checkpoints list` shows it. Its fields are the keys of the JSON object."""

    number: int
    """Its number in its generation."""
    generation: int
    """Of the driver that made it; 0: it came with the savepoint that the location was begun with."""
    epoch: int | None
    """It has the state as of the end of this epoch. None if no entry says so."""
    bytes: int
    """Of all its objects, those that it shares with others included."""
    objects: int
    """How many it has."""
    rows: int | None
    """In all of them."""
    complete: bool
    """It is whole, as far as a listing shows: its entry is in the journal, and every object has its size."""
    ended_at: str | None
    """When it became whole, by the clock of its driver, in UTC. None where that is not known."""
    seconds: float | None
    """From its order until it was whole."""
    wrong: str | None
    """Why it is not whole."""

    @property
    def place(self) -> Place:
        return self.generation, self.number

    @property
    def name(self) -> str:
        """That no other one has."""
        return f"{self.generation}.{self.number}"

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a checkpoint was made of. begun: of its driver. content: what of the plan acts at its epoch."""

    begun: Begun
    content: Content


@dataclass(slots=True)
class Kept:
    """The journal, folded, beside a listing. standing: what it adds up to. completed: all checkpoints that its entries name, by place,
    ascending by epoch: those that ever were, as far as entries were not collected. origins: of each. rows: objects with rows that nobody
    gives again, by ingress partition and the epoch whose cut names them. sizes: of the objects that are there, by name."""

    standing: Standing = field(default_factory=Standing)
    completed: dict[Place, Completed] = field(default_factory=dict)
    origins: dict[Place, Origin] = field(default_factory=dict)
    rows: dict[Key, dict[int, tuple[RowsObject, ...]]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """The next entry of the journal."""
        self.standing.add(entry)
        matter = entry.matter
        made = matter.restored if isinstance(matter, Begun) else matter if isinstance(matter, Completed) else None
        made = matter.completed if isinstance(matter, Snapshot) else made
        if made is not None and self.standing.begun is not None:
            self.completed[made.place] = made
            self.origins[made.place] = Origin(self.standing.begun, self.standing.contents[0])
        if isinstance(matter, Logged | Snapshot):
            for key, cuts in matter.cuts.items():
                self.rows.setdefault(key, {}).update({cut.epoch: cut.objects for cut in cuts if cut.objects})
        elif isinstance(matter, Begun):
            # What was logged for some partitions only is cut anew, and the rows that those cuts named may be gone.
            durable = self.standing.durable
            self.rows = {key: {epoch: of for epoch, of in epochs.items() if epoch <= durable} for key, epochs in self.rows.items()}

    # ------------------------------------------------------------ which there are

    def removed(self, place: Place) -> bool:
        """A person has removed it."""
        return removed_name(*place) in self.sizes

    def shown(self) -> list[Completed]:
        """Those that a restart may begin with, ascending."""
        all_of_them = list(self.completed.values())
        newest = all_of_them[-RETAINED:]
        older = [made for made in all_of_them[:-RETAINED] if self.fault(made) is None and made.objects]
        return [made for made in (*older, *newest) if not self.removed(made.place)]

    def fault(self, made: Completed) -> str | None:
        """What a listing shows to be wrong with its objects."""
        return fault_listed(made.objects, self.sizes)

    def continues(self, made: Completed) -> bool:
        """A restart may begin with this checkpoint, and drivers have kept what it reads behind it."""
        return self.standing.ended is None and made.place in list(self.completed)[-RETAINED:]

    def replayed(self, made: Completed) -> dict[RowsObject, Key]:
        """Objects with rows that nobody gives again, and that a restart from this checkpoint reads, with their ingress partitions. None if
        the run is over, or the checkpoint is none of those that are retained: drivers keep no rows for it."""
        if not self.continues(made):
            return {}
        epochs = [(key, epoch, of) for key, by_epoch in self.rows.items() for epoch, of in by_epoch.items()]
        return {stored: key for key, epoch, of in epochs if epoch > made.epoch for stored in of}

    def unnamed(self) -> dict[Place, dict[str, int]]:
        """Objects in folders of checkpoints that no entry names, with their sizes, by place. Not those that a younger one names, which may
        be in the folder of one that was collected."""
        found: dict[Place, dict[str, int]] = {}
        named = needed(tuple(self.completed.values()))
        for name, size in self.sizes.items():
            place = place_of(name)
            if place is not None and place not in self.completed and name not in named and not self.removed(place):
                found.setdefault(place, {})[name] = size
        return found

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """What there is, ascending: whole ones and others."""
        known = [_described(made, self.fault(made)) for made in self.shown()]
        loose = [
            Checkpoint(number, generation, None, sum(sizes.values()), len(sizes), None, False, None, None, UNNAMED)
            for (generation, number), sizes in self.unnamed().items()
        ]
        return tuple(sorted((*known, *loose), key=lambda each: each.place))

    def find(self, which: Which) -> Checkpoint:
        """The one that is meant. Raises OperationRefused if there is none, or several, naming those that there are."""
        there = self.checkpoints()
        if which is None:
            found = [each for each in there if each.complete][-1:]
        else:
            found = [each for each in there if str(which) in (str(each.number), each.name)]
            found = [each for each in found if each.name == str(which)] or found
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.name for each in there) or "none"
        if not found:
            raise OperationRefused(f"there is no {'whole checkpoint' if which is None else f'checkpoint {which}'} here; there are {names}")
        raise OperationRefused(f"several checkpoints have the number {which}: say which as GENERATION.NUMBER. There are {names}")


def kept_at(store: Store) -> Kept:
    """What is there now. Raises JournalCorrupt, which names the entry, or LocationError."""
    kept = fold(store, Kept).fold
    try:
        kept.sizes = store.sizes(CHECKPOINTS)
    except OSError as error:
        raise LocationError(explain("list the checkpoints", store.url, error)) from error
    return kept


def folder(checkpoint: Checkpoint) -> str:
    """Where its own objects are, below the location."""
    return folder_of(checkpoint.generation, checkpoint.number)


def _described(made: Completed, wrong: str | None) -> Checkpoint:
    stored = made.objects
    ended_at = datetime.fromtimestamp(made.ended_s, UTC).isoformat(timespec="seconds") if 0 < made.ended_s < 4e9 else None
    rows = sum(each.rows for each in stored)
    return Checkpoint(
        made.number, made.generation, made.epoch, made.bytes, len(stored), rows, wrong is None, ended_at, made.seconds, wrong,
    )  # fmt: skip
