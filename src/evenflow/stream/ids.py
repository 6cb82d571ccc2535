"""Numbers by what they count, so that a type checker sees two that were exchanged. At run time they are plain integers.

A number that comes from outside, such as from a wire, becomes one of these where it is read.
"""

from __future__ import annotations

import re
from typing import Final, NewType

_GENERATION: Final = re.compile(r"\.g([0-9]+)$")

SiteId = NewType("SiteId", int)
"""Index of a site in its cluster, from 0; never used twice (V3)."""

PlanNumber = NewType("PlanNumber", int)
"""From 0; a later plan has a greater one."""

Term = NewType("Term", int)
"""Number of a membership, from 0. As a leader's term: of the membership that made it so."""

CopyNumber = NewType("CopyNumber", int)
"""Of a copy, from 1; never used twice in a run."""

FeedNumber = NewType("FeedNumber", int)
"""A consumer's number for what it has asked for, from 1; never used twice by it."""


def run_of_generation(run: str, generation: int) -> str:
    """Where each generation of a run is a run of its own to sinks: what they know it by."""
    return f"{run}.g{generation}"


def run_of(known_by: str) -> str:
    """The run, of what sinks know it, or a generation of it, by."""
    return _GENERATION.sub("", known_by)


def generation_of(known_by: str) -> int:
    """Which of them it is, from 1 on; 0 where all are one run to sinks."""
    found = _GENERATION.search(known_by)
    return 0 if found is None else int(found[1])


NO_SITE: Final = SiteId(-1)
FIRST_PLAN: Final = PlanNumber(0)
FIRST_TERM: Final = Term(0)
NO_TERM: Final = Term(-1)
NO_COPY: Final = CopyNumber(0)
NO_FEED: Final = FeedNumber(0)
