"""Streams between the naming of a key and the box that uses it: `key_by(...)`, `group_by(...)`, and windows on groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.aggregates import AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow, Way, result_type, ways_by_name
from evenflow.query.built import params_of
from evenflow.query.calls import Call, parse_aggregation
from evenflow.query.columns import WindowTime
from evenflow.query.drawing import Handle
from evenflow.query.duration import duration_us, offset_us
from evenflow.query.estimates import rewritten
from evenflow.query.expression import compile_expression, split_alias
from evenflow.query.given import Expression, Order, box_name, direction, expressions_of, names_of, selected, ties_of, unnamed
from evenflow.query.group_keys import WindowCall, group_keys
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.judging import check_row_window, check_time_window, expression_field, naming
from evenflow.query.matching import PerMatch
from evenflow.query.regrouped import regrouped
from evenflow.query.sessions import check_comes_once, check_gap, end_of_own, lateness_of
from evenflow.query.shaping import ShapedStream
from evenflow.query.totals_named import NamedTotals, named_calls
from evenflow.query.user.aggregator import stored_type
from evenflow.query.user.calling import Tried
from evenflow.query.user.formula import Formula, together
from evenflow.query.user.scope import scope
from evenflow.query.whose import columns_in
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import quoted

if TYPE_CHECKING:
    from evenflow.processor import Processor
    from evenflow.query.user.aggregator import Aggregator

S = TypeVar("S", bound=ShapedStream)
"""What a user draws with. These classes give back what they were made of."""

Mode = Literal["update", "changelog", "complete"]
"""Of results that change: as they are then, what has changed in them, or all of them."""


class KeyedStream(Generic[S]):
    """A stream whose rows are brought together by key, waiting for `process`."""

    def __init__(self, stream: S, keys: tuple[str, ...]) -> None:
        self.stream, self.keys = stream, keys

    def __repr__(self) -> str:
        return f"KeyedStream(by {', '.join(self.keys)} of {self.stream!r})"

    def process(
        self, processor: Processor, *, order: Order | None = None, tie_break: Sequence[str] | None = None,
        verify: bool | None = None, name: str | None = None,
    ) -> S:  # fmt: skip
        """What the processor makes of each key's rows and its own state. processor: an instance of ef.Processor or
        ef.BatchProcessor.

        order: "event_time" (the default on a stream with a watermark: rows come sorted, behind the watermark) or "arrival".
        tie_break: columns that order rows of equal time, default all the others. verify: call twice and compare in every epoch
        (True), never (False), or now and then (None).
        """
        if isinstance(processor, type):
            raise QueryError(f"box {name or processor.__name__!r}: process takes an instance; write process({processor.__name__}())")
        ordered = default_order(self.stream, order)
        ties = ties_of("process", tie_break, self.stream.columns)
        params = {"keys": self.keys, "processor": processor, "order": ordered, "tie_break": ties, "verify": verify}
        return self.stream._drawn("process", params, (self.stream,), name, type(processor).__name__)

    def sort(self, *, tie_break: Sequence[str] | None = None, name: str | None = None) -> S:
        """Each key's rows in order of event time, once the watermark has passed them. tie_break: columns that order rows of equal
        time, default all the others."""
        return self.stream._sorted(self.keys, tie_break, name)

    def bsort(self, column: str, size: int, *, name: str | None = None) -> S:
        """Each key's rows nearly in order of a column: they go through a buffer of `size` rows per key, out of which the least leaves
        when it is full."""
        return self.stream._bsorted(self.keys, column, size, name)

    def group_by(self, *columns: Any) -> GroupedStream[S]:
        """The same as `group_by` on the stream; without columns, by this key."""
        return grouped_by(self.stream, columns or self.keys)

    groupBy = group_by


@dataclass(frozen=True)
class _Grouping(NamedTotals[S]):
    """What an aggregate knows before its calls. over: the window.

    extra: columns computed for it beforehand; time: the event time among them. whole: all results come, again and again. sampled: of
    estimates.
    """

    stream: S
    keys: tuple[str, ...]
    over: TimeWindow | SessionWindow | RowWindow | None = None
    order: Order | None = None
    tie_break: tuple[str, ...] | None = None
    extra: Mapping[str, Expression] = field(default_factory=dict)
    time: str | None = None
    whole: bool = False
    sampled: bool = False

    def agg(
        self,
        *expressions: Any,
        combine: bool = True,
        order: Order | None = None,
        tie_break: Sequence[str] | None = None,
        mode: Mode = "update",
        **named: Any,
    ) -> S:
        """One row per group, with one column per aggregate: total="sum(x)", "sum(a + b) / count(*) as mean", `F.sum("x").alias("total")`.

        Without a window: whenever rows of a group came in an epoch, its totals so far. combine: partial aggregation before the
        exchange, where it is possible. order, tie_break: as in `process`, for first, last, collect_list and functions of yours that are
        given the rows of a group.

        mode, without a window: "changelog" puts the row as it was before the totals so far, with a column `_change` that says what each
        does (insert, update_before, update_after, delete); "complete" puts out all groups now and then, as `.complete()` behind that does.
        """
        expressions = tuple(named_calls(expressions))
        named, sampled = rewritten(self.stream, self.over, mode, expressions, named)
        params = _Aggregate(self, combine, order, ties_of("aggregate", tie_break, self.stream.columns), mode, sampled or self.sampled)
        with columns_in(self.stream):
            positional, by_name = [selected(given) for given in expressions], {name: unnamed(given) for name, given in named.items()}
        formulas = [given.functions for given in (*positional, *by_name.values()) if isinstance(given, Formula)]
        with scope(together(formulas)):
            return params.draw(_named_calls(list(map(_text, positional)), {name: _text(given) for name, given in by_name.items()}))


class GroupedStream(_Grouping[S]):
    """Groups of rows: aggregate them as they come, or say over which window."""

    def __repr__(self) -> str:
        return f"GroupedStream(by {', '.join(self.keys) or 'nothing'} of {self.stream!r})"

    def window(
        self, size: str | timedelta, slide: str | timedelta | None = None, *, column: str | None = None,
        mode: Literal["append"] | Mode = "append", allowed_lateness: str | timedelta | None = None, start: str | timedelta | None = None,
    ) -> WindowedStream[S]:  # fmt: skip
        """Windows of event time, [k * slide, k * slide + size); tumbling without `slide`. column: the event-time column, the
        stream's by default.

        Adds window_start and window_end behind the keys. A window is put out once, when the watermark has reached its end.
        Behind another window, a result counts at the last microsecond of its window.

        mode="update": a window is put out whenever rows have come into it, like Spark's update mode; the newest row of a window is its
        result. allowed_lateness: a window takes rows for so long after the watermark has reached its end, and is then put out again;
        "forever": no window is ever forgotten. mode="changelog": like update, with the row as it was before it, and a column `_change` as
        of `agg`; mode="complete": all windows there ever were, now and then, as Spark's complete mode and as `.complete()` behind it.
        With any of these, the result has no event time: a window comes more than once.

        start: windows begin at multiples of `slide` and so much more, or less with a minus sign, as Spark's startTime.
        """
        name = self.stream.flow.free("aggregate")
        self._check_free(name)
        with naming(name):
            size_us = duration_us(size)
            slide_us = size_us if slide is None else duration_us(slide)
            lateness_us = lateness_of(mode, allowed_lateness)
            start_us = 0 if start is None else offset_us(start)
        time, extra = self._window_time(name, size_us, slide_us, column)
        over = TimeWindow(time, size_us, slide_us, "changelog" if mode == "complete" else mode, lateness_us, start_us % slide_us)
        return WindowedStream(self.stream, self.keys, over, None, None, extra, time if extra else None, whole=mode == "complete")

    def session(
        self, gap: Any = None, *, column: str | None = None, ends: str | None = None,
        mode: Literal["append", "changelog", "complete"] = "append", allowed_lateness: str | timedelta | None = None,
    ) -> SessionStream[S]:  # fmt: skip
        """Sessions of event time, as Spark's session_window: rows of a group of which each comes at most `gap` after the one before.

        gap: "5 minutes", a timedelta, or an expression or column of PySpark that is such a text or an interval, computed from the row:
        "CASE WHEN kind = 'tv' THEN '5 minutes' ELSE '1 minute' END". Then each row is a session [time, time + its gap) by itself, and those
        that overlap or touch are one; a row whose gap is null, no length of time, zero or negative belongs to none. ends: instead of a
        gap, the column with the time at which a row's own session is over.

        column: the event-time column, the stream's by default. Adds window_start (time of the first row) and window_end (of the last
        row, plus the gap; the latest of the rows' own ends) behind the keys. A session is put out once, when the watermark has reached
        its end.

        mode="changelog", of sessions with one gap: whenever rows have come into sessions, those that there were and those that there are,
        with a column `_change` as of `agg`; "complete": all sessions there ever were, now and then. allowed_lateness, and what else there
        is to that, as of `window`.
        """
        name = self.stream.flow.free("aggregate")
        self._check_free(name)
        if (gap is None) == (ends is None):
            raise QueryError(
                f"box {name!r}: a session has a gap, such as .session('5 minutes'), or a column with each row's end: ends='until'"
            )
        if ends is not None:
            check_comes_once(name, mode, allowed_lateness)
            time, extra = self._window_time(name, 1, 1, column)
            return SessionStream(self.stream, self.keys, OwnSessions(time, ends=ends), None, None, extra, time if extra else None)
        gap, whole = unnamed(gap), mode == "complete"
        try:
            gap_us = duration_us(gap)
        except QueryError as error:
            check_comes_once(name, mode, allowed_lateness)
            return self._sessions_by(name, gap, column, error)
        time, extra = self._window_time(name, gap_us, gap_us, column)
        with naming(name):
            over = SessionWindow(time, gap_us, "changelog" if mode == "complete" else mode, lateness_of(mode, allowed_lateness))
        return SessionStream(self.stream, self.keys, over, None, None, extra, time if extra else None, whole=whole)

    def _sessions_by(self, name: str, gap: Any, column: str | None, error: QueryError) -> SessionStream[S]:
        """Sessions with a gap of each row's own, an expression. error: why it is no length of time for all of them."""
        check_gap(name, gap, error)
        time, extra = self._window_time(name, 1, 1, column)
        of = f"{quoted('window_end')} - INTERVAL '1' MICROSECOND" if extra else quoted(time)
        until, ends = end_of_own(name, gap, of, self.stream.schema, error)
        window = OwnSessions(time, ends=until)
        return SessionStream(self.stream, self.keys, window, None, None, {**extra, until: ends}, time if extra else None)

    def _check_free(self, name: str) -> None:
        if self.over is not None:
            raise QueryError(f"box {name!r}: these groups have a window among their keys; take one of the two away")

    def _over(self, call: WindowCall) -> GroupedStream[S]:
        """The same groups in a window that stood among the keys."""
        made: _Grouping[S]
        if call.session:
            made = self.session(call.spans[0], column=call.column)
        else:
            size, slide, start = call.spans[0], *(*call.spans[1:], None, None)[:2]
            made = self.window(size, slide, column=call.column, start=start)
        return GroupedStream(made.stream, made.keys, made.over, made.order, made.tie_break, made.extra, made.time, made.whole)

    def resample(
        self, step: str | timedelta, *columns: str, how: Way | Mapping[str, Way] = "linear", max_gap: str | timedelta | None = None,
        name: str | None = None,
    ) -> S:  # fmt: skip
        """The values of columns at every multiple of `step` in event time, from the first row of a group to its last.

        how: "linear" between the row before and the row after (doubles), or "previous", the value of the row before; or
        which of these for each column. max_gap: nothing is put out between rows further apart, and groups that are silent for longer are
        forgotten; with it, and only with it, windows of time may come behind. Puts out the keys, the event time and the columns.
        """
        named = self.stream.flow.free("resample") if name is None else box_name(name, "resample")
        with naming(named):
            step_us = duration_us(step)
            gap_us = None if max_gap is None else duration_us(max_gap)
            ways = how if isinstance(how, str) else ways_by_name(columns, how)
        params = {"keys": self.keys, "step_us": step_us, "columns": columns, "how": ways, "gap_us": gap_us}
        return self.stream._drawn("resample", {**params, "order": "event_time", "tie_break": None}, (self.stream,), named, "")

    def pattern(
        self, pattern: str, *, measures: Mapping[str, str], within: str | timedelta, define: Mapping[str, str] | None = None,
        skip: str = "past last row", rows: PerMatch = "one", tie_break: Sequence[str] | None = None, name: str | None = None,
    ) -> S:  # fmt: skip
        """One row per match, or all rows, of a pattern in a group's rows, in order of event time: a small part of SQL's MATCH_RECOGNIZE.

        pattern: variables with ? * + {n,m}, |, and parentheses, such as "A B+ (C | D)?"; quantifiers take as many rows as they can. define:
        of a variable, which rows it can be: a condition on the row, by PREV(column) the row before it, and the match so far, "price >
        LAST(A.price)"; without one any row. measures: names and expressions over aggregates of rows, of one variable or of all:
        "sum(B.price)", "count(*)", "last(C.ts)". within: from the first row of a match to the last, at most. skip: where the next match may
        begin: "past last row", "to next row", or at a row of this one, "to first B" or "to last B"; else at the next row.
        rows: "one" per match, the keys, match_start, match_end (the event time) and the measures; or "all" of a match's rows with their own
        columns, where a measure is of the rows up to each one, behind FINAL of all ("FINAL max(B.price)"); or "with unmatched", these and
        the rows in no match, whose measures are null. tie_break: as in `process`.
        """
        named = self.stream.flow.free("pattern") if name is None else box_name(name, "pattern")
        measures, define = expressions_of(named, "measures", measures), expressions_of(named, "define", define or {})
        with naming(named):
            within_us, ties = duration_us(within), ties_of(named, tie_break, self.stream.columns)
        params = {
            "keys": self.keys, "pattern": pattern, "define": tuple(define.items()), "measures": tuple(measures.items()),
            "within_us": within_us, "skip": skip, "rows": rows, "order": "event_time", "tie_break": ties,
        }  # fmt: skip
        return self.stream._drawn("pattern", params, (self.stream,), named, "")

    def _window_time(self, name: str, size_us: int, slide_us: int, column: str | None) -> tuple[str, dict[str, Expression]]:
        """The column that windows are over, and what must be computed for it: behind another window, its last microsecond."""
        time = column or self.stream.event_time
        check_time_window(name, size_us, slide_us, time, self.stream.type)
        extra: dict[str, Expression] = {}
        if self.stream.event_time == "window_end" and "window_start" in self.stream.columns:
            time = "_window_time"
            extra[time] = WindowTime("window_end")
            twice = {"window_start", "window_end"} & set(self.keys)
            if twice:
                raise QueryError(
                    f"box {name!r} cannot group by {', '.join(sorted(twice))} and add windows of its own; rename it in a select before"
                )
        assert time is not None
        return time, extra

    def rows(
        self, history: int, slide: int = 1, *, order: Order | None = None, tie_break: Sequence[str] | None = None
    ) -> RowWindowedStream[S]:
        """The last `history` rows of each group, after every `slide` new ones (fewer rows at the beginning).

        order, tie_break: as in `process`. On a stream with event time its column is put out too, from the row that completed
        the slide.
        """
        check_row_window(self.stream.flow.free("aggregate"), history, slide)
        ordered = default_order(self.stream, order)
        ties = ties_of("aggregate", tie_break, self.stream.columns)
        return RowWindowedStream(self.stream, self.keys, RowWindow(history, slide), ordered, ties)


class WindowedStream(_Grouping[S]):
    """Groups of rows in windows of time, waiting for `agg` or `top`."""

    def top(self, count: int, *, order_by: str | Sequence[str], name: str | None = None) -> S:
        """The first `count` rows of each group and window in an order: "length desc", or ["length desc", "src"].

        As in Spark SQL, nulls are first in ascending and last in descending order; rows that are equal in it are ordered by their other
        columns. Puts out the keys, window_start, window_end, rank (from 1) and the other columns, once, when the watermark has reached
        the window's end. Behind another window its bounds are left out; select them under other names before, to keep them.
        """
        flow, window = self.stream.flow, self.over
        named = flow.free("top") if name is None else box_name(name, "top")
        by = tuple(direction(named, text, (*self.stream.columns, *self.extra)) for text in names_of(named, "order_by", order_by))
        params = {"keys": self.keys, "window": window, "count": count, "by": by, "order": None, "tie_break": None}
        if not self.extra:
            return self.stream._drawn("top", params, (self.stream,), named, "")
        with flow.whole():
            kept = [(column, column) for column in self.stream.columns if column not in ("window_start", "window_end")]
            before = {"columns": (*kept, *self.extra.items()), "event_time": self.time}
            stream = self.stream._drawn("select", before, (self.stream,), f"{named}.in", "")
            top = stream._drawn("top", params, (stream,), named, "")
            columns = tuple((column, column) for column in top.columns if column != self.time)
            out = top._drawn("select", {"columns": columns}, (top,), f"{named}.out", "")
        parts = {".in": stream.handle, "": top.handle, ".out": out.handle}
        return type(out)(flow, out.handle, 0, parts, tuple(column for column, _ in kept))


class SessionStream(_Grouping[S]):
    """Groups of rows in sessions, waiting for `agg`."""


class RowWindowedStream(_Grouping[S]):
    """Groups of rows in windows that count rows, waiting for `agg`."""


def grouped_by(stream: S, columns: Sequence[Any]) -> GroupedStream[S]:
    """See `Stream.group_by`."""
    stream, keys, over = group_keys(stream, columns)
    grouped = GroupedStream(stream, keys)
    return grouped if over is None else grouped._over(over)


def default_order(stream: HandledStream, order: Order | None) -> Order:
    """What the user says, else by event time if there is a watermark, else by arrival."""
    return order or ("arrival" if stream.event_time is None else "event_time")


def _text(given: str | Formula) -> str:
    return given.text if isinstance(given, Formula) else given


def _named_calls(expressions: Sequence[str], named: Mapping[str, str]) -> list[tuple[str, str]]:
    """(result name, expression) in the order given."""
    calls = []
    for text in expressions:
        with naming("aggregate"):
            expression, name = split_alias(text) if isinstance(text, str) else (text, None)
        if name is None:
            raise QueryError(f"box 'aggregate': the aggregate {text!r} has no name; write agg(name={text!r})")
        calls.append((name, expression))
    return [*calls, *named.items()]


@dataclass
class _Aggregate(Generic[S]):
    """One call of `agg`: the box, a select before it for computed arguments, and one after it for computed results."""

    grouping: _Grouping[S]
    combine: bool
    order: Order | None
    tie_break: tuple[str, ...] | None
    mode: Mode = "update"
    sampled: bool = False

    def draw(self, texts: list[tuple[str, str]]) -> S:
        group, flow = self.grouping, self.grouping.stream.flow
        name = flow.free("aggregate")
        for option, given, fits, wanted in (
            ("combine", self.combine, isinstance(self.combine, bool), "True or False"),
            ("order", self.order, self.order in (None, "event_time", "arrival"), "'event_time' or 'arrival'"),
            ("mode", self.mode, self.mode in get_args(Mode), "'update', 'changelog' or 'complete'"),
        ):
            if not fits:
                text = f"{option} is {given!r}, not {wanted}; a column of that name is written agg('sum(x) as {option}')"
                raise QueryError(f"box {name!r}: {text}")
        before: dict[str, Expression] = dict(group.extra)
        calls: list[AggCall] = []
        after: list[tuple[str, str]] = []
        shares = self.sampled and not group.sampled  # An estimate and its error are made of the same sums.
        known: dict[Call, str] | None = {} if shares else None
        for result, text in texts:
            after.append((result, self._split(name, result, text, before, calls, known)))
        with flow.whole():
            parts: dict[str, Handle] = {}
            stream = group.stream
            if before:
                columns = (*((column, column) for column in stream.columns), *before.items())
                params = {"columns": columns, **({"event_time": group.time} if group.time else {})}
                stream = stream._drawn("select", params, (stream,), f"{name}.in", "")
                parts[".in"] = stream.handle
            stream = self._totals(stream, tuple(calls), name)
            parts[""] = stream.handle
            if any(result != made for result, made in after):
                made_up = {CHANGE, *(call.name for call in calls)}
                kept = [(column, column) for column in stream.columns if column not in made_up]
                last = [(CHANGE, CHANGE)] if CHANGE in stream.columns else []
                stream = stream._drawn("select", {"columns": (*kept, *after, *last)}, (stream,), f"{name}.out", "")
                parts[".out"] = stream.handle
            if group.whole or self.mode == "complete":
                stream = stream.complete(name=f"{name}.table")
                parts[".table"] = stream.handle
        return type(stream)(flow, stream.handle, 0, parts, group.stream.columns if before else None)

    def _totals(self, stream: S, calls: tuple[AggCall, ...], name: str) -> S:
        """The box of the calls. Of a changelog there is another one for those that cannot take back what they have counted."""
        keys = self.grouping.keys
        if is_changelog(stream.schema) and self.grouping.over is None and self.mode != "update" and CHANGE not in keys:
            described = regrouped(stream.schema, keys, calls)
            if described is not None:
                return stream._drawn("process", params_of(keys, described), (stream,), name, "")
        return stream._drawn("aggregate", self._params(stream, calls), (stream,), name, "")

    def _split(
        self, box: str, result: str, text: str, before: dict[str, Expression], calls: list[AggCall], known: dict[Call, str] | None
    ) -> str:
        """Add the calls of one aggregate expression, and the columns they need; returns what its result is made of. known: see there."""
        if not isinstance(text, str):
            raise QueryError(f"box {box!r}: the aggregate {result!r} is {text!r}; write an expression such as 'sum(x)'")
        with naming(box):
            bare, alias = split_alias(text)
        if alias is not None and bare != text:
            raise QueryError(f"box {box!r}: {result!r} has two names; write agg({result}={bare!r}), or agg({text!r})")
        with naming(box):
            of_rows = isinstance(self.grouping.over, RowWindow)
            split = parse_aggregation(text, self.grouping.stream.schema, f"_{result}_{{}}", of_rows=of_rows, known=known)
        for number, call in enumerate(split.calls):
            name = result if split.result is None else f"_{result}_{number}"
            if call.made is not None:
                calls.append(self._aggregator(box, name, call.made, call, before))
                continue
            column, type_ = self._argument(box, call, before)
            with naming(box):
                made = result_type(call.function, type_)
            calls.append(AggCall(name, call.function, column, made))
        return result if split.result is None else split.result

    def _aggregator(self, box: str, name: str, made: Aggregator, call: Call, before: dict[str, Expression]) -> AggCall:
        """The call of an aggregator. Its first argument is a column of its own, where rows can be tried."""
        schema = self.grouping.stream.schema
        texts = [argument.expression or f"`{argument.column}`" for argument in call.arguments]
        with naming(box):
            compiled = tuple(compile_expression(text, schema) for text in texts)
            stored = stored_type(made)
        others = [self._argument(box, argument, before)[0] for argument in call.arguments[1:]]
        first = self._hidden(before)
        columns = tuple(dict.fromkeys(column for each in compiled for column in each.columns))
        before[first] = Tried(made, f"{call.function}({', '.join(texts)})", compiled[0].type, columns, compiled)
        return AggCall(name, call.function, first, stored, made, tuple(other for other in others if other is not None))

    def _hidden(self, before: Mapping[str, Expression]) -> str:
        """A name for a column that is computed before."""
        column = f"_arg{len(before)}"
        while column in self.grouping.stream.schema.names:
            column = f"_{column}"
        return column

    def _argument(self, box: str, call: Call, before: dict[str, Expression]) -> tuple[str | None, pa.DataType | None]:
        """The column to aggregate and its type; an expression becomes a hidden column, the same one each time it is written."""
        schema = self.grouping.stream.schema
        if call.expression is None:
            return call.column, None if call.column is None else schema.field(call.column).type
        column = next((name for name, made in before.items() if made == call.expression), None)
        if column is None:
            column = self._hidden(before)
            before[column] = call.expression
        return column, expression_field(box, column, call.expression, schema).type

    def _params(self, stream: S, calls: tuple[AggCall, ...]) -> dict[str, Any]:
        group = self.grouping
        order = self.order or group.order
        if any(call.ordered for call in calls) or isinstance(group.over, RowWindow):
            order = default_order(stream, order)
        elif order == "arrival":
            order = None  # Nothing depends on it, so nothing need be done for it.
        tie_break = self.tie_break if self.tie_break is not None else group.tie_break
        return {
            "keys": group.keys, "calls": calls, "window": group.over,
            "order": order, "tie_break": tie_break, "combine": self.combine,
            **({} if self.mode == "update" else {"mode": "changelog"}),
            **({"sampled": True} if self.sampled else {}),
        }  # fmt: skip
