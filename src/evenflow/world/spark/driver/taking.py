"""A checkpoint location as a driver takes it: looked at, compared with the program that is to go on there, waited for, begun.

    evenflow.json         of which format it is
    programs/DIGEST.json  what the dataflow is (see `query.structure`), by its digest; what its refreshed tables had (`locations.tables`)
    versions/...json      what it was replaced by (see `locations.versions`)
    journal/N.json        which rows form an epoch, what plans change, who has begun (see `availability.entries`)

Nothing of it is ever executed unless that was allowed (`locations.versions`), and nothing is changed before all of it has been believed:
the first thing that a driver writes is its program, which no entry names yet, and the second the entry with which it begins. Another
driver that begins at the same moment finds that entry where its own should be, and one that writes still finds it with its next one
(`Fenced`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import evenflow
from evenflow.availability.alive import Alive
from evenflow.availability.content import Content
from evenflow.availability.durability import Durability
from evenflow.availability.entries import Begun, Ended, Entry, Stopped
from evenflow.availability.reading import Read
from evenflow.availability.standing import Standing
from evenflow.coordinator.appending import FENCED
from evenflow.coordinator.journal import Journal
from evenflow.errors import Fenced, LocationError, ProgramChanged, SinkError
from evenflow.plan.layout import Layout
from evenflow.query.structure import Structure, as_before, as_written, first_difference, structure, structure_digest
from evenflow.query.tables import with_tables
from evenflow.sources.spooled import SpooledSource
from evenflow.store import journal
from evenflow.store.journal import Outcome
from evenflow.store.location import Location, head_of, open_location
from evenflow.store.opening import explain, open_store
from evenflow.world.locations.carrying import Carried, carried
from evenflow.world.locations.programs import create_once, program_bytes, program_name, read_program
from evenflow.world.locations.silence import LOOK_S, alive_at, is_written
from evenflow.world.locations.starting import Saved, bring, fields_in, layout_from, saved_at
from evenflow.world.locations.tables import NOTHING, Contents
from evenflow.world.locations.versions import Drawn, Programs, was_replaced
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.driver.readable import readable, readable_on

Planning = Mapping[str, int | None]
Plans = Callable[[Planning], Layout]
Own = tuple[int, str]
"""Generation and nonce by which a driver knows its own entries."""
LEAVE_TRIES: Final = 5
"""So often a store is asked to take the last word of a driver, in some three seconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """A location as it was found. planning: the arguments with which the layout was planned, at the first start. layout: what runs here.
    program: its structure. passed_over: what is to be said of checkpoints that cannot be read. saved, carried: the savepoint that it is to
    begin with, and what is taken over of it; then `standing` is as if that were done. programs: what the run was and is; None of a region,
    which is never replaced. durability: what a driver that goes on there journals."""

    location: Location
    standing: Standing
    planning: Planning
    layout: Layout
    program: Structure
    passed_over: tuple[str, ...] = ()
    saved: Saved | None = None
    carried: Carried | None = None
    programs: Programs | None = None
    durability: Durability = Durability.PRECISE

    @property
    def sinks_run(self) -> str:
        """By which run sinks know what the next generation gives them."""
        return self.durability.sinks_run(self.run_id, self.standing.generation + 1)

    @property
    def run_id(self) -> str:
        """The run's, for ever: sinks know by it what they have."""
        return self.location.head.run

    @property
    def url(self) -> str:
        return self.location.store.url

    @property
    def ended(self) -> bool:
        """The run is over: there is nothing to go on with."""
        return self.standing.ended is not None


@dataclass(frozen=True, slots=True)
class Taken:
    """A location whose newest driver is this one. standing: what its journal says, this driver's own entry included."""

    location: Location
    standing: Standing
    passed_over: tuple[str, ...] = ()


def look(
    url: str,
    dataflow: str,
    plan: Plans,
    planning: Planning,
    from_savepoint: str | None = None,
    drop_state: Collection[str] = (),
    group: str | None = None,
    drawn: Drawn | None = None,
) -> Found:
    """What is there, if `dataflow` can go on with it; a location is made if there is none. plan: makes the layout. planning: arguments for
    that, which count if this is the first start. from_savepoint: what the first start begins with; later ones go on, and do not look at it.
    drop_state: see `carrying`. group: the run is a region of that group. drawn: what is planned; None of a region. Its refreshed tables are
    read at the first start, and later have what they had there.

    Raises LocationError if it is no location, of another dataflow, or of one that does something else, naming the box and what differs;
    JournalCorrupt; ProgramMissing; TableError; what planning raises.
    """
    first = checked(plan(planning))  # What is wrong with the query itself is said first, and leaves no location behind.
    there = None if from_savepoint is None else head_of(open_store(url))
    if from_savepoint is not None and there is None:
        _carried(saved_at(from_savepoint), plan, drop_state)  # So is what a savepoint cannot do.
    location = open_location(url, dataflow, evenflow.__version__, group=group)
    standing, passed_over = readable(location.store)
    begun = standing.begun
    if from_savepoint is not None and begun is not None and standing.restored is None:
        raise LocationError(
            f"{location.store.url} was begun without a savepoint, and has a run of its own: start from {from_savepoint} at another location"
        )
    if begun is None and drawn is not None and drawn.tables:
        drawn = drawn.reading()
        first = with_tables(first, drawn.contents)
    if begun is None and from_savepoint is not None:
        return _looked_at(location, saved_at(from_savepoint), plan, drop_state, drawn)
    if begun is None:
        now_us = time.time_ns() // 1000  # One for all: sources that are cut by content have the same epochs.
        sources = {name: source.begun(now_us) for name, source in first.sources.items()}
        first = replace(first, sources=sources)
        return Found(
            location, standing, planning, first, structure(first), programs=_programs(location, as_written(first), planning, drawn, first)
        )
    before = read_program(location.store, begun.digest)
    if drawn is not None and was_replaced(standing):
        were = Programs.replaced(location.store, before, begun.planning, drawn, standing)
        if standing.ended is None or not drawn.tables:
            were.check(standing, dataflow)
        layout = were.started if standing.ended is not None else were.acting(standing)[0][1]
        return Found(location, standing, begun.planning, layout, before, passed_over, programs=were)
    drawn = drawn if drawn is None else drawn.as_recorded(location.store, standing, begun.digest)
    layout = first if dict(begun.planning) == dict(planning) else plan(begun.planning)
    layout = as_before(layout if drawn is None else with_tables(layout, drawn.contents), before, begun.planning["sites"] or 1)
    differs = first_difference(before, as_written(layout))
    if differs is not None:
        raise ProgramChanged(
            f"dataflow {dataflow!r} is another one than that at {location.store.url}: {differs}. What was begun there is gone on with "
            "by the same dataflow only. To take its state over, end that one with a savepoint (evenflow suspend SAVEPOINT, run.suspend()), "
            "and start this one from there at a location of its own (--from-savepoint SAVEPOINT, from_savepoint=); evenflow checkpoints "
            "compare shows what it keeps"
        )
    programs = _programs(location, before, begun.planning, drawn, layout)
    return Found(location, standing, begun.planning, layout, before, passed_over, programs=programs)


def _programs(location: Location, before: Structure, planning: Planning, drawn: Drawn | None, planned: Layout) -> Programs | None:
    return None if drawn is None else Programs.begun(location.store, before, planning, drawn, planned)


def _looked_at(location: Location, saved: Saved, plan: Plans, drop_state: Collection[str], drawn: Drawn | None) -> Found:
    layout, carried = _carried(saved, plan, drop_state, {} if drawn is None else drawn.contents)
    for name, source in layout.sources.items():
        if isinstance(source, SpooledSource):
            raise LocationError(
                f"source {name!r} is a streaming DataFrame: what Spark has written of it, and its notes of how far it had come, are at the "
                "location that the savepoint is of, so a savepoint does not go on at another one. Put Kafka before it, or start anew"
            )
    standing = Standing(contents=[carried.content], checkpoints=[carried.made], restored=carried.made)
    planning, now = saved.begun.planning, as_written(layout)
    return Found(location, standing, planning, layout, now, (), saved, carried, _programs(location, now, planning, drawn, layout))


def _carried(saved: Saved, plan: Plans, drop_state: Collection[str], contents: Contents = NOTHING) -> tuple[Layout, Carried]:
    """The program, with what was read of its tables, and what it takes over. Raises LocationError if something is in the way."""
    layout = layout_from(saved, with_tables(checked(plan(saved.begun.planning)), contents))
    found = carried(saved.made, saved.content, saved.program, as_written(layout), drop_state, fields_in(layout))
    found.demand(saved.store.url)
    return layout, found


def look_ahead(found: Found) -> Read[Standing]:
    """What the journal of the location says by now, before sites are there to go on with. Raises as `look`."""
    return journal.fold(found.location.store, Standing)


def look_again(found: Found, generation: int, nonce: str, ahead: Read[Standing] | None = None, unsure: Collection[Own] = ()) -> Found:
    """The same location as it stands now, for the driver that has begun that generation and is to begin the next one.

    ahead: what was read of it a moment ago, which is read on. unsure: generations and nonces with which that driver may have begun since
    (`Unsure`). Raises Fenced if another driver has begun meanwhile, and as `look`.
    """
    store = found.location.store
    standing, passed_over = readable(store) if ahead is None else readable_on(store, journal.read_on(store, ahead.fold))
    if ahead is not None:
        passed_over = (*ahead.passed_over, *passed_over)
    if (standing.generation, standing.nonce) not in {(generation, nonce), *unsure}:
        raise Fenced(FENCED.format(generation=standing.generation, own=generation))
    return replace(found, standing=standing, passed_over=passed_over, saved=None, carried=None)


def checked(layout: Layout) -> Layout:
    """The layout, if each of its sources gives the same rows to who reads it again. Raises LocationError."""
    for name, source in layout.sources.items():
        if getattr(source, "pushed", False):
            raise LocationError(
                f"source {name!r} cannot be used with a checkpoint location: Spark pushes its rows, so a restart could not make the same "
                "results of them. Let them go through something that keeps them, such as Kafka or files, or run it without a location"
            )
    return layout


# ---------------------------------------------------------------- taking it over


def await_silence(found: Found, lease_s: float) -> None:
    """Wait until nothing has been said for `lease_s`, or for that driver's own: then it has ended, or its sites have ended without it.

    Raises LocationError if something is said meanwhile: that driver lives; or if the store does not say.
    """
    standing, store = found.standing, found.location.store
    if not standing.last or found.ended or standing.stopped:
        return
    try:
        alive = alive_at(store, standing)
    except OSError as error:
        raise LocationError(explain("see whether another driver appends to the journal", store.url, error)) from error
    lease_s = lease_s if alive is None else max(lease_s, alive.lease_s)
    silent_s = lease_s - min(max(0.0, age_s(standing, alive)), lease_s)
    if is_written(store, standing, silent_s, heed, alive):
        raise LocationError(
            f"another driver runs dataflow {found.layout.name!r} at {found.url}: it has given a sign of life after entry {standing.last} "
            f"of the journal while this one waited for {lease_s:g} s of silence. End it, take its place (take_over=True, --take-over), or "
            "stand by until it is silent (standby=True, --standby)"
        )


def age_s(standing: Standing, alive: Alive | None = None) -> float:
    """Since the newest thing that the journal, or its driver beside it, says when it happened, by the wall clock; 0 if there is none. A run
    that lives closes an epoch every second, even without rows, unless something holds it up."""
    stamps = [cuts[-1].stamp / 1e6 for cuts in standing.cuts.values() if cuts]
    stamps += [completed.ended_s for completed in standing.checkpoints[-1:]]
    stamps += [] if alive is None else [alive.at_s]
    return time.time() - max(stamps) if stamps else 0.0


def begin(found: Found, tries: int = 1) -> Taken:
    """Append the entry with which this driver begins. tries: so often, where the driver that is replaced still appends.

    Raises LocationError if another one has begun at the same moment, or the store does not take it; `Unsure` if it may be in.
    """
    before, store = found.standing, found.location.store
    digest = structure_digest(found.program)
    try:
        create_once(store, program_name(digest), program_bytes(found.program))
    except OSError as error:
        raise LocationError(explain("write what the dataflow is", found.url, error)) from error
    if before.begun is None and found.programs is not None:
        found.programs.keep_first()
    if found.saved is not None and found.carried is not None:
        found = replace(found, carried=replace(found.carried, made=bring(found.saved, found.carried, store)))
        before = Standing()
    journal.begin(store, before, lambda standing: _begun(found, standing, digest), uuid.uuid4().hex, tries, _wait)
    return Taken(found.location, before, found.passed_over)


def leave(found: Found, ran: Journal, begun: Collection[Own] = ()) -> None:
    """Append that a person has stopped the run, where its driver has no generation that runs.

    ran: of the last one that did. begun: those with which the driver may have begun since. What it was appending when that one was lost may
    be in, too, so this goes behind what is its own; behind another driver's entry nothing is said. Raises JournalCorrupt, OSError.
    """
    store, newest, number = found.location.store, (ran.generation, ran.nonce), ran.last + 1
    own = {newest, *begun}
    while True:
        done = journal.append(store, Entry(number, *newest, Stopped(ran.durable)), LEAVE_TRIES, _wait)
        there = journal.read_entry(store, number) if done.outcome is Outcome.FOREIGN else None
        if there is None or (there.generation, there.nonce) not in own or isinstance(there.matter, Ended | Stopped):
            return
        newest, number = (there.generation, there.nonce), number + 1


def _begun(found: Found, standing: Standing, digest: str) -> Begun:
    ingress = tuple((s.id, p) for s in found.layout.segments if s.kind == "ingress" for p in range(s.partitions))
    content, restored = standing.contents[-1] if standing.contents else Content(1), None
    if found.carried is not None and not standing.last:
        content, restored = found.carried.content, found.carried.made
    behind = None
    if found.durability is not Durability.PRECISE:
        behind = standing.base if restored is None else restored.epoch
    return Begun(found.run_id, found.layout.name, digest, found.planning, ingress, content, restored, behind)


def check_sinks(newest: Mapping[str, int], run: str, known: int) -> None:
    """What sinks have is durable, unless the journal has lost some of it: epochs that are made now would be taken for those. newest: by
    sink, the last epoch of the run that it has. known: the last one of which the journal knows. Raises SinkError.
    """
    for name, epoch in newest.items():
        if epoch > known:
            raise SinkError(
                f"sink {name!r} has the epochs up to {epoch} of run {run}, and the journal at the checkpoint location those up to {known}: "
                "the location was put back to an earlier time. Give it back as it was, or start the dataflow at a new location with a sink "
                "of its own"
            )


def _wait(tried: int) -> None:
    threading.Event().wait(LOOK_S * 2**tried)
