"""The fields of a processor's keys without the processor: what looks at its state has no code of the user's.

Which fields there are the processor says when it is opened. So a checkpoint bears a description of them (`declared`), and of that a table
is made which takes the state (`KeptFields`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from evenflow.operator.operator import Shown
from evenflow.operator.tabled import Tabled
from evenflow.operator.user.declared import Field
from evenflow.operator.user.store import KeyedStore
from evenflow.state.keys import KeptKeys, TracedKeys

Said = Sequence[Any]
"""Of one field, in JSON's words: [name, kind, type, type of a map's keys or None]."""


def declared(fields: Iterable[Field]) -> list[Said]:
    """What a checkpoint says of a processor's fields."""
    return [[f.name, f.kind, str(f.type), None if f.key_type is None else str(f.key_type)] for f in fields]


class KeptFields(Tabled, Shown):
    """The state of a processor, to be looked at. schema: of the processor's input. keys: its key columns. fields: as it has declared them,
    in that order."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], fields: Mapping[str, Field]) -> None:
        # Nobody is handed a value: what comes out is Arrow's again, with times of any year.
        fields = {name: replace(field, plain=True) for name, field in fields.items()}
        self._fields = list(fields.values())
        timed = any(field.kind == "timer" for field in self._fields)
        self._traced = TracedKeys(schema, keys)
        self._key_schema = pa.schema([schema.field(key) for key in keys]) if timed else None
        self._table: KeyedStore = KeyedStore(fields, KeptKeys(schema, keys) if timed else None)

    @property
    def shown(self) -> pa.Schema:
        """A column per field, null where nothing was written, by the key. Keys are kept where the processor has timers."""
        keys = self._traced.fields if self._key_schema is None else self._key_schema
        return pa.schema([*keys, *(pa.field(field.name, field.column_type) for field in self._fields)])

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        if self._key_schema is None:
            keys = self._traced.read(self._table.words, slots)
        else:
            keys = self._table.keys_of(slots, self._key_schema).columns
        return pa.RecordBatch.from_arrays([*keys, *(self._table.column_of(field, slots) for field in self._fields)], schema=self.shown)
