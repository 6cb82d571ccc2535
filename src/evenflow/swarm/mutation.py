"""A bug that is planted for the swarm to find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """name: what the bug is. where: module and function in it, such as `site.view:View.live`.
    old, new: the words. regional: it is looked for by seeds of regions only."""

    name: str
    where: str
    old: str
    new: str
    regional: bool = False
