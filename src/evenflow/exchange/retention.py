"""Retention: a producer keeps every frame it sent until the consumer has acknowledged it (A1), and can send it again (A3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from evenflow.exchange.section import Bundle, Mark, Section


class Retention:
    """Frames of one stream at one producer site, for all remote consumer sites.

    Marks are the same for every consumer and are kept once, until the slowest has them. frame_bytes: memory held by kept bundles.
    """

    __slots__ = ("_acked", "_bundles", "_marks", "frame_bytes", "produced", "stream")

    def __init__(self, stream: int, consumers: Iterable[int]) -> None:
        self.stream = stream
        self.produced = 0
        self.frame_bytes = 0
        self._acked = dict.fromkeys(consumers, 0)
        self._bundles: dict[int, deque[Bundle]] = {site: deque() for site in self._acked}
        self._marks: deque[Mark] = deque()

    @property
    def consumers(self) -> tuple[int, ...]:
        return tuple(self._acked)

    def keep(self, bundles: Iterable[tuple[int, Bundle]], mark: Mark) -> None:
        """Keep an epoch that is about to be sent."""
        for site, bundle in bundles:
            self._bundles[site].append(bundle)
            self.frame_bytes += bundle.size
        if self._acked:
            self._marks.append(mark)
        self.produced = mark.epoch

    def acked(self, site: int, epoch: int) -> None:
        """`site` holds everything up to `epoch`. Late and repeated acks change nothing."""
        if epoch <= self._acked.get(site, epoch):
            return
        self._acked[site] = epoch
        kept = self._bundles[site]
        while kept and kept[0].epoch <= epoch:
            self.frame_bytes -= kept.popleft().size
        settled = min(self._acked.values())
        while self._marks and self._marks[0].epoch <= settled:
            self._marks.popleft()

    def replay(self, site: int, start: int) -> Section:
        """Everything kept for `site` from epoch `start` on, bundles before marks."""
        bundles = [bundle for bundle in self._bundles[site] if bundle.epoch >= start]
        return Section(bundles=bundles, marks=[mark for mark in self._marks if mark.epoch >= start])
