"""One region of `evenflow bench wide-area`: a driver on a cluster of its own, in a process of its own.

    python -m evenflow.bench.region '{"master": "spark://...", ...}'

It says `placed` when its sites are there, is told when the group begins, says `running`, and ends with its input. What it puts out can be
computed without it, which is what the bench compares with.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

KEYS: Final = 50
SEED: Final = 18
PARTITIONS: Final = 2
READ_ROWS: Final = 1 << 16
SINK: Final = "out"
MEMORY: Final = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.executor.cores": "1"}

Row = tuple[int, int, int]
"""Epoch, key and the key's rows so far."""


@dataclass(frozen=True, slots=True)
class Region:
    """port: of its stream sink. group: its name. width_ms: of an epoch. rate: rows/s."""

    master: str
    port: int
    group: str
    width_ms: float
    rate: int

    def command(self) -> list[str]:
        return [sys.executable, "-m", "evenflow.bench.region", json.dumps(asdict(self))]

    def dataflow(self) -> Any:
        import evenflow as ef

        flow = ef.Dataflow("wide-area")
        rows = flow.source(self.source(), cut="content", width_ms=self.width_ms)
        rows.group_by("key").agg(n="count(*)").to(ef.sinks.stream(self.port), name=SINK)
        return flow

    def source(self) -> Any:
        import evenflow as ef

        return ef.sources.generator(rate=self.rate, keys=KEYS, seed=SEED, partitions=PARTITIONS)


def main(region: Region) -> None:
    import evenflow as ef
    from evenflow.errors import EvenflowError
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    try:
        spark = embedded_session(region.master, "evenflow-bench-wide-area", MEMORY, sites_only=True)
        try:
            with ef.Engine(spark, sites=1) as engine:
                print("placed", flush=True)
                begin_s = float(sys.stdin.readline())
                run = engine.start(region.dataflow(), group=ef.group(region.group, begin=begin_s, sites=1))
                print("running", flush=True)
                sys.stdin.read()
                run.stop()
        finally:
            stop_session(spark)
    except EvenflowError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


def expected(region: Region, begin_us: int, last: int) -> Counter[Row]:
    """What the group puts out in its epochs up to this one: of each epoch the keys in it, with their rows so far."""
    source, width_us = region.source().begun(begin_us), round(region.width_ms * 1000)
    until_us = begin_us + last * width_us
    epochs, keys = [], []
    for partition in range(PARTITIONS):
        reader = source.open(partition, PARTITIONS)
        while (batch := reader.read(until_us, READ_ROWS)) is not None and batch.num_rows:
            times = batch.column("ts").cast("int64").to_numpy()
            epochs.append(1 + (times - begin_us) // width_us)
            keys.append(batch.column("key").to_numpy())
    epoch, key = np.concatenate(epochs), np.concatenate(keys)
    found: Counter[Row] = Counter()
    for each in range(KEYS):
        when, count = np.unique(epoch[key == each], return_counts=True)
        for at, so_far in zip(when, np.cumsum(count)):
            if at <= last:
                found[int(at), each, int(so_far)] = 1
    return found


def compared(got: Counter[Row], wanted: Counter[Row]) -> dict[str, int]:
    return {"rows_compared": wanted.total(), "rows_lost": (wanted - got).total(), "rows_repeated": (got - wanted).total()}


def gap_ms(times_s: Sequence[float], from_s: float, to_s: float) -> float:
    """The longest time without an epoch that ended in it, or was still going on then."""
    ends = [*(at for at in times_s if at < to_s), to_s]
    return 1000 * max((later - earlier for earlier, later in pairwise(ends) if later > from_s), default=0.0)


if __name__ == "__main__":
    main(Region(**json.loads(sys.argv[1])))
