"""What a run's sites have done since it began, as sums that only grow, and what they hold now: by site, step, segment and replica.

A window is added to its site's others when it comes, by two array operations; where its numbers belong is looked up when somebody looks,
for all sites at once, however many windows there have been. The sums of the last seconds are in `totals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from evenflow.statistics.standing import Standing, Stands, Waited
from evenflow.statistics.window import SiteWindow
from evenflow.statistics.wire import COLUMNS, FlatWindow, Ints, Names, Structure, Structures, flat_of


@dataclass(slots=True)
class SiteSums:
    """A site in a run. busy_us, measured_us, waited_us: grow; the last is for how long ingresses have waited for it. spilled_bytes: as of
    its newest window."""

    busy_us: int = 0
    measured_us: int = 0
    waited_us: int = 0
    spilled_bytes: int = 0

    def copied(self) -> SiteSums:
        return SiteSums(self.busy_us, self.measured_us, self.waited_us, self.spilled_bytes)


@dataclass(frozen=True, slots=True)
class Grown:
    """What `Growing` had at one moment. of: the one that it is of."""

    of: Growing
    boxes: Ints
    segment_rows: Ints
    segment_busy_us: Ints
    sites: Mapping[int, SiteSums]
    stands: Stands
    rows: Ints
    state_bytes: Ints


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the values of a site's windows belong, as long as their structure is this. row: see `Standing`; at: where they are among those
    that are pending."""

    row: int
    structure: Structure
    slots: Ints
    steps: Ints
    segments: Ints
    at: slice


@dataclass(frozen=True, slots=True)
class Summed:
    """How values, of which some have the same place, are summed up by place. at: where they are, those of one place behind each other;
    begins: where each place begins in `at`, each: which it is."""

    at: Ints
    begins: Ints
    each: Ints

    @staticmethod
    def of(places: Ints, at: Ints) -> Summed:
        order = np.argsort(places, kind="stable")
        each, begins = np.unique(places[order], return_index=True)
        return Summed(at[order], begins, each)

    def into(self, sums: Ints, values: Ints) -> None:
        if self.at.size:
            sums[self.each] += np.add.reduceat(values[self.at], self.begins, axis=0)


@dataclass(frozen=True, slots=True)
class Together:
    """Where the values of all sites belong, which are one behind the other. rows_at, state_at: where rows and state of the slots
    are; sites: all their rows; done_at, watermarks_at: where it is said how far the sites of `rows` are in the segments of `stood`."""

    slots: Ints
    rows_at: Ints
    state_at: Ints
    steps: Summed
    segments: Summed
    of_slots: Summed
    sites: Ints
    rows: Ints
    stood: Ints
    done_at: Ints
    watermarks_at: Ints


class Growing:
    """names: of the layout. boxes: int64 (all steps, COLUMNS): rows in, rows out, busy us, rows failed; by segment and place in it, of
    all sites. rows, state_bytes: by slot, see `slots`. Not for two threads at once."""

    def __init__(self, names: Names, producers: Sequence[Sequence[int]] = ()) -> None:
        """producers: of each segment those that it gets rows from; without them all for whom the ingress waits hold it back alike."""
        counts = [len(boxes) for _, boxes in names]
        self._first = [0, *accumulate(counts)]
        self.structures = Structures(names)
        self.boxes: Ints = np.zeros((self._first[-1], COLUMNS), np.int64)
        self.segment_rows: Ints = np.zeros(len(counts), np.int64)
        self.segment_busy_us: Ints = np.zeros(len(counts), np.int64)
        self.sites: dict[int, SiteSums] = {}
        self._standing, self._waits = Standing(len(counts), producers), list[Ints]()
        self._reports = self._round = 0
        self._apart = False
        self.rows: Ints = np.zeros(64, np.int64)
        self.state_bytes: Ints = np.zeros(64, np.int64)
        self._slots: dict[tuple[int, int, int], int] = {}
        self._placed: dict[int, Placed] = {}
        self._pending: Ints = np.zeros(0, np.int64)
        """What sites have said since somebody looked: their windows' values, summed up, those that are no counts as well."""
        self._newest: Ints = np.zeros(0, np.int64)
        """The values of each site's last window, in the same places."""
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
            {site: sums.copied() for site, sums in self.sites.items()}, self._standing.now(), self.rows.copy(), self.state_bytes.copy(),
        )  # fmt: skip

    def add(self, window: SiteWindow) -> None:
        """A site's next window."""
        self.take(flat_of(window))

    def take(self, flat: FlatWindow) -> None:
        """The same, as sites report it. Raises StatisticsError if it is of another layout, and adds nothing."""
        structure = self.structures.of(flat)
        number, begin_us, end_us, busy_us, _, _, spilled_bytes = flat.words[:7].tolist()
        site = self.sites.get(number)
        if site is None:
            site = self.sites[number] = SiteSums()
        site.busy_us += busy_us
        site.measured_us += end_us - begin_us
        site.spilled_bytes = spilled_bytes
        placed = self._placed.get(number)
        if placed is None or placed.structure is not structure:
            placed = self._place(number, structure)
        values = structure.values(flat)
        pending = self._pending[placed.at]
        pending += values
        self._newest[placed.at] = values
        self._reports += 1
        self._round += 1
        if structure.segments:
            self._standing.heard(placed.row)
        if flat.words[14]:
            self._wait(structure.waited(flat))

    def of_step(self, segment: int, step: int) -> Ints:
        """int64 (COLUMNS,): of all sites since the run began, see `boxes`."""
        self.settle()
        found: Ints = self.boxes[self._first[segment] + step]
        return found

    def settle(self) -> None:
        """Bring what is pending to where it belongs."""
        if self._reports:
            known, values = self._known(), self._pending
            self.rows[known.slots] += values[known.rows_at]
            known.steps.into(self.boxes, values)
            known.segments.into(self.segment_busy_us, values)
            known.of_slots.into(self.segment_rows, values)
            self.state_bytes[known.slots] = self._newest[known.state_at]
            values[:] = 0
            self._reports = 0
        self._settle_waits()

    def _known(self) -> Together:
        if self._together is None:
            self._together = _together(list(self._placed.values()))
        return self._together

    def _settle_waits(self) -> None:
        """All have said how far they are: who holds ingresses back?"""
        self._round = 0
        if self._placed and not self._apart:
            known, newest = self._known(), self._newest
            self._standing.note(known.sites, known.rows, known.stood, newest[known.done_at], newest[known.watermarks_at])
        if self._waits:
            for site, us in self._standing.held(self._waits).items():
                self.sites.setdefault(site, SiteSums()).waited_us += us
            self._waits = []

    def waited(self, waited: Waited) -> None:
        """For so long an ingress had rows, and waited because these sites had no room. Who of them holds it back is looked at when all
        have said how far they are."""
        if waited:
            self._wait(np.array(waited, np.int64))

    def _wait(self, waited: Ints) -> None:
        self._waits.append(waited)
        if self._round >= len(self.sites):
            self._settle_waits()

    def stand(self, site: int, stands: Mapping[int, tuple[int, int]]) -> None:
        """How far a site is, by segment, where its windows do not say so."""
        self._apart = True
        self.sites.setdefault(site, SiteSums())
        columns = np.array([(number, *stood) for number, stood in stands.items()], np.int64).reshape(-1, 3)
        row = self._standing.row(site)
        self._standing.heard(row)
        self._standing.note(np.array([row]), np.full(len(columns), row), *columns.T)

    def _place(self, site: int, structure: Structure) -> Placed:
        """A place for what a site says from now on: behind all others."""
        before = self._placed.get(site)
        if before is not None:
            self.settle()
            self._give_up(site, before)
        segments = np.array(structure.segments, np.int64)
        of = np.repeat(segments, np.array(structure.counts, np.int64)).tolist()
        slots = self.slots(zip(of, structure.partitions, [site] * len(of)))
        steps = [step for number, boxes in structure.shape for step in range(self._first[number], self._first[number] + boxes)]
        room = np.zeros(structure.size, np.int64)
        at = slice(self._newest.size, self._newest.size + room.size)
        self._pending, self._newest = np.concatenate((self._pending, room)), np.concatenate((self._newest, room))
        self._together = None
        placed = self._placed[site] = Placed(self._standing.row(site), structure, slots, np.array(steps, np.int64), segments, at)
        return placed

    def _give_up(self, site: int, place: Placed) -> None:
        """It says something else from now on. Those behind it move up."""
        self.state_bytes[place.slots] = 0
        del self._placed[site]
        self._pending, self._newest = (np.delete(values, place.at) for values in (self._pending, self._newest))
        size = place.structure.size
        for number, each in self._placed.items():
            if each.at.start > place.at.start:
                self._placed[number] = replace(each, at=slice(each.at.start - size, each.at.stop - size))


def _together(places: Sequence[Placed]) -> Together:
    parts = list[tuple[Ints, ...]]()
    for placed in places:
        structure = placed.structure
        segments, partitions, boxes = len(placed.segments), len(placed.slots), len(placed.steps)
        counts = [segments, segments, segments, partitions, partitions, COLUMNS * boxes]
        firsts = list(accumulate(counts, initial=placed.at.start))
        busy, done, marks, rows, state, box = (np.arange(first, first + count) for first, count in zip(firsts, counts))
        of_slots = np.repeat(placed.segments, np.array(structure.counts, np.int64))
        parts.append(
            (placed.slots, rows, state, placed.steps, box, placed.segments, busy, of_slots, np.full(segments, placed.row), done, marks)
        )
    columns = [np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*parts)]
    slots, rows, state, steps, box, numbers, busy, of_slots, stand_rows, done, marks = columns
    boxes_at = Summed.of(steps, box.reshape(-1, COLUMNS))
    sites = np.array([placed.row for placed in places], np.int64)
    by_segment, by_slot = Summed.of(numbers, busy), Summed.of(of_slots, rows)
    return Together(slots, rows, state, boxes_at, by_segment, by_slot, sites, stand_rows, numbers, done, marks)
