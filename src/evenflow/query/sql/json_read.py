"""JSON texts to structures, lists and maps of a schema, as Spark reads them: `from_json`, and the schema of a text, `schema_of_json`.

A row is looked at in Python: the text is decoded by the standard library, and each value is made what the schema says. What does not fit is
null and makes the row a bad one; of a text that is no JSON nothing is kept.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import formatted, variant_form, variant_text
from evenflow.query.sql.casts import cast
from evenflow.query.sql.json_letters import whole_letters
from evenflow.query.sql.json_scan import Pairs, Token, compact, decoded, without_zeros
from evenflow.query.sql.moments import of_text
from evenflow.query.sql.node import InvalidValue, Node, lift, literal
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.type_texts import type_of_text
from evenflow.query.sql.types import BINARY, BOOL, DATE, FLOAT, NULL, STRING, bounds, floating, integral, name_of, stringy, timestampy
from evenflow.stream.schema import VARIANT

_EXACT: Final = Context(prec=400, Emax=10**6, Emin=-(10**6))
_BLANK: Final = "".join(map(chr, range(33)))
_WHOLE: Final = re.compile(r"-?\d{1,40}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
_LONG: Final = 2**63
_MODES: Final = ("PERMISSIVE", "FAILFAST")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "INF": math.inf, "+INF": math.inf,
                   "-Infinity": -math.inf, "-INF": -math.inf}  # fmt: skip


class Unfit(Exception):
    """A value that is not of the type that the schema says."""


@dataclass(slots=True)
class Record:
    """Whether something in a text did not fit."""

    bad: bool = False


Reader = Callable[[Any, Record], Any]
"""From a decoded value to one that Arrow takes. Raises Unfit."""


@dataclass(frozen=True, slots=True)
class Options:
    """mode: PERMISSIVE or FAILFAST. corrupt: name of the column that takes texts of bad rows. zeros: `true` if numbers may begin with 0."""

    mode: str = "PERMISSIVE"
    corrupt: str = "_corrupt_record"
    date: str | None = None
    timestamp: str | None = None
    zeros: str = "false"

    def decoded(self, text: str) -> Any:
        """The first value of a text of JSON. Raises ValueError."""
        return decoded(without_zeros(text) if self.zeros.lower() == "true" else text)


_NAMES: Final = {"mode": "mode", "columnnameofcorruptrecord": "corrupt", "dateformat": "date", "timestampformat": "timestamp",
                 "allownumericleadingzeros": "zeros"}  # fmt: skip


def options_of(node: Node | None, what: str, more: Mapping[str, str] = {}) -> tuple[Options, dict[str, str]]:
    """The options of a call, a map of constants. more: names of other ones, which come out as they are."""
    given = [] if node is None else constant_of(node, f"the options of {what}")
    if not isinstance(given, list):
        raise TypeMismatch(f"the options of {what} are a map of strings, such as map('mode', 'FAILFAST')")
    found, others = dict[str, str](), dict[str, str]()
    for name, value in given:
        if (own := _NAMES.get(str(name).lower())) is not None:
            found[own] = str(value)
        elif str(name).lower() in more:
            others[more[str(name).lower()]] = str(value)
        else:
            raise ExpressionError(f"{what}: there is no option {name!r} here; there are {', '.join([*_NAMES, *more])}")
    mode = found.pop("mode", "PERMISSIVE").upper()
    if mode not in _MODES:
        raise ExpressionError(f"{what}: the mode must be one of {', '.join(_MODES)}, not {mode!r}")
    return Options(mode, **found), others


# ---------------------------------------------------------------- values by their types


def reader_of(type_: Any, options: Options) -> Reader:
    """What makes a decoded value one of the type. Null stays null, but as a variant, of which it is a value."""
    made = _reader(type_, options)
    return made if made is _variant else lambda value, record: None if value is None else made(value, record)


def _reader(type_: Any, options: Options) -> Reader:
    if type_ == VARIANT:
        return _variant
    if pa.types.is_struct(type_):
        return _structure({field.name: (at, _reader(field.type, options)) for at, field in enumerate(type_)}, type_)
    if pa.types.is_map(type_):
        if not stringy(type_.key_type):
            raise TypeMismatch(f"keys of a map in JSON are strings, not {name_of(type_.key_type)}")
        return partial(_map, reader_of(type_.item_type, options))
    if pa.types.is_list(type_):
        return partial(_list, reader_of(type_.value_type, options))
    if stringy(type_):
        return _string
    plain = _plain(type_, options)

    def read(value: Any, record: Record) -> Any:
        return plain(value)

    return read


def _structure(readers: Mapping[str, tuple[int, Reader]], type_: Any) -> Reader:
    nothing = [None] * len(type_)

    def read(value: Any, record: Record) -> Any:
        if type(value) is not Pairs:
            raise Unfit
        row: list[Any] = nothing.copy()
        for name, inner in value:
            if (found := readers.get(name)) is not None:
                at, made = found
                if inner is None and made is not _variant:
                    row[at] = None
                    continue
                try:
                    row[at] = made(inner, record)
                except Unfit:
                    row[at], record.bad = None, True
        return tuple(row)

    return read


def _variant(value: Any, record: Record) -> Any:
    try:
        return variant_form.put_together(variant_text.made_of(value, special=True))
    except ValueError:
        raise Unfit from None


def _list(inner: Reader, value: Any, record: Record) -> Any:
    if not isinstance(value, list):
        raise Unfit
    return [inner(each, record) for each in value]


def _map(inner: Reader, value: Any, record: Record) -> Any:
    if not isinstance(value, Pairs):
        raise Unfit
    return [(whole_letters(name), inner(each, record)) for name, each in value]


def _string(value: Any, record: Record) -> str:
    """What is no string is its JSON."""
    return value if type(value) is str and value.isascii() else compact(value)


def _plain(type_: Any, options: Options) -> Callable[[Any], Any]:
    if type_ == BOOL:
        return _boolean
    if integral(type_):
        return partial(_whole, *bounds(type_))
    if floating(type_):
        return partial(_real, np.float32 if type_ == FLOAT else float)
    if pa.types.is_decimal(type_):
        return partial(_decimal, type_)
    if type_ == DATE:
        return _time(_of_format(options.date, "dateFormat", 86_400_000_000) if options.date else of_text(type_), 0)
    if timestampy(type_):
        pattern = options.timestamp if type_.tz else None  # Spark has another option for times without a zone, and this one not for them.
        return _time(_of_format(pattern, "timestampFormat", 1) if pattern else of_text(type_), 1_000_000 if type_.tz else 0)
    if type_ == BINARY:
        return _binary
    raise TypeMismatch(f"JSON is not read as {name_of(type_)}")


def _of_format(pattern: str, what: str, unit_us: int) -> Callable[[str], int | None]:
    read = formatted.reader(pattern, what)
    return lambda text: None if (found := read(text)) is None else found // unit_us


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit
    return value


def _whole(low: int, high: int, value: Any) -> int:
    if type(value) is not Token or not (value.isdecimal() and value.isascii() and len(value) < 40 or _WHOLE.fullmatch(value)):
        raise Unfit
    number = int(value)
    if not low <= number <= high:
        raise Unfit
    return number


def _real(make: Any, value: Any) -> float:
    if type(value) is Token:
        return float(value) if make is float and value not in _SPECIAL else float(make(_SPECIAL.get(value, value)))
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise Unfit


def _decimal(type_: Any, value: Any) -> Decimal:
    if not isinstance(value, str):
        raise Unfit
    number = decimal_of(type_, value)
    if number is None:
        raise Unfit
    return number


def decimal_of(type_: Any, text: str) -> Decimal | None:
    """A text as a decimal of the type, halves away from zero; commas are passed over. None of what is no number or has too many digits."""
    bare = text.replace(",", "")
    if not _NUMBER.fullmatch(bare):
        return None
    try:
        number = Decimal(bare).quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        return None
    return number if number.copy_abs() < Decimal(10) ** (type_.precision - type_.scale) else None


def _time(read: Callable[[str], int | None], seconds_us: int) -> Callable[[Any], int]:
    """seconds_us: what a second is, where a whole number of them is a time, too; else 0."""

    def one(value: Any) -> int:
        if isinstance(value, Token) and seconds_us and _WHOLE.fullmatch(value):
            if not -_LONG <= int(value) < _LONG:
                raise Unfit
            return (int(value) * seconds_us + _LONG) % (2 * _LONG) - _LONG  # A bigint, which Spark lets run over.
        found = read(value) if isinstance(value, str) and not isinstance(value, Token) else None
        if found is None:
            raise Unfit
        return found

    return one


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, Token):
        raise Unfit
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise Unfit from None


# ---------------------------------------------------------------- from_json


def schema_argument(node: Node, what: str) -> Any:
    """The type that the schema of a call says."""
    text = constant_of(node, f"the schema of {what}")
    if not isinstance(text, str):
        raise TypeMismatch(f"the schema of {what} must be a string, not {node.text}")
    return type_of_text(text, what)


def _from_json(a: Node, schema: Node, given: Node | None = None) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"from_json needs a string, but {a.text} is {name_of(a.type)}; cast it")
    type_ = schema_argument(schema, "from_json")
    if not pa.types.is_nested(type_):
        raise TypeMismatch(f"from_json gives a struct, an array or a map, not {name_of(type_)}")
    options, _ = options_of(given, "from_json")
    read = row_reader(type_, options)
    kernel = over_arrays(lambda array: pa.array(map(read, array.to_pylist()), type_))
    return lift(kernel, type_, cast(a, STRING), raises=options.mode == "FAILFAST")


def row_reader(type_: Any, options: Options) -> Callable[[str | None], Any]:
    """From a text to a value of the type, by the mode. The column for bad texts is no part of what is read."""
    corrupt = None
    fields = pa.types.is_struct(type_) and type_ != VARIANT
    if fields and (at := type_.get_field_index(options.corrupt)) >= 0:
        if not stringy(type_.field(at).type):
            raise TypeMismatch(f"the column {options.corrupt!r} for texts that are no JSON must be a string")
        corrupt, whole = at, type_
        type_ = pa.struct([field for field in whole if field.name != options.corrupt])
    read = _reader(type_, options) if not pa.types.is_list(type_) else _root_list(type_, options)
    empty = (None,) * len(type_) if fields else None

    def one(text: str | None) -> Any:
        if text is None or not text.strip(_BLANK):
            return None
        record = Record()
        try:
            row = read(options.decoded(text), record)
        except (Unfit, ValueError, RecursionError):
            row, record.bad = empty, True
        if record.bad and options.mode == "FAILFAST":
            raise InvalidValue(f"{text[:100]!r} does not fit into {name_of(type_)}; with the mode PERMISSIVE what does not fit is null")
        if corrupt is not None and row is not None:
            row = (*row[:corrupt], text if record.bad else None, *row[corrupt:])
        return row

    return one


def _root_list(type_: Any, options: Options) -> Reader:
    """A list of structures may be one structure."""
    read = _reader(type_, options)
    if not pa.types.is_struct(type_.value_type) or type_.value_type == VARIANT:
        return read
    return lambda value, record: read([value] if isinstance(value, Pairs) else value, record)


# ---------------------------------------------------------------- schema_of_json


def _schema_of_json(a: Node, given: Node | None = None) -> Node:
    text = constant_of(a, "the text of schema_of_json")
    options, _ = options_of(given, "schema_of_json")
    if not isinstance(text, str):
        raise TypeMismatch("schema_of_json needs a string")
    try:
        return literal(pa.scalar(_shown(_inferred(options.decoded(text)))))
    except (ValueError, RecursionError):
        raise InvalidValue(f"{text!r} is no JSON") from None


def _inferred(value: Any) -> Any:
    """A type as a text, a list of one type, or a dict of fields in the order of their names. None of null."""
    if isinstance(value, Pairs):
        return {name: _inferred(inner) for name, inner in sorted(dict(value).items())}
    if isinstance(value, list):
        return [_met([_inferred(each) for each in value])]
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, Token):
        if re.fullmatch(r"-?\d+", value):
            return "BIGINT" if -(2**63) <= int(value) < 2**63 else f"DECIMAL({len(value.lstrip('-'))},0)" if len(value) <= 38 else "DOUBLE"
        return "DOUBLE"
    return None if value is None else "STRING"


def _met(types: Sequence[Any]) -> Any:
    found: Any = None
    for type_ in types:
        if found is None or type_ is None:
            found = type_ if found is None else found
        elif isinstance(found, dict) and isinstance(type_, dict):
            found = {name: _met([found.get(name), type_.get(name)]) for name in sorted({*found, *type_})}
        elif isinstance(found, list) and isinstance(type_, list):
            found = [_met([found[0], type_[0]])]
        elif found != type_:
            found = "DOUBLE" if {found, type_} == {"BIGINT", "DOUBLE"} else "STRING"
    return found


def _shown(type_: Any) -> str:
    if isinstance(type_, dict):
        return f"STRUCT<{', '.join(f'{_named(name)}: {_shown(inner)}' for name, inner in type_.items())}>"
    if isinstance(type_, list):
        return f"ARRAY<{_shown(type_[0])}>"
    return type_ or "STRING"


def _named(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


FUNCTIONS: Final = {
    "from_json": Signature(_from_json, 2, 3),
    "schema_of_json": Signature(_schema_of_json, 1, 2),
}

__all__ = ["FUNCTIONS", "Options", "decimal_of", "options_of", "row_reader", "schema_argument"]
