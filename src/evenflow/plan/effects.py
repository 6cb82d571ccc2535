"""The records of a segment whose first step answers what cannot be made again (availability.md, N1): their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

PORT_COLUMN: Final = "_port"


def effects_schema(ports: Sequence[pa.Schema]) -> pa.Schema:
    """Of a record. ports: of what comes out of the box. With several, a row has the columns of its port, and nulls in the others."""
    if len(ports) == 1:
        return ports[0]
    columns = [pa.field(f"{port}.{field.name}", field.type) for port, schema in enumerate(ports) for field in schema]
    return pa.schema([*columns, pa.field(PORT_COLUMN, pa.int8())])
