"""The fields of a processor's keys in the state of another version of it: with more fields, and wider types (availability.md, K11).

A row has a word that says which fixed fields are given, a word for each of them, and an object column for each other field, as
`store.KeyedStore` lays them out; behind both lie the key columns, where the processor has timers. So a field that comes makes every
row another one, and state that is brought to a new location is written anew for it, with the same rows at the same slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.table import HEADER, row_width
from evenflow.operator.user.declared import Field
from evenflow.state.keys import KeptKeys

WIDER: Final = "a wider type of the same kind will do (int for smallint, double for float, more digits of a decimal)"


def obstacle(before: Sequence[Field], now: Sequence[Field]) -> str | None:
    """Why state with the fields of before cannot be taken over by a processor with these, naming the field; None if it can."""
    are = {field.name: field for field in now}
    for was in before:
        if (is_ := are.get(was.name)) is None:
            return f"its state field {was.name!r} is gone; fields may be added, and those that were there must stay"
        if is_.kind != was.kind:
            return f"its state field {was.name!r} was a {was.kind}, and is a {is_.kind}"
        for part, one, other in (("", was.type, is_.type), ("the keys of ", was.key_type, is_.key_type)):
            if one is not None and other is not None and not _wider(one, other):
                return f"{part}its state field {was.name!r}: was {one}, is {other}; {WIDER}"
    timers = [field.name for field in now if field.kind == "timer"]
    if timers and not any(field.kind == "timer" for field in before):
        return f"its timer {timers[0]!r} is given the key, and a state without timers has not kept the keys' columns"
    return None


def _wider(was: pa.DataType, is_: pa.DataType) -> bool:
    """Every value of the one is one of the other."""
    if was == is_:
        return True
    if pa.types.is_signed_integer(was) and pa.types.is_signed_integer(is_):
        return bool(is_.bit_width >= was.bit_width)
    if pa.types.is_floating(was) and pa.types.is_floating(is_):
        return bool(is_.bit_width >= was.bit_width)
    if pa.types.is_decimal(was) and pa.types.is_decimal(is_):
        return bool(is_.scale >= was.scale and is_.precision - is_.scale >= was.precision - was.scale)
    return False


@dataclass(frozen=True, slots=True)
class Widening:
    """From the fields of before to those of now, between which there is no `obstacle`. kept: words and object columns of a row in which the
    key columns lie."""

    before: tuple[Field, ...]
    now: tuple[Field, ...]
    kept: tuple[int, int]

    @staticmethod
    def of(before: Sequence[Field], now: Sequence[Field], schema: pa.Schema, keys: Sequence[str]) -> Widening | None:
        """None if every row is as it was. schema: of the processor's input. keys: its key columns."""
        if [_form(field) for field in before] == [_form(field) for field in now]:
            return None
        kept = KeptKeys(schema, keys) if any(field.kind == "timer" for field in before) else None
        return Widening(tuple(before), tuple(now), (0, 0) if kept is None else (kept.words, len(kept.object_types)))

    def widened(self, rows: pa.Table, said: Mapping[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
        """The rows of an object, and what it says of itself. Raises what Arrow and Python raise for rows of another table."""
        were, are = _names(self.before, fixed=True), _names(self.now, fixed=True)
        first = 1 + len(were)
        if int(said["width"]) != row_width(first + self.kept[0]):
            raise ValueError(f"its rows have {said['width']} words, and not those of fields {[field.name for field in self.before]}")
        nothing = np.zeros(rows.num_rows, np.int64)
        given, bits = rows.column("w0").to_numpy(), nothing.copy()
        words: list[Any] = []
        for at, name in enumerate(are):
            if name in were:
                bits |= ((given >> were.index(name)) & 1) << at
            words.append(rows.column(f"w{1 + were.index(name)}") if name in were else pa.array(nothing))
        words = [pa.array(bits), *words, *(rows.column(f"w{first + at}") for at in range(self.kept[0]))]
        width = row_width(len(words))
        words += [pa.array(nothing)] * (width - HEADER - len(words))
        columns = {name: rows.column(name) for name in rows.column_names if not name[1:].isdigit()}
        columns |= {f"w{at}": column for at, column in enumerate(words)}
        columns |= {f"o{at}": column for at, column in enumerate(self._objects(rows))}
        return pa.table(columns), {**said, "width": width}

    def _objects(self, rows: pa.Table) -> list[Any]:
        were, objects = _names(self.before, fixed=False), list[Any]()
        for field in self.now:
            if field.name in were:
                objects.append(rows.column(f"o{were.index(field.name)}").cast(field.column_type))
            elif not field.fixed:
                objects.append(pa.nulls(rows.num_rows, field.column_type))
        return [*objects, *(rows.column(f"o{len(were) + at}") for at in range(self.kept[1]))]


def _form(field: Field) -> tuple[Any, ...]:
    return field.name, field.kind, field.type, field.key_type


def _names(fields: Sequence[Field], *, fixed: bool) -> list[str]:
    return [field.name for field in fields if field.fixed == fixed]
