"""`evenflow bench moves`: partitions with some 10 MB of state change their sites one after the other while rows keep coming.

Every partition puts something out in nearly every epoch, so a gap in its output is what a reader of that partition sees of a move. An
epoch is released as a whole: what holds one partition back for long holds back all. With `--unordered` a second sink gets the same rows
first come, first served, so that the same moves are measured both ways.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from evenflow.bench.events import ScheduledEvents
from evenflow.bench.measuring import MASTER, SITES, machine
from evenflow.bench.monitored import Output
from evenflow.bench.stalls import AFTER_US, Moved, Outputs, judged
from evenflow.errors import ClusterError
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.query.builder import Dataflow

if TYPE_CHECKING:
    from evenflow.world.spark.driver.run import Run

BOX: Final = "totals"
FILLED_WITHIN_S: Final = 120.0
YOUNG_S: Final = 0.3
"""The state is there when no more than so many seconds of rows wait."""
MOVED_WITHIN_S: Final = 30.0
ASK_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class Moving:
    """keys: of one partition, each with 64 bytes of state. rate: rows/s of all. calm_s: before the first move. pause_s: between two.
    unordered: the same rows go first come, first served to a second sink, too."""

    moves: int = 24
    partitions: int = 8
    keys: int = 160_000
    rate: int = 8_000
    calm_s: float = 10.0
    pause_s: float = 1.0
    unordered: bool = False


QUICK: Final = Moving(moves=3, partitions=8, keys=20_000, rate=5_000, calm_s=2.0, pause_s=0.3)


def dataflow(source: ScheduledEvents, answers: Output, first_come: Output | None = None) -> Dataflow:
    import evenflow as ef

    flow = ef.Dataflow("moves")
    totals = flow.source(source, name="events").group_by("key").agg(n="count(*)", total="sum(value)", combine=False).name(BOX)
    totals.to(ef.sinks.callback(answers), name="answers")
    if first_come is not None:
        totals.to(ef.sinks.callback(first_come), unordered=True, name="first come")
    return flow


def run(*, setting: Moving, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure. Returns the object that --json prints. Raises ClusterError if the machine is too slow for the rate."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    keys, answers, first_come = setting.keys * setting.partitions, Output(), Output() if setting.unordered else None
    spark = embedded_session(MASTER)
    try:
        with Engine(spark, sites=SITES, partitions=setting.partitions, balance="none") as engine:
            source = ScheduledEvents(setting.rate, 2**50, keys, count=SITES, begin_us=time.time_ns() // 1000, at_once=keys)
            run = engine.start(dataflow(source, answers, first_come))
            try:
                say(f"{keys:,} keys are filled in")
                fill(run, source)
                calm_us = time.time_ns() // 1000
                run.await_termination(setting.calm_s)
                moves = [move(run, number, setting, say) for number in range(setting.moves)]
                run.await_termination(2 * AFTER_US / 1e6)
            finally:
                run.stop()
    finally:
        stop_session(spark)
    calm = calm_us, moves[0].asked_us
    report = judged(outputs_of(answers, setting.partitions), setting.partitions, calm, moves)
    told = None if first_come is None else judged(outputs_of(first_come, setting.partitions), setting.partitions, calm, moves)
    return {
        "benchmark": "moves",
        "quick": quick,
        **report,
        "unordered": told,
        "setting": dataclasses.asdict(setting),
        "machine": machine(),
        "master": MASTER,
    }


def fill(run: Run, source: ScheduledEvents) -> None:
    """Wait until every key is there and no rows are waiting. Raises ClusterError if that takes too long."""
    deadline = time.monotonic() + FILLED_WITHIN_S
    while source.due(time.time_ns() // 1000) - run.numbers().rows_in > YOUNG_S * source.rate:
        if time.monotonic() > deadline:
            raise ClusterError(f"rows still wait after {FILLED_WITHIN_S:.0f} s: this machine is too slow for {source.rate:,} rows/s")
        run.await_termination(0.25)


def move(run: Run, number: int, setting: Moving, say: Callable[[str], None]) -> Moved:
    """Bring a partition to another site, wait until it is there, and a little longer. Raises ClusterError if it does not get there."""
    partition, begun = number % setting.partitions, len(run.moves())
    asked_us = time.time_ns() // 1000
    target = next(site for at in range(SITES) if run.pin(BOX, sites=[site := (number + at) % SITES], partitions=[partition]))
    deadline = time.monotonic() + MOVED_WITHIN_S
    while not (told := run.moves()[begun:]) or told[0]["state"] != "done":
        if time.monotonic() > deadline or (told and told[0]["state"] == "dropped"):
            raise ClusterError(f"partition {partition} has not come to site {target} within {MOVED_WITHIN_S:.0f} s")
        run.await_termination(ASK_S)
    over_us = time.time_ns() // 1000
    found = told[0]
    say(f"partition {partition}: {found['bytes']:,} bytes from site {found['source']} to site {found['target']}")
    run.await_termination(setting.pause_s)
    return Moved(partition, found["source"], found["target"], asked_us, over_us, found["bytes"])


def outputs_of(answers: Output, partitions: int) -> Outputs:
    table, clocks = answers.rows()
    if table is None:
        raise ClusterError("nothing came out")
    keys = pa.RecordBatch.from_arrays([table.column("key").combine_chunks()], names=["key"])
    owners = partition_of(hash_columns(keys, ["key"]), table_of_ranges(partitions))
    return Outputs(clocks, np.asarray(owners), partitions)
