"""Regular expressions as Java reads them, for Python's `re`, and which of them Arrow's kernels cannot be given.

Patterns are RE2's, which has no look-around and no back-references; this file is asked of those that RE2 has taken.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

_PIECE: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|[.$^]", re.DOTALL)
_LETTER: Final = r"[^\n\r\u0085\u2028\u2029]"
_LINE_END: Final = r"(?:(?=[\r\u0085\u2028\u2029]|\Z)|(?<!\r)(?=\n))"
_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=[\n\u0085\u2028\u2029])|(?<=\r)(?!\n)))"
_END: Final = r"(?:(?=(?:\r\n|[\r\u0085\u2028\u2029])?\Z)|(?<!\r)(?=\n\Z))"


def as_java(text: str) -> str:
    """With the ends of lines that Java knows: a point takes none of them, and `$` stands before the last of them, too; with the flag m both
    `^` and `$` stand at each of them, but no line begins at the end of the text."""
    flags = "".join(re.findall(r"\(\?(\w+)", text))
    ends = {"$": _LINE_END, "^": _LINE_START} if "m" in flags else {"$": _END}
    meant = {**({} if "s" in flags else {".": _LETTER}), **ends}
    return _PIECE.sub(lambda match: meant.get(match.group(), match.group()), text)


def compiled(pattern: str) -> re.Pattern[str]:
    """For Python. Raises re.error for what only RE2 knows."""
    if _CLASS.search(pattern):
        raise re.error("classes such as [:alpha:] are not available in it")
    return re.compile(as_java(pattern), re.ASCII)


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """In Java's order: behind a match of nothing it goes on with the next letter, where Python first looks for a longer one at the same."""
    at = 0
    while at <= len(text) and (found := pattern.search(text, at)) is not None:
        yield found
        at = found.end() + (found.start() == found.end())


def replaced(pattern: re.Pattern[str], new: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with each match replaced."""
    parts, at = list[str](), 0
    for found in matches(pattern, text):
        parts += [text[at : found.start()], new(found)]
        at = found.end()
    return "".join([*parts, text[at:]])


def may_be_empty(pattern: str) -> bool:
    """Whether some match of it may have no letters, be it one of a text that has some: \\b. So it is said of what cannot be told."""
    tree = _parsed(pattern)
    return tree is None or tree.getwidth()[0] == 0


def looks_around(pattern: str) -> bool:
    """Whether a match depends on where it is (^, $, \\b): of parts of a text it is another one. So it is said of what cannot be told."""
    tree = _parsed(pattern)
    return tree is None or _has_place(tree)


def _has_place(tree: Any) -> bool:
    if isinstance(tree, _parser.SubPattern):
        return any(str(code) == "AT" or _has_place(given) for code, given in tree.data)
    return isinstance(tree, list | tuple) and any(map(_has_place, tree))


_CLASS: Final = re.compile(r"\[:\^?\w+:\]")
_OWN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|(?P<letter>\\[pP](?:\{\^?\w+\}|\w)|\\x\{[0-9a-fA-F]+\}|\\C|\[:\^?\w+:\])|(?P<end>\\z)"
    r"|(?P<flags>\(\?[imsU-]+(?P<group>[:)]))|(?P<named>\(\?<(?=\w))|\\.",
    re.DOTALL,
)


def _readable(match: re.Match[str]) -> str:
    """What only RE2 writes so, as Python writes what is as long."""
    if match["quoted"] is not None:
        return re.escape(match["quoted"])
    if match["letter"]:
        return "a"
    if match["end"]:
        return r"\Z"
    if match["flags"]:
        return "(?:" if match["group"] == ":" else "(?:)"
    return "(?P<" if match["named"] else match.group()


@cache
def _parsed(pattern: str) -> Any:
    """How Python reads it, None if it cannot. Only lengths and places are asked of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Of sets as [a&&b], whose length is one in every reading.
            return _parser.parse(_OWN.sub(_readable, pattern))
    except (re.error, RecursionError, OverflowError):
        return None
