"""What boxes do, as people read it: the phrases that several kinds share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenflow.query.aggregates import FOREVER_US, AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.duration import duration_text
from evenflow.query.expression import Compiled
from evenflow.query.join import Join
from evenflow.query.user.calling import Tried


def keys_text(keys: Sequence[str] | None) -> str:
    """By what a box keeps its state."""
    return f"by {', '.join(keys)}" if keys else "all rows"


def by_details(by: Sequence[tuple[str, bool]]) -> list[str]:
    """The columns by which rows are put in order."""
    order = ", ".join(f"{column} descending" if descending else column for column, descending in by)
    return [f"by {order}"] if order else []


def _late(lateness_us: int) -> list[str]:
    if lateness_us == FOREVER_US:
        return ["never forgotten"]
    return [f"rows up to {duration_text(lateness_us)} late"] if lateness_us else []


def window_details(window: TimeWindow | SessionWindow | RowWindow | None) -> list[str]:
    """Which rows a window has, and when it comes."""
    if isinstance(window, TimeWindow):
        slide = "" if window.slide_us == window.size_us else f" every {duration_text(window.slide_us)}"
        mode = [] if window.mode == "append" else [f"{window.mode} mode"]
        start = f" from {duration_text(window.start_us)}" if window.start_us else ""
        return [f"window {duration_text(window.size_us)}{slide}{start} of {window.column}", *mode, *_late(window.lateness_us)]
    if isinstance(window, OwnSessions):
        return [f"sessions of {window.column} with a gap of each row's own, until {window.ends}"]
    if isinstance(window, SessionWindow):
        more = [] if window.final else [f"{window.mode} mode", *_late(window.lateness_us)]
        return [f"sessions of {window.column} with gaps up to {duration_text(window.gap_us)}", *more]
    if isinstance(window, RowWindow):
        return [f"last {window.history} rows every {window.slide}"]
    return []


def order_details(order: str | None, tie_break: Sequence[str] | None) -> list[str]:
    """In which order a box has its rows."""
    if order is None:
        return []
    ties = f", ties by {', '.join(tie_break)}" if tie_break else ""
    return [("in order of arrival" if order == "arrival" else "in order of event time") + ties]


def join_details(join: Join, table: Sequence[str] = ()) -> list[str]:
    """What a join compares, in phrases. table: what is to be said of the table that is joined."""
    keys = ", ".join(one if one == other else f"{one} = {other}" for one, other in zip(join.left_keys, join.right_keys, strict=True))
    parts = [f"{join.how} by {keys}", *table]
    if join.low_us is not None or join.high_us is not None:
        low, high = ("any" if us is None else ("-" if us < 0 else "") + duration_text(abs(us)) for us in (join.low_us, join.high_us))
        parts.append(f"right later by {low} to {high}")
    return [*parts, *([join.condition] if join.condition else []), *(["kept for ever"] if join.unbounded else [])]


def select_details(columns: Sequence[tuple[str, Any]]) -> list[str]:
    """Columns that only pass are counted together; computed ones are written out."""
    passing = [name for name, made in columns if made == name]
    computed = [f"{name} = {shown(made)}" for name, made in columns if made != name]
    few = ", ".join(passing) if len(passing) <= 5 else f"{', '.join(passing[:4])}, +{len(passing) - 4}"
    return ([few] if few else []) + computed


def call_text(call: AggCall) -> str:
    """`name = function(column)`."""
    return f"{call.name} = {call.text}"


def shown(made: Any) -> str:
    """An expression as it is, a function by its name."""
    if isinstance(made, str):
        return made
    if isinstance(made, Compiled | Tried):
        return made.text
    return f"{getattr(made, '__qualname__', type(made).__name__)}()"


def described(thing: Any) -> str:
    """A source or a sink by its kind, and where it is if it has a path."""
    kind = getattr(thing, "kind", type(thing).__name__)
    path = getattr(thing, "path", None)
    return f"{kind} {path}" if isinstance(path, str) else str(kind)
