"""What aggregates of bits, of the most frequent values, of intervals and of variants make of the values, or sums, that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import operators as op
from evenflow.query.sql import variant_text
from evenflow.query.sql.lists import Lists, element_type, tallied
from evenflow.query.sql.node import InvalidValue, Node, lift, rowwise
from evenflow.query.sql.shapes import list_from, over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BINARY, INTERVAL, LONG, STRING, integral, name_of
from evenflow.query.sql.variant_form import tree_of
from evenflow.stream.schema import VARIANT

_BITS: Final = 32_768
_BYTES: Final = _BITS // 8


def _bitmap(a: Node) -> Node:
    """The bits at these places."""
    if not integral(element_type(a, "bitmap_construct_agg")):
        raise TypeMismatch(f"bitmap_construct_agg needs places of bits, but {a.text} has {name_of(element_type(a, ''))}")

    def one(places: list[int]) -> bytes:
        made = bytearray(_BYTES)
        for place in places:
            if not 0 <= place < _BITS:
                raise InvalidValue(f"a bitmap has the places 0 to {_BITS - 1}, and not {place}; take bitmap_bit_position(x)")
            made[place // 8] |= 1 << place % 8
        return bytes(made)

    return rowwise(one, BINARY, a, raises=True)


def _bitmaps(name: str, join: Callable[[int, int], int], start: bytes, a: Node) -> Node:
    """Bitmaps, byte by byte; what is shorter ends in zeros."""
    if element_type(a, name) != BINARY:
        raise TypeMismatch(f"{name} needs bitmaps, but {a.text} has {name_of(element_type(a, name))}")

    def one(given: list[bytes]) -> bytes:
        numbers = (int.from_bytes(each[:_BYTES].ljust(_BYTES, b"\0"), "big") for each in given)
        return reduce(join, numbers, int.from_bytes(start, "big")).to_bytes(_BYTES, "big")

    return rowwise(one, BINARY, a)


def _top(a: Node, most: Node | None = None) -> Node:
    """The most frequent values and how often they are there; of several as frequent, the least first."""
    element, count = element_type(a, "approx_top_k"), 5 if most is None else constant_of(most, "how many values approx_top_k gives")
    if not isinstance(count, int) or count < 1:
        raise ExpressionError(f"approx_top_k gives at least one value, not {count}")
    type_ = pa.struct([("item", element), ("count", LONG)])

    def run(arrays: pa.Array) -> pa.Array:
        given = Lists.of(arrays)
        parents, numbers, places, often = tallied(given)
        best = np.lexsort((numbers, -often, parents))
        whose = parents[best]
        rank = np.arange(len(best)) - np.searchsorted(whose, whose)
        best, whose = best[rank < count], whose[rank < count]
        items = [given.values.take(pa.array(places[best])), pa.array(often[best], LONG)]
        return list_from(np.bincount(whose, minlength=len(arrays)), pa.StructArray.from_arrays(items, fields=list(type_)))

    return lift(over_arrays(run), pa.list_(type_), a)


def _schema(a: Node) -> Node:
    """schema_of_variant_agg: the one of all."""
    if element_type(a, "schema_of_variant_agg") != VARIANT:
        raise TypeMismatch(f"schema_of_variant_agg needs variants, but {a.text} has {name_of(element_type(a, ''))}")

    def one(rows: list[Any]) -> str:
        return variant_text.shown(reduce(variant_text.merged, (variant_text.shape_of(tree_of(row)) for row in rows), "VOID"))

    return rowwise(one, STRING, a, raises=True)


def _micros(a: Node) -> Node:
    if a.type != INTERVAL:
        raise TypeMismatch(f"{a.text} is {name_of(a.type)} and no interval")
    return op.cast_raw(a, LONG)


def _mean(total: Node, count: Node) -> Node:
    """The mean of intervals, whose halves of a microsecond are rounded away from zero."""

    def one(micros: int, rows: int) -> int | None:
        if not rows:
            return None
        whole = (2 * abs(micros) + rows) // (2 * rows)
        if whole >= 1 << 63:
            raise ArithmeticOverflow("the mean of these intervals is longer than an interval can be")
        return whole if micros >= 0 else -whole

    return op.cast_raw(rowwise(one, LONG, total, count, raises=True), INTERVAL, "second")


FUNCTIONS: Final = {
    "_bitmap": Signature(_bitmap, 1, 1),
    "_bitmap_or": Signature(partial(_bitmaps, "bitmap_or_agg", int.__or__, b"\0" * _BYTES), 1, 1),
    "_bitmap_and": Signature(partial(_bitmaps, "bitmap_and_agg", int.__and__, b"\xff" * _BYTES), 1, 1),
    "_top_k": Signature(_top, 1, 2),
    "_schema_of_variants": Signature(_schema, 1, 1),
    "_span_us": Signature(_micros, 1, 1),
    "_as_span": Signature(lambda a: op.cast_raw(a, INTERVAL), 1, 1),
    "_mean_span": Signature(_mean, 2, 2),
}
