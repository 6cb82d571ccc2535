"""Entries of the journal as bytes, and what they add up to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.availability.entries import (
    FORMAT,
    WITH_DRAINS,
    WITHOUT_CUTS,
    Begun,
    Completed,
    Content,
    Cut,
    Drained,
    Ended,
    Entry,
    LeftOut,
    Logged,
    Matter,
    from_bytes,
    is_newer,
    snapshot_from,
    to_bytes,
)
from evenflow.availability.standing import Standing, standing
from evenflow.errors import JournalCorrupt
from evenflow.exchange.section import RowsObject, Share
from evenflow.stream.digest import digest_of_json

A, B = (0, 0), (0, 1)
BEGUN = Begun("run-1", "counting", "abcd", {"sites": 4, "writers": None}, (A, B), Content(1))


def cut(epoch: int, taken: int | None = None) -> Cut:
    return Cut(epoch, 1_000 * epoch, 1_000 * epoch - 7, epoch * 10 if taken is None else taken, False, False)


def journal(*matters: Matter, generation: int = 1, start: int = 1) -> list[Entry]:
    return [Entry(start + at, generation, f"nonce-{generation}", matter) for at, matter in enumerate(matters)]


def folded(*matters: Matter) -> Standing:
    return standing(journal(*matters))


ints = st.integers(0, 2**40)


def of_columns(
    epoch: int, taken: int, stamp: int, wait: int, done: bool, ended: bool, shares: list[Share], rows: int | None, *more: Any
) -> Cut:
    """rows: that stay, if that is known."""
    objects, left = more
    keep, dropped = tuple(keep for keep, _ in left), tuple(lost for _, lost in left)
    had = None if rows is None else rows + sum(dropped)
    return Cut(epoch, stamp, stamp - wait, taken, done, ended, tuple(shares), had, tuple(objects), keep, dropped)


drawn_cuts = st.integers(1, 2**31).flatmap(
    lambda first: st.lists(
        st.tuples(
            ints,
            ints,
            ints,
            st.booleans(),
            st.booleans(),
            st.lists(st.builds(Share, ints, st.integers(-1, 9), ints, st.booleans())),
            st.none() | ints,
            st.lists(st.builds(RowsObject, ints, ints, ints, ints, ints, st.binary(min_size=16, max_size=16).map(bytes.hex))),
            st.lists(st.tuples(st.integers(0, 2**32), ints), max_size=2),
        ),
        max_size=4,
    ).map(lambda rows: tuple(of_columns(first + i, *row) for i, row in enumerate(rows)))
)


@given(st.dictionaries(st.tuples(ints, ints), drawn_cuts, max_size=3))
def test_what_is_logged_comes_back(cuts: dict[tuple[int, int], tuple[Cut, ...]]) -> None:
    given = Entry(7, 2, "n", Logged(cuts, (Content(4, (((0, 1), (9, 0)), ()), ((1, 2),), 3, ((0, ("b", "a")),), program="ab"),)))
    back = from_bytes(to_bytes(given), 7)
    assert back == given and back.matter == given.matter


@pytest.mark.parametrize("matter", [BEGUN, Completed(1, 5, ()), Ended(9)])
def test_every_kind_comes_back(matter: Matter) -> None:
    assert from_bytes(to_bytes(Entry(1, 1, "n", matter)), 1).matter == matter


def test_no_altered_byte_is_believed() -> None:
    whole = to_bytes(Entry(1, 1, "n", BEGUN))
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        with pytest.raises(JournalCorrupt, match="entry 1"):
            pytest.fail(f"byte {at} altered: {from_bytes(bytes(data), 1)}")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, to_bytes(Entry(1, 1, "n", BEGUN))[:-9]])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        from_bytes(data, 1)


def test_an_entry_in_another_place_is_refused() -> None:
    with pytest.raises(JournalCorrupt, match="says that it is entry 2"):
        from_bytes(to_bytes(Entry(2, 1, "n", BEGUN)), 1)


def test_a_newer_format_is_named() -> None:

    said = json.loads(to_bytes(Entry(1, 1, "n", BEGUN)))
    del said["digest"]
    said["format"] = 9
    said["digest"] = digest_of_json(said)
    with pytest.raises(JournalCorrupt, match="format 9"):
        from_bytes(json.dumps(said).encode(), 1)


def test_durable_is_what_all_partitions_have() -> None:
    assert folded(BEGUN, Logged({A: (cut(1), cut(2)), B: (cut(1),)})).durable == 1


def test_a_new_generation_cuts_anew_what_was_not_durable() -> None:
    before = journal(BEGUN, Logged({A: (cut(1), cut(2)), B: (cut(1),)}))
    after = journal(BEGUN, Logged({A: (cut(2, 99),), B: (cut(2),)}), generation=2, start=3)
    found = standing([*before, *after])
    assert found.durable == 2 and found.cuts[A][-1].taken == 99


def test_a_plan_that_was_not_durable_is_forgotten() -> None:
    before = journal(BEGUN, Logged({A: (cut(1),), B: (cut(1),)}, (Content(3, (), ((1, 2),)),)))
    assert standing([*before, *journal(BEGUN, generation=2, start=3)]).contents == [Content(1)]


def test_a_version_that_was_promised_acts_from_the_first_epoch_that_is_new() -> None:
    promised = Content(9, (), ((1, 2),), 1, program="ab")
    before = journal(BEGUN, Logged({A: (cut(1),), B: (cut(1),)}, (promised,)))
    again = journal(BEGUN, generation=2, start=3)
    assert standing([*before, *again]).contents == [Content(1), Content(2, version=1, program="ab")], "its weights were not promised"
    later = journal(Logged({A: (cut(2),), B: (cut(2),)}), Completed(1, 2, ()), generation=2, start=4)
    assert standing([*before, *again, *later]).contents == [Content(2, version=1, program="ab")]


def test_entries_without_versions_are_as_they_were() -> None:
    said = json.loads(to_bytes(Entry(1, 1, "n", Logged({}, (Content(4, keeps=((0.5,),)), Content(5))))))["matter"]["contents"]
    assert said == [[4, [], [], 0, [], [], [[0.5]]], [5, [], [], 0]]


def test_a_checkpoint_forgets_what_it_covers() -> None:
    plans = Logged({A: (cut(1), cut(2), cut(3)), B: (cut(1), cut(2), cut(3))}, (Content(3, (), ((1, 2),)),))
    found = folded(BEGUN, plans, Completed(1, 2, ()))
    assert (found.base, found.durable, [c.epoch for c in found.cuts[A]]) == (2, 3, [3])
    assert found.contents == [Content(1), Content(3, (), ((1, 2),))], "state of epoch 2 is as the first has divided it"


def test_a_checkpoint_that_cannot_be_read_is_passed_over_and_what_came_after_the_one_before_is_replayed() -> None:
    cuts = tuple(cut(epoch) for epoch in range(1, 9))
    matters = (BEGUN, Logged({A: cuts, B: cuts}), Completed(1, 2, (), generation=1), Completed(2, 5, (), generation=1))
    whole, older, none = (standing(journal(*matters), unreadable) for unreadable in ((), {(1, 2)}, {(1, 1), (1, 2)}))
    assert [(found.base, found.durable, found.cuts[A][0].epoch) for found in (whole, older, none)] == [(5, 8, 6), (2, 8, 3), (0, 8, 1)]
    more = [
        *journal(*matters),
        *journal(BEGUN, Logged({A: (cut(9),), B: (cut(9),)}), Completed(1, 9, (), generation=2), generation=2, start=5),
    ]
    assert [standing(more, unreadable).base for unreadable in ((), {(1, 2)}, {(2, 1)})] == [9, 9, 5]


@pytest.mark.parametrize(
    ("matters", "why"),
    [
        ((BEGUN, Logged({A: (cut(2),)})), "expected was 1"),
        ((BEGUN, Logged({(5, 5): (cut(1),)})), "does not have"),
        ((BEGUN, Completed(1, 1, ())), "completes epoch 1"),
        ((Logged({}),), "which has not begun"),
    ],
)
def test_contradictions_are_refused(matters: tuple[Matter, ...], why: str) -> None:
    with pytest.raises(JournalCorrupt, match=why):
        folded(*matters)


def test_entries_of_a_stale_driver_are_refused() -> None:
    stale = Entry(3, 1, "nonce-1", Logged({}))
    with pytest.raises(JournalCorrupt, match="generation 1"):
        standing([*journal(BEGUN), *journal(BEGUN, generation=2, start=2), stale])


def test_a_missing_entry_is_named() -> None:
    first, _, third = journal(BEGUN, Logged({}), Logged({}))
    with pytest.raises(JournalCorrupt, match="entry 2 of the journal is missing"):
        standing([first, third])


def test_what_has_come_to_a_source_counts_from_its_entry_on_whenever_its_plan_acts() -> None:
    """Goal: a place keeps what it reads: rows of it may be durable before the plan's first epoch. Method: a plan that acts far ahead, and
    then another driver; or a checkpoint, and what is taken of it alone."""
    came = ((0, ("b", "a")),)
    before = [BEGUN, Logged({A: (cut(1), cut(2)), B: (cut(1), cut(2))}, (Content(90, newcomers=came),))]
    again = standing([*journal(*before), *journal(BEGUN, generation=2, start=3)])
    assert again.contents == [Content(1, newcomers=came)]
    made = folded(*before, Completed(1, 2, ()))
    assert made.contents == [Content(1, newcomers=came), Content(90, newcomers=came)]


def test_what_was_left_out_is_still_known_when_cuts_are_gone() -> None:
    """Goal: nothing that was left out is forgotten or counts twice, whatever is collected. Method: two checkpoints, and one that cannot be
    read; once all entries are added up, once those behind a snapshot."""

    def thinned(epoch: int, rows: int, *dropped: int) -> Cut:
        return cut(epoch)._replace(rows=rows, keep=(7,) * len(dropped), dropped=dropped)

    first = Logged({A: (cut(1), thinned(2, 9, 1, 3), cut(3)), B: (cut(1), cut(2), cut(3))})
    second = Logged({A: (thinned(4, 10, 2, 0), thinned(5, 20, 0, 6)), B: (cut(4), thinned(5, 5, 5))})
    done = [Completed(number, epoch, (), generation=1) for number, epoch in ((1, 2), (2, 4), (3, 5))]
    matters = (BEGUN, first, done[0], second, done[1])
    found = folded(*matters)
    assert found.left_out == {A: LeftOut(4, 5 + 8, (3, 3))}
    assert [each.dropped for each in found.cuts[A]] == [(0, 6)]
    snapshot = snapshot_from(to_bytes(found.snapshot()), 5)
    whole, collected = [*journal(*matters, done[2])], [snapshot, *journal(done[2], start=6)]
    for entries in (whole, collected):
        assert standing(entries).left_out == {A: LeftOut(5, 5 + 8 + 14, (3, 9)), B: LeftOut(5, 0, (5,))}
    assert standing(whole, [(1, 2)]).left_out == standing(whole).left_out
    assert standing(whole, [(1, 2), (1, 3)]).left_out == {A: LeftOut(2, 5, (1, 3))}


@pytest.mark.parametrize(
    ("keep", "dropped"),
    [((-1,), (5,)), ((2**70,), (5,)), ((1, 1), (5,)), ((1,), (-5,)), ((1,), (11,)), ((1,) * 9, (1,) * 9), ((1,), ())],
)
def test_what_nobody_can_have_left_out_is_refused(keep: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    entry = Entry(2, 1, "n", Logged({A: (cut(1)._replace(rows=10, keep=keep, dropped=dropped),)}))
    with pytest.raises(JournalCorrupt, match="rows left out"):
        from_bytes(to_bytes(entry), 2)


def test_what_is_left_out_of_a_cut_that_is_not_there_is_refused() -> None:
    said = json.loads(to_bytes(Entry(2, 1, "n", Logged({A: (cut(1)._replace(rows=10, keep=(1,), dropped=(5,)),)}))))
    text = json.dumps(said["matter"])
    assert text.count("[[0, [1], [5]]]") == 1
    said["matter"] = json.loads(text.replace("[[0, [1], [5]]]", "[[1, [1], [5]]]"))
    said["digest"] = digest_of_json({name: value for name, value in said.items() if name != "digest"})
    with pytest.raises(JournalCorrupt, match="rows left out"):
        from_bytes(json.dumps(said).encode(), 2)


def test_versions_are_needed_as_long_as_a_checkpoint_is() -> None:
    """K8: what acts at the epoch of the oldest one that is kept, and later."""
    one, two = Content(2, version=1, program="ab"), Content(4, version=2, program="cd")
    logged = Logged({A: tuple(cut(e) for e in range(1, 6)), B: tuple(cut(e) for e in range(1, 6))}, (one, two))
    found = folded(BEGUN, logged, Completed(1, 3, ()))
    assert found.programs == [(1, ""), (2, "ab"), (4, "cd")]
    needed = [found.programs_since(epoch) for epoch in range(6)]
    assert needed == [{"", "ab", "cd"}, {"", "ab", "cd"}, {"ab", "cd"}, {"ab", "cd"}, {"cd"}, {"cd"}]
    again = standing([found.snapshot()])
    assert again.programs_since(3) == {"ab", "cd"}, "who reads a snapshot knows of all that its checkpoint needs"


@pytest.mark.parametrize("programs", [("ab", "cd"), ("ab", ""), ("ab", "cd", "ab")])
def test_of_versions_that_act_from_one_epoch_on_the_last_one_is_needed_behind_it(programs: tuple[str, ...]) -> None:
    """Method: replaced again before an epoch has begun; a checkpoint behind it, and another generation before and after that."""
    contents = tuple(Content(4, version=number, program=program) for number, program in enumerate(programs, 1))
    cuts = tuple(map(cut, range(1, 6)))
    began = journal(BEGUN, Logged({A: cuts[:3], B: cuts[:3]}, contents))
    again = journal(BEGUN, Logged({A: cuts[3:], B: cuts[3:]}), Completed(1, 5, (), generation=2), generation=2, start=3)
    for entries in (began, [*began, again[0]], [*began, *again]):
        found = standing(entries)
        assert found.programs == [(1, ""), *((4, program) for program in programs)]
        assert found.programs_since(3) == {"", *programs} and found.programs_since(4) == {programs[-1]}
        assert {content.program for content in found.contents} <= found.programs_since(found.base)


# ---------------------------------------------------------------- without cuts

BEHIND = replace(BEGUN, behind=0)


def test_an_entry_without_cuts_is_of_a_later_format_and_comes_back_as_it_was() -> None:
    """Versions before would take each checkpoint for one that contradicts the journal."""
    entry = Entry(1, 1, "nonce-1", BEHIND)
    data = to_bytes(entry)
    assert json.loads(data)["format"] == WITHOUT_CUTS and json.loads(to_bytes(Entry(1, 1, "nonce-1", BEGUN)))["format"] == FORMAT
    assert from_bytes(data, 1).matter == BEHIND and not is_newer(data)


def test_a_drained_run_stays_one_in_snapshots_and_for_those_who_go_on() -> None:
    """Versions before would read on: they do not read such entries."""
    data = to_bytes(Entry(2, 1, "nonce-1", Drained(3)))
    assert json.loads(data)["format"] == WITH_DRAINS and from_bytes(data, 2).matter == Drained(3) and not is_newer(data)
    found = folded(BEHIND, Drained(0), Completed(1, 7, ()))
    assert found.drained and not folded(BEHIND, Completed(1, 7, ())).drained
    snapshot = from_bytes(to_bytes(found.snapshot()), found.last)
    again = Standing()
    again.add(snapshot)
    assert again.drained and json.loads(to_bytes(snapshot))["format"] == WITH_DRAINS


def test_what_is_durable_is_the_newest_checkpoint() -> None:
    found = folded(BEHIND, Completed(1, 7, ()), Completed(2, 12, ()))
    assert (found.precise, found.base, found.durable, found.sinks_run) == (False, 12, 12, "run-1.g1")
    assert folded(BEGUN).sinks_run == "run-1"
    assert folded(replace(BEGUN, behind=7, restored=Completed(1, 7, ()))).base == 7
    with pytest.raises(JournalCorrupt):
        folded(BEHIND, Completed(1, 7, ()), Completed(2, 7, ()))


def test_a_generation_goes_back_to_its_checkpoint() -> None:
    """Goal: of one that was passed over nothing counts, whoever reads the journal. Method: plans before and behind both, and their epochs
    again in the next generation."""
    first, later = Content(4, ranges=(((0, 1),),)), Content(9, ranges=(((0, 2),),))
    before = journal(BEHIND, Completed(1, 3, ()), Logged({}, (first,)), Logged({}, (later,)), Completed(2, 10, ()))
    again = journal(replace(BEGUN, behind=3), Completed(3, 8, ()), generation=2, start=6)
    found = standing([*before, *again[:1]])
    assert (found.base, found.durable, found.contents) == (3, 3, [Content(1), first])
    assert standing([*before, *again[:1]], unreadable=[(0, 2)]).contents == found.contents
    assert standing([*before, *again]).base == 8 and found.sinks_run == "run-1.g2"
