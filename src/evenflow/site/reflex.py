"""The reflex: how many rows an epoch may have where a source is late.

Under overload a plan comes late, since it waits for what is under way at the slowest site. So whoever leads an ingress partition decides
at once, by two facts that are there: for how long the oldest row that no epoch has has been due, and how long the last epochs took. Until
that row has waited for half of what an answer may take, every row enters. From then on an epoch keeps what can be done in a share of that
time, and of the rest of what waits that is left out, for good, which would have waited as long. It is over when all that comes can be done.

It decides by time, and that is safe: what it decides is in the epoch's record (I1), and what a record says is done by all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.exchange.section import SHARES
from evenflow.exchange.shedding import ALL, classes, staying, to_keep
from evenflow.operator import units
from evenflow.plan.layout import Layout, Shed
from evenflow.site.dividing import divided
from evenflow.site.tally import Tallies
from evenflow.stream.sampling import Positions, place_hashes
from evenflow.stream.weight import weighed

LEAST_ROWS: Final = 32
"""An epoch may have so many rows, however slow it seems: else a source that brings few would never show how fast it can be."""
USED_UP: Final = 0.9
"""An epoch with such a share of what it might have had shows what can be done."""
SLOWER: Final = 0.5
"""An epoch that takes twice the time that it may makes the next ones smaller by this power of two, and the other way round."""
SLOWER_WINDOWS: Final = 0.1
"""The same where windows stay whole: which windows of an epoch stay is chance, and a window pays for the smallest share that it has met."""
FASTER: Final = 1.25
"""And no more larger than that: two that come through together seem to take no time."""
FIRST: Final = 0.25
"""The share at first, where neither another leader nor the last epochs say one: it comes down faster than up."""
GROWTH: Final = 4.0
"""While nothing is left out, an epoch has no more rows than so many times those of the last one that came through, and fewer where that one
took long: what waits at first, before anybody knows how much can be done, would be seconds of work for epochs that nobody can shorten."""
CALM_EPOCHS: Final = 32
"""After so many epochs in a row that have not used up what they might have had, or found nothing under way, all that comes may enter."""
SEEN_US: Final = 200_000
"""What epochs had and took is summed up over about so much time."""
RATE_US: Final = 500_000
"""What comes is a mean over about so much time; or over CALM_TIMES of what an epoch may take, where that is more. When for so long no row
was late, and no epoch used up what it might have had, all that comes may enter."""
CALM_TIMES: Final = 4
STEP: Final = 2**0.125
"""Of windows a share is kept that is a power of this: a window comes by the least that any epoch kept while it was open."""


@dataclass(slots=True)
class Allowance:
    """How many rows an epoch may have of all partitions that this site leads, so that it takes as long as it may.

    share: of what comes in so much time; None while no source is late. All sites take part in an epoch, so all see the same time. Whoever
    took his own rate for what he can do would never find out that others had left him less than that. pipeline: epochs that may be under
    way. whole: windows stay whole, of which a power of STEP is kept, however short epochs are. epoch_us: that an epoch may take. rate: rows
    per microsecond that come. _under_way: (epoch, rows, how many it might have had, when it was closed) of those that are not through.
    _done_us: when the last one was. _came: rows since it was last looked, which was at _opened_us. _behind_us: for how long a peer had
    closed the epoch by then: who closes later than others has an epoch that much shorter, or all answers would be that much older.
    _span_us: how long ago the oldest of the rows that came was due. _rated_us: the time that the rate has seen. _rows, _took_us: of the
    last epochs. _calm: epochs in a row that did not use up what they might have had. _short_us: when less could be done than came, for the
    last time. _lacked: since the last one came through, rows were left out. _ahead: rows that an epoch may have while nothing is left out;
    None: no epoch has had any. _others: shares of other leaders, in parts of SHARES.
    """

    share: float | None = None
    pipeline: int = 2
    whole: bool = False
    epoch_us: float = 0.0
    rate: float = 0.0
    _under_way: deque[tuple[int, int, float, int]] = field(default_factory=deque)
    _done_us: int = 0
    _came: int = 0
    _span_us: int = 0
    _opened_us: int | None = None
    _behind_us: int = 0
    _rated_us: int = 0
    _rows: float = 0.0
    _took_us: float = 0.0
    _calm: int = 0
    _short_us: int | None = None
    _lacked: bool = False
    _ahead: float | None = None
    _others: Sequence[int] = ()

    @property
    def rows(self) -> float | None:
        us = max(self.epoch_us - self._behind_us, self.epoch_us / 2)
        return None if self.share is None else max(LEAST_ROWS, self.share * self.rate * us)

    @property
    def ahead(self) -> float | None:
        """Rows that an epoch may have while nothing is left out; the others wait. None: any number."""
        return None if self.share is not None or self._ahead is None else max(LEAST_ROWS, self._ahead)

    def offer(self, rows: int, age_us: int) -> None:
        """So many rows have come, of which the first was due so long ago."""
        self._came += rows
        self._span_us = max(self._span_us, age_us)

    def open(self, now_us: int, behind_us: int = 0) -> None:
        """An epoch is about to be made, which a peer closed behind_us ago. The first rows of all may have waited, and came over all that
        time."""
        self._behind_us, since_us = behind_us, self._opened_us
        if passed_us := max(now_us - since_us if since_us is not None else 0, 0 if self.rate else self._span_us):
            self._rated_us += passed_us
            self.rate += (self._came / passed_us - self.rate) * min(1.0, passed_us / min(self._rated_us, self._mean_us))
            self._came, self._span_us = 0, 0
        self._opened_us = now_us
        if self.share is not None:
            if self._short_us is None:
                self._short_us = now_us
            if now_us - self._short_us > self._mean_us:
                self.share = None

    def begin(self, now_us: int) -> None:
        """A source is late: from now on epochs have what the last ones could do, as far as that is known."""
        self._short_us = now_us
        if self.share is None and self.rate:
            self.share, self._calm = min(1.0, self._first()), 0

    def lack(self, now_us: int) -> None:
        """Rows are left out that are not late yet. It ends with a share of which nothing is left out; but that of windows rises slowly, so
        there slow epochs alone say that it goes on."""
        if not self.whole:
            self._short_us, self._lacked = now_us, True

    def _first(self) -> float:
        if self._others:
            return sum(self._others) / SHARES / len(self._others)
        known = self._took_us >= 2 * self.epoch_us  # Of less than that, much is chance: two epochs that come through together.
        return max(FIRST, self._rows / self._took_us / self.rate) if known else FIRST

    def close(self, epoch: int, rows: int, now_us: int) -> None:
        """An epoch with so many rows is on its way."""
        self._under_way.append((epoch, rows, self.rows or 0.0, now_us))
        if self._ahead is None and rows:
            self._ahead = GROWTH * rows

    @property
    def told(self) -> int:
        """The share, for other leaders; 0: nothing is left out."""
        return 0 if self.share is None else max(1, round(self.share * SHARES))

    def _common(self) -> float:
        """The mean of the leaders' shares. Each works out its next one from that, and all see the same time, so they meet at once."""
        assert self.share is not None
        return (self.share + sum(self._others) / SHARES) / (1 + len(self._others))

    @property
    def _mean_us(self) -> float:
        return max(RATE_US, CALM_TIMES * self.epoch_us)

    def note(self, processed: int, now_us: int, others: Sequence[int] = ()) -> None:
        """All sites have processed the epochs up to this one. What can be done is said by those that were under way when the one before
        came through: else there was nothing to do for a while, and that is calm. others: what other leaders keep, in parts of SHARES."""
        self._others = others
        closed_us, rows, most, epochs = None, 0, 0.0, 0
        while self._under_way and self._under_way[0][0] <= processed:
            _, count, might, at_us = self._under_way.popleft()
            closed_us, rows, most, epochs = at_us if closed_us is None else closed_us, rows + count, most + might, epochs + 1
        if closed_us is None:
            return
        idle = not rows or (self._done_us < closed_us and not self._lacked)
        took_us, self._done_us = max(1, now_us - max(self._done_us, closed_us)) / epochs, now_us
        if rows:
            # Of two that come through together the second took no time: so no less than its part of how long it was under way.
            self._ahead = rows / epochs * min(GROWTH, self.epoch_us / max(took_us, (now_us - closed_us) / self.pipeline))
        if not idle:
            if self._took_us > SEEN_US:
                self._rows, self._took_us = self._rows / 2, self._took_us / 2
            self._rows, self._took_us = self._rows + rows, self._took_us + took_us * epochs
        if self.share is None:
            return
        slow, used_up = took_us > self.epoch_us, rows >= USED_UP * most or (self.whole and not idle)
        short = used_up and (slow or self._lacked) and not idle
        self._lacked = False
        self._calm = 0 if short else self._calm + epochs
        if short:
            self._short_us = now_us
        if rows and (slow or used_up):
            faster = min(FASTER, (self.epoch_us / took_us) ** (SLOWER_WINDOWS if self.whole else SLOWER))
            self.share = min(1.0, self._common() * faster)
        if self._calm >= CALM_EPOCHS:
            self.share = None


class Thinned(NamedTuple):
    """rows: what stays. keep, dropped: as in `Record`; empty if all does."""

    rows: pa.RecordBatch
    keep: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sheddable:
    """An ingress segment of whose rows some may be left out. source: its box."""

    source: str
    shed: Shed


def sheddable(layout: Layout) -> dict[int, Sheddable]:
    """By ingress segment, where rows may be left out."""
    return {
        segment.id: Sheddable(segment.source, layout.sheds[segment.source])
        for segment in layout.segments
        if segment.source is not None and segment.source in layout.sheds
    }


class Reflex:
    """active: rows are left out; else only what is replayed leaves out what it did. pipeline: epochs that may be under way. tallies: where
    is counted what was kept and dropped. linger_us: for so long rows wait for others of their epoch, so one that takes hardly longer is
    not slow."""

    def __init__(
        self, sheddable: Mapping[int, Sheddable], pipeline: int, tallies: Tallies, *, active: bool, linger_us: float = 0.0
    ) -> None:
        self.sheddable = sheddable
        self.active = active and bool(sheddable)
        patience_us = min([each.shed.patience_us for each in sheddable.values()], default=0)
        whole = any(each.shed.whole is not None for each in sheddable.values())
        self.allowance = Allowance(pipeline=pipeline, whole=whole, epoch_us=max(patience_us / (pipeline + 1), 2 * linger_us))
        self._tallies = tallies
        self._sheds = {segment: each.shed for segment, each in sheddable.items()}
        self._levels: dict[int, float] = {}

    def covers(self, segment: int) -> bool:
        """Whether rows of this ingress segment are left out when it is late."""
        return self.active and segment in self.sheddable

    def rows_ahead(self, share: float) -> float:
        """How many rows of a partition an epoch may have while none is left out, infinity if any number. share: of the rows that
        wait at this site, those that wait at the partition."""
        return math.inf if self.allowance.ahead is None else max(1.0, self.allowance.ahead * share)

    def shares(self, waiting: Mapping[int, int]) -> Mapping[int, float] | None:
        """By ingress segment, which share of its waiting rows an epoch may have, so that all that are under way take about half of what an
        answer may; None: that is not known. waiting: rows, by segment."""
        room = self.allowance.rows
        return None if room is None else divided(room, waiting, self._sheds)

    def is_late(self, segment: int, due_us: int | None, now_us: int) -> bool:
        """due_us: when the oldest row that waits at a partition was due; None if none waits, or its source cannot say."""
        late = due_us is not None and now_us - due_us > self.sheddable[segment].shed.patience_us / 2
        if late:
            self.allowance.begin(now_us)
        return late

    def at_once(self, segment: int, share: float) -> bool:
        """Whether what an epoch cannot have is left out now, though none of it is late, while more comes than can be done. Where rows
        differ in worth: what waited for the next epoch would be the last rows that came, and not the best. Else, where they would be late
        before some epoch could have them. share: of the segment's rows that wait, which an epoch may have."""
        shed = self.sheddable[segment].shed
        return len(shed.classes) > 1 or shed.whole is not None or share * shed.patience_us / 2 < self.allowance.epoch_us

    def thin(self, key: Key, rows: pa.RecordBatch, positions: Positions, budget: float) -> Thinned:
        """Leave out all but about `budget` of these rows. positions: of the source, of each."""
        shed = self.sheddable[key[0]].shed
        of = classes(shed, rows)
        if shed.whole is not None:
            keep: tuple[int, ...] = (int(ALL * self._level(key[0], budget / rows.num_rows)),)
        else:
            keep = to_keep(shed, of, budget, place_hashes(self.sheddable[key[0]].source, key[1], positions))
        return self._thinned(key, rows, positions, of, keep)

    def _level(self, segment: int, share: float) -> float:
        """What is kept of windows: the same power of STEP at all leaders and for as long as can be. share: of the rows that are there,
        which an epoch may have."""
        share, level = self.allowance.share or share, self._levels.get(segment, math.inf)
        lower, upper = (STEP ** math.floor(math.log(each, STEP)) for each in (share, share / STEP))
        level = self._levels[segment] = min(max(level if level < math.inf else lower, upper), lower)
        return level

    def thin_again(self, key: Key, rows: pa.RecordBatch, positions: Positions, keep: tuple[int, ...]) -> Thinned:
        """Leave out what was left out then. Raises LookupError if rows have other classes now."""
        found = self.sheddable.get(key[0])
        if found is None or len(found.shed.classes) != len(keep):
            now = 0 if found is None else len(found.shed.classes)
            raise LookupError(f"rows were left out by their worth, in {len(keep)} classes, and there are {now} now: give the qos of before")
        return self._thinned(key, rows, positions, classes(found.shed, rows), keep)

    def _thinned(self, key: Key, rows: pa.RecordBatch, positions: Positions, of: Positions, keep: tuple[int, ...]) -> Thinned:
        whole, weighs = self.sheddable[key[0]].shed.whole, self.sheddable[key[0]].shed.weighs
        if whole is None:
            stays = staying(self.sheddable[key[0]].source, key[1], positions, of, keep)
        else:
            stays = units.staying(whole, rows, keep[0])
        if stays.all() and not weighs:  # Who has stayed by chance stands for those that might not have: else estimates were too low.
            return Thinned(rows, (), ())
        dropped = tuple(np.bincount(of[~stays], minlength=len(keep)).tolist())
        kept = rows.filter(pa.array(stays))
        return Thinned(weighed(kept, of[stays], keep) if weighs else kept, keep, dropped)

    def count(self, key: Key, offered: int, dropped: tuple[int, ...]) -> None:
        """An epoch has taken so many rows of the source, and left out some."""
        tally = self._tallies.source(key)
        tally.kept += offered - sum(dropped)
        tally.dropped = [lost + more for lost, more in zip_longest(tally.dropped, dropped, fillvalue=0)]
