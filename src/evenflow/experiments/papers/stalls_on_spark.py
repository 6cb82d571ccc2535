"""`stalls` on real executors: the process of a random site is stopped (SIGSTOP) for 100 ms at a time, and goes on.

What two cores do meanwhile is in every latency. So figures with stalls are judged beside those without, of the same session.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.papers import stalls
from evenflow.experiments.papers.stalls import Seen, SetUp
from evenflow.experiments.result.result import Measurement
from evenflow.stream.arrays import Floats

MASTER: Final = "local-cluster[4,2,1024]"
FULL: Final = SetUp(rate=1_000, width_ms=20.0, every_ms=500.0, warm_s=5.0, seconds=20.0, rounds=3)
QUICK: Final = replace(FULL, warm_s=2.0, seconds=4.0, rounds=1)
FIRST_S: Final = 60.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Taken:
    """What the sink got. latencies_ms: of its rows, by the driver's clock. begun: something has come. measured: what comes counts."""

    latencies_ms: list[Floats] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)
    measured: threading.Event = field(default_factory=threading.Event)

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.begun.set()
            if self.measured.is_set():
                self.latencies_ms.append((time.time_ns() // 1000 - stalls.due(batch)) / 1e3)


def measure(setting: Setting) -> Measurement:
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    set_up = QUICK if setting.quick else FULL
    seen: dict[str, list[Seen]] = {name: [] for name in stalls.KINDS}
    spark = embedded_session(MASTER)
    try:
        for turn in range(set_up.rounds):
            for name, (cut, replicas, stalled) in stalls.KINDS.items():
                setting.say(f"round {turn + 1}: {stalls.said(cut, replicas, stalled=stalled)}")
                seen[name].append(_run(spark, set_up, cut, replicas, stalled=stalled, seed=turn))
    finally:
        stop_session(spark)
    return Measurement(stalls.figures(seen), stalls.targets(), stalls.chart(seen), (NOTE,))


def _run(spark: Any, set_up: SetUp, cut: str, replicas: int, *, stalled: bool, seed: int) -> Seen:
    import evenflow as ef

    taken = Taken()
    with ef.Engine(spark, sites=set_up.sites, replicas=replicas, linger_ms=set_up.width_ms, partitions=set_up.partitions) as engine:
        run = engine.start(stalls.dataflow(set_up, cut, ef.sinks.callback(taken)))
        if not taken.begun.wait(FIRST_S):
            raise TimeoutError(f"nothing came out within {FIRST_S:g} s")
        pause = threading.Event()
        pause.wait(set_up.warm_s)
        pids = [site["pid"] for site in run.progress()["sites"]]
        cpu_before = sum(map(cpu_us, pids))
        taken.measured.set()
        with _hanging(pids, set_up, Random(f"stalls of round {seed}")) if stalled else _calm():
            pause.wait(set_up.seconds)
        taken.measured.clear()
        spent = sum(map(cpu_us, pids)) - cpu_before
        run.stop()
    latency = np.concatenate(taken.latencies_ms) if taken.latencies_ms else np.zeros(0)
    return Seen(latency, spent / (set_up.rate * set_up.seconds))


@contextmanager
def _calm() -> Iterator[None]:
    yield


@contextmanager
def _hanging(pids: list[int], set_up: SetUp, random: Random) -> Iterator[None]:
    """One of these processes at a time does nothing for a while."""
    over = threading.Event()

    def hang() -> None:
        while not over.wait((set_up.every_ms - set_up.stall_ms) / 1e3):
            pid = random.choice(pids)
            os.kill(pid, signal.SIGSTOP)
            try:
                over.wait(set_up.stall_ms / 1e3)
            finally:
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=hang, name="evenflow-stalls")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cpu_us(pid: int) -> int:
    """What a process has used of the processors so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // TICKS


NOTE: Final = (
    "A row's latency is from when it was due to when the driver's sink had it. The machine's two cores run all four sites, Spark and the "
    "driver."
)
