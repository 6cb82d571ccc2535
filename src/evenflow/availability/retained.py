"""Which checkpoints a location keeps, and which of its objects nobody needs any more (availability.md, K8).

Every checkpoint that was begun has a folder of its own, by the generation that began it and its number in that, and the names below it are
never used again. So what is older than the oldest checkpoint that is kept, and named by none that is, is garbage, whoever wrote it:
checkpoints that were, and what was stored of those that never became whole. Nothing is ever judged by its age. This file knows no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final

from evenflow.availability.entries import Completed
from evenflow.exchange.section import ROWS

CHECKPOINTS: Final = "checkpoints/"
VERSIONS: Final = "versions/"
RETAINED: Final = 3
"""Checkpoints that are kept. Where the newest one cannot be read, the one before it and a longer replay do as well."""


def folder_of(generation: int, number: int) -> str:
    """Of a checkpoint's objects, below the location."""
    return f"{CHECKPOINTS}{generation:06d}/{number:06d}"


def removed_name(generation: int, number: int) -> str:
    """Of the mark of a checkpoint that a person has removed: nobody begins with it any more."""
    return f"{folder_of(generation, number)}/removed.json"


def place_of(name: str) -> tuple[int, int] | None:
    """(generation, number) of the checkpoint that an object is of; None if it is of none."""
    parts = name.split("/")
    if not name.startswith(CHECKPOINTS) or len(parts) < 4 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return int(parts[1]), int(parts[2])


def needed(retained: Sequence[Completed]) -> set[str]:
    """Names of all objects of these checkpoints."""
    return {stored.name for completed in retained for stored in completed.objects}


def garbage_rows(names: Iterable[str], generation: int, named: Set[str], gone: Set[str]) -> list[str]:
    """Those of these objects with rows that can go: what no cut after the oldest retained checkpoint names. named: what such cuts name.
    gone: what only older ones do. Of the present generation anything else may be named by a cut that is on its way; of earlier ones
    nothing will be any more."""
    found = []
    for name in names:
        parts = name.split("/")
        is_rows = name.startswith(ROWS) and len(parts) == 3 and parts[1].isdecimal()
        if is_rows and name not in named and (name in gone or int(parts[1]) < generation):
            found.append(name)
    return sorted(found)


def version_name(program: str) -> str:
    """Of the object that has what is kept of a version, below the location. program: as contents name it; empty: as it was begun."""
    return f"{VERSIONS}{program or 'begun'}.json"


def program_named(generation: int, number: int, digest: str, proof: str) -> str:
    """What contents call a version that this generation asks for: nothing else is ever called so. digest: of what the dataflow is; proof:
    of the bytes of what is kept of it."""
    return f"{generation:06d}-{number:06d}-{digest}-{proof}"


def garbage_programs(names: Iterable[str], generation: int, needed: Set[str], gone: Set[str]) -> list[str]:
    """Those of these objects with versions that can go: see `garbage_rows`. needed, gone: as contents name them. One that the present
    generation has written may be named by a content that is on its way. What the dataflow was when it was begun goes like any other."""
    if not needed:
        return []
    kept, free = set(map(version_name, needed)), set(map(version_name, gone))
    found = []
    for name in names:
        number = name.removeprefix(VERSIONS).partition("-")[0]
        old = name == version_name("") if not number.isdecimal() else int(number) < generation  # It acts no more, and never will.
        if name.startswith(VERSIONS) and name not in kept and (name in free or old):
            found.append(name)
    return sorted(found)


def garbage(names: Iterable[str], retained: Sequence[Completed]) -> list[str]:
    """Those of these objects that can go, oldest first. retained: the checkpoints that are kept, ascending; if there is none, all stay."""
    if not retained:
        return []
    oldest, named = retained[0].place, needed(retained)
    found = [(place, name) for name in names if (place := place_of(name)) is not None and place < oldest and name not in named]
    return [name for _, name in sorted(found)]


def is_over(name: str, generation: int) -> bool:
    """Whether an object of this name is of a checkpoint that an older generation than this one has begun: none of its sites is needed any
    more. The mark of a checkpoint that was removed is made by people, at any time."""
    place = place_of(name)
    return place is not None and place[0] < generation and name != removed_name(*place)
