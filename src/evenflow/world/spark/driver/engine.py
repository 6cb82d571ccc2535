"""`evenflow.Engine`: dataflows on the executors of a Spark session."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from evenflow.availability.choosing import check_alike, modes_of
from evenflow.availability.durability import Durability, check_durability, chosen, durability_named
from evenflow.coordinator.events import Kind
from evenflow.errors import ClusterError, LocationError, OptionError
from evenflow.plan.placement import Scheme, first_membership, first_plan, on_sites
from evenflow.query.effects import check_runs_once
from evenflow.query.lateness import never_late, never_late_text
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.store.location import named, new_run
from evenflow.stream.ids import SiteId
from evenflow.world.binding import begun as begun_now
from evenflow.world.grouping import as_region, check_kept, check_region, region_at
from evenflow.world.locations.versions import Drawn
from evenflow.world.spark.bridge.ingest import Ingest, ingesting
from evenflow.world.spark.bridge.spooling import spooled
from evenflow.world.spark.bridge.streamed import Spooler, spooling
from evenflow.world.spark.cluster.interrupts import ENDING, heeded
from evenflow.world.spark.cluster.placement import Placement, check_replicas, check_session, check_slots
from evenflow.world.spark.driver.beginnings import TAKE_OVER_TRIES
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.in_place import Generations
from evenflow.world.spark.driver.newcomers import looking
from evenflow.world.spark.driver.notebook import EngineDisplay
from evenflow.world.spark.driver.operations import DRAIN_S, Departure, Operations, Say
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.driver.profiling import ProfiledSites
from evenflow.world.spark.driver.refreshing import read_first
from evenflow.world.spark.driver.run import Run, end_all
from evenflow.world.spark.driver.scaling import Autoscaler
from evenflow.world.spark.driver.sited import Sited
from evenflow.world.spark.driver.standing_by import Standbys, StandingBy, Watch, check_standby
from evenflow.world.spark.driver.taking import Found, await_silence, check_sinks, checked, look
from evenflow.world.spark.regions.beginning import begun_near

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from evenflow.availability.group import Region
    from evenflow.availability.mode import Modes
    from evenflow.plan.layout import Layout
    from evenflow.query.builder import Dataflow
    from evenflow.query.network import Network
    from evenflow.world.grouping import InGroup
    from evenflow.world.spark.driver.ui_process import UiProcess

log = logging.getLogger("evenflow")


IN_ORDER: Final = (None, 0, *(128 + number for number in ENDING))
"""What a program leaves with that has done what it should, or that was asked to end."""
STARTS_S: Final = 5.0
"""How long the end waits for a start under way: one that its store holds up finds that the engine has been stopped."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What `Engine.start` has been asked for, by the names of its parameters. network: with what Spark has to write for it first. read:
    reads its refreshed tables."""

    flow: Dataflow
    network: Network
    replicas: int
    availability: str
    durability: Durability | None
    group: InGroup | None
    take_over: bool
    from_savepoint: str | None
    drop_state: Collection[str]
    standby: bool
    watch: Watch | None
    earlier: Sequence[Dataflow]
    allow_pickle: bool
    read: Callable[[], Mapping[str, pa.Table]]


class Engine(Sited, EngineDisplay, ProfiledSites):
    """Sites on the executors of `spark`, and the dataflows that run on them. A context manager; leaving it ends everything.

    spark: a classic session (not Spark Connect), on any master with at least `sites + spares` executors; `local[*]` can have one site.
    sites: with the option `autoscale`, those of the beginning, brought within its bounds.
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
        made = EngineOptions(**options)
        most = sites
        if made.autoscale is not None and isinstance(sites, int):
            check_replicas(made.autoscale[0], spares, replicas, placement)
            sites, most = min(max(sites, made.autoscale[0]), made.autoscale[1]), made.autoscale[1]
        check_replicas(sites, spares, replicas, placement)
        check_session(spark, most, spares)
        self._prepared(spark, sites, spares, replicas, placement, made)

    def _prepared(self, spark: SparkSession, sites: int, spares: int, replicas: int, placement: Scheme, options: EngineOptions) -> None:
        self.options, self._flow_options = options, options.flow_options()
        self.spark, self.sites, self.spares, self.replicas, self.placement = spark, sites, spares, replicas, placement
        self._lock = threading.RLock()
        self._coordinator: DriverLoop | None = None
        self._placement: Placement | None = None
        self._ingests: list[Ingest | Spooler] = []
        self._runs: list[Run] = []
        self._numbers = 0
        self._autoscaler: Autoscaler | None = None
        self._operations, self._standbys = Operations(self), Standbys(self)
        self._control: ControlPort | None = None
        self._stopped, self._willed = False, True

    def __enter__(self) -> Engine:
        try:
            with heeded():
                self._ensure_sites()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._willed = not _failed(error)
        self.stop()

    @heeded()
    def start(
        self,
        flow: Dataflow,
        replicas: int | None = None,
        checkpoint_location: str | os.PathLike[str] | None = None,
        *,
        take_over: bool = False,
        from_savepoint: str | None = None,
        drop_state: Collection[str] = (),
        standby: bool = False,
        availability: str | None = None,
        group: InGroup | None = None,
        watch: Watch | None = None,
        earlier: Sequence[Dataflow] = (),
        allow_pickle: bool = False,
        durability: str | None = None,
    ) -> Run:
        """Start a dataflow and return at once; several may run side by side. What fails later, the run's methods raise.

        replicas: of every partition, default and at most the engine's. checkpoint_location: where it is written down what a restart
        needs, default the folder with the dataflow's name in the engine's, or none. If something was begun there, the run goes on where
        its outputs stood, with the same id; if that has ended, a run that is over is returned. take_over: do not wait until a driver that
        was there before is silent, but replace it. from_savepoint: a savepoint that the first start at the location begins with; the
        dataflow may be another one: boxes take over the state of those with the same given name and kind, new ones begin empty, and what no
        box takes over must be named in drop_state. A later start goes on, and does not look at it. standby: another driver runs it at the
        location, or will; wait, with all sites placed, until it has been silent for its lease, and go on in its place. This returns only
        then, or when that run has ended. watch: is told meanwhile how it stands, in this thread. availability: what boxes that say nothing
        do so that a lost site costs little: "pairs", "passive", "upstream" or "amnesia"; None: the engine's option.
        group: the run is one region of it (`ef.group`). A run that was replaced at its location goes on as the dataflow by which it was
        replaced, which is to be given here. earlier: dataflows that it was before, where what they made has to be made again and they have
        functions of yours. allow_pickle: those may be read from the location instead, which can run any code: only where you trust whoever
        can write there. durability: "precise", outputs wait until the location has what a restart needs to make the same again, or
        "no-loss", they wait for nothing, and come again behind the newest checkpoint after a loss; None: as the location was begun, or the
        engine's option.

        Raises QueryError if the dataflow is not complete, AvailabilityError if it cannot have that availability or durability, SinkError if
        a sink's directory cannot be written, TableError if a refreshed table cannot be read, ClusterError if the sites cannot be placed or
        a task slot is missing, and LocationError if the location cannot be used, or is of another dataflow or of one that does something
        else (ProgramChanged), or if a dataflow that the run was is missing (ProgramMissing): then nothing was changed there.
        """
        replicas = self.replicas if replicas is None else replicas
        check_replicas(self.sites, self.spares, replicas, self.placement)
        if replicas > self.replicas:
            raise ClusterError(f"replicas={replicas} is more than the engine's {self.replicas}: make it with Engine(replicas={replicas})")
        url = self._location_of(flow, checkpoint_location)
        check_runs_once(flow.network, replicas, url, regions=group is not None)
        tables = refreshed_tables(flow.network)
        if group is not None:
            options = self.options
            check_region(group, flow.network, url=url, shedding=options.shedding, balance=options.balance)
            self._not_twice(group.name)
        if tables and self._session is not None:
            check_slots(self.spark.sparkContext, self.sites + self.spares, f"table {tables[0].name!r}, which Spark reads,")
        network = flow.network if url is None else spooled(flow.network, url, self.spark, self.sites + self.spares)
        availability = self.options.availability if availability is None else availability
        promised = None if durability is None else durability_named(durability, f"dataflow {flow.name!r}")
        asked = Asked(
            flow,
            network,
            replicas,
            availability,
            promised,
            group,
            take_over,
            from_savepoint,
            drop_state,
            standby,
            watch,
            earlier,
            allow_pickle,
            partial(read_first, tables, self._session),
        )
        return self._start_unwritten(asked) if url is None else self._start_at(url, asked)

    @property
    def _session(self) -> SparkSession | None:
        """With which tables are read."""
        return self.spark

    def _start_unwritten(self, asked: Asked) -> Run:
        """Without a checkpoint location."""
        if asked.durability is not None:
            raise LocationError(
                "durability says what is written down at a checkpoint location, and there is none: give checkpoint_location=, "
                "--checkpoint-location, too"
            )
        planner = partial(cast("Callable[..., Layout]", layout), **self._planning(asked.group))
        if asked.group is not None:
            return self._start_region(asked, asked.group, planner)
        if asked.from_savepoint is not None:
            why = "from_savepoint needs a checkpoint location of its own, where what is taken over of it is kept"
            raise LocationError(f"{why}: checkpoint_location=, --checkpoint-location")
        if asked.standby:
            check_standby(None, take_over=asked.take_over)
        contents = asked.read()
        planned = with_tables(planner(asked.network), contents)
        modes = self._modes(planned, asked.availability, asked.replicas, located=False)
        return self._start(asked.flow, planned, planner, asked.replicas, contents, None, asked.take_over, modes)

    def _start_region(self, asked: Asked, group: InGroup, planner: Callable[..., Layout]) -> Run:
        """As a region of a group, without a checkpoint location: what it lacks others have."""
        planned, region = as_region(planner(asked.network), group, self._planning(group)["sites"])
        if not group.peers:  # With them it reads what there is, and is silent until that was enough.
            check_kept(planned)
        planned, region = begun_near(asked.network, planned, region) if region.peers else (planned, region)
        modes = self._modes(planned, asked.availability, asked.replicas, located=False)
        check_alike(modes, group.name)
        return self._start(asked.flow, planned, planner, asked.replicas, {}, None, False, modes, region=region)

    def _start_at(self, url: str, asked: Asked) -> Run:
        """At a checkpoint location, where what was begun goes on."""
        network, group, planning = asked.network, asked.group, self._planning(asked.group)
        made = cast("Callable[..., Layout]", layout)
        if asked.standby:
            check_standby(url, take_over=asked.take_over)

        def plan(given: Mapping[str, Any]) -> Layout:
            return made(network, **given) if group is None else as_region(made(network, **given), group, given["sites"])[0]

        earlier = tuple(each.network for each in asked.earlier)
        drawn = Drawn(network, earlier, asked.allow_pickle, asked.read) if group is None else None
        in_group = None if group is None else group.name

        def looks() -> Found:
            found = look(url, asked.flow.name, plan, planning, asked.from_savepoint, asked.drop_state, in_group, drawn)
            there = None if found.standing.begun is None else found.standing.durability
            found = replace(found, durability=chosen(asked.durability, Durability(self.options.durability), there, found.url))
            if not found.ended:
                check_durability(found.layout, found.durability, self.options.checkpoint_s, in_group)
            return found

        def begins(found: Found, waited: StandingBy | None = None) -> Run:
            modes = self._modes(found.layout, asked.availability, asked.replicas, located=True)
            region = None if group is None else region_at(url, found.layout, group, found.planning["sites"] or 1)
            if group is not None:
                check_alike(modes, group.name)
                if found.standing.begun is None and asked.from_savepoint is None:
                    check_kept(found.layout)
            planner = partial(made, **found.planning)
            return self._start(asked.flow, found.layout, planner, asked.replicas, {}, found, asked.take_over, modes, waited, region)

        if asked.standby:
            # Mistakes of the query show now, and not when it is needed.
            self._modes(checked(made(network, **planning)), asked.availability, asked.replicas, located=True)
            return self._standbys.stand_by(url, asked.flow.name, asked.replicas, asked.watch, looks, begins)
        return begins(looks())

    def _planning(self, group: InGroup | None = None) -> dict[str, Any]:
        """The arguments with which a dataflow is planned here, unless it was begun elsewhere."""
        options = self.options
        most = self.sites if options.autoscale is None else options.autoscale[1]  # A source's partitions are for ever.
        return {
            "sites": most if group is None else group.made_for(most), "partitions": options.partitions,
            "max_partitions": options.max_partitions, "writers": options.writers,
        }  # fmt: skip

    def _location_of(self, flow: Dataflow, given: str | os.PathLike[str] | None) -> str | None:
        if given is not None:
            return os.fspath(given)
        base = self.options.checkpoint_location
        return None if base is None else f"{base.rstrip('/')}/{named(flow.name)}"

    def _start(
        self,
        flow: Dataflow,
        planned: Layout,
        planner: Callable[..., Layout],
        replicas: int,
        contents: Mapping[str, pa.Table],
        found: Found | None,
        take_over: bool,
        modes: Modes,
        waited: StandingBy | None = None,
        region: Region | None = None,
    ) -> Run:
        """waited: it has been waited for long enough, and as many sites are there as there will be. region: of that group."""
        planned = begun_now(planned, time.time_ns() // 1000)
        fed = [name for name, source in planned.sources.items() if source.batched]
        run_id = found.run_id if found is not None else new_run(flow.name) if region is None else region.group.name
        over = found is not None and found.ended
        # A directory that cannot be written, or a table of other columns, is an error here, before a row is read.
        sinks_run = run_id if found is None else found.sinks_run
        has = {step.box: planned.sinks[step.box].prepare(sinks_run, step.schema) for step in (() if over else planned.stages())}
        if waited is None:
            self._ensure_sites()  # They start while this driver waits.
        if found is not None and not take_over and waited is None:
            await_silence(found, self.options.lease_s)
        programs = None if found is None or over else found.programs
        if programs is not None and found is not None:
            programs.check(found.standing, flow.name)  # It may have been replaced while this driver stood by.
            contents = programs.contents
        if fed:
            # A Spark query that reads results must not wait for tasks that wait for room which only it can make.
            needed = 2 if any(sink.where == "spark" for sink in planned.sinks.values()) else 1
            check_slots(self.spark.sparkContext, self.sites + self.spares, f"box {fed[0]!r}, whose rows Spark gives,", needed)
        program = self._packed(planned, sinks_run)
        taken, before = None, tuple[SiteId, ...]()
        if found is not None and not over:
            with self._lock:
                before, chosen = self._first_sites(replicas, waited)
            taken, begins = self._begin(found, chosen, replicas, modes, TAKE_OVER_TRIES if take_over else 1)
        with self._lock:
            sites, chosen = self._choose(self.sites, replicas, before) if before else self._first_sites(replicas, waited)
            coordinator = self._there()
            if taken is None:
                plan = on_sites(first_plan(planned, self.sites, replicas, self.placement, place=self._place(planned), modes=modes), chosen)
                beginning = Beginning(region.after, (plan,)) if region is not None and region.after else FROM_NOTHING
            else:
                beginning = begins(chosen)
                check_sinks(has, sinks_run, beginning.durable if sinks_run == run_id else 0)
                plan = beginning.plans[-1]
            membership = first_membership(planned, plan, sites)
            earlier = () if waited is None else tuple(waited.happened)
            driven = self._loop(run_id, planned, plan, membership, program, beginning, taken, over=over, earlier=earlier, region=region)
        try:
            means = None if found is None or over else self._means(found, replicas, program, modes, region)
            generations = looking(Generations(driven, means, coordinator.add_run), coordinator)
            run = Run(generations, coordinator, planner, flow.network, programs)
            if self.options.shedding != "off" and (never := never_late_text(flow.network)):
                driven.record(Kind.NEVER_SHED, never.rstrip(), sources=list(never_late(flow.network)))
            if contents:
                stale = found is not None and found.standing.begun is not None
                run.refresh_tables(refreshed_tables(flow.network), contents, self._session, stale=stale)
            ingests: list[Ingest | Spooler] = [*ingesting(driven, coordinator, self.spark), *spooling(generations, coordinator, self.spark)]
            with self._lock:
                self._there()
                self._ingests += ingests
                self._runs.append(run)
        except BaseException:
            driven.abandon()  # Else it would say for ever that its driver lives.
            raise
        if not over:
            coordinator.add_run(driven)
        return run

    def _first_sites(self, replicas: int, waited: StandingBy | None) -> tuple[tuple[SiteId, ...], tuple[SiteId, ...]]:
        """Of a run that begins now. See `_choose`. Who has waited long enough begins with as many as there are."""
        if waited is None or self._coordinator is None:
            self._ensure_sites()
        return self._choose(self.sites if waited is None else replicas, replicas)

    def _not_twice(self, name: str) -> None:
        if any(run.id == name and run.is_active for run in self._runs):
            raise OptionError(f"group {name}: it has a region in this engine already; start another one in an engine of its own")

    def _modes(self, planned: Layout, availability: str, replicas: int, *, located: bool) -> Modes:
        return modes_of(planned, availability, self.sites, replicas, located=located)

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
        run's id. See `Run.rebalance`."""
        return {run.id: run.rebalance(timeout_s) for run in self._runs if run._driven.machine.running}

    def describe(self) -> dict[str, Any]:
        """What there is now: engine (its id), master, replicas, spares, under_way, sites, runs, standby, as `evenflow sites --json`."""
        return self._operations.describe()

    def open_control(self) -> Path:
        """Let other processes of this user on this machine ask for all this: `evenflow sites`, `drain`, and so on. Returns the file that
        says where, which is gone when the engine stops. Raises EngineUnreachable if it cannot be written."""
        with self._lock:
            coordinator = self._once_there()
            if self._control is None:
                self._control = ControlPort(self, coordinator)
            return self._control.file

    def open_ui(self, port: int | None = None, *, frame: str | None = None) -> UiProcess:
        """Serve the engine's page in a process of its own, which ends with this one; its `url()` waits for the address. frame: see `ui`."""
        self.open_control()
        return cast(ControlPort, self._control).open_ui(port, frame)

    def stop(self) -> None:
        """Stop every run and every site. Returns when no task of the engine is left, at most after some 15 s, and 5 more each if something
        is being started meanwhile, or answered to another process. May be called again."""
        try:
            with heeded():
                self._stop()
        except (KeyboardInterrupt, SystemExit):
            # A second Ctrl-C or SIGTERM may hurry the user's program, not leave half of the sites behind.
            self._stop()
            raise

    def _stop(self) -> None:
        self._stopped = True
        if self._placement is not None:
            self._placement.give_up()  # Who waits for sites waits no more.
        if self._lock.acquire(timeout=STARTS_S):  # What is being started is there, or has failed; or it takes too long.
            self._lock.release()
        with ExitStack() as ends:  # The last comes first, and whatever one of them raises, the others follow.
            ends.callback(self._end_sites)
            if self._control is not None:
                ends.callback(self._control.settle)
            for ingest in self._ingests:
                ends.callback(ingest.join, 5.0)
            ends.callback(end_all, self._runs, willed=self._willed)
            if self._control is not None:
                ends.callback(self._control.close)
            if self._autoscaler is not None:
                ends.callback(self._autoscaler.close)


def _failed(error: BaseException | None) -> bool:
    """It is a program that fails, and no person who stops it."""
    return isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code not in IN_ORDER)
