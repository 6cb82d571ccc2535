"""What a run's sites have done since it began, as sums that only grow, and what they hold now: by site, step, segment and replica.

A window is added to its site's others when it comes, by one array operation; where its numbers belong is looked up when somebody looks, for
all sites at once, however many windows there have been. The sums of the last seconds are in `totals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from evenflow.statistics.window import SiteWindow
from evenflow.statistics.wire import COLUMNS, FlatWindow, Ints, Names, Structure, Structures, Waited, flat_of


@dataclass(slots=True)
class SiteSums:
    """A site in a run. busy_us, measured_us, waited_us: grow; the last is for how long ingresses have waited for it. spilled_bytes, stands:
    as of its newest window. stands: by segment, the newest epoch that it has done, and its watermark. seen: when they came, in looks."""

    busy_us: int = 0
    measured_us: int = 0
    waited_us: int = 0
    spilled_bytes: int = 0
    stands: Mapping[int, tuple[int, int]] | None = None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Grown:
    """What `Growing` had at one moment. of: the one that it is of."""

    of: Growing
    boxes: Ints
    segment_rows: Ints
    segment_busy_us: Ints
    sites: Mapping[int, SiteSums]
    rows: Ints
    state_bytes: Ints


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the values of a site's windows belong, as long as their structure is this."""

    structure: Structure
    slots: Ints
    steps: Ints
    segments: Ints


@dataclass(slots=True)
class Pending:
    """What a site has said since somebody looked. placed: of all of it. values: its windows' values, summed up, those that are no counts as
    well; newest: the last of them; stood: how far it says that the site is, is known."""

    placed: Placed
    values: Ints
    newest: FlatWindow
    stood: bool = False


@dataclass(frozen=True, slots=True)
class Summed:
    """How values with places of which some are the same are summed up by place."""

    order: Ints
    begins: Ints
    each: Ints

    @staticmethod
    def of(places: Ints) -> Summed:
        order = np.argsort(places, kind="stable")
        each, begins = np.unique(places[order], return_index=True)
        return Summed(order, begins, each)

    def into(self, sums: Ints, values: Ints) -> None:
        if self.order.size:
            sums[self.each] += np.add.reduceat(values[self.order], self.begins, axis=0)


@dataclass(frozen=True, slots=True)
class Together:
    """Where the values of several sites belong that are put one behind the other. places: of the sites. Of steps and segments, which many
    have in common, `order` sorts them, `begins` says where each begins then, and `each` which it is."""

    places: tuple[Placed, ...]
    slots: Ints
    steps: Summed
    segments: Summed
    of_slots: Summed


class Growing:
    """names: of the layout. boxes: int64 (all steps, COLUMNS): rows in, rows out, busy us, rows failed; by segment and place in it, of
    all sites. rows, state_bytes: by slot, see `slots`. Not for two threads at once."""

    def __init__(self, names: Names, producers: Sequence[Sequence[int]] = ()) -> None:
        """producers: of each segment those that it gets rows from; without them all for whom the ingress waits hold it back alike."""
        self._producers, self._looks = producers, 0
        counts = [len(boxes) for _, boxes in names]
        self._first = [0, *accumulate(counts)]
        self.structures = Structures(names)
        self.boxes: Ints = np.zeros((self._first[-1], COLUMNS), np.int64)
        self.segment_rows: Ints = np.zeros(len(counts), np.int64)
        self.segment_busy_us: Ints = np.zeros(len(counts), np.int64)
        self.sites: dict[int, SiteSums] = {}
        self.rows: Ints = np.zeros(64, np.int64)
        self.state_bytes: Ints = np.zeros(64, np.int64)
        self._slots: dict[tuple[int, int, int], int] = {}
        self._placed: dict[int, Placed] = {}
        self._pending: dict[int, Pending] = {}
        self._together: Together | None = None

    def slots(self, replicas: Iterable[tuple[int, int, int]]) -> Ints:
        """Where replicas are in `rows` and `state_bytes`, for ever. replicas: (segment, partition, site) of each."""
        known, found = self._slots, []
        for replica in replicas:
            slot = known.get(replica)
            if slot is None:
                slot = known[replica] = len(known)
            found.append(slot)
        while len(known) > self.rows.size:
            self.rows = np.concatenate((self.rows, np.zeros_like(self.rows)))
            self.state_bytes = np.concatenate((self.state_bytes, np.zeros_like(self.state_bytes)))
        return np.array(found, np.int64)

    def now(self) -> Grown:
        """A copy, some thousand numbers."""
        self.settle()
        return Grown(
            self, self.boxes.copy(), self.segment_rows.copy(), self.segment_busy_us.copy(),
            {site: replace(sums) for site, sums in self.sites.items()}, self.rows.copy(), self.state_bytes.copy(),
        )  # fmt: skip

    def add(self, window: SiteWindow) -> None:
        """A site's next window."""
        self.take(flat_of(window))

    def take(self, flat: FlatWindow) -> None:
        """The same, as sites report it. Raises StatisticsError if it is of another layout, and adds nothing."""
        structure = self.structures.of(flat)
        number, begin_us, end_us, busy_us = flat.words[:4].tolist()
        site = self.sites.setdefault(number, SiteSums())
        site.busy_us += busy_us
        site.measured_us += end_us - begin_us
        site.spilled_bytes = flat.spilled_bytes
        pending = self._pending.get(number)
        if pending is None or pending.placed.structure is not structure:
            if pending is not None:
                self.settle()
            placed = self._placed.get(number)
            if placed is None or placed.structure is not structure:
                placed = self._place(number, structure, placed)
            self._pending[number] = Pending(placed, structure.values(flat).copy(), flat)
        else:
            pending.values += structure.values(flat)
            pending.newest, pending.stood = flat, False
        if structure.segments:
            self._looks += 1
            site.seen = self._looks
        if flat.words[14]:
            self.waited(structure.waited(flat))

    def settle(self) -> None:
        """Bring what is pending to where it belongs."""
        if not self._pending:
            return
        self._settle_stands()
        pending, self._pending = {number: self._pending[number] for number in sorted(self._pending)}, {}
        places = tuple([each.placed for each in pending.values()])
        known = self._together
        if known is None or len(known.places) != len(places) or any(one is not other for one, other in zip(known.places, places)):
            known = self._together = _together(places)
        split = [each.placed.structure.split(each.values) for each in pending.values()]
        rows = np.concatenate([values[1] for values in split])
        self.rows[known.slots] += rows
        newest = [each.placed.structure.split(each.placed.structure.values(each.newest))[2] for each in pending.values()]
        self.state_bytes[known.slots] = np.concatenate(newest)
        known.steps.into(self.boxes, np.concatenate([values[3] for values in split]))
        known.segments.into(self.segment_busy_us, np.concatenate([values[0] for values in split]))
        known.of_slots.into(self.segment_rows, rows)

    def _settle_stands(self) -> None:
        for number, each in self._pending.items():
            structure = each.placed.structure
            if structure.segments and not each.stood:
                each.stood = True
                _, done, watermarks = structure.segment_values(each.newest)
                self.sites[number].stands = dict(zip(structure.segments, zip(done.tolist(), watermarks.tolist())))

    def waited(self, waited: Waited) -> None:
        """For so long an ingress had rows, and waited because these sites had no room. Only those that hold it back are told: a site that
        waits for another one's rows has no room either."""
        if waited:
            self._settle_stands()
            holding = self._holding([site for site, _ in waited])
            for site, us in waited:
                if site in holding:
                    self.sites.setdefault(site, SiteSums()).waited_us += us

    def _holding(self, sites: Sequence[int]) -> set[int]:
        """Those that are behind, in some segment, what all its producers have done; all of them if nobody is."""
        fresh = {site: sums.stands for site, sums in self.sites.items() if sums.stands and sums.seen + 4 * len(self.sites) >= self._looks}
        behind: dict[int, int] = {}
        for segment, producers in enumerate(self._producers):
            done = [stands[producer][0] for stands in fresh.values() for producer in producers if producer in stands]
            for site in sites if done else ():
                own = fresh.get(site, {}).get(segment)
                if own is not None:
                    behind[site] = max(behind.get(site, 0), min(done) - own[0])
        most = max(behind.values(), default=0)
        return {site for site, epochs in behind.items() if 2 * epochs >= most} if most > 0 else set(sites)

    def stand(self, site: int, stands: Mapping[int, tuple[int, int]]) -> None:
        """How far a site is, by segment, where its windows do not say so."""
        self.settle()
        self._looks += 1
        sums = self.sites.setdefault(site, SiteSums())
        sums.stands, sums.seen = stands, self._looks

    def _place(self, site: int, structure: Structure, before: Placed | None) -> Placed:
        if before is not None:
            self.state_bytes[before.slots] = 0
        segments = np.array(structure.segments, np.int64)
        of = np.repeat(segments, np.array(structure.counts, np.int64)).tolist()
        slots = self.slots(zip(of, structure.partitions, [site] * len(of)))
        steps = [step for number, boxes in structure.shape for step in range(self._first[number], self._first[number] + boxes)]
        placed = self._placed[site] = Placed(structure, slots, np.array(steps, np.int64), segments)
        return placed


def _together(places: tuple[Placed, ...]) -> Together:
    none = np.zeros(0, np.int64)
    of_slots = [np.repeat(placed.segments, np.array(placed.structure.counts, np.int64)) for placed in places]
    return Together(
        places,
        np.concatenate([none, *(placed.slots for placed in places)]),
        Summed.of(np.concatenate([none, *(placed.steps for placed in places)])),
        Summed.of(np.concatenate([none, *(placed.segments for placed in places)])),
        Summed.of(np.concatenate([none, *of_slots])),
    )
