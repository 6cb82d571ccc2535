"""Columns of PySpark where an expression may stand: `F.sum("x")`, `F.col("a") + 1`.

A column of Spark is a tree of nodes in its JVM. It is read node by node and written as the Spark SQL that says the same, so what follows
is as if that text had been given. Nothing here imports PySpark: a column that somebody gives has brought it along.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Final, Protocol

from evenflow.errors import NotPortable
from evenflow.stream.schema import quoted

BETWEEN: Final = {
    **{sign: sign for sign in ("+", "-", "*", "/", "%", "=", "<", ">", "<=", ">=", "<=>", "&", "|", "^")},
    "==": "=", "!=": "<>", "<>": "<>", "and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE", "rlike": "RLIKE", "div": "DIV",
}  # fmt: skip
"""Functions that SQL writes between their two arguments."""
ROW_MAKERS: Final = ("explode", "posexplode", "inline")
"""Functions that make rows, and no column; also with _outer."""
BEHIND: Final = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
BEFORE: Final = {"!": "NOT", "not": "NOT", "negative": "-", "~": "~"}


class Meaning(Protocol):
    """What columns that say whose they are mean where an expression stands."""

    def column(self, owner: int | str | None, name: str) -> Iterable[str]:
        """The parts of the name of a column that was taken from the stream of that number (None: from a DataFrame), or that is behind that
        alias; none if there is no such alias."""
        ...

    def text(self, given: str, *, named: bool) -> str:
        """A text without aliases. named: with its name, where that would be another one."""
        ...


_MEANING: Final[ContextVar[Meaning | None]] = ContextVar("meaning", default=None)


@contextmanager
def meaning(meant: Meaning) -> Iterator[None]:
    """Expressions that are read meanwhile, columns as texts, mean this."""
    before = _MEANING.set(meant)
    try:
        yield
    finally:
        _MEANING.reset(before)


def retold(given: Any, *, named: bool = False) -> Any:
    """What is no column of PySpark, where it is to be read: a text is without aliases. See `Meaning`."""
    meant = _MEANING.get()
    return given if meant is None or not isinstance(given, str) else meant.text(given, named=named)


def is_spark_column(given: Any) -> bool:
    """Whether it is a column of PySpark, of a classic session or of Spark Connect."""
    return type(given).__name__ == "Column" and type(given).__module__.startswith("pyspark.sql.")


def column_of(name: str, stream: int) -> Any | None:
    """PySpark's column of this name; None where nobody has a session, which makes columns. stream: the number of whose it is, which it
    carries as those of Spark's own DataFrames carry that of their plan."""
    functions = sys.modules.get("pyspark.sql.functions")
    try:
        return None if functions is None else _carrying(functions.col(quoted(name)), stream)
    except (AssertionError, RuntimeError):
        return None


def _carrying(column: Any, stream: int) -> Any:
    """Of a classic session, whose nodes can be read here."""
    if not hasattr(column, "_jc"):
        return column
    node, jvm = column._jc.node(), sys.modules["pyspark"].SparkContext._jvm
    numbered = node.copy(node.nameParts(), jvm.scala.Option.apply(stream), False, node.origin())
    return type(column)(jvm.org.apache.spark.sql.Column(numbered))


def text_of(given: Any) -> str:
    """The Spark SQL of a column, without the name that it has. Raises NotPortable, naming the part, for what has no SQL here."""
    node = _node(given)
    return _text(node.child() if _kind(node) == "Alias" else node)


def named_text_of(given: Any) -> str:
    """The same with ` AS name`: the one that it was given, or has in Spark. What is one of the stream's columns, or was SQL, is left so."""
    node = _node(given)
    kind = _kind(node)
    if kind == "SqlExpression":
        return str(node.expression())
    if kind == "Alias":
        names = list(_seq(node.name()))
        said = ", ".join(map(_quoted, names))
        return f"{_text(node.child())} AS {said if len(names) == 1 else f'({said})'}"
    if (renamed := _as_it_was_called(node)) is not None:
        return renamed
    text, shown = _text(node), node
    if kind == "UnresolvedFunction" and node.functionName().lower().removesuffix("_outer") in ROW_MAKERS:
        return text  # Its columns have names of their own.
    while _kind(shown) == "Cast":
        shown = shown.child()  # Spark does not show casts in names.
    name = _text(shown)
    return text if text in ("*", name) and kind != "UnresolvedFunction" else f"{text} AS {_quoted(name.replace('`', ''))}"


def name_of(given: Any) -> str | None:
    """The name of a column that is nothing but one of the stream's, None of any other."""
    node = _node(given)
    return ".".join(_parts(node)) if _kind(node) == "UnresolvedAttribute" else None


def _node(given: Any) -> Any:
    if not hasattr(given, "_jc"):
        raise NotPortable(f"{given!r} is a column of Spark Connect, which cannot be read here: write the expression as text")
    return given._jc.node()


# ---------------------------------------------------------------- node by node


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _seq(given: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    for at in range(given.size()):
        yield given.apply(at)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(node: Any) -> str:
    kind = _kind(node)
    if kind not in _WRITTEN:
        instead = _INSTEAD.get(kind, "write it as text, or with the stream's methods")
        raise NotPortable(f"{node.sql()} ({kind}) of a column cannot be written as an expression: {instead}")
    return _WRITTEN[kind](node)


_INSTEAD: Final = {"UpdateFields": "which fields there are is not known here; give all of them, F.struct(...)"}


def _attribute(node: Any) -> str:
    return ".".join(map(_quoted, _parts(node)))


def _parts(node: Any) -> list[str]:
    """Of a column's name, where the expression stands."""
    parts, meant = list(_seq(node.nameParts())), _MEANING.get()
    if meant is None:
        return parts
    if len(parts) > 1:
        found = tuple(meant.column(parts[0], parts[1]))
        return [*found, *parts[2:]] if found else parts
    return list(meant.column(node.planId().get(), *parts)) if node.planId().isDefined() else parts


def _own_name(node: Any) -> str | None:
    """That a column had where it was taken from, if it is one."""
    if _kind(node) == "UnresolvedAttribute":
        given = list(_seq(node.nameParts()))
        return given[-1] if len(given) == 1 or given != _parts(node) else None
    return str(node.expression().name()) if _is_of_frame(node) else None


def _as_it_was_called(node: Any) -> str | None:
    """A column that is called otherwise here, with the name that it had; None for anything else."""
    own = _own_name(node)
    text = None if own is None else _text(node)
    return None if own is None or text == _quoted(own) else f"{text} AS {_quoted(own)}"


def _is_of_frame(node: Any) -> bool:
    return _kind(node) == "ExpressionColumnNode" and _kind(node.expression()) == "AttributeReference"


def _function(node: Any) -> str:
    name = node.functionName()
    low = name.lower()
    given = [(_field if low == "struct" else _text)(each) for each in _seq(node.arguments())]
    if low in BETWEEN and len(given) == 2:
        return f"({given[0]} {BETWEEN[low]} {given[1]})"
    if low in BEHIND and len(given) == 1:
        return f"({given[0]} {BEHIND[low]})"
    if low in BEFORE and len(given) == 1:
        return f"({BEFORE[low]} {given[0]})"
    if low == "approx_count_distinct" and len(given) == 2:
        given[1] = str(node.arguments().apply(1).value())  # The number itself: it is no value of rows.
    if low == "in":
        return f"({given[0]} IN ({', '.join(given[1:])}))" if given[1:] else "false"
    if low in ("first", "last", "first_value", "last_value") and len(given) == 2:
        return f"{name}({given[0]}) IGNORE NULLS" if given[1] == "true" else f"{name}({given[0]})"
    return f"{name}({'DISTINCT ' if node.isDistinct() else ''}{', '.join(given)})"


def _field(node: Any) -> str:
    """What struct(...) is made of, with the name that the field gets from it."""
    if _kind(node) == "Alias":
        return f"{_text(node.child())} AS {_quoted(node.name().apply(0))}"
    return str(node.expression()) if _kind(node) == "SqlExpression" else _as_it_was_called(node) or _text(node)


def _star(node: Any) -> str:
    """All columns, or all fields of a structure."""
    owner = node.unparsedTarget()
    return "*" if not owner.isDefined() else str(owner.get())


def _literal(node: Any) -> str:
    """By its type: SQL would take 1.5 for a decimal, and a timestamp for one in the zone of whoever reads it."""
    value, text = node.value(), str(node.sql())
    match value:
        case None | bool() | str():
            return text
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case int():
            return f"CAST({value} AS BIGINT)" if text.endswith("L") else str(value)
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case Decimal():
            _, digits, exponent = value.as_tuple()
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            return f"CAST('{value}' AS DECIMAL({max(len(digits), scale)}, {scale}))"
    kind = _kind(value) if hasattr(value, "getClass") else type(value).__name__
    if kind == "Timestamp":
        return f"timestamp_micros({value.getTime() // 1000 * 1_000_000 + value.getNanos() // 1000})"
    if kind == "LocalDateTime":
        return f"TIMESTAMP_NTZ '{str(value.toString()).replace('T', ' ')}'"
    if kind in ("Date", "LocalDate"):
        return f"DATE '{value.toString()}'"
    if kind == "LocalTime":
        return f"TIME '{value.toString()}'"
    if kind == "Duration":
        return f"INTERVAL '{value.getSeconds() + Decimal(value.getNano()).scaleb(-9):f}' SECOND"
    raise NotPortable(f"a literal {text} ({kind}) of a column cannot be written as an expression: write it as text")


def _cast(node: Any) -> str:
    mode = node.evalMode()
    tried = mode.isDefined() and "$Try$" in str(mode.get().toString())
    return f"{'TRY_CAST' if tried else 'CAST'}({_text(node.child())} AS {node.dataType().sql()})"


def _case(node: Any) -> str:
    branches = "".join(f" WHEN {_text(branch._1())} THEN {_text(branch._2())}" for branch in _seq(node.branches()))
    otherwise = node.otherwise()
    return f"CASE{branches}{f' ELSE {_text(otherwise.get())}' if otherwise.isDefined() else ''} END"


def _window(node: Any) -> str:
    """A function OVER rows. Numbers of a frame are negative before the row; lag and lead have all their arguments, whatever was given."""
    call, spec = node.windowFunction(), node.windowSpec()
    name = call.functionName().lower() if _kind(call) == "UnresolvedFunction" else ""
    if name in ("lag", "lead", "nth_value"):
        *given, ignored = [_text(each) for each in _seq(call.arguments())]
        said = f"{name}({', '.join(each for each in given if each != 'NULL')}){' IGNORE NULLS' if ignored == 'true' else ''}"
    else:
        said = _text(call)
    keys, order = (", ".join(map(write, _seq(part))) for write, part in ((_text, spec.partitionColumns()), (_placed, spec.sortColumns())))
    parts = [f"PARTITION BY {keys}" if keys else "", f"ORDER BY {order}" if order else ""]
    if spec.frame().isDefined():
        frame = spec.frame().get()
        kind = "ROWS" if _kind(frame.frameType()) == "Row$" else "RANGE"
        parts.append(f"{kind} BETWEEN {_bound(frame.lower())} AND {_bound(frame.upper())}")
    return f"{said} OVER ({' '.join(filter(None, parts))})"


def _placed(node: Any) -> str:
    """A part of the order of a window, with where nulls are."""
    if _kind(node) != "SortOrder":
        return _text(node)
    return f"{_order(node)} NULLS {'FIRST' if _kind(node.nullOrdering()) == 'NullsFirst$' else 'LAST'}"


def _bound(bound: Any) -> str:
    kind = _kind(bound)
    if kind != "Value":
        return {"CurrentRow$": "CURRENT ROW", "UnboundedPreceding$": "UNBOUNDED PRECEDING"}.get(kind, "UNBOUNDED FOLLOWING")
    number = bound.value().value() if _kind(bound.value()) == "Literal" else None
    if not isinstance(number, int):
        raise NotPortable(f"a frame that goes on for {bound.value().sql()} cannot be written as an expression: write it as text")
    return f"{abs(number)} {'PRECEDING' if number < 0 else 'FOLLOWING'}" if number else "CURRENT ROW"


def _order(node: Any) -> str:
    return f"{_text(node.child())} {'desc' if 'Desc' in node.sortDirection().getClass().getSimpleName() else 'asc'}"


def _lambda(node: Any) -> str:
    names = ", ".join(_quoted(argument.name()) for argument in _seq(node.arguments()))
    return f"({names}) -> {_text(node.function())}"


def _expression(node: Any) -> str:
    """What Spark has made already: a column of a DataFrame, or a call of a Python function, which has no SQL."""
    call, meant = node.expression(), _MEANING.get()
    if _is_of_frame(node) and meant is not None:
        return ".".join(map(_quoted, meant.column(None, str(call.name()))))
    if not _kind(call).startswith("PythonUD"):
        raise NotPortable(f"{_kind(call)} of a column cannot be written as an expression: write it as text")
    name = str(call.name()) if str(call.name()).isidentifier() else "f"
    given = ", ".join(_text(each.node()) if _kind(each) == "ColumnNodeExpression" else "..." for each in _seq(call.children()))
    raise NotPortable(
        f"the Python function {str(call.name())!r} cannot be read out of a column: give the function itself, as f in ef.expr, such as "
        f'ef.expr("{name}({given})", {name}=f), or ef.udf(f)("column")'
    )


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "UnresolvedAttribute": _attribute,
    "UnresolvedStar": _star,
    "Literal": _literal,
    "UnresolvedFunction": _function,
    "Alias": lambda node: _text(node.child()),
    "ExpressionColumnNode": _expression,
    "Cast": _cast,
    "CaseWhenOtherwise": _case,
    "SqlExpression": lambda node: f"({node.expression()})",
    "SortOrder": _order,
    "Window": _window,
    "LambdaFunction": _lambda,
    "UnresolvedNamedLambdaVariable": lambda node: _quoted(node.name()),
    "UnresolvedExtractValue": lambda node: f"{_text(node.child())}[{_text(node.extraction())}]",
}
"""What has an SQL here, by the name of its class."""
