"""Vectors, which are arrays of floats: products, lengths and distances. In single precision, as Spark; null where an element is null."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import FLOAT, name_of

VECTOR: Final = pa.list_(FLOAT)


def _vector(a: Node, what: str) -> Node:
    if not pa.types.is_list(a.type) or a.type.value_type != FLOAT:
        raise TypeMismatch(f"{what} needs an array of floats, but {a.text} is {name_of(a.type)}; cast it to array<float>")
    return a


def _of_two(what: str, a: Node, b: Node) -> Node:
    def one(left: list[Any], right: list[Any]) -> float | None:
        if len(left) != len(right):
            raise InvalidValue(f"{what} needs vectors of one length, not of {len(left)} and {len(right)}")
        if None in left or None in right:
            return None
        x, y = (np.array(each, np.float32).astype(np.float64) for each in (left, right))
        if what == "vector_inner_product":
            return float(np.float32(x @ y))
        if what == "vector_l2_distance":
            return float(np.float32(math.sqrt((x - y) @ (x - y))))
        with np.errstate(all="ignore"):
            size = np.sqrt((x @ x) * (y @ y))
            return None if size == 0.0 else float(np.float32((x @ y) / size))

    return rowwise(one, FLOAT, _vector(a, what), _vector(b, what), raises=True)


def _degree(node: Node | None, what: str) -> float:
    given = 2.0 if node is None else constant_of(cast(node, FLOAT), f"the degree of {what}")
    if given not in (1.0, 2.0, math.inf):
        raise ExpressionError(f"{what}: the degree must be 1.0, 2.0 or infinity, not {given}")
    return float(str(given))


def _norm(values: list[Any], degree: float) -> float | None:
    if None in values:
        return None
    x = np.abs(np.array(values, np.float32).astype(np.float64))
    size = x.sum() if degree == 1.0 else math.sqrt(x @ x) if degree == 2.0 else x.max(initial=0.0)
    return float(np.float32(size))


def _norm_of(a: Node, degree: Node | None = None) -> Node:
    return rowwise(partial(_norm, degree=_degree(degree, "vector_norm")), FLOAT, _vector(a, "vector_norm"))


def _normalized(a: Node, degree: Node | None = None) -> Node:
    """Divided by its length; null of a vector of zeros."""
    given = _degree(degree, "vector_normalize")

    def one(values: list[Any]) -> list[float] | None:
        size = _norm(values, given)
        return None if not size else [float(np.float32(np.float32(value) / np.float32(size))) for value in values]

    return rowwise(one, VECTOR, _vector(a, "vector_normalize"))


def _total(name: str, a: Node) -> Node:
    """Of a group's vectors, one element at a time and in their order, as Spark adds them. Those with a null in them are left out."""
    if not pa.types.is_list(a.type) or a.type.value_type != VECTOR:
        kind = a.type.value_type if pa.types.is_list(a.type) else a.type
        raise TypeMismatch(f"{name} needs an array of floats, not {name_of(kind)}; cast it to array<float>")

    def one(vectors: list[list[Any]]) -> list[float] | None:
        known = [each for each in vectors if None not in each]
        if not known:
            return None
        odd = next((each for each in known if len(each) != len(known[0])), None)
        if odd is not None:
            raise InvalidValue(f"{name} needs vectors of one length, not of {len(known[0])} and {len(odd)}")
        found = np.zeros(len(known[0]), np.float32)
        with np.errstate(all="ignore"):
            for count, each in enumerate(known, 1):
                more = np.array(each, np.float32)
                size = np.float32(count)
                found = found + more if name == "vector_sum" else found - found / size + more / size
        return [float(value) for value in found]

    return rowwise(one, VECTOR, a, raises=True)


FUNCTIONS: Final = {
    **{name: Signature(partial(_of_two, name), 2, 2)
       for name in ("vector_inner_product", "vector_l2_distance", "vector_cosine_similarity")},
    **{f"_{name}": Signature(partial(_total, name), 1, 1) for name in ("vector_sum", "vector_avg")},
    "vector_norm": Signature(_norm_of, 1, 2),
    "vector_normalize": Signature(_normalized, 1, 2),
}  # fmt: skip
