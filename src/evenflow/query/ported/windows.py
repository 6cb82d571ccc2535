"""Time windows in an analysed plan. Spark's analyser has replaced `window(ts, '1 minute')` by a projection that computes the bounds of the
window from the time; here they are read back out of it.

    window           Project [named_struct(start, f(ts), end, f(ts) + size) AS window], f(ts) = ts - (ts - offset) mod slide
    sliding window   Expand, with such a struct for each of the windows that a row is in
    session_window   Project [named_struct(start, ts, end, ts + gap) AS session_window]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenflow.errors import QueryError
from evenflow.query.duration import duration_us
from evenflow.query.ported.tree import Expression, Plan, read_expression
from evenflow.query.sql.parser import free_variable

_WRAPPERS = frozenset({"KnownNullable", "PreciseTimestampConversion", "Cast"})


@dataclass(frozen=True, slots=True)
class Window:
    """A window that rows are to be grouped by. id: of the column. time: what it is over. slide_us 0: a session, and size_us its gap, or
    `gap` where that is computed from the row."""

    id: int
    time: Expression
    size_us: int
    slide_us: int
    offset_us: int = 0
    gap: Expression | None = None

    @property
    def word(self) -> str:
        """What SQL calls it."""
        return "window" if self.slide_us else "session_window"

    def __str__(self) -> str:
        return f"{self.word}({self.time})"


def window_of(plan: Plan) -> tuple[Window, list[Expression]] | None:
    """The window that a Project or an Expand computes, and its other columns; None if it computes none."""
    if plan.kind == "Expand":
        return _sliding(plan)
    if plan.kind != "Project":
        return None
    columns = plan.expressions("projectList")
    for column in columns:
        if column.kind == "Alias" and (bounds := _bounds(column.children[0])) is not None:
            found = _window(column.id, *bounds)
            if found is not None:
                return found, [other for other in columns if other is not column]
    return None


def end_of_window(expression: Expression) -> Expression | None:
    """The end of a window, where an expression is its last microsecond (`window_time(window)`)."""
    inner = _bare(expression)
    if inner.kind != "Subtract" or [n.fields.get("value") for n in inner.children[1:]] != ["1"]:
        return None
    end = _bare(inner.children[0])
    return end if end.kind == "GetStructField" and end.fields.get("ordinal") == 1 else None


def _sliding(plan: Plan) -> tuple[Window, list[Expression]] | None:
    first = [read_expression(tree) for tree in plan.fields["projections"][0]]
    outputs = plan.expressions("output")
    for column, made in zip(outputs, first, strict=True):
        if (bounds := _bounds(made)) is not None and (found := _window(column.id, *bounds)) is not None:
            return found, [other for other in first if other is not made]
    return None


def _bounds(expression: Expression) -> tuple[Expression, Expression] | None:
    """Start and end, where the expression is a pair of both."""
    if expression.kind != "CreateNamedStruct" or len(expression.children) != 4:
        return None
    names = [str(name) for name in expression.children[::2]]
    return (expression.children[1], expression.children[3]) if names == ["start", "end"] else None


def _window(id_: int, start: Expression, end: Expression) -> Window | None:
    begins, ends = _bare(start), _bare(end)
    if begins.kind == "AttributeReference" and ends.kind == "TimestampAddInterval":
        gap = _gap_of(ends.children[1])
        return Window(id_, begins, _gap(gap), 0) if gap.kind == "Literal" else Window(id_, begins, 1, 0, gap=gap)
    remainder = next((node for node in begins.walk() if node.kind == "Remainder"), None)
    if remainder is None or ends.kind != "Add":
        return None
    since, slide = remainder.children
    if since.kind != "Subtract" or slide.kind != "Literal" or ends.children[1].kind != "Literal":
        return None
    return Window(id_, _bare(since.children[0]), _number(ends.children[1]), _number(slide), _number(since.children[1]))


def _gap(gap: Expression) -> int:
    return duration_us(str(gap.fields["value"])) if gap.fields["dataType"] == "string" else _number(gap)


def _gap_of(tree: Expression) -> Expression:
    """What is cast to an interval."""
    while tree.kind in _WRAPPERS and (tree.kind != "Cast" or tree.fields["dataType"] == "interval"):
        tree = tree.children[0]
    return tree


def without_bounds(window: Window, condition: Expression) -> Expression | None:
    """The condition without the part that the analyser adds to sessions with gaps of the rows' own, that such a gap be positive: the box
    sees to that. None if it was all."""
    if condition.kind == "And":
        left, right = (without_bounds(window, part) for part in condition.children)
        return replace(condition, children=(left, right)) if left is not None and right is not None else left or right
    fields = [part for part in condition.children if part.kind == "GetStructField"]
    is_gap = condition.kind == "GreaterThan" and len(fields) == 2 and all(_is(part.children[0], window.id) for part in fields)
    return None if is_gap and window.gap is not None else condition


def _number(literal: Expression) -> int:
    return int(literal.fields["value"])


def _bare(expression: Expression) -> Expression:
    """Without what changes types only."""
    while expression.kind in _WRAPPERS:
        expression = expression.children[0]
    return expression


def passes(window: Window, columns: Sequence[Expression]) -> bool:
    """Whether a projection lets a window through as it is, with the time that it is over, and asks nothing else of it."""
    plain = {column.id for column in columns if column.kind == "AttributeReference"}
    computed = [node for column in columns if column.kind != "AttributeReference" for node in column.walk()]
    named = {node.id for node in computed if node.kind == "AttributeReference"}
    read = (window.time,) if window.gap is None else (window.time, window.gap)
    times = {node.id for tree in read for node in tree.walk() if node.kind == "AttributeReference"}
    return window.id in plain and window.id not in named and times <= plain


def renaming(window: Window, columns: Sequence[Expression]) -> Window | None:
    """The window under the other id that a projection gives it, if that is all that it does with it. Its time has to pass."""
    renamed = [c for c in columns if c.kind == "Alias" and c.children[0].kind == "AttributeReference" and c.children[0].id == window.id]
    others = [column for column in columns if column not in renamed]
    if len(renamed) != 1 or not passes(window, [*others, renamed[0].children[0]]):
        return None
    return replace(window, id=renamed[0].id)


def sets_of(plan: Plan, window: Window | None, mode: str) -> list[list[Expression]]:
    """The projections of an Expand, one for each set of keys. In a set without the window no group is ever complete: where only what is
    complete comes out there is nothing of it, as Spark keeps such groups for ever. Raises QueryError for such a set in other modes."""
    sets = [list(map(read_expression, projection)) for projection in plan.fields["projections"]]
    if window is None:
        return sets
    places = [at for at in range(len(sets[0])) if any(_is(made[at], window.id) for made in sets)]
    whole = [made for made in sets if all(made[at].kind == "AttributeReference" for at in places)]
    if len(whole) < len(sets) and mode != "append":
        raise QueryError("in one of the sets there is no window; group by the window and without it in two queries")
    return whole


def _is(tree: Expression, id_: int) -> bool:
    return tree.kind == "AttributeReference" and tree.id == id_


def starts_over(window: Window, time: str) -> str:
    """The SQL of the starts of all windows that slide over a time, as an array. time: SQL, too."""
    last = f"_window_start({time}, {window.slide_us}L, {window.offset_us % window.slide_us}L)"
    count = -(-window.size_us // window.slide_us)
    starts = ", ".join(f"{last} - INTERVAL '{at * window.slide_us}' MICROSECOND" for at in range(count - 1, -1, -1))
    each = free_variable(time)
    return f"filter(array({starts}), {each} -> {each} + INTERVAL '{window.size_us}' MICROSECOND > {time})"
