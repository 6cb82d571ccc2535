"""COLLATE UTF8_LCASE where it only says how texts are compared: as comparisons of texts whose letters are all small.

In Spark a collation is part of a type, and goes on through columns and functions; here types have none. So it is taken where what is
compared is not shown: in comparisons, ORDER BY, GROUP BY and PARTITION BY. What is left of it in a tree is refused, with `REFUSED`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

FOLDED: Final = "_lcase"
REFUSED: Final = (
    "COLLATE UTF8_LCASE says here how texts are compared, in =, <, IN, BETWEEN, LIKE, ORDER BY, GROUP BY and PARTITION BY, and is no part "
    "of a column's type; write lower(x). Other collations than this and UTF8_BINARY are not available"
)
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Like)
_PARTS: Final = ("this", "expression", "low", "high", "expressions")


def folded(text: str) -> str:
    """The text as UTF8_LCASE compares it: letter by letter, and the two small sigmas are one."""
    return "".join(map(str.lower, text)).replace("ς", "σ")


def collate(given: list[exp.Expr]) -> exp.Expr:
    """collate(x, 'UTF8_LCASE') is x COLLATE UTF8_LCASE."""
    if len(given) != 2:
        return exp.Anonymous(this="collate", expressions=given)
    return exp.Collate(this=given[0], expression=given[1])


def collated(tree: exp.Expr) -> exp.Expr:
    """The tree with comparisons of small letters in the place of what is compared so. What nobody can answer is left."""
    for type_, place in ((exp.DataType, "collate"), (exp.CollateColumnConstraint, "this")):
        for each in tree.find_all(type_):
            if isinstance(name := each.args.get(place), exp.Column):  # So it is read, and is none. `type_of` refuses it.
                each.set(place, exp.var(name.name))
    found = {id(node.parent): node.parent for node in tree.find_all(exp.Collate)}
    for collation in list(tree.find_all(exp.Collate)):
        if _name(collation) == "UTF8_BINARY":
            if collation is tree:
                tree = collation.this
            collation.replace(collation.this)
    for node in [each for each in found.values() if each is not None]:
        while isinstance(node, exp.Paren) and node.parent is not None:
            node = node.parent
        if isinstance(node, _COMPARED) and not node.args.get("query"):
            _fold(node, _PARTS)
        elif isinstance(node, exp.Ordered):
            _fold(node, ("this",))
        elif isinstance(node, exp.Group):
            _fold_each(node, "expressions")
        elif isinstance(node, exp.Window):
            _fold_each(node, "partition_by")
    return tree


def _fold(node: exp.Expr, places: tuple[str, ...]) -> None:
    """All that is compared, if some of it says so."""
    parts = [part for place in places for part in _listed(node.args.get(place))]
    if not any(_is_folded(part) for part in parts):
        return
    for part in parts:
        part.replace(_small(part))


def _fold_each(node: exp.Expr, place: str) -> None:
    for part in _listed(node.args.get(place)):
        if _is_folded(part):
            part.replace(_small(part))


def _small(part: exp.Expr) -> exp.Expr:
    bare = part.unnest()
    return exp.Anonymous(this=FOLDED, expressions=[(bare.this if isinstance(bare, exp.Collate) else part).copy()])


def _is_folded(part: exp.Expr) -> bool:
    bare = part.unnest()
    return isinstance(bare, exp.Collate) and _name(bare) == "UTF8_LCASE"


def _listed(given: Any) -> list[exp.Expr]:
    return [part for part in (given if isinstance(given, list) else [given]) if isinstance(part, exp.Expr)]


def _name(collation: exp.Collate) -> str:
    return str(collation.expression.name).upper().rpartition(".")[2]


__all__ = ["FOLDED", "REFUSED", "collate", "collated", "folded"]
