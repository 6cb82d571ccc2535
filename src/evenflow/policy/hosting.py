"""Who hosts what, and what may go where: the rules that no proposal breaks (FT 5.1.3.2, protocol T3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evenflow.plan.layout import Layout
from evenflow.statistics.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Hosting:
    """The placement that a policy starts from, and what is movable at all.

    replicas: by (segment, partition), the sites of its live replicas, by rank. capacity: by site that may be given partitions, the most of
    its time that they may take, in (0, 1]; a site that is not there is given nothing (a spare, one that is drained, a dead one).
    How fast a site is need not be told: utilization shows it. pinned: (segment, partition) that never move: by the user's wish, because a
    source cannot be replayed, or because a copy of it is under way. hosts: machine of a site, where known. on_disk: (site, segment,
    partition) of replicas whose state is spilled. layout: what feeds what, where it is known; without it nobody can tell what sites would
    do at other rates.
    """

    replicas: Mapping[tuple[int, int], tuple[int, ...]]
    capacity: Mapping[int, float]
    pinned: frozenset[tuple[int, int]] = frozenset()
    hosts: Mapping[int, str] = field(default_factory=dict)
    on_disk: frozenset[tuple[int, int, int]] = frozenset()
    layout: Layout | None = None

    @staticmethod
    def of(statistics: Statistics) -> Hosting:
        """As the statistics themselves show it: a partition is at the sites that report it, every site may be given more, nothing is
        pinned, no host is known. A partition that left within the window (it had rows and holds no state) cannot be told from one without
        state, so recorded statistics are best used with the hosting that they were made with."""
        replicas: dict[tuple[int, int], tuple[int, ...]] = {}
        for load in statistics.replicas():
            at = (load.segment, load.partition)
            replicas[at] = (*replicas.get(at, ()), load.site)
        return Hosting(replicas, {window.site: 1.0 for window in statistics.sites})


class Placement:
    """A hosting while a round's moves are being chosen. It says which further move keeps the rules, given those chosen so far."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._gone: set[tuple[int, int]] = set()

    def hosted(self, site: int, segment: int, partition: int) -> bool:
        """Whether the site has a replica that may move: it is there, and not pinned."""
        at = (segment, partition)
        return site in self._hosting.replicas.get(at, ()) and at not in self._hosting.pinned

    def allows(self, segment: int, partition: int, source: int, target: int) -> bool:
        """Whether the replica at `source` may go to `target`: two replicas never meet on one site, nor on one host unless the one
        that moves already shares its host with another; and one replica of a partition moves per round, so that the others can feed it."""
        at = (segment, partition)
        if not self.hosted(source, segment, partition) or at in self._gone or target not in self._hosting.capacity:
            return False
        others = [site for site in self._hosting.replicas[at] if site != source]
        if target == source or target in others:
            return False
        hosts = self._hosting.hosts
        shared = {hosts[site] for site in others if site in hosts}
        return hosts.get(target) not in shared or hosts.get(source) in shared

    def move(self, segment: int, partition: int) -> None:
        """Note that a replica of the partition is among the moves."""
        self._gone.add((segment, partition))
