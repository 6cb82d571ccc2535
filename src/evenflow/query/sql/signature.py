"""What a function takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evenflow.errors import ExpressionError
from evenflow.query.sql.node import Node


@dataclass(frozen=True, slots=True)
class Signature:
    """build: from argument nodes to the result's. least, most: number of arguments."""

    build: Callable[..., Node]
    least: int
    most: int

    def counts(self) -> str:
        if self.most >= MANY:
            return f"at least {self.least} arguments"
        if self.least == self.most:
            return f"{self.least} argument{'s' if self.least != 1 else ''}"
        return f"{self.least} to {self.most} arguments"


MANY = 1_000


def constant_of(node: Node, what: str) -> object:
    """The Python value of an argument that must be a literal."""
    if node.constant is None:
        raise ExpressionError(f"{what} must be a literal, not {node.text}")
    try:
        return node.constant.as_py()
    except (OverflowError, ValueError):  # Of times beyond Python's.
        raise ExpressionError(f"{what} cannot be {node.text}") from None
