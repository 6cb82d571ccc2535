"""Maps that a query does not read are left out where it reads a table: what changes has no rows with maps, which cannot be told apart."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from evenflow.query.script.lowering import Lower
from evenflow.query.script.relation import Relation, own_column
from evenflow.stream.schema import has_map


def without_unread_maps(lower: Lower, tree: exp.Expr, relation: Relation) -> Relation:
    """The relation without columns with maps whose names do not stand in the query. tree: what stands in its FROM."""
    query = tree.find_ancestor(exp.Select)
    if query is None or not lower.changes or not isinstance(tree.parent, exp.From | exp.Join):
        return relation
    maps = [v for v in relation.columns if has_map(relation.stream.schema.field(v.column).type)]
    if not maps or any(join.method for join in query.args.get("joins") or ()):
        return relation
    tables = {item.table.lower() if isinstance(item, exp.Column) else "" for item in query.expressions if item.is_star}
    if tables & {"", tree.alias_or_name.lower()}:
        return relation
    said = {name.name.lower() for name in query.find_all(exp.Identifier)}
    left = [v for v in relation.columns if v not in maps or v.name.lower() in said]
    if len(left) == len(relation.columns) or not left:
        return relation
    made = lower.project(relation, [(name, own_column(name)) for name in dict.fromkeys(v.column for v in left)])
    return replace(relation, stream=made.stream, columns=tuple(left))


__all__ = ["without_unread_maps"]
