"""Events of a reading that have not been told yet.

Readings may come again, with events that are known. And one run may follow another under the same id: who stops a run that has a checkpoint
location and goes on there in the same engine has a run of that id, whose events are numbered from 0, and whose time begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenflow.monitor.reading import Event, RunReading


class Unheard:
    """Told all readings, in order."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int]] = {}
        """By run: its time at the newest reading, and number and time of its newest event."""

    def of(self, run: RunReading) -> tuple[Sequence[Event], bool]:
        """Those that are new, oldest first, and whether the run is another one than before of that id."""
        events, known = run.events, self._known.get(run.run)
        # Who reads seldom is told both, the last ones of a run that ended and those of the one that goes on there.
        begin = next((at for at in range(len(events) - 1, 0, -1) if events[at].number <= events[at - 1].number), 0)
        elapsed_us, number, at_us = known or (0, -1, 0)
        anew = known is not None and (
            run.elapsed_us < elapsed_us
            or (bool(events) and events[-1].number < number)
            or (begin > 0 and all((event.number, event.at_us) != (number, at_us) for event in events[begin:]))
        )
        if known is None:
            found = list(events)
        elif anew:
            found = [*(event for event in events[:begin] if event.number > number), *events[begin:]]
        else:
            found = [event for event in events[begin:] if event.number > number]
        if events:
            number, at_us = events[-1].number, events[-1].at_us
        elif anew:
            number, at_us = -1, 0
        self._known[run.run] = run.elapsed_us, number, at_us
        return found, anew


__all__ = ["Unheard"]
