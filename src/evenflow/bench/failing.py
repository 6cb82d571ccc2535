"""How two systems are made to fail, the same way: what is set, and how long a stop lasts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from evenflow.availability.mode import Mode
from evenflow.bench.killing import MANNERS, Manner

SITES: Final = 4
HANG_S: Final = 5.0
"""A stopped executor is resumed after this: Spark itself would not miss it for two minutes."""
PIECE_S: Final = 5.0
"""The usual longest gap is that of a piece of this length in which nobody is killed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """kills: of Evenflow's run. linger_ms: of its engine: with it and the rate the load is set. seconds_between: on average, from being
    whole to the next kill. hang: stop instead of kill. spares: 0 or 1.

    replicas: of every partition. spark_kills: of Structured Streaming's run; 0: leave it out. calm_s: measured before the first kill.
    unordered: the counts go first come, first served to a second sink, too. tabs: so many readers of the engine's page at every other kill.
    availability: of all boxes; None: as pairs, and nothing is measured beside it. closing: only boxes are run whose state closes by event
    time: no other can begin again from what is upstream.
    """

    kills: int = 20
    rate: int = 5_000
    linger_ms: float = 20.0
    seconds_between: float = 2.0
    hang: bool = False
    spares: int = 1
    replicas: int = 2
    spark_kills: int = 5
    calm_s: float = 20.0
    seed: int = 1
    unordered: bool = False
    tabs: int = 0
    availability: str | None = None
    closing: bool = False
    manners: tuple[Manner, ...] = MANNERS

    @property
    def master(self) -> str:
        return f"local-cluster[{SITES + self.spares},2,1024]"

    @property
    def redundancy(self) -> int:
        """Replicas that must be there when everything is whole. Other modes than pairs have another base than a second replica."""
        return self.replicas if self.availability in (None, Mode.PAIRS) else 1

    @property
    def spared(self) -> int:
        """Deaths that must cost nothing when everything is whole. Amnesia is never whole in that sense."""
        return self.redundancy - 1 if self.availability in (None, Mode.PAIRS) else int(self.availability != Mode.AMNESIA)

    @property
    def closes(self) -> bool:
        """Only boxes whose state closes are run, since that was asked for or upstream backup takes no others."""
        return self.closing or self.availability == Mode.UPSTREAM

    @property
    def plain(self) -> Setting:
        """The same boxes and load with one replica of everything, and nobody killed."""
        return replace(self, availability=None, replicas=1, kills=0, tabs=0, closing=self.closes)

    @property
    def engine_options(self) -> dict[str, Any]:
        """Only what differs from an engine's own defaults."""
        return {
            name: value for name, value, default in (("spares", self.spares, 0), ("replicas", self.replicas, 1)) if value != default
        } | {"linger_ms": self.linger_ms}
