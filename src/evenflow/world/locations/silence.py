"""Whether a driver still lives at a location. Nobody asks it: one that lives appends to the journal, as a rule once a second, and says so
beside it where it has nothing to append (see `availability.alive`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from evenflow.availability.alive import MOST_ALIVE_BYTES, Alive, alive_name, from_bytes
from evenflow.availability.entries import entry_name
from evenflow.availability.standing import Standing
from evenflow.errors import LocationError
from evenflow.store.journal import MOST_ENTRY_BYTES
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import explain

LOOK_S: Final = 0.1
"""Between two looks at the store."""


def alive_at(store: Store, standing: Standing) -> Alive | None:
    """What the newest driver has said beside the journal; None if there is nothing that is its own. Raises OSError."""
    try:
        found = from_bytes(store.get(alive_name(standing.generation), MOST_ALIVE_BYTES))
    except (FileNotFoundError, TooLarge):
        return None
    return found if found is not None and (found.generation, found.nonce) == (standing.generation, standing.nonce) else None


def is_written(
    store: Store, standing: Standing, silent_s: float, each_look: Callable[[], None] = lambda: None, known: Alive | None = None
) -> bool:
    """Whether the entry after the last one comes within that time, or another sign of life than the known one. each_look: called before
    each look at the store; may raise.

    A store that fails is looked at again. Raises LocationError if it still does at the end: that is no silence.
    """
    pause, deadline_s = threading.Event(), time.monotonic() + silent_s
    while True:
        each_look()
        failed: OSError | None = None
        try:
            if _is_there(store, entry_name(standing.last + 1)) or alive_at(store, standing) not in (known, None):
                return True
        except OSError as error:
            failed = error
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 and failed is not None:
            raise LocationError(explain("see whether another driver appends to the journal", store.url, failed)) from failed
        if left_s <= 0:
            return False
        pause.wait(min(LOOK_S, left_s))


def _is_there(store: Store, name: str) -> bool:
    """Whether there is such an object, whatever it has. Raises OSError if the store does not say."""
    try:
        store.get(name, MOST_ENTRY_BYTES)
    except FileNotFoundError:
        return False
    except TooLarge:
        pass
    return True
