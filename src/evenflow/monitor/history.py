"""The last ten minutes of an engine, as scenes and readings: rates as differences, and the newest for whoever reads slowly.

Nothing here knows a clock: readings say when they are of. Not for two threads at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from evenflow.errors import StatisticsError
from evenflow.monitor.reading import Reading, RunReading
from evenflow.monitor.scene import Scene

KEPT_US: Final = 600_000_000
OVER_US: Final = 10_000_000
"""Rates are over this much of the past, unless it is said."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a run did between two readings. per_s: rows per second. latency: (bucket, count) of what was delivered meanwhile."""

    seconds: float
    rows_in_per_s: float
    rows_out_per_s: float
    epochs_per_s: float
    latency: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class News:
    """What somebody has to hear who knows a scene and a reading. scene: None if it is the one that is known."""

    scene: Scene | None
    reading: Reading


class History:
    """keep_us: how much of the past is kept, microseconds. newest: the newest reading, None before the first; scene: its scene."""

    def __init__(self, keep_us: int = KEPT_US) -> None:
        self._keep_us = keep_us
        self._readings: deque[Reading] = deque()
        self._scenes: dict[int, Scene] = {}
        self.scene: Scene | None = None

    @property
    def newest(self) -> Reading | None:
        return self._readings[-1] if self._readings else None

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All that are kept, oldest first."""
        return tuple(self._readings)

    def scene_of(self, reading: Reading) -> Scene:
        """The scene of a reading that is kept."""
        return self._scenes[reading.scene]

    def add(self, told: Scene | Reading) -> None:
        """What comes next. A reading's scene must have come before, else StatisticsError. One that is not newer than the newest ends what
        was before: the engine is another, or began anew."""
        if isinstance(told, Scene):
            if self.scene is not None and (told.number <= self.scene.number or told.engine != self.scene.engine):
                self._readings.clear()
                self._scenes.clear()
            self._scenes[told.number] = self.scene = told
            return
        if self.scene is None or told.scene != self.scene.number:
            known = "none" if self.scene is None else self.scene.number
            raise StatisticsError(f"reading {told.number} is of scene {told.scene}, and the one that has come is {known}")
        if self._readings and told.number <= self._readings[-1].number:
            self._readings.clear()
        self._readings.append(told)
        while self._readings[0].at_us < told.at_us - self._keep_us:
            self._readings.popleft()
        needed = {reading.scene for reading in self._readings}
        for number in [number for number in self._scenes if number not in needed]:
            del self._scenes[number]

    def since(self, reading: int, scene: int) -> News | None:
        """The newest reading, with all events since the one of that number, as far as they are kept, and its scene if that is not the one
        of that number. None if there is nothing newer. So who reads slowly, or comes again, is told the newest only, and misses no event.

        reading, scene: 0 of somebody who knows none.
        """
        newest = self.newest
        if newest is None or self.scene is None or newest.number == reading:
            return None
        # Who knows a number that is yet to come knows another engine.
        missed = [each for each in self._readings if each.number > reading or reading > newest.number]
        for earlier in reversed(missed[:-1]):
            newest = newest.after(earlier)
        return News(self.scene if newest.scene != scene else None, newest)

    def rates(self, run: str, over_us: int = OVER_US) -> Rates | None:
        """Of a run, between its newest reading and the oldest that is at most `over_us` before it, and behind the last time that its
        counters have begun anew. None without two of them."""
        found = list[tuple[int, RunReading]]()
        for each in self._readings:
            mine = each.run(run)
            if mine is None:
                continue
            if found and has_begun_anew(found[-1][1], mine):
                found.clear()
            found.append((each.at_us, mine))
        newest = self.newest
        recent = [] if newest is None else [(at_us, mine) for at_us, mine in found if at_us >= newest.at_us - over_us]
        if len(recent) < 2:
            return None
        return rates_between(*recent[0], *recent[-1])


def has_begun_anew(before: RunReading, now: RunReading) -> bool:
    """Another generation counts anew, and so does another run of one id."""
    return now.elapsed_us < before.elapsed_us or now.rows_in < before.rows_in or now.rows_out < before.rows_out or now.epoch < before.epoch


def rates_between(first_us: int, first: RunReading, last_us: int, last: RunReading) -> Rates | None:
    """Of one run between two moments. None if no time is between them, or counters have begun anew."""
    seconds = (last_us - first_us) / 1e6
    rows_in, rows_out, epochs = last.rows_in - first.rows_in, last.rows_out - first.rows_out, last.epoch - first.epoch
    before = dict(first.latency)
    latency = tuple((bucket, count - before.get(bucket, 0)) for bucket, count in last.latency if count != before.get(bucket, 0))
    if seconds <= 0 or min(rows_in, rows_out, epochs, *(count for _, count in latency), 0) < 0:
        return None
    return Rates(seconds, rows_in / seconds, rows_out / seconds, epochs / seconds, latency)
