"""Lines of CSV to structures of a schema and back, as Spark reads and writes them by default: `from_csv`, `to_csv`, `schema_of_csv`."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import formatted
from evenflow.query.sql.casts import cast
from evenflow.query.sql.json_read import Options, decimal_of, options_of, schema_argument
from evenflow.query.sql.jsons import by_pattern, plain_text
from evenflow.query.sql.moments import of_text, parse_date, parse_timestamp
from evenflow.query.sql.node import InvalidValue, Node, lift, literal
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BOOL, DATE, FLOAT, NULL, STRING, bounds, floating, integral, name_of, stringy, timestampy

_BLANK: Final = "".join(map(chr, range(33)))
_MORE: Final = {"sep": "sep", "delimiter": "sep"}
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_REAL: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?\s*", re.ASCII)
_SPECIAL: Final = {"NaN": "nan", "Inf": "inf", "-Inf": "-inf", "Infinity": "inf", "-Infinity": "-inf", "+Infinity": "inf"}

Read = Callable[[str], Any]
"""From a cell to a value. Raises ValueError."""


def _only_more(given: Node | None, what: str) -> dict[str, str]:
    """The options of a call that has none of those for reading values."""
    options, others = options_of(given, what, _MORE)
    if options != Options():
        raise ExpressionError(f"{what} takes the options {', '.join(_MORE)} here; the others are those of from_csv")
    return others


def _separator(others: dict[str, str], what: str) -> str:
    found = others.get("sep", ",")
    if len(found) != 1:
        raise ExpressionError(f"{what}: the separator must be one character, not {found!r}")
    return found


_CELL: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _cells(text: str, separator: str) -> list[str | None]:
    """The cells of the first line of a text, None for an empty one."""
    cells, at = list[str | None](), 0
    while True:
        match = _CELL.match(text, at)
        if match is not None and text[match.end() : match.end() + 1] in ("", separator):
            cells.append(re.sub(r'\\(["\\])', r"\1", match[1]) or None)
            at = match.end()
        else:
            end = min(found for mark in (separator, "") if (found := text.find(mark, at) if mark else len(text)) >= 0)
            cells.append(text[at:end] or None)
            at = end
        if text[at : at + 1] != separator:
            return cells
        at += 1


def _cell(type_: Any, options: Options) -> Read:
    if stringy(type_):
        return str
    if type_ == BOOL:
        return _boolean
    if integral(type_):
        return partial(_int, *bounds(type_))
    if floating(type_):
        return partial(_float, np.float32 if type_ == FLOAT else float)
    if pa.types.is_decimal(type_):
        return partial(_decimal, type_)
    if type_ == DATE:
        return _of(
            of_text(type_) if options.date is None else formatted.reader(options.date, "dateFormat"), 86_400_000_000 if options.date else 1
        )
    if timestampy(type_):
        pattern = options.timestamp if type_.tz else None
        return _of(of_text(type_) if pattern is None else formatted.reader(pattern, "timestampFormat"), 1)
    raise TypeMismatch(f"a cell of CSV is not read as {name_of(type_)}")


def _boolean(cell: str) -> bool:
    if cell.lower() not in ("true", "false"):
        raise ValueError(cell)
    return cell.lower() == "true"


def _int(low: int, high: int, cell: str) -> int:
    if not _WHOLE.fullmatch(cell) or not low <= int(cell) <= high:
        raise ValueError(cell)
    return int(cell)


def _float(make: Any, cell: str) -> float:
    if cell in _SPECIAL:
        return float(_SPECIAL[cell])
    if not _REAL.fullmatch(cell):
        raise ValueError(cell)
    return float(make(cell.strip().rstrip("fFdD")))


def _decimal(type_: Any, cell: str) -> Decimal:
    found = decimal_of(type_, cell)
    if found is None:
        raise ValueError(cell)
    return found


def _of(read: Callable[[str], int | None], unit: int) -> Read:
    def one(cell: str) -> int:
        found = read(cell)
        if found is None:
            raise ValueError(cell)
        return found // unit

    return one


def _from_csv(a: Node, schema: Node, given: Node | None = None) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"from_csv needs a string, but {a.text} is {name_of(a.type)}; cast it")
    type_ = schema_argument(schema, "from_csv")
    if not pa.types.is_struct(type_):
        raise TypeMismatch(f"from_csv gives a struct, not {name_of(type_)}")
    options, others = options_of(given, "from_csv", _MORE)
    separator = _separator(others, "from_csv")
    read = [(field.name, _cell(field.type, options)) for field in type_ if field.name != options.corrupt]
    corrupt = options.corrupt if type_.get_field_index(options.corrupt) >= 0 else None

    def one(text: str | None) -> Any:
        if text is None:
            return None
        cells = _cells(text, separator)
        row: dict[str, Any] = {name: None for name, _ in read}
        bad = len(cells) != len(read)
        for (name, cell), value in zip(read, cells, strict=False):
            try:
                row[name] = None if value is None else cell(value)
            except ValueError:
                bad = True
        if bad and options.mode == "FAILFAST":
            raise InvalidValue(f"{text[:100]!r} does not fit into {name_of(type_)}; with the mode PERMISSIVE what does not fit is null")
        if corrupt is not None:
            row[corrupt] = text if bad else None
        return row

    kernel = over_arrays(lambda array: pa.array(map(one, array.to_pylist()), type_))
    return lift(kernel, type_, cast(a, STRING), raises=options.mode == "FAILFAST")


def _to_csv(a: Node, given: Node | None = None) -> Node:
    if not pa.types.is_struct(a.type) or any(pa.types.is_nested(field.type) or pa.types.is_binary(field.type) for field in a.type):
        raise TypeMismatch(f"to_csv needs a struct of plain values, but {a.text} is {name_of(a.type)}")
    options, others = options_of(given, "to_csv", _MORE)
    if options != Options(date=options.date, timestamp=options.timestamp):
        raise ExpressionError(
            f"to_csv takes the options {', '.join(_MORE)}, dateFormat and timestampFormat; the others are those of from_csv"
        )
    separator = _separator(others, "to_csv")
    patterns = [options.date if field.type == DATE else options.timestamp if timestampy(field.type) else None for field in a.type]
    texts = [plain_text(field.type) if form is None else by_pattern(field.type, form) for field, form in zip(a.type, patterns, strict=True)]

    def kernel(array: pa.Array) -> pa.Array:
        columns = [text(part).to_pylist() for text, part in zip(texts, array.flatten(), strict=True)]
        rows = [None if row == (None,) else separator.join(_written(c, separator) for c in row) for row in zip(*columns, strict=True)]
        return pa.array([row if there else None for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)], STRING)

    return lift(over_arrays(kernel), STRING, a)


def _written(cell: str | None, separator: str) -> str:
    """Blanks at the ends are left out. An empty text has quotes, so that it is no null."""
    if cell is None:
        return ""
    bare = cell.strip(_BLANK)
    if not bare:
        return '""'
    if any(mark in cell for mark in (separator, '"', "\n", "\r")):
        return '"' + bare.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return bare


def _schema_of_csv(a: Node, given: Node | None = None) -> Node:
    text = constant_of(a, "the text of schema_of_csv")
    if not isinstance(text, str):
        raise TypeMismatch("schema_of_csv needs a string")
    if not text:
        raise ExpressionError("schema_of_csv: the text is empty, so it has no columns")
    others = _only_more(given, "schema_of_csv")
    types = [_inferred(cell) for cell in _cells(text, _separator(others, "schema_of_csv"))]
    return literal(pa.scalar(f"STRUCT<{', '.join(f'_c{at}: {type_}' for at, type_ in enumerate(types))}>"))


def _inferred(cell: str | None) -> str:
    if cell is None:
        return "STRING"
    if _WHOLE.fullmatch(cell):
        return (
            "INT"
            if -(2**31) <= int(cell) < 2**31
            else "BIGINT"
            if -(2**63) <= int(cell) < 2**63
            else f"DECIMAL({len(cell.lstrip('+-'))},0)"
        )
    if _REAL.fullmatch(cell) or cell in _SPECIAL:
        return "DOUBLE"
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", cell) and parse_date(cell) is not None:
        return "DATE"
    if parse_timestamp(cell) is not None:
        return "TIMESTAMP"
    return "BOOLEAN" if cell.lower() in ("true", "false") else "STRING"


FUNCTIONS: Final = {
    "from_csv": Signature(_from_csv, 2, 3),
    "to_csv": Signature(_to_csv, 1, 2),
    "schema_of_csv": Signature(_schema_of_csv, 1, 2),
}
