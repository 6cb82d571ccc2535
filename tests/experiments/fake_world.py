"""A world that puts out what a script says: the measuring functions are held against outputs whose figures are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.workload import SINK

STEP_US = 1_000


@dataclass
class FakeWorld:
    """rate_at(us, killed_us): rows per millisecond. After a kill, redundancy is back `copy_us` later, when `copied` bytes have moved."""

    deployment: Deployment
    rate_at: Callable[[int, int | None], int]
    ends_at_us: int = 10**12
    copy_us: int = 1_000_000
    copied: int = 8_500_000
    now_us: int = 0
    killed_us: int | None = None
    killed: list[int] = field(default_factory=list)
    released: dict[str, list[tuple[int, pa.RecordBatch]]] = field(default_factory=lambda: {SINK: []})
    latencies_us: list[int] = field(default_factory=list)
    ended: bool = False

    def run_for(self, seconds: float) -> None:
        for _ in range(round(seconds * 1e6 / STEP_US)):
            self.now_us += STEP_US
            if self.now_us > self.ends_at_us:
                self.ended = True
                return
            rows = self.rate_at(self.now_us, self.killed_us)
            if rows:
                epoch = self.now_us // STEP_US
                self.released[SINK].append((epoch, pa.record_batch({"row": pa.array(range(epoch * 100, epoch * 100 + rows), pa.int64())})))
                self.latencies_us.append(4_000)

    def kill(self, site: int) -> None:
        self.killed.append(site)
        self.killed_us = self.now_us

    def redundancy(self) -> int:
        whole = self.killed_us is None or self.now_us >= self.killed_us + self.copy_us
        return self.deployment.replicas if whole else self.deployment.replicas - 1

    @property
    def copied_bytes(self) -> int:
        return self.copied if self.killed_us is not None and self.redundancy() == self.deployment.replicas else 0

    def cpu_us(self) -> int:
        return self.now_us * self.deployment.sites
