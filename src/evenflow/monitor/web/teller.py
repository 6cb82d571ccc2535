"""Scenes and readings as they come from wherever they come from, told to a feed: events apart, since none may be missed, and a point of
every curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from evenflow.monitor.history import History
from evenflow.monitor.reading import Reading, RunReading
from evenflow.monitor.scene import Scene
from evenflow.monitor.unheard import Unheard
from evenflow.statistics.histogram import percentile_ms
from evenflow.statistics.plain import plain_fields

CURVES: Final = ("seconds", "p50_ms", "p99_ms", "rows_in_per_s", "rows_out_per_s")
CURVE_OVER_US: Final = 2_100_000
KEPT_US: Final = 25_000_000
"""While nobody looks readings are ten seconds apart."""


class Told(Protocol):
    """What is told: a feed, or a tape."""

    def scene(self, scene: Scene, told: Mapping[str, Any]) -> None: ...

    def begins_anew(self, run: str) -> None:
        """Another run of that id is told of from the next reading on: curves begin with it."""

    def reading(
        self, reading: Reading, told: Mapping[str, Any], events: Sequence[Mapping[str, Any]], points: Mapping[str, Sequence[float | None]]
    ) -> None: ...


F = TypeVar("F", bound=Told)


class Teller(Generic[F]):
    """feed: what it tells. newest: the last reading; at_s: when it came, by the clock that it was given."""

    def __init__(self, feed: F) -> None:
        self.feed = feed
        self.scene: Scene | None = None
        self.newest: Reading | None = None
        self._history = History(KEPT_US)
        self._unheard = Unheard()
        self._elapsed_us: dict[str, int] = {}

    def take(self, told: Scene | Reading) -> None:
        """What comes next."""
        if isinstance(told, Scene) and told == self.scene:
            return  # Who asks anew is told it anew.
        self._history.add(told)
        if isinstance(told, Scene):
            self.scene = told
            self.feed.scene(told, told.to_json())
            return
        self.newest = told
        plain = told.to_json()
        for shown in plain["runs"]:
            del shown["events"]
        events = [event for run in told.runs for event in self._events(run)]
        self.feed.reading(told, plain, events, {run.run: point for run in told.runs if (point := self._point(run)) is not None})

    def _events(self, run: RunReading) -> list[Mapping[str, Any]]:
        """Those that are new, each as one flat object."""
        new, anew = self._unheard.of(run)
        if anew:
            self.feed.begins_anew(run.run)
        return [
            {
                **(event["details"] if isinstance(event["details"], dict) else {}),
                "run": run.run,
                "at_s": round(event["at_us"] / 1e6, 4),
                "kind": event["kind"],
                "site": event["site"],
                "text": event["text"],
            }
            for event in map(plain_fields, new)
        ]

    def _point(self, run: RunReading) -> tuple[float | None, ...] | None:
        """None, too, of a run whose time stands still since it is over: its curves end there, and keep what they have."""
        if run.elapsed_us == self._elapsed_us.get(run.run):
            return None
        self._elapsed_us[run.run] = run.elapsed_us
        rates = self._history.rates(run.run, CURVE_OVER_US) or self._history.rates(run.run, KEPT_US)
        if rates is None:
            return None
        latency = [dict(rates.latency)]
        return (
            round(run.elapsed_us / 1e6, 2), _rounded(percentile_ms(latency, 0.5)), _rounded(percentile_ms(latency, 0.99)),
            round(rates.rows_in_per_s, 1), round(rates.rows_out_per_s, 1),
        )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
