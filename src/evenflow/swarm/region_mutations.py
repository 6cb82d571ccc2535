"""Planted bugs of regions (race.md, W1 to W7), which seeds of regions must find. Those of a reader alone (no `prev`, resumed from what was
received, no budget for hedges), and of a producer that opens again when it is fenced, are planted in schedules that meet them in
milliseconds: `tests/availability/test_planted.py`. With a right horizon no epoch but the first behind it differs, so that what differed is
withheld is held by `tests/availability/test_group.py`."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation


def _of_regions(name: str, where: str, old: str, new: str) -> Mutation:
    return Mutation(name, where, old, new, regional=True)


REGIONS: Final = (
    _of_regions("a layout for the sites that a region has", "world.grouping:InGroup.made_for", "self.sites or sites", "sites"),
    _of_regions(
        "a region stamps by its own clock", "site.content:ContentIngress._cut_epoch", "self.grid.stamp(epoch)", "self.last_close_us"
    ),
    _of_regions(
        "a standby goes on from its own epoch",
        "availability.committing:Appending.next",
        "match self.turns.move(link, now_us):",
        "match {Move.WAIT: Move.DONE}.get(move := self.turns.move(link, now_us), move):",
    ),
    _of_regions("a silent region gives out what it makes", "availability.silence:Withheld.given", "if not self.gate.over:", "if False:"),
    _of_regions(
        "one epoch is enough to be believed", "availability.silence:Silence._agree", "self.agreed >= self.needed", "self.agreed >= 1"
    ),
    _of_regions("the first epoch behind the horizon is given out, too", "availability.silence:Withheld.made", "if self.known:", "if True:"),
    _of_regions(
        "rows before the horizon are read, too",
        "sources.cut:CutReader._behind",
        'np.searchsorted(epochs, self._source.after, "right")',
        "0",
    ),
    _of_regions(
        "digests of what was delivered are not compared",
        "availability.chain:Chain._compare",
        "self.known[at].digest != link.digest",
        "False",
    ),
)
