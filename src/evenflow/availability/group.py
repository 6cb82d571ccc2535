"""A group: regions that run a dataflow as one run, each for itself (race.md, W1).

What an epoch's rows depend on has to be the same in all of them: when the epochs begin and how long they are, what the dataflow does, in
how many partitions it does it, and with which version of the program. All of that is a group's identity, and its digest is in every hello.
Nothing here knows where the regions are, or that there are several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.errors import GroupDiffers, QueryError
from evenflow.stream.digest import digest_of_json

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""It is part of the names of files, of objects and of Kafka transactions."""


@dataclass(frozen=True, slots=True)
class Shape:
    """For what a layout is made, whatever a region has. sites: so many. partitions: of each source. writers: of each sink that has any."""

    sites: int
    partitions: Mapping[str, int] = field(default_factory=dict)
    writers: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {"sites": self.sites, **self.partitions, **self.writers}
        wrong = [name for name, count in counts.items() if type(count) is not int or count < 1]
        if wrong:
            raise QueryError(f"the shape of a group has {wrong[0]}={counts[wrong[0]]!r}: it must be a whole number, 1 or more")


@dataclass(frozen=True, slots=True)
class Group:
    """name: the run's id in all regions. origin_us, width_us: when the first epoch begins, microseconds since 1970, and how long each is.
    network: the digest of what the dataflow does. version: of the engine's format of epochs."""

    name: str
    origin_us: int
    width_us: int
    shape: Shape
    network: str
    version: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise QueryError(f"a group's name is letters, digits, dots, dashes and underlines, at most 128, and not {self.name!r:.80}")
        if type(self.width_us) is not int or self.width_us < 1 or type(self.origin_us) is not int:
            raise QueryError(f"group {self.name}: width_us has to be a whole number above 0, and origin_us a whole number")

    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "name": self.name, "origin_us": self.origin_us, "width_us": self.width_us, "sites": self.shape.sites,
            "partitions": dict(sorted(self.shape.partitions.items())), "writers": dict(sorted(self.shape.writers.items())),
            "network": self.network, "version": self.version,
        }  # fmt: skip

    def chained(self) -> str:
        """What shared sinks note with each epoch, short: all that the chain depends on. Not the name, by which they find it, and not the
        version, which they outlive."""
        facts = self.facts()
        shape = digest_of_json({name: facts[name] for name in ("sites", "partitions", "writers")})
        said = {"network": self.network, "origin_us": self.origin_us, "shape": shape, "width_us": self.width_us}
        return json.dumps(said, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """In hexadecimal digits. Equal groups have equal ones, in every process."""
        return digest_of_json(self.facts())

    def epoch_of(self, at_us: int) -> int:
        """The epoch of a row whose partition has reached this time. From 1; what is before the origin is of the first."""
        return max(1, 1 + (at_us - self.origin_us) // self.width_us)

    def demand(self, said: Mapping[str, Any], region: str) -> None:
        """Raise GroupDiffers, naming the first thing that another region says differently."""
        differs(self.facts(), said, region)


@dataclass(frozen=True, slots=True)
class Region:
    """One of a group. place: in the group's list, from 0: so many hedges it leaves shared sinks to those before it. after: it began without
    state behind this epoch, and is silent until it is believed (`availability.silence`); 0: what it makes is exact. peers: by sink, the
    ports of other regions by which that is found out, and tls_ca, who has signed their certificates."""

    group: Group
    place: int = 0
    after: int = 0
    peers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tls_ca: str | None = None


REMEDIES: Final = {
    "name": "read, or start, the dataflow under the name of its group",
    "network": "all regions of a group run the same program; a new one is a new group, or replaces the old one in all regions",
    "version": "all regions of a group run the same version of Evenflow",
}
SHAPE: Final = "origin, width and shape are the group's, whatever a region has: give all regions the same ones"


ANOTHER_CHAIN: Final = "by the numbers of its epochs, rows of this one would count as written; give the group another name"


def check_chain(sink: str, ours: str, noted: str) -> None:
    """Raise GroupDiffers if the last epoch of a shared sink is of another chain. ours, noted: as `Group.chained` says them."""
    said, own = json.loads(noted), json.loads(ours)
    for name in own:
        if said.get(name) != own[name]:
            raise GroupDiffers(f"that has written to sink {sink!r}", name, own[name], said.get(name), ANOTHER_CHAIN)


def differs(ours: Mapping[str, Any], said: Mapping[str, Any], region: str) -> None:
    """Raise GroupDiffers if what a region says of its group is something else. ours: what was said before, or is known."""
    for name in ours:
        if name not in said or said[name] != ours[name]:
            raise GroupDiffers(region, name, ours[name], said.get(name), REMEDIES.get(name, SHAPE))


__all__ = ["Group", "Region", "Shape", "check_chain", "differs"]
