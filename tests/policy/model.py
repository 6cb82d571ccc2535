"""A closed loop for policies: sites with speeds, partitions with weights, rounds in which what a policy proposes is carried out.

The input is offered faster than it can be taken, so the busiest site sets the rate of all (head-of-line blocking); or at a given rate. Rows
of a window are drawn around their mean, so statistics of a short window are noisy. Virtual time: a round lasts its collection and moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenflow.policy.hosting import Hosting
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters, Policy, Proposal
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow

SEGMENT = 1
MOVE_US = 5_000
"""What a plan change takes besides its bytes."""


@dataclass(slots=True)
class Round:
    """At the end of a round. share: rate by what the cluster would take if nothing were slow and all were even."""

    at_us: int
    share: float
    proposal: Proposal


@dataclass(slots=True)
class Cluster:
    """speeds: by site, 1.0 is full. weights: share of the rows, by partition. sites: replicas of each partition.

    cost_us: of a row at full speed. offered: rows per second, or None for as many as possible. state_bytes: of each partition.
    bytes_per_s: of copies. seed: of the noise; None for none.
    """

    speeds: list[float]
    weights: npt.NDArray[np.float64]
    sites: list[tuple[int, ...]]
    cost_us: float = 20.0
    offered: float | None = None
    state_bytes: int = 800_000
    bytes_per_s: float = 60e6
    seed: int | None = 1
    pinned: frozenset[int] = frozenset()
    hosts: Mapping[int, str] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    now_us: int = 0
    rounds: list[Round] = field(default_factory=list)
    _random: np.random.Generator = field(default_factory=np.random.default_rng)

    def __post_init__(self) -> None:
        self.weights = self.weights / self.weights.sum()
        self._random = np.random.default_rng(self.seed)

    def busy_per_row(self) -> npt.NDArray[np.float64]:
        """Seconds that each site works for one row of input."""
        busy = [0.0] * len(self.speeds)
        for weight, sites in zip(self.weights.tolist(), self.sites, strict=True):
            for site in sites:
                busy[site] += weight * self.cost_us / 1e6 / self.speeds[site]
        return np.array(busy)

    @property
    def rate(self) -> float:
        """Rows per second that it takes."""
        possible = 1 / float(self.busy_per_row().max())
        return possible if self.offered is None else min(self.offered, possible)

    @property
    def unloaded(self) -> float:
        """Rows per second with all sites at full speed and equal load."""
        replicas = len(self.sites[0])
        return len(self.speeds) / (replicas * self.cost_us / 1e6)

    @property
    def share(self) -> float:
        return self.rate / self.unloaded

    @property
    def ideal(self) -> float:
        """The greatest share that these speeds allow, if load could be divided at will."""
        return sum(self.speeds) / len(self.speeds)

    @property
    def divisible(self) -> float:
        """The same with partitions as they are: largest first, each to where it ends soonest."""
        ends = np.zeros(len(self.speeds))
        for weight in sorted(self.weights, reverse=True):
            after = ends + weight / np.array(self.speeds)
            ends[int(after.argmin())] = after.min()
        return 1 / float(ends.max()) / len(self.speeds)

    def hosting(self) -> Hosting:
        return Hosting(
            {(SEGMENT, p): sites for p, sites in enumerate(self.sites)},
            dict.fromkeys(range(len(self.speeds)), 1.0),
            frozenset((SEGMENT, p) for p in self.pinned),
            self.hosts,
        )

    def window(self, delta_us: int) -> Statistics:
        """What the sites report of the next `delta_us`."""
        begin_us, self.now_us = self.now_us, self.now_us + delta_us
        expected = self.rate * self.weights * delta_us / 1e6
        rows = expected.round().astype(int) if self.seed is None else self._random.poisson(expected)
        windows = []
        hosted: list[list[int]] = [[] for _ in self.speeds]
        for partition, sites in enumerate(self.sites):
            for site in sites:
                hosted[site].append(partition)
        for site, speed in enumerate(self.speeds):
            mine = tuple(hosted[site])
            counts = tuple(rows[hosted[site]].tolist())
            busy_us = min(delta_us, round(sum(counts) * self.cost_us / speed))
            state = (self.state_bytes,) * len(mine)
            segment = SegmentWindow(SEGMENT, "count", mine, counts, state, busy_us, ())
            if site not in self.silent:
                windows.append(SiteWindow(site, begin_us, self.now_us, busy_us, segments=(segment,) if mine else ()))
        return Statistics.of(windows)

    def carry_out(self, moves: Sequence[Move]) -> int:
        """Apply the moves; microseconds that it took. Fails if one breaks the rules that no proposal may break."""
        count = 0
        for move in moves:
            for partition in move.partitions:
                sites = self.sites[partition]
                assert move.segment == SEGMENT and partition not in self.pinned
                assert move.source in sites and move.target not in sites and 0 <= move.target < len(self.speeds)
                self.sites[partition] = tuple(move.target if site == move.source else site for site in sites)
                count += 1
        taken_us = round(count * self.state_bytes / self.bytes_per_s * 1e6) + MOVE_US * len(moves)
        self.now_us += taken_us
        return taken_us

    def run(self, policy: Policy, parameters: Parameters, *, rounds: int = 10_000, until_us: int = 60_000_000) -> Memory:
        """Rounds of collecting, deciding and moving, until there were so many or that time is over."""
        memory = Memory()
        while len(self.rounds) < rounds and self.now_us < until_us:
            statistics = self.window(memory.delta_us or parameters.delta_min_us)
            proposal = policy(statistics, self.hosting(), parameters, memory)
            memory = proposal.memory.moved(self.carry_out(proposal.moves))
            self.rounds.append(Round(self.now_us, self.share, proposal))
        return memory

    def moved(self) -> list[tuple[int, int, int]]:
        """Partition, source and target of every move of one partition, in order."""
        return [(p, move.source, move.target) for each in self.rounds for move in each.proposal.moves for p in move.partitions]


def dealt(partitions: int, sites: int, replicas: int = 1) -> list[tuple[int, ...]]:
    """Contiguous blocks, further ranks on the next sites (chained)."""
    return [tuple((p * sites // partitions + rank) % sites for rank in range(replicas)) for p in range(partitions)]


def even(partitions: int) -> npt.NDArray[np.float64]:
    return np.ones(partitions)


def eighty_twenty(partitions: int) -> npt.NDArray[np.float64]:
    """A fifth of the partitions, the first ones, get four fifths of the rows."""
    hot = partitions // 5
    return np.array([4.0 * (partitions - hot) / hot if p < hot else 1.0 for p in range(partitions)])


def zipf(partitions: int, exponent: float = 1.0) -> npt.NDArray[np.float64]:
    return np.array([1.0 / rank**exponent for rank in range(1, partitions + 1)])
