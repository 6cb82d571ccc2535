"""How deep an expression may be nested, and the room on Python's stack that this takes.

The parser, the type check and the compiled tree are all recursive. Python ends a recursion at some 1,000 frames, counted from wherever the
caller is, so the same text could be read in the driver and not at a site. Here the limit is on the text: what is less deep has room
everywhere, what is deeper is refused with a typed error, wherever it is read. AND and OR are made flat before, so that any number of
conditions in a row is no depth.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlglot import exp

from evenflow.errors import ExpressionError

DEEPEST: Final = 500
"""Levels of operators and functions within each other."""
LONGEST_NUMBER: Final = 400
SHALLOW: Final = 50
"""An expression of so many levels runs in whatever room there is."""
FRAMES: Final = 6_000
"""Frames of Python: the parser takes some 25 for a pair of parentheses, whatever else is done some ten for a level."""
ADVICE: Final = "compute parts of it as columns before, with .with_columns(...) or in a subquery, or write x IN (...) for many comparisons"
_CONNECTORS: Final = (exp.And, exp.Or)


_INSIDE: Final[list[int]] = []
"""The limits that whoever is in there needs. The limit is the interpreter's, so threads share it."""
_BEFORE: Final[list[int]] = []
"""The limit that was before the first of them."""


@contextmanager
def room(what: str) -> Iterator[None]:
    """Room for a recursion over an expression. what: its text or its kind, for the message. Raises ExpressionError if it is too deep."""
    if not _INSIDE:
        _BEFORE[:] = [sys.getrecursionlimit()]
    needed = _depth_here() + FRAMES
    _INSIDE.append(needed)
    _set_limit()
    try:
        yield
    except RecursionError:
        raise too_deep(what) from None
    finally:
        _INSIDE.remove(needed)
        _set_limit()


def _set_limit() -> None:
    """As many frames as the deepest needs; those that were allowed before when nobody is in there any more."""
    limit = max([*_BEFORE, *_INSIDE])
    if limit != sys.getrecursionlimit() and limit > _depth_here() + 50:
        sys.setrecursionlimit(limit)


def _depth_here() -> int:
    """Frames below this one."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def too_deep(what: str) -> ExpressionError:
    """The error for an expression that is nested too deeply."""
    shown = what if len(what) <= 60 else f"{what[:57]}..."
    return ExpressionError(f"{shown!r} is nested too deeply; {ADVICE}")


def depth_of(tree: exp.Expr) -> int:
    """Levels of a tree. Does not recurse itself."""
    level, nodes = 0, [tree]
    while nodes:
        level, nodes = level + 1, [child for node in nodes for child in node.iter_expressions()]
    return level


def check_depth(tree: exp.Expr, what: str) -> None:
    """Raise ExpressionError if a tree is deeper than may be, or has a number that is longer than any type holds."""
    if depth_of(tree) > DEEPEST:
        raise too_deep(what)
    for literal in tree.find_all(exp.Literal):
        if literal.is_string:
            continue
        if len(literal.this) > LONGEST_NUMBER:
            raise ExpressionError(f"the number {literal.this[:20]}... has {len(literal.this)} digits; write one that a double can hold")
        try:
            float(literal.this)
        except ValueError:
            raise ExpressionError(f"{literal.this!r} is no number; write one such as 10, 0.5 or 1E6") from None


def flattened(tree: exp.Expr) -> exp.Expr:
    """The tree with each row of ANDs, and of ORs, as deep as its logarithm: the operands stay in order, and so does what guards what."""
    tops = [
        node
        for node in tree.walk()
        if isinstance(node, _CONNECTORS) and not isinstance(node.parent, type(node)) and isinstance(node.this, type(node))
    ]
    for top in reversed(tops):
        operands: list[exp.Expr] = []
        waiting: list[exp.Expr] = [top]
        while waiting:
            node = waiting.pop()
            if type(node) is type(top):
                waiting += [node.expression, node.this]
            else:
                operands.append(node)
        if len(operands) > 3:
            made = _balanced(type(top), operands)
            made.meta.update(top.meta)
            if top is tree:
                tree = made
            else:
                top.replace(made)
    return tree


def _balanced(kind: type[exp.Expr], operands: list[exp.Expr]) -> exp.Expr:
    while len(operands) > 1:
        pairs = [kind(this=one, expression=other) for one, other in zip(operands[::2], operands[1::2])]
        operands = pairs + operands[len(pairs) * 2 :]
    return operands[0]
