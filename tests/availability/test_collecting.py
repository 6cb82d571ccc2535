"""Old entries of a journal go, and whoever reads it finds what would be there with them: broken off anywhere, by two at once, meanwhile."""

from __future__ import annotations

import json
from random import Random

import pytest

from evenflow.availability.collecting import collecting
from evenflow.availability.entries import (
    Completed,
    Entry,
    Logged,
    Matter,
    Snapshot,
    entry_name,
    from_bytes,
    snapshot_from,
    snapshot_name,
    to_bytes,
)
from evenflow.availability.reading import reading
from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import Standing, standing
from evenflow.errors import JournalCorrupt
from evenflow.exchange.section import RowsObject
from evenflow.stream.digest import digest_of_json
from tests.availability.journals import BEGUN, A, B, Objects, checkpoints_of, cut, lived, said
from tests.drawn import one_in

pytestmark = pytest.mark.one_in(2)

ENTRIES = lived(3, 4)
MADE = checkpoints_of(ENTRIES)
NUMBERS = [entry.number for entry in ENTRIES if isinstance(entry.matter, Completed)]
BEGINS = [entry.number for entry in ENTRIES if entry.matter == BEGUN]


def collected(*oldest: int) -> Objects:
    """The journal, collected up to these checkpoints, one after the other."""
    objects = Objects(ENTRIES)
    for index in oldest:
        objects.done(collecting(MADE[index]))
    return objects


def test_the_first_collection_makes_a_snapshot_and_deletes_nothing() -> None:
    objects = Objects(ENTRIES)
    assert objects.done(collecting(MADE[2])) == 0
    assert objects.snapshots == [NUMBERS[2]] and objects.entries == [entry.number for entry in ENTRIES]


def test_entries_before_the_snapshot_before_go_but_for_the_beginnings() -> None:
    objects = collected(2, 6)
    assert objects.done(collecting(MADE[8])) > 0
    assert objects.snapshots == [NUMBERS[6], NUMBERS[8]]
    assert objects.entries == [n for n in range(1, len(ENTRIES) + 1) if n > NUMBERS[6] or n in BEGINS]
    assert said(objects.read().fold) == said(standing(ENTRIES), objects.read().fold)


def test_nothing_goes_where_nothing_new_can() -> None:
    objects = collected(2, 6)
    before = dict(objects.there)
    for index in (2, 4, 6):
        assert objects.done(collecting(MADE[index])) == 0
    assert objects.there == before


def test_who_begins_there_finds_which_checkpoints_are_retained() -> None:
    found = collected(2, 6, -RETAINED).read().fold
    assert found.checkpoints == MADE[-RETAINED:] and found.collected == NUMBERS[-RETAINED] and not found.lost


@pytest.mark.parametrize("count", range(4))
def test_an_older_checkpoint_does_as_long_as_one_can_be_read(count: int) -> None:
    """As `readable` finds out: the newest cannot be read, then the one before, until none is left."""
    unreadable = frozenset((made.generation, made.number) for made in MADE[len(MADE) - count :])
    found = collected(2, 6, -RETAINED).read(unreadable).fold
    assert found.lost == (count == RETAINED)
    if not found.lost:
        assert said(found) == said(standing(ENTRIES, unreadable), found)


def test_a_later_checkpoint_takes_the_place_of_one_that_cannot_be_read() -> None:
    oldest = MADE[-RETAINED]
    found = collected(2, -RETAINED).read(frozenset({(oldest.generation, oldest.number)})).fold
    assert found.checkpoints == MADE[-RETAINED + 1 :] and not found.lost


@pytest.mark.parametrize("steps", range(40))
def test_who_collects_may_die_anywhere(steps: int) -> None:
    """Goal: whoever reads then finds the same, and the next one who collects finishes it."""
    objects = collected(1, 3)
    expected = said(standing(ENTRIES), objects.read().fold)
    broken = objects.steps(collecting(MADE[7], at_once=1))
    for _ in range(steps):
        if next(broken, None):
            break
    found = objects.read().fold
    assert said(found) == said(standing(ENTRIES), found)
    objects.done(collecting(MADE[-RETAINED]))
    objects.done(collecting(MADE[-RETAINED + 1]))
    assert objects.snapshots == [NUMBERS[-RETAINED], NUMBERS[-RETAINED + 1]]
    assert objects.entries == [n for n in range(1, len(ENTRIES) + 1) if n > NUMBERS[-RETAINED] or n in BEGINS]
    assert expected[:6] == said(objects.read().fold)[:6]


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_two_collect_at_once_and_a_third_reads(seed: int) -> None:
    """Goal: a driver that was replaced may collect by what it knows. Method: requests of both in any order, the journal read after each,
    and one who reads slowly meanwhile."""
    random, objects = Random(f"two {seed}"), collected(*[0, 2][: seed % 3])
    who = [
        objects.steps(collecting(MADE[random.randrange(1, len(MADE))], at_once=random.randint(1, 5))) for _ in range(random.randint(2, 3))
    ]
    reader = objects.steps(reading(Standing))
    while who:
        at = random.randrange(len(who) + 1)
        if at == len(who):
            found = next(reader, None)
            if found is not None:
                assert said(found.fold) == said(standing(ENTRIES), found.fold)
                reader = objects.steps(reading(Standing))
        elif next(who[at], 0) is not None:
            who.pop(at)
        whole = objects.read().fold
        assert said(whole) == said(standing(ENTRIES), whole)
    assert said(standing(ENTRIES))[:6] == said(objects.read().fold)[:6]


@pytest.mark.parametrize("taken", range(1, 30))
def test_who_is_overtaken_while_he_reads_begins_anew(taken: int) -> None:
    objects = collected(1, 3)
    reader = objects.steps(reading(Standing))
    for _ in range(taken):
        next(reader, None)
    for index in (5, 7, 9):
        objects.done(collecting(MADE[index]))
    [*_, found] = [*reader] or [objects.read()]
    assert found is not None and said(found.fold) == said(standing(ENTRIES), found.fold)


def test_what_a_request_brings_back_that_is_done_twice_is_not_looked_at_and_goes_again() -> None:
    objects = collected(1, 3, 5)
    gone = [entry for entry in ENTRIES if entry_name(entry.number) not in objects.there][-1]
    objects.there[entry_name(gone.number)] = to_bytes(gone)
    found = objects.read().fold
    assert said(found) == said(standing(ENTRIES), found)
    objects.done(collecting(MADE[7]))
    assert entry_name(gone.number) not in objects.there


# ------------------------------------------------ what is wrong with a snapshot


def spoilt(data: bytes, how: str) -> bytes | None:
    return {"torn": data[: len(data) // 2], "altered": data.replace(b"run-1", b"run-2"), "empty": b"", "missing": None}[how]


@pytest.mark.parametrize("how", ["torn", "altered", "empty", "missing"])
def test_the_snapshot_before_does_as_well(how: str) -> None:
    objects = collected(1, 3, 6)
    name = snapshot_name(objects.snapshots[-1])
    data = spoilt(objects.there.pop(name), how)
    if data is not None:
        objects.there[name] = data
    found = objects.read()
    assert said(found.fold) == said(standing(ENTRIES), found.fold)
    assert [name in text for text in found.passed_over] == ([] if how == "missing" else [True])
    objects.done(collecting(MADE[8]))
    objects.done(collecting(MADE[9]))
    assert objects.snapshots == [NUMBERS[8], NUMBERS[9]] and objects.read().passed_over == ()


@pytest.mark.parametrize("how", ["torn", "altered", "missing"])
def test_without_any_snapshot_the_error_names_what_is_missing(how: str) -> None:
    objects = collected(1, 3, 6)
    for number in objects.snapshots:
        name = snapshot_name(number)
        data = spoilt(objects.there.pop(name), how)
        if data is not None:
            objects.there[name] = data
    with pytest.raises(JournalCorrupt, match="entry 2 of the journal is missing") as raised:
        objects.read()
    assert ("the snapshot that stood for it" if how == "missing" else snapshot_name(NUMBERS[6])) in str(raised.value)


def test_a_snapshot_that_is_torn_before_anything_was_deleted_costs_nothing() -> None:
    objects = collected(2)
    objects.there[snapshot_name(NUMBERS[2])] = b"{"
    found = objects.read()
    assert found.fold == standing(ENTRIES) and len(found.passed_over) == 1


def resigned(said_: dict[str, object]) -> bytes:
    said_.pop("digest")
    return json.dumps({**said_, "digest": digest_of_json(said_)}).encode()


def test_a_snapshot_of_a_newer_format_is_not_passed_over() -> None:
    """Who has written it may have written more that this version does not know."""
    objects = collected(1, 3, 6)
    name = snapshot_name(objects.snapshots[-1])
    objects.there[name] = resigned({**json.loads(objects.there[name]), "format": 9})
    with pytest.raises(JournalCorrupt, match="it is of format 9, and this version reads formats"):
        objects.read()


@pytest.mark.parametrize("field", ["begun", "begins", "contents", "cuts", "completed", "restored", "rows"])
def test_a_snapshot_with_a_field_of_another_type_is_passed_over(field: str) -> None:
    objects = collected(1, 3, 6)
    name = snapshot_name(objects.snapshots[-1])
    said_ = json.loads(objects.there[name])
    said_["matter"][field] = [["x"]]
    objects.there[name] = resigned(said_)
    assert len(objects.read().passed_over) == 1


def test_an_entry_in_the_place_of_a_snapshot_and_a_snapshot_in_that_of_an_entry_are_refused() -> None:
    objects = collected(1, 3, 6)
    name, last = snapshot_name(NUMBERS[6]), entry_name(NUMBERS[6] + 1)
    snapshot = objects.there[name]
    objects.there[name] = to_bytes(ENTRIES[NUMBERS[6] - 1])
    assert "it is in the place of a snapshot" in objects.read().passed_over[0]
    moved = snapshot_from(snapshot, NUMBERS[6])
    objects.there |= {name: snapshot, last: to_bytes(Entry(NUMBERS[6] + 1, moved.generation, moved.nonce, moved.matter))}
    with pytest.raises(JournalCorrupt, match="is a snapshot of what came before it"):
        objects.read()


# ------------------------------------------------ what it has


def test_a_snapshot_comes_back() -> None:
    stored = RowsObject(1, 2, 3, 4, 5, "ab" * 16)  # type: ignore[arg-type]
    rows = Logged({A: (cut(1), cut(2), cut(3)._replace(objects=(stored,))), B: tuple(map(cut, range(1, 6)))})
    restored = Completed(9, 0, (), generation=0)
    matters: list[Matter] = [BEGUN, rows, Completed(1, 2, (), generation=1)]
    found = standing([Entry(at, 1, "n", matter) for at, matter in enumerate(matters, 1)])
    found.restored = restored
    snapshot = found.snapshot()
    assert from_bytes(to_bytes(snapshot), 3).matter == snapshot.matter
    again = standing([snapshot])
    assert said(again) == said(found) and again.rows == {stored.name: 3} and again.restored == restored
    assert isinstance(snapshot.matter, Snapshot) and [len(cuts) for cuts in snapshot.matter.cuts.values()] == [1, 3]


def test_no_altered_byte_of_a_snapshot_is_believed() -> None:
    whole = to_bytes(standing(ENTRIES[: NUMBERS[4]]).snapshot())
    for at in range(0, len(whole), 13):
        data = bytearray(whole)
        data[at] ^= 1
        with pytest.raises(JournalCorrupt):
            pytest.fail(f"byte {at} altered: {snapshot_from(bytes(data), NUMBERS[4])}")
