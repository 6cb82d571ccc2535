"""What generations of an engine's runs begin with: the first one in a process, and those after losses that the driver survives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenflow.coordinator.beginning import NO_VERSIONS, begin_at
from evenflow.coordinator.versions import versions_since
from evenflow.errors import ClusterError, LostBeforeStart
from evenflow.plan.placement import Place, Scheme, first_membership, on_hosts
from evenflow.policy.shedding.live import way_of
from evenflow.policy.start import place_of
from evenflow.site.options import FlowOptions
from evenflow.site.replaying import Beginning
from evenflow.stream.ids import SiteId
from evenflow.world.binding import bind_run
from evenflow.world.spark.driver.driver_loop import STOPPED, DriverLoop
from evenflow.world.spark.driver.in_place import SINKS_S, Means
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.driver.program import pack, pack_version
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.taking import Found, Own, Taken, begin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenflow.availability.group import Region
    from evenflow.availability.mode import Modes
    from evenflow.availability.standing import Standing
    from evenflow.plan.layout import Layout
    from evenflow.plan.membership import Membership
    from evenflow.plan.plan import Plan, Version

TAKE_OVER_TRIES: Final = 100
"""A driver that is to be replaced may append between the reading of its journal and the next entry."""


def wait_ms(milliseconds: int) -> None:
    """Sleep, at a site, beside its event loop."""
    time.sleep(milliseconds / 1000)


class Begins:
    """For an engine."""

    options: EngineOptions
    _flow_options: FlowOptions
    sites: int
    spares: int
    placement: Scheme
    _lock: threading.RLock
    _coordinator: DriverLoop | None
    _numbers: int
    _stopped: bool

    @property
    def sites_now(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _there(self) -> DriverLoop:
        """Raises ClusterError if the engine has been stopped."""
        coordinator = self._coordinator
        if coordinator is None or self._stopped:
            raise ClusterError(STOPPED)
        return coordinator

    def _place(self, planned: Layout) -> Place:
        return place_of(self.options.first_placement, planned)

    def _staying(self) -> tuple[SiteId, ...]:
        """The sites that are there, and are not being drained."""
        leaving = self._there().fleet.leaving
        return tuple(SiteId(site) for site in self.sites_now if site not in leaving)

    def _choose(self, least: int, replicas: int, before: Sequence[SiteId] = ()) -> tuple[tuple[SiteId, ...], tuple[SiteId, ...]]:
        """(sites, those of them that host something from the start). Those that stand for each other in a failure are on different hosts if
        they can be. before: that were there a while ago, which count if fewer than `least` are left: the run hears of whom it has lost.
        Raises LostBeforeStart if there are none of these either."""
        sites = self._staying()
        if len(sites) < least:
            if not before:
                raise LostBeforeStart("a site was lost while the dataflow was being started: start it again")
            sites = tuple(before)
        hosts = {site: self._there().host_of(site) for site in sites}
        return sites, tuple(on_hosts(sites[: self.sites], hosts, replicas, self.placement))

    def _begin(
        self, found: Found, chosen: Sequence[SiteId], replicas: int, modes: Modes, tries: int
    ) -> tuple[Taken, Callable[[Sequence[SiteId]], Beginning]]:
        """Take the location over. What cannot be, for these sites, is an error before anything is written. Returns how the run begins on
        such sites as there are by then: it takes as long as the store does, and nothing else of the engine must wait for that."""
        place = self._place(found.layout)
        begins = partial(begin_at, layout=found.layout, replicas=replicas, scheme=self.placement, place=place, modes=modes)
        begins(found.standing, sites=chosen, versions=_versions(found, found.standing))
        taken = begin(found, tries)  # What another driver has appended meanwhile counts, too.
        versions = _versions(found, taken.standing)
        return taken, lambda sites: begins(taken.standing, sites=sites, versions=versions)

    def _loop(
        self,
        run_id: str,
        planned: Layout,
        plan: Plan,
        membership: Membership,
        program: bytes,
        beginning: Beginning,
        taken: Taken | None,
        **more: Any,
    ) -> RunLoop:
        """One generation of a run. more: see RunLoop."""
        coordinator, options = self._there(), self.options
        self._numbers += 1
        return RunLoop(
            self._numbers, run_id, planned, plan, membership, program, coordinator, options.patience_s * 1000, options.balance,
            options.balance_parameters, self.spares, beginning, taken, checkpoint_s=options.checkpoint_s, lease_s=options.lease_s,
            shedding=way_of(options.shedding), **more,
        )  # fmt: skip

    # ------------------------------------------------------------ losses that the driver survives

    def _packed(self, planned: Layout, sinks_run: str) -> bytes:
        """What sites need of the dataflow. sinks_run: by which run sinks know what they give them."""
        return pack(bind_run(planned, sinks_run, wait_ms), self._flow_options)

    def _means(self, found: Found, replicas: int, program: bytes, modes: Modes, region: Region | None) -> Means | None:
        """How the run goes on when all replicas of some partitions are lost; None if Spark's readers are bound to its first generation."""
        if any(sink.where == "spark" for sink in found.layout.sinks.values()):
            return None
        return Means(
            sites=self._sites_to_use,
            wanted=self.sites,
            replicas=replicas,
            patience_s=self.options.patience_s,
            place_timeout_s=self.options.place_timeout_s,
            found=found,
            begin=partial(self._begin_again, replicas, program, modes, region),
        )

    def _sites_to_use(self) -> tuple[SiteId, ...]:
        return () if self._stopped else self._staying()  # Who waits for some hears at once that his run is stopped, and why.

    def _begin_again(
        self,
        replicas: int,
        program: bytes,
        modes: Modes,
        region: Region | None,
        before: RunLoop,
        sites: tuple[SiteId, ...],
        fresh: Found,
        begun: list[Own],
    ) -> RunLoop | None:
        """The generation after `before` in this process. See `Means`."""
        if fresh.ended:
            return None
        replicas = min(replicas, len(sites))
        with self._lock:
            _, chosen = self._choose(len(sites), replicas, sites)
        taken, begins = self._begin(fresh, chosen, replicas, modes, TAKE_OVER_TRIES)
        begun.append((taken.standing.generation, taken.standing.nonce))
        if not taken.standing.precise:  # To sinks this is another run, whose epochs they do not have.
            before.close_sinks()
            for outlet in before.outlets.values():
                outlet.join(SINKS_S)
            program = self._packed(fresh.layout, taken.standing.sinks_run)
        with self._lock:
            sites, chosen = self._choose(min(self.sites, len(sites)), replicas, sites)
            beginning = begins(chosen)
            plan = beginning.plans[-1]
            membership = first_membership(fresh.layout, plan, sites)
            return self._loop(fresh.run_id, fresh.layout, plan, membership, program, beginning, taken, before=before, region=region)


def _versions(found: Found, standing: Standing) -> Mapping[int, Version]:
    """What the run was replaced by, as sites get it. Raises LocationError."""
    if found.programs is None:
        return NO_VERSIONS
    were = found.programs.acting(standing)
    by = {content.version: of for content, of in were}
    return {number: pack_version(version, by[number]) for number, version in versions_since(found.layout, were).items()}
