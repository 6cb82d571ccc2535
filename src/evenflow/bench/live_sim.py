"""A simulated run that goes on as time does: what the page of an engine shows in tests and in `bench dashboard`, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

from evenflow.errors import EvenflowError, OperationRefused
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.query.network import Network
from evenflow.site.hosted import Hosted
from evenflow.statistics.profile import Profile, check_seconds
from evenflow.world.sampling import Sampling, box_mark
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.watching import SimWatch
from evenflow.world.sim.world import SimWorld

EVERY_S: Final = 0.5
PATIENCE_S: Final = 60.0
SITE_CODES: Final = (SimSite._handle.__code__, SimSite._flush.__code__, SimSite._work.__code__)

Take = Callable[[Scene | Reading], None]
Wish = Callable[[SimWorld], Callable[[SimWorld], bool]]
"""Done to the world at once; what it returns says whether it is over."""


def site_mark(frame: FrameType) -> str:
    """Behind what a simulated site does: which one."""
    return f"site {frame.f_locals['self'].index}"


@dataclass(slots=True)
class _Wished:
    """A wish on its way. over: it is done, or was refused with `error`."""

    wish: Wish
    over: threading.Event = field(default_factory=threading.Event)
    error: EvenflowError | None = None
    _is_over: Callable[[SimWorld], bool] | None = None

    def begin(self, world: SimWorld) -> bool:
        try:
            self._is_over = self.wish(world)
        except EvenflowError as error:
            self.error = error
            self.over.set()
        return self.error is None

    def is_done(self, world: SimWorld) -> bool:
        if self._is_over is not None and self._is_over(world):
            self.over.set()
        return self.over.is_set()


class LiveSim:
    """One run in the simulator. every_s: of the wall clock, from reading to reading; step_s: of its own."""

    def __init__(self, world: SimWorld, network: Network, *, every_s: float = EVERY_S, step_s: float | None = None) -> None:
        self.world = world
        self._watch = SimWatch(world, network)
        self._every_s, self._step_s = every_s, every_s if step_s is None else step_s
        self._wishes: SimpleQueue[_Wished] = SimpleQueue()
        self._closed = threading.Event()
        self.readings = 0

    def run(self, take: Take) -> None:
        """Tell scenes and readings until it is closed."""
        under_way: list[_Wished] = []
        known: Scene | None = None
        due = time.monotonic()
        while not self._closed.is_set():
            under_way += [wished for wished in self._new() if wished.begin(self.world)]
            self.world.run_for(self._step_s)
            under_way = [wished for wished in under_way if not wished.is_done(self.world)]
            scene, reading = self._watch.look()
            if scene is not known:
                take(scene)
                known = scene
            take(reading)
            self.readings += 1
            due = max(due + self._every_s, time.monotonic() - self._every_s)
            self._closed.wait(max(0.0, due - time.monotonic()))

    def _new(self) -> Iterator[_Wished]:
        while True:
            try:
                yield self._wishes.get_nowait()
            except Empty:
                return

    def close(self) -> None:
        self._closed.set()

    def do(self, wish: Wish, patience_s: float = PATIENCE_S) -> None:
        """Do something to the world between two steps, and wait until it is over."""
        wished = _Wished(wish)
        self._wishes.put(wished)
        if not wished.over.wait(patience_s):
            raise OperationRefused("it is not over in time")
        if wished.error is not None:
            raise wished.error

    def kill(self, site: int) -> None:
        def wish(world: SimWorld) -> Callable[[SimWorld], bool]:
            world.kill(site)
            return lambda world: True

        self.do(wish)

    def ask(self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        """Operations that a simulated run can carry out: sites, drain, add-sites, profile. Others are refused."""
        if name == "sites":
            there = self.world.driver.fleet.sites
            return {"engine": "simulated", "sites": [{"site": int(site)} for site in there], "runs": []}
        if name == "drain":
            return self._drain(int(arguments["site"]), say)
        if name == "kill":
            self.kill(int(arguments["site"]))
            return {"killed": {"site": int(arguments["site"])}}
        if name == "add-sites":
            return {"added": [self._add() for _ in range(int(arguments["count"]))]}
        if name == "profile":
            return self._profile(int(arguments["site"]), float(arguments["seconds"])).to_json()
        raise OperationRefused(f"a simulated run cannot do this: {name}")

    def _drain(self, site: int, say: Callable[[str], None]) -> Mapping[str, Any]:
        if site not in self.world.driver.fleet.sites:
            raise OperationRefused(f"there is no site {site}")
        say(f"site {site} is being emptied")

        def wish(world: SimWorld) -> Callable[[SimWorld], bool]:
            removal = world.remove_sites(site)
            return lambda world: not removal.left

        self.do(wish)
        return {"left": [{"site": site, "lost": False}]}

    def _profile(self, site: int, seconds: float) -> Profile:
        """All sites are simulated in one thread: only what is done for this one counts. Its boxes really run; what it waits for is not
        waited for here, so CPU is true and time is not."""
        if site not in self.world.driver.fleet.sites:
            raise OperationRefused(f"there is no site {site}")
        check_seconds(seconds)
        answers: SimpleQueue[Profile] = SimpleQueue()
        marks = {Hosted._run_steps.__code__: box_mark, **dict.fromkeys(SITE_CODES, site_mark)}
        Sampling(site, seconds, answers.put, marks, inside=f"site {site}")
        return answers.get(timeout=seconds + PATIENCE_S)

    def _add(self) -> int:
        added: list[int] = []

        def wish(world: SimWorld) -> Callable[[SimWorld], bool]:
            added.append(world.add_site())
            return lambda world: True

        self.do(wish)
        return added[0]
