"""A sink that several regions write to, as an outlet opens it: each epoch by whoever is first, the others look on (race.md, W3).

The wait is in the sink's own thread, so it holds back this region only, and no longer than until another region has appended.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.availability.committing import Appending, Held, Next, Turns
from evenflow.availability.group import Region, check_chain
from evenflow.errors import SinkError
from evenflow.kernels.digest import set_of_rows
from evenflow.sinks.sink import Appender, RunOver, Sink, Writer
from evenflow.sinks.stream import StreamSink
from evenflow.world.spark.regions.serving import Served

LOOK_S: Final = 0.01
"""Who waits for another region asks the sink so often."""
AGAIN_US: Final = 6 * 3_600_000_000
"""When no epoch has had rows for so long, a sink that forgets is told again what it has; by the next region after twice as long."""
SAY_US: Final = 5_000_000
"""After so long it says for what it waits."""

log = logging.getLogger("evenflow")


class AppendingWriter(Writer):
    """One region's side of a sink."""

    def __init__(self, appender: Appender, turns: Turns, last: int = 0, whose: str = "") -> None:
        """last: the last epoch with rows before the first that comes. whose: what the sink has has to be of that chain, if the region does
        not go on with one: at a location a dataflow may have become another one. "": nobody asks."""
        self._appender, self._appending = appender, Appending(turns, last)
        self._whose = whose if last == 0 else ""
        self._over, self._said, self._told_us = threading.Event(), False, _now_us()

    @property
    def appended(self) -> int:
        """Epochs with rows that this region wrote."""
        return self._appending.appended

    @property
    def seen(self) -> int:
        """Epochs with rows that others wrote."""
        return self._appending.seen

    def begin_behind(self, epoch: int) -> None:
        self._appending.prev = self._appending.turns.begun = epoch

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Return when the sink has the epoch, whoever wrote it. Raises RegionsDisagree, GroupDiffers, RunOver."""
        if not batch.num_rows:
            self._say_again()
            return
        link = self._appending.link(epoch, set_of_rows(batch))
        while (step := self._appending.next(link, _now_us())) is not Next.DONE:
            match step:
                case Next.LOOK:
                    self._look()
                case Next.WAIT:
                    if self._over.wait(LOOK_S):
                        raise RunOver(f"sink {self._appending.turns.sink!r}: the run is over, and epoch {epoch} waited for another region")
                    self._look()
                    self._say(epoch)
                case Next.APPEND:
                    self._append(link, batch)
        self._told_us = _now_us()

    def _say_again(self) -> None:
        now_us = _now_us()
        if self._appender.forgets and now_us - self._told_us >= AGAIN_US * (1 + self._appending.turns.place):
            self._told_us = now_us
            try:
                self._appender.say_again()
            except SinkError as error:  # No row depends on it yet, and there are days left.
                log.warning("sink %r: %s", self._appending.turns.sink, error)

    def _say(self, epoch: int) -> None:
        """Once, that nobody brings what is before this region's first epoch."""
        turns = self._appending.turns
        if not self._said and turns.still_us(_now_us()) >= SAY_US:
            self._said = True
            log.warning(
                "sink %r has epoch %d last, and this region what comes behind epoch %d: epoch %d waits for who brings the rest",
                turns.sink, turns.held.epoch, turns.begun, epoch,
            )  # fmt: skip

    def _append(self, link: Link, batch: pa.RecordBatch) -> None:
        try:
            taken = self._appender.append(link.prev, link.epoch, link.digest, batch)
        except Exception:
            self._appending.unknown()
            raise
        if taken:
            self._appending.taken(link, _now_us())
        else:
            self._appending.refused(fenced=self._appender.fenced)

    def _look(self) -> None:
        held = Held(*self._appender.last())
        if self._whose and (noted := self._appender.noted) and noted != self._whose:
            check_chain(self._appending.turns.sink, self._whose, noted)
        self._appending.looked(held, _now_us())

    def interrupt(self) -> None:
        self._over.set()

    def close(self) -> None:
        self._over.set()
        self._appender.close()


class Shared:
    """A sink as an outlet opens it, in a region. place: of the region in its group's list. last, whose: see `AppendingWriter`."""

    def __init__(self, sink: Sink, name: str, place: int, last: int, whose: str = "") -> None:
        self._sink, self._name, self._place, self._last, self._whose = sink, name, place, last, whose
        self.retries, self.backoff_ms = sink.retries, sink.backoff_ms

    def open(self, run_id: str) -> Writer:
        """Raises SinkError."""
        appender = self._sink.open_for_group(run_id, self._name, self._whose)
        return AppendingWriter(appender, Turns(self._name, self._place), self._last, self._whose)


def opened(sink: Any, name: str, region: Region | None = None, last: int = 0) -> Any:
    """The sink as an outlet opens it: a stream sink gets its port, one that compares is shared by a group's regions, any other one is as
    it is. last: the last epoch with rows before the first that comes, as far as that is known where the run begins."""
    if isinstance(sink, StreamSink):
        silent = region is not None and region.after > 0
        return Served(sink, name, {} if region is None else region.group.facts(), None if silent else last)
    return Shared(sink, name, region.place, last, region.group.chained()) if region is not None and sink.compares else sink


def _now_us() -> int:
    return time.monotonic_ns() // 1000


__all__ = ["AppendingWriter", "Shared", "opened"]
