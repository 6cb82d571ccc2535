"""GROUP BY to an aggregate box: keys, window or session_window, aggregates anywhere in the columns and in HAVING.

Every aggregate call becomes a hidden column of the box, every computed key one of a select before it, and the columns of the result are
computed from these after it. Grouping by the bounds of windows that an inner query has made goes on in those windows: a group is complete
when its window is, and comes out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from evenflow.errors import UnknownColumn
from evenflow.query.script.distinct import aggregated
from evenflow.query.script.estimated import ESTIMATED, estimating, of_estimates
from evenflow.query.script.filtered import of_those, within
from evenflow.query.script.lowering import WINDOW_FUNCTIONS, Item, Lower, is_aggregate, is_window, is_window_time
from evenflow.query.script.own_sessions import with_sessions
from evenflow.query.script.relation import Relation, Visible, Windows, computed, free_name, is_column, own_column
from evenflow.query.script.replacing import of_changes
from evenflow.query.script.running import states
from evenflow.query.script.sets import by_all, sets_of, spread_sets
from evenflow.query.script.spans import of_intervals, span_us, window_spans_us
from evenflow.query.sql.filtered import counted, distinct_values, filtered
from evenflow.query.sql.functions import AGGREGATES, is_function
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import built_in
from evenflow.stream.change import is_changelog

if TYPE_CHECKING:
    from evenflow.query.builder import Stream
    from evenflow.query.grouped import GroupedStream, SessionStream, WindowedStream

START, END = "window_start", "window_end"


@dataclass
class Grouping:
    """One SELECT with groups. made: what each group expression has become. calls: aggregate calls by their text.

    moment: a time among the keys whose groups are complete when the watermark has passed it. sets: of ROLLUP and the like, the column with
    the number of a row's set, and the keys. kinds: see `estimating`.
    """

    lower: Lower
    tree: exp.Select
    relation: Relation
    items: Sequence[Item]
    made: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    window: exp.Anonymous | None = None
    regroups: bool = False
    moment: str | None = None
    sets: tuple[str, list[exp.Expr]] | None = None
    kinds: dict[bool, exp.Expr] = field(default_factory=dict)

    def result(self) -> Relation:
        """The relation behind GROUP BY, HAVING and the list of columns."""
        if (sessions := with_sessions(self.lower, self.tree, self.relation, self.items, self._meant)) is not None:
            self.tree, self.relation, self.items = sessions
        self._find_keys()
        columns = [(name, self._after(item)) for name, item in self.items]
        having = self.tree.args.get("having")
        condition = None if having is None else self._after(self._of_items(having.this.copy()))
        if not self.calls:
            self.calls["count(1)"] = free_name("_rows", self.keys)  # A group without aggregates is there or it is not.
        grouped = self._aggregate()
        script = self.lower.script
        if condition is not None and having is not None:
            with script.at(having.this):
                grouped = replace(grouped, stream=grouped.stream.where(to_sql(condition)), identity=None)
        return self.lower.project(grouped, columns)

    # ------------------------------------------------ GROUP BY

    def _find_keys(self) -> None:
        lower, group = self.lower, self.tree.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            group = by_all(tree for _, tree in self.items)
        sets = sets_of(lower, group)
        if sets is not None:
            group = self._spread(group, *sets)
        hidden: list[tuple[str, exp.Expr]] = []
        bounds: set[str] = set()
        windows = self.relation.windows
        for given in group.expressions:
            tree = self._meant(given)
            if is_window(tree):
                if self.window is not None:
                    lower.script.fail(tree, "there are two windows in one GROUP BY; group by one in an inner query first")
                self.window = self._over_windows(tree)
                continue
            own = lower.rewritten(self.relation, tree)
            if is_column(own) and windows is not None and own.name in (windows.start, windows.end):
                bounds.add(own.name)
                continue
            key = own.name
            if not is_column(own):
                key = free_name(f"_key{len(hidden)}", self.relation.stream.columns)
                hidden.append((key, own))
            if self.moment is None and key in self.relation.until:
                self.moment = key
            elif key not in self.keys and key != self.moment:
                self.keys.append(key)
            self.made.append((own, own_column(key, tree)))
        with lower.script.at(group):
            self.relation = computed(self.relation, hidden)
        if bounds and windows is not None:
            self._go_on_in(windows, group)
        if self.moment is not None and (self.regroups or self.window is not None or lower.mode != "append"):
            self.keys.append(self.moment)
            self.moment = None

    def _spread(self, group: exp.Group, sets: Sequence[Sequence[exp.Expr]], all_keys: Sequence[exp.Expr]) -> exp.Group:
        """ROLLUP, CUBE and GROUPING SETS: the rows once for each set, and the plain GROUP BY of them, by the keys and the set's number."""
        lower = self.lower
        meant = [[self._meant(key) for key in chosen] for chosen in sets]
        windows = [key for key in meant[0] if is_window(key)]
        if any(key not in chosen for key in windows for chosen in meant) or any(is_window(k) for c in meant for k in c if k not in windows):
            lower.script.fail(group, "a window is in each of the sets; write it before ROLLUP, CUBE or GROUPING SETS")
        owned = [[lower.rewritten(self.relation, key) for key in chosen if not is_window(key)] for chosen in meant]
        named = [self._meant(key) for key in all_keys]
        keys = list(dict.fromkeys(lower.rewritten(self.relation, key) for key in named if not is_window(key)))
        self.relation, number, names, place = spread_sets(lower, self.relation, keys, owned, group)
        self.made += [(key, own_column(name)) for key, name in zip(keys, names, strict=True)]
        self.sets = (number, keys)
        self.keys += [*names, number, *([] if place is None else [place])]
        return exp.Group(expressions=list(windows))

    def _grouping(self, tree: exp.Expr) -> exp.Expr | None:
        """grouping_id() is the set's number, grouping(key) whether it is without that key."""
        name = tree.name.lower() if isinstance(tree, exp.Anonymous) else ""
        if name not in ("grouping", "grouping_id"):
            return None
        if self.sets is None:
            self.lower.script.fail(tree, f"{name} is there behind ROLLUP, CUBE and GROUPING SETS only")
        number, keys = self.sets
        given = [self.lower.rewritten(self.relation, each) for each in tree.expressions]
        if (name == "grouping_id" and given and given != keys) or (name == "grouping" and (len(given) != 1 or given[0] not in keys)):
            self.lower.script.fail(tree, f"{name} takes {'no argument, or all keys' if name == 'grouping_id' else 'one of the keys'}")
        if name == "grouping_id":
            return own_column(number, tree)
        return parse(f"CAST({built_in('shiftright')}(`{number}`, {len(keys) - 1 - keys.index(given[0])}) & 1 AS TINYINT)")

    def _meant(self, given: exp.Expr) -> exp.Expr:
        """What an item of GROUP BY stands for: the number or the name of a column of the result, unless the input has that name."""
        if isinstance(given, exp.Literal) and not given.is_string and given.this.isdigit():
            number = int(given.this)
            if not 1 <= number <= len(self.items):
                self.lower.script.fail(given, f"there is no column {number}; the list has {len(self.items)}")
            return self.items[number - 1][1]
        if is_column(given) and not given.args.get("table") and not self.relation.matches(given):
            return next((item for name, item in self.items if name.lower() == given.name.lower()), given)
        return given

    def _over_windows(self, window: exp.Anonymous) -> exp.Anonymous:
        """window(window_time(...), ...) as one over a column, which every row of an inner window has. Over the end of an inner window it
        goes by that end, as in Spark, where the builder would take the window's last microsecond: the end gets another name for that."""
        call = window.expressions[0] if window.expressions else None
        relation, stream = self.relation, self.relation.stream
        if call is not None and is_column(call) and relation.windows is not None and relation.matches(call):
            if self.lower.rewritten(relation, call).name == relation.windows.end == END:
                end = free_name("_end", stream.columns)
                renamed = self.lower.project(
                    relation, [(end if column == END else column, own_column(column)) for column in stream.columns]
                )
                shown = (replace(v, column=end) if v.column == END else v for v in relation.columns)
                self.relation = replace(renamed, columns=tuple(shown))
            return window
        if call is None or not is_window_time(call):
            return window
        name = free_name("_window_time", stream.columns)
        items = [*((column, own_column(column)) for column in stream.columns), (name, self.lower.rewritten(relation, call))]
        timed = self.lower.project(relation, items).stream
        self.relation = replace(relation, stream=timed, columns=(*relation.columns, Visible(name, "", name)))
        return exp.Anonymous(this=window.this, expressions=[own_column(name, call), *window.expressions[1:]])

    def _go_on_in(self, windows: Windows, group: exp.Expr) -> None:
        """Group by windows that are there: the box's own windows are as long as the slide, and each holds the end of just one."""
        script = self.lower.script
        if self.window is not None:
            script.fail(group, "these groups have a window and the bounds of an inner one; use one of the two")
        check_windows(self.lower, windows, group)
        self.regroups = True

    # ------------------------------------------------ columns and HAVING

    def _after(self, tree: exp.Expr) -> exp.Expr:
        """An expression over the group's keys, window and aggregates, as one over the box's columns."""
        for node in tree.find_all(exp.Window):
            self.lower.script.fail(node, "OVER (...) cannot be in a query with groups; write it in a query around this one")
        return self._replaced(tree.copy())

    def _of_items(self, tree: exp.Expr) -> exp.Expr:
        """A condition of HAVING, where the name of a column of the result stands for what that column is, but not inside an aggregate."""
        if is_aggregate(tree):
            return tree
        if is_column(tree) and not tree.args.get("table") and all(self._own(tree) != group for group, _ in self.made):
            return next((item.copy() for name, item in self.items if name.lower() == tree.name.lower()), tree)
        for name, value in list(tree.args.items()):
            if isinstance(value, exp.Expr):
                tree.set(name, self._of_items(value))
            elif isinstance(value, list):
                tree.set(name, [self._of_items(part) if isinstance(part, exp.Expr) else part for part in value])
        return tree

    def _fail_unknown(self, tree: exp.Expr) -> None:
        """A column in a call that is neither a function nor an aggregate here: what is unknown is the call."""
        call = tree.parent
        while call is not None:
            if isinstance(call, exp.Anonymous) and not is_function(call.name) and call.name.lower() not in WINDOW_FUNCTIONS:
                known = ", ".join(sorted(set(AGGREGATES.values())))
                self.lower.script.fail(
                    call, f"there is no function or aggregate {call.name!r}; the aggregates are {known}, and functions of yours: functions="
                )
            call = call.parent

    def _collected(self, tree: exp.Expr) -> exp.Expr | None:
        """count(DISTINCT x) where no window says when all values are there, or of several values: the values themselves are the state."""
        call = tree.this if isinstance(tree, exp.Filter) else tree
        values = distinct_values(call)
        if values is None:
            return None
        if not values:
            self.lower.script.fail(call, "count(DISTINCT) takes a value, as in count(DISTINCT x)")
        if len(values) == 1 and self._in_even_windows():
            return None
        made = counted(values)
        return exp.Filter(this=made, expression=tree.expression.copy()) if isinstance(tree, exp.Filter) else made

    def _in_even_windows(self) -> bool:
        """Whether the groups are windows of time, put out once, of which each is made of whole slides."""
        if self.lower.mode != "append" or self.window is None:
            return self.regroups or self.moment is not None
        if self.window.name.lower() != "window":
            return False
        spans = [span_us(self.lower, argument) for argument in self.window.expressions[1:3]]
        return not spans or spans[0] % spans[-1] == 0

    def _replaced(self, tree: exp.Expr) -> exp.Expr:
        if (estimate := of_estimates(self.lower, self.relation.stream.columns, tree)) is not None:
            return self._replaced(estimate)
        if (collected := self._collected(tree)) is not None:
            return self._replaced(collected)
        if isinstance(tree, exp.Filter) and (first := of_those(tree)) is not None:
            return self._replaced(first)
        if isinstance(tree, exp.Filter) and not is_aggregate(tree.this) and any(map(is_aggregate, tree.this.walk())):
            return self._replaced(within(tree))
        if (spans := of_intervals(self.relation, tree)) is not None:
            return self._replaced(spans)
        if isinstance(tree, exp.Filter) or is_aggregate(tree) or isinstance(tree, exp.IgnoreNulls | exp.RespectNulls):
            return self._call(tree)
        if isinstance(tree, exp.Anonymous) and (found := self._grouping(tree)) is not None:
            return found
        if isinstance(bound := self._bound(tree), exp.Expr):
            return bound
        own = self._own(tree)
        for group, key in self.made:
            if own is not None and own == group:
                return key.copy()
        if is_column(tree):
            self.lower.rewritten(self.relation, tree)  # An unknown one is reported as such.
            self._fail_unknown(tree)
            self.lower.script.fail(tree, f"the column {to_sql(tree)!r} is neither in GROUP BY nor inside an aggregate; do one of the two")
        for name, value in list(tree.args.items()):
            if isinstance(value, exp.Expr):
                tree.set(name, self._replaced(value))
            elif isinstance(value, list):
                tree.set(name, [self._replaced(part) if isinstance(part, exp.Expr) else part for part in value])
        return tree

    def _own(self, tree: exp.Expr) -> exp.Expr | None:
        try:
            return self.relation.rewritten(tree)
        except UnknownColumn:
            return None

    def _bound(self, tree: exp.Expr) -> exp.Expr | None:
        """window.start, window.end, window_time(window), or the bounds of the windows that are grouped again."""
        windows = self.relation.windows
        if is_window_time(tree) and self._is_of_these_windows(tree.expressions):
            return exp.Anonymous(this=tree.this, expressions=[own_column(END, tree)])
        if self.regroups and windows is not None and is_column(tree):
            own = self.lower.rewritten(self.relation, tree) if self.relation.matches(tree) else tree
            name = own.name if is_column(own) and own is not tree else ""
            if name == windows.end:
                return own_column(END, tree)
            if name and name == windows.start:
                return parse(f"{END} - INTERVAL '{windows.size_us}' MICROSECOND")
        if self.window is None:
            return None
        if is_column(tree) and tree.args.get("table") is not None and tree.table.lower() == self.window.name.lower():
            found = {"start": START, "end": END}.get(tree.name.lower())
            if found is not None:
                return own_column(found, tree)
        if tree == self.window or (is_column(tree) and tree.name.lower() == self.window.name.lower() and not self.relation.matches(tree)):
            return parse(f"{built_in('named_struct')}('start', `{START}`, 'end', `{END}`)")
        return None

    def _is_of_these_windows(self, given: Sequence[exp.Expr]) -> bool:
        """Whether the argument of window_time means the window that is grouped by."""
        if len(given) != 1 or not is_column(given[0]):
            return False
        if self.regroups and self.relation.windows is not None and self.relation.matches(given[0]):
            return self.lower.rewritten(self.relation, given[0]).name == self.relation.windows.end
        return self.window is not None and given[0].name.lower() == self.window.name.lower() and not self.relation.matches(given[0])

    def _call(self, tree: exp.Expr) -> exp.Expr:
        """The hidden column of an aggregate call."""
        script = self.lower.script
        self.kinds.setdefault(ESTIMATED in tree.meta, tree)
        own = self.lower.rewritten(self.relation, tree)
        if isinstance(own, exp.Filter):
            without = filtered(own)
            if without is None:
                script.fail(tree, f"FILTER is not available with {own.this.name}; filter in WHERE, or use another aggregate")
            own = without
        windows = self.relation.windows
        if self.regroups and windows is not None:  # The box knows the bounds of these windows by other names.
            names = {windows.start: START, windows.end: END}
            own = own.transform(lambda node: own_column(names[node.name], node) if is_column(node) and node.name in names else node)
        if any(is_aggregate(node) for node in own.walk() if node is not own and node is not getattr(own, "this", None)):
            script.fail(tree, "an aggregate cannot be inside an aggregate; compute the inner one in a query inside this one")
        text = to_sql(own)
        name = self.calls.get(text)
        if name is None:
            name = self.calls[text] = free_name(f"_agg{len(self.calls)}", self.relation.stream.columns)
        return own_column(name, tree)

    # ------------------------------------------------ the box

    def _aggregate(self) -> Relation:
        """The aggregate box, or those that stand for it."""
        script, where = self.lower.script, self.tree.args.get("group") or self.tree
        relation = self.relation
        windows = relation.windows
        if self.regroups and windows is not None:
            relation = self._bounds_named(relation, windows)
        calls: Mapping[str, str] = self.calls
        if relation.running and not is_changelog(relation.stream.schema):
            relation, calls = of_changes(self.lower, relation, calls, None if self.window is not None else self.keys, where)
        over: GroupedStream[Stream] | WindowedStream[Stream] | SessionStream[Stream]
        with script.at(where):
            grouped = relation.stream.group_by(*self.keys)
            if self.regroups and windows is not None:
                over = grouped.window(_text_us(windows.slide_us), start=_text_us(windows.from_us))
                made = replace(windows, start=START, end=END)
            elif self.moment is not None:
                return self._at_moments(self.moment)
            elif self.window is None:
                stream = aggregated(self.lower, estimating(self.lower, grouped, self.kinds), calls, self.tree)
                stream = stream if self.lower.changes else states(stream)
                return Relation(stream, _all(stream), None, running=True, identity=tuple(self.keys))
            else:
                over, made = self._windowed(grouped, self.window)
            stream = aggregated(self.lower, estimating(self.lower, over, self.kinds), calls, self.tree)
            if self.lower.mode != "append":
                return Relation(stream, _all(stream), None, running=True, identity=(*self.keys, made.start, made.end))
            return Relation(stream, _all(stream), made)

    def _at_moments(self, moment: str) -> Relation:
        """A group per key and moment: a window of a microsecond, which is complete when no row can come any more."""
        lower, stream = self.lower, self.relation.stream
        timed = lower.flow.add("select", {"columns": _same(stream), "event_time": moment}, (stream,), None, "select")
        over = timed.group_by(*self.keys).window("1 us", column=moment)
        found = aggregated(lower, estimating(lower, over, self.kinds), self.calls, self.tree)
        columns = tuple((moment if name == START else name, name) for name in found.columns if name != END)
        made = lower.flow.add("select", {"columns": columns, "event_time": moment}, (found,), None, "select")
        return Relation(made, _all(made))

    def _bounds_named(self, relation: Relation, windows: Windows) -> Relation:
        """The columns of the windows by the names that the builder knows them by."""
        items: list[Item] = [(name, own_column(name)) for name in relation.stream.columns if name not in (windows.start, windows.end)]
        return self.lower.project(relation, [*items, (START, first_of(windows)), (END, own_column(windows.end))])

    def _windowed(
        self, grouped: GroupedStream[Stream], window: exp.Anonymous
    ) -> tuple[WindowedStream[Stream] | SessionStream[Stream], Windows]:
        """grouped, in the windows that window(...) or session_window(...) says."""
        name, arguments = window.name.lower(), window.expressions
        lower, script = self.lower, self.lower.script
        most, says = (4, "window(time, size[, slide[, start]])") if name == "window" else (2, "session_window(time, gap)")
        if not 2 <= len(arguments) <= most:
            script.fail(window, f"{name} takes {f'2 to {most}' if most > 2 else most} arguments here: {says}")
        time = lower.rewritten(self.relation, arguments[0])
        if not is_column(time):
            script.fail(arguments[0], f"{name} is over a column; compute {to_sql(arguments[0])!r} in a query inside this one")
        mode = "changelog" if lower.mode == "complete" else lower.mode
        lateness = "forever" if lower.mode == "complete" else None
        grows: Literal["append", "changelog"] = "append" if lower.mode == "append" else "changelog"
        if name == "session_window" and not isinstance(arguments[1], exp.Literal | exp.Interval):
            gap = to_sql(lower.rewritten(self.relation, arguments[1]))
            with script.at(arguments[1]):
                return grouped.session(gap, column=time.name, mode=grows, allowed_lateness=lateness), Windows(START, END, 0, 0)
        spans = window_spans_us(lower, arguments[1:])
        with script.at(window):
            texts = [_text_us(span) for span in spans]
            if name == "session_window" and mode == "update":
                script.fail(window, "rows join sessions that have come: there is no update mode of them; use append or changelog mode")
            if name == "session_window":
                return grouped.session(texts[0], column=time.name, mode=grows, allowed_lateness=lateness), Windows(START, END, 0, 0)
            slide, start = (texts[at] if len(texts) > at else None for at in (1, 2))
            over = grouped.window(texts[0], slide, column=time.name, mode=mode, allowed_lateness=lateness, start=start)
            slide_us = spans[min(1, len(spans) - 1)]
            return over, Windows(START, END, spans[0], slide_us, spans[2] % slide_us if len(spans) > 2 else 0)


def check_windows(lower: Lower, windows: Windows, where: exp.Expr) -> None:
    """Refuse windows of which one can be told from another only by both of its bounds."""
    if not windows.slide_us:
        lower.script.fail(
            where, "sessions of different keys have different bounds, so groups of equal ones say nothing; group by window(...)"
        )
    if windows.size_us % windows.slide_us:
        lower.script.fail(where, "windows can only be grouped again if their slide divides their size; choose such a slide")


def first_of(windows: Windows) -> exp.Expr:
    """The start of the windows, whether it was kept or not."""
    return own_column(windows.start) if windows.start else parse(f"`{windows.end}` - INTERVAL '{windows.size_us}' MICROSECOND")


def _text_us(span: int) -> str:
    return f"{span} us"


def _same(stream: Stream) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in stream.columns)


def _all(stream: Stream) -> tuple[Visible, ...]:
    return tuple(Visible(name, "", name) for name in stream.columns)


__all__ = ["Grouping"]
