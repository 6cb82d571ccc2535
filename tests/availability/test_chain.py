"""A reader of several regions sees the chain, once, in order, whatever its legs do."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest

from evenflow.availability.chain import Chain, Link, Step
from evenflow.availability.finished import Finished
from evenflow.availability.subscribing import Deliver, End, Follow, Subscription, Want
from evenflow.errors import EpochsGone, ProtocolError, RegionsDisagree, RegionsUnreachable


def chain_of(*epochs: int) -> list[Link]:
    return [Link(prev, epoch, 7 * epoch) for prev, epoch in zip((0, *epochs), epochs, strict=False)]


# ---------------------------------------------------------------- one link


def test_an_epoch_is_taken_if_the_one_before_it_was() -> None:
    chain = Chain("out")
    one, four, nine = chain_of(1, 4, 9)
    assert chain.step(four, "a") is Step.GAP, "epoch 1 has not been delivered"
    assert chain.take(one, "a") and chain.take(four, "b")
    assert chain.step(one, "b") is Step.DUPLICATE and chain.step(four, "a") is Step.DUPLICATE
    assert chain.step(Link(9, 10, 0), "a") is Step.GAP
    assert chain.take(nine, "a") and chain.delivered == 9


def test_who_goes_on_behind_an_epoch_without_rows_takes_the_next_one_with_rows() -> None:
    assert Chain("out", delivered=6).take(Link(4, 9, 0), "a")


@pytest.mark.parametrize(
    ("link", "what"),
    [
        (Link(1, 4, 5), "other rows"),
        (Link(1, 2, 14), "has rows in it"),
        (Link(1, 9, 63), "epoch 1 came before it, and epoch 4"),
    ],
)
def test_regions_that_contradict_each_other_are_named(link: Link, what: str) -> None:
    chain = Chain("out")
    for each in chain_of(1, 4):
        chain.take(each, "a")
    with pytest.raises(RegionsDisagree, match=what) as raised:
        chain.step(link, "west:4001")
    assert "west:4001" in str(raised.value) and raised.value.epoch == link.epoch
    assert chain.delivered == 4


def test_what_was_delivered_long_ago_is_not_judged() -> None:
    chain = Chain("out", delivered=6)
    chain.take(Link(4, 9, 0), "a")
    assert chain.step(Link(1, 3, 99), "b") is Step.DUPLICATE


@pytest.mark.parametrize(("prev", "epoch"), [(3, 3), (4, 3), (-1, 3), (0, 0)])
def test_a_link_goes_forward(prev: int, epoch: int) -> None:
    with pytest.raises(ProtocolError):
        Link(prev, epoch, 0)


# ---------------------------------------------------------------- what a region keeps


def test_a_region_keeps_by_age_and_size_and_never_less_than_the_newest() -> None:
    kept = Finished[str](keep_us=100, keep_bytes=10)
    for epoch, at_us in ((1, 0), (4, 10), (9, 20)):
        assert kept.add(epoch, 0, f"rows of {epoch}", 4, at_us) == Link(kept.floor if epoch == 1 else (1 if epoch == 4 else 4), epoch, 0)
    assert kept.floor == 1 and not kept.reaches(0) and kept.after(0) is None
    assert [e.link.epoch for e in (kept.after(1), kept.after(4)) if e] == [4, 9]
    kept.trim(115)
    assert kept.floor == 4 and kept.after(9) is None and kept.reaches(9)
    kept.add(12, 0, "large", 1000, 116)
    assert kept.floor == 9 and (found := kept.of(12)) is not None and found.rows == "large"
    kept.trim(10_000)
    assert kept.floor == 12 and kept.bytes == 0 and not kept.reaches(11) and kept.reaches(12)


def test_what_a_region_makes_again_is_not_said_again() -> None:
    kept = Finished[str](keep_us=100, keep_bytes=10)
    assert kept.add(3, 0, "", 1, 0) and kept.add(3, 0, "", 1, 0) is None and kept.add(2, 0, "", 1, 0) is None


def test_a_region_that_began_behind_an_epoch_serves_nobody_who_has_less() -> None:
    kept = Finished[str](keep_us=100, keep_bytes=10)
    kept.begin_behind(40)
    kept.add(44, 0, "", 1, 0)
    assert not kept.reaches(39) and (found := kept.after(40)) is not None and found.link.prev == 40


# ---------------------------------------------------------------- drawn schedules


@dataclass
class Region:
    """What a server of one region does, in virtual time: `lag_us` behind the truth, `delay_us` from the subscriber."""

    lag_us: int
    delay_us: int
    finished: Finished[int]
    up: bool = True
    cursor: int | None = None
    brings: str = "heads"
    connection: int = 0


@dataclass
class World:
    """A subscriber and its regions. Messages keep their order on a connection; a cut loses what is on its way."""

    draw: Random
    truth: list[Link]
    regions: list[Region]
    race: bool = False
    after: int = 0
    now_us: int = 0
    got: list[tuple[int, Any]] = field(default_factory=list)
    over: bool = False
    events: list[tuple[int, int, Any]] = field(default_factory=list)
    number: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        names = [f"region {at}" for at in range(len(self.regions))]
        self.subscription = Subscription.of("out", names, self.after, 0, race=self.race, patience_us=10**9)

    def at(self, at_us: int, call: Any) -> None:
        heapq.heappush(self.events, (at_us, next(self.number), call))

    def start(self, width_us: int) -> None:
        for at, region in enumerate(self.regions):
            for link in self.truth:
                self.at(link.epoch * width_us + region.lag_us, lambda at=at, link=link: self.finish(at, link))
            self.at((self.truth[-1].epoch + 1) * width_us + region.lag_us, lambda at=at: self.end(at))
            self.at(region.delay_us, lambda at=at: self.connect(at))

    def finish(self, at: int, link: Link) -> None:
        self.regions[at].finished.add(link.epoch, link.digest, link.epoch, 1, self.now_us)
        self.pump(at)

    def end(self, at: int) -> None:
        self.regions[at].finished.ended = True
        self.pump(at)

    def connect(self, at: int) -> None:
        region = self.regions[at]
        if region.up:
            region.connection += 1
            region.cursor = None
            self.carry(self.subscription.joined(at, self.now_us))

    def lose(self, at: int, for_us: int) -> None:
        region = self.regions[at]
        if not region.up:
            return
        region.up = False
        region.connection += 1
        region.cursor = None
        self.carry(self.subscription.lost(at, self.now_us))

        def back() -> None:
            region.up = True
            self.connect(at)

        self.at(self.now_us + for_us, back)

    def ask(self, action: Follow | Want) -> None:
        region, connection = self.regions[action.leg], self.regions[action.leg].connection

        def heard() -> None:
            if region.connection != connection:
                return
            if isinstance(action, Want):
                found = region.finished.of(action.epoch)
                if found is not None:
                    self.say(action.leg, lambda: self.subscription.told(action.leg, found.link, found.rows, self.now_us))
                return
            region.cursor, region.brings = action.after, action.brings
            self.pump(action.leg)

        self.at(self.now_us + region.delay_us, heard)

    def pump(self, at: int) -> None:
        region = self.regions[at]
        while region.cursor is not None:
            if not region.finished.reaches(region.cursor):
                floor, region.cursor = region.finished.floor, None
                self.say(at, lambda floor=floor: self.subscription.missing(at, floor, self.now_us))
                return
            found = region.finished.after(region.cursor)
            if found is None:
                if region.finished.ended:
                    region.cursor, last = None, region.finished.last
                    self.say(at, lambda last=last: self.subscription.ended(at, last))
                return
            region.cursor = found.link.epoch
            rows = found.rows if region.brings == "rows" else None
            self.say(at, lambda found=found, rows=rows: self.subscription.told(at, found.link, rows, self.now_us))

    def say(self, at: int, tell: Any) -> None:
        region, connection = self.regions[at], self.regions[at].connection
        self.at(self.now_us + region.delay_us, lambda: self.carry(tell()) if region.connection == connection else None)

    def carry(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Follow() | Want():
                    self.ask(action)
                case Deliver():
                    self.got.append((action.link.epoch, action.rows))
                case End():
                    self.over = True

    def run(self, until_us: int) -> None:
        while not self.over and self.now_us < until_us:
            due = self.subscription.due_us
            if self.events and (due is None or self.events[0][0] <= due):
                self.now_us, _, call = heapq.heappop(self.events)
                call()
            elif due is not None:
                self.now_us = max(self.now_us, due)
                self.carry(self.subscription.tick(self.now_us))
            else:
                return


def drawn(seed: int) -> World:
    draw = Random(seed)
    epochs = sorted(draw.sample(range(1, 150), draw.randint(1, 100)))
    truth = chain_of(*epochs)
    regions = [
        Region(draw.choice([0, 1000, 200_000]), draw.choice([500, 10_000, 90_000]), Finished(draw.choice([10**9, 400_000]), 10**9))
        for _ in range(draw.randint(1, 4))
    ]
    if all(region.finished.keep_us < 10**9 for region in regions):
        regions[0].finished.keep_us = 10**9
    after = draw.choice([0, 0, draw.choice(epochs), draw.randint(0, epochs[-1])])
    world = World(draw, truth, regions, draw.random() < 0.3, after)
    world.start(width_us=20_000)
    for _ in range(draw.randint(0, 8)):
        at, for_us = draw.randrange(len(regions)), draw.choice([10_000, 500_000, 2_000_000])
        world.at(draw.randint(0, 3_000_000), lambda at=at, for_us=for_us: world.lose(at, for_us))
    return world


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_the_chain_is_seen_once_and_in_order(first: int) -> None:
    for seed in range(first, first + 50):
        world = drawn(seed)
        world.run(60_000_000)
        assert world.over, f"seed {seed}: stuck behind epoch {world.subscription.chain.delivered}"
        wanted = [(link.epoch, link.epoch) for link in world.truth if link.epoch > world.after]
        assert world.got == wanted, f"seed {seed}"


def test_schedules_hit_what_they_are_for() -> None:
    counts = {"hedged": 0, "repeated": 0, "swapped": 0}
    for seed in range(60):
        world = drawn(seed)
        world.run(60_000_000)
        for name in counts:
            counts[name] += getattr(world.subscription, name)
    assert all(counts.values()), counts


# ---------------------------------------------------------------- legs by hand


def two(after: int = 0) -> Subscription:
    subscription = Subscription.of("out", ["near", "far"], after, 0)
    assert subscription.joined(0, 0) == [Follow(0, "rows", after)]
    assert subscription.joined(1, 0) == [Follow(1, "heads", after)]
    return subscription


def test_rows_that_are_late_are_wanted_of_who_has_shown_them_and_not_before_the_hedge() -> None:
    subscription = two()
    one = chain_of(1)[0]
    assert subscription.told(1, one, None, 1000) == []
    assert subscription.due_us == 51_000 and subscription.tick(50_999) == []
    assert subscription.tick(51_000) == [Want(1, 1)] and subscription.tick(51_001) == []
    assert subscription.told(1, one, "rows", 60_000) == [Deliver(one, "rows")]
    assert subscription.told(0, one, "rows", 70_000) == [] and subscription.repeated == 1
    assert subscription.hedge.known == 1 and subscription.hedge.in_a_row == 1, "how late it was is known, though another one was faster"


def test_if_all_are_late_nobody_hedges() -> None:
    subscription = two()
    assert subscription.due_us is None and subscription.tick(10_000_000) == []


def test_a_leg_that_is_late_again_and_again_gives_its_place_to_the_other() -> None:
    subscription, actions, now_us = two(), [], 0
    for link in chain_of(*range(1, 40)):
        now_us += 100_000
        subscription.told(1, link, None, now_us)
        actions = subscription.tick(now_us + 50_000)
        if actions != [Want(1, link.epoch)]:
            break
        subscription.told(1, link, "rows", now_us + 60_000)
    assert link.epoch == 16 and actions == [Follow(1, "rows", 15), Follow(0, "heads", 15)]


def test_a_leg_that_is_lost_is_replaced_at_once() -> None:
    subscription = two()
    assert subscription.lost(0, 5) == [Follow(1, "rows", 0)]
    assert subscription.joined(0, 10) == [Follow(0, "heads", 0)], "it comes back as the second"


def test_when_who_was_asked_is_lost_the_next_one_is_asked_at_once() -> None:
    """The hedge has been waited for once: who is lost besides does not cost another one."""
    reader = Subscription.of("out", ["a", "b", "c"], 0, 0)
    for leg in range(3):
        reader.joined(leg, 0)
    link = chain_of(1)[0]
    reader.told(1, link, None, 1_000)
    reader.told(2, link, None, 1_000)
    asked_us = reader.due_us
    assert asked_us is not None and reader.tick(asked_us) == [Want(1, 1)]
    assert reader.due_us is not None and reader.due_us > asked_us
    assert reader.lost(1, asked_us + 10) == []
    assert reader.due_us <= asked_us + 10 and reader.tick(asked_us + 10) == [Want(2, 1)]


def test_what_has_passed_without_rows_counts_when_all_before_it_is_delivered() -> None:
    subscription = two()
    one, two_ = chain_of(1, 4)
    assert subscription.through == 0 and subscription.passed(1, 4, 9) == []
    subscription.told(0, one, "rows", 0)
    assert subscription.through == 1, "who says that has had rows in epoch 4"
    assert subscription.passed(0, 1, 3) == [] and subscription.through == 3
    subscription.told(0, two_, "rows", 0)
    assert subscription.through == 9
    subscription.lost(1, 0)
    assert subscription.through == 9, "it was so, whoever said it"


def test_rows_in_an_epoch_that_another_region_has_passed_are_a_contradiction() -> None:
    (link,) = chain_of(5)
    passed, shown = two(), two()
    passed.passed(1, 0, 7)
    with pytest.raises(RegionsDisagree, match=r"epoch 5.*far.*no rows in it, and near"):
        passed.told(0, link, "rows", 0)
    shown.told(0, link, None, 0)
    with pytest.raises(RegionsDisagree, match="epoch 5"):
        shown.passed(1, 0, 7)


def test_rows_that_no_region_keeps_are_an_error_and_nothing_is_skipped() -> None:
    subscription = two(after=3)
    assert subscription.missing(0, 40, 0) == [Follow(1, "rows", 3)]
    with pytest.raises(EpochsGone, match="behind epoch 30") as raised:
        subscription.missing(1, 30, 0)
    assert (raised.value.after, raised.value.first) == (3, 30)


def test_a_region_that_is_away_may_have_what_the_other_lacks_so_it_is_waited_for() -> None:
    subscription = two(after=3)
    subscription.lost(1, 0)
    assert subscription.missing(0, 40, 0) == [] and subscription.due_us == 60_000_000
    with pytest.raises(EpochsGone):
        subscription.tick(60_000_000)


def test_a_subscriber_that_reaches_nobody_says_so_in_the_end() -> None:
    subscription = two()
    subscription.lost(0, 0)
    subscription.lost(1, 5)
    assert subscription.tick(60_000_004) == []
    with pytest.raises(RegionsUnreachable, match="after=0"):
        subscription.tick(60_000_005)


def test_a_leg_that_could_not_go_on_is_followed_again_when_others_have_filled_the_gap() -> None:
    subscription = two()
    assert subscription.missing(1, 1, 0) == []
    one = chain_of(1)[0]
    assert subscription.told(0, one, "rows", 1) == [Deliver(one, "rows"), Follow(1, "heads", 1)]


@pytest.mark.parametrize("other", [Link(0, 4, 1), Link(2, 4, 28), Link(0, 3, 0), Link(1, 5, 0)])
def test_two_legs_that_contradict_each_other_stop_it_before_anything_is_delivered(other: Link) -> None:
    subscription = two()
    subscription.told(1, Link(1, 4, 28) if other.prev else Link(0, 4, 28), None, 0)
    with pytest.raises(RegionsDisagree):
        subscription.told(0, other, "rows", 1)


def test_a_leg_that_is_gone_has_said_what_it_has_said() -> None:
    """Whoever makes an epoch makes the same rows: what only a lost region had shown is not waited for, and still compared."""
    subscription = two()
    subscription.told(1, Link(0, 4, 28), None, 0)
    subscription.lost(1, 1)
    assert subscription.due_us is None
    with pytest.raises(RegionsDisagree, match=r"epoch 4.*near.*other rows in it than far"):
        subscription.told(0, Link(0, 4, 29), "rows", 2)
    same = two()
    same.told(1, Link(0, 4, 28), None, 0)
    same.lost(1, 1)
    assert Deliver(Link(0, 4, 28), "rows") in same.told(0, Link(0, 4, 28), "rows", 2)
