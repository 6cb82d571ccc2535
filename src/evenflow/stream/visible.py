"""Texts of rows, names and recordings as a terminal may be given them: what would steer it is seen instead."""

from __future__ import annotations

import re
from typing import Final

_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with an escape, such as \\x1b, for each control character but tab and line feed, and for each lone surrogate, which no
    file takes. Cost: one look, where there is none."""
    return _STEERING.sub(_escaped, text) if _STEERING.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
