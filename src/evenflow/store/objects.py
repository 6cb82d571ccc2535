"""Objects below one checkpoint location: what the journal and checkpoints need of a store.

An object is a name and some bytes. It appears whole or not at all, and `create` makes it only if there is none of that name: of two
drivers that create the same entry of a journal one is told so, and ends. All else follows from that (J1, J4).

Names are relative, with `/` between their parts. Others may be able to write where a location is, so a name that could lead out of it, or
that hides, is refused before it reaches the store, and is never given back by `names`; and who reads says how many bytes at most.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Callable
from typing import Final, Protocol

MOST_BYTES: Final = 1 << 30
"""What `get` reads of an object if it is not told otherwise."""

LONGEST_NAME: Final = 512
NAME: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.=-]{0,199})(?:/[A-Za-z0-9_][A-Za-z0-9_.=-]{0,199})*")
"""No part begins with a dot, so none is `..` and none is a file that is not whole yet; none is empty, so the name is not absolute."""

BESIDE: Final = re.compile(r"\.([A-Za-z0-9_][A-Za-z0-9_.=-]*)\.[0-9a-f]{12}\.tmp")


class Store(Protocol):
    """Objects below one location. All methods raise OSError, of the kinds that are named.

    Any other OSError than FileExistsError leaves open whether `create`, `put` and `delete` have happened: an answer may be lost on its way.
    To `create` the same bytes again is harmless, and tells.
    """

    url: str
    """Where the location is, for messages."""

    def create(self, name: str, data: bytes) -> None:
        """Make an object, whole and durable, if there is none of that name. FileExistsError if there is: then that one is durable."""

    def put(self, name: str, data: bytes) -> None:
        """Make an object, or replace it; readers see the old one or the new one, whole."""

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        """An object's bytes. FileNotFoundError if there is none; TooLarge if it has more than `most`, which are not read then."""

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Bytes of each object whose name begins with these letters, by name, in the names' order."""

    def names(self, prefix: str = "") -> list[str]:
        """Names of the objects that begin with these letters, sorted."""

    def delete(self, name: str) -> None:
        """Remove an object. It is fine if there is none."""

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        """Remove what writers that were killed have left of objects in a folder and below it; returns how many such files there were.
        Where the store has folders, those below it go, too, in which nothing is left.

        is_over: of an object's name, whether nobody writes it any more. Who does all the same is told so, and the object is not made. Of a
        folder's name, which ends with a slash, whether it may go. Who writes there all the same makes it again.
        """


def beside_name(leaf: str) -> str:
    """Of a file that is to become the object `leaf` of its folder when it is whole. It is no name of an object."""
    return f".{leaf}.{uuid.uuid4().hex[:12]}.tmp"


def meant_by(beside: str) -> str | None:
    """The inverse: what the file was to become; None if it is none of these files."""
    match = BESIDE.fullmatch(beside)
    return None if match is None else match[1]


def checked(name: str) -> str:
    """The name. Raises OSError (EINVAL) if it is none of an object: it would lead elsewhere, or hide."""
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "this is no name of an object below a location", name[:LONGEST_NAME])
    return name


def is_name(name: str) -> bool:
    """Whether an object may have this name; what is found under any other is not Evenflow's."""
    return len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None


class TooLarge(OSError):
    """An object has more bytes than its reader takes."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(errno.EFBIG, f"the object has more than {most} bytes", name)


def within(data: bytes, most: int, name: str) -> bytes:
    """The bytes of an object, of which one more than `most` have been asked for. Raises TooLarge if it has that many."""
    if len(data) > most:
        raise TooLarge(name, most)
    return data
