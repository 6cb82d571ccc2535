"""Windows to test with."""

from __future__ import annotations

from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow


def segment(rows: dict[int, int], *, number: int = 1, state: int = 100, busy_us: int = 50, boxes: int = 1) -> SegmentWindow:
    """A segment whose partitions processed these rows; each holds `state` bytes."""
    count = sum(rows.values())
    made = tuple(BoxWindow(f"box {i}", count, count // 2, busy_us) for i in range(boxes))
    return SegmentWindow(number, f"segment {number}", tuple(rows), tuple(rows.values()), (state,) * len(rows), busy_us, made)


NOTHING_RELEASED = Latency()


def site(
    number: int, begin_us: int, end_us: int, busy_us: int, *segments: SegmentWindow, latency: Latency = NOTHING_RELEASED
) -> SiteWindow:
    return SiteWindow(number, begin_us, end_us, busy_us, None, 7, 0, segments, latency)
