"""A sink in the driver: one thread per sink and run, which writes epochs in order, again and again if need be (protocol O1, O2).

Where a sink takes first come, first served, it is given an epoch's rows in portions, each partition's once and in order, and the epoch is
committed when all of them are written.

While a sink fails its epochs are not committed, so the window fills and the ingress waits: that is the back-pressure.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Final

import pyarrow as pa

from evenflow.coordinator.first_copy import FirstPortions
from evenflow.errors import EvenflowError, GroupDiffers, RegionsDisagree, SinkError
from evenflow.exchange.portion import Portion, rows_of, without_producer
from evenflow.sinks.sink import RunOver
from evenflow.statistics.histogram import Histogram
from evenflow.world.spark.driver.taking import check_sinks
from evenflow.world.spark.net.reactor import Clock

BACKOFF_MAX_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Finished:
    """One epoch that is to be written, or a portion of one. rows: still encoded.

    portion: whose rows they are, where portions are written as they come; None: all of the epoch. wanted: those that the sink lacks.
    """

    epoch: int
    opened: int
    rows: Any
    schema: pa.Schema
    portion: Portion | None = None
    wanted: Portion | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """An epoch that the sink has been given, by a former generation of the run or in portions: that it has it is all there is to say."""

    epoch: int


EVERY_EPOCH: Final = 2**62
"""Nothing is journalled: epochs go to the sink as they come."""


class Outlet:
    """committed(epoch): called in this thread after each write. failed(error): called once, when retries are used up, or when the sink
    cannot be opened or closed; then nothing more is written. error: the same, for who asks later. through: the last epoch that the sink may
    be given; later ones wait for `open` (availability.md, J3). last: the last epoch with rows before the first that comes. known: the last
    epoch of the run that the sink may have when it is opened; None: through.

    latencies: from an epoch's first row to the end of its write. Take them with `take_latencies`.
    """

    def __init__(
        self,
        name: str,
        sink: Any,
        run_id: str,
        clock: Clock,
        committed: Callable[[int], None],
        failed: Callable[[EvenflowError], None],
        through: int = EVERY_EPOCH,
        last: int = 0,
        known: int | None = None,
    ) -> None:
        self._through, self._waiting = through, deque[Finished | Given]()
        self._known = through if known is None else known
        self._given, self._given_portions = 0, FirstPortions()
        self.name, self._sink, self._run_id, self._clock = name, sink, run_id, clock
        self._committed, self._on_failure = committed, failed
        self.error: EvenflowError | None = None
        self._rowed = deque[int]((last,))
        self._epochs: SimpleQueue[Finished | Given | None] = SimpleQueue()
        self._closing, self._ended = threading.Event(), False
        self._writer: Any = None
        self._lock = threading.Lock()
        self._latencies = Histogram()
        self._thread = threading.Thread(target=self._serve, name=f"evenflow-sink-{name}", daemon=True)
        self._thread.start()

    def put(self, epoch: Finished | Given) -> None:
        """The next epoch, in ascending order, or the next portion, of whatever epoch, or that all portions of an epoch have come. In the
        coordinator's thread, as `open`."""
        self._waiting.append(epoch)
        self.open(self._through)

    def open(self, through: int) -> None:
        """The sink may be given the epochs up to this one."""
        self._through = through
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if item.epoch > through:
                self._waiting.append(item)
            elif isinstance(item, Finished) and item.wanted is not None:
                self._give_portion(item, item.wanted)
            else:
                self._epochs.put(item if item.epoch > self._given else Given(item.epoch))
                self._given = max(self._given, item.epoch)

    def _give_portion(self, item: Finished, wanted: Portion) -> None:
        lacking = self._given_portions.accept(wanted.stream, wanted.producers, item.epoch)
        if lacking:
            self._epochs.put(replace(item, wanted=Portion(wanted.stream, lacking)))

    def succeed(self, committed: Callable[[int], None], failed: Callable[[EvenflowError], None], through: int) -> None:
        """Another generation of the run gives from here on, beginning with epochs that the sink may have. In the coordinator's thread, or
        while no generation runs."""
        self._waiting.clear()  # None of these was durable: they are cut anew.
        self._committed, self._on_failure, self._through = committed, failed, through
        if self.error is not None:
            failed(self.error)

    def last_with_rows(self, through: int) -> int:
        """Of the epochs up to this one, which are all written; 0 if none had any. Of later ones only may be asked after."""
        rowed = self._rowed
        while len(rowed) > 1 and rowed[1] <= through:
            rowed.popleft()
        return rowed[0]

    def close(self, *, ended: bool = False) -> None:
        """Write nothing more: the run is over. An epoch that is being written is written, unless it waits for another region. ended: all
        epochs that there are have been."""
        self._ended = self._ended or ended
        self._closing.set()
        if self._writer is not None:
            self._writer.interrupt()
        self._epochs.put(None)

    def last_words(self, failed: Callable[[EvenflowError], None]) -> None:
        """The run is over. failed: is told if the sink has failed, or cannot be closed; of one error it may hear twice."""
        self._on_failure = failed
        if self.error is not None:
            failed(self.error)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def take_latencies(self) -> dict[int, int]:
        with self._lock:
            return self._latencies.take()

    def _serve(self) -> None:
        writer = None
        try:
            writer = self._writer = self._sink.open(self._run_id)
            check_sinks({self.name: writer.newest}, self._run_id, self._known)
            while (item := self._epochs.get()) is not None and not self._closing.is_set():
                if isinstance(item, Given):
                    self._committed(item.epoch)
                elif not self._write(writer, item):
                    return
        except EvenflowError as error:
            self._failed(error)
        except BaseException as error:
            self._failed(_sink_error(self.name, "cannot be opened" if writer is None else "has failed", error))
        finally:
            if writer is not None:
                try:
                    if self._ended and self.error is None:
                        writer.ended()
                    writer.close()
                except BaseException as error:
                    self._failed(_sink_error(self.name, "cannot be closed", error))

    def _failed(self, error: EvenflowError) -> None:
        """The first error counts; a sink that fails often cannot be closed either."""
        if self.error is None:
            self.error = error
            self._on_failure(error)

    def _write(self, writer: Any, item: Finished) -> bool:
        """Write one epoch. False if the run is over or the sink has failed for good."""
        batch = pa.ipc.read_record_batch(item.rows, item.schema)
        if item.portion is not None and item.wanted is not None:
            batch = without_producer(batch if item.portion == item.wanted else rows_of(batch, item.wanted.producers))
        write = writer.write if item.portion is None else writer.write_portion
        pause_s = self._sink.backoff_ms / 1000
        for attempt in range(self._sink.retries + 1):
            try:
                write(item.epoch, batch)
            except BaseException as error:  # The user's function may call sys.exit: this thread must not end in silence.
                if isinstance(error, RunOver):
                    return False
                if isinstance(error, RegionsDisagree | GroupDiffers):
                    self._failed(error)
                    return False
                if attempt == self._sink.retries:
                    self._failed(_sink_error(self.name, f"could not take epoch {item.epoch} in {attempt + 1} attempts", error))
                    return False
                if self._closing.wait(min(pause_s, BACKOFF_MAX_S)):
                    return False
                pause_s *= 2
            else:
                with self._lock:
                    self._latencies.add(self._clock.now_us() - item.opened)
                if batch.num_rows and item.epoch > self._rowed[-1]:
                    self._rowed.append(item.epoch)
                if item.portion is None:
                    self._committed(item.epoch)
                return True
        return False


def _sink_error(name: str, what: str, error: BaseException) -> SinkError:
    made = SinkError(f"sink {name!r} {what}: {type(error).__name__}: {error}")
    made.__cause__ = error
    return made
