"""A way for bytes in virtual time: laws over drawn schedules of sending, cuts and changes of the delay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.bench.delayed_bytes import MOST_BYTES, Way


def test_bytes_arrive_after_the_delay_and_in_order() -> None:
    way = Way(delay_us=10)
    way.send(b"a", 0)
    way.delay_us = 1
    way.send(b"b", 2)
    assert way.due_us() == 10 and way.arrive(9) == []
    assert way.arrive(10) == [b"a", b"b"], "what is sent later overtakes nothing, however short its way"
    assert way.due_us() is None and way.under_way == 0


def test_a_cut_holds_everything_and_what_has_waited_is_sent_again() -> None:
    way = Way(delay_us=10)
    way.send(b"a", 0)
    way.cut = True
    assert way.due_us() is None and way.arrive(1_000) == []
    way.heal(1_000)
    assert way.arrive(1_009) == [] and way.arrive(1_010) == [b"a"]
    way.send(b"b", 1_005)
    assert way.due_us() == 1_015


def test_the_end_comes_behind_the_bytes() -> None:
    way = Way(delay_us=5)
    way.send(b"a", 0)
    way.send(b"", 1)
    assert way.ended and not way.is_empty
    assert way.arrive(6) == [b"a", b""] and way.is_empty
    with pytest.raises(AssertionError, match="behind the end"):
        way.send(b"b", 7)


def test_a_sender_waits_where_too_much_is_under_way() -> None:
    way = Way(delay_us=5)
    way.send(bytes(MOST_BYTES), 0)
    assert not way.has_room
    way.arrive(5)
    assert way.has_room


steps = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(["send", "send", "send", "cut", "heal", "delay", "look"]), st.integers(0, 40)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_all_comes_once_in_order_never_early_and_never_through_a_cut(drawn: list[tuple[int, str, int]]) -> None:
    way, now, sent, got = Way(delay_us=7), 0, list[tuple[int, bytes]](), list[bytes]()
    for passes, what, number in drawn:
        now += passes
        if what == "send":
            data = len(sent).to_bytes(2, "big")
            way.send(data, now)
            sent.append((now + way.delay_us, data))
        elif what == "cut":
            way.cut = True
        elif what == "heal":
            way.heal(now)
        elif what == "delay":
            way.delay_us = number
        arrived = way.arrive(now)
        assert not (arrived and way.cut)
        for data in arrived:
            assert sent[len(got)][1] == data and sent[len(got)][0] <= now
            got.append(data)
    way.heal(now)
    due = way.due_us()
    assert (due is None) == (len(got) == len(sent))
    assert [*got, *way.arrive(now + 10_000)] == [data for _, data in sent]
    assert way.under_way == 0
