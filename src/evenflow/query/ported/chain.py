"""What stands right above `withWatermark` and keeps nothing: projections, conditions, `explode`. Spark can go on doing it.

Below the watermark it changes no event time, so what Evenflow's expressions lack is computed there, by Spark's tasks, together with
what is below anyway. A condition becomes a column that says whether it holds, and the rows are left out here: so the watermark still sees
all of them, as it does in Spark. What is computed above a condition is null in rows for which it does not hold, and is not computed
there, since it may raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from evenflow.errors import QueryError
from evenflow.query.ported.tree import Attribute, Expression, Plan, attributes
from evenflow.query.ported.windows import window_of

ALIASES: Final = frozenset({
    "SubqueryAlias", "View", "ResolvedHint", "PipeOperator", "Repartition", "RepartitionByExpression", "RebalancePartitions",
})  # fmt: skip
"""What leaves the rows as they are. How Spark would deal them out says nothing here."""
_IN_SPARK_ONLY: Final = ("catalyst.expressions.ListQuery", "catalyst.expressions.Exists", "catalyst.expressions.ScalarSubquery")


@dataclass(frozen=True, slots=True)
class Chain:
    """nodes: from the watermark's child up, projections, conditions and explosions. watermark: what they stand on."""

    nodes: tuple[Plan, ...]
    watermark: Plan

    @property
    def top(self) -> Plan:
        return self.nodes[-1]

    @property
    def conditions(self) -> int:
        return sum(node.kind == "Filter" for node in self.nodes)

    @property
    def can_move(self) -> bool:
        """Whether Spark may compute all of it below: no query inside an expression, no rows made and no function called of rows that a
        condition has left out."""
        below = False
        for node in self.nodes:
            text = json.dumps(node.fields)
            if any(kind in text for kind in _IN_SPARK_ONLY):
                return False
            if below and ("catalyst.expressions.PythonUD" in text or (node.kind == "Generate" and not _is_plain(node))):
                return False
            below = below or node.kind == "Filter"
        return True

    def time(self) -> Attribute:
        """The watermark's column, by the name that it has on top, or had last."""
        tree = self.watermark.expression("eventTime")
        assert tree is not None
        found = Attribute(tree.id, tree.name)
        for node in self.nodes:
            if node.kind != "Project":
                continue
            columns = node.expressions("projectList")
            if any(column.kind == "AttributeReference" and column.id == found.id for column in columns):
                continue
            renamed = next((c for c in columns if c.kind == "Alias" and _is_column(c.children[0], found.id)), None)
            if renamed is None:
                return found
            found = Attribute(renamed.id, renamed.name)
        return found


def _is_plain(generate: Plan) -> bool:
    """Whether rows are made of columns as they are, which cannot raise."""
    made = generate.expression("generator")
    return made is not None and all(child.kind in ("AttributeReference", "Literal") for child in made.children)


def _is_column(tree: Expression, id_: int) -> bool:
    return tree.kind == "AttributeReference" and tree.id == id_


def chain_of(plan: Plan, stays: Callable[[Plan], bool]) -> Chain | None:
    """The chain whose top is this node, if it is one. stays: whether Spark does all of a plan anyway."""
    nodes: list[Plan] = []
    while True:
        if plan.kind in ALIASES:
            plan = plan.child
        elif plan.kind in ("Filter", "Generate") or (plan.kind == "Project" and window_of(plan) is None):
            nodes.append(plan)
            plan = plan.child
        else:
            break
    return Chain(tuple(reversed(nodes)), plan) if nodes and plan.kind == "EventTimeWatermark" and stays(plan.child) else None


def needed(plan: Plan, stays: Callable[[Plan], bool]) -> set[int]:
    """Ids of the columns that something above names, or that come out. Of a projection only those columns count that are named above it."""
    found = {attribute.id for attribute in plan.output}
    for node in _down(plan, stays):
        windowed = _window(node)
        if windowed is not None:  # It passes all columns, wanted or not.
            read, others = windowed
            found.update(attributes([dict(tree.fields) for each in read for tree in each.walk()]))
            found.update(
                id_ for column in others if column.kind == "Alias" for tree in column.walk() for id_ in attributes(dict(tree.fields))
            )
        elif node.kind == "Project":
            kept = [column for column in node.expressions("projectList") if column.id in found]
            found.update(tree.id for column in kept for tree in column.walk() if tree.kind == "AttributeReference")
        else:
            found.update(attributes(dict(node.fields)))
        if node.kind in ("Union", "Distinct") or (node.kind.startswith("Deduplicate") and not node.fields.get("keys")):
            found.update(column.id for child in node.children for column in child.output)
    return found


def grouped(plan: Plan) -> set[int]:
    """Ids by which some node groups its rows."""
    found: set[int] = set()
    for node in plan.walk():
        if node.kind == "Aggregate":
            keys = (key.children[0] if key.kind == "Alias" else key for key in node.expressions("groupingExpressions"))
            found.update(key.id for key in keys if key.kind == "AttributeReference")
    return found


def window_id(node: Plan) -> int | None:
    """The column that is a window, if the node makes one."""
    if node.kind not in ("Project", "Expand"):
        return None
    try:
        found = window_of(node)
    except QueryError:
        return None
    return None if found is None else found[0].id


def _window(node: Plan) -> tuple[list[Expression], list[Expression]] | None:
    """What the window of a node is computed from, and the node's other columns."""
    try:
        found = window_of(node)
    except QueryError:
        return None
    return None if found is None else ([found[0].time, *([] if found[0].gap is None else [found[0].gap])], found[1])


def _down(plan: Plan, stays: Callable[[Plan], bool]) -> Iterator[Plan]:
    """The nodes that are not Spark's, each before those below it."""
    if not stays(plan):
        yield plan
        for child in plan.children:
            yield from _down(child, stays)
