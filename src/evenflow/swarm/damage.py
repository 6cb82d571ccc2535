"""What becomes of an object of a checkpoint: it is gone, or a bit is another one, or one value in a file that is as readable as ever."""

from __future__ import annotations

import io
from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.world.sim.store import SimStore

READABLE: Final = 0.5
"""So often what is altered is a value and not a bit, where there are rows."""


def damage(store: SimStore, names: Sequence[str], random: Random, seed: int) -> None:
    """Of one of these objects. random: says which, and whether it is gone."""
    name = random.choice(names)
    data = store.objects.pop(name, b"")
    if data and random.random() < 0.5:
        own = Random(f"byte of {name} of seed {seed}")
        at = own.randrange(len(data))
        altered = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        store.objects[name] = (another_value(data, own) if own.random() < READABLE else None) or altered


def another_value(data: bytes, random: Random) -> bytes | None:
    """The same file in which one word of one row's state is greater by one; None if it has no such rows."""
    table = pq.read_table(io.BytesIO(data))
    words = [index for index, field in enumerate(table.schema) if field.name.startswith("w") and field.name[1:].isdigit()]
    if not words or not table.num_rows:
        return None
    index = random.choice(words)
    values = table.column(index).to_numpy().astype(np.int64)
    values[random.randrange(len(values))] += 1
    sink = io.BytesIO()
    pq.write_table(table.set_column(index, table.schema.field(index), pa.array(values)), sink)
    return sink.getvalue()
