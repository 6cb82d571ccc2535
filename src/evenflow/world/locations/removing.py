"""Removing one checkpoint by hand: its mark first, so that a restart passes it over even if this ends in the middle, then its objects."""

from __future__ import annotations

from typing import Final

from evenflow.availability.retained import removed_name
from evenflow.availability.standing import Standing
from evenflow.errors import LocationError, OperationRefused
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.kept import Checkpoint, Kept, folder
from evenflow.world.locations.silence import alive_at, is_written

SILENT_S: Final = 10.0
"""A driver that lives appends once a second, or says so at least twice in its lease."""
MARK: Final = b'{"removed": true}\n'


def remove(store: Store, kept: Kept, checkpoint: Checkpoint, *, force: bool, silent_s: float | None = None) -> int:
    """Delete a checkpoint; returns how many bytes that has freed. Objects that other checkpoints name stay.

    force: also the newest one that is whole, with which a restart would begin. Raises OperationRefused if a restart or a live driver needs
    it, LocationError if the store fails: then it can be asked for again. silent_s: for so long the driver must say nothing; None: for
    SILENT_S, or for its lease if that is longer.
    """
    whole = [each for each in kept.checkpoints() if each.complete]
    needed = whole[-1:] == [checkpoint]
    if needed and not force:
        last = "the last one" if len(whole) == 1 else "the newest one"
        if len(whole) == 1 and kept.standing.collected:
            raise OperationRefused(
                f"checkpoint {checkpoint.name} is the last one, and what came before it was collected: without it nobody can go on here at "
                "all. Say so with force=True, --force"
            )
        raise OperationRefused(
            f"checkpoint {checkpoint.name} is {last}: a restart begins with it, and would have to make everything after "
            f"{'the start' if len(whole) == 1 else f'epoch {whole[-2].epoch}'} again without it. Say so with force=True, --force"
        )
    under_way = checkpoint.epoch is None and checkpoint.generation == kept.standing.generation
    standing = kept.standing
    has_driver = standing.last > 0 and standing.ended is None
    if (needed or under_way) and has_driver and _lives(store, standing, silent_s):
        raise OperationRefused(
            f"checkpoint {checkpoint.name} is needed: a driver runs here, and makes the next ones out of it. Stop that run first"
        )
    return _removed(store, kept, checkpoint)


def _lives(store: Store, standing: Standing, silent_s: float | None) -> bool:
    """Whether the newest driver says something from now on: what a dead one has said last is still there."""
    try:
        known = alive_at(store, standing)
    except OSError as error:
        raise LocationError(explain("see whether a driver runs there", store.url, error)) from error
    if silent_s is None:
        silent_s = SILENT_S if known is None else max(SILENT_S, known.lease_s)
    return is_written(store, standing, silent_s, known=known)


def _removed(store: Store, kept: Kept, checkpoint: Checkpoint) -> int:
    others = {stored.name for made in kept.shown() if made.place != checkpoint.place for stored in made.objects}
    mine = [name for name in kept.sizes if name.startswith(f"{folder(checkpoint)}/") and name not in others]
    if checkpoint.place in kept.completed:
        mine += [s.name for s in kept.completed[checkpoint.place].objects if s.name not in others and s.name in kept.sizes]
    freed = 0
    try:
        try:
            store.create(removed_name(*checkpoint.place), MARK)
        except FileExistsError:
            pass
        for name in dict.fromkeys(mine):
            store.delete(name)
            freed += kept.sizes[name]
    except OSError as error:
        raise LocationError(explain(f"remove checkpoint {checkpoint.name}", store.url, error)) from error
    return freed
