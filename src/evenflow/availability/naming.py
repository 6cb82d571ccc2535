"""Which of an enumeration a user has written. Knows none of them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from evenflow.errors import AvailabilityError

E = TypeVar("E", bound=StrEnum)


def named(kinds: Sequence[E], what: str, given: Any, where: str) -> E:
    """The one of `kinds` that a user has written. what: they are. where: what it was written for, such as "box 'sum'". Raises
    AvailabilityError, which names them in their order, and the one that was meant."""
    for kind in kinds:
        if given == kind:
            return kind
    near = get_close_matches(given.lower().replace("_", "-"), kinds, 1) if isinstance(given, str) else []
    hint = f"; did you mean {str(near[0])!r}?" if near else ""
    raise AvailabilityError(f"{where}: {what} is {given!r:.60}; it must be one of {', '.join(repr(str(kind)) for kind in kinds)}{hint}")
