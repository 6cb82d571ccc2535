"""Ranges of key groups: which partition owns which, and how there come to be more partitions or fewer (protocol E1).

A partition is one range of key groups, or none while its number is not in use. More partitions: the widest ranges are halved, and numbers
that are not in use get the upper halves. Fewer: the narrowest neighbours are joined, and the upper one's number is free again. So
whatever does not take part keeps its number, its state and its place.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from evenflow.plan.layout import KEY_GROUPS, Ranges, Segment

Together = Callable[[int, int], bool]
"""Whether two partitions have their replicas at the same sites, so that nothing must move before one is made of them, or two."""


def even(partitions: int) -> Ranges:
    """Ranges of nearly equal width for partitions 0, 1, ...: what a segment begins with."""
    return tuple((-(-p * KEY_GROUPS // partitions), p) for p in range(partitions))


def of_segment(ranges: Sequence[Ranges], segment: Segment) -> Ranges:
    """Which of a keyed segment's partitions owns which key groups. ranges: of all segments, or none; empty as at first."""
    return (ranges[segment.id] if ranges else ()) or even(segment.in_use or segment.partitions)


def in_use(ranges: Ranges) -> tuple[int, ...]:
    """The partitions that own key groups, in order of these."""
    return tuple(partition for _, partition in ranges)


def divided(ranges: Ranges, count: int, free: Iterable[int], together: Together) -> Ranges:
    """Ranges of `count` partitions, as close to these as may be. free: numbers not in use, as many as are needed.

    Where there is a choice, those are joined, and those numbers taken, for which nothing must move.
    """
    return _split(ranges, count, list(free), together) if count > len(ranges) else _joined(ranges, count, together)


def _split(ranges: Ranges, count: int, free: list[int], together: Together) -> Ranges:
    widest = [(-width, start, partition) for (start, partition), width in zip(ranges, _widths(ranges), strict=True)]
    heapq.heapify(widest)
    while len(widest) < count:
        width, start, partition = heapq.heappop(widest)
        new = next((number for number in free if together(partition, number)), free[0])
        free.remove(new)
        upper = -width // 2
        heapq.heappush(widest, (width + upper, start, partition))
        heapq.heappush(widest, (-upper, start - width - upper, new))
    return tuple(sorted((start, partition) for _, start, partition in widest))


def _joined(ranges: Ranges, count: int, together: Together) -> Ranges:
    while len(ranges) > count:
        widths = _widths(ranges)
        pairs = sorted(range(len(ranges) - 1), key=lambda i: (widths[i] + widths[i + 1], not together(ranges[i][1], ranges[i + 1][1]), i))
        gone: set[int] = set()
        taken: set[int] = set()
        for lower in pairs:
            if len(gone) < len(ranges) - count and not taken & {lower, lower + 1}:
                taken |= {lower, lower + 1}
                gone.add(lower + 1)
        ranges = tuple(each for i, each in enumerate(ranges) if i not in gone)
    return ranges


def _widths(ranges: Ranges) -> list[int]:
    starts = [start for start, _ in ranges]
    return [end - start for start, end in zip(starts, [*starts[1:], KEY_GROUPS], strict=True)]


def affected(before: Ranges, after: Ranges) -> tuple[tuple[int, ...], ...]:
    """The partitions between which key groups change hands, those that have to do with each other together.

    The first of each is the owner of their lowest key group before, where the others' replicas have to be.
    """
    place = {partition: start for start, partition in before}
    groups: dict[int, set[int]] = {}
    for start in sorted({start for start, _ in (*before, *after)}):
        old, new = _owner(before, start), _owner(after, start)
        if old != new:
            mine = groups.get(old, {old}) | groups.get(new, {new})
            groups.update(dict.fromkeys(mine, mine))
    distinct = {tuple(sorted(group, key=lambda p: (place.get(p, KEY_GROUPS), p))) for group in groups.values()}
    return tuple(sorted(distinct))


def connected(history: Sequence[Ranges]) -> tuple[tuple[int, ...], ...]:
    """The partitions between which key groups change hands in any step from one of these ranges to the next, those that have to do with
    each other together, ascending; where all of them are at the same sites, each step needs nothing to be moved."""
    groups: dict[int, set[int]] = {}
    for before, after in pairwise(history):
        for found in affected(before, after):
            mine = set(found).union(*[groups[partition] for partition in found if partition in groups])
            groups.update(dict.fromkeys(mine, mine))
    return tuple(sorted({tuple(sorted(group)) for group in groups.values()}))


def _owner(ranges: Ranges, group: int) -> int:
    return ranges[bisect_right(ranges, group, key=lambda each: each[0]) - 1][1]
