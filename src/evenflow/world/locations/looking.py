"""The state of a box by its key, and rows as JSON has them: what a person looks for."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.world.locations.checkpoints import Checkpoints
from evenflow.world.locations.kept import Which


def looked_up(
    found: Checkpoints,
    box: str,
    which: Which = None,
    key: Mapping[str, Any] | None = None,
    *,
    kind: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows of a box's state. key: values by column; the rows that have all of them, whether the state has kept its keys or their identity.

    Raises what `Checkpoints.state` does, UnknownColumn for a column that is not there, TypeMismatch for a value that its type cannot have.
    """
    if not key:
        return found.state(box, which, kind=kind, limit=limit)
    wanted = found.rows_of(box, which, kind=kind).keys
    if wanted is not None and set(wanted.names) <= set(key):
        given = pa.table({name: pa.array([_fit(key[name], wanted.field(name))]) for name in wanted.names})
        table, key = found.state(box, which, kind=kind, keys=given), {name: key[name] for name in key if name not in wanted.names}
    else:
        table = found.state(box, which, kind=kind)
    for name, value in key.items():
        if name not in table.column_names:
            named = table.column_names if wanted is None else [*wanted.names, *table.column_names]
            raise UnknownColumn(f"the state of box {box!r} has no column {name!r}; it has {', '.join(named)}")
        table = table.filter(pc.equal(table.column(name), _fit(value, table.schema.field(name))))
    return table if limit is None else table.slice(0, limit)


def _fit(value: Any, field: pa.Field) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TypeMismatch(f"{field.name}={value!r} is no {field.type}: {error}") from error


def said(value: Any) -> Any:
    """A value of a state as JSON has it: bytes in hexadecimal digits, times and decimals as texts, as are floats that are no numbers."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): said(each) for name, each in value.items()}
    return [said(each) for each in value] if isinstance(value, list | tuple) else str(value)


def shown(box: str, table: pa.Table, limit: int) -> dict[str, Any]:
    """At most `limit` rows (0: all) as JSON, and whether there are more."""
    some = table.slice(0, limit) if limit else table
    return {
        "box": box,
        "columns": [{"name": each.name, "type": str(each.type)} for each in table.schema],
        "rows": [{name: said(value) for name, value in row.items()} for row in some.to_pylist()],
        "more": table.num_rows > some.num_rows,
    }
