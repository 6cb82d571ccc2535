"""Paths into variants, and what is put, added, left out there. Trees in, trees out."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from evenflow.query.sql import variant_form as form
from evenflow.query.sql.node import InvalidValue
from evenflow.query.sql.variant_form import Tree

Steps = tuple[str | int, ...]
"""Names of fields and places in arrays."""

_STEP: Final = re.compile(r"""\[(\d+)\]|\.([^.\[]+)|\['([^'?]+)'\]|\["([^"?]+)"\]""")
_MOST_PLACE: Final = 2**31 - 1
_MOST_ITEMS: Final = 1_000_000


@lru_cache(maxsize=1024)
def path_of(text: str) -> Steps:
    """The steps of `$.a[0]['b c']`. Raises InvalidValue for what is none."""
    steps, at = list[str | int](), 1
    if not text.startswith("$"):
        raise InvalidValue(f"{text!r} is no path into a variant: it begins with $")
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise InvalidValue(f"{text!r} is no path into a variant: behind $ there are .name, ['name'] and [0]")
        if found[1] is not None and int(found[1]) > _MOST_PLACE:
            raise InvalidValue(f"{text!r}: there is no place {found[1]} in an array")
        steps.append(int(found[1]) if found[1] is not None else found[2] or found[3] or found[4])
        at = found.end()
    return tuple(steps)


def at_path(row: dict[str, bytes], steps: Steps) -> Tree | None:
    """What is there; None if nothing is."""
    found: Tree = form.tree_of(row)
    for step in steps:
        if isinstance(found, dict) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int):
            found = found[step] if step < len(found) else None
        else:
            return None
    return found


class Misplaced(InvalidValue):
    """A path leads through a value that has no such parts, or to a field that is there already."""


def _misplaced(step: str | int, tree: Tree) -> Misplaced:
    wanted, kind = "an object" if isinstance(step, str) else "an array", form.kind_of(tree)
    return Misplaced(f"the path of a variant has the step {step!r}, which needs {wanted}, and there is a value of the kind {kind}")


def changed(tree: Tree, steps: Steps, value: Tree, *, how: str) -> Tree:
    """With the value at the path. how: `set` puts it in the place of what is there, `replace` only if something is, `insert` adds it."""
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if not isinstance(tree, dict):
            raise _misplaced(step, tree)
        return _changed_field(tree, step, rest, value, how)
    if not isinstance(tree, list):
        raise _misplaced(step, tree)
    return _changed_item(tree, step, rest, value, how)


def _changed_field(tree: dict[str, Tree], step: str, rest: Steps, value: Tree, how: str) -> Tree:
    if step not in tree:
        return tree if how == "replace" else {**tree, step: _made(rest, value)}
    if rest:
        return {**tree, step: changed(tree[step], rest, value, how=how)}
    if how == "insert":
        raise Misplaced(f"the field {step!r} is there already; variant_set puts another value there")
    return {**tree, step: value}


def _changed_item(tree: list[Tree], step: int, rest: Steps, value: Tree, how: str) -> Tree:
    if step >= len(tree):
        return tree if how == "replace" else [*tree, *_nulls(step - len(tree)), _made(rest, value)]
    if rest:
        return [*tree[:step], changed(tree[step], rest, value, how=how), *tree[step + 1 :]]
    return [*tree[:step], value, *tree[step + (how != "insert") :]]


def _made(rest: Steps, value: Tree) -> Tree:
    """What has the value at a path where nothing was."""
    for step in reversed(rest):
        value = {step: value} if isinstance(step, str) else [*_nulls(step), value]
    return value


def _nulls(count: int) -> list[Tree]:
    if count > _MOST_ITEMS:
        raise InvalidValue(f"a variant would get {count} nulls in an array")
    return [form.NULL_VALUE] * count


def without(tree: Tree, steps: Steps) -> Tree:
    """Without what is at the path, if something is."""
    step, rest = steps[0], steps[1:]
    if isinstance(tree, dict) and isinstance(step, str) and step in tree:
        return {**tree, step: without(tree[step], rest)} if rest else {name: inner for name, inner in tree.items() if name != step}
    if isinstance(tree, list) and isinstance(step, int) and step < len(tree):
        return [*tree[:step], *([without(tree[step], rest)] if rest else []), *tree[step + 1 :]]
    return tree


def appended(tree: Tree, steps: Steps, value: Tree) -> Tree:
    """With the value at the end of the array at the path; the same where a field or a place is missing."""
    if not steps:
        if not isinstance(tree, list):
            raise Misplaced(f"a value of the kind {form.kind_of(tree)} is no array to append to")
        return [*tree, value]
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if not isinstance(tree, dict):
            raise _misplaced(step, tree)
        return {**tree, step: appended(tree[step], rest, value)} if step in tree else tree
    if not isinstance(tree, list):
        raise _misplaced(step, tree)
    return [*tree[:step], appended(tree[step], rest, value), *tree[step + 1 :]] if step < len(tree) else tree


def stripped(tree: Tree, arrays: bool) -> Any:
    """Without fields that are null, and without items that are. arrays: items too."""
    if isinstance(tree, dict):
        return {name: stripped(inner, arrays) for name, inner in tree.items() if inner != form.NULL_VALUE}
    if isinstance(tree, list):
        return [stripped(item, arrays) for item in tree if not arrays or item != form.NULL_VALUE]
    return tree
