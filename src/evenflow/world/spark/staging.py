"""Rows that Spark's tasks push, at the site of their ingress partition (protocol I2).

A task's rows are staged by (query, batch, partition, attempt), in memory or, beyond `STAGED_BYTES_MAX`, in a temporary file. They enter
the ingress when the attempt has finished, if it is the first finished one of its (query, batch, partition): a task that Spark
runs again may see its rows in another order, so a mixture of two attempts would be neither. The task waits for its answer while the
ingress has enough to do: that is the back-pressure on Spark.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Final

import pyarrow as pa

from evenflow.site.events import BatchDone, Event, RowsArrived, SourceEnded
from evenflow.world.spark.feeds import NEVER_US

STAGED_BYTES_MAX: Final = 64 * 2**20
"""What one attempt may hold in memory."""
WAITING_BYTES_MAX: Final = 32 * 2**20
"""A finished attempt is answered when no more than this waits to enter the ingress."""

Task = tuple[str, int, int]
"""query, batch, partition."""


@dataclass(slots=True)
class Attempt:
    """The rows of one attempt of one task, still encoded. file: where what did not fit into memory is; spilled: lengths in it."""

    task: Task
    number: int
    pieces: deque[memoryview | bytes] = field(default_factory=deque)
    held_bytes: int = 0
    total_bytes: int = 0
    file: IO[bytes] | None = None
    spilled: deque[int] = field(default_factory=deque)

    def add(self, body: memoryview | bytes) -> None:
        self.total_bytes += len(body)
        if self.held_bytes + len(body) <= STAGED_BYTES_MAX and self.file is None:
            self.pieces.append(body)
            self.held_bytes += len(body)
            return
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="evenflow-staged-")  # noqa: SIM115
        self.file.write(body)
        self.spilled.append(len(body))

    def finish(self) -> None:
        if self.file is not None:
            self.file.seek(0)

    def take(self) -> memoryview | bytes | None:
        """The next batch, still encoded, in the order of `add`; None at the end."""
        if self.pieces:
            return self.pieces.popleft()
        if self.spilled and self.file is not None:
            return self.file.read(self.spilled.popleft())
        self.discard()
        return None

    def discard(self) -> None:
        self.pieces.clear()
        self.spilled.clear()
        if self.file is not None:
            self.file.close()
            self.file = None


class PushedFeed:
    """One ingress partition of a source that Spark pushes."""

    def __init__(self, segment: int, partition: int, schema: pa.Schema) -> None:
        self.segment, self.partition, self.schema = segment, partition, schema
        self.due_us = NEVER_US
        self.over = self.resting = False
        self.dropped = 0
        self._queue: deque[Attempt | BatchDone | SourceEnded] = deque()
        self._head: pa.RecordBatch | None = None
        self._waiting_bytes = 0
        self._finished: set[Task] = set()
        self._batch_done: dict[str, int] = {}
        self._answers: deque[Callable[[], None]] = deque()
        self._closed = False

    def rest(self, close_due_us: int | None) -> None:
        """Rows are here already or not at all."""

    # ------------------------------------------------------------ from Spark's tasks and from the driver

    def finish(self, attempt: Attempt, answer: Callable[[], None]) -> None:
        """The attempt has pushed everything. answer: called when the task may end, now or later."""
        query, batch, _ = attempt.task
        if self._closed or attempt.task in self._finished or batch <= self._batch_done.get(query, -1):
            self.dropped += 1
            attempt.discard()
            answer()
            return
        self._finished.add(attempt.task)
        attempt.finish()
        self._queue.append(attempt)
        self._waiting_bytes += attempt.total_bytes
        self.due_us = 0
        self._answers.append(answer)
        self._answer()

    def end_batch(self, query: str, batch: int) -> None:
        """Every task of the batch has ended well."""
        self._batch_done[query] = batch
        self._finished = {task for task in self._finished if task[0] != query or task[1] > batch}
        self._queue.append(BatchDone(self.segment, self.partition))
        self.due_us = 0

    def end(self) -> None:
        """Spark will push no more."""
        self._queue.append(SourceEnded(self.segment, self.partition))
        self.due_us = 0

    # ------------------------------------------------------------ to the part

    def poll(self, now_us: int, room: int) -> list[Event]:
        events: list[Event] = []
        while room > 0 and not self.over:
            if self._head is not None:
                batch = self._head.slice(0, room)
                self._head = self._head.slice(room) if self._head.num_rows > room else None
                room -= batch.num_rows
                events.append(RowsArrived(self.segment, self.partition, batch))
            elif not self._queue:
                self.due_us = NEVER_US
                break
            else:
                self._take(events)
        self._answer()
        return events

    def _take(self, events: list[Event]) -> None:
        item = self._queue[0]
        if isinstance(item, Attempt):
            body = item.take()
            if body is None:
                self._queue.popleft()
                return
            self._waiting_bytes -= len(body)
            batch = pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)
            self._head = batch if batch.num_rows else None
            return
        self._queue.popleft()
        events.append(item)
        self.over = isinstance(item, SourceEnded)

    def _answer(self) -> None:
        while self._answers and self._waiting_bytes <= WAITING_BYTES_MAX:
            self._answers.popleft()()

    def close(self) -> None:
        """The source is over, or the run: whoever waits is let go, whoever comes later is dropped."""
        self._closed = True
        for item in self._queue:
            if isinstance(item, Attempt):
                item.discard()
        self._queue.clear()
        while self._answers:
            self._answers.popleft()()
