"""A run over several generations: what is lost with a cluster or a driver, and how the next one goes on (availability.md, J1, K10).

A `SimWorld` is one generation. Here is what is made of one when it is lost, and of what the next one begins: time, the store with the
journal, and what sinks have stored outlive all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from evenflow.availability.choosing import modes_of
from evenflow.availability.content import Content
from evenflow.availability.entries import Completed
from evenflow.availability.mode import Mode
from evenflow.availability.retained import version_name
from evenflow.availability.standing import Standing, begun_with
from evenflow.coordinator.beginning import begin_at
from evenflow.coordinator.survival import SETTLE_S, SURVIVED
from evenflow.coordinator.versions import versions_since
from evenflow.errors import CheckpointCorrupt
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Version
from evenflow.policy.start import place_of
from evenflow.stream.ids import SiteId
from evenflow.world.sim.lasting import Lasting
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import SimWorld

DARK_US: Final = 50_000
"""How long nobody is there, unless it is said."""


class SimCluster:
    """world: the generation that runs now; worlds: all of them. lasting: what outlives them, with the store of their journal.

    prepare: is called with each generation when it is made, before anything happens in it. given: arguments of each `SimWorld`.
    """

    def __init__(
        self,
        planned: Layout,
        *,
        seed: int = 0,
        store: StoreModel | None = None,
        prepare: Callable[[SimWorld], None] | None = None,
        **given: Any,
    ) -> None:
        self._layout, self._seed, self._prepare, self._given = planned, seed, prepare, given
        self.lasting = Lasting(planned.sinks)
        self.store = SimStore(self.lasting.clock, store or StoreModel(), Random(f"store of seed {seed}"))
        self.worlds: list[SimWorld] = []
        self._begin({}, 0)

    @property
    def world(self) -> SimWorld:
        return self.worlds[-1]

    @property
    def over(self) -> bool:
        """The journal says so: there is nothing to go on with."""
        return self.store.standing().ended is not None

    def lose_all(self) -> None:
        """Every process of the run is gone, at once."""
        self.world.lose_all()

    def kill_driver(self) -> None:
        """The driver is gone. Its sites go on for a while, and nobody hears them."""
        self.world.kill_driver()

    def try_older(self, **changed: Any) -> SimWorld:
        """The run has ended because the checkpoint that it began with cannot be read: begin with the one before, or with nothing (K9)."""
        self.pass_over()
        self.lose_all()
        return self.restart(**changed)

    def pass_over(self) -> None:
        """The checkpoint that the run has begun with cannot be read: the next driver does without it. If there is no other, it looks again
        at those whose objects are what they were: it was the store that had answered wrongly."""
        assert isinstance(self.world.error, CheckpointCorrupt), f"the run has ended with {self.world.error}"
        store = self.store
        unreadable = store.standing().checkpoints[-1]
        store.unreadable.add(unreadable.place)
        try:
            store.standing()
        except CheckpointCorrupt:
            made = [entry.matter for entry in store.entries() if isinstance(entry.matter, Completed)]
            store.unreadable -= {each.place for each in made if store.is_whole(each)}

    def go_on_in_place(self, **changed: Any) -> SimWorld:
        """All replicas of something are lost, and the same driver begins the next generation (K14). Sites that have outlived the one before
        go on with what they had of it until they hear that it is over."""
        assert isinstance(self.world.error, SURVIVED), f"the run has ended with {self.world.error}"
        if isinstance(self.world.error, CheckpointCorrupt):
            self.pass_over()
        self.kill_driver()
        return self.restart(dark_us=int(SETTLE_S[0] * 1e6), **changed)

    def restart(self, *, dark_us: int = DARK_US, ahead_us: int = 0, **changed: Any) -> SimWorld:
        """Another driver goes on after a while. ahead_us: how far its wall clock is ahead of the first one's. changed: arguments of its
        `SimWorld`, such as sites and replicas. Returns the world of before if the journal's last word was under way and has come: then
        the run is `over`, as drivers see before they begin."""
        assert self.world.lost, "there is one driver at a time"
        reached: list[bool] = []
        self.lasting.clock.after(dark_us, lambda: reached.append(True))
        while not reached:
            self.lasting.clock.step()
        before = self.world
        if self.over:
            return before
        world = self._begin(changed, ahead_us)
        world.quotas, world.sources_may_end, world.end_early = before.quotas, before.sources_may_end, before.end_early
        return world

    def _program(self, standing: Standing) -> tuple[Layout, dict[int, Version]]:
        """What acts at the newest checkpoint's epoch, and the versions behind that, as far as something is kept of them."""
        contents = begun_with(standing.contents or [Content(1)], standing.durable)
        kept = {version_name(""): self._layout} | self.store.programs
        were = [(content, kept[name]) for content in contents if (name := version_name(content.program)) in kept]
        planned = were[0][1] if were else self._layout
        return planned, versions_since(planned, were)

    def _begin(self, changed: dict[str, Any], ahead_us: int) -> SimWorld:
        self._given |= changed
        given = self._given
        sites, replicas = given["sites"], given.get("replicas", 1)
        place = place_of(given.get("first_placement", "home"), self._layout)
        modes = modes_of(self._layout, given.get("availability", Mode.PAIRS), sites, located=True)
        there, scheme = tuple(map(SiteId, range(sites))), given.get("placement", "mirrored")
        standing = self.store.standing()
        planned, versions = self._program(standing)
        beginning = begin_at(standing, planned, there, replicas, scheme, place, modes, versions)
        self.lasting.begin(self.store.model.durability.sinks_run("sim", standing.generation + 1), beginning.epoch)
        world = SimWorld(
            planned,
            plan=beginning.plans[-1],
            beginning=beginning,
            lasting=self.lasting,
            store=self.store,
            ahead_us=ahead_us,
            seed=self._seed + 1_000_000 * len(self.worlds),
            **given,
        )
        self.worlds.append(world)
        if self._prepare is not None:
            self._prepare(world)
        return world
