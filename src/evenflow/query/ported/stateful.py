"""applyInPandasWithState as a box with a processor that calls its function."""

from __future__ import annotations

from collections.abc import Sequence

from evenflow.query.ported.names import Names
from evenflow.query.ported.origin import Origin
from evenflow.query.ported.tree import Attribute, Plan
from evenflow.query.script.relation import Relation


def below_keys(plan: Plan) -> Plan:
    """The node that has its rows: Spark puts the keys in front of the columns, once more."""
    below = plan.child
    again = below.kind == "Project" and all(column.kind == "AttributeReference" for column in below.expressions("projectList"))
    return below.child if again else below


def with_state(plan: Plan, relation: Relation, keys: Sequence[str], names: Names, origin: Origin) -> Relation:
    """What the function makes of the rows of each key. keys: columns of the relation."""
    call = plan.expression("functionExpr")
    assert call is not None
    arguments = {each.name: names.of(Attribute(each.id, each.name)) for each in call.children}
    given = {each.name: names.of(each) for each in plan.output}
    processor = origin.processor(plan, arguments, given, relation.stream.event_time)
    return Relation.of(relation.stream.key_by(*keys).process(processor))


__all__ = ["below_keys", "with_state"]
