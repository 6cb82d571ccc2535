"""Aggregate: totals by key, running or over windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.availability.guarantee import OperatorClass
from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import (
    FOREVER_US,
    AggCall,
    OwnSessions,
    RowWindow,
    SessionWindow,
    TimeWindow,
    combinable,
    order_sensitive,
    result_type,
)
from evenflow.query.faults import about
from evenflow.query.kinds.changes import check_retracting
from evenflow.query.kinds.judging import (
    check_changing_window,
    check_distinct,
    check_keys,
    check_order,
    check_row_window,
    check_time_window,
    known,
    naming,
)
from evenflow.query.kinds.kind import Fed, KeyedKind, KeyedStep, Need, Origins, Outcome, StreamType, of_keys
from evenflow.query.kinds.wording import (
    call_text,
    keys_text,
    order_details,
    window_details,
)
from evenflow.query.user.aggregator import stored_type
from evenflow.stream.change import CHANGE, CHANGE_FIELD, is_changelog


@dataclass(frozen=True, slots=True)
class Aggregate(KeyedKind):
    """calls: the totals. window: over which rows; None: all that have come. combine: producers may make parts of them.

    mode: "changelog" for totals that say what they replace. sampled: all are estimates, so any row may be left out before it.
    """

    name: ClassVar = "aggregate"

    calls: Sequence[AggCall]
    window: TimeWindow | SessionWindow | RowWindow | None
    combine: bool = True
    mode: str = "update"
    sampled: bool = False

    @property
    def depends(self) -> OperatorClass:
        """Windows of time close; totals and the last n rows of a key depend on all that came."""
        closes = isinstance(self.window, TimeWindow | SessionWindow) and self.window.lateness_us < FOREVER_US and not self.changes
        return OperatorClass.CONVERGENT if closes else OperatorClass.DETERMINISTIC

    @property
    def reach_us(self) -> int | None:
        """A session may be as long as it likes, and what is put out several times depends on what was put out before."""
        window = self.window
        final = isinstance(window, TimeWindow) and window.final and self.depends is OperatorClass.CONVERGENT
        return window.size_us if isinstance(window, TimeWindow) and final else None

    def judge(self, box: str, inputs: Sequence[StreamType]) -> Outcome:
        given, window, keys = inputs[0], self.window, self.keys
        check_keys(box, keys, given.schema, least=0)
        calls = self.calls
        if not calls:
            raise QueryError(f"box {box!r} aggregates nothing; write .agg(total='sum(x)')").about("calls")
        for item, call in enumerate(calls):
            with about("calls", item):
                _call(box, call, given.schema)
        check_order(box, self.order, self.tie_break, given)
        with about("mode"):
            self._check_mode(box, given)
        if self.order is None and (isinstance(window, RowWindow) or any(call.ordered for call in calls)):
            raise QueryError(f"box {box!r} depends on the order of its rows; set its order to 'event_time' or 'arrival'").about("order")
        fields = [given.schema.field(key) for key in keys]
        time = None
        unmerged = next((call.function for call in calls if call.made is not None and call.ordered), None)
        if isinstance(window, SessionWindow) and unmerged is not None:
            why = f"box {box!r}: sessions grow together, and {unmerged} has no merge(one, other) for their states; add it"
            raise QueryError(why).about("calls")
        if isinstance(window, SessionWindow) and self.order == "arrival":
            raise QueryError(f"box {box!r}: a session has its rows in order of event time; leave out order='arrival'").about("order")
        if isinstance(window, TimeWindow | SessionWindow):
            size_us, slide_us = (window.size_us, window.slide_us) if isinstance(window, TimeWindow) else (window.gap_us, window.gap_us)
            with about("window"):
                check_time_window(box, size_us, slide_us, window.column, given)
            if isinstance(window, OwnSessions):
                with about("window"):
                    _check_ends(box, window, given.schema)
            stamp = given.schema.field(window.column).type
            fields += [pa.field("window_start", stamp), pa.field("window_end", stamp)]
            time = "window_end"
            if not window.final or isinstance(window, SessionWindow):
                with about("window"):
                    check_changing_window(box, window)
            if not window.final:
                time = None  # A window comes several times, also when its end is long past.
        elif isinstance(window, RowWindow):
            with about("window"):
                check_row_window(box, window.history, window.slide)
            if given.event_time is not None:
                fields.append(given.schema.field(given.event_time))
                time = given.event_time
        fields += [pa.field(call.name, call.type) for call in calls] + ([CHANGE_FIELD] if self.changes else [])
        with about("calls"):
            check_distinct(box, [f.name for f in fields], "give the result of .agg(...) another name")
        return Outcome((pa.schema(fields), given.schema), time, None if time is None else given.watermark_delay_us)

    @property
    def changes(self) -> bool:
        """Whether it puts out a changelog."""
        return self.mode == "changelog" or (isinstance(self.window, TimeWindow | SessionWindow) and self.window.mode == "changelog")

    def _check_mode(self, box: str, given: StreamType) -> None:
        """Raise QueryError or TypeMismatch unless it can put out what its mode says, of this input."""
        mode = self.mode
        if mode not in ("update", "changelog"):
            raise QueryError(f"box {box!r}: the mode of its results is {mode!r}; it must be 'update', 'changelog' or 'complete'")
        if mode != "update" and self.window is not None:
            raise QueryError(f"box {box!r}: the mode is said where the window is, .window(..., mode={mode!r}); windows of rows come once")
        if is_changelog(given.schema):
            check_retracting(box, self.keys, self.calls, given.schema, windowed=self.window is not None, changes=self.changes)
        if self.changes and CHANGE in (*self.keys, *(call.name for call in self.calls)):
            raise QueryError(f"box {box!r} puts out a column {CHANGE!r} of its own; give yours another name in a select before")

    def step(self, fed: Fed) -> KeyedStep:
        time = fed.given.event_time if isinstance(self.window, RowWindow) else None
        calls = tuple(self.calls)
        params = {"keys": tuple(self.keys), "calls": calls, "window": self.window, "partial": fed.partial, "time": time}
        if self.mode == "changelog":
            params |= {"changes": True, "retracts": fed.retracts}
        if self.order == "event_time" and isinstance(self.window, TimeWindow | SessionWindow):
            params["tie_break"] = self.ties(fed.schema, self.window.column)
        cares = isinstance(self.window, RowWindow) or order_sensitive(calls, fed.schema)
        return KeyedStep(params, cares=cares, user_code=self.folds_user_code())

    def folds_user_code(self) -> bool:
        """Whether it calls an aggregator of the user's."""
        return any(call.made is not None for call in self.calls)

    def combinable(self, schema: pa.Schema) -> bool:
        """Whether parts of it may be computed in the producers. schema: of its input. Then order must not matter to it."""
        window = self.window
        if isinstance(window, RowWindow | SessionWindow) or self.order is not None or not self.combine:
            return False
        if isinstance(window, TimeWindow) and schema.field(window.column).type.unit != "us":
            return False  # Partial results keep the window's start, which may lie between two of its units.
        return combinable(self.calls, schema)

    def sorts_itself(self) -> bool:
        return isinstance(self.window, TimeWindow | SessionWindow)

    def judges_late(self, event_time: str | None) -> bool:
        return self.order == "event_time" or isinstance(self.window, TimeWindow | SessionWindow)

    def needed(self, event_time: str | None) -> set[str] | None:
        if self.order == "event_time" and self.tie_break is None:
            return None  # All of them decide the order.
        needed = {*self.keys, *(self.tie_break or ()), *(column for call in self.calls for column in call.columns)}
        if isinstance(self.window, OwnSessions):
            needed.add(self.window.ends)
        return needed if event_time is None else needed | {event_time}

    def origin(self, column: str, inputs: Sequence[pa.Schema]) -> Origins:
        return ((0, column),) if column in self.keys else ()

    def needs(self, number: int) -> Need | None:
        window = self.window
        if self.sampled:
            return None
        if window is None:
            return Need("none", (), "running totals")
        if self.changes:
            return Need("none", (), "totals that say what they replace")
        if isinstance(window, SessionWindow):  # Of a gap of each row's own nobody knows how long it can be.
            return of_keys(self.keys, "sessions", around_us=None if isinstance(window, OwnSessions) else window.gap_us)
        if isinstance(window, RowWindow):
            return of_keys(self.keys, "windows of rows")
        if not window.final:
            return Need("none", (), "windows that come several times")
        return Need("window", tuple(self.keys), "windows of time", window.column, window.size_us, window.slide_us, window.start_us, 0)

    def text(self) -> list[str]:
        changes = ["as a changelog"] if self.mode == "changelog" else []
        window = [*window_details(self.window), *changes]
        return [keys_text(self.keys), *window, *order_details(self.order, self.tie_break), *map(call_text, self.calls)]

    @classmethod
    def step_text(cls, params: Mapping[str, Any]) -> list[str]:
        """Of an aggregate, and of what its producers combine."""
        partial = ["from partial results"] if params.get("partial") else []
        window = [*window_details(params["window"]), *(["as a changelog"] if params.get("changes") else [])]
        return [keys_text(params["keys"]), *window, *partial, *map(call_text, params["calls"])]


def _check_ends(name: str, window: OwnSessions, schema: pa.Schema) -> None:
    kind = known(name, window.ends, schema).type
    if not pa.types.is_timestamp(kind):
        raise TypeMismatch(f"box {name!r}: a session of a row ends at a time, but {window.ends!r} is {kind}; give a timestamp")


def _call(name: str, call: AggCall, schema: pa.Schema) -> None:
    types = [known(name, column, schema).type for column in call.columns]
    with naming(name):
        found = result_type(call.function, types[0] if types else None) if call.made is None else stored_type(call.made)
    if found != call.type:
        raise TypeMismatch(f"box {name!r}: {call.function}({call.column or '*'}) is {found}, but {call.name!r} is declared {call.type}")
