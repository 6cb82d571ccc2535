"""A checkpoint location: whose it is, and of which format.

    evenflow.json                 what this file reads: the format, the location's run, its dataflow, who made it
    journal/NNNNNNNNNNNN.json     see `evenflow.store.journal`
    checkpoints/...               objects of checkpoints

The run id belongs to the location for ever, so sinks that know what they have of a run know it after a restart, too. Everything that is
read is bounded, and is compared with what it must be before it is believed; nothing is ever executed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Final

from evenflow.availability.entries import FORMAT, FORMATS
from evenflow.errors import LocationError
from evenflow.store.objects import Store
from evenflow.store.opening import explain, open_store, probe

HEAD: Final = "evenflow.json"
MOST_HEAD_BYTES: Final = 1 << 16
READABLE: Final = FORMATS
"""Formats that this version reads: its own and those before."""
RUN: Final = re.compile(r"[\w.-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Head:
    """What `evenflow.json` says. run: the id that all generations of the location share. made_with: the version that made the location.
    savepoint: it is none that a driver begins at, but one checkpoint to start from elsewhere. region: the run is one region of a group, of
    which it has the name."""

    format: int
    run: str
    dataflow: str
    made_with: str
    savepoint: bool = False
    region: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """A location that can be used. fresh: it was made just now."""

    store: Store
    head: Head
    fresh: bool = False


def named(dataflow: str) -> str:
    """A dataflow's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", dataflow)


def new_run(dataflow: str) -> str:
    """The id of a new run, which no other one has."""
    return f"{named(dataflow)[:100]}-{uuid.uuid4().hex[:12]}"


def open_location(
    url: str, dataflow: str, made_with: str, options: Mapping[str, Any] | None = None, *, group: str | None = None
) -> Location:
    """The location of a dataflow, made if it is not there, of a store that was proven to be good for it (see `probe`).

    options: see `open_store`. group: the run is a region of that group. Raises LocationError: another dataflow's, another group's, of a
    newer format, not a location, or of a store that will not do. What is there already is looked at before anything is written.
    """
    store = open_store(url, options)
    head = head_of(store)
    if head is not None:
        _demand(head, dataflow, store, group)
    probe(store)
    if head is not None:
        return Location(store, head)
    mine = Head(FORMAT, group or new_run(dataflow), dataflow, made_with, region=group is not None)
    try:
        if left := [name for folder in ("journal/", "checkpoints/") for name in store.names(folder)]:
            raise LocationError(
                f"checkpoint location {store.url} has {left[0]}, but no {HEAD}: somebody has removed it. Give the file back, or empty "
                "the location; without it nobody knows whose state this is"
            )
        try:
            store.create(HEAD, head_bytes(mine))
        except FileExistsError:
            pass  # Another driver, or an earlier try of this one whose answer was lost. What is there counts.
    except OSError as error:
        raise LocationError(explain(f"write {HEAD}", store.url, error)) from error
    head = head_of(store)
    if head is None:
        raise LocationError(
            f"checkpoint location {store.url}: {HEAD} was written and is not there; somebody deletes what is in the location"
        )
    _demand(head, dataflow, store, group)
    return Location(store, head, fresh=head == mine)


def find_location(url: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Location:
    """A location that is there, to look at: nothing is written. Raises LocationError if there is none, or it cannot be read."""
    store = open_store(url, options)
    head = head_of(store)
    if head is None:
        raise LocationError(f"{store.url} is no checkpoint location: it has no {HEAD}")
    return Location(store, head)


def head_bytes(head: Head) -> bytes:
    """As it is written."""
    said = {name: value for name, value in asdict(head).items() if name not in ("savepoint", "region") or value}
    return json.dumps(said, indent=1).encode() + b"\n"


def head_of(store: Store) -> Head | None:
    """What the location says of itself; None if it says nothing. Raises LocationError if it cannot be a location, or not be read."""
    try:
        data = store.get(HEAD, MOST_HEAD_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LocationError(explain(f"read {HEAD}", store.url, error)) from error
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_head(store, f"is no JSON ({type(error).__name__})") from error
    if not isinstance(said, dict) or type(said.get("format")) is not int:
        raise _no_head(store, "says no format")
    made_with = said.get("made_with")
    if said["format"] > FORMAT:
        raise LocationError(
            f"checkpoint location {store.url} is of format {said['format']}, made with Evenflow {str(made_with)[:40]}; this version "
            f"reads formats {READABLE.start} to {FORMAT}. Run the version that made it, or a newer one, or give the dataflow another "
            "location"
        )
    if said["format"] not in READABLE:
        raise LocationError(
            f"checkpoint location {store.url} is of format {said['format']}; this version reads formats {READABLE.start} to {FORMAT}. "
            "Restart the dataflow once with a version in between, or give it another location"
        )
    run, dataflow = said.get("run"), said.get("dataflow")
    if not isinstance(run, str) or not RUN.fullmatch(run) or not isinstance(dataflow, str) or not isinstance(made_with, str):
        raise _no_head(store, "lacks run, dataflow or made_with, or one of them cannot be what it says")
    return Head(said["format"], run, dataflow, made_with, said.get("savepoint") is True, said.get("region") is True)


def _no_head(store: Store, how: str) -> LocationError:
    return LocationError(f"{store.url} cannot be a checkpoint location: its {HEAD} {how}. Choose another location, or mend the file")


def _demand(head: Head, dataflow: str, store: Store, group: str | None) -> None:
    if head.savepoint:
        raise LocationError(
            f"{store.url} is a savepoint, which stays as it is: start from it (from_savepoint=, --from-savepoint) at a location of its own"
        )
    if head.dataflow != dataflow:
        raise LocationError(
            f"checkpoint location {store.url} is that of dataflow {head.dataflow[:100]!r}, not of {dataflow!r}: give each dataflow a "
            "location of its own"
        )
    if (head.run if head.region else None) != group:
        begun = f"by a region of group {head.run!r}" if head.region else "by a run that is of no group"
        wanted = "one that is of no group" if group is None else f"a region of group {group!r}"
        raise LocationError(
            f"checkpoint location {store.url} was begun {begun}, and {wanted} cannot go on there: start it as before, or at a location of "
            "its own"
        )
