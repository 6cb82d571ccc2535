"""The two worlds of the scenarios. A scenario names sites by their role, says what happens to them, and waits for what follows."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import evenflow as ef
from evenflow.bench.killing import Manner, kill, victim_of
from evenflow.coordinator.events import Happened
from evenflow.coordinator.machine import RunMachine
from evenflow.query.planner import layout
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld

SITES, SPARES = 4, 1
PATIENCE_S = 60.0
HEALED_S = 150.0
"""Spark starts lost executors again one after the other, each in some seconds of CPU."""
NEW_SITE_US = 900_000
"""Virtual time until the simulator's Spark has started a lost site's task again."""


class Cast:
    """Who plays which role now, in a dataflow with two ingress partitions: the same question in both worlds."""

    def __init__(self, machine: RunMachine) -> None:
        self.machine = machine

    def ingress(self, partition: int = 0) -> tuple[int, ...]:
        """Sites with a live replica of an ingress partition, its leader first."""
        machine = self.machine
        leader = machine.membership.leaders[0][partition].site
        return (leader, *(site for site in machine.membership.live(machine.plan, 0, partition) if site != leader))

    @property
    def leader(self) -> int:
        return self.ingress()[0]

    @property
    def follower(self) -> int:
        return self.ingress()[1]

    @property
    def elsewhere(self) -> int:
        """The leader of another pair."""
        return self.ingress(1)[0]

    @property
    def egress(self) -> int:
        """The site with the first replica of the last segment."""
        machine = self.machine
        return machine.membership.live(machine.plan, len(machine.layout.segments) - 1, 0)[0]

    @property
    def spare(self) -> int:
        """A site that hosts nothing."""
        return next(site for site in self.machine.membership.sites if site not in self.machine.plan.sites)

    @property
    def sites(self) -> tuple[int, ...]:
        return self.machine.membership.sites

    def copy(self) -> tuple[int, int]:
        """(source, target) of a copy that is under way."""
        copy = self.machine.membership.joining[0]
        return copy.source, copy.target


class World(Protocol):
    """Runs one dataflow after the other, each whose sink is `out`, and does to its sites what the scenario says.

    cast: who plays which role. slow_s: how long a slow box of a user needs for each call, in real time.
    """

    cast: Cast
    slow_s: float

    def start(self, flow: ef.Dataflow, sink: Any, replicas: int = 2) -> None: ...
    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Go on until that is so. AssertionError if the run ends before, or if it takes too long."""

    def at(self, kind: str, do: Callable[[], None]) -> None:
        """Do that in the very moment when such an event of the run happens for the first time, before anybody can react to it."""

    def happened(self, kind: str) -> list[int]:
        """Sites to which such an event has happened, in order."""

    def told(self, kind: str) -> list[str]:
        """What such events say, in order: why it came so."""

    def output(self) -> pa.Table:
        """What the sink was given so far, in order."""

    def finish(self) -> pa.Table:
        """Wait for the end of the run. Raises its error."""

    def kill(self, *sites: int, manner: Manner = "executor") -> None:
        """All at once. manner: what of the site's processes dies; all the same to the simulator."""

    def hang(self, site: int) -> None: ...
    def resume(self, site: int) -> None: ...
    def hang_for(self, site: int, seconds: float) -> None: ...
    def has_left(self, site: int) -> bool:
        """The site has ended, and nobody can connect to it any more."""

    def cut_links(self) -> None:
        """Break all links between sites, as a fault would."""

    def cut_link(self, a: int, b: int, times: int) -> None:
        """Break one link again and again."""

    def break_control(self, site: int) -> None:
        """Break the site's connection to the driver, and wait until there is another one."""

    def change_plan(self) -> None: ...


# ---------------------------------------------------------------- the simulator


class Keeper(Observer):
    """Spark in the simulator: whatever site is lost, another one comes. Calls what waits for events."""

    def __init__(self) -> None:
        self.world: SimWorld | None = None
        self.waiting: dict[str, Callable[[], None]] = {}

    def coordinated(self, driver: Any, event: Any, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Happened):
                if action.kind == "site_lost" and self.world is not None:
                    self.world.clock.after(NEW_SITE_US, self.world.add_site)
                do = self.waiting.pop(action.kind, None)
                if do is not None:
                    do()


class Simulated:
    slow_s = 0.0

    def __init__(self) -> None:
        self.keeper = Keeper()

    def start(self, flow: ef.Dataflow, sink: Any, replicas: int = 2) -> None:
        planned = layout(flow.network, sites=SITES)
        cost = CostModel(work_us=300_000.0) if flow.name == "slow" else None
        self.world = self.keeper.world = SimWorld(
            planned, sites=SITES, spares=SPARES, replicas=replicas, seed=7, cost=cost, patience_ms=15_000.0, observers=[self.keeper]
        )
        self.cast = Cast(self.world.coordinator)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        self.world.run_until(reached, PATIENCE_S, what)
        assert reached(), f"the run ended ({self.world.error}) before {what}"

    def at(self, kind: str, do: Callable[[], None]) -> None:
        self.keeper.waiting[kind] = do

    def happened(self, kind: str) -> list[int]:
        return [event.site for _, event in self.world.happened if event.kind == kind]

    def told(self, kind: str) -> list[str]:
        return [event.text for _, event in self.world.happened if event.kind == kind]

    def output(self) -> pa.Table:
        return self.world.output("out")

    def finish(self) -> pa.Table:
        self.world.run_until_quiet()
        return self.output()

    def kill(self, *sites: int, manner: Manner = "executor") -> None:
        for site in sites:
            self.world.kill(site)

    def hang(self, site: int) -> None:
        self.world.hang(site)

    def resume(self, site: int) -> None:
        self.world.go_on(site)

    def hang_for(self, site: int, seconds: float) -> None:
        self.world.hang(site)
        self.world.run_for(seconds)
        self.world.go_on(site)

    def has_left(self, site: int) -> bool:
        return not self.world.sites[site].alive

    def cut_links(self) -> None:
        before = self.world.fired("A3", "resume_link")
        for a in range(SITES):
            for b in range(a + 1, SITES):
                self.world.drop_link(a, b)
        self.until(lambda: self.world.fired("A3", "resume_link") > before, "links come back and ask for what is missing")

    def cut_link(self, a: int, b: int, times: int) -> None:
        for _ in range(times):
            self.world.drop_link(a, b)
            self.world.run_for(0.1)

    def break_control(self, site: int) -> None:
        self.world.drop_control(site, seconds=0.05)
        self.world.run_for(0.5)

    def change_plan(self) -> None:
        self.world.change_plan()


# ---------------------------------------------------------------- Spark


class OnSpark:
    """engine: with four sites and a spare. A new scenario begins when what the last one has killed is replaced."""

    slow_s = 0.3

    def __init__(self, engine: ef.Engine) -> None:
        self.engine = engine
        coordinator = engine._coordinator
        assert coordinator is not None
        self.coordinator = coordinator
        self.run: ef.Run | None = None
        self._wait(lambda: coordinator.ready, "all sites are there again", HEALED_S)
        self._ports = {known.index: known.address for known in coordinator.known()}
        self._pids = {known.index: int(known.hello["pid"]) for known in coordinator.known()}
        self._waiting: dict[str, Callable[[], None]] = {}
        self._stopped: set[int] = set()

    def close(self) -> None:
        """After a scenario: nothing is stopped, nothing runs."""
        for site in list(self._stopped):
            self.resume(site)
        if self.run is not None:
            self.run.stop()

    def start(self, flow: ef.Dataflow, sink: Any, replicas: int = 2) -> None:
        self.sink = sink
        self.run = self.engine.start(flow, replicas=replicas)
        driven = self.run._driven
        self.cast = Cast(driven.machine)
        note = driven.happenings.note

        def noted(event: Happened, *more: Any) -> None:
            note(event, *more)
            do = self._waiting.pop(event.kind, None)
            if do is not None:
                do()

        driven.happenings.note = noted  # type: ignore[method-assign]

    def _wait(self, reached: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        pause = threading.Event()
        while not reached():
            assert time.monotonic() < deadline, f"waited {within_s} s until {what}; {self.coordinator.describe_sites()} {self._story()}"
            pause.wait(0.003)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        run = self.run
        assert run is not None
        self._wait(lambda: reached() or not run.is_active, what)
        assert reached(), f"the run ended ({run.exception()}) before {what}"

    def _story(self) -> list[dict[str, Any]]:
        return self.run.events() if self.run is not None else []

    def at(self, kind: str, do: Callable[[], None]) -> None:
        self._waiting[kind] = do

    def happened(self, kind: str) -> list[int]:
        return [event["site"] for event in self._story() if event["kind"] == kind]

    def told(self, kind: str) -> list[str]:
        return [event["text"] for event in self._story() if event["kind"] == kind]

    def output(self) -> pa.Table:
        table: pa.Table = self.sink.rows()
        return table

    def finish(self) -> pa.Table:
        assert self.run is not None
        assert self.run.await_termination(PATIENCE_S), f"the run has not ended; {self._story()}"
        return self.output()

    # ------------------------------------------------------------ what happens to sites

    def pid(self, site: int) -> int:
        if site not in self._pids:
            known = self.coordinator.sites[site]
            self._pids[site], self._ports[site] = int(known.hello["pid"]), known.address
        return self._pids[site]

    def kill(self, *sites: int, manner: Manner = "executor") -> None:
        kill([process for site in sites for process in victim_of(site, self.pid(site)).processes(manner)])

    def hang(self, site: int) -> None:
        self._stopped.add(site)
        os.kill(self.pid(site), signal.SIGSTOP)

    def resume(self, site: int) -> None:
        self._stopped.discard(site)
        os.kill(self.pid(site), signal.SIGCONT)

    def hang_for(self, site: int, seconds: float) -> None:
        self.hang(site)
        self._wait(lambda: state_of(self.pid(site)) == "T", "it is stopped")
        threading.Event().wait(seconds)
        self.resume(site)

    def has_left(self, site: int) -> bool:
        try:
            socket.create_connection(self._ports[site], 1.0).close()
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            pass
        return False

    def cut_links(self) -> None:
        self._use_scissors(1, None)

    def cut_link(self, a: int, b: int, times: int) -> None:
        self._use_scissors(times, (a, b))

    def _use_scissors(self, times: int, link: tuple[int, int] | None) -> None:
        """From inside, by a dataflow beside the one under test, which has a partition at each of its sites."""
        flow = ef.Dataflow("scissors")
        rows = ef.sources.generator(rate=10 * SITES, rows=SITES * times, partitions=SITES)
        flow.source(rows).where(Scissors(link)).to(ef.sinks.discard())
        scissors = self.engine.start(flow, replicas=1)
        assert scissors.await_termination(PATIENCE_S)
        assert scissors.progress()["rows_out"] == (SITES if link is None else 1) * times, "a site has not cut its links"

    def break_control(self, site: int) -> None:
        line = self.coordinator.sites[site].line
        before = line._channel
        assert before is not None
        self.coordinator.call_soon(lambda: before._sock.shutdown(socket.SHUT_RDWR))
        self.until(lambda: line._channel not in (None, before), "the site has connected again")

    def change_plan(self) -> None:
        assert self.run is not None
        self.run.change_plan()


def state_of(process: int) -> str:
    """One letter: R or S while it runs or waits, T while it is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


class Scissors:
    """Runs in a site: ask its event loop to break one link or all of them. Rows are kept if the site has a link that is meant."""

    def __init__(self, link: tuple[int, int] | None) -> None:
        self.link = link

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        cut = 0
        for frame in sys._current_frames().values():
            while frame is not None:
                if frame.f_code.co_qualname == "Site.serve":
                    site = frame.f_locals["self"]
                    peers: Iterable[int] = site.links.roster.sites
                    if self.link is not None:
                        peers = [self.link[1]] if site.index == self.link[0] else []
                    for peer in peers:
                        site.reactor.call_soon(lambda links=site.links, peer=peer: links.cut(peer))
                        cut += 1
                frame = frame.f_back  # type: ignore[assignment]
        return pa.array([cut > 0] * batch.num_rows, pa.bool_())
