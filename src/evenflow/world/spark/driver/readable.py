"""A journal with the newest checkpoint that can be read: what a driver goes on from (availability.md, K9).

An object that is missing, or has another size, is seen in a listing. One that was altered is seen by who reads it, which are the sites:
then the run ends (`CheckpointCorrupt`) before it has journalled anything. So where the driver before has come no further than its
beginning, every object of the checkpoint is read and compared with its digest first. A checkpoint that cannot be read is passed over:
the one before it and a longer replay do as well, and so does the journal from its first entry on, if that is still there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from evenflow.availability.entries import Completed
from evenflow.availability.reading import AT_ONCE
from evenflow.availability.retained import folder_of, removed_name
from evenflow.availability.standing import Standing
from evenflow.errors import CheckpointCorrupt, LocationError
from evenflow.store.journal import fold, read_journal
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.proving import Flawed, fault_listed, proven


def readable(store: Store) -> tuple[Standing, tuple[str, ...]]:
    """Where the location stands, and what is to be said of the checkpoints and snapshots that were passed over.

    Raises CheckpointCorrupt if no checkpoint can be read, and entries before them were collected; JournalCorrupt, LocationError.
    """
    read = fold(store, Standing)
    standing, texts = _readable(store, read.fold)
    return standing, (*read.passed_over, *texts)


def readable_on(store: Store, known: Standing) -> tuple[Standing, tuple[str, ...]]:
    """The same for who knows already what all of the journal adds up to: it is only read again if a checkpoint has to be passed over."""
    return _readable(store, known)


def _readable(store: Store, standing: Standing) -> tuple[Standing, tuple[str, ...]]:
    before, passed = standing.unreadable, dict[tuple[int, int], str]()
    while standing.checkpoints and standing.ended is None:
        if standing.lost:
            raise CheckpointCorrupt(
                f"{store.url}: nothing is left to go on from: {'; '.join(passed.values())}. What came before them was collected. Put the "
                "objects back, or start from a savepoint at another location"
            )
        newest = standing.checkpoints[-1]
        try:
            wrong = fault(store, newest, thoroughly=standing.fruitless)
        except OSError as error:
            raise LocationError(explain(f"read checkpoint {newest.number}", store.url, error)) from error
        if wrong is None:
            break
        text = f"checkpoint {newest.number} of generation {newest.generation} (epoch {newest.epoch}) is passed over: {wrong}"
        passed[newest.place] = text
        standing = read_journal(store, before | passed.keys())
    return standing, tuple(passed.values())


def fault(store: Store, completed: Completed, *, thoroughly: bool) -> str | None:
    """What is wrong with a checkpoint's objects, None if nothing is. thoroughly: they are read, and not only listed. Raises OSError."""
    sizes = _sizes(store, completed)
    if removed_name(*completed.place) in sizes:
        return "it was removed by hand"
    wrong = fault_listed(completed.objects, sizes)
    for stored in completed.objects if thoroughly and wrong is None else ():
        try:
            proven(store, stored)
        except Flawed as flawed:
            if flawed.flaw == "unreadable" and isinstance(flawed.__cause__, OSError):
                raise flawed.__cause__ from None  # The store's trouble, and not the checkpoint's.
            return f"{stored.name} {flawed}"
    return wrong


def _sizes(store: Store, completed: Completed) -> dict[str, int]:
    """What is in the folders that a checkpoint names. Others may be there in any number, and each takes a request of some stores."""
    above = {folder_of(*completed.place), *[stored.name.rpartition("/")[0] for stored in completed.objects]}
    sizes = dict[str, int]()
    with ThreadPoolExecutor(AT_ONCE) as hands:
        for found in hands.map(store.sizes, [f"{folder}/" for folder in sorted(above)]):
            sizes |= found
    return sizes
