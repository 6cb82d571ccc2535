"""Functions that choose: if, coalesce, nullif, nvl2, and the tests for null and NaN."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, call, choose, lift, literal, measured, spread, unit_of
from evenflow.query.sql.signature import MANY, Signature
from evenflow.query.sql.types import BOOL, DOUBLE, INTERVAL, NULL, common, floating, name_of, numeric, stringy


def _if(condition: Node, value: Node, other: Node) -> Node:
    type = common((value.type, other.type), "if(...)")
    return choose(((op.truth(condition, "IF"), cast(value, type)),), cast(other, type))


def _coalesce(*args: Node) -> Node:
    type = common([a.type for a in args], "coalesce(...)")
    nodes = [cast(a, type) for a in args]
    if any(n.raises for n in nodes[1:]):
        return choose([(op.negation(op.is_null(n)), n) for n in nodes[:-1]], nodes[-1])
    found = lift(call("coalesce"), type, *nodes, strict=False)
    return measured(found, unit_of(nodes)) if type == INTERVAL else found


def _nullif(a: Node, b: Node) -> Node:
    return choose(((op.compare("=", a, b), literal(pa.scalar(None, a.type))),), a)


def _nvl2(a: Node, value: Node, other: Node) -> Node:
    return _if(op.negation(op.is_null(a)), value, other)


def _isnan(a: Node) -> Node:
    """False for null, unlike a comparison."""
    if not floating(a.type):
        if not (numeric(a.type) or stringy(a.type) or a.type == NULL):
            raise TypeMismatch(f"isnan needs a number, but {a.text} is {name_of(a.type)}")
        a = cast(a, DOUBLE)
    test = lift(call("is_nan"), BOOL, a)
    return lift(call("coalesce"), BOOL, test, op.FALSE)


def _nanvl(a: Node, b: Node) -> Node:
    type = common((a.type, b.type), "nanvl(...)")
    if type != NULL and not numeric(type) and not stringy(type):
        raise TypeMismatch(f"nanvl needs numbers: {a.text}, {b.text}")
    a, b = (cast(n, type if floating(type) else DOUBLE) for n in (a, b))
    return choose(((_isnan(a), b),), a)


def _assert_true(condition: Node, message: Node | None = None) -> Node:
    """Null; where the condition is not true it is an error, with a message of one's own."""
    said = literal(pa.scalar(f"{condition.text} is not true")) if message is None else cast(message, pa.string())
    return choose(((op.truth(condition, "assert_true"), literal(pa.scalar(None, NULL))),), _raise_error(said))


def _raise_error(message: Node) -> Node:
    """Of each row, and so of none where there are none, as in a function of an array that has no elements."""
    said = cast(message, pa.string())

    def run(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows:
            raise InvalidValue(str(spread(said.run(batch), batch.num_rows)[0].as_py()))
        return pa.nulls(0)

    return Node(NULL, run, None, True)


FUNCTIONS: Final = {
    "assert_true": Signature(_assert_true, 1, 2),
    "raise_error": Signature(_raise_error, 1, 1),
    "if": Signature(_if, 3, 3),
    "coalesce": Signature(_coalesce, 1, MANY),
    "ifnull": Signature(_coalesce, 2, 2),
    "nvl": Signature(_coalesce, 2, 2),
    "nvl2": Signature(_nvl2, 3, 3),
    "nullif": Signature(_nullif, 2, 2),
    "isnull": Signature(op.is_null, 1, 1),
    "isnotnull": Signature(lambda a: op.negation(op.is_null(a)), 1, 1),
    "isnan": Signature(_isnan, 1, 1),
    "nanvl": Signature(_nanvl, 2, 2),
    "equal_null": Signature(op.null_safe_equal, 2, 2),
    "nullifzero": Signature(lambda a: _nullif(a, literal(pa.scalar(0, pa.int32()))), 1, 1),
    "zeroifnull": Signature(lambda a: _coalesce(a, literal(pa.scalar(0, pa.int32()))), 1, 1),
}
