"""The windows of all sites of a run: what policies, experiments and views are given. It knows no clock, and not who measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from evenflow.errors import StatisticsError
from evenflow.statistics import serial
from evenflow.statistics.window import BoxWindow, SiteWindow


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica of a partition did at one site."""

    segment: int
    partition: int
    site: int
    rows: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The windows of the sites of a run, one per site, by site. begin_us, end_us: from the first begin to the last end."""

    begin_us: int
    end_us: int
    sites: tuple[SiteWindow, ...]

    @staticmethod
    def of(windows: Iterable[SiteWindow]) -> Statistics:
        """Merge the windows of each site. They may come in any order; those of one site may not overlap."""
        merged: dict[int, SiteWindow] = {}
        for window in sorted(windows, key=lambda w: (w.site, w.begin_us, w.end_us)):
            merged[window.site] = merged[window.site].then(window) if window.site in merged else window
        sites = tuple(merged.values())
        return Statistics(min((w.begin_us for w in sites), default=0), max((w.end_us for w in sites), default=0), sites)

    def replicas(self) -> tuple[ReplicaLoad, ...]:
        """Every hosted replica with its rows and state, by segment, partition, site."""
        return tuple(
            sorted(
                (
                    ReplicaLoad(segment.segment, partition, window.site, rows, state)
                    for window in self.sites
                    for segment in window.segments
                    for partition, rows, state in zip(segment.partitions, segment.rows, segment.state_bytes)
                ),
                key=lambda load: (load.segment, load.partition, load.site),
            )
        )

    def rows(self) -> dict[tuple[int, int], int]:
        """Rows processed, by (segment, partition), over all sites: each replica's count."""
        return self._total(lambda load: load.rows)

    def state_bytes(self) -> dict[tuple[int, int], int]:
        """State held, by (segment, partition), over all sites: each replica's counts."""
        return self._total(lambda load: load.state_bytes)

    def _total(self, of: Callable[[ReplicaLoad], int]) -> dict[tuple[int, int], int]:
        total: dict[tuple[int, int], int] = {}
        for load in self.replicas():
            at = (load.segment, load.partition)
            total[at] = total.get(at, 0) + of(load)
        return total

    def boxes(self) -> dict[tuple[int, int], BoxWindow]:
        """Each box over all sites, by (segment, place in the segment): cost and selectivity of the dataflow's operators."""
        total: dict[tuple[int, int], BoxWindow] = {}
        for window in self.sites:
            for segment in window.segments:
                for at, box in enumerate(segment.boxes):
                    key = (segment.segment, at)
                    total[key] = total[key].then(box) if key in total else box
        return dict(sorted(total.items()))

    def to_json(self) -> str:
        """One line of JSON: the fields as they are named here, microseconds and bytes as whole numbers."""
        return serial.to_json(asdict(self))

    @staticmethod
    def from_json(text: str) -> Statistics:
        """What `to_json` wrote. Raises StatisticsError naming the field that is missing or wrong."""
        return Statistics(*serial.from_json(text))


def read_lines(lines: Iterable[str]) -> Statistics:
    """Several statistics of one run, one per line, merged into one. Raises StatisticsError naming the line."""
    windows: list[SiteWindow] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                windows.extend(Statistics.from_json(line).sites)
            except StatisticsError as error:
                raise StatisticsError(f"line {number}: {error}") from None
    return Statistics.of(windows)
