"""Which of the runs that have a journal have checkpoints in it only: what came behind the newest one comes again after a loss (J3).

Who judges such a run puts aside what a generation has given out behind the checkpoint that the next one begins with (`Lasting.again`). All
the rest must be as in a run to which nothing happens.

Random numbers are of its own, so that a seed has the same faults otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from evenflow.availability.durability import Durability
from evenflow.world.sim.model import StoreModel

NO_LOSS: Final = 0.15
"""So many of the runs that can."""
CANNOT: Final = ("kept", "shed", "asked")
"""Cases with rows that nobody gives again, or whose judges count by what is journalled."""


def draw_durability(seed: int, name: str, store: StoreModel | None, *, repeats: bool) -> StoreModel | None:
    """What the journal is on, with that. name: of the case. repeats: its rows can be read again, its epochs are cut by who leads, and
    Spark reads none of its results. A store that shows parts of objects makes who begins pass over checkpoints that are whole, which may
    be all that there are."""
    if store is None or not repeats or name in CANNOT or Random(f"durability of seed {seed}").random() >= NO_LOSS:
        return store
    return replace(store, torn=0.0, durability=Durability.NO_LOSS)
