"""Lists of slots by key, in arrays beside a table: rows that a key has, found from the key in as many steps as there are.

A list is named by its home, an int64 from 0 on. first: int64 (homes,), the slot that a list begins with, or -1. links: int64 (slots, 3), of
each row in a list the next one, the one before, both -1 where there is none, and its home. Nothing of this is state: it is made again from
the rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenflow.kernels.jit import kernel
from evenflow.kernels.table import Words2

NEXT, BEFORE, HOME = 0, 1, 2
LINKS: Final = 3
"""Words of a link."""


@kernel("void(int64[::1], int64[::1], int64[::1], int64[:, ::1])")
def link(slots: Words2, homes: Words2, first: Words2, links: Words2) -> None:
    """Put these slots at the front of their lists. homes: int64 (n,)."""
    for at in range(slots.size):
        slot, home = slots[at], homes[at]
        follows = first[home]
        links[slot, NEXT], links[slot, BEFORE], links[slot, HOME] = follows, -1, home
        if follows >= 0:
            links[follows, BEFORE] = slot
        first[home] = slot


@kernel("void(int64[::1], int64[::1], int64[:, ::1])")
def unlink(slots: Words2, first: Words2, links: Words2) -> None:
    """Take these slots out of the lists that they are in."""
    for slot in slots:
        follows, before = links[slot, NEXT], links[slot, BEFORE]
        if before >= 0:
            links[before, NEXT] = follows
        else:
            first[links[slot, HOME]] = follows
        if follows >= 0:
            links[follows, BEFORE] = before


@kernel("int64[:, ::1](int64[::1], int64[::1], int64[:, ::1])")
def walk(homes: Words2, first: Words2, links: Words2) -> Words2:
    """int64 (2, m): the place in `homes`, and each slot of that list, one list after the other."""
    total = 0
    for home in homes:
        slot = first[home]
        while slot >= 0:
            total += 1
            slot = links[slot, NEXT]
    found = np.empty((2, total), np.int64)
    to = 0
    for at in range(homes.size):
        slot = first[homes[at]]
        while slot >= 0:
            found[0, to], found[1, to] = at, slot
            to += 1
            slot = links[slot, NEXT]
    return found
