"""Layouts with boxes of one partition, and windows of them: what placements are asked with."""

from __future__ import annotations

import evenflow as ef
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow, SourceWindow


def totals(count: int, sites: int) -> Layout:
    """So many boxes with one partition each, and one keyed box, behind a source."""
    flow = ef.Dataflow("totals")
    rows = flow.source(ef.sources.generator(partitions=sites), name="in")
    for at in range(count):
        rows.agg(n="count(*)").to(ef.sinks.discard(), name=f"total{at}")
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.discard(), name="by_key")
    return layout(flow.network, sites=sites, partitions=16)


def profile(planned: Layout, cost_us: dict[int, float], rows: int = 10_000, hot: float = 0.0) -> Statistics:
    """A second at one site: each segment gets all rows, a share `hot` of them in its last partition."""
    segments = []
    for segment in planned.segments:
        count = segment.in_use or segment.partitions
        each = [round(rows * (1 - hot * (count > 1)) / (count - (hot > 0 and count > 1)))] * count
        if hot and count > 1:
            each[-1] = round(rows * hot)
        out = tuple((arc, rows) for arc in segment.outputs)
        busy_us = round(cost_us.get(segment.id, 0.0) * rows)
        segments.append(SegmentWindow(segment.id, segment.name, tuple(range(count)), tuple(each), (0,) * count, busy_us, (), (), out))
    sources = tuple(SourceWindow(str(s.source), s.id, 0, rows, rows) for s in planned.segments if s.kind == "ingress")
    return Statistics.of([SiteWindow(0, 0, 1_000_000, 0, segments=tuple(segments), sources=sources)])
