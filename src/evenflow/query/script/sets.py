"""GROUP BY ROLLUP, CUBE and GROUPING SETS: a row for each set of keys, in which the keys that are not in the set are null.

A row goes through an explode box by the numbers of the sets. A number has a bit for each key, the first key's highest, which is one where
the key is left out: it is Spark's grouping_id().
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from evenflow.query.script.lowering import WINDOW_FUNCTIONS, Lower
from evenflow.query.script.relation import Relation, computed, free_name, own_column

MOST: Final = 512
"""Sets of one GROUP BY."""


def sets_of(lower: Lower, group: exp.Group) -> list[list[exp.Expr]] | None:
    """The sets of keys that a GROUP BY means; None if it is a plain one."""
    plain = [given for given in group.expressions if not isinstance(given, exp.Rollup | exp.Cube | exp.GroupingSets)]
    several = [given for given in group.expressions if given not in plain]
    for clause in ("rollup", "cube", "grouping_sets"):
        several += [given for given in group.args.get(clause) or () if isinstance(given, exp.Expr)]
    if not several:
        return None
    if len(several) == 1 and isinstance(several[0], exp.Rollup | exp.Cube) and not several[0].expressions:
        return _made(several[0], [[each] for each in plain])  # a, b WITH ROLLUP
    parts = [_made(each, [_keys(key) for key in each.expressions]) for each in several]
    named = {key for part in parts for made in part for key in made}
    if all(key in named for key in plain):
        plain = []  # GROUP BY a, b GROUPING SETS (...) names the keys only.
    found = [[*plain, *(key for made in chosen for key in made)] for chosen in product(*parts)]
    if len(found) > MOST:
        lower.script.fail(group, f"these are {len(found)} sets of keys; at most {MOST} are available")
    return found


def _made(given: exp.Expr, keys: list[list[exp.Expr]]) -> list[list[exp.Expr]]:
    if isinstance(given, exp.Rollup):
        return [[key for part in keys[:count] for key in part] for count in range(len(keys), -1, -1)]
    if isinstance(given, exp.Cube):
        return [[key for part in chosen for key in part] for count in range(len(keys), -1, -1) for chosen in combinations(keys, count)]
    found: list[list[exp.Expr]] = []
    for each in given.expressions:
        several = isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets)
        found += _made(each, [_keys(key) for key in each.expressions]) if several else [_keys(each)]
    return found


def _keys(tree: exp.Expr) -> list[exp.Expr]:
    if isinstance(tree, exp.Tuple):
        return list(tree.expressions)
    return [tree.this if isinstance(tree, exp.Paren) else tree]


def is_window(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in WINDOW_FUNCTIONS


def spread_sets(
    lower: Lower, relation: Relation, keys: Sequence[exp.Expr], sets: Sequence[Sequence[exp.Expr]], where: exp.Expr
) -> tuple[Relation, str, list[str]]:
    """A row per set of each row: the relation, and the names of the column with the set's number, and of those with the keys.

    keys: over the stream's columns; sets: some of them each.
    """
    numbers = [sum(1 << (len(keys) - 1 - at) for at, key in enumerate(keys) if key not in chosen) for chosen in sets]
    taken = list(relation.stream.columns)
    names = list[str]()
    for at in range(len(keys)):
        names.append(free_name(f"_key{at}", [*taken, *names]))
    number = free_name("_grouping_id", [*taken, *names])
    with lower.script.at(where):
        listed = ", ".join(f"{each}L" for each in numbers)
        widened = relation.stream.with_columns({number: f"array({listed})"}).explode(number, into=number)
        made = [(name, _where(number, 1 << (len(keys) - 1 - at), key)) for at, (name, key) in enumerate(zip(names, keys, strict=True))]
        return computed(relation.where(widened), made), number, names


def _where(number: str, bit: int, key: exp.Expr) -> exp.Expr:
    """The key, null in the sets that are without it."""
    left_out = exp.Paren(this=exp.BitwiseAnd(this=own_column(number), expression=exp.Literal.number(bit)))
    there = exp.EQ(this=left_out, expression=exp.Literal.number(0))
    return exp.Anonymous(this="if", expressions=[there, key.copy(), exp.Null()])


__all__ = ["is_window", "sets_of", "spread_sets"]
