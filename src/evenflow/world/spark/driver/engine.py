"""`evenflow.Engine`: dataflows on the executors of a Spark session."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from evenflow.coordinator.recovery import PATIENCE_MS
from evenflow.errors import ClusterError, OptionError
from evenflow.kernels import prepare
from evenflow.plan.placement import Scheme, first_membership, first_plan, on_hosts
from evenflow.plan.plan import Plan
from evenflow.policy.catalogue import described
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.sinks.sink import MOST_WRITERS
from evenflow.site.options import FlowOptions
from evenflow.stream.declared import Declared, May, a, number, optional, whole
from evenflow.world.binding import bind_run
from evenflow.world.spark.bridge.ingest import Ingest
from evenflow.world.spark.cluster.interrupts import heeded
from evenflow.world.spark.cluster.leftovers import clear
from evenflow.world.spark.cluster.placement import Placement, check_replicas, check_session, check_slots
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.coordinator import Coordinator
from evenflow.world.spark.driver.driving import DrivenRun
from evenflow.world.spark.driver.operations import DRAIN_S, Departure, Operations, Say
from evenflow.world.spark.driver.program import pack
from evenflow.world.spark.driver.refreshing import read
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.net.handshake import new_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.query.builder import Dataflow

log = logging.getLogger("evenflow")
DEFAULT: Final = FlowOptions()


@dataclass(frozen=True, slots=True)
class EngineOptions(Declared):
    """Options of an engine and of the dataflows that it runs.

    linger_ms .. partitions: see `evenflow.site.options.FlowOptions`; none of them changes results. site_memory_mb: waiting frames that a
    site may hold for a dataflow before it grants room to the oldest epoch only. state_memory_mb: state that a site may hold in memory for a
    dataflow; what is more goes to its disk by whole partitions, which take turns; None: all of it stays. lease_s: a site that has not heard
    of the driver for this long ends. place_timeout_s: how long to wait for executors and sites. patience_s: how long a lost site's
    partitions wait for a new site before they are copied onto the remaining ones. user_timeout_s: user code that runs for longer on one
    epoch ends the run, None: never. bind: the address at which sites listen, None: the one from which they reach the driver. writers:
    parallel writers of sinks inside sites, None: one per site. balance: the policy by which load is moved between sites while the query
    runs (see `evenflow.policy`), or "none". balance_parameters: its thresholds and bounds, None: its own.
    """

    linger_ms: float = DEFAULT.linger_ms
    pipeline: int = DEFAULT.pipeline
    window_epochs: int = DEFAULT.window_epochs
    epoch_rows: int = DEFAULT.epoch_rows
    heartbeat_ms: float = DEFAULT.heartbeat_ms
    ack_ms: float = DEFAULT.ack_ms
    partitions: int = DEFAULT.partitions
    max_partitions: int | None = DEFAULT.max_partitions
    site_memory_mb: int = DEFAULT.memory_bytes >> 20
    state_memory_mb: float | None = None
    spill_gap_ms: float = DEFAULT.spill_gap_ms
    lease_s: float = 10.0
    place_timeout_s: float = 60.0
    patience_s: float = PATIENCE_MS / 1000
    user_timeout_s: float | None = DEFAULT.user_timeout_s
    writers: int | None = None
    bind: str | None = None
    balance: str = "none"
    balance_parameters: Parameters | None = None

    option_owner: ClassVar[str] = "option"
    MAY: ClassVar[Mapping[str, May]] = {
        "spill_gap_ms": number(0, 1e9), "patience_s": number(0, 1e6), "user_timeout_s": optional(number()),
        "writers": optional(whole(1, MOST_WRITERS)),
        "balance_parameters": optional(a("a Parameters of evenflow.policy.proposal", lambda given: isinstance(given, Parameters))),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super(EngineOptions, self).__post_init__()
        described(self.balance)
        self.flow_options()

    def flow_options(self) -> FlowOptions:
        inner = {"memory_bytes", "state_memory_bytes", "spill_group_bytes", "piece_bytes"}
        shared = {f.name for f in dataclasses.fields(FlowOptions)} - inner
        state = None if self.state_memory_mb is None else int(self.state_memory_mb * 2**20)
        given = {name: getattr(self, name) for name in shared}
        return FlowOptions(**given, memory_bytes=self.site_memory_mb << 20, state_memory_bytes=state)


def wait_ms(milliseconds: int) -> None:
    """Sleep, at a site, beside its event loop."""
    time.sleep(milliseconds / 1000)


def on_sites(plan: Plan, sites: Sequence[int]) -> Plan:
    """A plan that was made for sites 0, 1, ... on those that there are: indices have gaps once a site was lost."""
    return dataclasses.replace(
        plan, placement=tuple(tuple(tuple(sites[s] for s in replicas) for replicas in segment) for segment in plan.placement)
    )


class Engine:
    """Sites on the executors of `spark`, and the dataflows that run on them. A context manager; leaving it ends everything.

    spark: a classic session (not Spark Connect), on any master with at least `sites + spares` executors; `local[*]` can have one site.
    spares: sites that host nothing until another one is lost. replicas: of every partition, never two on one site; with more than one a
    lost site goes unnoticed. placement: "mirrored" (the replicas of one rank share their sites) or "chained". options: the fields of
    EngineOptions. Each site takes one task slot as long as the engine lives; sources from Spark need one more somewhere. A site that is
    lost gets a successor as soon as some executor has room. Raises ClusterError, and TypeError for what is no number or no option.
    """

    def __init__(
        self, spark: SparkSession, sites: int = 4, spares: int = 0, replicas: int = 1, placement: Scheme = "mirrored", **options: Any
    ) -> None:
        known = {f.name for f in dataclasses.fields(EngineOptions)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise OptionError(f"Engine has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
        self.options = EngineOptions(**options)
        self._flow_options = self.options.flow_options()
        check_replicas(sites, spares, replicas, placement)
        check_session(spark, sites, spares)
        self.spark, self.sites, self.spares, self.replicas, self.placement = spark, sites, spares, replicas, placement
        self._lock = threading.RLock()
        self._coordinator: Coordinator | None = None
        self._placement: Placement | None = None
        self._ingests: list[Ingest] = []
        self._runs: list[Run] = []
        self._operations = Operations(self)
        self._control: ControlPort | None = None
        self._stopped = False

    def __enter__(self) -> Engine:
        try:
            with heeded():
                self._ensure_sites()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @heeded()
    def start(self, flow: Dataflow, replicas: int | None = None) -> Run:
        """Start a dataflow and return at once; several may run side by side. What fails later, the run's methods raise.

        replicas: of every partition, default and at most the engine's. Raises QueryError if the dataflow is not complete, SinkError if a
        sink's directory cannot be written, TableError if a refreshed table cannot be read, ClusterError if the sites cannot be placed or a
        task slot is missing.
        """
        options = self._flow_options
        replicas = self.replicas if replicas is None else replicas
        check_replicas(self.sites, self.spares, replicas, self.placement)
        if replicas > self.replicas:
            raise ClusterError(
                f"replicas={replicas} is more than the engine's {self.replicas}: make it with Engine(..., replicas={replicas})"
            )
        planner = partial(
            layout,
            sites=self.sites,
            partitions=options.partitions,
            max_partitions=options.max_partitions,
            writers=self.options.writers,
        )
        tables = refreshed_tables(flow.network)
        if tables:
            check_slots(self.spark.sparkContext, self.sites + self.spares, f"table {tables[0].name!r}, which Spark reads,")
        contents = {table.name: read(table) for table in tables}
        planned = with_tables(planner(flow.network), contents)
        pushed = [name for name, source in planned.sources.items() if source.pushed]
        run_id = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', flow.name)}-{uuid.uuid4().hex[:12]}"
        for sink in planned.sinks.values():
            if sink.where == "site":
                sink.open(run_id).close()  # A directory that cannot be written is an error here, before a row is read.
        with self._lock:
            coordinator = self._ensure_sites()
            sites = tuple(site for site in self.sites_now if site not in coordinator.fleet.leaving)
            if len(sites) < self.sites:
                raise ClusterError("a site was lost while the dataflow was being started: start it again")
            # Those of the first sites that stand for each other in a failure are on different hosts if they can be.
            hosts = {site: coordinator.host_of(site) for site in sites}
            chosen = on_hosts(sites[: self.sites], hosts, replicas, self.placement)
            plan = on_sites(first_plan(planned, self.sites, replicas, self.placement), chosen)
            membership = first_membership(planned, plan, sites)
            program = pack(bind_run(planned, run_id, wait_ms), options)
            if pushed:
                # A Spark query that reads results must not wait for tasks that wait for room which only it can make.
                needed = 2 if any(sink.where == "spark" for sink in planned.sinks.values()) else 1
                check_slots(self.spark.sparkContext, self.sites + self.spares, f"box {pushed[0]!r}, whose rows Spark pushes,", needed)
            number = len(self._runs) + 1
            driven = DrivenRun(
                number,
                run_id,
                planned,
                plan,
                membership,
                program,
                coordinator,
                self.options.patience_s * 1000,
                self.options.balance,
                self.options.balance_parameters,
                self.spares,
            )
            run = Run(driven, coordinator, planner)
            if tables:
                run.refresh_tables(tables, contents, self.spark)
            for name in pushed:
                ingest = Ingest(self.spark, coordinator, driven, name)
                self._ingests.append(ingest)
                driven.on_started.append(ingest.begin)
                driven.on_over.append(ingest.end)
            self._runs.append(run)
            coordinator.add_run(driven)
        return run

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs of this engine, those that are over included."""
        return tuple(self._runs)

    @property
    def sites_now(self) -> tuple[int, ...]:
        """Indices of the sites that are there and have reached their peers, spares included, ascending. An index is never used twice."""
        coordinator = self._coordinator
        return tuple(sorted(site.index for site in coordinator.known() if site.linked)) if coordinator is not None else ()

    def drain(self, site: int, timeout_s: float = DRAIN_S, say: Say | None = None) -> Departure:
        """Empty a site and let it go, while everything runs: planned downtime. Returns when it has left, and its task slot is free.

        Every run moves what it has there to other sites, spares first; no partition has fewer replicas than before at any moment. From then
        on the engine has one spare less, or, without spares, one site less. The executor gets no site again before `add_sites` finds no
        other. say: is told how far it is. Raises OperationRefused, and changes nothing, if there is no such site, if too few would be left
        for the replicas, or if something on it cannot move, which the message names: sources that Spark pushes or that cannot be read
        again, sinks that Spark reads, what is pinned there. Raises ClusterError after timeout_s; then the site stays, with what has not
        moved yet.
        """
        return self._operations.drain((site,), timeout_s, say)[0]

    def remove_sites(self, count: int, timeout_s: float = DRAIN_S, say: Say | None = None) -> tuple[Departure, ...]:
        """Drain so many sites at once, those that host least: idle ones first, then the newest. Raises as `drain` does."""
        return self._operations.drain(self._operations.least(count), timeout_s, say)

    def add_sites(self, count: int, timeout_s: float | None = None) -> tuple[int, ...]:
        """Start so many more sites. Returns their indices when they have reached all others; runs give them load when they are rebalanced.

        Where Spark's dynamic allocation is on, it is asked for the executors that are missing. Raises ClusterError if there are too few
        executors and it is off, or if they do not come within timeout_s (default: the option place_timeout_s); those that have come stay.
        """
        return self._operations.add(count, self.options.place_timeout_s if timeout_s is None else timeout_s)

    def rebalance(self, timeout_s: float = 60.0) -> dict[str, int]:
        """Balance the load of every active run now, by its policy or the default one. Returns how many moves there were, by the
        run's id. See `Run.rebalance`.
        """
        return {run.id: run.rebalance(timeout_s) for run in self._runs if run._driven.machine.running}

    def describe(self) -> dict[str, Any]:
        """What there is now: engine (its id), master, replicas, spares, under_way (what is being changed, or None), sites and runs, as
        `evenflow sites --json` has them."""
        return self._operations.describe()

    def open_control(self) -> Path:
        """Let other processes of this user on this machine ask for all this: `evenflow sites`, `drain`, and so on. Returns the file that
        says where, which is gone when the engine stops. Raises EngineUnreachable if it cannot be written."""
        with self._lock:
            coordinator = self._ensure_sites()
            if self._control is None:
                self._control = ControlPort(self, coordinator)
            return self._control.file

    def stop(self) -> None:
        """Stop every run and every site. Returns when no task of the engine is left, at most after some 15 s. May be called again."""
        try:
            with heeded():
                self._stop()
        except KeyboardInterrupt:
            # A second Ctrl-C may hurry the user's program, not leave half of the sites behind.
            self._stop()
            raise

    def _stop(self) -> None:
        self._stopped = True
        if self._control is not None:
            self._control.close()
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
        """Wait for the sites: at first for all, the spares too, later for as many as a dataflow is laid out for."""
        with self._lock:
            if self._stopped:
                raise ClusterError("the engine has been stopped: make a new one")
            if self._coordinator is None or self._placement is None:
                clear()
                control_client.clear()
                prepare(lambda: None)  # What the coordinator imports later must not hold its thread up.
                context = self.spark.sparkContext
                conf = context.getConf()
                host = conf.get("spark.driver.host", "127.0.0.1")
                bind = conf.get("spark.driver.bindAddress", host)
                secret = new_secret()
                options, name = self.options, uuid.uuid4().hex[:12]
                wait_s, lease_s = options.place_timeout_s, options.lease_s
                try:
                    self._coordinator = Coordinator(name, self.sites, secret, bind, self.spares, self.replicas, lease_s)
                except OSError as error:
                    raise ClusterError(f"the driver cannot listen at {bind} ({error}): set spark.driver.bindAddress") from error
                self._placement = Placement(self.spark, self._coordinator, host, secret, lease_s, wait_s, options.bind)
                self._placement.ensure()
            elif not self._coordinator.enough(self.sites):
                self._placement.ensure(self.sites)
            return self._coordinator
