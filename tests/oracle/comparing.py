"""Row by row: what Evenflow's expression gives beside what Spark's does, errors included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.query.expression import Compiled, DivideByZero, InvalidValue
from evenflow.stream.values import plain_values

TYPED: Final = (ArithmeticOverflow, DivideByZero, InvalidValue)
"""What an expression may raise because of a row's values."""

RAISES: Final = "raises"
REFUSED: Final = "refuses it"


@dataclass(frozen=True, slots=True)
class Difference:
    """One expression in one row. row: None if it is not about a row. ours, sparks: a value, or RAISES and the error."""

    text: str
    row: int | None
    ours: Any
    sparks: Any
    inputs: str = ""

    def __str__(self) -> str:
        where = "" if self.row is None else f" at row {self.row} {self.inputs}"
        return f"{self.text}{where}: {self.ours!r}, Spark has {self.sparks!r}"


def differences(compiled: Mapping[str, Compiled], batch: pa.RecordBatch, answers: Mapping[str, pa.Array | None]) -> Iterator[Difference]:
    """The first difference of each expression that Spark has answered."""
    for text, expression in compiled.items():
        if text not in answers:
            yield Difference(text, None, f"compiles to {expression.type}", REFUSED)
        elif (spark := answers[text]) is not None and (found := _first(text, expression, batch, spark)) is not None:
            yield found


def _first(text: str, expression: Compiled, batch: pa.RecordBatch, answer: pa.Array) -> Difference | None:
    wanted = answer.type.value_type
    if shown(expression.type) != shown(wanted):
        return Difference(text, None, str(expression.type), str(wanted))
    raised = answer.is_null().to_numpy(zero_copy_only=False)
    sparks = raw(answer.flatten())
    ours, errors = outcomes(expression, batch)
    taken = iter(sparks)
    for row in range(batch.num_rows):
        sees = RAISES if raised[row] else next(taken)
        has = errors.get(row, ours[row])
        if isinstance(has, Exception):
            if sees is RAISES and isinstance(has, TYPED):
                continue
            has = f"{RAISES} {type(has).__name__}: {has}"
        elif sees is not RAISES and same(has, sees, expression.type):
            continue
        inputs = {name: raw(batch.column(name))[row] for name in expression.columns}
        return Difference(text, row, has, sees, str(inputs))
    return None


def outcomes(expression: Compiled, batch: pa.RecordBatch) -> tuple[list[Any], dict[int, Exception]]:
    """The values, all rows at once, and the errors of those rows that have none: those are found one by one, and left out."""
    try:
        return _values(expression, batch), {}
    except Exception:
        errors: dict[int, Exception] = {}
        for row in range(batch.num_rows):
            try:
                _values(expression, batch.slice(row, 1))
            except Exception as error:
                errors[row] = error
    good = np.array([row not in errors for row in range(batch.num_rows)])
    try:
        values = iter(_values(expression, batch.filter(pa.array(good))))
    except Exception as error:  # Each row by itself is fine, all together are not.
        return [None] * batch.num_rows, dict.fromkeys(range(batch.num_rows), error)
    return [next(values) if fine else None for fine in good], errors


def _values(expression: Compiled, batch: pa.RecordBatch) -> list[Any]:
    result = expression(batch)
    assert len(result) == batch.num_rows, f"{len(result)} values for {batch.num_rows} rows"
    assert result.type == expression.type, f"{result.type} instead of {expression.type}"
    return raw(result)


def raw(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """As Python values; times as their whole numbers, because datetime ends at the years 1 and 9999."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_string(values.type):  # Bytes that are no UTF-8 are a string of Spark's too.
        return [None if v is None else v.decode(errors="backslashreplace") for v in values.cast(pa.binary()).to_pylist()]
    return plain_values(values)


def shown(type: Any) -> str:
    """The type, whether or not a part of it may be null, and whatever Arrow calls an element."""
    if pa.types.is_map(type):
        return f"map<{shown(type.key_type)}, {shown(type.item_type)}>"
    if pa.types.is_list(type):
        return f"list<{shown(type.value_type)}>"
    return f"struct<{', '.join(f'{f.name}: {shown(f.type)}' for f in type)}>" if pa.types.is_struct(type) else str(type)


def same(a: Any, b: Any, type: Any) -> bool:
    """Equal; zeros by their sign too, other floats but for the last digits. Parts of what is nested in the same way."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[f.name], b[f.name], f.type) for f in type)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        kinds = [type.key_type, type.item_type] if pa.types.is_map(type) else []
        inner = pa.struct([("0", kinds[0]), ("1", kinds[1])]) if kinds else type.value_type if pa.types.is_list(type) else None
        if kinds:
            pairs = [[dict(zip("01", pair, strict=True)) for pair in side] for side in (a, b)]
            return len(a) == len(b) and all(same(x, y, inner) for x, y in zip(*pairs, strict=True))
        return len(a) == len(b) and all(same(x, y, inner) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        if a == b or (math.isnan(a) and math.isnan(b)):
            return math.copysign(1, a) == math.copysign(1, b) or math.isnan(a)
        return math.isclose(a, b, rel_tol=1e-6 if type == pa.float32() else 1e-13)
    return bool(a == b) and (a is None) == (b is None)
