"""The flow that shedding is asked about: what comes, what a row costs where, and what an answer is worth (BO 4, HW 2.3).

Sources and boxes are joined by arcs; an arc carries `selectivity` rows per row into the box that it leaves. Every arc is a place where
rows may be left out. Rows come in classes, which differ in worth alone and stay what they are on their way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from evenflow.errors import PolicyError
from evenflow.stream.curve import Curve

ONE_CLASS: Final = (1.0,)
LINEAR: Final = Curve(((0.0, 0.0), (1.0, 1.0)))

Drops = Literal["any", "none"]
"""none: whatever comes must go on, because what reads it can do without no row."""


@dataclass(frozen=True, slots=True)
class Arc:
    """From a source or a box to a box or an output. selectivity: rows on it per row into what it leaves; of a source 1."""

    name: str
    up: str
    down: str
    selectivity: float = 1.0
    drops: Drops = "any"


@dataclass(frozen=True, slots=True)
class Source:
    """shares: of its rows in each class, 1 in all. read_s: by site, CPU seconds per row *offered* there, which nothing saves."""

    shares: tuple[float, ...] = ONE_CLASS
    read_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """worth: of a row of each class. loss: utility over the share of all worth that is delivered.

    protected: nothing that feeds it is left out. per_row: the paper's measure, worth of what is delivered per second; otherwise an output
    counts by its weight alone, however many rows it has.
    """

    weight: float = 1.0
    loss: Curve = LINEAR
    worth: tuple[float, ...] = ONE_CLASS
    protected: bool = False
    per_row: bool = False


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """sources, outputs by name. boxes: by name, CPU seconds per row into the box, by site. capacity: CPU seconds per second, by site.

    Raises PolicyError for arcs that lead nowhere or in circles, and for numbers that cannot be.
    """

    sources: Mapping[str, Source]
    boxes: Mapping[str, Mapping[int, float]]
    arcs: tuple[Arc, ...]
    outputs: Mapping[str, Output]
    capacity: Mapping[int, float]
    order: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _ordered(self))
        counts = {len(source.shares) for source in self.sources.values()} | {len(output.worth) for output in self.outputs.values()}
        if len(counts) > 1:
            raise PolicyError(f"shedding: sources and outputs have {sorted(counts)} classes of rows; all have the same ones")
        for site, capacity in self.capacity.items():
            _positive(f"capacity of site {site}", capacity, zero=False)
        for name, cost in self.boxes.items():
            for site, each in cost.items():
                _positive(f"cost of box {name!r}", each)
                if site not in self.capacity:
                    raise PolicyError(f"shedding: box {name!r} is at site {site}, which has no capacity; name it among the sites")
        for name, source in self.sources.items():
            for share in source.shares:
                _positive(f"share of source {name!r}", share)
            for site, each in source.read_s.items():
                _positive(f"read_s of source {name!r}", each)
                if site not in self.capacity:
                    raise PolicyError(f"shedding: source {name!r} is read at site {site}, which has no capacity; name it among the sites")
        for name, output in self.outputs.items():
            _positive(f"weight of output {name!r}", output.weight)
            for worth in output.worth:
                _positive(f"worth of a row of output {name!r}", worth)
        for arc in self.arcs:
            _positive(f"selectivity of arc {arc.name!r}", arc.selectivity)

    @property
    def classes(self) -> int:
        """How many classes rows come in."""
        found = [len(source.shares) for source in self.sources.values()] + [len(output.worth) for output in self.outputs.values()]
        return found[0] if found else 1

    @property
    def sites(self) -> tuple[int, ...]:
        return tuple(sorted(self.capacity))

    def into(self, name: str) -> tuple[int, ...]:
        """Arcs into a box or an output, by place."""
        return tuple(place for place, arc in enumerate(self.arcs) if arc.down == name)

    def protected(self) -> frozenset[int]:
        """Arcs on which nothing may be left out: those that feed a protected output, and those that say so."""
        feeding = {name for name, output in self.outputs.items() if output.protected}
        found = set()
        for name in reversed((*self.order, *self.outputs)):
            for place in self.into(name):
                if name in feeding:
                    feeding.add(self.arcs[place].up)
                    found.add(place)
        return frozenset(found | {place for place, arc in enumerate(self.arcs) if arc.drops == "none"})

    def flowing(self, rates: Mapping[str, float]) -> list[tuple[float, ...]]:
        """Rows per second of each class on each arc if nothing is left out. Raises PolicyError for rates that cannot be."""
        into: dict[str, tuple[float, ...]] = {}
        for name, source in self.sources.items():
            rate = rates.get(name, 0.0)
            _positive(f"rate of source {name!r}", rate)
            into[name] = tuple(rate * share for share in source.shares)
        if unknown := sorted(rates.keys() - self.sources.keys()):
            raise PolicyError(f"shedding: there is a rate for {unknown[0]!r}, which is no source; there are {', '.join(self.sources)}")
        found: list[tuple[float, ...]] = [()] * len(self.arcs)
        for name in self.order:
            if name in self.boxes:
                given = [found[place] for place in self.into(name)]
                into[name] = tuple(sum(each) for each in zip(*given)) if given else (0.0,) * self.classes
            for place, arc in self._out_of(name):
                found[place] = tuple(arc.selectivity * rate for rate in into[name])
        return found

    def _out_of(self, name: str) -> Iterator[tuple[int, Arc]]:
        return ((place, arc) for place, arc in enumerate(self.arcs) if arc.up == name)


def _positive(what: str, number: float, *, zero: bool = True) -> None:
    if not (0 <= number < float("inf")) or (number == 0 and not zero):
        raise PolicyError(f"shedding: {what} is {number!r}; it must be a number {'of at least' if zero else 'above'} 0")


def _ordered(network: FlowNetwork) -> tuple[str, ...]:
    """Sources and boxes, so that each comes after what feeds it."""
    up = set(network.sources) | set(network.boxes)
    down = set(network.boxes) | set(network.outputs)
    for arc in network.arcs:
        if arc.up not in up or arc.down not in down:
            unknown = arc.up if arc.up not in up else arc.down
            raise PolicyError(f"shedding: arc {arc.name!r} is to join {arc.up!r} and {arc.down!r}, and there is no {unknown!r} for it")
    placed = list(network.sources)
    waiting = list(network.boxes)
    while waiting:
        done = set(placed)
        ready = next((b for b in waiting if all(arc.up in done for arc in network.arcs if arc.down == b)), None)
        if ready is None:
            raise PolicyError(f"shedding: the boxes {', '.join(map(repr, waiting))} form a cycle")
        placed.append(ready)
        waiting.remove(ready)
    return tuple(placed)


__all__ = ["LINEAR", "ONE_CLASS", "Arc", "FlowNetwork", "Output", "Source"]
