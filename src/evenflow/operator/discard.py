"""Discard: the end of a stream whose rows nobody wants, only their number. Lets a query run at full speed in a benchmark."""

from __future__ import annotations

import pyarrow as pa

from evenflow.operator.operator import End, Stateless
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Discard(End, Stateless):
    """Counts rows and drops them."""

    schemas: tuple[pa.Schema, ...] = ()

    def __init__(self, schema: pa.Schema) -> None:
        pass

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        self.rows_out += rows.count
        self.stored = (tick.epoch,) if rows.count else ()
        return ()
