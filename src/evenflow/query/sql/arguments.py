"""What an argument has to be already: another type is refused by name, and nothing is cast that the user has not cast.

what: the function, as the user called it. A null without a type is a null of the type that is wanted.
"""

from __future__ import annotations

from evenflow.errors import TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node
from evenflow.query.sql.types import BINARY, INT, LONG, NULL, STRING, integral, name_of, stringy


def a_string(node: Node, what: str) -> Node:
    if not stringy(node.type) and node.type != NULL:
        raise TypeMismatch(f"{what} needs a string, but {node.text} is {name_of(node.type)}; cast it")
    return cast(node, STRING)


def a_string_or_bytes(node: Node, what: str) -> Node:
    """As bytes: those of a text are UTF-8."""
    if not stringy(node.type) and node.type not in (BINARY, NULL):
        raise TypeMismatch(f"{what} needs a string or bytes, but {node.text} is {name_of(node.type)}; cast it")
    return cast(node, BINARY)


def an_int(node: Node, what: str) -> Node:
    """An int; what is wider is refused, and so is a text."""
    if not (integral(node.type) and node.type != LONG) and node.type != NULL:
        raise TypeMismatch(f"{what} needs an int, but {node.text} is {name_of(node.type)}; cast it")
    return cast(node, INT)


__all__ = ["a_string", "a_string_or_bytes", "an_int"]
