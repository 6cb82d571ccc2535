"""`evenflow.Engine`: dataflows on the executors of a Spark session."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from evenflow.errors import ClusterError
from evenflow.query.planner import first_plan, layout
from evenflow.site.options import FlowOptions
from evenflow.world.binding import bind_run
from evenflow.world.spark.coordinator import Coordinator
from evenflow.world.spark.driving import DrivenRun
from evenflow.world.spark.handshake import new_secret
from evenflow.world.spark.ingest import Ingest
from evenflow.world.spark.placement import Placement, check_session, check_slots
from evenflow.world.spark.program import pack
from evenflow.world.spark.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.query.builder import Dataflow

log = logging.getLogger("evenflow")
DEFAULT: Final = FlowOptions()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of an engine and of the dataflows that it runs.

    linger_ms .. partitions: see `evenflow.site.options.FlowOptions`; none of them changes results. site_memory_mb: waiting frames that a
    site may hold for a dataflow before it grants room to the oldest epoch only. lease_s: a site that has not heard of the driver for
    this long ends. place_timeout_s: how long to wait for executors and sites. writers: parallel writers of sinks inside sites, None: one
    per site.
    """

    linger_ms: float = DEFAULT.linger_ms
    pipeline: int = DEFAULT.pipeline
    window_epochs: int = DEFAULT.window_epochs
    epoch_rows: int = DEFAULT.epoch_rows
    heartbeat_ms: float = DEFAULT.heartbeat_ms
    ack_ms: float = DEFAULT.ack_ms
    partitions: int = DEFAULT.partitions
    site_memory_mb: int = DEFAULT.memory_bytes >> 20
    lease_s: float = 10.0
    place_timeout_s: float = 60.0
    writers: int | None = None

    def flow_options(self) -> FlowOptions:
        shared = {f.name for f in dataclasses.fields(FlowOptions)} - {"memory_bytes"}
        return FlowOptions(**{name: getattr(self, name) for name in shared}, memory_bytes=self.site_memory_mb << 20)


def wait_ms(milliseconds: int) -> None:
    """Sleep, at a site, beside its event loop."""
    time.sleep(milliseconds / 1000)


class Engine:
    """Sites on the executors of `spark`, and the dataflows that run on them. A context manager; leaving it ends everything.

    spark: a classic session (not Spark Connect), on any master with at least `sites` executors; `local[*]` can have one site. options:
    the fields of EngineOptions. Each site takes one task slot as long as the engine lives; sources from Spark need one more somewhere.
    Raises ClusterError.
    """

    def __init__(self, spark: SparkSession, sites: int = 4, **options: Any) -> None:
        known = {f.name for f in dataclasses.fields(EngineOptions)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise TypeError(f"Engine has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
        self.options = EngineOptions(**options)
        self._flow_options = self.options.flow_options()
        check_session(spark, sites)
        self.spark, self.sites = spark, sites
        self._lock = threading.RLock()
        self._coordinator: Coordinator | None = None
        self._placement: Placement | None = None
        self._ingests: list[Ingest] = []
        self._runs: list[Run] = []
        self._stopped = False

    def __enter__(self) -> Engine:
        try:
            self._ensure_sites()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self, flow: Dataflow) -> Run:
        """Start a dataflow on all sites and return at once; several may run side by side. What fails later, the run's methods raise.

        Raises QueryError if the dataflow is not complete, SinkError if a sink's directory cannot be written, ClusterError if the sites
        cannot be placed or a task slot is missing.
        """
        options = self._flow_options
        planned = layout(flow.network, sites=self.sites, partitions=options.partitions, writers=self.options.writers)
        plan = first_plan(planned, self.sites)
        pushed = [name for name, source in planned.sources.items() if source.pushed]
        run_id = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', flow.name)}-{uuid.uuid4().hex[:12]}"
        for sink in planned.sinks.values():
            if sink.where == "site":
                sink.open(run_id).close()  # A directory that cannot be written is an error here, before a row is read.
        program = pack(bind_run(planned, run_id, wait_ms), plan, options)
        with self._lock:
            coordinator = self._ensure_sites()
            if pushed:
                # A Spark query that reads results must not wait for tasks that wait for room which only it can make.
                needed = 2 if any(sink.where == "spark" for sink in planned.sinks.values()) else 1
                check_slots(self.spark.sparkContext, self.sites, f"box {pushed[0]!r}, whose rows Spark pushes,", needed)
            number = len(self._runs) + 1
            driven = DrivenRun(number, run_id, planned, plan, options, coordinator)
            run = Run(driven, coordinator)
            for name in pushed:
                ingest = Ingest(self.spark, coordinator, driven, name)
                self._ingests.append(ingest)
                driven.on_started.append(ingest.begin)
                driven.on_over.append(ingest.end)
            self._runs.append(run)
            coordinator.add_run(driven, program)
        return run

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs of this engine, those that are over included."""
        return tuple(self._runs)

    def stop(self) -> None:
        """Stop every run and every site. Returns when no task of the engine is left, at most after some 15 s. May be called again."""
        try:
            self._stop()
        except KeyboardInterrupt:
            # A second Ctrl-C may hurry the user's program, not leave half of the sites behind.
            self._stop()
            raise

    def _stop(self) -> None:
        self._stopped = True
        for run in self._runs:
            if run.is_active:
                run.stop(timeout_s=5.0)
        for ingest in self._ingests:
            ingest.join(5.0)
        if self._placement is not None:
            self._placement.stop()
        if self._coordinator is not None:
            self._coordinator.close()
        self._placement = self._coordinator = None

    def _ensure_sites(self) -> Coordinator:
        """Place the sites that are missing: all at first, later those that were lost."""
        with self._lock:
            if self._stopped:
                raise ClusterError("the engine has been stopped: make a new one")
            if self._coordinator is None or self._placement is None:
                context = self.spark.sparkContext
                conf = context.getConf()
                host = conf.get("spark.driver.host", "127.0.0.1")
                bind = conf.get("spark.driver.bindAddress", "")
                secret = new_secret()
                self._coordinator = Coordinator(uuid.uuid4().hex[:12], self.sites, secret, bind)
                options = self.options
                self._placement = Placement(self.spark, self._coordinator, host, secret, options.lease_s, options.place_timeout_s)
            if not self._coordinator.ready:
                self._placement.ensure()
            return self._coordinator
