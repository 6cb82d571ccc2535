"""`pair-overhead` on real executors: CPU seconds of all processes, the driver's and every JVM's among them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from evenflow.bench.killing import below, parents
from evenflow.bench.measuring import MASTER, cpu_of_process
from evenflow.errors import ClusterError
from evenflow.experiments.harness.on_spark import recording
from evenflow.experiments.harness.workload import SHOWN, monitor
from evenflow.experiments.papers.pair_overhead import APPS, KEYS, Load, Variant

ROWS: Final = 10_000_000
QUICK_ROWS: Final = 600_000
SHORT: Final = 10
"""What a run costs whatever its length is known from a run with so many times fewer rows."""
LONGEST_S: Final = 300.0


@contextmanager
def loads(*, quick: bool) -> Iterator[Callable[[Variant, int], Load]]:
    """What runs a variant once, on one cluster for all."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    rows = QUICK_ROWS if quick else ROWS
    spark = embedded_session(MASTER)
    try:
        yield lambda variant, number: load(spark, variant, rows)
    finally:
        stop_session(spark)


def load(spark: Any, variant: Variant, rows: int) -> Load:
    """A long run less a short one: parts that are built, and pages that are touched for the first time, are no cost of a row.

    A run before both warms the processes up.
    """
    from evenflow.world.spark.driver.engine import Engine

    with ExitStack() as engines:
        sets = [engines.enter_context(Engine(spark, variant.sites, replicas=variant.replicas)) for _ in range(variant.sets)]
        _, short, long = (run_once(sets, count) for count in (rows // SHORT, rows // SHORT, rows))
        return Load(long.rows - short.rows, long.seconds - short.seconds, long.cpu_s - short.cpu_s)


def run_once(sets: Sequence[Any], rows: int) -> Load:
    """All engines of a variant at the same time, each fed the same rows, from the start until the last has put out everything."""
    flows = [recording(monitor(keys=KEYS, apps=APPS, rows=rows, shown=SHOWN))[0] for _ in sets]
    began_s, cpu_s = time.monotonic(), cpu_of_all()
    runs = [engine.start(flow) for engine, flow in zip(sets, flows)]
    await_all(runs, began_s + LONGEST_S)
    # The sites are still there, so nothing of what they used is missing.
    return Load(rows, time.monotonic() - began_s, cpu_of_all() - cpu_s)


def await_all(runs: Sequence[Any], until_s: float) -> None:
    """Wait for their ends. Raises what a run raises, and ClusterError if they take too long."""
    for run in runs:
        if not run.await_termination(max(0.0, until_s - time.monotonic())):
            raise ClusterError(f"a run has not ended within {LONGEST_S:.0f} s: {run.numbers().rows_in} rows are in")


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it: the driver, its JVM, the executors' JVMs, and the sites."""
    return sum(cpu_of_process(process) for process in (os.getpid(), *below(os.getpid(), parents())))


NOTES: Final = (
    "CPU is that of all processes: the driver, its JVM, the executors' JVMs, and the sites: of a long run, less that of a short one.",
    "Two cores are shared by everything, so the rates say less than the CPU per row. The variants run in turn; ratios are of runs next to "
    "each other.",
    "Cluster pairs are two engines with half of the sites each, side by side on the same executors, fed the same rows.",
)
