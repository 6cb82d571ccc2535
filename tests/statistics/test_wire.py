"""A window as an array says what the window says, whatever is in it; what is no window is an error and changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from evenflow.errors import StatisticsError
from evenflow.statistics.growing import Growing
from evenflow.statistics.recent import Recent
from evenflow.statistics.standing import ABSENT
from evenflow.statistics.totals import Totals
from evenflow.statistics.window import Latency, SegmentWindow, SiteWindow, SourceWindow
from evenflow.statistics.wire import FlatWindow, Names, Structures, flat_of
from tests.statistics.windows import segment, site

NAMES: Names = tuple((f"segment {number}", tuple(f"box {box}" for box in range(1 + number))) for number in range(4))


def drawn(rng: random.Random, number: int, begin_us: int) -> SiteWindow:
    hosted = sorted(rng.sample(range(4), rng.randrange(0, 5)))
    made = []
    for each in hosted:
        partitions = sorted(rng.sample(range(9), rng.randrange(1, 6)))
        one = segment({p: rng.randrange(0, 2**40) for p in partitions}, number=each, boxes=1 + each, busy_us=rng.randrange(0, 99))
        arcs = tuple((arc, rng.randrange(2**40)) for arc in range(rng.randrange(3)))
        made.append(replace(one, on_disk=tuple(p for p in partitions if rng.random() < 0.3), arc_rows=arcs))
    read = [(number, partition) for number in range(2) for partition in range(rng.randrange(3))]
    sources = tuple(
        SourceWindow(f"segment {s}", s, p, rng.randrange(99), rng.randrange(99), rng.choice(((), (0, 7))), rng.choice((None, 0, 5)), 3)
        for s, p in read
    )
    window = site(number, begin_us, begin_us + rng.randrange(0, 99), rng.randrange(0, 99), *made, latency=Latency(1, 2, rng.randrange(3)))
    return replace(window, sources=sources, free_bytes=rng.choice((None, -5, 0, 2**45)), spilled_bytes=rng.randrange(0, 5))


@pytest.mark.parametrize("seed", range(10))
def test_both_forms_say_the_same(seed: int) -> None:
    rng = random.Random(seed)
    structures, growing, flat_growing = Structures(NAMES), Growing(NAMES), Growing(NAMES)
    totals, flat_totals = Totals(1_000), Totals(1_000)
    recent, flat_recent = Recent(), Recent(structures=structures)
    seen: list[SegmentWindow] = []
    for at in range(60):
        if at % 7 == 0:
            flat_growing.now()  # Whether somebody looks meanwhile changes nothing.
        window = drawn(rng, rng.randrange(3), at * 100)
        flat = FlatWindow.from_bytes(flat_of(window, ((2, 7),)).words.tobytes())
        assert structures.window_of(flat) == window
        assert structures.of(flat).waited(flat).tolist() == [[2, 7]]
        seen += window.segments
        growing.add(window)
        flat_growing.take(flat)
        totals.add(window)
        flat_totals.take(flat, structures)
        recent.add(window)
        flat_recent.add(flat)
    assert flat_recent.over(3_000) == recent.over(3_000) and flat_recent.since(20) == recent.since(20)
    assert flat_totals.utilization() == totals.utilization() and list(flat_totals.boxes()) == list(totals.boxes())
    whole = recent.over(10**9)
    flat_growing.settle()
    assert growing.sites[2].waited_us == 0 and flat_growing.sites[2].waited_us == 7 * 60
    for now in (growing.now(), flat_growing.now()):
        boxes = [[box.rows_in, box.rows_out, box.busy_us, box.rows_failed] for box in whole.boxes().values()]
        first = {number: sum(len(NAMES[each][1]) for each in range(number)) for number in range(4)}
        assert now.boxes[[first[number] + at for number, at in whole.boxes()]].tolist() == boxes
        for load in whole.replicas():
            (slot,) = now.of.slots([(load.segment, load.partition, load.site)])
            assert now.rows[slot] == load.rows
        rows = [sum(load.rows for load in whole.replicas() if load.segment == number) for number in range(len(NAMES))]
        busy = [sum(each.busy_us for each in seen if each.segment == number) for number in range(len(NAMES))]
        assert now.segment_rows.tolist() == rows and now.segment_busy_us.tolist() == busy
        assert now.sites[0].busy_us == sum(each.busy_us for each in whole.sites if each.site == 0)


def test_state_is_what_the_newest_window_has() -> None:
    growing = Growing(NAMES)
    growing.add(site(1, 0, 10, 5, segment({0: 1, 1: 1}, number=0, state=70), segment({2: 1}, number=1, boxes=2, state=50)))
    slots = growing.slots([(0, 0, 1), (0, 1, 1), (1, 2, 1)])
    growing.settle()
    assert growing.state_bytes[slots].tolist() == [70, 70, 50]
    growing.add(site(1, 10, 20, 5, segment({1: 1}, number=0, state=30)))
    growing.settle()
    assert growing.state_bytes[slots].tolist() == [0, 30, 0] and growing.rows[slots].tolist() == [1, 2, 1]


def test_how_far_segments_are_travels_with_the_window() -> None:
    flat = flat_of(site(1, 0, 10, 5, segment({0: 1}, number=0), segment({2: 1}, number=1, boxes=2)))
    structure = Structures(NAMES).of(flat)
    structure.segment_values(flat)[1:] = [[17, 16], [1_000, 900]]
    growing = Growing(NAMES)
    growing.take(flat)
    done, watermarks = growing.now().stands.of([1, 7])
    assert done.tolist() == [[17, 16, ABSENT, ABSENT]] and watermarks[0, :2].tolist() == [1_000, 900]
    moved = flat_of(site(1, 10, 20, 5, segment({2: 1}, number=1, boxes=2)))
    Structures(NAMES).of(moved).segment_values(moved)[1:] = [[18], [950]]
    growing.take(moved)
    done, watermarks = growing.now().stands.of([1])
    assert done.tolist() == [[ABSENT, 18, ABSENT, ABSENT]] and watermarks[0, 1] == 950


GOOD = flat_of(site(1, 0, 10, 5, segment({0: 1, 3: 4}, number=0), segment({2: 1}, number=1, boxes=2)))


def altered(at: int, value: int) -> bytes:
    words = GOOD.words.copy()
    words[at] = value
    return words.tobytes()


WRONG = [b"", b"\0" * 7, GOOD.words.tobytes()[:-8], GOOD.words.tobytes() + b"\0" * 8]
WRONG += [altered(10, 3), altered(10, -1), altered(14, 2**40), altered(2, -1)]


@pytest.mark.parametrize("data", WRONG)
def test_what_is_no_window_is_refused(data: bytes) -> None:
    with pytest.raises(StatisticsError):
        FlatWindow.from_bytes(data)


@pytest.mark.parametrize(("at", "value"), [(17, 9), (17, -1), (19, 1), (19, 0), (21, 1), (23, 7)])
def test_a_window_of_another_layout_changes_nothing(at: int, value: int) -> None:
    """Numbers of segments, of partitions, of those on disk, of boxes."""
    growing = Growing(NAMES)
    with pytest.raises(StatisticsError, match="another layout"):
        growing.take(FlatWindow.from_bytes(altered(at, value)))
    assert not growing.sites and not growing.boxes.any()


def test_structures_that_stay_are_understood_once() -> None:
    structures = Structures(NAMES)
    later = FlatWindow(np.where(np.arange(GOOD.words.size) == 3, 99, GOOD.words))
    assert structures.of(GOOD) is structures.of(later)


def test_windows_that_differ_in_what_is_on_disk_have_one_structure() -> None:
    structures, rng = Structures(NAMES), random.Random(1)
    partitions = {p: p for p in range(40)}
    for at in range(1000):
        on_disk = tuple(p for p in partitions if rng.random() < 0.5)
        window = site(1, at, at + 1, 0, replace(segment(partitions, number=1, boxes=2, busy_us=at), on_disk=on_disk))
        assert structures.window_of(flat_of(window)) == window
    assert len(structures._known) == 1


def test_what_is_said_to_be_on_disk_must_be_named() -> None:
    structures = Structures(NAMES)
    window = site(1, 0, 1, 0, replace(segment({0: 1, 1: 1}, number=1, boxes=2, busy_us=1), on_disk=(0,)))
    flat = flat_of(window)
    structures.of(flat)
    words = flat.words.copy()
    words[19] = 2
    with pytest.raises(StatisticsError, match="on disk"):
        structures.of(FlatWindow(words))
