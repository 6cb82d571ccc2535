"""What became of a seed, and which rows of the rules' tables it has fired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.site.events import Event
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


@dataclass
class Verdict:
    """What became of a seed. failure: in one line, None if all is well. fired: how often each row of the tables did, by
    whose it is and its name. happened: how often what a person sees did, by its kind. story: if told."""

    seed: int
    failure: str | None
    about: str = ""
    fired: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    virtual_us: int = 0
    trace: str = ""


class Coverage(Observer):
    """How often each row of the tables fired. fired: by whose it is and its name (`reach.rows`)."""

    def __init__(self, world: SimWorld) -> None:
        self._sites: Counter[str] = Counter()
        self._coordinator: Counter[str] = Counter()
        world.observers = (*world.observers, self)

    @property
    def fired(self) -> Counter[str]:
        by = {"site": self._sites, "coordinator": self._coordinator}
        return Counter({f"{who} {name}": count for who, counts in by.items() for name, count in counts.items()})

    def handled(self, site: SimSite, event: Event) -> None:
        row = site.part.story.last
        assert row is not None
        self._sites[row.name] += 1

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        row = driver.machine.story.last
        assert row is not None
        self._coordinator[row.name] += 1
