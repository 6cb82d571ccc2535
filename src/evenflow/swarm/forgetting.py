"""Between two generations a source may lose rows: its first ones, as who keeps rows for a time only, or its last ones. What a checkpoint
covers may go. Else the run ends with a `SourceError` that names the partition and positions, now and each time that it is begun again,
until somebody gives the rows back; and nothing is given out instead (K10).

Random numbers are of its own, so that a seed has the same faults otherwise.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

from evenflow.availability.entries import Key
from evenflow.errors import EvenflowError, SourceError
from evenflow.site.replaying import Beginning
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.forgetting import Kept
from evenflow.world.sim.world import SimWorld

FORGETS: Final = 0.2
"""So often a source loses some when a run is lost."""
GIVEN_BACK: Final = 0.6
NAMED: Final = re.compile(r"partition \d+ (goes on from position \d+|cannot be replayed: .* goes from position \d+ to \d+)")


class Forgetting:
    """cluster: whose sources they are. times: how often some have lost rows. met: how often a run has ended for it."""

    def __init__(self, cluster: SimCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self.times = self.met = 0

    def strike(self) -> None:
        """The next generation has begun, and has read nothing yet."""
        world, random = self._cluster.world, self._random
        able = [key for key in sorted(world.coordinator.beginning.cuts) if self._repeats(world, key)]
        if not able or self._cluster.lasting.kept or random.random() >= FORGETS:
            return
        key = random.choice(able)
        before, through = _replayed(world.coordinator.beginning, key)
        if random.random() < 0.6:
            self._cluster.lasting.kept[key] = Kept(
                first=random.choice([before, random.randint(0, before), random.randint(before, through)])
            )
        elif before < through:
            self._cluster.lasting.kept[key] = Kept(behind=random.randrange(through))
        else:
            return
        self.times += 1

    def _repeats(self, world: SimWorld, key: Key) -> bool:
        source = world.layout.sources[world.layout.segments[key[0]].source or ""]
        return source.repeats and not source.pushed

    def ends(self, error: EvenflowError | None) -> bool:
        """Whether a generation was to end with that. Raises AssertionError if it should not have, or does not say what is gone."""
        if type(error) is not SourceError or not self._cluster.lasting.kept:
            return False
        beginning = self._cluster.world.coordinator.beginning
        lacking = [key for key, kept in self._cluster.lasting.kept.items() if _lacks(kept, *_replayed(beginning, key))]
        assert lacking, f"what sources have lost is covered by a checkpoint, and the run ends: {error}"
        assert NAMED.search(str(error)), f"rows are gone, and nobody says which: {error}"
        return True

    def give_back(self, error: EvenflowError | None) -> None:
        """The run has ended, with this error: perhaps somebody gives back what was missing."""
        if self.ends(error):
            self.met += 1
            if self._random.random() < GIVEN_BACK:
                self._cluster.lasting.kept.clear()


def _replayed(beginning: Beginning, key: Key) -> tuple[int, int]:
    """From where to where rows of that partition are read again."""
    before = int(beginning.logs[key][0]) if key in beginning.logs else 0
    return before, max(before, beginning.through(key))


def _lacks(kept: Kept, before: int, through: int) -> bool:
    return kept.first > before or (kept.behind is not None and kept.behind < through)
