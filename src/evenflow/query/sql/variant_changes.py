"""Functions that put something into a variant, or leave something out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from evenflow.errors import TypeMismatch
from evenflow.query.sql import variant_edits as edits
from evenflow.query.sql import variant_form as form
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, rowwise
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import STRING
from evenflow.query.sql.variant_form import Tree, tree_of
from evenflow.query.sql.variants import Row, needs_variant, to_variant
from evenflow.stream.schema import VARIANT


def _inner(text: str) -> edits.Steps:
    """A path of at least one step."""
    steps = edits.path_of(text)
    if not steps:
        raise InvalidValue(f"the path {text!r} is the whole variant, which cannot be put into itself or left out")
    return steps


def _set(tried: bool, a: Node, path: Node, value: Node, create: Node | None = None) -> Node:
    how = "set" if create is None or _flag(create, "whether variant_set creates what is missing") else "replace"
    return _put(how, "variant_set", tried, a, path, value)


def _flag(node: Node, what: str) -> bool:
    found = constant_of(node, what)
    if not isinstance(found, bool):
        raise TypeMismatch(f"{what} is true or false, not {node.text}")
    return found


def _put(how: str, name: str, tried: bool, a: Node, path: Node, value: Node) -> Node:
    return _edited(name, tried, a, path, value, lambda tree, steps, new: edits.changed(tree, steps, new, how=how), _inner)


def _append(tried: bool, a: Node, path: Node, value: Node) -> Node:
    return _edited("variant_array_append", tried, a, path, value, edits.appended, edits.path_of)


def _edited(
    name: str,
    tried: bool,
    a: Node,
    path: Node,
    value: Node,
    edit: Callable[[Tree, edits.Steps, Tree], Tree],
    steps_of: Callable[[str], edits.Steps],
) -> Node:
    def one(row: Row, at: str, new: Row) -> form.Bytes | None:
        steps = steps_of(at)
        try:
            return form.put_together(edit(tree_of(row), steps, tree_of(new)))
        except edits.Misplaced:
            if tried:
                return None
            raise

    return rowwise(one, VARIANT, needs_variant(name, a), cast(path, STRING), to_variant(value), raises=True)


def _delete(a: Node, *paths: Node) -> Node:
    def one(row: Row | None, *given: str | None) -> form.Bytes | None:
        if row is None:
            return None
        tree = tree_of(row)
        for at in given:
            tree = tree if at is None else edits.without(tree, _inner(at))
        return form.put_together(tree)

    texts = [cast(path, STRING) for path in paths]
    return rowwise(one, VARIANT, needs_variant("variant_delete", a), *texts, raises=True, nulls=True)


def _strip(a: Node, arrays: Node | None = None) -> Node:
    both = arrays is None or _flag(arrays, "whether variant_strip_nulls looks into arrays")
    node = needs_variant("variant_strip_nulls", a)
    return rowwise(lambda row: form.put_together(edits.stripped(tree_of(row), both)), VARIANT, node, raises=True)


FUNCTIONS: Final = {
    "variant_set": Signature(partial(_set, False), 3, 4),
    "try_variant_set": Signature(partial(_set, True), 3, 4),
    "variant_insert": Signature(partial(_put, "insert", "variant_insert", False), 3, 3),
    "try_variant_insert": Signature(partial(_put, "insert", "variant_insert", True), 3, 3),
    "variant_array_append": Signature(partial(_append, False), 3, 3),
    "try_variant_array_append": Signature(partial(_append, True), 3, 3),
    "variant_delete": Signature(_delete, 2, MANY),
    "variant_strip_nulls": Signature(_strip, 1, 2),
}
