"""Results handed to the user's own function, or to nobody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sinks.sink import PATIENCE, Sink, Where, Writer
from evenflow.stream.declared import Declared, May, a, whole
from evenflow.stream.values import shown_values
from evenflow.stream.visible import visible

FUNCTION: Final = a("a function of an epoch's number and its rows", callable)


class CallbackWriter(Writer):
    def __init__(self, function: Callable[[int, pa.RecordBatch], object]) -> None:
        self._function = function

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        self._function(epoch, batch)


@dataclass(frozen=True)
class CallbackSink(Declared, Sink):
    """Calls `function(epoch, batch)` in the driver, in epoch order; with `unordered=True` for each portion of an epoch as it comes.

    If it raises it is called again with the same epoch: a function that has effects outside must remember the epoch itself. So it must with
    a checkpoint location: a restart calls it again with the epochs that are made again, with the same rows. With durability "no-loss"
    they have other rows, so that none may be passed over for its number: rows come twice then, and must be able to.
    """

    kind: ClassVar[str] = "callback"
    where: ClassVar[Where] = "driver"
    takes_portions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True
    function: Callable[[int, pa.RecordBatch], object]
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)
    MAY: ClassVar[Mapping[str, May]] = {**PATIENCE, "function": FUNCTION}
    option_owner: ClassVar[str] = "callback sink"

    def open(self, run_id: str) -> Writer:
        return CallbackWriter(self.function)

    def to_json(self) -> dict[str, Any]:
        raise QueryError("a callback sink cannot be saved as JSON; add it with .to(sinks.callback(...)) after loading the dataflow")


class ConsoleWriter(Writer):
    def __init__(self, limit: int, stream: Literal["stdout", "stderr"]) -> None:
        self._limit, self._stream = limit, stream

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            print(table_text(epoch, batch, self._limit), file=getattr(sys, self._stream), flush=True)


def table_text(epoch: int, batch: pa.RecordBatch, limit: int) -> str:
    """The first `limit` rows as aligned text below a line with the epoch. No value steers the terminal: see `visible`."""
    names, columns = batch.schema.names, [shown_values(column) for column in batch.slice(0, limit).columns]
    cells = [["null" if value is None else visible(str(value)) for value in row] for row in zip(*columns, strict=True)]
    cells = [[visible(name) for name in names], *cells]
    widths = [max(len(line[c]) for line in cells) for c in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    rest = [f"... {batch.num_rows - limit} more"] if batch.num_rows > limit else []
    return "\n".join([f"epoch {epoch}: {batch.num_rows} rows", *lines, *rest])


@dataclass(frozen=True)
class ConsoleSink(Declared, Sink):
    """Prints the first `limit` rows of every epoch that has any."""

    kind: ClassVar[str] = "console"
    where: ClassVar[Where] = "driver"
    takes_portions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True
    limit: int = 20
    stream: Literal["stdout", "stderr"] = "stdout"
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)
    MAY: ClassVar[Mapping[str, May]] = {**PATIENCE, "limit": whole(0)}
    option_owner: ClassVar[str] = "console sink"

    def open(self, run_id: str) -> Writer:
        return ConsoleWriter(self.limit, self.stream)


class NoWriter(Writer):
    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        return None


@dataclass(frozen=True)
class DiscardSink(Sink):
    """Counts rows where they are produced and drops them."""

    kind: ClassVar[str] = "discard"
    where: ClassVar[Where] = "none"

    def open(self, run_id: str) -> Writer:
        return NoWriter()


@dataclass(frozen=True)
class SparkSink(Sink):
    """Held until Spark's own streaming query commits them; read with the engine's streaming source (protocol O2)."""

    kind: ClassVar[str] = "spark"
    where: ClassVar[Where] = "spark"

    def open(self, run_id: str) -> Writer:
        raise QueryError("a Spark sink has no writer: read it with spark.readStream while the run is active")
