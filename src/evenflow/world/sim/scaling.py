"""Sites of a simulated run come and go by themselves: what `Engine(autoscale=...)` does, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenflow.coordinator.events import MovesRequested
from evenflow.coordinator.scaling import Facts, Scaling
from evenflow.errors import OperationRefused
from evenflow.policy.scaling import Bounds, Times
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from evenflow.world.sim.removal import Removal

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld

LOOK_US: Final = 1_000_000
RUN: Final = 0


class SimScaling:
    """It looks every second until the run is over. start_us: what a site takes to come. slots: executors that there are. wanted: (when,
    how many, why) of each change of mind. overloaded: why even the most sites are too few, each time. waits: why fewer sites are there than
    there shall be, "" if that is not so."""

    def __init__(self, world: SimWorld, bounds: Bounds, times: Times, *, start_us: int = 5_000_000, slots: int | None = None) -> None:
        self.world, self.scaling = world, Scaling(bounds, times, len(world.driver.fleet.sites))
        self.wanted: list[tuple[int, int, str]] = []
        self.overloaded: list[str] = []
        self.waits = ""
        self._start_us, self._slots = start_us, bounds.most if slots is None else slots
        self._coming = 0
        self._removal: Removal | None = None
        world.clock.after(LOOK_US, self._look)

    def _look(self) -> None:
        world = self.world
        if world.ended:
            return
        world.clock.after(LOOK_US, self._look)
        world.driver.soon(self._decide)

    def _decide(self) -> None:
        world, scaling = self.world, self.scaling
        machine, fleet = world.coordinator, world.driver.fleet
        leaving = len(self._removal.left) if self._removal is not None else 0
        joined = all(site in machine.sites for site in fleet.sites)
        before, there = scaling.changes, len(fleet.sites) - len(fleet.leaving)
        changing = bool(self._coming) or bool(leaving) or not joined
        facts = Facts.of(machine)
        wanted = scaling.look({RUN: (facts, self._shown())}, there, world.now_us, changing=changing, leaving=leaving)
        if scaling.overloaded and self.overloaded[-1:] != [scaling.overloaded]:
            self.overloaded.append(scaling.overloaded)
        if scaling.changes > before:
            self.wanted.append((world.now_us, wanted.sites, wanted.text))
        if leaving and wanted.sites > there:
            assert self._removal is not None
            self._removal.call_off()
        elif not changing and wanted.sites > there:
            room = min(wanted.sites - there, self._slots - there)
            self.waits = f"{wanted.sites} sites are wanted, and there is room for {self._slots}" if room < wanted.sites - there else ""
            self._coming += max(0, room)
            for _ in range(room):
                world.clock.after(self._start_us, self._come)
        elif not changing and wanted.sites < there:
            try:
                self._removal = world.remove_sites(self._least())
            except OperationRefused as error:
                self.waits = str(error)
        if moves := scaling.settle(RUN, facts):
            world.driver.coordinate(MovesRequested(moves))

    def _shown(self) -> Statistics:
        """What sites have done since the last look, rounds of the run or not."""
        windows: list[SiteWindow] = []
        for site in self.world.sites:
            reporting = site.reporting
            if site.alive and not site.hung:
                windows += [*(reporting.kept or ()), reporting.window()]
                reporting.kept = []
        for window in windows:
            self.world.statistics.add(window)
        return Statistics.of(windows)

    def _come(self) -> None:
        self._coming -= 1
        if not self.world.ended:
            self.world.add_site()

    def _least(self) -> int:
        load = self.world.coordinator.view.load()
        return min(self.world.driver.present, key=lambda site: (load[site], -site))  # type: ignore[index]
