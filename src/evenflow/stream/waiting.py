"""What a source has offered and nobody has read yet: how much of it there is, and since when."""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """rows: that are there or due, and have not been read. since_us: wall clock at which the first of them was due, microseconds; None if
    nobody can say."""

    rows: int
    since_us: int | None = None
