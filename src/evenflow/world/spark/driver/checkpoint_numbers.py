"""When a run's checkpoints began and ended, for people: what the journal, progress and events say of it. By this machine's clock, which may
be set while the run goes on; nothing depends on it. Written by the coordinator's thread, read from any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenflow.availability.entries import Completed, Entry
from evenflow.statistics.progress import CheckpointProgress

Now = Callable[[], float]


class CheckpointNumbers:
    """retained: those that were there when the driver began. now_s: since 1970. every_s: from one to the next, None: when somebody asks.
    kept: those that must not go, though newer ones come."""

    def __init__(self, retained: Sequence[Completed] = (), now_s: Now = time.time, *, every_s: float | None = None) -> None:
        self._now_s, self._every_s = now_s, every_s
        self._began_s: dict[int, float] = {}
        self._stamped: dict[int, Completed] = {}
        self._newest = retained[-1] if retained else None
        self._timed = {made.place: made for made in retained}
        self.kept: tuple[Completed, ...] = ()

    def ordered(self, number: int) -> None:
        """A site is told to capture for it. The first time counts, though it may be ordered anew."""
        if number not in self._began_s:
            self._began_s = {number: self._now_s()}

    def stamped(self, entry: Entry, lasts: Callable[[int], Mapping[str, int]]) -> Entry:
        """The entry as it is written down: of a checkpoint with its times, always the same ones. lasts: given its epoch, by sink the last
        one with rows."""
        matter = entry.matter
        if not isinstance(matter, Completed):
            return entry
        if entry.number not in self._stamped:
            now_s = self._now_s()
            began_s = round(min(self._began_s.get(matter.number, now_s), now_s), 3)
            self._stamped = {entry.number: replace(matter, began_s=began_s, ended_s=round(now_s, 3), lasts=lasts(matter.epoch))}
        return replace(entry, matter=self._stamped[entry.number])

    def completed(self) -> dict[str, Any]:
        """What the event that it is whole says besides."""
        for made in self._stamped.values():
            self._newest = self._timed[made.place] = made
        took_s = None if self._newest is None else self._newest.seconds
        return {} if took_s is None else {"seconds": took_s}

    def retained(self, retained: Sequence[Completed]) -> Sequence[Completed]:
        """These with their times, and what must not go."""
        places = {made.place for made in retained}
        self._timed = {place: made for place, made in self._timed.items() if place in places}
        more = [made for made in self.kept if made.place not in places]
        return sorted([*more, *[self._timed.get(made.place, made) for made in retained]], key=lambda made: made.place)

    def progress(self, failures: int, open_number: int | None) -> CheckpointProgress:
        """failures: dropped since the newest. open_number: of the one that is under way."""
        newest = self._newest
        if newest is None:
            return CheckpointProgress(None, None, None, None, None, failures, open_number, self._every_s)
        age_s = round(max(0.0, self._now_s() - newest.ended_s), 3) if newest.ended_s else None
        return CheckpointProgress(newest.number, newest.epoch, newest.bytes, age_s, newest.seconds, failures, open_number, self._every_s)
