"""A chain of projections, conditions and explosions on top of another part of a plan, in the JVM: see `evenflow.query.ported.chain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def stacked(node: Any, chain: Sequence[Any], time: int | None, jvm: Any) -> Any:
    """The chain on `node`. chain: Spark's nodes, from below. time: id of a column that it loses, which is put behind its own.

    Behind that comes, for each condition of the chain, whether it holds; what stands above a condition is computed only where it does.
    """
    logical, expressions = jvm.org.apache.spark.sql.catalyst.plans.logical, jvm.org.apache.spark.sql.catalyst.expressions
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    holding: list[Any] = []

    def passed(columns: list[Any]) -> list[Any]:
        """The columns, and those of the node that have to come up to the top."""
        there = {column.exprId().id() for column in columns}
        wanted = {column.exprId().id() for column in holding} | ({time} if time is not None else set())
        return [*columns, *(column for column in _each(node.output()) if column.exprId().id() in wanted - there)]

    for part in chain:
        kind = part.getClass().getSimpleName()
        if kind == "Filter":
            holds = _alias(expressions.Coalesce(seq([part.condition(), _literal(False, expressions)])), f"holds_{len(holding)}", jvm)
            node = logical.Project(seq([*_each(node.output()), holds]), node)
            holding.append(holds.toAttribute())
        elif kind == "Project":
            columns = [_guarded(column, holding, jvm) if holding else column for column in _each(part.projectList())]
            node = logical.Project(seq(passed(columns)), node)
        else:
            node = part.withNewChildren(seq([node]).toIndexedSeq())
    top = list(_each(chain[-1].output()))
    if time is not None:
        top.append(next(column for column in _each(node.output()) if column.exprId().id() == time))
    return logical.Project(seq([*top, *holding]), node)


def _guarded(column: Any, holding: list[Any], jvm: Any) -> Any:
    """A column that is computed only in rows for which all conditions hold."""
    if column.getClass().getSimpleName() != "Alias" or not column.child().children().size():
        return column
    expressions, seq = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.api.python.PythonUtils.toSeq
    condition = holding[0]
    for other in holding[1:]:
        condition = expressions.And(condition, other)
    nothing = expressions.Literal.create(None, column.child().dataType())
    made = expressions.If(condition, column.child(), nothing)
    return expressions.Alias(made, column.name(), column.exprId(), column.qualifier(), column.explicitMetadata(), seq([]))


def _alias(tree: Any, name: str, jvm: Any) -> Any:
    expressions, seq = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.api.python.PythonUtils.toSeq
    return expressions.Alias(tree, name, expressions.NamedExpression.newExprId(), seq([]), jvm.scala.Option.empty(), seq([]))


def _literal(value: bool, expressions: Any) -> Any:
    return getattr(expressions.Literal, "TrueLiteral" if value else "FalseLiteral")()


def _each(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


__all__ = ["stacked"]
