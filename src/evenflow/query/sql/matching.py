"""Matches of regular expressions in the order in which Java finds them, and which patterns Arrow's kernels cannot be given for that."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from evenflow.query.sql.patterns import Pattern

_UNKNOWN: Final = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)|\\.", re.DOTALL)
"""Classes of Unicode, which Python does not have; and other escapes, of which none is one."""


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


def may_be_empty(pattern: Pattern) -> bool:
    """Whether some match of it may have no letters, be it one of a text that has some: \\b. So it is said of what cannot be told."""
    tree = _parsed(pattern.python)
    return tree is None or tree.getwidth()[0] == 0


def looks_around(pattern: Pattern) -> bool:
    """Whether a match depends on where it is (^, $, \\b): of parts of a text it is another one. So it is said of what cannot be told."""
    tree = _parsed(pattern.python)
    return tree is None or _has_place(tree)


def _has_place(tree: Any) -> bool:
    if isinstance(tree, _parser.SubPattern):
        return any(str(code) in ("AT", "ASSERT", "ASSERT_NOT") or _has_place(given) for code, given in tree.data)
    return isinstance(tree, list | tuple) and any(map(_has_place, tree))


@cache
def _parsed(python: str) -> Any:
    """How Python reads it, None if it cannot. Only lengths and places are asked of it."""
    readable = _UNKNOWN.sub(lambda found: "a" if found.group()[1] in "pP" else found.group(), python)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Of sets as [a&&b], whose length is one in every reading.
            return _parser.parse(readable)
    except (re.error, RecursionError, OverflowError):
        return None
