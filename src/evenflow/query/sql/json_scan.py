"""JSON texts to values, as Spark reads them: numbers keep their text, objects what they have twice, and single quotes are quotes.

The standard library decodes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from evenflow.query.sql.json_letters import quoted_json, real_text, whole_letters, whole_text

_STRINGS: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
_BLANK: Final = " \t\r\n"
_WHOLE: Final = re.compile(r"-?\d+", re.ASCII)


class Token(str):
    """A number as it stands in the text, or NaN and the infinities."""

    __slots__ = ()


class Pairs(tuple[tuple[str, Any], ...]):
    """An object: its names and values, in order."""

    __slots__ = ()


_DECODER: Final = json.JSONDecoder(object_pairs_hook=Pairs, parse_float=Token, parse_int=Token, parse_constant=Token, strict=True)


def decoded(text: str) -> Any:
    """The first value of a text: Pairs, list, str, Token, bool or None. Raises ValueError if it does not begin with one."""
    begin = len(text) - len(text.lstrip(_BLANK))
    try:
        found, end = _DECODER.raw_decode(text, begin)
    except ValueError:
        if "'" not in text:
            raise
        text = _STRINGS.sub(lambda match: match.group() if match[1] is None else _doubled(match[1]), text)
        found, end = _DECODER.raw_decode(text, begin)
    if isinstance(found, Token) and text[end : end + 1].strip():
        raise ValueError("a number goes on as something else")
    return found


def first_value(text: str) -> tuple[Any, int]:
    """The first value of a text of strict JSON, and where it ends. Raises ValueError."""
    return _DECODER.raw_decode(text, len(text) - len(text.lstrip(_BLANK)))


_ZEROS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.+-])(-?)0+(?=\d)', re.DOTALL)


def without_zeros(text: str) -> str:
    """With no zeros before the digits of numbers, as the option allowNumericLeadingZeros reads them."""
    return _ZEROS.sub(lambda match: match.group() if match[1] is None else match[1], text)


def _doubled(inside: str) -> str:
    return '"' + inside.replace("\\'", "'").replace('"', '\\"') + '"'


def compact(value: Any) -> str:
    """A value as JSON without blanks, as Spark has it where a schema wants a string; a string is itself."""
    return whole_letters(value) if isinstance(value, str) and not isinstance(value, Token) else _written(value)


def _written(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{quoted_json(name)}:{_written(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, Token):
        return whole_text(value) if _WHOLE.fullmatch(value) else str(value) if value[-1:] in "Ny" else real_text(value)
    return quoted_json(value) if isinstance(value, str) else "null" if value is None else "true" if value else "false"
