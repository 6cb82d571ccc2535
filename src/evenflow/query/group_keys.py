"""The columns of a group_by: keys, and perhaps window(...) or session_window(...) among them, as people write who come from PySpark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlglot import exp

from evenflow.errors import QueryError
from evenflow.query.expression import split_alias
from evenflow.query.given import spelled
from evenflow.query.kinds.judging import known, naming
from evenflow.query.shaping import ShapedStream
from evenflow.query.spark_column import is_spark_column, name_of, named_text_of, retold, text_of
from evenflow.query.sql.parser import length_of, parse, to_sql
from evenflow.query.user.scope import is_known

S = TypeVar("S", bound=ShapedStream)

_QUOTED: Final = re.compile(r"`([^`]+)`")
_CALL: Final = re.compile(r"\s*(session_)?window\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """session: it is a session_window. column: its time. spans: what is said of it, in Spark's order, texts that are lengths of time or
    expressions."""

    session: bool
    column: str
    spans: tuple[str, ...]


def window_call(text: str) -> WindowCall | None:
    """The call, None for any other text. Raises QueryError for one that cannot be."""
    if _CALL.match(text) is None:
        return None
    tree = parse(text)
    name = tree.name.lower() if isinstance(tree, exp.Anonymous) and not is_known(tree.name) else ""
    if name not in ("window", "session_window"):
        return None
    most, says = (4, "window(time, size[, slide[, start]])") if name == "window" else (2, "session_window(time, gap)")
    time, *spans = tree.expressions or [exp.Null()]
    if not isinstance(time, exp.Column) or not 1 <= len(spans) < most:
        raise QueryError(f"{text!r}: write {says}, whose time is a column")
    lengths = [length_of(each) for each in spans]
    said = [to_sql(each) if length is None else length for each, length in zip(spans, lengths, strict=True)]
    return WindowCall(name == "session_window", time.name, tuple(said))


def group_keys(stream: S, columns: Sequence[Any]) -> tuple[S, tuple[Any, ...], WindowCall | None]:
    """The keys, the window among them, and the stream that has them: with a select before it if some are computed. Raises QueryError, and
    NotPortable for a column of PySpark that is no expression."""
    schema = stream.schema
    keys: list[Any] = []
    computed: dict[str, Any] = {}
    over: WindowCall | None = None
    for given in map(_key, columns):
        column = spelled(given, schema.names)
        with naming("aggregate"):
            call = window_call(column) if isinstance(column, str) and column not in schema.names else None
        if call is not None and over is not None:
            raise QueryError("box 'aggregate': there are two windows in one group_by; group by one of them before the other")
        over = call or over
        if call is not None:
            continue
        if isinstance(column, str) and column not in schema.names and not column.isidentifier():
            name, expression = _computed(column, [*schema.names, *computed])
            computed[name] = expression
            keys.append(name)
        else:
            keys.append(known("aggregate", column, schema).name)
    if computed:
        stream = stream._then("select", {"columns": (*((name, name) for name in stream.columns), *computed.items())})
    return stream, tuple(keys), over


def _computed(text: str, taken: Sequence[str]) -> tuple[str, str]:
    """The name and the expression of a key that is no column. taken: names that it cannot have."""
    with naming("aggregate"):
        expression, name = split_alias(text)
    if name is None:
        raise QueryError(f"box 'aggregate': a key is a column, not {text!r}; give what is computed a name, such as '{text} AS k'")
    if spelled(name, taken) in taken:
        raise QueryError(f"box 'aggregate': the key {name!r} is computed, and there is a column of that name; give it another one")
    return name, expression


def _key(given: Any) -> Any:
    """A column of PySpark that is a key is one of the stream's, a window, or an expression with its name."""
    if not is_spark_column(given):
        given = retold(given)
        quoted = isinstance(given, str) and _QUOTED.fullmatch(given)
        return quoted[1] if quoted else given
    name = name_of(given)
    if name is not None:
        return name
    text = text_of(given)
    return text if text.startswith(("window(", "session_window(")) else named_text_of(given)


__all__ = ["WindowCall", "group_keys", "window_call"]
