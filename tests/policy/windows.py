"""Statistics for tests, written as what matters: rows by partition, and how busy a site was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenflow.policy.hosting import Hosting
from evenflow.policy.proposal import Proposal
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow

WINDOW_US = 1_000_000


def segment(rows: Mapping[int, int], busy_us: int, *, number: int = 1, state: int | Mapping[int, int] = 1000) -> SegmentWindow:
    """rows: by partition. state: bytes of each."""
    partitions = tuple(sorted(rows))
    sizes = tuple(state if isinstance(state, int) else state[p] for p in partitions)
    return SegmentWindow(number, f"segment {number}", partitions, tuple(rows[p] for p in partitions), sizes, busy_us, ())


def site(
    number: int,
    busy: float,
    rows: Mapping[int, int],
    *,
    state: int | Mapping[int, int] = 1000,
    free: int | None = None,
    spilled: int = 0,
) -> SiteWindow:
    """busy: utilization, all of it by segment 1."""
    busy_us = round(busy * WINDOW_US)
    segments = (segment(rows, busy_us, state=state),) if rows else ()
    return SiteWindow(number, 0, WINDOW_US, busy_us, free, 0, spilled, segments)


def statistics(sites: Sequence[SiteWindow]) -> Statistics:
    return Statistics.of(sites)


def hosting(statistics: Statistics, **other: object) -> Hosting:
    """As the statistics show it, with some fields replaced."""
    shown = Hosting.of(statistics)
    fields: dict[str, object] = {"replicas": shown.replicas, "capacity": shown.capacity, **other}
    return Hosting(**fields)  # type: ignore[arg-type]


def where(proposal: Proposal) -> list[tuple[tuple[int, ...], int, int]]:
    """Partitions, source and target of what is to move."""
    return [(move.partitions, move.source, move.target) for move in proposal.moves]
