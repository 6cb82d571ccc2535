"""A recording as a tape: where in a file which reading stands, what happened until then, and the curves of all of it.

The file is read once, and its readings stay in it: a page asks for a stretch of them. Whoever made the file may have made it with intent;
every scene and reading is checked before any page gets it, and nothing of it runs. A tape ends where the file was cut, or at the first
line that is wrong, and says so.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

from evenflow.errors import StatisticsError
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import check, lines_of, read, told
from evenflow.monitor.scene import Scene
from evenflow.monitor.web.feed import Kept, encoded
from evenflow.monitor.web.teller import CURVES, Teller

EVENTS_MAX: Final = 20_000
POINTS_MAX: Final = 1_200
"""Of a curve, as told: of several points that fall together the one with the longest latency."""
PART_MAX: Final = 120
"""Readings in one answer."""
PART_BYTES: Final = 8 << 20
P99: Final = CURVES.index("p99_ms")

Span = tuple[int, int]
"""Where in the file, and how many bytes."""


class Tape:
    """Filled by one thread (`fill`), read by others. ends: why it ends where it does, if not with the file; None else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._readings: list[tuple[Span, int]] = []
        """Of each: where it is, and the place of its scene in `_scenes`."""
        self._scenes: list[Span] = []
        self._at_us: list[int] = []
        self._events = Kept(EVENTS_MAX)
        self._points: dict[str, list[tuple[int, Sequence[float | None]]]] = {}
        self._span: Span = (0, 0)
        self._whole_line = True
        self._done = False
        self._name = ""
        self.ends: str | None = None
        self.begun = threading.Event()
        """The first reading is there, or there is none."""

    def fill(self) -> None:
        """Read all of the file."""
        teller = Teller(self)
        try:
            with self._path.open("rb") as file:
                for each in read(self._lines(file)):
                    teller.take(each)
            if not self._whole_line:
                self.ends = "the recording was cut in the middle of a line: what follows is missing"
        except OSError as error:
            self.ends = f"{self._path} cannot be read: {error.strerror}"
        except StatisticsError as error:
            self.ends = f"{error}; what stands before is shown"
        except ArithmeticError as error:
            self.ends = f"a reading has numbers that nothing can count ({error}); what stands before is shown"
        finally:
            self._done = True
            self.begun.set()

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        at = 0
        for line in lines_of(file):
            self._span = (at, len(line))
            at += len(line)
            self._whole_line = line.endswith(b"\n")
            yield line

    # ------------------------------------------------ told

    def scene(self, scene: Scene, told: Mapping[str, Any]) -> None:
        with self._lock:
            self._scenes.append(self._span)
            self._name = scene.name

    def begins_anew(self, run: str) -> None:
        with self._lock:
            self._points.pop(run, None)

    def reading(
        self, reading: Reading, told: Mapping[str, Any], events: Sequence[Mapping[str, Any]], points: Mapping[str, Sequence[float | None]]
    ) -> None:
        with self._lock:
            place = len(self._readings)
            self._readings.append((self._span, len(self._scenes) - 1))
            self._at_us.append(reading.at_us)
            self._events.take([{**event, "place": place} for event in events])
            for run, point in points.items():
                self._points.setdefault(run, []).append((place, point))
        self.begun.set()

    # ------------------------------------------------ asked

    @property
    def length(self) -> int:
        return len(self._readings)

    def index(self) -> bytes:
        """What there is: when each reading was made, what happened (`place`: at which reading), the curves by run, and why it ends."""
        with self._lock:
            past = {}
            for run, points in self._points.items():
                shown = thinned(points)
                columns = zip(*(point for _, point in shown), strict=True)
                past[run] = {"place": [place for place, _ in shown], **dict(zip(CURVES, map(list, columns), strict=True))}
            return encoded(
                {
                    "file": self._path.name, "name": self._name, "at_us": self._at_us, "events": list(self._events.items),
                    "forgotten": self._events.first, "past": past, "whole": self._done, "ends": self.ends,
                }
            )  # fmt: skip

    def part(self, first: int, count: int) -> bytes:
        """Readings from `first` on, at most so many and PART_BYTES of them, as a list; before each that has another scene than the one
        before it stands that. Empty behind the end."""
        with self._lock:
            wanted = self._readings[first : first + min(count, PART_MAX)]
            scenes = list(self._scenes)
        found, shown, size = list[Any](), -1, 0
        scene: Scene | None = None
        with self._path.open("rb") as file:
            for span, place in wanted:
                if place != shown:
                    scene, shown = self._scene_at(file, scenes[place]), place
                    found.append(scene.to_json())
                    size += scenes[place][1]
                reading = told(_at(file, span))
                if not isinstance(reading, Reading):
                    raise StatisticsError(f"{self._path.name} has changed since it was opened: open it again")
                check(scene, reading)
                plain = reading.to_json()
                for run in plain["runs"]:
                    del run["events"]
                found.append(plain)
                size += span[1]
                if size > PART_BYTES:
                    break
        return encoded(found)

    def _scene_at(self, file: BinaryIO, span: Span) -> Scene:
        found = told(_at(file, span))
        if not isinstance(found, Scene):
            raise StatisticsError(f"{self._path.name} has changed since it was opened: open it again")
        return found


def _at(file: BinaryIO, span: Span) -> Any:
    file.seek(span[0])
    try:
        return json.loads(file.read(span[1]))
    except ValueError:
        return None


def thinned(points: Sequence[tuple[int, Sequence[float | None]]], most: int = POINTS_MAX) -> list[tuple[int, Sequence[float | None]]]:
    """At most so many points, in order: of those that fall together the one with the longest latency, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    edges = [len(points) * place // most for place in range(most + 1)]
    return [max(points[a:b], key=lambda point: (point[1][P99] or 0.0, point[0])) for a, b in pairwise(edges)]
