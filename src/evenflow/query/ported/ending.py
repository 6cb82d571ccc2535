"""What is on top of a plan in complete mode, a sort and a limit, and how a refusal names its node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from evenflow.errors import NotPortable, QueryError
from evenflow.query.ported.chain import ALIASES
from evenflow.query.ported.tree import Expression, Plan

_PLACE: Final = re.compile(r"line \d+, column \d+: ")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a whole table is put out. by: (column, descending)."""

    by: tuple[tuple[Expression, bool], ...] = ()
    limit: int | None = None


def ending_of(plan: Plan) -> tuple[Plan, Ending]:
    """The plan without the sort and the limits on top of it, and what these say. Raises NotPortable."""
    limit: int | None = None
    top, plan = plan, unaliased(plan)
    while plan.kind in ("GlobalLimit", "LocalLimit"):
        with about(plan):
            count = plan.expression("limitExpr")
            if count is None or count.kind != "Literal":
                raise QueryError("the limit is computed; write a number")
            number = int(count.fields["value"])
            limit = number if limit is None else min(number, limit)
        plan = unaliased(plan.child)
    if plan.kind != "Sort":
        return top if limit is None else plan, Ending((), limit)
    by = []
    with about(plan):
        for order in plan.expressions("order"):
            desc = "Descending" in str(order.fields["direction"])
            if ("NullsLast" in str(order.fields["nullOrdering"])) != desc:
                raise QueryError("nulls come first in ascending and last in descending order; leave nulls_first and nulls_last out")
            by.append((order.children[0], desc))
    return plan.child, Ending(tuple(by), limit)


@contextmanager
def about(plan: Plan) -> Iterator[None]:
    """What is refused inside is a NotPortable that says by which node."""
    try:
        yield
    except NotPortable as error:
        raise error if error.node else NotPortable(f"{error}; in {plan.shown}", error.expression, plan.kind) from None
    except QueryError as error:
        raise NotPortable(f"{plan.kind} cannot be ported: {_PLACE.sub('', str(error))}; in {plan.shown}", plan.shown, plan.kind) from error


def unaliased(plan: Plan) -> Plan:
    return unaliased(plan.child) if plan.kind in ALIASES else plan
