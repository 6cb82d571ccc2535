"""A dataflow in the simulator, as a test sees it: rows in, rows out, and whatever is to happen between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from evenflow.coordinator.events import Denied
from evenflow.coordinator.survival import SURVIVED
from evenflow.errors import OperationRefused, OptionError
from evenflow.query.builder import Dataflow
from evenflow.query.duration import duration_us
from evenflow.query.network import Box, Network
from evenflow.query.planner import layout
from evenflow.sinks.memory import MemorySink
from evenflow.site.options import FlowOptions
from evenflow.testing.feed import Feed, Given
from evenflow.testing.given import batch_of
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld

QUIET_S: Final = 0.3
"""Virtual time without a result, after which what was given is taken to be through: many times what anything needs here but the loss of a
site, which is waited for by itself."""
SLICE_S: Final = 0.05
LIMIT_S: Final = 3600.0


class Simulation:
    """A dataflow that runs under a virtual clock, fed by a test. Made by `simulate` or `run`.

    Every call runs in the caller's thread until it returns; between calls no time passes. A call raises what the run ends with, as
    `await_termination` would: `BoxFailed` if a box does, `PartitionsLost` if more was lost than replicas cover.
    """

    def __init__(self, cluster: SimCluster, feeds: Mapping[str, Feed], schemas: Mapping[str, pa.Schema]) -> None:
        self._cluster, self._feeds, self._schemas = cluster, feeds, schemas
        self._taken = dict.fromkeys(schemas, 0)

    # ------------------------------------------------------------ rows in

    def give(self, source: str, rows: Any, partition: int = 0) -> Simulation:
        """The source has these rows now. They are read when time passes: with `settle`, `advance` or `finish`.

        source: name of its box. rows: dicts, tuples or `Row`s; or an Arrow batch or table, or a data frame. Times may be texts, such as
        "2026-01-01 10:00". partition: of the source. Raises OptionError where they do not fit, before anything is given.
        """
        feed = self._feed(source)
        if feed.given.over:
            raise OperationRefused(f"source {source!r} has ended; give its rows before `finish` or `end`")
        if not 0 <= partition < len(feed.given.batches):
            raise OptionError(
                f"source {source!r} has {len(feed.given.batches)} partitions, from 0 on, and no {partition}; see source_partitions"
            )
        batch = batch_of(rows, feed.schema, source)
        if batch.num_rows:
            feed.given.batches[partition].append(batch)
        return self

    def end(self, source: str) -> Simulation:
        """No more rows come from this source: what waits for its watermark only need not wait any more."""
        self._feed(source).given.over = True
        return self

    def _feed(self, source: str) -> Feed:
        if source not in self._feeds:
            raise OptionError(f"the dataflow has no source {source!r}; it has {', '.join(map(repr, self._feeds))}")
        return self._feeds[source]

    # ------------------------------------------------------------ time

    def settle(self) -> Simulation:
        """Let everything that was given go through, and what failed be made good."""
        self._demand_driver()
        shape = self._shape()
        quiet_s = 0.0
        while quiet_s < QUIET_S and not self._world.ended:
            self._pass(SLICE_S)
            now = self._shape()
            quiet_s = quiet_s + SLICE_S if now == shape and self._through else 0.0
            shape = now
        return self

    def advance(self, span: str | timedelta) -> Simulation:
        """Let time pass on the clock of the machines, such as "10 seconds". Event time moves by the rows alone."""
        self._pass(duration_us(span) / 1e6)
        return self

    def finish(self) -> Simulation:
        """All sources end, and the run does when everything is through. Windows that are open close."""
        for feed in self._feeds.values():
            feed.given.over = True
        self._demand_driver()
        self._world.run_until_quiet(LIMIT_S)
        return self

    def _pass(self, seconds: float) -> None:
        self._demand_driver()
        self._world.run_for(seconds)
        if self._world.error is not None:
            raise self._world.error

    def _shape(self) -> object:
        """What is other as long as anything happens."""
        world = self._world
        return [*map(len, world.released.values()), *[feed.given.read[:] for feed in self._feeds.values()], len(world.happened)]

    @property
    def _through(self) -> bool:
        world = self._world
        return all(feed.given.is_read for feed in self._feeds.values()) and not world.coordinator.membership.joining

    # ------------------------------------------------------------ rows out

    def rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """All rows that the sink was given so far, in order. sink: name of its box; None: the only one."""
        found: list[dict[str, Any]] = self.table(sink).to_pylist()
        return found

    def new_rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """Those that came since this was last asked for this sink."""
        name = self._sink(sink)
        found = self.rows(name)
        new, self._taken[name] = found[self._taken[name] :], len(found)
        return new

    def table(self, sink: str | None = None) -> pa.Table:
        """The same rows as an Arrow table, with the sink's columns though there are none."""
        name = self._sink(sink)
        return pa.Table.from_batches([rows for _, rows in self._world.released[name]], schema=self._schemas[name])

    def epochs(self, sink: str | None = None) -> list[tuple[int, list[dict[str, Any]]]]:
        """(epoch, its rows) for every epoch with rows, in order: what came out together."""
        return [(epoch, rows.to_pylist()) for epoch, rows in self._world.released[self._sink(sink)] if rows.num_rows]

    def _sink(self, name: str | None) -> str:
        names = list(self._world.released)
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            which = "which one is meant" if name is None else f"there is no {name!r}"
            raise OptionError(f"the dataflow has the sinks {', '.join(map(repr, names))}: {which}")
        return name

    # ------------------------------------------------------------ what goes wrong

    @property
    def sites(self) -> list[int]:
        """Indices of those that live."""
        return [site.index for site in self._world.sites if site.alive]

    @property
    def site(self) -> int:
        """The site that leads the first source partition: to lose it hurts most."""
        machine = self._world.coordinator
        return machine.membership.leaders[0][0].site

    def kill(self, site: int | None = None) -> Simulation:
        """A site's process is gone, as with kill -9. site: its index; None: `site`."""
        index = self.site if site is None else site
        if index not in self.sites:
            raise OptionError(f"site {index} does not live; these do: {self.sites}")
        self._world.kill(index)
        return self

    def add_site(self) -> int:
        """A new one joins, as when Spark starts a lost executor again. Returns its index."""
        return self._world.add_site()

    def checkpoint(self) -> Simulation:
        """Make a checkpoint now, as with a checkpoint location. Raises OperationRefused with the reason if there can be none."""
        self._demand_driver()
        number = self._world.checkpoint()
        self._world.run_until(lambda: number in self._world.answers, LIMIT_S, "a checkpoint")
        answer = self._world.answers.get(number)
        if isinstance(answer, Denied):
            raise OperationRefused(answer.why)
        return self

    def lose_everything(self) -> Simulation:
        """The driver and all sites die at once. `restart` goes on."""
        self._cluster.lose_all()
        return self

    def restart(self, *, sites: int | None = None, replicas: int | None = None) -> Simulation:
        """Go on where the journal stands, with the newest checkpoint: by another driver after everything was lost, by the same one after
        `PartitionsLost`, as with a checkpoint location. sites, replicas: as they are from now on; None: as before."""
        world = self._world
        changed = {name: count for name, count in (("sites", sites), ("replicas", replicas)) if count is not None}
        if world.lost:
            self._cluster.restart(**changed)
        elif isinstance(world.error, SURVIVED):
            self._cluster.go_on_in_place(**changed)
        else:
            raise OperationRefused("the run goes on; `lose_everything` ends it as a crash would")
        return self

    @property
    def _world(self) -> SimWorld:
        return self._cluster.world

    def _demand_driver(self) -> None:
        if self._world.lost and not self._cluster.over:
            raise OperationRefused("everything is lost; `restart` goes on")


def simulate(
    flow: Dataflow,
    inputs: Mapping[str, Any] | None = None,
    *,
    sites: int = 2,
    replicas: int = 1,
    availability: str = "pairs",
    partitions: int = 8,
    source_partitions: int | Mapping[str, int] = 1,
    epoch_rows: int | None = None,
    checkpoint_s: float | None = None,
    seed: int = 0,
) -> Simulation:
    """A run of that dataflow in the simulator, in which no time has passed yet.

    flow: as it is for production. What its sources would read is not read, and its sinks store nothing. inputs: rows by source, as for
    `Simulation.give`. sites, replicas: to run on. availability: as of `Engine.start`. partitions: of keyed boxes. source_partitions: of
    each source, or of all. epoch_rows: most rows of a source partition in an epoch; None: as many as come. checkpoint_s: from one
    checkpoint to the next, of the machines' time; None: only when asked for. seed: how long everything takes. Answers do not depend on
    it, and a run is repeated by it exactly.
    Raises OptionError for rows or names that do not fit, QueryError for a dataflow that cannot run.
    """
    flow.network.check_complete()
    feeds = _feeds(flow.network, source_partitions)
    network = Network(flow.network.name, tuple(_rewired(box, feeds) for box in flow.network))
    planned = layout(network, sites=_counted(sites, "sites"), partitions=partitions)
    options = FlowOptions(linger_ms=1.0, heartbeat_ms=100.0, checkpoint_s=checkpoint_s)
    if epoch_rows is not None:
        options = replace(options, epoch_rows=epoch_rows)
    cluster = SimCluster(
        planned, seed=seed, sites=sites, replicas=_counted(replicas, "replicas"), availability=availability, options=options
    )
    simulation = Simulation(cluster, feeds, {box.name: network.input_schemas(box)[0] for box in network.of_kind("sink")})
    for source, rows in (inputs or {}).items():
        simulation.give(source, rows)
    return simulation


def run(flow: Dataflow, inputs: Mapping[str, Any], **given: Any) -> Simulation:
    """The dataflow over these rows, to its end. inputs, given: as for `simulate`, and what it raises; what the run ends with, too."""
    return simulate(flow, inputs, **given).finish()


def _feeds(network: Network, partitions: int | Mapping[str, int]) -> dict[str, Feed]:
    """What stands for each source. partitions: of each source, or of all."""
    boxes = {box.name: box for box in network.of_kind("source")}
    given = dict.fromkeys(boxes, partitions) if isinstance(partitions, int) else partitions
    if other := [name for name in given if name not in boxes]:
        raise OptionError(f"source_partitions: the dataflow has no source {other[0]!r}; it has {', '.join(map(repr, boxes))}")
    return {
        name: Feed(box.params["source"].schema, Given.of(_counted(given.get(name, 1), f"source_partitions of {name!r}")))
        for name, box in boxes.items()
    }


def _rewired(box: Box, feeds: Mapping[str, Feed]) -> Box:
    """The box, with what a test gives and takes in the place of what is outside."""
    if box.kind == "source":
        return replace(box, params={**box.params, "source": feeds[box.name]})
    if box.kind == "sink":
        return replace(box, params={**box.params, "sink": MemorySink(box.name)})
    return box


def _counted(count: int, name: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError(f"{name} is {count!r}; give a whole number from 1 on")
    return count
