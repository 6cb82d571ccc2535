"""Regions of a group as processes, which can be killed, and what their subscriber must be given.

A region is `python -m evenflow.bench.regional SETTING`: a driver with a cluster of its own, Spark's or bare site processes. It says
`running` when it has begun; when its standard input ends it stops. Keyed totals of a generator go through its port; what must come out is
computed plainly, from the rows and the epochs that they say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenflow.bench import killing
from evenflow.errors import ClusterError, EvenflowError
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.sources.cut import EPOCH_COLUMN, cut_by_content
from evenflow.sources.generator import GeneratorSource

if TYPE_CHECKING:
    from evenflow.world.spark.driver.engine import Engine

KEYS: Final = 64
SOURCE_PARTITIONS: Final = 2
READ_ROWS: Final = 1 << 20
FAR_US: Final = 2**61
Totals = dict[tuple[int, int], tuple[int, int]]
"""(epoch, key) -> (rows, sum) so far, of the keys that have rows in the epoch."""


@dataclass(frozen=True, slots=True)
class Region:
    """port: of its stream sink. group: its name. begin_s: since 1970. rate: rows/s. rows: in all, None: endless. sites: that it has; the
    layout is made for `shape` of them. bare: on site processes of its own, without Spark. place: in the group's
    list. database, folder, servers: of the table, the files and the topic that all regions write to; None: none."""

    port: int
    group: str
    begin_s: float
    rate: int
    rows: int | None
    sites: int = 2
    shape: int = 2
    width_ms: float = 50.0
    bare: bool = False
    place: int = 0
    database: str | None = None
    folder: str | None = None
    servers: str | None = None

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "evenflow.bench.regional", json.dumps(asdict(self))]

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def source(self) -> Any:
        return GeneratorSource(rate=self.rate, rows=self.rows, keys=KEYS, count=SOURCE_PARTITIONS)

    def dataflow(self) -> Any:
        import evenflow as ef

        flow = ef.Dataflow("regions")
        made = flow.source(self.source(), name="made", cut="content", width_ms=self.width_ms)
        totals = made.group_by("key").agg(n="count(*)", s="sum(value)")
        totals.to(ef.sinks.stream(self.port), name="totals")
        for name, sink in self.shared():
            totals.to(sink, name=name)
        return flow

    def shared(self) -> Iterator[tuple[str, Any]]:
        """Sinks that all regions write to, by name."""
        import evenflow as ef

        if self.database is not None:
            yield "table", ef.sinks.table(self.database, "totals")
        if self.folder is not None:
            yield "parquet", ef.sinks.shared_parquet(self.folder)
        if self.servers is not None:
            yield "kafka", ef.sinks.kafka(self.servers, "totals")

    def expected(self) -> Totals:
        """Every row that must come, by plain addition."""
        source = cut_by_content(self.source(), width_ms=self.width_ms).begun(int(self.begin_s * 1e6))
        parts = []
        for partition in range(SOURCE_PARTITIONS):
            reader = source.open(partition, SOURCE_PARTITIONS)
            while not reader.ended:
                batch = reader.read(FAR_US, READ_ROWS)
                if batch is not None:
                    parts.append(np.array([batch.column(name).to_numpy() for name in (EPOCH_COLUMN, "key", "value")]))
        epochs, keys, values = np.concatenate(parts, axis=1)
        totals, found = dict[int, tuple[int, int]](), Totals()
        for at in np.argsort(epochs, kind="stable").tolist():
            epoch, key = int(epochs[at]), int(keys[at])
            count, total = totals.get(key, (0, 0))
            totals[key] = found[epoch, key] = count + 1, total + int(values[at])
        return found


def compare(expected: Totals, got: Sequence[tuple[int, Mapping[str, Any]]], through: int) -> dict[str, int]:
    """What came against what must, up to an epoch. Each (epoch, key) counts."""
    wanted = {at: totals for at, totals in expected.items() if at[0] <= through}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    repeated = wrong = 0
    for epoch, row in got:
        at, totals = (epoch, row["key"]), (row["n"], row["s"])
        repeated += at in seen
        seen[at] = totals
        wrong += wanted.get(at) != totals
    return {"rows": len(wanted), "lost": len(wanted.keys() - seen.keys()), "repeated": repeated, "wrong": wrong}


class Started:
    """A region's processes."""

    def __init__(self, region: Region, secret: str, log: Path) -> None:
        self.region = region
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                region.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, text=True,
                env=os.environ | {SECRET_VARIABLE: secret, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        self.log = log

    def await_running(self) -> None:
        """Raises ClusterError, with the end of what it has logged."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != "running":
            raise ClusterError(f"a region could not be started: {said or 'it has ended'}\n{self._tail()}")

    def check(self) -> None:
        """Raises ClusterError if it has ended by itself, with what it has said of it."""
        if self._process.poll() is not None:
            said = "" if self._process.stdout is None else self._process.stdout.read().strip()
            raise ClusterError(f"a region has ended: {said}\n{self._tail()}")

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def kill(self) -> float:
        """kill -9 of the driver and of everything below it. Returns when, monotonic seconds."""
        victims = [self._process.pid, *killing.below(self._process.pid, killing.parents())]
        at_s = killing.kill(victims)
        killing.gone(victims, 30.0)
        self._process.wait(30.0)
        return at_s

    def end(self) -> None:
        """Stop it as it should, or kill it."""
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(40.0)
        except subprocess.TimeoutExpired:
            self.kill()


def main(region: Region) -> None:
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        if region.bare:
            from evenflow.bench.bare import BareEngine

            with BareEngine(sites=region.sites) as engine:
                run_on(engine, region, over)
            return
        from evenflow.world.spark.cluster.session import embedded_session, stop_session
        from evenflow.world.spark.driver.engine import Engine

        spark = embedded_session(f"local-cluster[{region.sites},1,1024]", "evenflow-region", sites_only=True)
        try:
            with Engine(spark, sites=region.sites) as engine:
                run_on(engine, region, over)
        finally:
            stop_session(spark)
    except EvenflowError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


def run_on(engine: Engine, region: Region, over: threading.Event) -> None:
    """Until it is told to end; its port stays open for those who have not read all."""
    import evenflow as ef

    run = engine.start(region.dataflow(), group=ef.group(region.group, region.begin_s, region.shape, region.place))
    print("running", flush=True)
    while not over.wait(0.1):
        if run.await_termination(0.05):
            over.wait()
    if run.is_active:
        run.stop()


def new_log_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="evenflow-regions-")


if __name__ == "__main__":
    main(Region(**json.loads(sys.argv[1])))
