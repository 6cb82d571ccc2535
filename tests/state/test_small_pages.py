"""In which pages the memory of a table is taken: small ones while state comes back, large ones otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from evenflow.state.arena import Arena
from evenflow.state.pages import PagedTable

MAPS = Path("/proc/self/smaps")
pytestmark = pytest.mark.skipif(
    not MAPS.exists() or "VmFlags" not in MAPS.read_text(), reason="this system does not say in which pages memory is"
)
SLOTS = 1 << 17
"""Of eight words: 8 MB."""


def flags(arena: Arena) -> set[str]:
    """What the system says of the memory in which the rows lie: nh: in small pages, hg: in large ones if it can be."""
    address = arena.words.__array_interface__["data"][0]
    for region in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", MAPS.read_text()):
        first, behind = (int(each, 16) for each in region.split(" ", 1)[0].split("-"))
        if first <= address < behind:
            said = re.search(r"^VmFlags: (.*)$", region, re.MULTILINE)
            assert said is not None
            return {"nh", "hg"}.intersection(said[1].split())
    raise AssertionError("the rows lie nowhere")


def test_memory_is_taken_in_large_pages_but_while_it_is_to_be_small() -> None:
    arena = Arena(8, SLOTS)
    assert flags(arena) == {"hg"}
    arena.in_small_pages(True)
    assert flags(arena) == {"nh"}
    arena.in_small_pages(False)
    assert flags(arena) == {"hg"}


def test_what_is_added_and_what_is_copied_is_taken_likewise() -> None:
    arena = Arena(8, 1024)
    arena.in_small_pages(True)
    arena.grow(SLOTS)
    assert flags(arena) == {"nh"}
    looked = arena.look()  # Who looks at it has it copied when it grows.
    arena.grow(2 * SLOTS)
    assert flags(arena) == {"nh"} and looked.shape == (SLOTS, 8)


def test_rows_stay_as_they_are() -> None:
    table = PagedTable(np.zeros(3, np.int64))
    hashes = np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64)
    owners = np.zeros(hashes.size, np.int32)
    table.arena.in_small_pages(True)
    slots = table.fold(owners, hashes, hashes, epoch=1).slots.copy()
    table.arena.in_small_pages(False)
    assert (table.fold(owners, hashes, hashes, epoch=2).slots == slots).all() and table.count == hashes.size
