"""JSON in columns: what stands at a path of a text, and values written as JSON. Both look at each row in Python."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import times, variant_form, variant_text
from evenflow.query.sql.arguments import a_string
from evenflow.query.sql.casts import cast, java_double, java_float
from evenflow.query.sql.json_letters import Number, quoted_json, real_text, whole_letters, whole_text
from evenflow.query.sql.node import Kernel, Node, Value, lift, literal, rowwise, spread
from evenflow.query.sql.shapes import elements_of, entries_of, lengths_of, over_arrays
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import DATE, FLOAT, NULL, STRING, TIMESTAMP_NTZ, floating, name_of, stringy, timestampy
from evenflow.stream.schema import VARIANT

_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\['([^']+)'\]")


_STRINGS: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=real_text, parse_int=whole_text, parse_constant=_refuse, strict=False
)
"""Objects are tuples of pairs, arrays are lists: what a text has twice stays there twice."""


def _path(text: str) -> list[str | int | None]:
    """The steps of a path such as `$.a[0].b[*]`, None for each `[*]`. ExpressionError for what is no path."""
    steps, at = list[str | int | None](), 1
    while at < len(text):
        if text.startswith("[*]", at):
            steps.append(None)
            at += 3
            continue
        match = _STEP.match(text, at)
        if match is None or "*" in match.group():
            raise ExpressionError(
                f"get_json_object: the path {text!r} must be made of .name, ['name'], [0] and [*]; Spark does others below withWatermark"
            )
        name, place, quoted = match.groups()
        steps.append(int(place) if place is not None else name if name is not None else quoted)
        at = match.end()
    return steps


def _get_json_object(a: Node, path: Node) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"get_json_object needs a string, but {a.text} is {name_of(a.type)}; cast it")
    given = constant_of(path, "the path of get_json_object")
    if given is None:
        return literal(pa.scalar(None, STRING))
    if not isinstance(given, str) or not given.startswith("$"):
        raise ExpressionError(f"get_json_object: a path begins with $, and {given!r} does not")
    steps = _path(given)
    if None in steps:
        return rowwise(partial(_all_at, steps), STRING, cast(a, STRING))
    return rowwise(partial(_at, [step for step in steps if step is not None]), STRING, cast(a, STRING))


def _all_at(steps: Sequence[str | int | None], text: str) -> str | None:
    """What stands at a path with `[*]`: a list of it, or it alone where there is one, as Hive has it."""
    try:
        made = _matches(_decoded(text), tuple(steps), "raw")
    except (ValueError, RecursionError):
        return None
    return "".join(made) if made else None


def _matches(value: Any, steps: tuple[str | int | None, ...], style: str) -> list[str]:
    """The texts of what is there. style: raw has strings bare, quoted as JSON, flat is quoted with the elements of lists in their place."""
    if not steps:
        if style == "raw" and isinstance(value, str) and not isinstance(value, Number):
            return [] if whole_letters(value) != value else [value]
        if style == "flat" and isinstance(value, list):
            return [text for each in value for text in _matches(each, (), style)]
        return [_again(value)]
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        held = [inner for name, inner in value if name == step and inner is not None] if isinstance(value, tuple) else []
        return next((made for inner in held if (made := _matches(inner, rest, style))), [])
    if not isinstance(value, list):
        return []
    if isinstance(step, int):
        below = "quoted" if rest[:1] == (None,) else style
        return _matches(value[step], rest, below) if step < len(value) else []
    if rest[:1] == (None,):
        return [f"[{','.join(text for each in value for text in _matches(each, rest[1:], 'flat'))}]"]
    made = [text for each in value for text in _matches(each, rest, "flat" if style == "flat" else "quoted")]
    if style == "quoted" or len(made) > 1:
        return [f"[{','.join(made)}]"] if made else []
    return made


def _at(steps: Sequence[str | int], text: str) -> str | None:
    """What stands there, as text. None if there is nothing, or the text is no JSON."""
    try:
        found = _decoded(text)
    except (ValueError, RecursionError):
        return None
    named = False
    for step in steps:
        if isinstance(step, int):
            if not isinstance(found, list) or step >= len(found):
                return None
            found, named = found[step], False
        else:
            if not isinstance(found, tuple):
                return None
            values = [value for name, value in found if name == step and value is not None]
            if not values:
                return None
            found, named = values[0], True
    if found is None:
        return None if named else "null"
    if isinstance(found, str):
        return None if whole_letters(found) != found else found  # Jackson does not write half a character as it is.
    return _again(found)


def _decoded(text: str) -> Any:
    """The first value of a text. Raises ValueError if it does not begin with one."""
    try:
        found, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
    except ValueError:
        if "'" not in text:
            raise
        text = _STRINGS.sub(lambda match: match.group() if match[1] is None else _doubled(match[1]), text)
        found, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
    if isinstance(found, Number) and text[end : end + 1].strip():
        raise ValueError("a number goes on as something else")
    return found


def _doubled(inside: str) -> str:
    """A string in single quotes, which Spark reads too, in double ones."""
    return '"' + inside.replace("\\'", "'").replace('"', '\\"') + '"'


def _again(value: Any) -> str:
    """A value that was read, as JSON without spaces."""
    if isinstance(value, tuple):
        return "{" + ",".join(f"{quoted_json(name)}:{_again(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_again, value)) + "]"
    if isinstance(value, Number):
        return str(value)
    return quoted_json(value) if isinstance(value, str) else json.dumps(value)


# Written


def _to_json(a: Node, given: Node | None = None) -> Node:
    if not pa.types.is_nested(a.type):
        raise TypeMismatch(f"to_json needs a struct, an array, a map or a variant, but {a.text} is {name_of(a.type)}")
    write = _writer(a.type, _Writing.of(given))
    return lift(over_arrays(lambda array: pa.array(write(array), STRING)), STRING, a)


Writer = Callable[[pa.Array], list[str | None]]


@dataclass(frozen=True, slots=True)
class _Writing:
    """How JSON is written. nulls: fields that are null are there, too. ordered: fields by their names. date, timestamp: patterns."""

    nulls: bool = False
    ordered: bool = False
    date: str | None = None
    timestamp: str | None = None

    @staticmethod
    def of(node: Node | None) -> _Writing:
        given = [] if node is None else constant_of(node, "the options of to_json")
        if not isinstance(given, list):
            raise TypeMismatch("the options of to_json are a map of strings, such as map('dateFormat', 'dd/MM/yyyy')")
        found = {str(name).lower(): str(value) for name, value in given}
        if other := [name for name in found if name not in ("ignorenullfields", "sortkeys", "dateformat", "timestampformat")]:
            raise ExpressionError(
                f"to_json: there is no option {other[0]!r} here; there are ignoreNullFields, sortKeys, dateFormat, timestampFormat"
            )
        nulls, ordered = found.get("ignorenullfields", "true") == "false", found.get("sortkeys", "false") == "true"
        return _Writing(nulls, ordered, found.get("dateformat"), found.get("timestampformat"))


def _writer(type_: Any, how: _Writing) -> Writer:
    """What gives the JSON of each value of an array, None of null."""
    if type_ == VARIANT:
        return _variants
    if pa.types.is_struct(type_):
        names = [quoted_json(field.name) for field in type_]
        order = sorted(range(len(names)), key=lambda at: str(type_[at].name)) if how.ordered else range(len(names))
        return partial(_structs, names, [_writer(field.type, how) for field in type_], list(order), how.nulls)
    if pa.types.is_map(type_):
        key = _bracketed(type_.key_type) if pa.types.is_nested(type_.key_type) else _shown(type_.key_type)
        return partial(_maps, key, _writer(type_.item_type, how))
    if pa.types.is_list(type_):
        return partial(_lists, _writer(type_.value_type, how))
    pattern = how.date if type_ == DATE else how.timestamp if timestampy(type_) else None
    if pattern is not None:
        shown = by_pattern(type_, pattern)
        return lambda array: [None if v is None else quoted_json(v) for v in shown(array).to_pylist()]
    return _plain(type_)


def _variants(array: pa.Array) -> list[str | None]:
    rows = array.to_pylist()
    return [None if row is None else variant_text.to_json(variant_form.tree_of(row)) for row in rows]


def by_pattern(type_: pa.DataType, pattern: str) -> Kernel:
    """Dates and timestamps by a pattern of date_format."""
    node = times.by_pattern(Node(type_, lambda batch: batch.column(0)), pattern)
    return lambda array: spread(node.run(pa.record_batch({"": array})), len(array))


def _structs(names: Sequence[str], writers: Sequence[Writer], order: Sequence[int], nulls: bool, array: pa.Array) -> list[str | None]:
    """Fields that are null are left out, if not said otherwise."""
    columns = [write(part) for write, part in zip(writers, array.flatten(), strict=True)]
    rows: Iterable[Sequence[str | None]] = zip(*columns, strict=True) if columns else [()] * len(array)
    if nulls:
        rows = ([text or "null" for text in row] for row in rows)
    if list(order) != list(range(len(names))):
        names, rows = [names[at] for at in order], ([row[at] for at in order] for row in rows)
    made = ["{" + ",".join(f"{name}:{text}" for name, text in zip(names, row, strict=True) if text is not None) + "}" for row in rows]
    return [text if there else None for text, there in zip(made, array.is_valid().to_pylist(), strict=True)]


def _lists(write: Writer, array: pa.Array) -> list[str | None]:
    return _grouped([text or "null" for text in write(elements_of(array))], array, "[]")


def _shown(type_: pa.DataType) -> Writer:
    """As a cast to a string writes it."""
    node = cast(Node(type_, lambda batch: batch.column(0)), STRING)
    return lambda array: spread(node.run(pa.record_batch({"": array})), len(array)).to_pylist()


def _bracketed(type_: Any) -> Writer:
    """Structures and lists as Java shows them: [1,x,[2,3]]."""
    if pa.types.is_struct(type_):
        parts = [_bracketed(field.type) for field in type_]
        return lambda array: [
            f"[{','.join(map(str, row))}]" if there else "null"
            for row, there in zip(
                zip(*(part(column) for part, column in zip(parts, array.flatten(), strict=True)), strict=True), array.is_valid().to_pylist()
            )
        ]
    if pa.types.is_list(type_):
        item = _bracketed(type_.value_type)
        return lambda array: _grouped([str(text) for text in item(elements_of(array))], array, "[]")
    write = _shown(type_)
    return lambda array: ["null" if text is None else text for text in write(array)]


def _maps(key: Writer, write: Writer, array: pa.Array) -> list[str | None]:
    keys, items = entries_of(array)
    return _grouped([f"{quoted_json(str(name))}:{text or 'null'}" for name, text in zip(key(keys), write(items), strict=True)], array, "{}")


def _grouped(parts: Sequence[str], array: pa.Array, ends: str) -> list[str | None]:
    made, at = list[str | None](), 0
    for length, there in zip(lengths_of(array).tolist(), array.is_valid().to_pylist(), strict=True):
        made.append(ends[0] + ",".join(parts[at : at + length]) + ends[1] if there else None)
        at += length
    return made


def _plain(type_: pa.DataType) -> Writer:
    """Numbers as they are, what is none of them as a string. TypeMismatch of what has no text here."""
    if type_ == NULL:
        return lambda array: [None] * len(array)
    if floating(type_):
        real = java_float if type_ == FLOAT else java_double
        return _each(lambda value: real(value) if math.isfinite(value) else quoted_json(real(value)))
    if pa.types.is_binary(type_):
        return _each(lambda value: quoted_json(base64.b64encode(value).decode()))
    if pa.types.is_decimal(type_):
        return _each(str)
    try:
        texts = plain_text(type_)
    except TypeMismatch:
        raise TypeMismatch(f"to_json does not write values of the type {name_of(type_)}; make numbers or texts of them before") from None
    shown = _each(str if pa.types.is_integer(type_) or pa.types.is_boolean(type_) else quoted_json)
    return lambda array: shown(texts(array))


def _each(show: Callable[[Any], str]) -> Writer:
    return lambda array: [None if value is None else show(value) for value in array.to_pylist()]


def plain_text(type_: Any) -> Kernel:
    """Times with three digits of a second, and Z where they have a zone."""
    if not timestampy(type_):
        node = cast(Node(type_, lambda batch: batch.column(0)), STRING)
        return lambda array: spread(node.run(pa.record_batch({"": array})), len(array))
    zone = "Z" if type_.tz else ""

    def kernel(array: Value) -> Value:
        plain = array.cast(pa.int64()).cast(TIMESTAMP_NTZ)
        text = pc.replace_substring_regex(plain_text(DATE)(plain.cast(pa.date32(), safe=False)), pattern="$", replacement="T")
        clock = pc.utf8_slice_codeunits(pc.strftime(plain, format="%H:%M:%S"), 0, 12)
        return pc.binary_join_element_wise(text, clock, zone, "")

    return kernel


def _array_length(text: str) -> int | None:
    found = _read_whole(text)
    return len(found) if isinstance(found, list) else None


def _object_keys(text: str) -> list[str] | None:
    found = _read_whole(text)
    return [whole_letters(name) for name, _ in found] if isinstance(found, tuple) else None


def _read_whole(text: str) -> Any:
    """None if it is no JSON."""
    try:
        return _decoded(text)
    except (ValueError, RecursionError):
        return None


def _tuple(a: Node, *names: Node) -> Node:
    """json_tuple: a structure c0, c1, ... of what stands at these names, as texts."""
    wanted = [constant_of(name, "a name of json_tuple") for name in names]
    if not all(isinstance(name, str) for name in wanted):
        raise TypeMismatch("the names of json_tuple are strings")
    type_ = pa.struct([(f"c{at}", STRING) for at in range(len(wanted))])

    def one(text: str | None) -> dict[str, str | None]:
        found = None if text is None else _read_whole(text)
        pairs = [(name, value) for name, value in found if value is not None] if isinstance(found, tuple) else []
        held = dict(reversed(pairs))
        shown = [held.get(str(name)) for name in wanted]
        return {f"c{at}": None if v is None else whole_letters(v) if isinstance(v, str) else _again(v) for at, v in enumerate(shown)}

    return lift(over_arrays(lambda array: pa.array(map(one, array.to_pylist()), type_)), type_, a_string(a, "json_tuple"), strict=False)


FUNCTIONS: Final = {
    "json_array_length": Signature(lambda a: rowwise(_array_length, pa.int32(), a_string(a, "json_array_length")), 1, 1),
    "json_object_keys": Signature(lambda a: rowwise(_object_keys, pa.list_(STRING), a_string(a, "json_object_keys")), 1, 1),
    "_json_tuple": Signature(_tuple, 2, MANY),
    "get_json_object": Signature(_get_json_object, 2, 2),
    "to_json": Signature(_to_json, 1, 2),
}
