"""Between which sites copies have failed, and when it is tried there again (protocol C4). Decides; time is the machine's to ask for.

A failure belongs to the two sites that it was between: a line that loses what is under way says nothing of other lines. After each failure
the two have a pause, twice as long as the one before. A copy between them that becomes live clears them, and so does some time without a
failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from evenflow.coordinator.events import PairPause
from evenflow.stream.ids import SiteId

PAUSE_MS: Final = 250.0
"""After the first failure."""
PAUSE_MAX_MS: Final = 30_000.0
FORGET_MS: Final = 120_000.0
"""After so long without another one a failure counts no more. More than the longest pause."""
DOUBLINGS_MAX: Final = 20


@dataclass(slots=True)
class _Pair:
    failures: int
    why: str
    closed: bool = True


class Retries:
    """See the module. pause_ms: after the first failure of two sites."""

    def __init__(self, pause_ms: float = PAUSE_MS) -> None:
        self._pause_ms = pause_ms
        self._pairs: dict[tuple[SiteId, SiteId], _Pair] = {}

    def failed(self, source: SiteId, target: SiteId, why: str) -> tuple[tuple[float, PairPause], ...]:
        """A copy between the two was given up. Returns the pauses to be told of when they are over, with their milliseconds."""
        known = self._pairs.get((source, target))
        pair = self._pairs[source, target] = _Pair(known.failures + 1 if known else 1, why)
        pause_ms = min(PAUSE_MAX_MS, self._pause_ms * 2 ** min(pair.failures - 1, DOUBLINGS_MAX))
        return (
            (pause_ms, PairPause(source, target, pair.failures)),
            (FORGET_MS, PairPause(source, target, pair.failures, forget=True)),
        )

    def over(self, pause: PairPause) -> None:
        """A pause has passed. One before a newer failure, or of sites that have been cleared, says nothing any more."""
        pair = self._pairs.get((pause.source, pause.target))
        if pair is None or pair.failures != pause.failures:
            return
        if pause.forget:
            del self._pairs[pause.source, pause.target]
        else:
            pair.closed = False

    def succeeded(self, source: SiteId, target: SiteId) -> None:
        """A copy between the two is live."""
        self._pairs.pop((source, target), None)

    def keep(self, sites: Iterable[SiteId]) -> None:
        """All others are dead."""
        there = set(sites)
        self._pairs = {pair: known for pair, known in self._pairs.items() if there.issuperset(pair)}

    def open(self, source: SiteId, target: SiteId) -> bool:
        """Whether a copy between the two may begin now."""
        pair = self._pairs.get((source, target))
        return pair is None or not pair.closed

    def described(self, source: SiteId, target: SiteId) -> str:
        """What the two have behind them, for a person."""
        pair = self._pairs[source, target]
        times = "once" if pair.failures == 1 else f"{pair.failures} times"
        return f"copies from site {source} to site {target} have failed {times} ({pair.why}) and have a pause"
