"""Structures, maps and lists in expressions: how they are put together, and how a part is taken out.

Names of fields are found whatever the case of their letters. As in Spark's ANSI mode an index that is not in a list is an error, a key
that is not in a map is null.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, Value, lift, literal, measured, unit_of
from evenflow.query.sql.ordering import comparable, signs
from evenflow.query.sql.shapes import (
    elements_of,
    entries_of,
    entry_type,
    lengths_of,
    list_from,
    map_from,
    mask_of,
    nulls,
    over_arrays,
    owners_of,
    starts_of,
    struct_from,
    woven,
)
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import BOOL, INT, INTERVAL, NULL, STRING, common, integral, name_of, stringy
from evenflow.stream.arrays import Int64s, arrow_of
from evenflow.stream.schema import VARIANT, map_of, struct_of
from evenflow.stream.taking import lying, taken

# Structures


def _named_struct(*args: Node) -> Node:
    if len(args) % 2:
        raise ExpressionError(f"named_struct takes names and values in turn, and {len(args)} arguments are not pairs")
    names = [constant_of(name, "the name of a field of named_struct") for name in args[::2]]
    if not all(isinstance(name, str) for name in names):
        raise TypeMismatch("the names of the fields of named_struct must be strings")
    return structure([str(name) for name in names], args[1::2])


def structure(names: Sequence[str], values: Sequence[Node]) -> Node:
    """A structure of these fields, which is never null itself."""
    try:
        type_ = struct_of([(name, value.type) for name, value in zip(names, values, strict=True)], "a structure")
    except QueryError as error:
        raise ExpressionError(str(error)) from None
    return lift(over_arrays(lambda *arrays: struct_from(arrays, type_)), type_, *values, strict=False)


def _struct(*args: Node) -> Node:
    """The parser gives the fields names where they have any (`parser.struct_call`)."""
    return structure([f"col{at}" for at in range(1, len(args) + 1)], args)


def field_of(node: Node, name: str) -> Node:
    """`node.name`: of a structure the field, of a list of structures the list of the fields."""
    inner = node.type.value_type if pa.types.is_list(node.type) else node.type
    if not pa.types.is_struct(inner) or inner == VARIANT:
        raise TypeMismatch(f"{node.text}.{name}: {node.text} is {name_of(node.type)}, and has no fields")
    at = _position(inner, name, node)
    found = inner.field(at).type
    if inner is node.type:
        return lift(over_arrays(lambda array: array.flatten()[at]), found, node)
    kernel = over_arrays(lambda array: list_from(lengths_of(array), array.flatten().flatten()[at], mask_of(array)))
    return lift(kernel, pa.list_(found), node)


def _position(type_: Any, name: str, node: Node) -> int:
    names = [field.name for field in type_]
    found = [at for at, each in enumerate(names) if each.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ExpressionError(f"{node.text}.{name} is ambiguous: the fields are {', '.join(names)}")
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    hint = next((f" (did you mean {each!r}?)" for each in names if near and each.lower() == near[0]), "")
    raise UnknownColumn(f"{node.text} has no field {name!r}{hint}; its fields are {', '.join(names)}")


# Lists


def _array(*args: Node) -> Node:
    if not args:
        return literal(pa.scalar([], pa.list_(NULL)))
    type_ = common([each.type for each in args], "array(...)")
    count = len(args)
    kernel = over_arrays(lambda *arrays: list_from(np.full(len(arrays[0]), count, np.int64), woven(arrays)))
    found = lift(kernel, pa.list_(type_), *(cast(each, type_) for each in args), strict=False)
    return measured(found, unit_of(args)) if type_ == INTERVAL else found


def item_of(node: Node, key: Node) -> Node:
    """`node[key]`: an element by its place from 0, a value by its key, a field by its name."""
    if node.type == VARIANT:
        raise TypeMismatch(f"{node.text}[{key.text}]: of a variant there is variant_get({node.text}, '$[0]') or '$.name'")
    if pa.types.is_struct(node.type) or (pa.types.is_list(node.type) and stringy(key.type)):
        return field_of(node, str(constant_of(key, f"the name of a field of {node.text}")))
    if pa.types.is_map(node.type):
        return _value(node, key)
    if not pa.types.is_list(node.type):
        raise TypeMismatch(f"{node.text}[{key.text}]: {node.text} is {name_of(node.type)}, and has no elements")
    return _element(node, key, first=0, tried=False)


MOST_PLACE: Final = 2**31 - 1
"""What offsets of lists can say."""


def _element(node: Node, index: Node, *, first: int, tried: bool) -> Node:
    """An element by its place. first: the number of the first one; if that is 1, -1 is the last one. tried: null where there is none."""
    if not integral(index.type) and index.type != NULL:
        raise TypeMismatch(f"the place of an element of {node.text} is {index.text}, which is {name_of(index.type)} and no int")

    def kernel(array: pa.Array, at: pa.Array) -> pa.Array:
        offsets = array.offsets.to_numpy()
        starts = offsets[:-1]
        lengths = offsets[1:] - starts
        asked = (at.fill_null(first) if at.null_count else at).to_numpy(zero_copy_only=False)
        place = np.where(asked < 0, asked + lengths, asked - first) if first else asked
        wrong = (place < 0) | (place >= lengths)
        if first:
            wrong |= asked == 0
        missing = nulls(array) | nulls(at) if array.null_count or at.null_count else None
        if missing is not None:
            wrong &= ~missing
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            if first and asked[row] == 0:
                raise InvalidValue("element_at counts elements from 1, or from -1 for the last one, and 0 is none of them")
            if not tried:
                other = "try_element_at" if first else "get"
                raise InvalidValue(f"there is no element {asked[row]} in a list of {lengths[row]}; use {other} for null instead")
        none = wrong if missing is None else wrong | missing
        return array.values.take(pa.array(np.where(none, 0, starts + place), mask=none))

    general = over_arrays(kernel)

    def run(lists: Value, at: Value) -> Value:
        """The same place of each list, which all of them have, is what is mostly asked for."""
        if isinstance(lists, pa.Array) and isinstance(at, pa.Scalar) and at.is_valid and not lists.null_count and len(lists):
            offsets, place = lists.offsets.to_numpy(), at.as_py() - first
            if 0 <= place < MOST_PLACE - int(offsets[-1]):
                found = _nth(lists.values, offsets, place)
                if found is not None:
                    return found
        return general(lists, at)

    found = lift(run, node.type.value_type, node, cast(index, pa.int64()), raises=not tried or bool(first))
    return measured(found, node.unit) if found.type == INTERVAL else found


def _nth(values: pa.Array, offsets: npt.NDArray[np.int32], place: int) -> pa.Array | None:
    """The element at this place of each list; None if one does not have it. Of lists that are equally long it is each so many elements."""
    lengths = offsets[1:] - offsets[:-1]
    shortest = int(lengths.min())
    if shortest <= place:
        return None
    found = lying(values)
    if found is not None and shortest == int(lengths.max()):
        return arrow_of(found[offsets[0] + place : offsets[-1] : shortest].copy(), values.type)
    return taken(values, offsets[:-1].astype(np.int64) + place)


def _element_at(node: Node, key: Node, *, tried: bool = False) -> Node:
    if pa.types.is_map(node.type):
        return _value(node, key)
    if not pa.types.is_list(node.type):
        raise TypeMismatch(f"element_at needs a list or a map, but {node.text} is {name_of(node.type)}")
    if key.type == pa.int64():
        raise TypeMismatch(f"element_at needs an int for the place in a list, but {key.text} is bigint; cast it")
    return _element(node, key, first=1, tried=tried)


def _get(node: Node, index: Node) -> Node:
    if not pa.types.is_list(node.type):
        raise TypeMismatch(f"get needs a list, but {node.text} is {name_of(node.type)}")
    return _element(node, index, first=0, tried=True)


def _size(name: str, node: Node) -> Node:
    """Null of null, as in ANSI mode."""
    if not pa.types.is_list(node.type) and (name == "array_size" or not pa.types.is_map(node.type)):
        raise TypeMismatch(f"{name} needs a list{'' if name == 'array_size' else ' or a map'}, but {node.text} is {name_of(node.type)}")
    kernel = over_arrays(lambda array: pa.array(lengths_of(array).astype(np.int32), mask=nulls(array)))
    return lift(kernel, INT, node)


# Maps


def _map(*args: Node) -> Node:
    if len(args) % 2:
        raise ExpressionError(f"map takes keys and values in turn, and {len(args)} arguments are not pairs")
    keys, items = args[::2], args[1::2]
    if not keys:
        return literal(pa.scalar([], pa.map_(STRING, NULL)))
    type_ = map_type(common([k.type for k in keys], "the keys of map(...)"), common([i.type for i in items], "the values of map(...)"))
    count = len(keys)

    def kernel(*arrays: pa.Array) -> pa.Array:
        lengths = np.full(len(arrays[0]), count, np.int64)
        return checked_map(lengths, woven(arrays[:count]), woven(arrays[count:]), None)

    nodes = [*(cast(k, type_.key_type) for k in keys), *(cast(i, type_.item_type) for i in items)]
    return lift(over_arrays(kernel), type_, *nodes, strict=False, raises=True)


def map_type(key: pa.DataType, item: pa.DataType) -> Any:
    if key == NULL:
        raise TypeMismatch("the keys of a map have a type; cast the null, though Spark raises for a key that is null")
    try:
        return map_of(key, item, "a map")
    except QueryError as error:
        raise TypeMismatch(str(error)) from None


def checked_map(lengths: Int64s, keys: pa.Array, items: pa.Array, mask: pa.Array | None) -> pa.Array:
    """Maps of these entries, as Spark makes them: InvalidValue for a key that is null, or there twice in one map."""
    if keys.null_count:
        raise InvalidValue("the key of a map cannot be null")
    rows, codes = owners_of(lengths), _codes(keys)
    pairs = rows * (len(keys) + 1) + codes
    if np.unique(pairs).size < pairs.size:
        order = np.argsort(pairs, kind="stable")
        twice = int(order[1:][np.diff(pairs[order]) == 0][0])
        raise InvalidValue(f"the key {_said(keys[twice])} is in one map more than once; take one value for it")
    return map_from(lengths, keys, items, mask)


def _said(key: pa.Scalar) -> str:
    """A key for a message; of times beyond Python's the number."""
    try:
        return repr(key.as_py())
    except (OverflowError, ValueError):
        return str(getattr(key, "value", key))


def _codes(keys: pa.Array) -> Int64s:
    """int64 (n,): numbers below n + 1 that are equal where keys are."""
    if not pa.types.is_nested(keys.type):
        return keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]
    places: dict[Any, int] = {}
    return np.array([places.setdefault(comparable(key), len(places)) for key in keys.to_pylist()], np.int64)


def _map_from_arrays(keys: Node, items: Node) -> Node:
    for node in (keys, items):
        if not pa.types.is_list(node.type):
            raise TypeMismatch(f"map_from_arrays needs two lists, but {node.text} is {name_of(node.type)}")
    type_ = map_type(keys.type.value_type, items.type.value_type)

    def kernel(a: pa.Array, b: pa.Array) -> pa.Array:
        missing = nulls(a) | nulls(b)
        if missing.any():
            hidden = pa.array(missing)
            a, b = (pa.array([None], each.type).take(pa.array(np.zeros(len(each), np.int64))) if missing.all() else _nulled(each, hidden)
                    for each in (a, b))  # fmt: skip
        if (lengths_of(a) != lengths_of(b)).any():
            raise InvalidValue("map_from_arrays: the lists of keys and of values have different lengths")
        return checked_map(lengths_of(a), a.flatten(), b.flatten(), pa.array(missing) if missing.any() else None)

    return lift(over_arrays(kernel), type_, keys, items, raises=True)


def _nulled(array: pa.Array, hidden: pa.Array) -> pa.Array:
    """The array, null also where `hidden` is true."""
    places = np.arange(len(array))
    return array.take(pa.array(places, mask=hidden.to_numpy(zero_copy_only=False)))


def _map_from_entries(entries: Node) -> Node:
    """Null where an entry is."""
    inner = entries.type.value_type if pa.types.is_list(entries.type) else NULL
    if not pa.types.is_struct(inner) or inner.num_fields != 2:
        raise TypeMismatch(f"map_from_entries needs a list of pairs, but {entries.text} is {name_of(entries.type)}")
    type_ = map_type(inner.field(0).type, inner.field(1).type)

    def kernel(array: pa.Array) -> pa.Array:
        pairs, lengths = array.flatten(), lengths_of(array)
        if pairs.null_count:
            spoilt = np.zeros(len(array), np.bool_)
            spoilt[owners_of(lengths)[nulls(pairs)]] = True
            array = _nulled(array, pa.array(spoilt))
            pairs, lengths = array.flatten(), lengths_of(array)
        keys, items = pairs.flatten()
        return checked_map(lengths, keys, items, mask_of(array))

    return lift(over_arrays(kernel), type_, entries, raises=True)


def _map_concat(*maps: Node) -> Node:
    """All entries, those of the first map first. Null where a map is."""
    for node in maps:
        _check_map(node, "map_concat")
    if not maps:
        return literal(pa.scalar([], pa.map_(STRING, NULL)))
    type_: Any = common([node.type for node in maps], "map_concat")

    def kernel(*arrays: pa.Array) -> pa.Array:
        missing = np.logical_or.reduce([nulls(array) for array in arrays])
        owners = np.concatenate([owners_of(lengths_of(array)) for array in arrays])
        order = np.argsort(owners, kind="stable")
        order = pa.array(order[~missing[owners[order]]])
        keys, items = (pa.concat_arrays([entries_of(array)[at] for array in arrays]).take(order) for at in (0, 1))
        counts = np.where(missing, 0, np.bincount(owners, minlength=len(missing)))
        return checked_map(counts, keys, items, pa.array(missing) if missing.any() else None)

    return lift(over_arrays(kernel), type_, *(cast(node, type_) for node in maps), raises=True)


def _arrays_zip(*args: Node) -> Node:
    """As the parser writes it: names of fields and arrays in turn. The shorter ones are filled up with nulls."""
    names, lists = [str(constant_of(name, "the name of a field")) for name in args[::2]], args[1::2]
    for node in lists:
        if not pa.types.is_list(node.type):
            raise TypeMismatch(f"arrays_zip needs arrays, but {node.text} is {name_of(node.type)}")
    type_ = struct_of([(name, node.type.value_type) for name, node in zip(names, lists, strict=True)], "arrays_zip")

    def kernel(*arrays: pa.Array) -> pa.Array:
        missing = np.logical_or.reduce([nulls(array) for array in arrays])
        each = [lengths_of(array) for array in arrays]
        counts = np.where(missing, 0, np.maximum.reduce(each))
        owners = owners_of(counts)
        places = np.arange(len(owners)) - starts_of(counts)[:-1][owners]
        parts = []
        for array, own in zip(arrays, each, strict=True):
            there = places < own[owners]
            parts.append(array.flatten().take(pa.array(np.where(there, starts_of(own)[:-1][owners] + places, 0), mask=~there)))
        return list_from(counts, struct_from(parts, type_), pa.array(missing) if missing.any() else None)

    return lift(over_arrays(kernel), pa.list_(type_), *lists)


def _value(node: Node, key: Node) -> Node:
    """The value of a key, null where it is not there."""
    key = _key(node, key)

    def kernel(array: pa.Array, wanted: pa.Array) -> pa.Array:
        places = _found(array, wanted)
        return entries_of(array)[1].take(pa.array(np.maximum(places, 0), mask=places < 0))

    return lift(over_arrays(kernel), node.type.item_type, node, key)


def _found(array: pa.Array, wanted: pa.Array) -> Int64s:
    """int64 (n,): which of all entries has the key that is wanted, -1 where none has, or there is no map."""
    lengths = lengths_of(array)
    rows, keys = owners_of(lengths), entries_of(array)[0]
    equal = np.flatnonzero(signs(keys, wanted.take(pa.array(rows))) == 0)
    places = np.full(len(array), -1, np.int64)
    places[rows[equal][::-1]] = equal[::-1]  # Of several the first one counts.
    return places


def _contains_key(node: Node, key: Node) -> Node:
    _check_map(node, "map_contains_key")
    kernel = over_arrays(lambda array, wanted: pa.array(_found(array, wanted) >= 0, mask=nulls(array) | nulls(wanted)))
    return lift(kernel, BOOL, node, _key(node, key))


def _key(node: Node, key: Node) -> Node:
    """What is looked for, as a map's keys are; null where no key can be that."""
    if stringy(key.type) != stringy(node.type.key_type) and key.type != NULL:
        raise TypeMismatch(f"the keys of {node.text} are {name_of(node.type.key_type)}, but {key.text} is {name_of(key.type)}; cast it")
    return cast(key, node.type.key_type, try_=True)


def _check_map(node: Node, what: str) -> None:
    if not pa.types.is_map(node.type):
        raise TypeMismatch(f"{what} needs a map, but {node.text} is {name_of(node.type)}")


def _parts(name: str, node: Node) -> Node:
    """map_keys, map_values, map_entries."""
    _check_map(node, name)
    type_ = {"map_keys": node.type.key_type, "map_values": node.type.item_type}.get(name, entry_type(node.type))

    def kernel(array: pa.Array) -> pa.Array:
        parts = elements_of(array) if name == "map_entries" else entries_of(array)[name == "map_values"]
        return list_from(lengths_of(array), parts, mask_of(array))

    return lift(over_arrays(kernel), pa.list_(type_), node)


FUNCTIONS: Final = {
    "named_struct": Signature(_named_struct, 2, MANY),
    "struct": Signature(_struct, 1, MANY),
    "array": Signature(_array, 0, MANY),
    "map": Signature(_map, 0, MANY),
    "map_from_arrays": Signature(_map_from_arrays, 2, 2),
    "map_from_entries": Signature(_map_from_entries, 1, 1),
    "map_concat": Signature(_map_concat, 0, MANY),
    "_arrays_zip": Signature(_arrays_zip, 2, MANY),
    "map_keys": Signature(partial(_parts, "map_keys"), 1, 1),
    "map_values": Signature(partial(_parts, "map_values"), 1, 1),
    "map_entries": Signature(partial(_parts, "map_entries"), 1, 1),
    "map_contains_key": Signature(_contains_key, 2, 2),
    "element_at": Signature(_element_at, 2, 2),
    "try_element_at": Signature(partial(_element_at, tried=True), 2, 2),
    "get": Signature(_get, 2, 2),
    "size": Signature(partial(_size, "size"), 1, 1),
    "cardinality": Signature(partial(_size, "cardinality"), 1, 1),
    "array_size": Signature(partial(_size, "array_size"), 1, 1),
}
