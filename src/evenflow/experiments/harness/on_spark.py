"""A deployment on real executors, watched like one in the simulator: time that passes is real.

Everything runs on a cluster of this command's own; to kill a site is to kill its executor with all of its processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa

from evenflow.bench import killing
from evenflow.coordinator.events import Happened
from evenflow.errors import ClusterError
from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.slow import Slowness
from evenflow.query.builder import Dataflow
from evenflow.query.network import Network

if TYPE_CHECKING:
    from evenflow.world.spark.driver.engine import Engine

ASK_S: Final = 0.05
"""How often the run is asked for its redundancy."""
SAMPLE_S: Final = 1.0
"""How often it is asked for its latency, which is that of its last ten seconds."""
FIRST_OUTPUT_S: Final = 120.0
NO_NEW_SITE_S: Final = 3600.0


@dataclass(slots=True)
class Recorded:
    """What a sink was given. Called in the sink's thread; a list may be read meanwhile."""

    batches: list[tuple[int, pa.RecordBatch]] = field(default_factory=list)

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.batches.append((epoch, batch))


def recording(flow: Dataflow) -> tuple[Dataflow, dict[str, Recorded]]:
    """The same dataflow with its sinks replaced by records of what they are given, by name."""
    import evenflow as ef

    records: dict[str, Recorded] = {}
    boxes = []
    for box in flow.network:
        if box.kind == "sink":
            records[box.name] = Recorded()
            box = replace(box, params={**box.params, "sink": ef.sinks.callback(records[box.name])})
        boxes.append(box)
    return Dataflow.from_network(Network(flow.name, tuple(boxes))), records


class SparkWorld:
    """A run on Spark as `evenflow.experiments.harness.simulated.World` has it. Latencies and copied bytes are not known here."""

    def __init__(self, engine: Engine, deployment: Deployment) -> None:
        flow, self._records = recording(deployment.flow)
        self.run = engine.start(flow)
        self._now_s = self._began_s = time.monotonic()
        self._asked_s, self._redundancy = 0.0, deployment.replicas
        self._summed_s, self._copied_bytes = 0.0, 0

    @property
    def ended(self) -> bool:
        return not self.run.is_active

    @property
    def released(self) -> Mapping[str, Sequence[tuple[int, pa.RecordBatch]]]:
        return {name: record.batches for name, record in self._records.items()}

    @property
    def latencies_us(self) -> Sequence[int]:
        return ()

    @property
    def copied_bytes(self) -> int:
        return 0

    def begin(self) -> None:
        """Wait for the first output. From then on time is counted. Raises ClusterError if there is none for long."""
        deadline = time.monotonic() + FIRST_OUTPUT_S
        while not any(record.batches for record in self._records.values()):
            if time.monotonic() > deadline:
                raise ClusterError(f"no output within {FIRST_OUTPUT_S:.0f} s")
            self.run_for(0.1)
        self.restart_clock()

    def restart_clock(self) -> None:
        """Time is counted from now on."""
        self._now_s = time.monotonic()

    def run_for(self, seconds: float) -> None:
        """Steps do not add up their delays: each ends so long after the end that the one before should have had.

        Raises what the run raises, and ClusterError if it ends without a reason.
        """
        self._now_s += seconds
        time.sleep(max(0.0, self._now_s - time.monotonic()))
        if not self.run.is_active:
            self.run.await_termination(0.0)
            raise ClusterError("the run has ended before its time")

    def kill(self, site: int) -> None:
        known = next(each for each in self.run.numbers().sites if each.site == site)
        killing.kill(killing.victim_of(site, known.pid).processes("machine"))

    def redundancy(self) -> int:
        now_s = time.monotonic()
        if now_s - self._asked_s >= ASK_S:
            self._asked_s, self._redundancy = now_s, self.run.numbers().redundancy
        return self._redundancy

    def cpu_us(self) -> int:
        return 0


class BalancingWorld(SparkWorld):
    """One whose operator has a cost that can be changed. slowness: of the executors that it runs in, none of which is slow at first."""

    def __init__(self, engine: Engine, deployment: Deployment, slowness: Slowness) -> None:
        super().__init__(engine, deployment)
        self._slowness = slowness
        self._executors = {site.site: site.executor for site in self.run.numbers().sites}
        for executor in self._executors.values():
            slowness.set(executor, 1.0)
        self._sampled_s, self._latencies_us = 0.0, list[int]()
        self.run._driven.machine.recovery.spread = deployment.spread

    @property
    def now_us(self) -> int:
        """Since the run began, as its events have it."""
        return round((time.monotonic() - self._began_s) * 1e6)

    @property
    def happened(self) -> Sequence[tuple[int, Happened]]:
        return [(round(event["at_s"] * 1e6), Happened(event["kind"], event["site"], event["text"], event)) for event in self.run.events()]

    @property
    def copied_bytes(self) -> int:
        """Of the moves that are over."""
        now_s = time.monotonic()
        if now_s - self._summed_s >= ASK_S:
            self._summed_s = now_s
            self._copied_bytes = sum(told.details["bytes"] for _, told in self.happened if told.kind == "move_done")
        return self._copied_bytes

    @property
    def latencies_us(self) -> Sequence[int]:
        """Medians over the ten seconds before, one each second: what an epoch took is not known here."""
        now_s = time.monotonic()
        if now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            median_ms = self.run.numbers().p50_ms
            if median_ms is not None:
                self._latencies_us.append(round(median_ms * 1000))
        return self._latencies_us

    def slow_down(self, site: int, factor: float) -> None:
        self._slowness.set(self._executors[site], factor)

    def limit_memory(self, site: int, state_bytes: int | None) -> None:
        self.run.set_state_memory(None if state_bytes is None else state_bytes / 2**20, [site])


Made = TypeVar("Made", bound=SparkWorld)


class Sessions(Generic[Made]):
    """Starts deployments one after the other, each on a new cluster with an executor for each site. A context manager.

    world: what a started engine and a deployment become. replaced: Spark may put a new site where one was lost. If not, another job takes
    the slot first, and the engine waits `patience_s` for a site that does not come. kept: nobody dies, so that the next deployment has a
    new engine on the same cluster if it is of the same size.
    """

    def __init__(self, world: Callable[[Engine, Deployment], Made], *, replaced: bool, patience_s: float, kept: bool = False) -> None:
        self._world, self._replaced, self._patience_s, self._kept = world, replaced, patience_s, kept
        self._executors = 0
        self._spark: Any = None
        self._engine: Engine | None = None

    def __enter__(self) -> Sessions[Made]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __call__(self, deployment: Deployment) -> Made:
        from evenflow.world.spark.cluster.session import embedded_session
        from evenflow.world.spark.driver.engine import Engine

        executors, options = deployment.sites + deployment.spares, deployment.options
        if self._kept and executors == self._executors:
            self._stop_engine()
        else:
            self.close()
            # Without replacement an executor has one slot only, the site's: one that is started anew has none to spare.
            self._spark = embedded_session(f"local-cluster[{executors},{2 if self._replaced else 1},1024]")
            self._executors = executors
        self._engine = Engine(
            self._spark,
            deployment.sites,
            deployment.spares,
            deployment.replicas,
            deployment.placement,
            partitions=deployment.partitions,
            epoch_rows=options.epoch_rows,
            pipeline=options.pipeline,
            patience_s=self._patience_s,
            balance=deployment.policy,
            balance_parameters=deployment.parameters,
            state_memory_mb=None if options.state_memory_bytes is None else options.state_memory_bytes / 2**20,
        )
        self._engine.__enter__()
        if not self._replaced:
            occupy_next_slot(self._spark)
        world = self._world(self._engine, deployment)
        world.begin()
        return world

    def close(self) -> None:
        from evenflow.world.spark.cluster.session import stop_session

        spark, self._spark, self._executors = self._spark, None, 0
        try:
            self._stop_engine()
        finally:
            if spark is not None:
                stop_session(spark)

    def _stop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        joined = [event for run in engine.runs for event in run.events() if event["kind"] == "site_joined"]
        engine.stop()
        if joined and not self._replaced:
            raise ClusterError(f"there should have been no new site, but {joined[0]['text']}: the figures mean nothing")


def occupy_next_slot(spark: Any) -> None:
    """A job that waits for a task slot and then keeps it: the first one that becomes free is not the engine's."""

    def wait() -> None:
        try:
            # A function of Python's own: executors need nothing of this package for it.
            spark.sparkContext.parallelize([NO_NEW_SITE_S], 1).foreach(time.sleep)
        except Exception:  # It ends with the session, whatever way that ends it.
            return

    threading.Thread(target=wait, name="evenflow-occupant", daemon=True).start()
