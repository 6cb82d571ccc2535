"""Results kept in the driver's memory under a name: for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from evenflow.sinks.sink import PATIENCE, Sink, Where, Writer
from evenflow.stream.declared import Declared, May

EPOCHS: Final[dict[str, list[tuple[int, pa.RecordBatch]]]] = {}
"""What each name holds, in this process: (epoch, batch) in epoch order."""


class MemoryWriter(Writer):
    def __init__(self, name: str) -> None:
        self._epochs = EPOCHS[name] = []

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if not self._epochs or epoch > self._epochs[-1][0]:  # An epoch that is offered again is already here.
            self._epochs.append((epoch, batch))

    def write_portion(self, epoch: int, batch: pa.RecordBatch) -> None:
        self._epochs.append((epoch, batch))


@dataclass(frozen=True)
class MemorySink(Declared, Sink):
    """Keeps every epoch in this process, under `name`. A new run with the same name starts empty; so does one that goes on at a checkpoint
    location, and is given again what is made again."""

    kind: ClassVar[str] = "memory"
    where: ClassVar[Where] = "driver"
    takes_portions: ClassVar[bool] = True
    name: str
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)
    MAY: ClassVar[Mapping[str, May]] = PATIENCE
    option_owner: ClassVar[str] = "memory sink"

    def open(self, run_id: str) -> Writer:
        return MemoryWriter(self.name)

    def epochs(self) -> list[tuple[int, pa.RecordBatch]]:
        """(epoch, rows) of every epoch received so far, in epoch order; with `unordered=True` of every portion, as they came."""
        return list(EPOCHS.get(self.name, ()))

    def rows(self) -> pa.Table:
        """All rows received so far, in epoch order. A table without columns if no epoch came at all."""
        batches = [batch for _, batch in self.epochs()]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def newest(self) -> pa.Table:
        """The rows of the newest epoch that has any: of a stream of whole tables (`Stream.complete`), the table as it is now."""
        batches = [batch for _, batch in self.epochs()]
        found = next((batch for batch in reversed(batches) if batch.num_rows), batches[-1] if batches else None)
        return pa.table({}) if found is None else pa.Table.from_batches([found])
