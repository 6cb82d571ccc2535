"""Where rows can come from. Each function returns a description for `Dataflow.source`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.description import description_from_json, schema_from_json, schema_to_json
from evenflow.sources.memory import Given, MemorySource, split_batches
from evenflow.sources.source import Reader, Source

KINDS: Final[Mapping[str, type[Source]]] = {s.kind: s for s in (MemorySource,)}


def memory(
    batches: Given | Iterable[Given] | Iterable[Iterable[Given]],
    partitions: int | None = None,
    *,
    ended: bool = True,
    schema: pa.Schema | None = None,
) -> MemorySource:
    """Rows that are already here: a batch or table, a list of them dealt round-robin to `partitions` (default 1), or one list per partition.

    ended: the stream ends after them. schema: needed when there is no batch at all. Raises QueryError if schemas differ.
    """
    lists = split_batches(batches, partitions)
    schemas = [batch.schema for part in lists for batch in part]
    if schema is None and not schemas:
        raise QueryError("memory source: there is no batch to take the schema from; give schema=")
    declared = schema if schema is not None else schemas[0]
    for found in schemas:
        if not found.equals(declared):
            raise QueryError(f"memory source: batches have different schemas: {found} and {declared}")
    return MemorySource(declared, tuple(tuple(part) for part in lists), ended)


def from_json(data: Mapping[str, Any]) -> Source:
    """The source that `Source.to_json` described. Raises QueryError for an unknown kind."""
    source: Source = description_from_json(KINDS, data, "source")
    return source


__all__ = ["MemorySource", "Reader", "Source", "from_json", "memory", "schema_from_json", "schema_to_json"]
