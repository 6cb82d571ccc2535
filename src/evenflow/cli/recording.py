"""What the sites of a run did, in a file: one line of statistics a second while it runs, and the rest at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

import typer

from evenflow.statistics.statistics import Statistics

EVERY_S: Final = 1.0


class Told(Protocol):
    """A run, as far as it is asked here."""

    def statistics_since(self, seen: int = 0) -> tuple[Statistics, int]: ...


class Recording:
    """path: overwritten at once, so that a file that cannot be written is known before Spark takes its time to start."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._next_s = path, 0, 0.0
        try:
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--statistics") from None

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
