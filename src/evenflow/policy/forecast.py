"""What sites will have to do, from what is known of partitions and of sites: how many rows a partition gets is a matter of its keys, what a
row costs is one of its site.

A window's utilizations mix the two with chance: each site saw other rows, works off what had queued up before a move, or cannot show that
it would have more to do than there is time. So rows are remembered by partition, wherever it was, with all that was seen of it lately;
costs are those since the last moves; and a site's load is what its partitions of now would cost it at the rate of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, sqrt
from statistics import median
from typing import Final

from evenflow.policy.hosting import Hosting
from evenflow.policy.load import PartitionLoad, SiteLoad, mean
from evenflow.statistics.statistics import Statistics

HORIZON_US: Final = 8_000_000
"""Rows that came so long ago count 1/e of those that come now."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered, older things counting less. rows: by (segment, partition), those of one replica. overhead_us: by site, time in
    which it worked and no segment did; a window counts an epoch as the site's while it runs and as its segment's when it is over, so that
    less than many windows do not tell. costs: by (site, segment), what a row cost there last, microseconds. seen_us: time that this is
    worth.
    """

    rows: Mapping[tuple[int, int], float] = field(default_factory=dict)
    overhead_us: Mapping[int, float] = field(default_factory=dict)
    costs: dict[tuple[int, int], float] = field(default_factory=dict)
    seen_us: float = 0.0

    def then(self, statistics: Statistics, hosting: Hosting) -> Known:
        """With another window."""
        window_us = statistics.end_us - statistics.begin_us
        kept = exp(-window_us / HORIZON_US)
        rows = {at: count * kept for at, count in self.rows.items()}
        for at, count in once(statistics, hosting).items():
            rows[at] = rows.get(at, 0.0) + count
        overhead_us = {
            site.site: self.overhead_us.get(site.site, 0.0) * kept + site.busy_us - sum(segment.busy_us for segment in site.segments)
            for site in statistics.sites
        }
        costs = {(s.site, each.segment): each.cost_us for s in statistics.sites for each in s.segments if each.cost_us}
        return Known(rows, overhead_us, self.costs | costs, self.seen_us * kept + window_us)

    def overhead(self, site: int, rows_per_us: float) -> float:
        """Share of its time in which the site works and no segment does, when so many rows come to all segments together."""
        rows = sum(self.rows.values())
        return max(0.0, self.overhead_us.get(site, 0.0)) * rows_per_us / rows if rows else 0.0

    def shares(self) -> dict[tuple[int, int], float]:
        """Share of its segment's rows, by (segment, partition), drawn towards the mean as far as counting alone explains differences.

        Who chooses the greatest of many noisy counts chooses those that are too great by chance, and moves less than it believes. Counts of
        a mean n differ by chance with variance n; of a variance v that leaves (v - n) / v for what is real.
        """
        by_segment: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at in self.rows:
            by_segment[at[0]].append(at)
        found: dict[tuple[int, int], float] = {}
        for alike in by_segment.values():
            total = sum(self.rows[at] for at in alike)
            middle = total / len(alike)
            variance = mean((self.rows[at] - middle) ** 2 for at in alike)
            real = max(0.0, 1 - middle / variance) if variance else 0.0
            found |= {at: (middle + real * (self.rows[at] - middle)) / total if total else 0.0 for at in alike}
        return found

    def chance(self, hosting: Hosting, sites: int) -> float:
        """The least relative error of what a site is expected to do: counts of a mean n differ by chance by 1 / sqrt(n)."""
        rows = sum(count * len(hosting.replicas.get(at, ())) for at, count in self.rows.items())
        return sqrt(sites / rows) if rows > sites else 1.0


def once(statistics: Statistics, hosting: Hosting) -> dict[tuple[int, int], float]:
    """Rows in the window, by (segment, partition). Its replicas process the same ones: the mean of those that are there and report."""
    told: dict[tuple[int, int], list[int]] = defaultdict(list)
    for window in statistics.sites:
        for segment in window.segments:
            for partition, rows in zip(segment.partitions, segment.rows):
                at = (segment.segment, partition)
                if window.site in hosting.replicas.get(at, ()):
                    told[at].append(rows)
    return {at: sum(rows) / len(rows) for at, rows in sorted(told.items())}


def forecast(
    sites: Sequence[SiteLoad], statistics: Statistics, hosting: Hosting, known: Known, slowness: Mapping[int, float]
) -> tuple[SiteLoad, ...]:
    """The sites with the load that they will have where they are now: in `utilization` and in their partitions' `cpu_share`.

    statistics: from which costs and the rate are taken. What is not of movable partitions stays as it was measured. If more than a site
    has time for, all are lowered, so that none is more utilized than the busiest was.
    """
    window_us = max(1, statistics.end_us - statistics.begin_us)
    rates: dict[int, float] = defaultdict(float)
    for (segment, _), count in once(statistics, hosting).items():
        rates[segment] += count / window_us
    shares, middle = known.shares(), usual(sites, known)
    in_segments = {window.site: sum(segment.busy_us for segment in window.segments) / window_us for window in statistics.sites}

    def expected(site: SiteLoad) -> tuple[PartitionLoad, ...]:
        slow = slowness.get(site.site, 1.0)
        segments = {each.segment for each in site.partitions}
        costs = {segment: site.costs.get(segment) or middle.get(segment, 0.0) * slow for segment in segments}
        return tuple(
            [
                PartitionLoad(
                    segment, partition, rows, rates[segment] * shares.get((segment, partition), 0.0) * costs[segment], held, on_disk
                )
                for segment, partition, rows, _, held, on_disk in site.partitions
            ]
        )

    found = []
    for site in sites:
        partitions = expected(site)
        pinned = max(0.0, in_segments[site.site] - sum(each.cpu_share for each in site.partitions))
        utilization = known.overhead(site.site, sum(rates.values())) + pinned + sum(each.cpu_share for each in partitions)
        found.append(replace(site, utilization=utilization, partitions=partitions))
    most, seen = max((site.utilization for site in found), default=0.0), max((site.utilization for site in sites), default=0.0)
    return tuple(found) if most <= seen else tuple(_lowered(site, seen / most) for site in found)


def usual(sites: Sequence[SiteLoad], known: Known) -> dict[int, float]:
    """What a row of a segment costs at the median site, microseconds; of a site that had none, what it cost there last."""
    now = known.costs | {(site.site, segment): cost for site in sites for segment, cost in site.costs.items()}
    costs: dict[int, list[float]] = defaultdict(list)
    for site in sites:
        for (at, segment), cost in now.items():
            if at == site.site and cost > 0:
                costs[segment].append(cost)
    return {segment: median(all_of_them) for segment, all_of_them in costs.items()}


def _lowered(site: SiteLoad, factor: float) -> SiteLoad:
    partitions = tuple([each._replace(cpu_share=each.cpu_share * factor) for each in site.partitions])
    return replace(site, utilization=site.utilization * factor, partitions=partitions)
