"""`stalls`: sites that hang for a moment, one after the other, and what is seen of it at the output (HW 5, inside one cluster).

Replicas mask deaths. They mask stalls only if nobody waits for the site that hangs: with a leader who cuts epochs, others wait for its
records, and for what it has processed. Where the source is cut by content nobody does, and the twin's copy of each epoch is taken.

Latency is counted from the time at which a row was due, whenever anybody read it, to the time at which the sink had it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import EMULATED, Deployment, World
from evenflow.experiments.harness.workload import SINK
from evenflow.experiments.result.chart import Bars, Chart
from evenflow.experiments.result.result import Bound, Figures, Measurement
from evenflow.query.builder import Dataflow
from evenflow.site.options import FlowOptions
from evenflow.stream.arrays import Floats

RATIO: Final = 1.2
"""p99.9 with stalls over that without, at most."""
CPU_OWN: Final = 2.1
"""CPU per row of two replicas over that of one, at most."""


class Stalling(World, Protocol):
    """A run whose sites can hang."""

    @property
    def now_us(self) -> int: ...

    def hang(self, site: int) -> None:
        """It does nothing for now."""

    def go_on(self, site: int) -> None:
        """It goes on."""


StartStalling = Callable[[Deployment], Stalling]


@dataclass(frozen=True, slots=True)
class SetUp:
    """width_ms: of an epoch, and the linger of a leader. every_ms, stall_ms: one site hangs so often, for so long. look_us: how exactly it
    is seen when a row comes out. rounds: medians are of so many, each with a seed of its own."""

    sites: int = 4
    rate: int = 4_000
    keys: int = 1_000_000
    partitions: int = 32
    width_ms: float = 5.0
    every_ms: float = 300.0
    stall_ms: float = 100.0
    warm_s: float = 0.5
    seconds: float = 4.0
    look_us: int = 250
    rounds: int = 5


FULL: Final = SetUp()
QUICK: Final = replace(FULL, seconds=2.0, rounds=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """latency_ms: float64 (n,), of the rows that came out. cpu_us: of all sites, per row that was due."""

    latency_ms: Floats
    cpu_us: float

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.latency_ms, share)) if self.latency_ms.size else float("nan")


KINDS: Final = {
    "content": ("content", 2, False),
    "content_stalls": ("content", 2, True),
    "content_one": ("content", 1, False),
    "leader": ("leader", 2, False),
    "leader_stalls": ("leader", 2, True),
}
"""What is run by turns: what decides the epochs, replicas, and whether sites hang."""


def said(cut: str, replicas: int, *, stalled: bool) -> str:
    return f"cut by {cut}, {replicas} replicas, {'sites hang' if stalled else 'nobody hangs'}"


def measure(setting: Setting, start: StartStalling) -> Measurement:
    """Cut by content and by a leader, with and without stalls, and content with one replica, by turns."""
    set_up = QUICK if setting.quick else FULL
    seen: dict[str, list[Seen]] = {name: [] for name in KINDS}
    for seed in range(set_up.rounds):
        for name, (cut, replicas, stalls) in KINDS.items():
            setting.say(f"round {seed + 1}: {said(cut, replicas, stalled=stalls)}")
            seen[name].append(run(set_up, start, cut, replicas, stalls=stalls, seed=seed))
    return Measurement(figures(seen), targets(), chart(seen), (EMULATED, NOTE))


def run(set_up: SetUp, start: StartStalling, cut: str, replicas: int, *, stalls: bool, seed: int) -> Seen:
    world = start(deployment(set_up, cut, replicas, seed))
    random = Random(f"stalls of round {seed}")
    first_us = world.now_us + round(set_up.warm_s * 1e6)
    due_us = [first_us + round(set_up.every_ms * 1e3 * n) for n in range(int(set_up.seconds * 1e3 / set_up.every_ms))]
    acts: list[tuple[int, Callable[[], None]]] = []
    for at_us in due_us if stalls else ():
        site = random.randrange(set_up.sites)
        acts += [(at_us, partial(world.hang, site)), (at_us + round(set_up.stall_ms * 1e3), partial(world.go_on, site))]
    acts.sort(key=lambda act: act[0])
    end_us, found, taken = first_us + round(set_up.seconds * 1e6), list[Floats](), 0
    cpu_before: int | None = None
    while world.now_us < end_us and not world.ended:
        while acts and acts[0][0] <= world.now_us:
            acts.pop(0)[1]()
        world.run_for(set_up.look_us / 1e6)
        if world.now_us < first_us:
            taken = len(world.released[SINK])
            continue
        cpu_before = world.cpu_us() if cpu_before is None else cpu_before
        new = world.released[SINK][taken:]
        taken += len(new)
        found += [(world.now_us - due(batch)) / 1e3 for _, batch in new if batch.num_rows]
    latency = np.concatenate(found) if found else np.zeros(0)
    return Seen(latency, (world.cpu_us() - (cpu_before or 0)) / (set_up.rate * set_up.seconds))


def due(batch: pa.RecordBatch) -> Floats:
    """float64 (n,): when the rows were due, microseconds."""
    return np.asarray(batch.column("at").cast(pa.int64()).to_numpy(zero_copy_only=False), np.float64)


def dataflow(set_up: SetUp, cut: str, sink: Any = None) -> Dataflow:
    """The newest row of each key, behind an exchange: there are so many keys that a row is hardly ever followed by another one soon."""
    import evenflow as ef

    flow = ef.Dataflow("stalls")
    source = ef.sources.generator(set_up.rate, set_up.keys, partitions=set_up.sites)
    how: dict[str, Any] = {"cut": "content", "width_ms": set_up.width_ms} if cut == "content" else {}
    newest = flow.source(source, **how).group_by("key").agg(at="max(ts)", n="count(*)")
    newest.to(ef.sinks.memory(SINK) if sink is None else sink, name=SINK)
    return flow


def deployment(set_up: SetUp, cut: str, replicas: int, seed: int) -> Deployment:
    return Deployment(
        dataflow(set_up, cut), set_up.sites, set_up.partitions, replicas=replicas, seed=seed,
        options=FlowOptions(linger_ms=set_up.width_ms, partitions=set_up.partitions),
    )  # fmt: skip


def figures(seen: dict[str, list[Seen]]) -> Figures:
    """Medians over the rounds."""

    def median(name: str, of: Callable[[Seen], float]) -> float:
        return float(np.median([of(each) for each in seen[name]]))

    def ratio(over: str, under: str, of: Callable[[Seen], float]) -> float:
        return float(np.median([of(a) / of(b) for a, b in zip(seen[over], seen[under], strict=True)]))

    def slowest(each: Seen) -> float:
        return each.percentile(99.9)

    return {
        "content_p50_ms": median("content_stalls", lambda each: each.percentile(50)),
        "content_p999_undisturbed_ms": median("content", slowest),
        "content_p999_ms": median("content_stalls", slowest),
        "content_p999_ratio": ratio("content_stalls", "content", slowest),
        "leader_p50_ms": median("leader_stalls", lambda each: each.percentile(50)),
        "leader_p999_undisturbed_ms": median("leader", slowest),
        "leader_p999_ms": median("leader_stalls", slowest),
        "leader_p999_ratio": ratio("leader_stalls", "leader", slowest),
        "cpu_ratio_own": ratio("content", "content_one", lambda each: each.cpu_us),
    }


def targets() -> dict[str, Bound]:
    return {"content_p999_ratio": Bound(at_most=RATIO), "cpu_ratio_own": Bound(at_most=CPU_OWN)}


def chart(seen: dict[str, list[Seen]]) -> Chart:
    shown: Sequence[tuple[str, str]] = (("by a leader", "leader"), ("by content", "content"))

    def of(suffix: str) -> tuple[float, ...]:
        return tuple(float(np.median([each.percentile(99.9) for each in seen[name + suffix]])) for _, name in shown)

    bars = Bars(
        "latency of a row, p99.9", "ms", tuple(label for label, _ in shown),
        (("nobody hangs", "ours", of("")), ("sites hang", "ours", of("_stalls"))),
    )  # fmt: skip
    return Chart("Sites that hang for 100 ms, one at a time", (bars,))


NOTE: Final = (
    "A row's latency is from when it was due to when the sink had it, so that who reads late is not seen as fast. The thesis has no figure "
    "of this: its replicas race over a wide area."
)
