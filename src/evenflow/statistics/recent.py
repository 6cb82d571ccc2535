"""The newest windows of a run's sites, as they come in: the stream that policies, experiments and views share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from evenflow.errors import StatisticsError
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from evenflow.statistics.wire import FlatWindow, Structures

KEPT: Final = 120
"""Windows kept of each site: half a minute, at four a second."""


class Recent:
    """count: windows that ever came. Each site's windows must come in their order; sites may come and go. structures: reads those that come
    as sites report them, when somebody asks for them."""

    def __init__(self, kept: int = KEPT, structures: Structures | None = None) -> None:
        self.count = 0
        self._kept, self._structures = kept, structures
        self._windows: dict[int, deque[tuple[int, SiteWindow | FlatWindow]]] = {}

    def add(self, window: SiteWindow | FlatWindow) -> None:
        self.count += 1
        self._windows.setdefault(window.site, deque(maxlen=self._kept)).append((self.count, window))

    def over(self, last_us: int) -> Statistics:
        """What ended within the last so many microseconds before the newest end. Raises StatisticsError if that is not > 0."""
        return self.read(self.windows_over(last_us))

    def read(self, windows: Iterable[SiteWindow | FlatWindow]) -> Statistics:
        """What such windows add up to: that takes milliseconds."""
        return Statistics.of([self._read(window) for window in windows])

    def _read(self, window: SiteWindow | FlatWindow) -> SiteWindow:
        if isinstance(window, SiteWindow):
            return window
        assert self._structures is not None, "nobody can read what sites report without the layout"
        return self._structures.window_of(window)

    def windows_over(self, last_us: int) -> list[SiteWindow | FlatWindow]:
        """The same, not summed up yet."""
        if last_us <= 0:
            raise StatisticsError(f"statistics are over a past of more than nothing, not over {last_us / 1e6:g} s")
        newest = max((window.end_us for windows in self._windows.values() for _, window in windows), default=0)
        return [w for windows in self._windows.values() for _, w in windows if w.end_us > newest - last_us]

    def since(self, seen: int) -> Statistics:
        """What has come after the first `seen` windows, as far as it is still kept."""
        return self.read(self.windows_since(seen))

    def windows_since(self, seen: int) -> list[SiteWindow | FlatWindow]:
        """The same, not summed up yet."""
        return [w for windows in self._windows.values() for number, w in windows if number > seen]
