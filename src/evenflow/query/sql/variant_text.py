"""Variants and texts: JSON to a tree, a tree to JSON, and the schema of one, as Spark has them."""

from __future__ import annotations

import base64
import re
import uuid
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from evenflow.query.sql import calendar
from evenflow.query.sql import variant_form as form
from evenflow.query.sql.casts import java_double, java_float
from evenflow.query.sql.json_letters import quoted_json
from evenflow.query.sql.json_scan import Pairs, Token, first_value
from evenflow.query.sql.node import InvalidValue
from evenflow.query.sql.variant_form import Tree

_WHOLE: Final = re.compile(r"-?\d+", re.ASCII)
_PLAIN: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_WORD: Final = re.compile(r"[\w$]")
_MOST_DIGITS: Final = 38
_MOST_LETTERS: Final = 1000
"""Of a number, as Spark's library has it."""
_DAY_US: Final = 86_400_000_000


def read_json(text: str) -> Tree:
    """The first value of a text, which is all that Spark reads of it. Raises InvalidValue if it begins with none."""
    try:
        value, end = first_value(text)
        if isinstance(value, Token) or not isinstance(value, str | Pairs | list):
            after = text[end : end + 1]
            if (after.strip() and isinstance(value, Token)) or _WORD.match(after):
                raise ValueError("it goes on as something else")
        return made_of(value)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{text[:200]!r} is no JSON: {error}; use try_parse_json to get null instead") from None


def made_of(value: Any, *, special: bool = False) -> Tree:
    """The tree of a decoded value. special: NaN and the infinities are doubles. Raises ValueError of what no variant holds."""
    if isinstance(value, Token):
        return form.real(float(value)) if special and value[-1:] in "Ny" else _number(value)
    if isinstance(value, str):
        return form.text(value.encode(errors="replace"))
    if isinstance(value, list):
        return [made_of(item, special=special) for item in value]
    if isinstance(value, Pairs):
        fields = {name: made_of(inner, special=special) for name, inner in value}
        if len(fields) < len(value):
            raise ValueError("an object has a field twice")
        return fields
    return form.NULL_VALUE if value is None else form.TRUE_VALUE if value else form.FALSE_VALUE


def _number(text: str) -> bytes:
    """The fewest bytes that hold it: a whole number, a decimal if it has no exponent, or a double."""
    if len(text) > _MOST_LETTERS:
        raise ValueError(f"a number has more than {_MOST_LETTERS} digits")
    if _WHOLE.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return form.whole(int(text))
    if _PLAIN.fullmatch(text):
        value = Decimal(text)
        if -int(value.as_tuple().exponent) <= _MOST_DIGITS and len(value.as_tuple().digits) <= _MOST_DIGITS:
            return form.fixed(value)
    if text[-1:] in "Ny":
        raise ValueError(f"{text} is no number of JSON")
    return form.real(float(text))


def to_json(tree: Tree) -> str:
    """A tree as JSON without blanks, fields in the order of their names."""
    if isinstance(tree, dict):
        return "{" + ",".join(f"{quoted_json(name)}:{to_json(tree[name])}" for name in form.sorted_names(tree)) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(to_json, tree)) + "]"
    kind, value = form.kind_of(tree), form.plain(tree)
    if kind == "null":
        return "null"
    if kind == "boolean":
        return "true" if value else "false"
    text = text_of(kind, value)
    return text if kind in ("whole", "decimal") or (kind in ("double", "float") and value - value == 0) else quoted_json(text)


def text_of(kind: str, value: Any) -> str:
    """A single value, other than null and a boolean, as text."""
    if kind == "decimal":
        return shortest(value)
    if kind in ("double", "float"):
        return java_double(value) if kind == "double" else java_float(value)
    if kind == "date":
        return _date(value)
    if kind in ("timestamp", "timestamp_ntz"):
        at = str(calendar.text(pa.scalar(value, pa.timestamp("us"))).as_py())
        return at + "+00:00" * (kind == "timestamp")
    if kind == "binary":
        return base64.b64encode(value).decode()
    return str(uuid.UUID(bytes=value)) if kind == "uuid" else str(value)


def _date(days: int) -> str:
    return str(calendar.text(pa.scalar(days, pa.int32()).cast(pa.date32())).as_py())


def shortest(value: Decimal) -> str:
    """A decimal without zeros at its end."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


# Schemas

Shape = Any
"""str, dict of names to shapes, or a list of one shape."""


def schema_of(tree: Tree) -> str:
    return shown(shape_of(tree))


def shape_of(tree: Tree) -> Shape:
    """What `schema_of` shows: the type of a value, with one for all items of a list."""
    if isinstance(tree, dict):
        return {name: shape_of(tree[name]) for name in form.sorted_names(tree)}
    if isinstance(tree, list):
        return [reduce(merged, map(shape_of, tree), "VOID")]
    kind = form.kind_of(tree)
    if kind == "decimal":
        digits = shortest(form.plain(tree)).lstrip("-").lstrip("0")
        scale = len(digits.partition(".")[2])
        return f"DECIMAL({max(len(digits.replace('.', '').lstrip('0')) or 1, scale)},{scale})"
    return {"null": "VOID", "whole": "BIGINT", "text": "STRING"}.get(kind, kind.upper())


def merged(one: Shape, other: Shape) -> Shape:
    """The shape of values of both. What has none is a variant."""
    if one == other or other == "VOID":
        return one
    if one == "VOID":
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = form.sorted_names({**one, **other})
        return {name: merged(one.get(name, "VOID"), other.get(name, "VOID")) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str):
        return _common(one, other)
    return "VARIANT"


def _common(one: str, other: str) -> str:
    a, b = sorted((one, other), key=lambda shape: (shape.startswith("DECIMAL"), shape))
    if (a, b) in _MEET:
        return _MEET[a, b]
    if b.startswith("DECIMAL") and a in ("BIGINT", "DOUBLE"):
        return "DOUBLE" if a == "DOUBLE" else _wider((20, 0), _sizes(b))
    return _wider(_sizes(a), _sizes(b)) if a.startswith("DECIMAL") else "VARIANT"


_MEET: Final = {
    ("BIGINT", "DOUBLE"): "DOUBLE", ("DOUBLE", "FLOAT"): "DOUBLE", ("BIGINT", "FLOAT"): "FLOAT", ("DATE", "TIMESTAMP"): "TIMESTAMP",
    ("DATE", "TIMESTAMP_NTZ"): "TIMESTAMP_NTZ", ("TIMESTAMP", "TIMESTAMP_NTZ"): "TIMESTAMP",
}  # fmt: skip


def _sizes(shape: str) -> tuple[int, int]:
    precision, scale = shape[len("DECIMAL(") : -1].split(",")
    return int(precision), int(scale)


def _wider(one: tuple[int, int], other: tuple[int, int]) -> str:
    scale = max(one[1], other[1])
    precision = max(one[0] - one[1], other[0] - other[1]) + scale
    return "DOUBLE" if precision > _MOST_DIGITS else f"DECIMAL({precision},{scale})"


def shown(shape: Shape) -> str:
    if isinstance(shape, dict):
        return f"OBJECT<{', '.join(f'{_quoted(name)}: {shown(inner)}' for name, inner in shape.items())}>"
    return f"ARRAY<{shown(shape[0])}>" if isinstance(shape, list) else str(shape)


def _quoted(name: str) -> str:
    """A name as Spark shows it in a schema."""
    plain = re.fullmatch(r"[A-Za-z0-9_]+", name) and not name.isdigit()
    return name if plain else f"`{name.replace('`', '``')}`"
