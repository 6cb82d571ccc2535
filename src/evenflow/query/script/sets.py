"""GROUP BY ROLLUP, CUBE and GROUPING SETS: a row for each set of keys, in which the keys that are not in the set are null.

A row goes through an explode box by the numbers of the sets. A number has a bit for each key, the first key's highest, which is one where
the key is left out: it is Spark's grouping_id().
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import prod
from typing import Final

from sqlglot import exp

from evenflow.query.script.lowering import Lower, is_aggregate, is_window
from evenflow.query.script.relation import Relation, computed, free_name, own_column
from evenflow.query.user.scope import built_in

_SEVERAL: Final = (exp.Rollup, exp.Cube, exp.GroupingSets)
MOST: Final = 512
"""Sets of one GROUP BY."""


def by_all(items: Iterable[exp.Expr]) -> exp.Group:
    """What GROUP BY ALL means: not what is an aggregate or OVER the groups, nor literals, which are the same for all."""
    return exp.Group(expressions=[each for each in items if not (isinstance(each, exp.Literal) or any(map(_is_of_groups, each.walk())))])


def _is_of_groups(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Window) or is_aggregate(tree)


def sets_of(lower: Lower, group: exp.Group) -> tuple[list[list[exp.Expr]], list[exp.Expr]] | None:
    """The sets of keys that a GROUP BY means, and all keys in the order of their bits; None if it is a plain one."""
    given = list(group.expressions)
    behind = [each for clause in ("rollup", "cube", "grouping_sets") for each in group.args.get(clause) or () if isinstance(each, exp.Expr)]
    if not behind and not any(isinstance(each, _SEVERAL) for each in given):
        return None
    if len(behind) > 1 or (behind and any(isinstance(each, _SEVERAL) for each in given)):
        lower.script.fail(group, "ROLLUP, CUBE or GROUPING SETS behind the keys go with plain keys only; write them among the keys")
    if not behind:
        parts = [_made(each, [_keys(key) for key in each.expressions]) if isinstance(each, _SEVERAL) else [[each]] for each in given]
    elif behind[0].expressions:
        parts = [_made(behind[0], [_keys(key) for key in behind[0].expressions])]  # a, b GROUPING SETS (...)
    else:
        parts = [_made(behind[0], [[each] for each in given])]  # a, b WITH ROLLUP
    count = prod(map(len, parts))
    if count > MOST:
        lower.script.fail(group, f"these are {count} sets of keys; at most {MOST} are available")
    found = [[key for made in chosen for key in made] for chosen in product(*parts)]
    return found, [*(key for part in parts for made in part for key in made), *(given if behind else [])]


def _made(given: exp.Expr, keys: list[list[exp.Expr]]) -> list[list[exp.Expr]]:
    if isinstance(given, exp.Rollup):
        return [[key for part in keys[:count] for key in part] for count in range(len(keys), -1, -1)]
    if isinstance(given, exp.Cube):
        return [[key for part in chosen for key in part] for count in range(len(keys), -1, -1) for chosen in combinations(keys, count)]
    found: list[list[exp.Expr]] = []
    for each in given.expressions:
        several = isinstance(each, _SEVERAL)
        found += _made(each, [_keys(key) for key in each.expressions]) if several else [_keys(each)]
    return found


def _keys(tree: exp.Expr) -> list[exp.Expr]:
    if isinstance(tree, exp.Tuple):
        return list(tree.expressions)
    return [tree.this if isinstance(tree, exp.Paren) else tree]


def spread_sets(
    lower: Lower, relation: Relation, keys: Sequence[exp.Expr], sets: Sequence[Sequence[exp.Expr]], where: exp.Expr
) -> tuple[Relation, str, list[str], str | None]:
    """A row per set of each row: the relation, the names of the column with the set's number and of those with the keys, and of the one
    that says at which place a set stands, if one of them is there twice, which makes two groups as in Spark.

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
        place = free_name("_set", [*taken, *names, number]) if len(set(numbers)) < len(numbers) else None
        widened = relation.stream.with_columns({number: f"{built_in('array')}({listed})"}).explode(number, into=number, position=place)
        made = [(name, _where(number, 1 << (len(keys) - 1 - at), key)) for at, (name, key) in enumerate(zip(names, keys, strict=True))]
        return computed(relation.where(widened), made), number, names, place


def _where(number: str, bit: int, key: exp.Expr) -> exp.Expr:
    """The key, null in the sets that are without it."""
    left_out = exp.Paren(this=exp.BitwiseAnd(this=own_column(number), expression=exp.Literal.number(bit)))
    there = exp.EQ(this=left_out, expression=exp.Literal.number(0))
    return exp.Anonymous(this=built_in("if"), expressions=[there, key.copy(), exp.Null()])


__all__ = ["by_all", "is_window", "sets_of", "spread_sets"]
