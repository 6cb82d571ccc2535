"""Regions that write to one sink: every epoch once and in order, whoever dies, and nobody waits for who is not there."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.availability.chain import Link
from evenflow.availability.committing import LACKS_US, Appending, Held, Move, Next, Turns
from evenflow.errors import RegionsDisagree, SinkError


def link(epoch: int, prev: int | None = None, digest: int | None = None) -> Link:
    return Link(epoch - 1 if prev is None else prev, epoch, 7 * epoch if digest is None else digest)


def test_the_first_region_appends_at_once_and_the_second_waits_a_hedge() -> None:
    first, second = Turns("out", 0), Turns("out", 1)
    for region in (first, second):
        region.seen(Held(), 1000)
    assert first.move(link(1), 1000) is Move.APPEND
    assert second.move(link(1), 1000) is Move.WAIT and second.due_us(1000) == 51_000
    assert second.move(link(1), 51_000) is Move.APPEND
    second.seen(Held(1, 7), 20_000)
    assert second.move(link(1), 20_001) is Move.DONE and second.move(link(2), 60_000) is Move.WAIT, "the wait begins anew"


def test_who_has_appended_goes_on_at_once_and_waits_again_when_others_do() -> None:
    second = Turns("out", 1)
    second.seen(Held(), 0)
    assert second.move(link(1), 0) is Move.WAIT and second.move(link(1), 50_000) is Move.APPEND
    second.appended(link(1), 50_000)
    assert second.move(link(2), 50_001) is Move.APPEND
    second.seen(Held(2, 14), 50_002)
    assert second.move(link(2), 50_003) is Move.DONE and second.move(link(3), 50_003) is Move.WAIT


@pytest.mark.parametrize(("held", "given"), [(Held(4, 1), link(4)), (Held(3, 21), link(4, prev=2)), (Held(2, 14), link(9, prev=4))])
def test_a_sink_that_has_something_else_stops_the_region(held: Held, given: Link) -> None:
    region = Turns("out", 0)
    region.seen(held, 0)
    with pytest.raises(RegionsDisagree):
        region.move(given, 10**6)


@pytest.mark.parametrize("seed", range(30))
def test_every_epoch_is_appended_once_and_in_order(seed: int) -> None:
    draw = Random(seed)
    epochs = sorted(draw.sample(range(1, 400), 60))
    chain = [Link(prev, epoch, epoch) for prev, epoch in zip((0, *epochs), epochs, strict=False)]
    regions = [Turns("out", place) for place in range(draw.randint(1, 4))]
    at, dead_us = [0] * len(regions), [draw.choice([10**12, draw.randint(0, 3_000_000)]) for _ in regions]
    dead_us[draw.randrange(len(regions))] = 10**12
    lag_us = [draw.choice([0, 1000, 100_000]) for _ in regions]
    held, written, now_us = Held(), list[int](), 0
    while min(at[i] for i in range(len(regions)) if dead_us[i] == 10**12) < len(chain) and now_us < 60_000_000:
        now_us += 2000
        for i in draw.sample(range(len(regions)), len(regions)):
            if now_us >= dead_us[i] or at[i] == len(chain) or now_us < chain[at[i]].epoch * 10_000 + lag_us[i]:
                continue
            region, each = regions[i], chain[at[i]]
            if draw.random() < 0.7:  # What it knows may be old.
                region.seen(held, now_us)
            if region.since_us is None:
                continue
            move = region.move(each, now_us)
            if move is Move.APPEND:
                if held.epoch == each.prev:  # The sink decides.
                    held = Held(each.epoch, each.digest)
                    written.append(each.epoch)
                    region.appended(each, now_us)
                    at[i] += 1
                else:
                    region.seen(held, now_us)
            elif move is Move.DONE:
                at[i] += 1
    assert written == epochs


def test_what_a_sink_lacks_from_before_a_region_began_others_bring() -> None:
    late = Turns("out", 1, begun=5)
    late.seen(Held(3, 21), 0)
    assert late.move(link(7, prev=5), LACKS_US - 1) is Move.WAIT, "epoch 5 is missing there, and this region does not have it"
    late.seen(Held(5, 35), LACKS_US)
    assert late.still_us(10**10) == 0
    assert late.move(link(7, prev=5), LACKS_US) is Move.WAIT and late.move(link(7, prev=5), LACKS_US + 50_000) is Move.APPEND


def test_where_nobody_brings_what_a_sink_lacks_it_is_said_and_not_waited_for_without_end() -> None:
    late = Turns("out", 1, begun=5)
    late.seen(Held(2, 14), 0)
    late.seen(Held(3, 21), LACKS_US)
    late.seen(Held(3, 21), 2 * LACKS_US - 1)
    assert late.move(link(7, prev=5), 2 * LACKS_US - 1) is Move.WAIT and late.still_us(2 * LACKS_US - 1) == LACKS_US - 1, "somebody did"
    with pytest.raises(SinkError, match="sink 'out' has epoch 3 last, was given nothing for 300 s, .* only what comes behind epoch 5"):
        late.move(link(7, prev=5), 2 * LACKS_US)


def test_an_epoch_goes_through_by_looking_appending_and_being_done() -> None:
    appending = Appending(Turns("out", 0))
    first = appending.link(4, 9)
    assert first == Link(0, 4, 9) and appending.next(first, 0) is Next.LOOK
    appending.looked(Held(), 0)
    assert appending.next(first, 0) is Next.APPEND
    appending.unknown()
    assert appending.next(first, 1) is Next.LOOK, "nobody knows whether it was taken"
    appending.looked(Held(), 2)
    appending.taken(first, 3)
    assert appending.next(first, 4) is Next.DONE and (appending.appended, appending.seen) == (1, 0)
    second = appending.link(6, 9)
    assert second.prev == 4 and appending.next(second, 5) is Next.APPEND
    appending.refused(fenced=True)
    appending.looked(Held(6, 9), 6)
    assert appending.next(second, 7) is Next.DONE and (appending.appended, appending.seen) == (1, 1)
