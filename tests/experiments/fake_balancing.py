"""A world with slow sites that puts out what a script says, and tells of moves at set times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.coordinator.events import Happened
from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.workload import SINK
from tests.experiments.fake_world import FakeWorld


def moved(partitions: int) -> Happened:
    return Happened("move_done", 0, "a move", {"partitions": list(range(partitions)), "source": 1})


@dataclass
class FakeBalancing(FakeWorld):
    """slow: factor by site, memory: bytes of state by site, as they are now. happened: as given; a round is not a move. latency_us: by
    policy and time since the first change, of each epoch."""

    memory: dict[int, int | None] = field(default_factory=dict)
    latency_us: Callable[[str, int | None], int] = lambda policy, since_us: 4_000
    slow: dict[int, float] = field(default_factory=dict)
    happened: list[tuple[int, Happened]] = field(default_factory=list)

    def run_for(self, seconds: float) -> None:
        """In one step: shares are all that counts."""
        self.now_us += round(seconds * 1e6)
        rows = self.rate_at(self.now_us, self.killed_us)
        if rows:
            self.released[SINK].append((len(self.released[SINK]) + 1, pa.record_batch({"row": pa.nulls(rows)})))
            since_us = None if self.killed_us is None else self.now_us - self.killed_us
            self.latencies_us.append(self.latency_us(self.deployment.policy, since_us))

    def limit_memory(self, site: int, state_bytes: int | None) -> None:
        self.memory[site] = state_bytes
        self.killed_us = self.now_us if self.killed_us is None else self.killed_us

    def slow_down(self, site: int, factor: float) -> None:
        self.slow[site] = factor
        self.killed_us = self.now_us if self.killed_us is None else self.killed_us


Rate = Callable[[Deployment, int, int | None], int]


def worlds(rate: Rate, moves: tuple[tuple[int, int], ...] = ()) -> tuple[list[FakeBalancing], Callable[[Deployment], FakeBalancing]]:
    """rate(deployment, now_us, us since the first site became slow or died, or None): rows per step. moves: (us, partitions)."""
    made: list[FakeBalancing] = []

    def start(deployment: Deployment) -> FakeBalancing:
        def now(now_us: int, since_us: int | None) -> int:
            return rate(deployment, now_us, None if since_us is None else now_us - since_us)

        told = [(at_us, moved(count)) for at_us, count in moves]
        made.append(FakeBalancing(deployment, now, happened=[(0, Happened("round", -1, "")), *told] if deployment.policy != "none" else []))
        return made[-1]

    return made, start
