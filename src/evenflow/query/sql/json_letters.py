"""How Spark writes texts and numbers in JSON."""

from __future__ import annotations

import math
import re
from typing import Final

from evenflow.query.sql.casts import java_double


class Number(str):
    """A number as Spark shows it: whole ones as they stand in the text."""


def real_text(text: str) -> Number:
    """A number with a point or an exponent, as a double; beyond one it is a string."""
    shown = java_double(float(text))
    return Number(shown if math.isfinite(float(text)) else f'"{shown}"')


def whole_text(text: str) -> Number:
    return Number("0" if text == "-0" else text)


_HALF: Final = re.compile("[\ud800-\udfff]")


def whole_letters(text: str) -> str:
    """With a question mark for each half of a character, which an escape can make, as Java writes it."""
    return _HALF.sub("?", text)


_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted_json(text: str) -> str:
    return f'"{_ESCAPED.sub(lambda match: _SHORT.get(match.group()) or f"{chr(92)}u{ord(match.group()):04X}", text)}"'
