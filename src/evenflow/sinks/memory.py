"""Results kept in the driver's memory under a name: for tests and notebooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from evenflow.sinks.sink import PATIENCE, Sink, Where, Writer
from evenflow.stream.declared import Declared, May
from evenflow.stream.ids import run_of

EPOCHS: Final[dict[str, list[tuple[int, pa.RecordBatch]]]] = {}
"""What each name holds, in this process: (epoch, batch) in epoch order."""
NUMBERED: Final = re.compile(r"memory-\d+")
RUNS: Final[dict[str, str]] = {}
"""By name, what the run is known by that has put it there."""


class MemoryWriter(Writer):
    """What an earlier generation of the run has put there stays, where each is another run to sinks (durability "no-loss")."""

    def __init__(self, name: str, run_id: str) -> None:
        before = RUNS.get(name, run_id)
        RUNS[name] = run_id
        if before == run_id or run_of(before) != run_of(run_id):
            EPOCHS[name] = []
        self._epochs, self._last = EPOCHS[name], 0

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if epoch > self._last:  # An epoch that is offered again is already here.
            self._epochs.append((epoch, batch))
            self._last = epoch

    def write_portion(self, epoch: int, batch: pa.RecordBatch) -> None:
        self._epochs.append((epoch, batch))


@dataclass(frozen=True)
class MemorySink(Declared, Sink):
    """Keeps every epoch in this process, under `name`. A new run with the same name starts empty; so does one that goes on at a checkpoint
    location, and is given again what is made again. With durability "no-loss" epochs' numbers begin again behind a checkpoint's after a
    loss that the driver survives."""

    kind: ClassVar[str] = "memory"
    where: ClassVar[Where] = "driver"
    takes_portions: ClassVar[bool] = True
    name: str
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)
    MAY: ClassVar[Mapping[str, May]] = PATIENCE
    option_owner: ClassVar[str] = "memory sink"

    @property
    def is_numbered(self) -> bool:
        """Its name was given by itself, and is another one whenever the program is run again in a process."""
        return NUMBERED.fullmatch(self.name) is not None

    def open(self, run_id: str) -> Writer:
        return MemoryWriter(self.name, run_id)

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
