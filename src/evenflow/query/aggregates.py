"""Aggregate functions as data: what may be called on what, what comes out, and which running totals it takes.

Semantics are Spark SQL's in ANSI mode. Nothing here computes; the operators do (`evenflow.operator.totals.totals`).

A call is computed from **cells**, the totals kept per key: `avg(x)` from the cells `count(x)` and `isum(x)` or `fsum(x)`. Calls
share cells. Cells but first, last, hll and object can be merged, so they can be computed before the exchange by a `combine` step:

    cell      words           of            kept as
    rows      1               -             number of rows
    count     1               x             number of rows where x is not null
    isum      2               x integer     128-bit sum: exact whatever the order; overflow is judged on the total
    fsum      1               x float       float64 sum in row order
    xsum      37              x float       the same of a changelog: exact, so that a value can be taken back (`kernels.exact`)
    min, max  1               x fixed width words that sort as Spark sorts
    moments   3               x numeric     count, mean, sum of squared deviations (Chan, Golub, LeVeque 1983)
    first     2               x fixed width value, state (0 no row yet, 1 value, 2 null); so is last. Of a structure whose values are all of
                                            fixed width: one of each of these, and of each structure, whether it is there
    hll       52              x             512 six-bit registers (HyperLogLog, p = 9: Spark's default rsd of 0.05)
    object    0 and an object x             strings, lists, and states of the user's aggregators that cannot be merged
    state     0 and an object x, ...        states of the user's aggregators that can; sent as pickles
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch, UnknownColumn
from evenflow.query.user.aggregator import Aggregator, merges
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import has_map

FUNCTIONS: Final = ("count", "sum", "min", "max", "avg", "stddev", "approx_count_distinct", "first", "last", "collect_list")
"""Names of the aggregate functions, as in Spark SQL."""

COLLECT_ROWS: Final = "collect_rows"
"""As collect_list, with nulls: what a user's function of the rows of a group is given. Nobody can call it by that name."""

IGNORING_NULLS: Final = {"first": "first_known", "last": "last_known"}
"""What first and last with IGNORE NULLS are. Nobody can call them by that name."""

LEAST_RSD: Final = 0.0489
"""The least relative standard deviation that approx_count_distinct can be asked for: what 512 registers have, 1.106 / sqrt(512)."""

ORDERED: Final = frozenset({"first", "last", "collect_list", COLLECT_ROWS, *IGNORING_NULLS.values()})
"""Functions whose result depends on the order of the rows."""

EXACT_WORDS: Final = 37
"""34 limbs of a sum of doubles, and counts of what is not finite."""

HLL_WORDS: Final = 52
"""512 registers of six bits, ten to a word, as Spark packs them."""


@dataclass(frozen=True, slots=True)
class AggCall:
    """One aggregate of a box. name: of the result column. column: None for count(*). type: of the result (`result_type`).

    made: the user's aggregator that it is, and others: its further arguments. Its result is a state.
    """

    name: str
    function: str
    column: str | None
    type: pa.DataType
    made: Aggregator | None = None
    others: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.others if self.column is None else (self.column, *self.others)

    @property
    def text(self) -> str:
        """As SQL writes it."""
        arguments = ", ".join(self.columns) or "*"
        of = next((name for name, known in IGNORING_NULLS.items() if known == self.function), None)
        return f"{self.function}({arguments})" if of is None else f"{of}({arguments}) IGNORE NULLS"

    @property
    def ordered(self) -> bool:
        """Whether its result depends on the order of the rows by meaning."""
        return self.function in ORDERED if self.made is None else not merges(self.made)


FOREVER_US: Final = 2**62
"""As an allowed lateness: there is no end to it."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows [k * slide_us, k * slide_us + size_us) over an event-time column, for every integer k. Tumbling when both are equal.

    mode: "append" puts a window out once, when the watermark has reached its end; "update" whenever rows have come into it, and not at
    its end; "changelog" too, as the row that it was and the row that it is. lateness_us: for how long beyond its end rows still come into
    a window, and put it out again (allowed lateness; FOREVER_US: it is never forgotten). start_us: windows begin at multiples of
    slide_us plus this.
    """

    column: str
    size_us: int
    slide_us: int
    mode: Literal["append", "update", "changelog"] = "append"
    lateness_us: int = 0
    start_us: int = 0

    @property
    def final(self) -> bool:
        """Whether a window is put out once."""
        return self.mode == "append" and self.lateness_us == 0

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.size_us:
            raise TypeMismatch(f"a window of {self.size_us} us cannot slide by {self.slide_us} us: 0 < slide <= size is needed")


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Rows of a key of which each comes at most gap_us after the one before; [first row, last row + gap_us), as Spark's session_window.

    mode: "append" puts a session out once, when the watermark has reached its end; "changelog" whenever rows have come into it, as the
    sessions that there were and those that there are. lateness_us: for how long beyond its end a session is kept, of a changelog only.
    """

    column: str
    gap_us: int
    mode: Literal["append", "changelog"] = field(default="append", metadata={"later": True})
    lateness_us: int = field(default=0, metadata={"later": True})

    @property
    def final(self) -> bool:
        """Whether a session is put out once."""
        return self.mode == "append"

    def __post_init__(self) -> None:
        if self.gap_us < 1:
            raise TypeMismatch(f"a session with a gap of {self.gap_us} us: the gap must be at least 1 us")


@dataclass(frozen=True, slots=True)
class OwnSessions(SessionWindow):
    """The same with a gap of each row's own: `ends` is the column with the time at which a session of that row alone is over. A session is
    [first row, latest end): rows' own sessions that overlap or touch are one."""

    gap_us: int = 1
    ends: str = ""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """After every `slide` rows of a key, its last `history` rows (fewer at the beginning)."""

    history: int
    slide: int

    def __post_init__(self) -> None:
        if self.history < 1 or self.slide < 1:
            raise TypeMismatch(f"a window of {self.history} rows that slides by {self.slide}: both must be at least 1")


_WORDS: Final = {"isum": 2, "moments": 3, "first": 2, "last": 2, "hll": HLL_WORDS, "xsum": EXACT_WORDS, "object": 0, "state": 0}
"""Of cells that have not one word."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One running total. column: None for `rows`. call: the call that owns an `object` or `state` cell, else an empty string. path: of a
    structure that is kept in parts, the numbers of the fields that lead to this one; () is the structure itself. None: it is no part."""

    kind: str
    column: str | None
    call: str = ""
    path: tuple[int, ...] | None = None

    @property
    def words(self) -> int:
        return _WORDS.get(self.kind, 1)

    @property
    def partial_names(self) -> tuple[str, ...]:
        """Columns of this cell in the output of a `combine` step."""
        if self.kind == "state":
            return (f"state({self.call})",)
        if self.kind == "xsum":
            return tuple(f"xsum.{word}({self.column})" for word in range(EXACT_WORDS))
        suffixes = {"isum": (".low", ".high"), "moments": (".count", ".mean", ".square")}.get(self.kind, ("",))
        return tuple(f"{self.kind}{suffix}({self.column or '*'})" for suffix in suffixes)

    @property
    def partial_types(self) -> tuple[pa.DataType, ...]:
        if self.kind == "fsum":
            return (pa.float64(),)
        if self.kind == "state":
            return (pa.binary(),)
        if self.kind == "moments":
            return (pa.int64(), pa.float64(), pa.float64())
        return (pa.int64(),) * self.words


ROWS: Final = Cell("rows", None)
"""How many rows there are."""


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_binary(kind) or t.is_large_string(kind) or t.is_large_binary(kind))


def fixed_width(kind: pa.DataType) -> bool:
    """Whether values of the type are kept in one word; others are kept as objects."""
    t = pa.types
    known = (t.is_integer, t.is_floating, t.is_boolean, t.is_date32, t.is_timestamp, t.is_duration)
    return any(test(kind) for test in known)


def is_of_words(kind: pa.DataType) -> bool:
    """Whether it is a structure of nothing but values of fixed width, and structures of such."""
    return bool(pa.types.is_struct(kind)) and all(fixed_width(field.type) or is_of_words(field.type) for field in kind)


def parts_of(kind: pa.DataType) -> list[tuple[int, ...]]:
    """The paths of a structure's parts, itself included: see `Cell`."""
    inside = [(at, *path) for at, field in enumerate(kind) if pa.types.is_struct(field.type) for path in parts_of(field.type)]
    return [(), *((at,) for at, field in enumerate(kind) if not pa.types.is_struct(field.type)), *inside]


def result_type(function: str, kind: pa.DataType | None) -> pa.DataType:
    """Type of `function` over a column of type `kind` (None for count(*)), as in Spark.

    Raises TypeMismatch if there is no such function, or it cannot work on the type.
    """
    if function not in (*FUNCTIONS, COLLECT_ROWS, *IGNORING_NULLS.values()):
        raise TypeMismatch(f"there is no aggregate function {function!r}: choose one of {', '.join(FUNCTIONS)}")
    if function == "count":
        return pa.int64()
    if kind is None:
        raise TypeMismatch(f"{function}(*) is not possible: name a column")
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if function in ("sum", "avg", "stddev"):
        if not number:
            hint = "cast it to double" if pa.types.is_decimal(kind) or _is_text(kind) else "use a numeric column"
            raise TypeMismatch(f"{function} needs a number, not {kind}: {hint}")
        return pa.int64() if function == "sum" and pa.types.is_integer(kind) else pa.float64()
    if function in ("min", "max") and has_map(kind):
        raise TypeMismatch(f"{function} cannot work on {kind}: maps have no order")
    if function == "approx_count_distinct" and has_map(kind):
        raise TypeMismatch(f"{function} cannot work on {kind}: maps cannot be compared")
    if not (fixed_width(kind) or _is_text(kind) or pa.types.is_decimal(kind) or pa.types.is_nested(kind)):
        raise TypeMismatch(f"{function} cannot work on {kind}: cast it to a type that Evenflow has")
    if function == "approx_count_distinct":
        return pa.int64()
    return pa.list_(kind) if function in ("collect_list", COLLECT_ROWS) else kind


def order_sensitive(calls: Sequence[AggCall], schema: pa.Schema | None = None) -> bool:
    """Whether the results depend on the order of a key's rows (so that the segment needs canonical order, E2).

    first, last and collect do by meaning; float sums, averages and deviations do in their last bits, and a user's state may. Integer
    sums and averages do not: their totals are exact. schema: of the input; without it an average counts as one over floats.
    """
    for call in calls:
        if call.ordered or call.function == "stddev" or call.made is not None:
            return True
        if call.function == "sum" and pa.types.is_floating(call.type):
            return True
        if call.function == "avg" and (schema is None or _is_float_total(call, schema)):
            return True
    return False


def combinable(calls: Sequence[AggCall], schema: pa.Schema) -> bool:
    """Whether a `combine` step before the exchange can compute partial results of all the calls."""
    return all(cell.kind not in ("first", "last", "hll", "object") for cell in cells(calls, schema))


def _total_of(call: AggCall, schema: pa.Schema) -> str:
    """The cell of a sum of rows of `schema`, or of partial results of them."""
    if f"xsum.0({call.column})" in schema.names:
        return "xsum"
    if not _is_float_total(call, schema):
        return "isum"
    return "xsum" if is_changelog(schema) else "fsum"


def _is_float_total(call: AggCall, schema: pa.Schema) -> bool:
    if f"xsum.0({call.column})" in schema.names:
        return True
    if f"isum.low({call.column})" in schema.names or f"fsum({call.column})" in schema.names:
        return f"fsum({call.column})" in schema.names
    return bool(pa.types.is_floating(_column_type(call, schema)))


def _column_type(call: AggCall, schema: pa.Schema) -> pa.DataType:
    if call.column not in schema.names:
        raise UnknownColumn(f"{call.function}({call.column}): there is no such column; the input has {', '.join(schema.names)}")
    kind = schema.field(call.column).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def cells_of(call: AggCall, schema: pa.Schema, *, apart: bool = True) -> tuple[Cell, ...]:
    """The cells that one call is computed from, over rows of `schema` or over partial results of them. apart: structures may be kept in
    parts."""
    x = call.column
    if call.made is not None:
        return (Cell("state" if merges(call.made) else "object", x, call.name),)
    if x is None:
        return (ROWS,)
    match call.function:
        case "count":
            return (Cell("count", x),)
        case "sum" | "avg":
            return (Cell("count", x), Cell(_total_of(call, schema), x))
        case "stddev":
            return (Cell("moments", x),)
        case "approx_count_distinct":
            return (Cell("hll", x),)
        case "min" | "max" if fixed_width(call.type):
            return (Cell("count", x), Cell(call.function, x))
        case "first" | "last" if fixed_width(call.type):
            return (Cell(call.function, x),)
        case "first" | "last" if apart and is_of_words(call.type):
            return tuple([Cell(call.function, x, path=path) for path in parts_of(call.type)])
        case _:
            return (Cell("object", x, call.name),)


def cells(calls: Sequence[AggCall], schema: pa.Schema, *, apart: bool = True) -> tuple[Cell, ...]:
    """The distinct cells of all the calls, in order of first need. apart: see `cells_of`."""
    found: dict[Cell, None] = {}
    for call in calls:
        found.update(dict.fromkeys(cells_of(call, schema, apart=apart)))
    return tuple(found)


def partial_cells(calls: Sequence[AggCall], schema: pa.Schema) -> tuple[Cell, ...]:
    """The cells of a `combine` step: those of the calls, and the number of rows, by which late rows are counted."""
    found = dict.fromkeys(cells(calls, schema))
    found.setdefault(ROWS)
    return tuple(found)


WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
NEWEST_ROWS: Final = "newest_rows(*)"
"""How many of a partial result's rows are in no later window, where windows do not slide by a part of their size: those of one row are not
told from those of another by their number there, and a row is late if its newest window is over."""


def partial_schema(schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], window: TimeWindow | None) -> pa.Schema:
    """Output of a `combine` step over `schema`: keys, window_start if windowed, as the time that windows are over, one column per word of
    each cell, and NEWEST_ROWS where it is needed."""
    fields = [schema.field(key) for key in keys]
    if window is not None:
        fields.append(pa.field(WINDOW_START, schema.field(window.column).type))
    for cell in partial_cells(calls, schema):
        fields += [pa.field(name, kind) for name, kind in zip(cell.partial_names, cell.partial_types, strict=True)]
    if window is not None and window.size_us % window.slide_us:
        fields.append(pa.field(NEWEST_ROWS, pa.int64()))
    return pa.schema(fields)


def result_schema(
    schema: pa.Schema,
    keys: Sequence[str],
    calls: Sequence[AggCall],
    window: TimeWindow | SessionWindow | RowWindow | None,
    time: str | None,
) -> pa.Schema:
    """Output of an `aggregate` step over `schema` (rows or partial results): keys, window or event time, one column per call."""
    fields = [schema.field(key) for key in keys]
    if isinstance(window, TimeWindow | SessionWindow):
        kind = schema.field(window.column if window.column in schema.names else WINDOW_START).type
        fields += [pa.field(WINDOW_START, kind), pa.field(WINDOW_END, kind)]
    if isinstance(window, RowWindow) and time is not None:
        fields.append(schema.field(time))
    return pa.schema([*fields, *(pa.field(call.name, call.type) for call in calls)])


RANK: Final = "rank"


def top_schema(schema: pa.Schema, keys: Sequence[str], window: TimeWindow) -> pa.Schema:
    """Output of a `top` step over `schema`: keys, window, rank, the other columns."""
    stamp = schema.field(window.column).type
    fields = [*(schema.field(key) for key in keys), pa.field(WINDOW_START, stamp), pa.field(WINDOW_END, stamp), pa.field(RANK, pa.int32())]
    return pa.schema([*fields, *(field for field in schema if field.name not in keys)])


Way = Literal["linear", "previous"]
"""How a value between two rows is made, see `GroupedStream.resample`."""

How = str | Sequence[str]
"""Of a `resample` step, how values are made: "linear" or "previous", of all columns or of each."""


def ways_of(how: How, columns: Sequence[str]) -> tuple[str, ...]:
    """How, of each column."""
    return (how,) * len(columns) if isinstance(how, str) else tuple(how)


def ways_by_name(columns: Sequence[str], how: Mapping[str, Way]) -> tuple[Way, ...]:
    """How the values of each column are made; QueryError where that is not said of each of them and of nothing else."""
    if not isinstance(how, Mapping):
        raise QueryError(f"how is linear, previous, or one of them for each column, not {how!r}")
    if set(how) != set(columns):
        named, there = (", ".join(map(str, names)) or "nothing" for names in (how, columns))
        raise QueryError(f"how names {named}, and the columns are {there}; name each of these")
    return tuple(how[column] for column in columns)


def resampled_schema(schema: pa.Schema, keys: Sequence[str], time: str, columns: Sequence[str], how: How) -> pa.Schema:
    """Output of a `resample` step over `schema`: keys, time, the columns."""
    ways = ways_of(how, columns)
    values = [pa.field(name, pa.float64()) if way == "linear" else schema.field(name) for name, way in zip(columns, ways, strict=True)]
    return pa.schema([*(schema.field(key) for key in keys), schema.field(time), *values])


def unpivoted_schema(schema: pa.Schema, ids: Sequence[str], values: Sequence[str], variable: str, value: str) -> pa.Schema:
    """Output of an `unpivot` step over `schema`: the ids, the name of a column, and its value. values: at least one, of one type."""
    fields = [schema.field(column) for column in values]
    made = [pa.field(variable, pa.string(), False), pa.field(value, fields[0].type, any(field.nullable for field in fields))]
    return pa.schema([*(schema.field(column) for column in ids), *made])


def exploded_schema(schema: pa.Schema, column: str, into: str | Sequence[str], position: str | None) -> pa.Schema:
    """Output of an `explode` step over `schema`: the place of the list, or the map, is taken by the position, if it is wanted, and the
    element. into: its name; several: those of a map's key and value, or of the fields of elements that are structures."""
    at = schema.get_field_index(column)
    made = [] if position is None else [pa.field(position, pa.int32())]
    fields = list(schema)
    kind = schema.field(at).type
    if isinstance(into, str):
        parts = [pa.field(into, kind.value_type)]
    elif pa.types.is_map(kind):
        parts = [pa.field(name, type_) for name, type_ in zip(into, (kind.key_type, kind.item_type), strict=True)]
    else:
        parts = [pa.field(name, field.type) for name, field in zip(into, kind.value_type, strict=True)]
    fields[at : at + 1] = [*made, *parts]
    return pa.schema(fields)
