"""What a run did, in files: statistics of its sites, a line a second, or what those who watch it are told, two lines a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import typer

from evenflow.statistics.statistics import Statistics

EVERY_S: Final = 1.0

News = Callable[[int, int], tuple[int, int, list[bytes]]]
"""(scene, reading) -> the newest ones' numbers, and what they say to somebody who knows those."""


class Told(Protocol):
    """A run, as far as it is asked here."""

    def statistics_since(self, seen: int = 0) -> tuple[Statistics, int]: ...


class Beside:
    """A file that grows beside a run, which goes on without it: when it takes no more that is said once, and nothing is added any more, so
    that at most its last line is cut. path: overwritten at once, so that a file that cannot be written is known before Spark takes its time
    to start. say: where that is said."""

    def __init__(self, path: Path, option: str, say: Callable[[str], None]) -> None:
        self._path, self._option, self._say = path, option, say
        self.full = False
        try:
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint=option) from None

    def add(self, lines: bytes) -> None:
        if self.full:
            return
        try:
            with self._path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            self.full = True
            self._say(f"{self._option}: {self._path} takes no more: {error.strerror or error}; the run goes on without it")


class Recording:
    """Statistics. path, say: see `Beside`."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._file, self._seen, self._next_s = Beside(path, "--statistics", say), 0, 0.0

    def step(self, run: Told, now_s: float) -> None:
        """Write a line if it is time to."""
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self.write(run)

    def write(self, run: Told) -> None:
        """What is new, if anything is."""
        statistics, self._seen = run.statistics_since(self._seen)
        if statistics.sites:
            self._file.add(f"{statistics.to_json()}\n".encode())


class Recorder:
    """Scenes and readings of an engine: see `evenflow.monitor.recorded`. path, say: see `Beside`."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._file, self._scene, self._reading = Beside(path, "--record", say), 0, 0
        self._news: News | None = None

    def begin(self, news: News) -> None:
        """The engine is there."""
        self._news = news

    def step(self) -> None:
        """Write what is new, if anything is."""
        if self._news is not None and not self._file.full:
            self._scene, self._reading, texts = self._news(self._scene, self._reading)
            if texts:
                self._file.add(b"".join([text + b"\n" for text in texts]))
