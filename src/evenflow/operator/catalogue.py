"""Which operator a step asks for. Operators are imported when first needed, so that a site loads only what it runs.

A kind of box names its operator itself (`query.kinds.kind.BoxKind.operator`). Here is what is built in another way, and the steps that
have no box of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

from evenflow.errors import QueryError
from evenflow.operator.operator import Failing, Operator, Stateless, TwoSided
from evenflow.plan.layout import Step
from evenflow.query.aggregates import OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.built import Built
from evenflow.query.kinds import KINDS


def build(step: Step) -> Operator | TwoSided:
    """A new operator, with empty state, for a step. Raises QueryError for an unknown kind, and what the operator raises."""
    if step.kind in _STEPS:
        operator = _STEPS[step.kind](step, dict(step.params))
    elif step.kind in KINDS and KINDS[step.kind].operator:
        module, name = KINDS[step.kind].operator.split(":")
        operator = getattr(import_module(f"evenflow.operator.{module}"), name)(step.schema, **step.params)
    else:
        raise QueryError(
            f"box {step.box!r} is of the kind {step.kind!r}, which this version does not have: {', '.join({**KINDS, **_STEPS})}"
        )
    if "on_error" in step.params and isinstance(operator, Stateless) and not isinstance(operator, Failing):
        from evenflow.operator.guarded import Guarded

        return Guarded(cast(Operator, operator), step.schema, step.params["dead_letters"])
    return operator


def _filter(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.filter import Filter

    return Filter(params["condition"], step.schema, step.box)


def _select(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.select import Select

    return Select(params["columns"], step.schema, step.box)


def _watermark(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.watermark import Watermark

    return Watermark(step.schema, **params)


def _order(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.order import Order

    return Order(params["time"], params["tie_break"], step.schema, step.box)


def _process(step: Step, params: dict[str, Any]) -> Operator:
    if isinstance(params["processor"], Built):
        module, name = params["processor"].operator.split(":")
        return cast(Operator, getattr(import_module(f"evenflow.operator.{module}"), name)(step.schema, params["keys"], params["processor"]))
    from evenflow.operator.user.process import Process

    arguments = params["keys"], params["processor"], step.schema, step.box, params.get("verify")
    if "on_error" not in params:
        return Process(*arguments, time=params.get("time"))
    from evenflow.operator.guarded import GuardedProcess

    return GuardedProcess(*arguments, params["dead_letters"], time=params.get("time"))


def _gate(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.gate import Gate

    return Gate(step.schema, **params)


def _combine(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.totals.combine import Combine

    return Combine(step.schema, **params)


def _aggregate(step: Step, params: dict[str, Any]) -> Operator:
    window = params.pop("window")
    if "tie_break" in params:
        from evenflow.operator.totals.ordered_totals import EventOrder

        params["order"] = EventOrder(window.column, params.pop("tie_break"))
    if isinstance(window, TimeWindow):
        from evenflow.operator.totals.time_window import TimeWindowAggregate

        return TimeWindowAggregate(step.schema, window=window, **params)
    if isinstance(window, OwnSessions):
        from evenflow.operator.totals.own_sessions import OwnSessionAggregate

        return OwnSessionAggregate(step.schema, window=window, **params)
    if isinstance(window, SessionWindow):
        from evenflow.operator.totals.session_window import SessionWindowAggregate

        return SessionWindowAggregate(step.schema, window=window, **params)
    if isinstance(window, RowWindow):
        from evenflow.operator.totals.row_window import RowWindowAggregate

        return RowWindowAggregate(step.schema, window=window, **params)
    from evenflow.operator.totals.aggregate import Aggregate

    return Aggregate(step.schema, **params)


def _join(step: Step, params: dict[str, Any]) -> TwoSided:
    from evenflow.operator.join.join import StreamJoin

    return StreamJoin(params["join"], step.schema, params["right"], params["left_time"], params["right_time"])


def _table_join(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.join.table_join import TableJoin

    return TableJoin(params["join"], step.schema, params["table"])


def _pattern(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.match import Match

    return Match(step.schema, **params, box=step.box)


def _flat_map(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.user.flat_map import FlatMap

    return FlatMap(step.schema, params["function"], params["output"], step.box)


def _lookup(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.user.lookup import Lookup

    return Lookup(step.schema, **params, box=step.box)


def _case(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.case import Case

    return Case(step.schema, params["conditions"], step.box)


def _stage(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.parquet import ParquetStage

    return ParquetStage(step.schema, **params)


def _commit(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.parquet import ParquetCommit

    return ParquetCommit(step.schema, **params)


def _discard(step: Step, params: dict[str, Any]) -> Operator:
    from evenflow.operator.discard import Discard

    return Discard(step.schema)


_STEPS: Final[dict[str, Callable[[Step, dict[str, Any]], Operator | TwoSided]]] = {
    "filter": _filter,
    "select": _select,
    "watermark": _watermark,
    "order": _order,
    "process": _process,
    "gate": _gate,
    "combine": _combine,
    "aggregate": _aggregate,
    "join": _join,
    "table_join": _table_join,
    "pattern": _pattern,
    "flat_map": _flat_map,
    "lookup": _lookup,
    "case": _case,
    "stage": _stage,
    "commit": _commit,
    "discard": _discard,
}
"""Steps whose operator is not built of the input's schema and the step's parameters alone."""
