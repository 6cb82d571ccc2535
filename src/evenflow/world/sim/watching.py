"""What a simulated run looks like to those who watch it: scenes and readings, as a running engine tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene, SceneSite, SiteState
from evenflow.monitor.watching import Gauges, PartCounts, Watched, Watching
from evenflow.query.network import Network
from evenflow.statistics.growing import Growing
from evenflow.statistics.histogram import Histogram
from evenflow.statistics.window import SiteWindow
from evenflow.statistics.wire import names_of, producers_of
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

DEAD_SHOWN_US: Final = 20_000_000
BEGAN_US: Final = 1_767_225_600_000_000
"""When virtual time begins for those who watch: the first of January 2026."""


class SimWatch:
    """Watches one `SimWorld`. network: as the user drew it, or None. engine, run: what they are called."""

    def __init__(self, world: SimWorld, network: Network | None = None, *, engine: str = "simulated", run: str = "run-1") -> None:
        self._world, self._network, self._run = world, network, run
        self._watching = Watching(engine, "simulator")
        self._growing = Growing(names_of(world.layout), producers_of(world.layout))
        self._seen = world.statistics.count
        self._latency = Histogram()
        self._latencies, self._looked_us = 0, world.now_us
        self._gone_us: dict[int, int] = {}

    def look(self) -> tuple[Scene, Reading]:
        """The scene and its next reading, as of now."""
        world, machine = self._world, self._world.coordinator
        world.collect()
        for window in world.statistics.windows_since(self._seen):
            assert isinstance(window, SiteWindow)
            self._growing.add(window)
        here = [site for site in world.sites if site.alive and not site.hung]
        for site in here:
            self._growing.stand(site.index, site.part.counting.stands())
        for site in here:
            self._growing.waited(site.part.counting.waited(self._looked_us, world.now_us))
        self._looked_us = world.now_us
        self._seen = world.statistics.count
        for latency_us in world.latencies_us[self._latencies :]:
            self._latency.add(latency_us)
        self._latencies = len(world.latencies_us)
        told = [self._site(site) for site in world.sites]
        watched = Watched(
            run=self._run,
            planned=world.layout,
            network=self._network,
            plan=machine.plan,
            membership=machine.membership,
            active=not world.ended,
            replicas=world.replicas,
            redundancy=machine.redundancy(),
            live=machine.view.active(),
            elapsed_us=world.now_us,
            growing=self._growing.now(),
            slots=self._growing.slots,
            parts={site.index: counts_of(site) for site in world.sites},
            latency=self._latency.counts,
            events_since=lambda told: ([event_of(at_us, each) for at_us, each in world.happened[told:]], len(world.happened)),
            dropped=machine.ledger.totals(),
        )
        return self._watching.look(BEGAN_US + world.now_us, [each for each in told if each is not None], [watched])

    def _site(self, site: SimSite) -> tuple[SceneSite, Gauges] | None:
        world = self._world
        fleet = world.driver.fleet
        state: SiteState = "live"
        if site.index not in fleet.sites:
            gone_us = self._gone_us.setdefault(site.index, world.now_us)
            if world.now_us - gone_us > DEAD_SHOWN_US:
                return None
            state = "left" if any(h.kind == "site_left" and h.site == site.index for _, h in world.happened) else "dead"
        elif site.index in fleet.leaving:
            state = "leaving"
        known = SceneSite(site.index, str(site.index), f"host-{site.index}", 1000 + site.index, state)
        memory = (64 << 20) + site.part.state_bytes()
        return known, Gauges(site.busy_us, memory, 0, rss_bytes=memory, pss_bytes=0, refused=0)


def counts_of(site: SimSite) -> PartCounts:
    part = site.part
    return PartCounts(
        part.counters.rows_in, part.counters.rows_out, part.late_rows(), part.counters.rows_failed, part.state_bytes(), part.buffered_bytes,
        part.finished, part.epochs_in_flight, tuple(part.counters.taken.items()), part.waiting(), part.late_by_box(), part.failed_rows(),
        part.counters.sections_out,
    )  # fmt: skip


def event_of(at_us: int, happened: Any) -> dict[str, Any]:
    """As in `Run.events`."""
    told = {"at_s": at_us / 1e6, "kind": str(happened.kind), "site": int(happened.site), "text": happened.text}
    return {**told, **happened.details}


def watched(world: SimWorld, network: Network | None = None, *, seconds: float, every_s: float = 0.5) -> Iterator[Scene | Reading]:
    """Let virtual time pass, and tell what a reader of the engine's stream is told: a scene when there is another, and a reading each
    `every_s`. It ends with the run."""
    watch, told, left_s = SimWatch(world, network), 0, seconds
    while left_s > 0 and not world.ended:
        world.run_for(min(every_s, left_s))
        left_s -= every_s
        scene, reading = watch.look()
        if scene.number != told:
            yield scene
        told = scene.number
        yield reading
