"""Objects of checkpoints as they are read: several at a time, and none is used before its bytes are known to be those that were written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal, TypeVar

from evenflow.availability.entries import StoredObject
from evenflow.errors import CheckpointCorrupt, LocationError
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import explain
from evenflow.stream.digest import digest_of

AT_ONCE: Final = 4
"""So many objects are read at the same time, and are in memory."""
Flaw = Literal["missing", "size", "altered", "unreadable"]
Say = Callable[[str], None]
Made = TypeVar("Made")


class Flawed(Exception):
    """An object is not what was written. flaw: a word for it; the message says how, after its name."""

    def __init__(self, flaw: Flaw, how: str) -> None:
        super().__init__(how)
        self.flaw: Flaw = flaw


def fault_listed(objects: Iterable[StoredObject], sizes: Mapping[str, int]) -> str | None:
    """What a listing shows to be wrong with one of them, None if nothing is. sizes: of what is there, by name."""
    for stored in objects:
        if stored.name not in sizes:
            return f"{stored.name} is missing"
        if sizes[stored.name] != stored.bytes:
            return f"{stored.name} {_other_size(sizes[stored.name], stored)}"
    return None


def _other_size(size: int, stored: StoredObject) -> str:
    return f"has {size} bytes, and had {stored.bytes} when it was written"


def proven(store: Store, stored: StoredObject) -> bytes:
    """An object's bytes. Raises Flawed."""
    try:
        data = store.get(stored.name, stored.bytes)
    except FileNotFoundError as error:
        raise Flawed("missing", "is missing") from error
    except TooLarge as error:
        raise Flawed("size", f"has more than the {stored.bytes} bytes that were written") from error
    except OSError as error:
        raise Flawed("unreadable", f"cannot be read ({error})") from error
    if len(data) != stored.bytes:
        raise Flawed("size", _other_size(len(data), stored))
    if digest_of(data) != stored.digest:
        raise Flawed("altered", "has other bytes than were written")
    return data


def taken(store: Store, stored: StoredObject) -> bytes:
    """The bytes of an object that is to be used. Raises CheckpointCorrupt, which names it, or LocationError."""
    try:
        return proven(store, stored)
    except Flawed as flawed:
        cause = flawed.__cause__
        if flawed.flaw == "unreadable" and isinstance(cause, OSError):
            raise LocationError(explain(f"read {stored.name}", store.url, cause)) from cause
        more = ": a newer checkpoint may have taken its place" if flawed.flaw == "missing" else ""
        raise CheckpointCorrupt(f"{store.url}: object {stored.name!r} {flawed}{more}. Take another checkpoint") from flawed


def each_of(objects: Collection[StoredObject], do: Callable[[StoredObject], Made], say: Say | None = None) -> Iterator[Made]:
    """What `do` makes of each, in their order, some at the same time. say: is told at every tenth how far it is."""
    done = said = 0
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for number, (stored, made) in enumerate(zip(objects, workers.map(do, objects)), 1):
            done += stored.bytes
            if say is not None and number * 10 // len(objects) > said:
                said = number * 10 // len(objects)
                say(f"{number} of {len(objects)} objects, {done} bytes")
            yield made
