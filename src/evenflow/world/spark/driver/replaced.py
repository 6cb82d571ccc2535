"""Another version of a run's dataflow, and refreshed tables, while it goes on (V2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from evenflow.coordinator.differences import compared, differences
from evenflow.coordinator.events import Done, ReplaceRequested
from evenflow.coordinator.versions import asked_for, checked_version, columns_of, in_version, number_of, with_table
from evenflow.errors import ClusterError, LocationError, OperationRefused
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Plan, Version
from evenflow.query.refreshed import with_contents
from evenflow.query.tables import RefreshedTable
from evenflow.world.spark.cluster.interrupts import heeded
from evenflow.world.spark.driver.program import pack_version
from evenflow.world.spark.driver.refreshing import Refresher, same_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from evenflow.coordinator.events import Denied
    from evenflow.query.builder import Dataflow
    from evenflow.query.network import Network
    from evenflow.world.locations.versions import Programs
    from evenflow.world.spark.driver.driver_loop import DriverLoop
    from evenflow.world.spark.driver.in_place import Generations
    from evenflow.world.spark.driver.run_loop import RunLoop

REFRESH_S: Final = 300.0
"""How long a table that was read anew may wait for its plan."""


class Replaceable:
    """What a run says of its versions. A part of `Run`."""

    _generations: Generations
    _coordinator: DriverLoop
    _planner: Callable[..., Layout]
    _network: Network | None
    _programs: Programs | None
    _versions: threading.Lock
    _refresher: Refresher | None

    if TYPE_CHECKING:

        @property
        def _driven(self) -> RunLoop: ...

        @property
        def id(self) -> str: ...

        def _check_running(self) -> None: ...

        def _await_answer(self, request: int, deadline_s: float) -> Done | Denied | None: ...

    def compare(self, flow: Dataflow) -> dict[str, Any]:
        """What `replace` would do with this dataflow, which changes nothing: version (of what runs, 0 as it was started), possible, changed
        (boxes that are not the same), and boxes: box, change ("same", "other", "new", "gone", "refused"), keeps_state, why.

        Refreshed tables are compared as they are. Raises OperationRefused if the run is over, or has other refreshed tables.
        """
        running, there = self._driven.layout, {} if self._refresher is None else self._refresher.contents
        same_tables(flow, there)
        self._check_running()
        plan = self._coordinator.ask(lambda: self._driven.machine.plan)
        wanted = self._wanted(flow, running, there)
        return compared(differences(in_version(running, plan), wanted), number_of(plan))

    @heeded()
    def replace(self, flow: Dataflow, timeout_s: float = 300.0, *, version: int | None = None) -> dict[str, Any]:
        """Go on as another version of the dataflow, from one epoch on at all sites. Returns version (1 is the first after the one that was
        started), epoch (the first of it) and boxes (those that are new), when the plan is made.

        The version has the same boxes by name, in the same order, and the same columns between them. Boxes without state may have other
        conditions, expressions, functions and tables; a processor may have other code with the same store, which it finds as it is. A
        function or processor that has been built anew counts as another one. Sources and sinks go on; those of `flow` are not opened.

        Refreshed tables of `flow` are read now, and from then on instead of the running ones of the same names. It comes after what else is
        under way, another version included, and waits while replicas are missing. timeout_s: after that it is not wanted any more. version:
        of what runs, as `compare` has told it. With a checkpoint location the version is written down there, this returns when the journal
        has it, and a restart, with `flow`, goes on as it. Raises OperationRefused, and changes nothing, for anything else than such a
        version, naming boxes and what differs; VersionChanged if another version than that runs; ClusterError when the time is over, or the
        run; LocationError if the version cannot be written down.
        """
        if not self._versions.acquire(timeout=timeout_s):
            raise ClusterError(f"another version is on its way for more than {timeout_s:g} s, and has to come first")
        try:
            return self._replace(flow, timeout_s, version)
        finally:
            self._versions.release()

    def _replace(self, flow: Dataflow, timeout_s: float, expected: int | None) -> dict[str, Any]:
        if self._driven.located and self._programs is None:
            raise OperationRefused(
                f"run {self.id} is a region of a group with a checkpoint location, and cannot be replaced by another version"
            )
        running = self._driven.layout
        tables = same_tables(flow, {} if self._refresher is None else self._refresher.contents)
        contents = {} if self._refresher is None else self._refresher.read_first(tables)
        wanted = self._wanted(flow, running, contents)

        def make(plan: Plan, number: int) -> Version:
            version = checked_version(running, plan, wanted, number, expected)
            return pack_version(self._kept(version, with_contents(flow.network, contents), wanted), wanted)

        event = self._bring(make, timeout_s)
        if self._refresher is not None:
            self._refresher.exchange(tables, contents, event["version"], event["epoch"])
        self._network = flow.network
        return {key: event[key] for key in ("version", "epoch", "boxes")}

    def _wanted(self, flow: Dataflow, running: Layout, contents: Mapping[str, pa.Table]) -> Layout:
        """What is asked for, as what runs was planned. With a location, as a restart will plan it."""
        if self._programs is not None:
            try:
                return self._programs.laid_out(with_contents(flow.network, contents))
            except LocationError:
                pass  # A source cannot go on so, which `differences` says.
        return asked_for(self._planner(flow.network, columns=columns_of(running)), running, contents)

    def _kept(self, version: Version, network: Network, wanted: Layout, *, refreshed: bool = False) -> Version:
        """Written down at the location, if there is one, before any entry of the journal names it. refreshed: see `Programs.keep`."""
        journal = self._driven.machine.journal
        if self._programs is None or journal is None:
            return version
        program = self._programs.keep(network, wanted, journal.generation, version.number, refreshed=refreshed)
        return replace(version, program=program)

    @heeded()
    def refresh(self, table: str | None = None, timeout_s: float = 300.0) -> dict[str, Any]:
        """Read a refreshed table now, and go on with what it has from one epoch on at all sites, if that is something else.

        table: its name, may be left out if there is only one. Returns table, changed, rows, version and epoch since which the run has these
        rows, when the plan is made. Raises OperationRefused if there is no such table or the run has ended, TableError if it cannot be read
        or used, and ClusterError after timeout_s; then the run goes on with what it had.
        """
        if self._refresher is None:
            raise OperationRefused(f"dataflow {self._driven.layout.name!r} has no refreshed table: join with one made by flow.table(...)")
        self._check_running()
        return dict(self._refresher.refresh(table, timeout_s))

    def refresh_tables(
        self, tables: Sequence[RefreshedTable], contents: Mapping[str, pa.Table], spark: SparkSession | None, *, stale: bool = False
    ) -> None:
        """Read these tables again while the run is under way. contents: what they had when its program was made; stale: long ago."""
        group = f"evenflow-refresh-{self.id}"
        record = lambda *said, **details: self._driven.record(*said, **details)  # noqa: E731  # Generations follow each other.
        plan = self._driven.machine.plan
        since = (number_of(plan), plan.effective if plan.version is not None else 0)
        self._refresher = Refresher(tables, contents, self._bring_table, self._versions, record, spark, group, stale=stale, since=since)
        self._driven.on_started.append(self._refresher.begin)
        self._generations.when_over(self._refresher.end)

    def _bring_table(self, name: str, content: pa.Table) -> Mapping[str, Any]:
        layout = self._driven.layout

        def make(plan: Plan, number: int) -> Version:
            version = with_table(layout, plan, name, content, number)
            if self._programs is not None and self._network is not None and self._refresher is not None:
                network = self._programs.going_on(with_contents(self._network, {**self._refresher.contents, name: content}))
                version = self._kept(version, network, self._programs.laid_out(network), refreshed=True)
            return pack_version(version, in_version(layout, plan))

        return self._bring(make, REFRESH_S)

    def _bring(self, make: Callable[[Plan, int], Version], timeout_s: float) -> Mapping[str, Any]:
        """Go on as the version that is made for the newest plan, with a number. Returns what `Done` says of it. `_versions` is held."""
        machine, deadline_s = self._driven.machine, time.monotonic() + timeout_s

        def now() -> tuple[Plan, int]:
            self._check_running()
            return machine.plan, machine.replacing.newest + 1

        version = make(*self._coordinator.ask(now))  # Nobody else changes the version meanwhile, and packing may take a while.
        request = self._coordinator.ask(lambda: self._driven.request(lambda number: ReplaceRequested(version, number)))
        answer = self._await_answer(request, deadline_s)
        if isinstance(answer, Done):
            return answer.details
        if machine.over:
            raise ClusterError(f"run {self.id} ended before version {version.number} was known to have begun")
        if self._coordinator.ask(lambda: number_of(machine.plan) == version.number):
            raise ClusterError(
                f"version {version.number} runs, and after {timeout_s:g} s the journal does not have it yet: a restart now might go on "
                "without it. See whether the location's store works"
            )
        self._coordinator.ask(lambda: self._driven.handle(ReplaceRequested(machine.plan.version)))
        raise ClusterError(f"version {version.number} could not begin within {timeout_s:g} s, and is not wanted any more")
