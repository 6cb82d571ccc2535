"""Starting from a savepoint at a location of its own: what it has, and its objects brought over (see `carrying` for what is taken over).

Objects are copied before anything says that they are there: the first entry of the new location's journal names them. What was broken off
before is begun anew by the next start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Completed, StoredObject
from evenflow.errors import CheckpointCorrupt, LocationError
from evenflow.operator.catalogue import build
from evenflow.operator.user.process import Process
from evenflow.plan.layout import Layout
from evenflow.query.structure import Structure, as_before
from evenflow.state.objects import rewritten
from evenflow.store.location import find_location
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.stream.digest import digest_of
from evenflow.world.locations.carrying import Carried
from evenflow.world.locations.kept import Which, kept_at
from evenflow.world.locations.proving import each_of, taken
from evenflow.world.locations.savepoints import create_same
from evenflow.world.locations.versions import said_of

log = logging.getLogger("evenflow")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that a program may start from. begun: of the driver that made it. content: what of the plan acted at its epoch. program:
    that made it."""

    store: Store
    dataflow: str
    made: Completed
    begun: Begun
    content: Content
    program: Structure


def saved_at(url: str, which: Which = None, *, savepoint: bool = True) -> Saved:
    """What is there. savepoint: it must be one; else any location will do, to look at.

    Raises LocationError if it is none, CheckpointCorrupt if an object is missing or has another size.
    """
    location = find_location(url)
    if savepoint and not location.head.savepoint:
        raise LocationError(
            f"{location.store.url} is a checkpoint location, and no savepoint: make one with evenflow checkpoints export or "
            "run.savepoint(), or go on there with checkpoint_location="
        )
    kept = kept_at(location.store)
    checkpoint = (kept.checkpoints() or (kept.find(None),))[-1] if savepoint else kept.find(which)
    made = kept.completed.get(checkpoint.place)
    if made is None or not checkpoint.complete:
        raise CheckpointCorrupt(f"{location.store.url}: checkpoint {checkpoint.name} cannot be started from: {checkpoint.wrong}")
    origin = kept.origins[checkpoint.place]
    program = said_of(location.store, origin.content, origin.begun.digest)
    return Saved(location.store, location.head.dataflow, made, origin.begun, origin.content, program)


def layout_from(saved: Saved, layout: Layout) -> Layout:
    """The layout of a program that starts from it: what sources looked up at the first start is as it was, new ones begin now."""
    known = saved.program["sources"]
    now_us = time.time_ns() // 1000
    sources = {name: source if name in known else source.begun(now_us) for name, source in layout.sources.items()}
    return as_before(replace(layout, sources=sources), saved.program)


def fields_in(layout: Layout) -> dict[str, Sequence[Any]]:
    """By box, the fields that its processors declare. One that cannot be opened here is left out: it may need what only sites have."""
    found: dict[str, Sequence[Any]] = {}
    for segment in layout.segments:
        for step in segment.steps:
            if step.kind == "process":
                try:
                    found[step.box] = cast(Process, build(step)).declared
                except Exception as error:
                    log.debug("the processor of box %r cannot be opened here: %r", step.box, error)
    return found


def bring(saved: Saved, carried: Carried, target: Store) -> Completed:
    """Copy the objects of what is taken over to the location. Returns the checkpoint as it is there.

    Raises CheckpointCorrupt if one is missing or altered, and LocationError.
    """

    def one(stored: StoredObject) -> StoredObject:
        data = taken(saved.store, carried.taken[stored.name])
        rewrite = carried.rewritten.get(stored.name)
        data = data if rewrite is None else rewritten(stored.name, data, rewrite.origin, rewrite.change)
        create_same(target, stored.name, data)
        return replace(stored, bytes=len(data), digest=digest_of(data))

    pieces = []
    try:
        for piece in carried.made.pieces:
            pieces.append(replace(piece, objects=tuple(each_of(piece.objects, one))))
    except OSError as error:
        raise LocationError(explain("copy the savepoint's state", target.url, error)) from error
    return replace(carried.made, pieces=tuple(pieces))
