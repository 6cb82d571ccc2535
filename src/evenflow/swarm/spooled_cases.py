"""The dataflow of `pushed_cases` at a location: Spark writes its batches there while the run goes on, sites read them, and what no
checkpoint that is kept needs goes (decision 193). So its run may be lost like any other, and no row is late whose batch is not whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.availability.retained import RETAINED
from evenflow.sources.source import Reader, Source
from evenflow.sources.spooled import Spool, SpooledReader
from evenflow.store.objects import MOST_BYTES
from evenflow.swarm.cases import SCHEMA, Case
from evenflow.swarm.pushed_cases import Batches, pushed
from evenflow.world.sim.world import SimWorld

SPOOLED: Final = 0.5
"""So many of the runs with pushed rows that have a journal have them at the location instead."""
WRITES_US: Final = (500, 20_000)
"""Least and greatest time from one batch to the next."""


class Shelf:
    """A store in memory, whose objects outlive all that read them."""

    url = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> None:
        if name in self.objects:
            raise FileExistsError(name)
        self.objects[name] = data

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def sizes(self, prefix: str = "") -> dict[str, int]:
        return {name: len(self.objects[name]) for name in self.names(prefix)}

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.objects if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        return 0


@dataclass(frozen=True)
class ShelvedSource(Source):
    """What `SpooledSource` is, at a store in memory."""

    kind: ClassVar[str] = "shelved"
    uncut: ClassVar[str] = "which batches there are depends on who writes them"
    shelf: Shelf = field(default_factory=Shelf, compare=False, repr=False)

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def batched(self) -> bool:
        return True

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> Reader:
        return SpooledReader(Spool(self.shelf, "in"))


class Writing:
    """Spark, which writes batch after batch, whichever generation of the run is there. At the end it says that there are no more."""

    def __init__(self, shelf: Shelf, batches: Batches, random: Random) -> None:
        self._spool, self._batches, self._random = Spool(shelf, "in"), batches, random
        self._written, self._over = 0, False

    def watch(self, world: SimWorld) -> None:
        world.clock.after(self._random.randint(*WRITES_US), lambda: self._go_on(world))

    def _go_on(self, world: SimWorld) -> None:
        if world.ended or world.lost or self._over:
            return
        if self._written < len(self._batches):
            tasks = self._batches[self._written]
            pieces = [piece for at, rows in enumerate(tasks) for piece in self._spool.put(self._written, f"{at:06d}-00", rows)]
            self._spool.name(self._written, pieces)
            self._written += 1
        elif world.sources_may_end:
            self._spool.name(self._written, (), ended=True)
            self._over = True
        self._forget(world)
        world.clock.after(self._random.randint(*WRITES_US), lambda: self._go_on(world))

    def _forget(self, world: SimWorld) -> None:
        """What the oldest checkpoint that is kept has behind it."""
        retained = world.coordinator.checkpointing.retained
        if len(retained) == RETAINED:
            logs = [facts for piece in retained[0].pieces for facts in piece.facts.get("logs", {}).values()]
            self._spool.forget(min((int(facts[0]) for facts in logs), default=0))


def spooled(random: Random, rows: int) -> Case:
    """The same rows and answers as `pushed` has of the same random numbers."""
    shelf, batches = Shelf(), list[Any]()

    def made(given: Batches) -> Source:
        batches.extend(given)
        return ShelvedSource(shelf)

    case = pushed(random, rows, made)
    return replace(case, watch=Writing(shelf, batches, random).watch)
