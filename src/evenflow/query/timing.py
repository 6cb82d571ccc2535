"""Timers of a processor, as far as the network has to know them: whether the stream that it is given has the time by which they go."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evenflow.errors import QueryError
from evenflow.processor import BatchProcessor, Processor

if TYPE_CHECKING:
    from evenflow.query.kinds.kind import StreamType


class _Declared:
    """In place of a store, where only timers matter. timers: by what time each goes."""

    def __init__(self) -> None:
        self.timers: dict[str, str] = {}

    def timer(self, name: str, *, time: str = "event") -> None:
        self.timers[name] = time

    def timeout(self, name: str, after: Any, *, time: str = "event") -> None:
        self.timers[name] = time

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def check_timers(name: str, processor: Any, given: StreamType, order: str | None) -> None:
    """Raise QueryError unless the timers that the processor declares can come, and it says what it does then."""
    if not isinstance(processor, Processor):
        return
    declared = _Declared()
    try:
        copy.deepcopy(processor).open(declared)  # type: ignore[arg-type]
    except Exception:  # It may need what only sites have; they will say so, and ask for all this again.
        return
    if not declared.timers:
        return
    if type(processor).expired in (Processor.expired, BatchProcessor.expired):
        style = "timers, state" if isinstance(processor, BatchProcessor) else "key, timer, state"
        timers = ", ".join(map(repr, declared.timers))
        raise QueryError(f"box {name!r}: {type(processor).__name__} has the timers {timers}; define expired(self, {style}) for them")
    event = next((timer for timer, time in declared.timers.items() if time == "event"), None)
    if event is None:
        return
    otherwise = "or declare it with time='processing'"
    if given.event_time is None:
        wanted = "the stream has no event time; add .with_watermark('ts', '10 seconds') before"
        raise QueryError(f"box {name!r}: the timer {event!r} goes by event time, and {wanted}, {otherwise}")
    if order == "arrival":
        wanted = "its rows have to come in that order; leave out order='arrival'"
        raise QueryError(f"box {name!r}: the timer {event!r} goes by event time, and {wanted}, {otherwise}")
