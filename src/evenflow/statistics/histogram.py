"""Latencies as counts in logarithmic buckets: eight to a doubling, so a percentile is within 4.5% of the truth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from evenflow.statistics.window import Latency

BUCKETS_PER_DOUBLING: Final = 8


def bucket_of(latency_us: int) -> int:
    """The bucket of a latency in microseconds; everything below 1 us is in bucket 0."""
    return int(math.log2(latency_us) * BUCKETS_PER_DOUBLING) if latency_us > 1 else 0


def middle_us(bucket: int) -> float:
    """The geometric middle of a bucket, microseconds."""
    return float(2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING))


class Histogram:
    """counts: bucket -> how many."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, latency_us: int, times: int = 1) -> None:
        bucket = bucket_of(latency_us)
        self.counts[bucket] = self.counts.get(bucket, 0) + times

    def merge(self, counts: Mapping[int, int]) -> None:
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def take(self) -> dict[int, int]:
        """The counts so far; starts again from nothing."""
        counts, self.counts = self.counts, {}
        return counts


class RecentLatencies:
    """all: the counts of a whole run. recent: those of its last `over_s` seconds, summed up as they come. Bucket -> how many."""

    __slots__ = ("_over_s", "_parts", "all", "recent")

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self._parts: deque[tuple[float, Mapping[int, int]]] = deque()
        self.all: dict[int, int] = {}
        self.recent: dict[int, int] = {}

    def add(self, now_s: float, counts: Mapping[int, int]) -> None:
        """What has come now, if anything; what is older than `over_s` is recent no more. Cost: the buckets that come and go."""
        if counts:
            self._parts.append((now_s, counts))
            for bucket, count in counts.items():
                self.all[bucket] = self.all.get(bucket, 0) + count
                self.recent[bucket] = self.recent.get(bucket, 0) + count
        while self._parts and self._parts[0][0] < now_s - self._over_s:
            for bucket, count in self._parts.popleft()[1].items():
                self.recent[bucket] -= count
                if not self.recent[bucket]:
                    del self.recent[bucket]


def percentile_ms(histograms: Iterable[Mapping[int, int]], q: float) -> float | None:
    """The q-quantile (0 < q < 1) over all counts, in milliseconds; None without any."""
    total: dict[int, int] = {}
    for counts in histograms:
        for bucket, count in counts.items():
            total[bucket] = total.get(bucket, 0) + count
    wanted = q * sum(total.values())
    seen = 0
    for bucket in sorted(total):
        seen += total[bucket]
        if seen >= wanted:
            return round(middle_us(bucket) / 1000, 3)
    return None


def mean_of(counts: Mapping[int, int], of: Callable[[float], float]) -> float | None:
    """The mean of a function of a latency in microseconds over all counts; None without any."""
    total = sum(counts.values())
    return sum(of(middle_us(bucket)) * count for bucket, count in counts.items()) / total if total else None


def latency_of(histograms: Sequence[Mapping[int, int]]) -> Latency:
    """Median, p99 and count of all of them together."""
    p50_ms, p99_ms = percentile_ms(histograms, 0.50), percentile_ms(histograms, 0.99)
    if p50_ms is None or p99_ms is None:
        return Latency()
    return Latency(round(p50_ms * 1000), round(p99_ms * 1000), sum(sum(counts.values()) for counts in histograms))
