"""What must hold while entries of a journal are collected: a driver that begins now finds what it would find if nothing had been deleted.

Drivers die between any two deletions, so it is looked after each of them as a driver would look that begins then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from evenflow.availability.entries import Completed, Entry, entry_name, from_bytes, snapshot_name
from evenflow.availability.reading import Listed, Make, Remove, Request
from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import Standing, standing
from evenflow.world.sim.store import SimStore

EACH: Final = 12
"""So many looks are taken after each deletion, and then one for so many deletions: to read a journal takes a while."""

Place = tuple[int, int]


class CollectionCheckers:
    """looks: how often a whole journal was compared with what is left of it. Looks once at once, as who begins here."""

    def __init__(self, store: SimStore) -> None:
        self._store = store
        self._entries: dict[int, Entry] = {}
        self.looks = self._steps = 0
        store.watch = self._carried_out
        self.compare()

    def _carried_out(self, request: Request) -> None:
        if isinstance(request, Make | Remove):
            self._steps += 1
            if self._steps <= EACH or self._steps % EACH == 0:
                self.compare()
                self._compare_without_the_newest()

    def _compare_without_the_newest(self) -> None:
        """A snapshot may be spoilt after it was made: the one before does as well, or all entries are still there."""
        objects = self._store.objects
        name = snapshot_name(Listed.of(tuple(objects)).newest)
        if name in objects:
            data = objects.pop(name)
            try:
                self.compare()
            finally:
                objects[name] = data

    def compare(self) -> None:
        """What is left says what all of it says, also for who cannot read the newest checkpoints."""
        store = self._store
        self.looks += 1
        retained = [entry.matter.place for entry in self._all() if isinstance(entry.matter, Completed)][-RETAINED:]
        given = store.unreadable
        for count in range(max(1, len(retained))):
            store.unreadable = given | set(retained[len(retained) - count :])
            try:
                if not retained or [place for place in retained if place not in store.unreadable]:
                    found, expected = store.standing(), standing(self._all(), store.unreadable)
                    assert _said(found, found) == _said(expected, found), (
                        f"a driver that begins now without {sorted(store.unreadable)} finds {_said(found, found)}, and not what the whole "
                        f"journal says: {_said(expected, found)}"
                    )
            finally:
                store.unreadable = given

    def _all(self) -> Iterable[Entry]:
        """All entries that ever were."""
        store = self._store
        for number in Listed.of(tuple(store.written)).entries:
            if number not in self._entries:
                self._entries[number] = from_bytes(store.written[entry_name(number)], number)
        return self._entries.values()


def _said(of: Standing, found: Standing) -> list[Any]:
    """What a driver goes on from. found: what is left, which knows of no earlier checkpoints, nor of rows before them."""
    assert of.begun is not None
    kept = [(made.place, made.epoch) for made in of.checkpoints[-len(found.checkpoints) :] if found.checkpoints]
    rows = {name: epoch for name, epoch in of.rows.items() if epoch > of.base}
    restored = of.restored is not None
    return [
        replace(of.begun, restored=None), of.generation, of.nonce, of.last, of.contents, of.cuts, kept, of.ended, of.begins, rows, restored,
    ]  # fmt: skip
