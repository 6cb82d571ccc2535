"""What a pattern box says: which rows can be its variables (`define`), and what it puts out of a match (`measures`).

A condition is an expression over a row and, by PREV(...), the row before it of the same key, so a batch of rows is judged at once; what of
it reads the match so far, by aggregates or another variable's columns, is apart (`tried`), and judged of each row that a partial
match tries. A measure is an expression over aggregates of the match's rows, each of one variable (`sum(B.price)`) or of all
(`count(*)`); a column outside of an aggregate is that of the last row: `A.price` is last(A.price). Where all rows of a match come out, a
measure is of the rows up to each of them (RUNNING), or, behind FINAL, of all. Source: SQL:2016, row pattern recognition (ISO/IEC TR
19075-5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NoReturn

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError, QueryError, TypeMismatch
from evenflow.query.aggregates import result_type
from evenflow.query.expression import compile_expression, resolve
from evenflow.query.faults import about
from evenflow.query.pattern import Program, compile_pattern
from evenflow.query.sql.functions import AGGREGATES
from evenflow.query.sql.parser import parse, to_sql

MATCH_START: Final = "match_start"
MATCH_END: Final = "match_end"
"""Columns of a match's first and last event time; the last is the event time of what comes out."""

PAST_LAST_ROW: Final = "past last row"
TO_NEXT_ROW: Final = "to next row"
TO_VARIABLE: Final = re.compile(r"to (first|last) (\w+)", re.IGNORECASE)
"""Where the next match may begin."""

LONGEST_WITHIN_US: Final = 2**62

PerMatch = Literal["one", "all", "with unmatched"]
ONE_ROW: Final = "one"
ALL_ROWS: Final = "all"
UNMATCHED_TOO: Final = "with unmatched"
"""What comes out: a row of each match, all of its rows, or these and the rows that are in none."""
MATCH_NUMBER: Final = "match_number"
"""How many matches of its key there were up to this one, as a call of a measure."""
CLASSIFIER: Final = "classifier"
"""Which variable a row is, as a call of a measure."""

SO_FAR: Final = ("count", "sum", "avg", "min", "max", "first", "last")
"""Aggregates of a partial match that a condition may read."""
DEEPEST: Final = 100
"""The greatest offset of LAST and FIRST: a partial match knows so many rows of a variable."""

_NAVIGATION: Final = ("prev", "next", CLASSIFIER, MATCH_NUMBER)
_NUMBERED_LATER: Final = (
    "rows are judged when they come, and not known to be of a match until it ends; measure it, MATCH_NUMBER() AS nr, "
    "and say which of the matches are wanted in WHERE around the pattern, such as nr <= 10"
)
_WHEN: Final = re.compile(r"\s*(FINAL|RUNNING)\s+(?!(?:IN|AND|OR|IS|NOT|LIKE|RLIKE|BETWEEN)\b)(?=[\w`(])", re.IGNORECASE)
"""In front of a measure."""


@dataclass(frozen=True, slots=True)
class MeasureCall:
    """One aggregate over rows of a match. variable: whose rows, as a number in the program; None: all. argument: an expression over a row;
    None: the rows are counted. type: of the result. running: of the rows up to the one that comes out. offset: of first and last in a
    condition, how many rows behind the first or before the last."""

    function: str
    variable: int | None
    argument: str | None
    type: pa.DataType
    running: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Matching:
    """A pattern over rows of `schema`, understood.

    before: columns that PREV reads, and what they are called in conditions. conditions: (variable, expression over `judged`); a variable
    without one can be any row. so_far: aggregates of the match so far that conditions read, by what they are called there. tried:
    (variable, expression over `trying`), what must be true as well of a row that a partial match takes for the variable. calls: of all
    measures. results: (name, expression over columns `_measure0`, ... of the calls, its type).
    rows: what comes out of a match, ONE_ROW, ALL_ROWS or UNMATCHED_TOO.
    """

    schema: pa.Schema
    program: Program
    before: dict[str, str] = field(default_factory=dict)
    conditions: list[tuple[int, str]] = field(default_factory=list)
    so_far: dict[str, MeasureCall] = field(default_factory=dict)
    tried: list[tuple[int, str]] = field(default_factory=list)
    calls: list[MeasureCall] = field(default_factory=list)
    results: list[tuple[str, str, pa.DataType]] = field(default_factory=list)
    rows: str = ONE_ROW

    @property
    def all_rows(self) -> bool:
        """Whether rows come out with their own columns."""
        return self.rows != ONE_ROW

    @property
    def numbered(self) -> bool:
        """Whether matches are numbered."""
        return any(call.function == MATCH_NUMBER for call in self.calls)

    @property
    def judged(self) -> pa.Schema:
        """Columns of a row and of the one before it."""
        return pa.schema([*self.schema, *(pa.field(name, self.schema.field(column).type) for column, name in self.before.items())])

    @property
    def trying(self) -> pa.Schema:
        """Columns of a row, of the one before it, and of the match up to and with it."""
        return pa.schema([*self.judged, *(pa.field(name, call.type) for name, call in self.so_far.items())])

    @property
    def tried_read(self) -> tuple[str, ...]:
        """Columns of `judged` that trying a row reads."""
        arguments = [(call.argument, self.schema) for call in self.so_far.values() if call.argument is not None]
        texts = [*arguments, *((text, self.trying) for _, text in self.tried)]
        columns = dict.fromkeys(name for text, schema in texts for name in compile_expression(text, schema).columns)
        return tuple(name for name in columns if name not in self.so_far)

    @property
    def measured(self) -> pa.Schema:
        """Columns of the calls."""
        return pa.schema([pa.field(f"_measure{number}", call.type) for number, call in enumerate(self.calls)])

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that the measures read."""
        arguments = [call.argument for call in self.calls if call.argument is not None]
        return tuple(dict.fromkeys(name for text in arguments for name in compile_expression(text, self.schema).columns))


def understood(
    schema: pa.Schema, pattern: str, define: Sequence[tuple[str, str]], measures: Sequence[tuple[str, str]], rows: str = ONE_ROW
) -> Matching:  # fmt: skip
    """What a pattern, its conditions by variable and its measures by name mean for rows of `schema`.

    Raises QueryError, ExpressionError, UnknownColumn or TypeMismatch for what is wrong or not available.
    """
    with about("pattern"):
        matching = Matching(schema, compile_pattern(pattern), rows=rows)
    if rows not in (ONE_ROW, ALL_ROWS, UNMATCHED_TOO):
        ways = f"{ONE_ROW!r}, one row per match, {ALL_ROWS!r}, all of its rows, or {UNMATCHED_TOO!r}, these and rows in no match"
        raise QueryError(f"rows is {rows!r}; it must be {ways}").about("rows")
    _Reader(matching).read(define, measures)
    return matching


def skip_to(skip: str, variables: Sequence[str]) -> tuple[int, bool] | None:
    """(number of the variable, whether its last row) at which the next match may begin; None: behind the last row of this one, or at the
    next row. QueryError for what is none of these."""
    if skip in (PAST_LAST_ROW, TO_NEXT_ROW):
        return None
    found = TO_VARIABLE.fullmatch(skip) if isinstance(skip, str) else None
    if found is None:
        one = variables[-1].lower()
        raise QueryError(
            f"skip is {skip!r}; it must be {PAST_LAST_ROW!r}, {TO_NEXT_ROW!r}, or of a variable 'to first {one}' or 'to last {one}'"
        )
    if found[2].upper() not in variables:
        raise QueryError(f"skip is {skip!r}, but {found[2]} is not in the pattern; its variables are {', '.join(variables)}")
    return variables.index(found[2].upper()), found[1].lower() == "last"


def match_schema(matching: Matching, keys: Sequence[str], time: str) -> pa.Schema:
    """What comes out: keys, bounds in event time, measures; of all rows their own columns in place of the keys."""
    stamp = matching.schema.field(time).type
    bounds = [pa.field(MATCH_START, stamp), pa.field(MATCH_END, stamp)]
    results = [pa.field(name, type_) for name, _, type_ in matching.results]
    own = matching.schema.names if matching.all_rows else keys
    return pa.schema([*(matching.schema.field(name) for name in own), *bounds, *results])


class _Reader:
    """Reads the expressions of one pattern."""

    def __init__(self, matching: Matching) -> None:
        self._matching, self._schema = matching, matching.schema
        self._numbers = {name: number for number, name in enumerate(matching.program.variables)}

    def read(self, define: Sequence[tuple[str, str]], measures: Sequence[tuple[str, str]]) -> None:
        for item, (variable, text) in enumerate(define):
            with about("define", item):
                self._condition(variable, text)
        if not measures and self._matching.rows == ONE_ROW:
            raise QueryError("the pattern has no measures; name at least one, such as measures={'rows': 'count(*)'}").about("measures")
        for item, (name, text) in enumerate(measures):
            with about("measures", item):
                self._measure(name, text)

    # ------------------------------------------------ define

    def _condition(self, variable: str, text: str) -> None:
        number = self._numbers.get(str(variable).upper())
        if number is None:
            raise QueryError(f"{variable!r} is defined, but it is not in the pattern; its variables are {', '.join(self._numbers)}")
        if any(number == other for other, _ in (*self._matching.conditions, *self._matching.tried)):
            raise QueryError(f"{variable!r} is defined twice; write its condition once")
        what = f"the condition of {variable}, {text!r},"
        tree = _parsed(what, text)
        for node in tree.find_all(exp.Anonymous):
            name = node.name.lower()
            if name == MATCH_NUMBER:
                self._fail(what, f"has {to_sql(node)}; {_NUMBERED_LATER}")
            if name in _NAVIGATION[1:]:
                self._fail(what, f"has {to_sql(node)}; it may read its own row, PREV of it, and aggregates of the match so far")
        looks_back = self._looks_back(variable, tree)
        replaced = tree.transform(lambda node: self._own(what, variable, node))
        with _about(what):
            found = compile_expression(to_sql(replaced), self._matching.trying)
        if not (pa.types.is_boolean(found.type) or pa.types.is_null(found.type)):
            raise TypeMismatch(f"{what} is {found.type}, not boolean; write a comparison such as x > PREV(x)")
        if not looks_back:
            self._matching.conditions.append((number, to_sql(replaced)))
            return
        # Each part of a conjunction must be true: what reads the row alone is judged once.
        parts = [(self._looks_back(variable, part), part.transform(lambda node: self._own(what, variable, node))) for part in _parts(tree)]
        for when, into in ((False, self._matching.conditions), (True, self._matching.tried)):
            texts = [self._alone(to_sql(part)) for late, part in parts if late is when]
            if texts:
                into.append((number, " AND ".join(texts)))

    def _alone(self, part: str) -> str:
        """A part of a conjunction as a condition: AND has read a string as a boolean."""
        found = compile_expression(part, self._matching.trying).type
        return f"({part})" if pa.types.is_boolean(found) or pa.types.is_null(found) else f"CAST({part} AS BOOLEAN)"

    def _looks_back(self, variable: str, tree: exp.Expr) -> bool:
        """Whether it reads more of the match than the row itself."""
        calls = any(node.name.lower() in AGGREGATES for node in tree.find_all(exp.Anonymous))
        return calls or any(self._is_other(variable, node) for node in tree.find_all(exp.Column))

    def _is_other(self, variable: str, node: exp.Column) -> bool:
        return node.table.upper() in self._numbers and node.table.upper() != variable.upper()

    def _so_far(self, what: str, node: exp.Anonymous) -> exp.Column:
        """The column of an aggregate of the match so far."""
        function, offset = AGGREGATES[node.name.lower()], 0
        if function not in SO_FAR:
            self._fail(what, f"has {to_sql(node)}; of a match so far there are {', '.join(SO_FAR[:-1])} and {SO_FAR[-1]}")
        if function in ("first", "last") and len(node.expressions) == 2:
            least, written = node.expressions
            if not isinstance(written, exp.Literal) or written.is_string or not written.name.isdigit() or int(written.name) > DEEPEST:
                self._fail(what, f"has {to_sql(node)}; how many rows back {function} looks is a whole number, {DEEPEST} at most")
            node, offset = exp.Anonymous(this=node.this, expressions=[least.copy()]), int(written.name)
        call = replace(self._aggregate(what, function, node), offset=offset)
        known = self._matching.so_far
        for name, other in known.items():
            if other == call:
                return exp.column(name, quoted=True)
        name = f"_so_far{len(known)}"
        while name.lower() in (taken.lower() for taken in self._matching.trying.names):
            name = f"_{name}"
        known[name] = call
        return exp.column(name, quoted=True)

    def _own(self, what: str, variable: str, node: exp.Expr) -> exp.Expr:
        """A column of the variable's own row without its qualifier; PREV of an expression as that of the row before; an aggregate of the
        match so far, and another variable's column, which is that of its last row, by its name."""
        if isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
            self._fail(what, f"has {to_sql(node)}; FILTER, OVER and IGNORE NULLS are not available")
        if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
            return self._so_far(what, node)
        if isinstance(node, exp.Anonymous) and node.name.lower() == "prev":
            if len(node.expressions) != 1:
                self._fail(what, f"has {to_sql(node)}; PREV takes one expression, of the row before")
            inner: exp.Expr = node.expressions[0].copy()
            if inner.find(exp.Anonymous, exp.Column) is None:
                self._fail(what, f"has {to_sql(node)}; name a column of the row before")
            if any(call.name.lower() == "prev" for call in inner.find_all(exp.Anonymous)):
                self._fail(what, f"has {to_sql(node)}; PREV of PREV is not available")
            if any(call.name.lower() in AGGREGATES for call in inner.find_all(exp.Anonymous)):
                self._fail(what, f"has {to_sql(node)}; PREV is of the own row: write LAST with an offset, such as LAST(x, 1)")
            before: exp.Expr = inner.transform(lambda part: self._before(what, variable, part))
            return before
        if isinstance(node, exp.Column) and self._is_other(variable, node):
            return self._so_far(what, exp.Anonymous(this="last", expressions=[node.copy()]))
        if isinstance(node, exp.Column) and node.table:
            self._check_qualifier(what, variable, node)
            return exp.column(node.name, quoted=True)
        return node

    def _before(self, what: str, variable: str, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        self._check_qualifier(what, variable, node)
        with _about(what):
            column = resolve(node.name, self._schema)
        name = self._matching.before.get(column)
        if name is None:
            name = f"_prev_{column}"
            while name.lower() in (taken.lower() for taken in self._schema.names):
                name = f"_{name}"
            self._matching.before[column] = name
        return exp.column(name, quoted=True)

    def _check_qualifier(self, what: str, variable: str, node: exp.Column) -> None:
        if node.table and node.table.upper() != variable.upper():
            self._fail(what, f"reads {to_sql(node)}; it may read its own row, PREV of it, and aggregates of variables of the pattern")

    # ------------------------------------------------ measures

    def _measure(self, name: str, text: str) -> None:
        what = f"the measure {name!r}, {text!r},"
        when = _WHEN.match(text) if isinstance(text, str) else None
        running = self._matching.all_rows and (when is None or when[1].upper() == "RUNNING")
        tree = _parsed(what, text if when is None else text[when.end() :])
        if isinstance(tree, exp.Alias):
            self._fail(what, "has a name twice; leave out AS")

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
                self._fail(what, f"has {to_sql(node)}; FILTER, OVER and IGNORE NULLS are not available")
            if isinstance(node, exp.Anonymous) and node.name.lower() == CLASSIFIER and not node.expressions:
                return self._called(MeasureCall(CLASSIFIER, None, None, pa.string(), running))
            if isinstance(node, exp.Anonymous) and node.name.lower() == MATCH_NUMBER and not node.expressions:
                return self._called(MeasureCall(MATCH_NUMBER, None, None, pa.int64()))
            if isinstance(node, exp.Anonymous) and node.name.lower() in _NAVIGATION:
                self._fail(what, f"has {to_sql(node)}, which is not available; first, last and the other aggregates of a variable are")
            if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
                return self._call(what, AGGREGATES[node.name.lower()], node, running)
            if isinstance(node, exp.Column):
                return self._call(what, "last", exp.Anonymous(this="last", expressions=[node.copy()]), running)
            return node

        tree = tree.transform(replaced)
        with _about(what):
            found = compile_expression(to_sql(tree), self._matching.measured)
        self._matching.results.append((name, to_sql(tree), found.type))

    def _call(self, what: str, function: str, node: exp.Anonymous, running: bool) -> exp.Column:
        """The column of one aggregate, which is kept once however often it is written."""
        return self._called(replace(self._aggregate(what, function, node), running=running))

    def _aggregate(self, what: str, function: str, node: exp.Anonymous) -> MeasureCall:
        if len(node.expressions) != 1:
            self._fail(what, f"has {to_sql(node)}; {function} takes one argument here")
        (argument,) = node.expressions
        if argument.find(exp.Distinct) is not None or any(
            inner.name.lower() in AGGREGATES or inner.name.lower() in _NAVIGATION for inner in argument.find_all(exp.Anonymous)
        ):
            self._fail(what, f"has {to_sql(node)}; an aggregate takes an expression over one row")
        tables = {column.table.upper() for column in argument.find_all(exp.Column)}
        if len(tables) > 1:
            self._fail(what, f"has {to_sql(node)}, which mixes rows of different variables; write an aggregate for each")
        table = next(iter(tables), "")
        if table and table not in self._numbers:
            self._fail(what, f"reads {to_sql(node)}, but {table} is not in the pattern; its variables are {', '.join(self._numbers)}")
        return self._understood(what, function, self._numbers[table] if table else None, argument)

    def _called(self, call: MeasureCall) -> exp.Column:
        calls = self._matching.calls
        if call not in calls:
            calls.append(call)
        return exp.column(f"_measure{calls.index(call)}", quoted=True)

    def _understood(self, what: str, function: str, variable: int | None, argument: exp.Expr) -> MeasureCall:
        star = argument.this if isinstance(argument, exp.Column) else argument
        if isinstance(star, exp.Star) or (function == "count" and isinstance(argument, exp.Literal)):
            if function != "count":
                self._fail(what, f"has {function}(*); name a column")
            return MeasureCall("count", variable, None, pa.int64())
        bare = argument.transform(lambda node: exp.column(node.name, quoted=True) if isinstance(node, exp.Column) else node)
        with _about(what):
            compiled = compile_expression(to_sql(bare), self._schema)
            return MeasureCall(function, variable, to_sql(bare), result_type(function, compiled.type))

    def _fail(self, what: str, message: str) -> NoReturn:
        raise ExpressionError(f"{what} {message}")


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    """What AND connects."""
    if isinstance(tree, exp.Paren):
        return _parts(tree.this)
    return [*_parts(tree.this), *_parts(tree.expression)] if isinstance(tree, exp.And) else [tree]


def _parsed(what: str, text: str) -> exp.Expr:
    with _about(what):
        return parse(text)


@contextmanager
def _about(what: str) -> Iterator[None]:
    """An error from inside says first what it is about."""
    try:
        yield
    except QueryError as error:
        raise type(error)(f"{what} is wrong: {error}").of(error) from error
