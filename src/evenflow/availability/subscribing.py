"""A subscriber of several regions: which leg brings rows, which only heads, and when another one is asked (race.md, W2, W6).

A leg is one region's way to the same epochs. One leg brings rows; the others say with heads which epochs there are, so that the
subscriber knows what it waits for. Where the rows do not come within one hedge of the first head, that one epoch is wanted of who has shown
it; where that happens again and again, or the budget is used up, the legs change places. A leg that is lost is replaced at once.
With `race` all bring rows and the first copy counts.

Events in, actions out: this file knows no socket, and reads no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from evenflow.availability.chain import Chain, Link, Step
from evenflow.availability.hedging import Hedge
from evenflow.errors import EpochsGone, RegionsDisagree, RegionsUnreachable

Brings = Literal["rows", "heads"]
LATE_MOST: Final = 64
"""Epochs that another leg has brought, of which it is still worth while to know how late the leg with rows was."""
AHEAD_MOST: Final = 4096
"""Epochs of which heads or rows may be known and are not next. A leg that is further ahead is asked again later."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Ask a leg for everything behind an epoch, from now on."""

    leg: int
    brings: Brings
    after: int


@dataclass(frozen=True, slots=True)
class Want:
    """Ask a leg for the rows of one epoch besides."""

    leg: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """The next epoch with rows."""

    link: Link
    rows: Any


@dataclass(frozen=True, slots=True)
class End:
    """Every row has been delivered."""


Action = Follow | Want | Deliver | End


@dataclass(slots=True)
class Leg:
    """name: for messages. up: it is connected and of the right group. brings: what it was asked for. floor: it cannot go on for who has
    less. ended: the last epoch with rows, when no more come. passed: an epoch with rows, and one up to which none followed on it. since_us:
    when it came or went. beyond: it has shown epochs that were too far ahead to be kept in mind."""

    name: str
    up: bool = False
    brings: Brings = "heads"
    floor: int = 0
    ended: int | None = None
    passed: tuple[int, int] = (0, 0)
    since_us: int = 0
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """An epoch that somebody has shown, and nobody has brought. first: which leg did. at_us: when. wanted: of whom it was wanted since."""

    link: Link
    first: int
    at_us: int
    legs: tuple[int, ...]
    wanted: tuple[int, ...] = ()
    asked_us: int = 0


@dataclass(slots=True)
class Subscription:
    """chain: what was delivered. patience_us: for so long no leg may be there that could go on. hedged, from_leg: counted for who asks."""

    chain: Chain
    legs: list[Leg]
    race: bool = False
    patience_us: int = 60_000_000
    hedge: Hedge = field(default_factory=Hedge)
    hedged: int = 0
    repeated: int = 0
    swapped: int = 0
    over: bool = False
    _rows: int | None = None
    _seen: dict[int, Seen] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)
    _gone: dict[int, Seen] = field(default_factory=dict)
    _late: dict[int, int] = field(default_factory=dict)
    _brought: dict[int, tuple[Link, Any]] = field(default_factory=dict)
    _without_us: int | None = None

    @staticmethod
    def of(sink: str, names: Sequence[str], after: int, now_us: int, *, race: bool = False, patience_us: int = 60_000_000) -> Subscription:
        """after: the last epoch that was delivered before."""
        legs = [Leg(name, since_us=now_us) for name in names]
        return Subscription(Chain(sink, after), legs, race, patience_us, _without_us=now_us)

    @property
    def rows_from(self) -> int | None:
        """The leg that brings rows; None if none is there."""
        return self._rows

    # ------------------------------------------------------------ events

    def joined(self, leg: int, now_us: int) -> list[Action]:
        """A leg is there, and of the right group."""
        state = self.legs[leg]
        state.up, state.since_us, state.floor, state.ended, state.beyond = True, now_us, 0, None, False
        self._without_us = None
        if self._rows is None:
            self._rows = leg
        return [self._follow(leg)]

    def lost(self, leg: int, now_us: int) -> list[Action]:
        """A leg is not there any more, or never came about."""
        state = self.legs[leg]
        if not state.up:
            return []
        state.up, state.since_us = False, now_us
        self._forget_leg(leg)
        found = [] if leg != self._rows else self._replace_rows()
        self._note_without(now_us)
        return found

    def told(self, leg: int, link: Link, rows: Any | None, now_us: int) -> list[Action]:
        """A leg shows an epoch (rows: None), or brings it. Raises RegionsDisagree, EpochsGone."""
        state = self.legs[leg]
        if not state.up:
            return []  # What was on its way from a leg that is gone counts no more: it is asked again from where we are.
        if self.chain.step(link, state.name) is Step.DUPLICATE:
            self.repeated += rows is not None
            self._came(leg, link, now_us)
            return []
        self._compare(leg, link)
        self._compare_passed(link.epoch, leg)
        seen = self._seen.get(link.epoch)
        if seen is None and link.prev > self.chain.delivered and len(self._seen) >= AHEAD_MOST:
            state.beyond = True
            return []  # A head of what is far ahead. A leg brings rows in order, so rows of the next epoch are always taken.
        if seen is None:
            self._seen[link.epoch] = Seen(link, leg, now_us, (leg,))
            insort(self._order, link.epoch)
        elif leg not in seen.legs:
            self._seen[link.epoch] = replace(seen, legs=(*seen.legs, leg))
        if rows is not None:
            self._came(leg, link, now_us)
            if link.epoch in self._brought:
                self.repeated += 1
            else:
                self._brought[link.epoch] = (link, rows)
        return [*self._deliver(), *self._ended()]

    def missing(self, leg: int, floor: int, now_us: int) -> list[Action]:
        """A leg says that it cannot go on from where we are, but for who has `floor`. Raises EpochsGone."""
        state = self.legs[leg]
        state.floor = max(state.floor, floor)
        if self.chain.delivered >= state.floor:
            return [self._follow(leg)]
        found = self._replace_rows() if leg == self._rows else []
        self._note_without(now_us)
        return found

    def passed(self, leg: int, last: int, through: int) -> list[Action]:
        """A leg has shown `last`, and has no epoch with rows behind it up to `through`. Raises RegionsDisagree."""
        state = self.legs[leg]
        if not state.up or through <= state.passed[1]:
            return []
        state.passed = (last, through)
        for epoch in [*([self.chain.delivered] if self.chain.known else []), *self._order]:
            self._compare_passed(epoch, leg)
        return []

    @property
    def through(self) -> int:
        """The last epoch up to which all rows have been delivered. Never falls; needs legs that say what they have passed."""
        done = self.chain.delivered
        return max([done, *(through for last, through in (leg.passed for leg in self.legs) if last <= done)])

    def ended(self, leg: int, last: int) -> list[Action]:
        """A leg has no epoch with rows behind `last`, and never will. Raises RegionsDisagree."""
        for other in self.legs:
            if other.ended is not None and other.ended != last:
                what = f"ends with epoch {last}, and {other.name} with {other.ended}"
                raise RegionsDisagree(self.chain.sink, max(last, other.ended), self.legs[leg].name, what)
        self.legs[leg].ended = last
        return self._ended()

    def tick(self, now_us: int) -> list[Action]:
        """Time has passed: see `due_us`. Raises RegionsUnreachable, EpochsGone."""
        if self._without_us is not None and now_us - self._without_us >= self.patience_us and not self.over:
            floors = [leg.floor for leg in self.legs if leg.up]
            if floors:
                raise EpochsGone(self.chain.sink, self.chain.delivered, min(floors))
            raise RegionsUnreachable(
                f"sink {self.chain.sink!r}: none of {', '.join(leg.name for leg in self.legs)} could go on behind epoch "
                f"{self.chain.delivered} for {self.patience_us / 1e6:g} s. Subscribe again with after={self.chain.delivered} when one can"
            )
        found = list[Action]()
        while (due := self._next()) is not None and self._hedge_due(due) <= now_us:
            step = self._hedge(due, now_us)
            found += step
            if not step:
                break
        return found

    @property
    def due_us(self) -> int | None:
        """When `tick` should be called; None: nothing is waited for."""
        times = list[int]()
        if self._without_us is not None and not self.over:
            times.append(self._without_us + self.patience_us)
        due = self._next()
        if due is not None and self._askable(due):
            times.append(self._hedge_due(due))
        return min(times, default=None)

    # ------------------------------------------------------------ delivery

    def _deliver(self) -> list[Action]:
        found = list[Action]()
        while (ready := self._ready()) is not None:
            link, rows = self._brought.pop(ready)
            self.chain.take(link, "a region")
            seen = self._forget(ready)
            self._gone.pop(ready, None)
            if seen.wanted:
                self._late[ready] = seen.at_us
                _drop_oldest(self._late, LATE_MOST)
            found.append(Deliver(link, rows))
            self.hedge.passed()
        if found:
            found += self._go_on()
        return found

    def _ready(self) -> int | None:
        """The epoch that is next, if its rows are here."""
        known = self._next()
        return known.link.epoch if known is not None and known.link.epoch in self._brought else None

    def _next(self) -> Seen | None:
        """The epoch that follows on the last one, if anybody has shown it."""
        found = self._seen[self._order[0]] if self._order else None
        return found if found is not None and found.link.prev <= self.chain.delivered else None

    def _forget(self, epoch: int) -> Seen:
        del self._order[bisect_left(self._order, epoch)]
        return self._seen.pop(epoch)

    def _go_on(self) -> list[Action]:
        """Legs that could not go on from before can from here, and of those that were too far ahead it is asked again what they have: who
        does not know of an epoch could not ask for it, if the leg with rows stood still before it."""
        done, room = self.chain.delivered, len(self._seen) <= AHEAD_MOST // 2
        waited = [at for at, leg in enumerate(self.legs) if leg.up and (0 < leg.floor <= done or (leg.beyond and room))]
        for at in waited:
            self.legs[at].floor = 0
        return [self._follow(at) for at in waited]

    def _ended(self) -> list[Action]:
        """Whether all is delivered: one region that has ended says which epoch was the last."""
        last = next((leg.ended for leg in self.legs if leg.ended is not None), None)
        if self.over or last is None or self.chain.delivered < last:
            return []
        self.over = True
        return [End()]

    def _compare(self, leg: int, link: Link) -> None:
        """Two links of one epoch are the same; of two that follow on the same epoch, one is wrong. Raises RegionsDisagree."""
        name, seen = self.legs[leg].name, self._seen.get(link.epoch) or self._gone.get(link.epoch)
        if seen is not None:
            first = self.legs[seen.first].name
            if seen.link.digest != link.digest:
                raise RegionsDisagree(self.chain.sink, link.epoch, name, f"has other rows in it than {first}")
            if seen.link.prev != link.prev:
                what = f"says that epoch {link.prev} came before it, and {first} says {seen.link.prev}"
                raise RegionsDisagree(self.chain.sink, link.epoch, name, what)
            return
        for other in self._neighbours(link):
            first = self.legs[other.first].name
            raise RegionsDisagree(
                self.chain.sink, max(link.epoch, other.link.epoch), name, f"and {first} do not have rows in the same epochs "
                f"({other.link.prev} to {other.link.epoch} there, {link.prev} to {link.epoch} here)"
            )  # fmt: skip

    def _compare_passed(self, epoch: int, leg: int) -> None:
        """Nobody has passed an epoch with rows without showing it. Raises RegionsDisagree."""
        for other in self.legs:
            last, through = other.passed
            if last < epoch <= through:
                raise RegionsDisagree(self.chain.sink, epoch, other.name, f"has no rows in it, and {self.legs[leg].name} has some")

    def _neighbours(self, link: Link) -> Iterator[Seen]:
        """Epochs that were shown and that this link denies, or that deny this one."""
        at = bisect_left(self._order, link.epoch)
        for epoch in self._order[max(0, at - 1) : at + 1]:
            seen = self._seen[epoch]
            theirs = seen.link
            if link.prev < theirs.epoch < link.epoch or theirs.prev < link.epoch < theirs.epoch:
                yield seen

    # ------------------------------------------------------------ legs

    def _follow(self, leg: int) -> Follow:
        state = self.legs[leg]
        state.brings, state.beyond = "rows" if self.race or leg == self._rows else "heads", False
        return Follow(leg, state.brings, self.chain.delivered)

    def _replace_rows(self) -> list[Action]:
        """The leg with rows cannot go on: the next one that can does."""
        before, done = self._rows, self.chain.delivered
        able = [at for at, leg in enumerate(self.legs) if leg.up and at != before and leg.floor <= done]
        self._rows = able[0] if able else (before if before is not None and self.legs[before].up else None)
        if self._rows is None:
            self._rows = next((at for at, leg in enumerate(self.legs) if leg.up), None)
        self.hedge.changed()
        return [self._follow(able[0])] if able and not self.race else []

    def _swap(self, to: int) -> list[Action]:
        """The leg with rows is late again and again: who is faster brings them, and it brings heads."""
        before, self._rows = self._rows, to
        self.swapped += 1
        self.hedge.changed()
        found: list[Action] = [self._follow(to)]
        if before is not None and self.legs[before].up:
            found.append(self._follow(before))
        return found

    def _forget_leg(self, leg: int) -> None:
        """What only it has shown may never come: nobody else is known to have it. Whoever makes it has the same rows in it, though."""
        for epoch, seen in list(self._seen.items()):
            legs = tuple(at for at in seen.legs if at != leg)
            if legs or epoch in self._brought:
                wanted = tuple(at for at in seen.wanted if at != leg)
                asked_us = seen.asked_us if wanted or not seen.wanted else 0  # Who was asked is gone: the next one is asked at once.
                self._seen[epoch] = replace(seen, legs=legs, wanted=wanted, asked_us=asked_us)
            else:
                self._gone[epoch] = self._forget(epoch)
        _drop_oldest(self._gone, AHEAD_MOST)

    def _note_without(self, now_us: int) -> None:
        """Whether no leg is left that could go on. Raises EpochsGone if all are there, and none can."""
        done = self.chain.delivered
        if any(leg.up and leg.floor <= done for leg in self.legs):
            self._without_us = None
            return
        if all(leg.up for leg in self.legs):
            raise EpochsGone(self.chain.sink, done, min(leg.floor for leg in self.legs))
        self._without_us = now_us if self._without_us is None else self._without_us

    # ------------------------------------------------------------ hedges

    def _came(self, leg: int, link: Link, now_us: int) -> None:
        """How late the leg with rows was, where another one has shown the epoch before."""
        if leg != self._rows:
            return
        seen = self._seen.get(link.epoch)
        if seen is not None:
            self.hedge.came(now_us - seen.at_us, late=bool(seen.wanted))
        elif (at_us := self._late.pop(link.epoch, None)) is not None:
            self.hedge.came(now_us - at_us, late=True)

    def _askable(self, seen: Seen) -> list[int]:
        """Legs that have shown the epoch, and of which it was not wanted yet."""
        if seen.link.epoch in self._brought:
            return []
        others = [at for at in seen.legs if at != self._rows and at not in seen.wanted]
        return [at for at in others if self.legs[at].up and self.legs[at].brings == "heads"]

    def _hedge_due(self, seen: Seen) -> int:
        return max(seen.at_us, seen.asked_us) + self.hedge.wait_us

    def _hedge(self, seen: Seen, now_us: int) -> list[Action]:
        """The leg with rows is late with the epoch that is next."""
        able = self._askable(seen)
        if not able:
            return []
        leg, epoch = able[0], seen.link.epoch
        allowed = self.hedge.spend()
        self._seen[epoch] = replace(seen, wanted=(*seen.wanted, leg), asked_us=now_us)
        if self.hedge.given_up or not allowed:
            return self._swap(leg)
        self.hedged += 1
        return [Want(leg, epoch)]


def _drop_oldest(kept: dict[int, Any], most: int) -> None:
    """What was put there first goes, until there are no more than `most`."""
    while len(kept) > most:
        del kept[next(iter(kept))]


def progress(of: Subscription) -> Mapping[str, int]:
    """Counts for people."""
    return {"delivered": of.chain.delivered, "hedged": of.hedged, "repeated": of.repeated, "swapped": of.swapped}
