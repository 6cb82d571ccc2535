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


class Recording:
    """path: overwritten at once, so that a file that cannot be written is known before Spark takes its time to start."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._next_s = path, 0, 0.0
        _empty(path, "--statistics")

    def step(self, run: Told, now_s: float) -> None:
        """Write a line if it is time to."""
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self.write(run)

    def write(self, run: Told) -> None:
        """What is new, if anything is."""
        statistics, self._seen = run.statistics_since(self._seen)
        if statistics.sites:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(statistics.to_json() + "\n")


class Recorder:
    """Scenes and readings of an engine: see `evenflow.monitor.recorded`. path: overwritten at once."""

    def __init__(self, path: Path) -> None:
        self._path, self._scene, self._reading = path, 0, 0
        self._news: News | None = None
        _empty(path, "--record")

    def begin(self, news: News) -> None:
        """The engine is there."""
        self._news = news

    def step(self) -> None:
        """Write what is new, if anything is."""
        if self._news is not None:
            self._scene, self._reading, texts = self._news(self._scene, self._reading)
            if texts:
                with self._path.open("ab") as file:
                    file.write(b"".join([text + b"\n" for text in texts]))


def _empty(path: Path, option: str) -> None:
    try:
        path.write_text("", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint=option) from None
