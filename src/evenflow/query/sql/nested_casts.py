"""CAST of structures, lists and maps: part by part, of structures by place, and to string as Spark shows them.

A part that cannot be cast is an error of the whole, or, in TRY_CAST, null by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.sql.node import Kernel, spread
from evenflow.query.sql.shapes import elements_of, entries_of, lengths_of, list_from, map_from, mask_of, over_arrays, struct_from
from evenflow.query.sql.types import STRING, name_of

Part = tuple[Kernel, bool]
Inner = Callable[[pa.DataType, pa.DataType], Part]
"""The kernel of a part's cast, and whether it may refuse a value."""


def nested_cast(source: Any, target: Any, inner: Inner) -> Part:
    """The kernel of a cast from or to a type with parts, and whether it may refuse a value. TypeMismatch if Spark has no such cast."""
    kinds = (pa.types.is_struct, pa.types.is_list, pa.types.is_map)
    kind = next((at for at, test in enumerate(kinds) if test(source) and test(target)), -1)
    if target == STRING and pa.types.is_nested(source):
        return _shown(source, inner)
    if kind < 0 or (kind == 0 and source.num_fields != target.num_fields):
        raise TypeMismatch(f"cannot cast {name_of(source)} to {name_of(target)}")
    pairs = [(source.field(at).type, target.field(at).type) for at in range(source.num_fields)] if kind != 2 else [
        (source.key_type, target.key_type), (source.item_type, target.item_type)]  # fmt: skip
    made = [_part(one, other, inner) for one, other in pairs]
    kernels, raises = [kernel for kernel, _ in made], any(may for _, may in made)
    return over_arrays((_structs, _lists, _maps)[kind](kernels, target)), raises


def _part(source: pa.DataType, target: pa.DataType, inner: Inner) -> Part:
    if source == target:
        return (lambda value: value), False
    if pa.types.is_null(source):
        return (lambda value: pa.nulls(len(value), target)), False
    return inner(source, target)


def _structs(kernels: list[Kernel], target: Any) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        return struct_from([cast(part) for cast, part in zip(kernels, array.flatten(), strict=True)], target, mask_of(array))

    return kernel


def _lists(kernels: list[Kernel], target: Any) -> Kernel:
    return lambda array: list_from(lengths_of(array), spread(kernels[0](array.flatten()), 0), mask_of(array))


def _maps(kernels: list[Kernel], target: Any) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        keys, items = (cast(part) for cast, part in zip(kernels, entries_of(array), strict=True))
        return map_from(lengths_of(array), keys, items, mask_of(array))

    return kernel


def _shown(source: Any, inner: Inner) -> Part:
    """{1, a}, [1, 2], {a -> 1}; null inside is null."""
    types = [source.key_type, source.item_type] if pa.types.is_map(source) else [source.field(at).type for at in range(source.num_fields)]
    kernels = [_part(type_, STRING, inner)[0] for type_ in types]

    def texts(cast: Kernel, array: pa.Array) -> list[str]:
        return ["null" if text is None else text for text in cast(array).to_pylist()]

    def kernel(array: pa.Array) -> pa.Array:
        if pa.types.is_struct(source):
            columns = [texts(cast, part) for cast, part in zip(kernels, array.flatten(), strict=True)]
            made = ["{" + ", ".join(row) + "}" for row in zip(*columns, strict=True)] if columns else ["{}"] * len(array)
            return pa.array(made, STRING, mask=array.is_null().to_numpy(zero_copy_only=False))
        if pa.types.is_map(source):
            keys, items = (texts(cast, part) for cast, part in zip(kernels, entries_of(array), strict=True))
            parts, ends = [f"{key} -> {item}" for key, item in zip(keys, items, strict=True)], "{}"
        else:
            parts, ends = texts(kernels[0], elements_of(array)), "[]"
        made, at = [], 0
        for length in lengths_of(array).tolist():
            made.append(ends[0] + ", ".join(parts[at : at + length]) + ends[1])
            at += length
        return pa.array(made, STRING, mask=array.is_null().to_numpy(zero_copy_only=False))

    return over_arrays(kernel), False


__all__ = ["nested_cast"]
