"""More functions of strings: parts by number, distances, masks, what a pattern finds, texts made by a form. All look at rows in Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import octets
from evenflow.query.sql.arguments import a_string, an_int
from evenflow.query.sql.casts import cast, java_double
from evenflow.query.sql.matching import matches
from evenflow.query.sql.nested import checked_map
from evenflow.query.sql.node import InvalidValue, Node, choose, lift, literal, rowwise
from evenflow.query.sql.operators import compare
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.strings import pattern_of, text_part
from evenflow.query.sql.types import (
    BINARY,
    BOOL,
    DOUBLE,
    INT,
    LONG,
    NULL,
    STRING,
    decimal,
    floating,
    integral,
    name_of,
    numeric,
    stringy,
)

_DIGITS: Final = Context(prec=800)


def _of_texts(name: str, function: Callable[..., Any], count: int, type_: pa.DataType = STRING) -> Signature:
    return Signature(lambda *given: rowwise(function, type_, *(a_string(each, name) for each in given)), count, count)


# Parts


def _bit_length(a: Node) -> Node:
    if a.type == BINARY:
        return rowwise(lambda value: 8 * len(value), INT, a)
    return rowwise(lambda text: 8 * len(text.encode()), INT, a_string(a, "bit_length"))


def _char(a: Node) -> Node:
    if not integral(a.type) and a.type != NULL:
        raise TypeMismatch(f"char needs a whole number, but {a.text} is {name_of(a.type)}")
    return rowwise(lambda v: "" if v < 0 else chr(v & 0xFF), STRING, cast(a, LONG))


def _elt(index: Node, *given: Node) -> Node:
    """The text of that number, counted from 1. As in ANSI mode another number is an error."""
    nodes = [a_string(cast(each, STRING) if numeric(each.type) else each, "elt") for each in given]
    place = an_int(index, "elt")

    def refuse(number: int) -> str:
        raise InvalidValue(f"elt has {len(nodes)} texts, and none of the number {number}")

    cases = [(compare("=", place, literal(pa.scalar(at, INT))), node) for at, node in enumerate(nodes, 1)]
    return choose(cases, rowwise(refuse, STRING, place, raises=True))


def _find_in_set(text: str, among: str) -> int:
    parts = among.split(",")
    return parts.index(text) + 1 if "," not in text and text in parts else 0


def _split_part(text: str, mark: str, number: int) -> str:
    if number == 0:
        raise InvalidValue("split_part counts parts from 1, or from -1 for the last one, and 0 is none of them")
    parts = text.split(mark) if mark else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _overlaid(a: Node, new: Node, *given: Node) -> Node:
    places = [an_int(each, "overlay") for each in given]
    if octets.is_octets(a, new):
        return octets.overlaid(a, new, places[0], places[1] if len(places) > 1 else None)
    return rowwise(_overlay, STRING, a_string(a, "overlay"), a_string(new, "overlay"), *places)


def _overlay(text: str, new: str, at: int, count: int = -1) -> str:
    length = len(new) if count < 0 else count
    return text_part(text, 1, at - 1) + new + text_part(text, at + length, 2**31 - 1)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for at, letter in enumerate(old):
        table.setdefault(ord(letter), new[at] if at < len(new) else None)
    return text.translate(table)


# Checked and masked


def _luhn(text: str) -> bool:
    if not re.fullmatch("[0-9]+", text):
        return False
    doubled = [int(d) * (1 + at % 2) for at, d in enumerate(reversed(text))]
    return sum(v - 9 if v > 9 else v for v in doubled) % 10 == 0


_MASKED: Final = ("X", "x", "n", None)


def _mask(a: Node, *given: Node) -> Node:
    marks: list[str | None] = list(_MASKED)
    for at, node in enumerate(given):
        mark = constant_of(node, "a character of mask")
        if mark is not None and (not isinstance(mark, str) or len(mark) != 1):
            raise ExpressionError(f"mask replaces by one character, or leaves what is to be null; {node.text} is neither")
        marks[at] = mark
    upper, lower, digit, other = marks

    def one(letter: str) -> str:
        mark = upper if letter.isupper() else lower if letter.islower() else digit if letter.isdecimal() else other
        return letter if mark is None else mark

    return rowwise(lambda text: "".join(map(one, text)), STRING, a_string(a, "mask"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


# Patterns


def _python(pattern: Node, what: str) -> re.Pattern[str]:
    """The pattern for Python, of those that RE2 knows too."""
    return pattern_of(pattern, what).compiled(what)


def _not_empty(pattern: Node, what: str) -> re.Pattern[str]:
    """Of what matches nothing at all Java finds one between the halves of a character, too."""
    found = _python(pattern, what)
    if found.match("") is not None:
        raise ExpressionError(f"{what}: the pattern {pattern_of(pattern, what).java!r} matches the empty text, which is not available")
    return found


def _units(text: str) -> int:
    """How long it is in Java: what is beyond 16 bits counts twice."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def _group_of(node: Node | None, pattern: re.Pattern[str], text: str, what: str) -> int:
    number = 1 if node is None else constant_of(node, f"the group of {what}")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= pattern.groups:
        raise ExpressionError(f"{what}: the pattern {text!r} has groups 0 to {pattern.groups}, not {number}")
    return number


def _extract_all(a: Node, pattern: Node, group: Node | None = None) -> Node:
    found = _not_empty(pattern, "regexp_extract_all")
    number = _group_of(group, found, pattern_of(pattern, "regexp_extract_all").java, "regexp_extract_all")
    run = lambda text: [match[number] or "" for match in matches(found, text)]  # noqa: E731
    return rowwise(run, pa.list_(STRING), a_string(a, "regexp_extract_all"))


def _count(a: Node, pattern: Node) -> Node:
    found = _not_empty(pattern, "regexp_count")
    return rowwise(lambda text: sum(1 for _ in matches(found, text)), INT, a_string(a, "regexp_count"))


def _instr(a: Node, pattern: Node) -> Node:
    found = _python(pattern, "regexp_instr")
    return rowwise(
        lambda text: 0 if (match := found.search(text)) is None else _units(text[: match.start()]) + 1,
        INT,
        a_string(a, "regexp_instr"),
    )


def _substr(a: Node, pattern: Node) -> Node:
    """The first part that matches, null if there is none."""
    found = _python(pattern, "regexp_substr")
    return rowwise(lambda text: None if (match := found.search(text)) is None else match[0], STRING, a_string(a, "regexp_substr"))


def _split(pattern: re.Pattern[str], text: str, most: int = 0) -> list[str]:
    """Without what groups have matched, which Python puts between the parts."""
    parts, at = list[str](), 0
    for match in matches(pattern, text):
        if most and len(parts) == most:
            break
        parts.append(text[at : match.start()])
        at = match.end()
    return [*parts, text[at:]]


def _str_to_map(a: Node, between: Node | None = None, inside: Node | None = None) -> Node:
    pairs = re.compile(",") if between is None else _python(between, "str_to_map")
    parts = re.compile(":") if inside is None else _python(inside, "str_to_map")
    if pairs.match("") or parts.match(""):
        raise ExpressionError("str_to_map: what stands between pairs, and between a key and its value, cannot be empty")

    def kernel(array: pa.Array) -> pa.Array:
        rows = [[] if text is None else [_split(parts, pair, 1) for pair in _split(pairs, text)] for text in array.to_pylist()]
        keys = pa.array([pair[0] for row in rows for pair in row], STRING)
        values = pa.array([pair[1] if len(pair) > 1 else None for row in rows for pair in row], STRING)
        return checked_map(np.array([len(row) for row in rows], np.int64), keys, values, array.is_null() if array.null_count else None)

    return lift(over_arrays(kernel), pa.map_(STRING, STRING), a_string(a, "str_to_map"), raises=True)


# Made by a form


def _format_number(a: Node, digits: Node) -> Node:
    if not numeric(a.type) and a.type != NULL:
        raise TypeMismatch(f"format_number needs a number, but {a.text} is {name_of(a.type)}; cast it")
    if stringy(digits.type):
        return rowwise(partial(_by_pattern, *_pattern_parts(digits)), STRING, _exact(a))
    if digits.type not in (INT, NULL):
        raise TypeMismatch(f"format_number needs an int, but {digits.text} is {name_of(digits.type)}; cast it")
    return rowwise(_with_commas, STRING, _exact(a), cast(digits, INT))


_PATTERN: Final = re.compile(r"([^#0,.%]*)([#,]*[0,]*)(?:\.(0*)(#*))?([^#0,.%]*)")


def _pattern_parts(node: Node) -> tuple[str, str, int, int, int, int]:
    """Of a pattern such as `$#,##0.00`: what stands before and behind, digits between commas, least and most digits."""
    given = constant_of(node, "the pattern of format_number")
    found = _PATTERN.fullmatch(str(given))
    if found is None or not re.search("[#0]", str(given)) or any(mark in str(given) for mark in "';E\u00a4\u2030"):
        raise ExpressionError(f"format_number: the pattern {given!r} is not one of #, 0, commas and a point")
    before, whole, zeros, more, behind = (part or "" for part in found.groups())
    group = len(whole) - whole.rindex(",") - 1 if "," in whole else 0
    least = whole.count("0") or int("#" in whole and "." in str(given) and not zeros)  # Java's `#.##` has a digit before the point.
    return before, behind, group, least, len(zeros), len(zeros) + len(more)


def _by_pattern(before: str, behind: str, group: int, least: int, zeros: int, most: int, value: Any) -> str:
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else f"{'-' * (value < 0)}{before}\u221e{behind}"
    rounded = abs(_rounded(value, most))
    whole, _, rest = f"{rounded:f}".partition(".")
    whole, rest = whole.lstrip("0").rjust(least, "0"), rest.rstrip("0").ljust(zeros, "0")
    if group:
        first = len(whole) % group
        parts = [whole[:first]] * bool(first) + [whole[at : at + group] for at in range(first, len(whole), group)]
        whole = ",".join(parts)
    shown = (whole or ("" if rest else "0")) + (f".{rest}" if rest else "")
    minus = "-" * (value < 0 or str(value).startswith("-"))
    return f"{minus}{before}{shown}{behind}"


def _exact(a: Node) -> Node:
    return cast(a, DOUBLE) if floating(a.type) or a.type == NULL else a


def _with_commas(value: Any, digits: int) -> str | None:
    if digits < 0:
        return None
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "∞" if value > 0 else "-∞"
    rounded = _rounded(value, digits)
    minus = "-" if (value < 0 or (isinstance(value, float) and str(value).startswith("-"))) else ""
    return minus + f"{abs(rounded):,.{digits}f}"


def _rounded(value: Any, digits: int) -> Decimal:
    shown = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if isinstance(value, float) and abs(_DIGITS.remainder(shown.scaleb(digits, _DIGITS), Decimal(1))) == _HALF:
        shown = Decimal(value)  # A tie of the shortest text is none, if the number is not that text.
    return shown.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN, _DIGITS)


_HALF: Final = Decimal("0.5")
_FORM: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def _format_string(form: Node, *given: Node) -> Node:
    """By Java's letters s, d, f, x, X, o, c, b, n and %, with flags, width and digits."""
    text = constant_of(form, "the form of format_string")
    if text is None:  # Null by what it is given, so a constant only if all of that is.
        nothing = literal(pa.scalar(None, STRING))
        return nothing if all(node.constant is not None for node in given) else replace(nothing, constant=None)
    if not isinstance(text, str):
        raise TypeMismatch("the form of format_string must be a string")
    pieces, at, next_ = list[Any](), 0, 0
    for match in _FORM.finditer(text):
        if "%" in text[at : match.start()]:
            break
        pieces.append(text[at : match.start()])
        at = match.end()
        number, flags, width, digits, letter = match.groups()
        if letter in "%n":
            pieces.append("%" if letter == "%" else "\n")
            continue
        if number is None:
            next_ += 1
        place = int(number or next_) - 1
        if not 0 <= place < len(given):
            raise ExpressionError(f"format_string: {match[0]!r} of {text!r} has no value; {len(given)} are given")
        _check_letter(given[place], letter, flags, digits, match[0])
        behind = None if digits is None else int(digits)
        pieces.append((place, partial(_shown, letter, flags, int(width or 0), behind, _bits(given[place]))))
    if "%" in text[at:]:
        raise ExpressionError(f"format_string: {text[at:]!r} of the form {text!r} is not available")
    pieces.append(text[at:])
    nodes = [cast(each, STRING) if not (integral(each.type) or decimal(each.type) or floating(each.type) or each.type == BOOL) else each
             for each in given]  # fmt: skip

    def one(*values: Any) -> str:
        return "".join(piece if isinstance(piece, str) else piece[1](values[piece[0]]) for piece in pieces)

    if not nodes:
        return literal(pa.scalar(one(), STRING))
    return rowwise(one, STRING, *nodes, nulls=True)


def _check_letter(node: Node, letter: str, flags: str, digits: str | None, shown: str) -> None:
    fits: dict[str, Callable[[pa.DataType], bool]] = {
        **dict.fromkeys("dxXo", integral), "f": floating, "b": lambda t: t == BOOL,
        "s": lambda t: stringy(t) or integral(t) or t in (BOOL, DOUBLE) or decimal(t),
    }  # fmt: skip
    if letter not in fits or "#" in flags or "(" in flags or (digits is not None and letter not in "fs"):
        raise ExpressionError(f"format_string: {shown!r} is not available; there are %s, %d, %f, %x, %o, %b, %n and %%")
    if node.type != NULL and not fits[letter](node.type):
        raise TypeMismatch(f"format_string: {shown!r} does not take {node.text}, which is {name_of(node.type)}")


def _bits(node: Node) -> int:
    return int(node.type.bit_width) if integral(node.type) else 64


def _shown(letter: str, flags: str, width: int, digits: int | None, bits: int, value: Any) -> str:
    text = ("false" if letter == "b" else "null") if value is None else _bare(letter, flags, digits, bits, value)
    if (letter == "s" or value is None) and digits is not None:
        text = text[:digits]
    text, width = text.upper() if letter == "X" else text, width - _units(text) + len(text)
    if value is None or "0" not in flags or letter == "s" or not text[-1:].isalnum() or text.endswith(("N", "y")):
        return text.ljust(width) if "-" in flags else text.rjust(width)
    sign = text[:1] if text[:1] in ("-", "+", " ") else ""
    return sign + text[len(sign) :].rjust(width - len(sign), "0")


def _bare(letter: str, flags: str, digits: int | None, bits: int, value: Any) -> str:
    if letter in "sb":
        return str(value).lower() if isinstance(value, bool) else java_double(value) if isinstance(value, float) else str(value)
    if letter in "xXo":
        return f"{value & ((1 << bits) - 1):{letter}}"
    sign = "+" if "+" in flags else " " if " " in flags else ""
    comma = "," if "," in flags else ""
    if letter == "d":
        return f"{value:{sign}{comma}d}"
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "-Infinity" if value < 0 else f"{sign.strip()}Infinity"
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    places = 6 if digits is None else digits
    return f"{exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _DIGITS):{sign}{comma}.{places}f}"


FUNCTIONS: Final = {
    "bit_length": Signature(_bit_length, 1, 1),
    "char": Signature(_char, 1, 1),
    "chr": Signature(_char, 1, 1),
    "elt": Signature(_elt, 2, MANY),
    "find_in_set": _of_texts("find_in_set", _find_in_set, 2, INT),
    "split_part": Signature(lambda a, b, n: rowwise(_split_part, STRING, a_string(a, "split_part"), a_string(b, "split_part"),
                                                    an_int(n, "split_part"), raises=True), 3, 3),
    "overlay": Signature(_overlaid, 3, 4),
    "translate": _of_texts("translate", _translate, 3),
    "space": Signature(lambda n: rowwise(lambda count: " " * max(count, 0), STRING, an_int(n, "space")), 1, 1),
    "luhn_check": _of_texts("luhn_check", _luhn, 1, BOOL),
    "mask": Signature(_mask, 1, 5),
    "quote": _of_texts("quote", _quoted, 1),
    "regexp_extract_all": Signature(_extract_all, 2, 3),
    "regexp_count": Signature(_count, 2, 2),
    "regexp_instr": Signature(_instr, 2, 2),
    "regexp_substr": Signature(_substr, 2, 2),
    "str_to_map": Signature(_str_to_map, 1, 3),
    "format_number": Signature(_format_number, 2, 2),
    "format_string": Signature(_format_string, 1, MANY),
    "printf": Signature(_format_string, 1, MANY),
}  # fmt: skip
