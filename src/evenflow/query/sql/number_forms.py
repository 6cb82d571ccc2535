"""Numbers in texts of a form, read and written: `to_number('$1,234.50', '$9,999.99')` and `to_char(-12, '99S')`.

A form is cut into its parts when the expression is built: groups of digits, a point, a dollar sign, and one sign before or behind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.encodings import FUNCTIONS as ENCODINGS
from evenflow.query.sql.node import InvalidValue, Node, literal, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.times import FUNCTIONS as TIMES
from evenflow.query.sql.types import BINARY, DATE, DOUBLE, NULL, STRING, decimal, integral, name_of, numeric, stringy, timestampy

_MOST_DIGITS: Final = 38
_ORDER: Final = re.compile(r"<?(MI|S)?\$?(?:[09]+(?:,[09]+)*(?:\.[09]*)?|\.[09]+)\$?(MI|S|>)?")
_TOKEN: Final = re.compile(r"MI|[S$.<>]|[09,]+")
_EXACT: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


@dataclass(frozen=True, slots=True)
class Form:
    """parts: groups of digits such as `99,999`, and `.`, `$`, `S`, `MI`, `<`, `>` between them. before, behind: digits around the point."""

    text: str
    parts: tuple[str, ...]
    before: int
    behind: int


def form_of(node: Node, what: str) -> Form:
    """The form of a call. ExpressionError if it is none."""
    given = constant_of(node, f"the format of {what}")
    if not isinstance(given, str):
        raise TypeMismatch(f"the format of {what} must be a string, not {node.text}")
    plain = given.upper().replace("G", ",").replace("D", ".")
    if plain.count("PR") == 1 and plain.endswith("PR"):
        plain = f"<{plain[:-2]}>"
    found = _ORDER.fullmatch(plain)
    digits = re.sub("[^09.]", "", plain)
    if found is None or plain.count("$") > 1 or (found[1] and found[2]) or ("<" in plain) != (">" in plain):
        raise ExpressionError(
            f"{what}: the format {given!r} is not one: digits 0 and 9 with , or G between their groups, a point . or D, $ before them, "
            "and one of S, MI and PR at an end, S and MI at the beginning too"
        )
    if "$" in plain and plain.index("$") > min(at for at in (plain.find("0"), plain.find("9"), plain.find(".")) if at >= 0):
        raise ExpressionError(f"{what}: the $ of the format {given!r} stands before its digits")
    before, _, behind = digits.partition(".")
    if len(before) + len(behind) > _MOST_DIGITS:
        raise ExpressionError(f"{what}: the format {given!r} has more than {_MOST_DIGITS} digits")
    return Form(given, tuple(_TOKEN.findall(plain)), len(before), len(behind))


# Read


def _to_number(tried: bool, name: str, a: Node, given: Node) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"{name} needs a string, but {a.text} is {name_of(a.type)}; cast it")
    form = form_of(given, name)
    type_ = pa.decimal128(form.before + form.behind, form.behind)

    def one(text: str) -> Decimal | None:
        found = _read(form, text)
        if found is None and not tried:
            raise InvalidValue(f"{text!r} is not of the form {form.text!r}; use try_to_number for null instead")
        return found

    return rowwise(one, type_, cast(a, STRING), raises=not tried)


def _read(form: Form, text: str) -> Decimal | None:
    """None if the text is not of the form. Blanks between digits are passed over, as in Spark."""
    at, minus, opened, closed, pointed = 0, False, False, False, False
    before, behind = "", ""
    for part in form.parts:
        here = text[at : at + 1]
        if part[0] in "09,":
            end = at
            while end < len(text) and (_blank_of_java(text[end]) or text[end].isdecimal() or text[end] == ","):
                end += 1
            if not _fits(part, text[at:end], exact=not pointed and "." not in form.parts[: form.parts.index(part)]):
                return None
            found = "".join(letter for letter in text[at:end] if letter.isdecimal())
            before, behind, at = (before, behind + found, end) if pointed else (before + found, behind, end)
        elif part == "." and here == ".":
            pointed, at = True, at + 1
        elif part == "$":
            if here not in ("$", ""):
                return None
            at += len(here)
        elif (part in ("S", "MI") and here == "-") or (part == "S" and here == "+"):
            minus, at = here == "-", at + 1
        elif part == "<" and here == "<":
            opened, at = True, at + 1
        elif part == ">" and here == ">":
            if not opened:
                return None
            minus, closed, at = True, True, at + 1
    if at < len(text) or opened != closed or not before + behind or len(before) > form.before or len(behind) > form.behind:
        return None
    return Decimal(f"{'-' * minus}{before or '0'}.{behind.ljust(form.behind, '0')}")


def _blank_of_java(letter: str) -> bool:
    """Blanks that join words are none to Java."""
    return letter.isspace() and letter not in "\x85\xa0\u2007\u202f"


def _fits(part: str, text: str, exact: bool) -> bool:
    """Whether groups of digits are those of the form, from the last one on: as many if one begins with 0, else at most as many."""
    wanted = part.split(",")[::-1]
    found = [sum(letter.isdecimal() for letter in group) for group in text.split(",")][::-1]
    if len(found) > len(wanted):
        return False
    found += [0] * (len(wanted) - len(found))
    return all(
        count == len(group) if exact and group.startswith("0") else count <= len(group) for group, count in zip(wanted, found, strict=True)
    )


# Written


def _to_char(name: str, a: Node, given: Node) -> Node:
    """A number by a form, a time by a pattern, bytes in base 64, hexadecimal digits or UTF-8."""
    timely = a.type == DATE or timestampy(a.type)
    if not (timely or a.type in (BINARY, NULL) or stringy(a.type) or numeric(a.type)):
        raise TypeMismatch(f"{name} needs a number, a time or bytes, but {a.text} is {name_of(a.type)}")
    if given.type == NULL:
        return literal(pa.scalar(None, STRING))
    if timely:
        return TIMES["date_format"].build(a, given)
    if a.type == BINARY:
        return _bytes(name, a, given)
    if not numeric(a.type):
        a = cast(a, DOUBLE)
    form = form_of(given, name)
    if not decimal(a.type):
        a = cast(a, pa.decimal128(_EXACT[name_of(a.type)], 0) if integral(a.type) else pa.decimal128(30, 15))
    return rowwise(partial(_written, form), STRING, a)


def _bytes(name: str, a: Node, given: Node) -> Node:
    wanted = str(constant_of(given, f"the format of {name}")).lower().strip()
    if wanted in ("base64", "hex"):
        return ENCODINGS[wanted].build(a)
    if wanted == "utf-8":
        return ENCODINGS["decode"].build(a, literal(pa.scalar("UTF-8")))
    raise ExpressionError(f"{name}: the format of bytes is 'base64', 'hex' or 'utf-8', not {wanted!r}")


def _written(form: Form, value: Decimal) -> str:
    before, _, behind = f"{abs(value):f}".partition(".")
    before, behind = before.lstrip("0"), behind.rstrip("0")
    if len(before) > form.before or len(behind) > form.behind:
        before, behind = "#" * form.before, "#" * form.behind
    before, behind = before.rjust(form.before), behind.ljust(form.behind, "0")
    shown: list[str] = []
    pointed = False
    for part in form.parts:
        if part[0] in "09,":
            if pointed:
                shown += behind
            else:
                before = _grouped(shown, part, before)
        elif part == ".":
            if shown and shown[-1] == " ":
                shown[-1] = "0"
            shown.append(".")
            pointed = True
        elif part == "$":
            shown.append("$")
        else:
            _signed(shown, part, value < 0)
    _without_point(shown)
    text = "".join(shown)
    return text if text not in ("", "+", "-") else "0"


def _grouped(shown: list[str], part: str, digits: str) -> str:
    """Put digits of a number behind what is shown, and give those that are left."""
    for at, group in enumerate(part.split(",")):
        if at and shown and shown[-1].isdigit():
            shown.append(",")
        elif at:
            _blank(shown)
        for _ in group:
            digit, digits = digits[0], digits[1:]
            if digit != " ":
                shown.append(digit)
            elif group.startswith("0"):
                shown.append("0")
            else:
                _blank(shown)
    return digits


def _blank(shown: list[str]) -> None:
    """A blank, before a sign that stands there."""
    at = len(shown)
    while at and shown[at - 1] in ("+", "-", "<"):
        at -= 1
    shown.insert(at, " ")


def _signed(shown: list[str], part: str, minus: bool) -> None:
    if part == "<":
        shown += ["<"] * minus
        return
    if part != "MI" or minus:
        _without_point(shown)
    if part == "S" or minus:
        at = len(shown)
        while at and shown[at - 1] == " ":
            at -= 1
        shown.insert(at, {"S": "-" if minus else "+", "MI": "-", ">": ">"}[part])
    else:
        shown += [" "] * (2 if part == ">" else 1)


def _without_point(shown: list[str]) -> None:
    """A point with nothing behind it is left blank."""
    if "." in shown and (shown.index(".") == len(shown) - 1 or shown[shown.index(".") + 1] == " "):
        shown[shown.index(".")] = " "


def _signatures(names: Sequence[str], build: Any) -> dict[str, Signature]:
    return {name: Signature(partial(build, name), 2, 2) for name in names}


FUNCTIONS: Final = {
    **_signatures(["to_char", "to_varchar"], _to_char),
    **_signatures(["to_number"], partial(_to_number, False)),
    **_signatures(["try_to_number"], partial(_to_number, True)),
}
