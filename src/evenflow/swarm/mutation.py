"""A bug that is planted for the swarm to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evenflow.swarm.traits import Traits


@dataclass(frozen=True, slots=True)
class Mutation:
    """name: what the bug is. where: module and function in it, such as `site.view:View.live`.
    old, new: the words. regional: it is looked for by seeds of regions only. needs: whether a seed can show it, by what that draws; those
    only look for it. None: all do. It is a function of a module, since processes are given bugs."""

    name: str
    where: str
    old: str
    new: str
    regional: bool = False
    needs: Callable[[Traits], bool] | None = None
