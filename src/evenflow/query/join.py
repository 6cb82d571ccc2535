"""What a join says: which columns must be equal, how far apart in event time two rows may be, what else must hold, what comes out.

A condition is taken apart here: `l.a = r.b` becomes a key, a comparison of the two event times with a constant distance becomes the
bounds of an interval, and the rest stays an expression over pairs of rows. Semantics are Spark's: a null key equals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError, QueryError, TypeMismatch
from evenflow.query.expression import Compiled, compile_expression, resolve
from evenflow.query.sql.intervals import interval
from evenflow.query.sql.parser import dotted, parse, to_sql
from evenflow.query.sql.types import MONTHS

How = Literal["inner", "left", "right", "full", "semi", "anti"]

_HOW: Final[dict[str, How]] = {
    "inner": "inner", "left": "left", "leftouter": "left", "right": "right", "rightouter": "right", "outer": "full", "full": "full",
    "fullouter": "full", "semi": "semi", "leftsemi": "semi", "anti": "anti", "leftanti": "anti",
}  # fmt: skip

LONGEST_US: Final = 2**61
"""Bounds of an interval are nearer to zero than this, so that arithmetic on them stays in 64 bits."""


@dataclass(frozen=True, slots=True)
class Join:
    """One join, as data.

    left_keys, right_keys: columns that must be equal, pairwise. using: those of the left's whose pair comes out as one column, first.
    low_us, high_us: low <= right event time - left event time <= high, None for no bound. condition: what else must hold, over columns
    `l.name` and `r.name`, or None. suffix: goes behind names of right columns that the left has too. unbounded: rows may be kept for ever.
    """

    how: How
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    using: tuple[str, ...] = ()
    low_us: int | None = None
    high_us: int | None = None
    condition: str | None = None
    suffix: str | None = None
    unbounded: bool = False

    @property
    def keeps_left(self) -> bool:
        """Left rows without a partner come out too, or alone."""
        return self.how in ("left", "full", "anti")

    @property
    def keeps_right(self) -> bool:
        return self.how in ("right", "full")

    @property
    def pairs(self) -> bool:
        """Columns of both sides come out."""
        return self.how not in ("semi", "anti")

    @property
    def left_lag_us(self) -> int | None:
        """How far behind the watermark the left event time of a result may be; None: any distance."""
        return None if self.high_us is None else max(self.high_us, 0)

    @property
    def right_lag_us(self) -> int | None:
        return None if self.low_us is None else max(-self.low_us, 0)


@dataclass(frozen=True, slots=True)
class OutColumn:
    """One column of the result. left, right: the columns it is taken from; of both, the first that is not null."""

    field: pa.Field
    left: str | None
    right: str | None


def parse_how(text: str) -> How:
    """The kind of join by any of PySpark's names. QueryError for `cross` and whatever is no join."""
    found = _HOW.get(str(text).lower().replace("_", ""))
    if found is None:
        raise QueryError(f"how is {text!r}; it must be one of inner, left, right, full, semi, anti (or PySpark's longer names)")
    return found


# ---------------------------------------------------------------- conditions


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition taken apart. keys: (left, right) columns that it says are equal; the rest as in `Join`."""

    keys: tuple[tuple[str, str], ...]
    low_us: int | None
    high_us: int | None
    rest: str | None


Side = Literal["l", "r"]


def split_condition(text: str, left: pa.Schema, right: pa.Schema, left_time: str | None, right_time: str | None) -> Condition:
    """Take a condition over `l.column` and `r.column` apart. left_time, right_time: the event-time columns, or None.

    Raises ExpressionError (not an expression, or a name that both sides have, without its side), UnknownColumn, TypeMismatch.
    """
    keys: list[tuple[str, str]] = []
    lows: list[int] = []
    highs: list[int] = []
    rest: list[exp.Expr] = []
    sides = _Sides(left, right)
    for part in _conjuncts(sides.dotted(parse(text))):
        bounds = _bounds(part, sides, left_time, right_time)
        pair = _pair(part, sides)
        if pair is not None:
            keys.append(pair)
        if bounds is not None:
            lows += [low for low, _ in bounds if low is not None]
            highs += [high for _, high in bounds if high is not None]
        if pair is None and bounds is None:
            rest.append(part)
    condition = to_sql(exp.and_(*rest, copy=True)) if rest else None
    if condition is not None:
        compile_condition(condition, left, right)
    return Condition(tuple(keys), max(lows, default=None), min(highs, default=None), condition)


def compile_condition(text: str, left: pa.Schema, right: pa.Schema) -> Compiled:
    """The condition over batches with columns `l.name` and `r.name`. TypeMismatch if it is not boolean, and as `split_condition`."""
    sides = _Sides(left, right)
    tree = sides.dotted(parse(text))
    for column in list(tree.find_all(exp.Column)):
        side, name = sides.find(column)
        column.set("table", None)
        column.set("this", exp.to_identifier(f"{side}.{name}", quoted=True))
    compiled = compile_expression(to_sql(tree), pair_schema(left, right))
    if not pa.types.is_boolean(compiled.type) and not pa.types.is_null(compiled.type):
        raise TypeMismatch(f"the condition {text!r} is {compiled.type}, not boolean; write a comparison such as l.x > r.x")
    return compiled


def pair_schema(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """Columns that a condition may read."""
    return pa.schema([*(f.with_name(f"l.{f.name}") for f in left), *(f.with_name(f"r.{f.name}") for f in right)])


@dataclass(frozen=True, slots=True)
class _Sides:
    left: pa.Schema
    right: pa.Schema

    def dotted(self, tree: exp.Expr) -> exp.Expr:
        """The expression in which `l.a.b`, and `a.b` without a side, are fields of a structure. The parser cannot tell."""

        def field(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or not node.table:
                return node
            first, *rest = [part.name for part in node.parts]
            sided = first.lower() in ("l", "r")
            owner = exp.column(rest[0], table=first, quoted=True) if sided else exp.column(first, quoted=True)
            names = {name.lower() for schema in (self.left, self.right) for name in schema.names}
            return dotted(owner, rest[1:] if sided else rest) if sided or first.lower() in names else node

        return tree.transform(field)

    def find(self, column: exp.Column) -> tuple[Side, str]:
        """Side and name of a column that is written with or without its side."""
        qualifier = column.table.lower()
        if qualifier not in ("", "l", "r"):
            raise ExpressionError(f"{to_sql(column)!r}: the sides of a join are called l (left) and r (right); write l.{column.name}")
        if qualifier:
            side: Side = "l" if qualifier == "l" else "r"
            return side, resolve(column.name, self.left if side == "l" else self.right)
        within = [schema for schema in (self.left, self.right) if column.name.lower() in map(str.lower, schema.names)]
        if len(within) == 2:
            raise ExpressionError(f"both sides of the join have a column {column.name!r}; write l.{column.name} or r.{column.name}")
        if not within:
            resolve(column.name, pa.schema([*self.left, *self.right]))  # It knows best what to say.
        return ("l" if within[0] is self.left else "r"), resolve(column.name, within[0])


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """What AND puts together, whatever stands in parentheses: a column of PySpark has them around each comparison."""
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        yield from _conjuncts(tree.this)
        yield from _conjuncts(tree.expression)
    elif isinstance(tree, exp.Between):
        yield exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
        yield exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())
    else:
        yield tree


def _pair(tree: exp.Expr, sides: _Sides) -> tuple[str, str] | None:
    """(left column, right column) of `l.a = r.b`."""
    pair = (tree.this.unnest(), tree.expression.unnest()) if isinstance(tree, exp.EQ) else ()
    if not pair or not all(isinstance(side, exp.Column) for side in pair):
        return None
    found = dict(map(sides.find, pair))
    return (found["l"], found["r"]) if len(found) == 2 else None


Bound = tuple[int | None, int | None]
_COMPARED: Final[dict[type[exp.Expr], Callable[[int], Bound]]] = {
    # What `l + a OP r + b` says of r - l, of which the constant is a - b.
    exp.LTE: lambda by: (by, None),
    exp.LT: lambda by: (by + 1, None),
    exp.GTE: lambda by: (None, by),
    exp.GT: lambda by: (None, by - 1),
    exp.EQ: lambda by: (by, by),
}
_MIRRORED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.LTE: exp.GTE, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ,
}  # fmt: skip


def _bounds(tree: exp.Expr, sides: _Sides, left_time: str | None, right_time: str | None) -> list[Bound] | None:
    """What a comparison says of right time - left time, or None if it is about something else."""
    kind = type(tree)
    if kind not in _COMPARED:
        return None
    first, second = _sum(tree.this, sides), _sum(tree.expression, sides)
    if first is None or second is None:
        return None
    # l + a OP r + b in whatever way it is written: all of it on one side, OP zero.
    apart = first.plus(second, -1)
    times = {column: count for column, count in apart.times.items() if count}
    if len(times) != 2 or set(times) != {("l", left_time), ("r", right_time)} or sorted(times.values()) != [-1, 1]:
        return None
    if times["r", right_time or ""] > 0:
        return [_COMPARED[_MIRRORED[kind]](-apart.micros)]
    return [_COMPARED[kind](apart.micros)]


@dataclass(frozen=True, slots=True)
class _Sum:
    """Columns, each so many times, and so many microseconds."""

    times: Mapping[tuple[Side, str], int]
    micros: int = 0

    def plus(self, other: _Sum, sign: int) -> _Sum:
        columns = dict.fromkeys((*self.times, *other.times))
        times = {column: self.times.get(column, 0) + sign * other.times.get(column, 0) for column in columns}
        return _Sum(times, self.micros + sign * other.micros)


def _sum(tree: exp.Expr, sides: _Sides) -> _Sum | None:
    """A sum of columns and constant intervals, with any of them taken away; None for anything else."""
    tree = tree.unnest()
    if isinstance(tree, exp.Column):
        return _Sum({sides.find(tree): 1})
    if isinstance(tree, exp.Interval):
        constant = interval(tree).constant
        if constant is None or constant.type == MONTHS:  # Months are of no fixed length, so they bound nothing.
            return None
        return _Sum({}, int(constant.cast(pa.int64()).as_py()))
    if isinstance(tree, exp.Neg):
        inner = _sum(tree.this, sides)
        return None if inner is None else _Sum({}).plus(inner, -1)
    if not isinstance(tree, exp.Add | exp.Sub):
        return None
    first, second = _sum(tree.this, sides), _sum(tree.expression, sides)
    return None if first is None or second is None else first.plus(second, 1 if isinstance(tree, exp.Add) else -1)


# ---------------------------------------------------------------- the result


def out_columns(join: Join, left: pa.Schema, right: pa.Schema) -> list[OutColumn]:
    """The columns of the result: with `using` the keys first, then the left's others, then the right's, as in PySpark.

    Raises QueryError if two of them would have one name.
    """
    optional = {"l": join.keeps_right, "r": join.keeps_left}
    if not join.pairs:
        ordered = dict.fromkeys((*join.using, *left.names))
        return [OutColumn(left.field(name), name, None) for name in ordered]
    columns = []
    pairs = {name: _counterpart(name, join) for name in join.using}
    for name, theirs in pairs.items():
        taken: dict[str, tuple[str | None, str | None]] = {"right": (None, theirs), "full": (name, theirs)}
        of_left, of_right = taken.get(join.how, (name, None))
        field = right.field(theirs) if of_left is None else left.field(name)
        columns.append(OutColumn(field, of_left, of_right))
    for field in left:
        if field.name not in join.using:
            columns.append(OutColumn(field.with_nullable(field.nullable or optional["l"]), field.name, None))
    for field in right:
        if field.name not in pairs.values():
            name = field.name + join.suffix if join.suffix and field.name in left.names else field.name
            columns.append(OutColumn(field.with_name(name).with_nullable(field.nullable or optional["r"]), None, field.name))
    names = [column.field.name for column in columns]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise QueryError(f"both sides have a column {name!r}; rename one in a select before, or give suffix='_right' to the join")
    return columns


def _counterpart(name: str, join: Join) -> str:
    """The right's key of that name, which it may spell with letters of another case."""
    found = (right for left, right in zip(join.left_keys, join.right_keys, strict=True) if left == name and right.lower() == name.lower())
    return next(found, name)


def joined_time(join: Join, columns: Sequence[OutColumn], left_time: str | None, right_time: str | None) -> tuple[str, int] | None:
    """(event-time column of the result, how far it stays behind the watermark in microseconds), or None if it has none.

    The left's event time, or the right's where the left may be missing (`right`) or is not there.
    """
    wanted = {("l", left_time): join.left_lag_us, ("r", right_time): join.right_lag_us}
    order = [("r", right_time), ("l", left_time)] if join.how == "right" else [("l", left_time), ("r", right_time)]
    for side, time in order:
        lag = wanted[side, time]
        if time is None or lag is None:
            continue
        for column in columns:
            if time == (column.left if side == "l" else column.right):
                return column.field.name, lag
    return None


def check_keys(join: Join, left: pa.Schema, right: pa.Schema) -> None:
    """TypeMismatch unless the keys can be compared, pair by pair, by their hashes."""
    for one, other in zip(join.left_keys, join.right_keys, strict=True):
        a, b = left.field(one).type, right.field(other).type
        if _family(a) != _family(b) or (one in join.using and join.how == "full" and a != b):
            raise TypeMismatch(f"l.{one} is {a} and r.{other} is {b}; cast one of them in a select before, so that they agree")


def _family(kind: pa.DataType) -> str:
    """Types whose equal values have equal hashes (docs/decisions/0003)."""
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    for name, test in (("integer", t.is_integer), ("float", t.is_floating), ("string", t.is_string), ("string", t.is_large_string)):
        if test(kind):
            return name
    return str(kind)


def check_bounds(join: Join, left_time: str | None, right_time: str | None) -> None:
    """QueryError where the state would grow for ever, or where rows without a partner could never be told."""
    for bound in (join.low_us, join.high_us):
        if bound is not None and abs(bound) >= LONGEST_US:
            raise QueryError("the join's interval is longer than 70,000 years; shorten it")
    if join.low_us is not None and join.high_us is not None and join.low_us > join.high_us:
        raise QueryError("no two times fulfil the join's condition: its lower bound is above its upper one")
    missing = [name for name, time in (("left", left_time), ("right", right_time)) if time is None]
    waits = [(join.keeps_left, "left", join.high_us), (join.keeps_right, "right", join.low_us)]
    undecided = [side for keeps, side, bound in waits if keeps and (bound is None or missing)]
    if undecided:
        why = f"the {missing[0]} stream has no watermark" if missing else "no time bounds say how long to wait for a partner"
        raise QueryError(
            f"{join.how} join: {why}, so rows of the {undecided[0]} without a partner could never come out; {_remedy(bool(missing))}"
        )
    if (missing or join.low_us is None or join.high_us is None) and not join.unbounded:
        why = f"the {missing[0]} stream has no watermark" if missing else "no time bounds say when a row can be forgotten"
        raise QueryError(f"{why}, so the join's state would grow for ever; {_remedy(bool(missing))}; or keep every row with unbounded=True")


def _remedy(watermark: bool) -> str:
    if watermark:
        return "declare .with_watermark('ts', '10 seconds') on both streams"
    return "add within='10 seconds', a condition such as 'l.ts between r.ts - interval 10 seconds and r.ts', or both event times to `on`"


__all__ = [
    "LONGEST_US", "Condition", "How", "Join", "OutColumn", "check_bounds", "check_keys", "compile_condition", "joined_time",
    "out_columns", "pair_schema", "parse_how", "split_condition",
]  # fmt: skip
