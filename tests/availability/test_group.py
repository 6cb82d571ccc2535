"""What regions have to have in common, and when one that comes late is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.availability.chain import Link
from evenflow.availability.group import Group, Shape
from evenflow.availability.silence import COMPARED, Gate, Silence, Start, Withheld, reading
from evenflow.errors import GroupDiffers, QueryError, RegionsDisagree

GROUP = Group("traffic", 1_000_000, 50_000, Shape(4, {"clicks": 8}, {"table": 2}), "abcd", "1")


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (replace(GROUP, name="other"), "name"),
        (replace(GROUP, origin_us=0), "origin_us"),
        (replace(GROUP, width_us=20_000), "width_us"),
        (replace(GROUP, shape=Shape(2, {"clicks": 8}, {"table": 2})), "sites"),
        (replace(GROUP, shape=Shape(4, {"clicks": 4}, {"table": 2})), "partitions"),
        (replace(GROUP, shape=Shape(4, {"clicks": 8}, {"table": 1})), "writers"),
        (replace(GROUP, network="ffff"), "network"),
        (replace(GROUP, version="2"), "version"),
    ],
)
def test_another_group_is_told_by_its_digest_and_named_by_what_differs(other: Group, field: str) -> None:
    assert other.digest != GROUP.digest
    with pytest.raises(GroupDiffers, match="west") as raised:
        GROUP.demand(other.facts(), "west")
    assert raised.value.field == field


def test_equal_groups_have_equal_digests_in_whatever_order_they_are_said() -> None:
    one = replace(GROUP, shape=Shape(1, {"a": 1, "b": 2}))
    assert one.digest == replace(GROUP, shape=Shape(1, {"b": 2, "a": 1})).digest
    one.demand(one.facts(), "west")


@pytest.mark.parametrize("said", [{}, {"name": "traffic"}, {**GROUP.facts(), "sites": None}])
def test_who_does_not_say_enough_is_of_another_group(said: dict[str, object]) -> None:
    with pytest.raises(GroupDiffers):
        GROUP.demand(said, "west")


@pytest.mark.parametrize("name", ["", "a b", "../x", "a" * 129, "-x"])
def test_a_name_is_part_of_files_and_transactions(name: str) -> None:
    with pytest.raises(QueryError, match="name"):
        replace(GROUP, name=name)


@pytest.mark.parametrize("shape", [{"sites": 0}, {"sites": 1, "partitions": {"s": 0}}, {"sites": 1, "writers": {"s": True}}])
def test_a_shape_counts_from_one(shape: dict[str, object]) -> None:
    with pytest.raises(QueryError, match="whole number"):
        Shape(**shape)  # type: ignore[arg-type]


def test_epochs_follow_from_time_alone() -> None:
    assert [GROUP.epoch_of(at) for at in (0, 1_000_000, 1_049_999, 1_050_000, 2_000_000)] == [1, 1, 1, 2, 21]


# ---------------------------------------------------------------- a region without state


def test_a_checkpoint_is_nearer_than_the_origin_and_the_origin_is_exact() -> None:
    assert (reading(900, 1, 700, 10).start, reading(900, 1, 700, 10).after) == (Start.CHECKPOINT, 700)
    assert reading(900, 1, None, 10).start is Start.ORIGIN and not reading(900, 1, None, None).silent
    assert (reading(900, 500, 300, 10).start, reading(900, 500, 300, 10).after) == (Start.HORIZON, 889)


@pytest.mark.parametrize("facts", [(900, 500, 300, None), (900, 895, None, 10), (900, 895, 700, 10)])
def test_where_no_way_is_exact_and_the_horizon_is_not_there_it_is_refused(facts: tuple[int, int, int | None, int | None]) -> None:
    with pytest.raises(QueryError, match="cannot begin"):
        reading(*facts)


def links(first: int, last: int, *, digest: int = 1) -> list[Link]:
    return [Link(epoch - 1, epoch, digest) for epoch in range(first, last + 1)]


@pytest.mark.parametrize("ahead", [-5, 0, 5])
def test_it_is_silent_until_so_many_epochs_were_as_a_live_region_has_them(ahead: int) -> None:
    silence = Silence("out")
    own, live = links(10, 10 + COMPARED + 10), links(10, 10 + COMPARED + 10)
    for at in range(COMPARED + 10):
        if 0 <= at + ahead < len(own):
            silence.made(own[at + ahead])
        silence.heard(live[at], "east")
        assert silence.over == (silence.agreed >= COMPARED)
        if silence.over:
            assert silence.through >= 10 + COMPARED - 1
            return
    pytest.fail("it stays silent for ever")


def test_one_epoch_that_differs_begins_the_count_again_and_is_no_contradiction() -> None:
    silence = Silence("out")
    for epoch in range(1, 2 * COMPARED):
        silence.made(Link(epoch - 1, epoch, 0 if epoch == COMPARED else 1))
        silence.heard(Link(epoch - 1, epoch, 1), "east")
    assert silence.agreed == COMPARED - 1 and not silence.over


def test_an_epoch_that_only_one_side_has_is_none_that_agrees() -> None:
    silence = Silence("out")
    silence.made(Link(0, 1, 1))
    silence.made(Link(1, 2, 1))
    silence.heard(Link(0, 2, 1), "east")
    assert silence.agreed == 0 and silence.through == 2


def test_who_was_believed_and_differs_then_is_a_contradiction() -> None:
    silence = Silence("out")
    for link in links(1, COMPARED):
        silence.made(link)
        silence.heard(link, "east")
    assert silence.over
    silence.made(Link(COMPARED, COMPARED + 1, 5))
    with pytest.raises(RegionsDisagree, match="east"):
        silence.heard(Link(COMPARED, COMPARED + 1, 6), "east")


def test_what_was_not_heard_of_a_live_region_is_no_contradiction_and_begins_the_count_again() -> None:
    silence = Silence.behind("out", 0)
    for link in links(1, 9):
        silence.made(link)
    for link in links(1, 5):
        silence.heard(link, "east")
    assert silence.agreed == 5
    silence.heard(Link(8, 9, 1), "east")
    assert silence.agreed == 1 and silence.since == 8 and silence.through == 9


def test_nothing_is_given_out_before_all_silences_are_over_and_then_what_agreed() -> None:
    """Rows behind the last epoch that differed are those of a live region, and so is what came before the first of them."""
    silence = Silence.behind("out", 4)
    silence.needed = 3
    withheld = Withheld[str](Gate({"out": silence}), 4)
    given, own = list[Link](), [Link(0, 1, 0)]
    for epoch in (5, 7, 8, 9, 12):
        own.append(withheld.made(epoch, epoch, f"rows of {epoch}"))
        silence.made(own[-1])
        given += [link for link, _ in withheld.given()]
        assert not given
    for link in (Link(3, 5, 5), Link(5, 7, 7), Link(7, 8, 8)):
        silence.heard(link, "east")
        assert not withheld.given()
    silence.heard(Link(8, 9, 9), "east")
    assert withheld.given() == [(Link(prev, e, e), f"rows of {e}") for prev, e in ((5, 7), (7, 8), (8, 9), (9, 12))]
    assert [link for link, _ in withheld.given()] == [] and withheld.made(13, 1, "") == Link(12, 13, 1)


def test_a_region_that_is_exact_withholds_nothing() -> None:
    withheld = Withheld[str](Gate(), 0)
    assert withheld.made(3, 7, "rows") == Link(0, 3, 7) and withheld.given() == [(Link(0, 3, 7), "rows")]


def test_a_quiet_sink_is_not_waited_for_and_its_first_epoch_is_left_to_others() -> None:
    """Nobody here knows which epoch with rows came before the horizon."""
    loud, quiet = Silence.behind("out", 4), Silence.behind("alerts", 4)
    loud.needed = quiet.needed = 2
    gate = Gate({"out": loud, "alerts": quiet})
    withheld = Withheld[str](gate, 4, known=False)
    for link in links(5, 6):
        loud.made(link)
        assert not gate.over
        loud.heard(link, "east")
    assert gate.over
    assert withheld.made(20, 1, "first") == Link(4, 20, 1) and withheld.given() == []
    assert withheld.made(30, 1, "second") == Link(20, 30, 1) and withheld.given() == [(Link(20, 30, 1), "second")]


@pytest.mark.parametrize("pending", ["own", "live", "differed"])
def test_a_quiet_sink_of_which_something_is_left_to_compare_or_that_has_differed_is_waited_for(pending: str) -> None:
    loud, quiet = Silence.behind("out", 4), Silence.behind("alerts", 4)
    loud.needed = quiet.needed = 2
    gate = Gate({"out": loud, "alerts": quiet})
    if pending != "live":
        quiet.made(Link(4, 5, 1))
    if pending != "own":
        quiet.heard(Link(3, 5, 2), "east")
    for link in links(5, 6):
        loud.made(link)
        loud.heard(link, "east")
    assert loud.over and not gate.over
    for link in links(7, 8):
        loud.made(link)
        loud.heard(link, "east")
    assert gate.over == (pending == "differed")
