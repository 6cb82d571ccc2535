"""What a dataflow at a location is (see `query.structure`), as it was written down when it was started there."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from evenflow.errors import LocationError
from evenflow.query.structure import Structure, structure_digest
from evenflow.store.objects import Store
from evenflow.store.opening import explain

MOST_PROGRAM_BYTES: Final = 1 << 26


def create_once(store: Store, name: str, data: bytes) -> None:
    """Make an object whose name says what it has, unless it is there. Raises OSError."""
    with suppress(FileExistsError):
        store.create(name, data)


def program_name(digest: str) -> str:
    """Of its object, below the location."""
    return f"programs/{digest}.json"


def read_program(store: Store, digest: str) -> Structure:
    """What is written down of the dataflow, proven by its digest. Raises LocationError, which names the object."""
    url, name = store.url, program_name(digest)
    try:
        said: Any = json.loads(store.get(name, MOST_PROGRAM_BYTES))
    except OSError as error:
        raise LocationError(explain(f"read {name}, which says what the dataflow is", url, error)) from error
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or structure_digest(said) != digest:
        raise LocationError(
            f"checkpoint location {url}: {name} says something else than when the dataflow was started there; it was altered or cut off. "
            "Give the file back, or start the dataflow at another location"
        )
    return said


def program_bytes(program: Structure) -> bytes:
    """As it is written down."""
    return json.dumps(program, separators=(",", ":")).encode()
