"""What runs between replicas: every replica of a producer may feed every replica of its consumers, and each such leg has a cost.

The cost of a leg is its rate times its latency, a bandwidth-delay product: what stays longer in the network uses more of it (HW 5.4.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evenflow.errors import PolicyError
from evenflow.stream.arrays import Floats

Arrow = tuple[str, str]
"""Producer and consumer, by name: operators, sources, applications."""

Deployment = Mapping[str, tuple[int, ...]]
"""By name, the sites of its replicas, oldest first. Sources and applications have one site each."""


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One replica of an operator; or a source, or an application, which have no other."""

    name: str
    site: int


@dataclass(frozen=True, slots=True)
class Leg:
    """One way of a stream: from one replica of its producer to one of its consumer. cost: rate times latency, ms x rows/s, >= 0.

    weight: what it has been worth to its consumer, >= 0: for each epoch 1 / place, where the first of the legs to deliver has place 1.
    """

    producer: Replica
    consumer: Replica
    cost: float
    weight: float = 1.0

    @property
    def arrow(self) -> Arrow:
        return self.producer.name, self.consumer.name


def legs_of(deployed: Deployment, rate: Mapping[Arrow, float], latency: Floats) -> tuple[Leg, ...]:
    """All legs that there can be, by arrow. latency: float (sites, sites), ms, from a row's site to a column's. Raises PolicyError where an
    arrow names what is not deployed."""
    for arrow in rate:
        if missing := [name for name in arrow if not deployed.get(name)]:
            raise PolicyError(f"{missing[0]} is nowhere, and the arrow from {arrow[0]} to {arrow[1]} needs it")
    return tuple(
        Leg(Replica(producer, at), Replica(consumer, to), per_s * float(latency[at, to]))
        for (producer, consumer), per_s in rate.items()
        for at in deployed[producer]
        for to in deployed[consumer]
    )


def cost(legs: Sequence[Leg]) -> float:
    return sum(leg.cost for leg in legs)


def weighed(legs: Sequence[Leg], delays: Mapping[tuple[Replica, Replica], float]) -> tuple[Leg, ...]:
    """The legs after one more epoch, which came so late by each: the first of an input's legs gets 1, the second 1/2, the third 1/3
    (HW 5.4.2). Equally late legs have the place of the first of them. A leg that is not in `delays` brought nothing."""
    of: dict[tuple[str, Replica], list[float]] = {}
    for leg in legs:
        if (leg.producer, leg.consumer) in delays:
            of.setdefault((leg.producer.name, leg.consumer), []).append(delays[leg.producer, leg.consumer])
    found = []
    for leg in legs:
        late = delays.get((leg.producer, leg.consumer))
        if late is None:
            found.append(leg)
            continue
        place = 1 + sum(other < late for other in of[leg.producer.name, leg.consumer])
        found.append(replace(leg, weight=leg.weight + 1 / place))
    return tuple(found)
