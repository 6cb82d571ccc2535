"""Rows that Spark's tasks push, at the site of their ingress partition (protocol I2). Where they lie until then is the world's business.

A task's rows are staged by (batch, task, attempt). They enter the ingress when the attempt has finished, if it is the first finished one of
its task: a task that Spark runs again may see its rows in another order, so a mixture of two attempts would be neither. The task waits for
its answer, and that is the back-pressure on Spark: without replicas while the ingress has enough to do, with replicas until all its rows
are in settled records, where the death of a site does not touch them.

What was not answered when a leader dies is pushed again, to its successor. That one knows from its log which rows it has already. It skips
them if it is given the same rows in the same order, and refuses if it is not: there would be rows lost and others twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from evenflow.errors import SourceError
from evenflow.exchange.section import Share
from evenflow.kernels.digest import roll_rows
from evenflow.site.entered import NOTHING, Entered, Progress, Task
from evenflow.site.events import BatchDone, Event, RowsArrived, SourceEnded

NEVER_US: Final = 2**62
WAITING_BYTES_MAX: Final = 32 * 2**20
"""Without replicas a finished attempt is answered when no more than this waits to enter the ingress."""


class Pieces(Protocol):
    """Encoded rows, in the order in which they were added. rewind: before the first `take`, after the last `add`; it raises OSError if
    they are not all there."""

    def add(self, piece: bytes | memoryview) -> None: ...
    def rewind(self) -> None: ...
    def take(self) -> bytes | memoryview: ...
    def close(self) -> None: ...
    @property
    def empty(self) -> bool: ...


@dataclass(slots=True)
class Attempt:
    """The rows of one attempt of one task. kept: still encoded; total_bytes: of all, those that have been taken too.

    known: what of the task is in the log already. compared: the same of this attempt's rows, as far as they have been looked at.
    """

    task: Task
    number: int
    kept: Pieces
    total_bytes: int = 0
    known: Progress = NOTHING
    compared: Progress = NOTHING

    def add(self, body: memoryview | bytes) -> None:
        self.total_bytes += len(body)
        self.kept.add(body)

    def new(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What of its next rows is not in the log already. `agrees` says afterwards whether the others were the same."""
        old = batch.slice(0, self.known.rows - self.compared.rows)
        if old.num_rows:
            self.compared = Progress(self.compared.rows + old.num_rows, roll_rows(old, self.compared.digest))
        return batch.slice(old.num_rows)

    @property
    def agrees(self) -> bool:
        """All of its rows that are in the log have come again, as they were."""
        return (self.compared.rows, self.compared.digest) == (self.known.rows, self.known.digest)


class PushedFeed:
    """One ingress partition of a source that Spark pushes. rows: that its log has already; entered: which ones.

    replicated: tasks are answered when their rows are settled. dropped: attempts whose task had been finished by another one.
    """

    def __init__(
        self,
        segment: int,
        partition: int,
        schema: pa.Schema,
        source: str = "",
        rows: int = 0,
        entered: Entered | None = None,
        replicated: bool = False,
    ) -> None:
        self.segment, self.partition, self.schema, self.source = segment, partition, schema, source
        self.due_us = NEVER_US
        self.over = self.resting = False
        self.dropped = 0
        self.replicated = replicated
        self._queue: deque[Attempt | BatchDone | SourceEnded] = deque()
        self._head: pa.RecordBatch | None = None
        self._waiting_bytes = 0
        self._entered = entered if entered is not None else Entered()
        self._batch_done = self._entered.batch_done
        self._rows = rows
        self._settled = 0
        whole = [task for task, progress in self._entered.tasks.items() if progress.whole]
        self._finished: set[Task] = set(whole)
        self._ends: dict[Task, int] = dict.fromkeys(whole, rows)
        self._answers: deque[tuple[Task, Callable[[], None]]] = deque()
        self._closed = self._ended = False

    def behind(self) -> None:
        """What waits in Spark is Spark's business."""
        return

    def waiting(self, now_us: int) -> None:
        """Spark is never late."""
        return

    def rest(self, close_due_us: int | None) -> None:
        """Rows are here already or not at all."""

    # ------------------------------------------------------------ from Spark's tasks and from the driver

    def finish(self, attempt: Attempt, answer: Callable[[], None]) -> None:
        """The attempt has pushed everything. answer: called when the task may end, now or later. Raises OSError if its rows are not all
        there: then it has not been, and another one may come."""
        task = attempt.task
        if self._closed or task[0] <= self._batch_done:
            self.dropped += 1
            attempt.kept.close()
            if not (self._closed and self.replicated):
                answer()
            return
        if task[0] - 1 > self._batch_done:
            self.end_batch(task[0] - 1)  # Batches come one after the other, but the driver's word may come later than a task's.
        if task in self._finished:
            self.dropped += 1
            attempt.kept.close()
            if not self.replicated:
                answer()
                return
        else:
            attempt.kept.rewind()
            self._finished.add(task)
            attempt.known = self._entered.tasks.get(task, NOTHING)
            self._queue.append(attempt)
            self._waiting_bytes += attempt.total_bytes
            self.due_us = 0
        self._answers.append((task, answer))
        self._answer()

    def end_batch(self, batch: int) -> None:
        """Every task of the batch has ended well. May be said again."""
        if batch <= self._batch_done:
            return
        self._batch_done = batch
        self._finished = {task for task in self._finished if task[0] > batch}
        self._ends = {task: end for task, end in self._ends.items() if task[0] > batch}
        self._entered.end_batch(batch)
        self._queue.append(BatchDone(self.segment, self.partition, batch))
        self.due_us = 0

    def end(self) -> None:
        """Spark will push no more. May be said again."""
        if not self._ended:
            self._ended = True
            self._queue.append(SourceEnded(self.segment, self.partition))
            self.due_us = 0

    # ------------------------------------------------------------ to the part

    def poll(self, now_us: int, room: int) -> list[Event]:
        """Raises SourceError if a task that is pushed again has other rows than before."""
        events: list[Event] = []
        while room > 0 and not self.over and self._queue:
            item = self._queue[0]
            if not isinstance(item, Attempt):
                self._queue.popleft()
                events.append(item)
                self.over = isinstance(item, SourceEnded)
                continue
            if self._head is None and not item.kept.empty:
                self._head = self._next(item)
            if self._head is not None:
                batch = self._head.slice(0, room)
                self._head = self._head.slice(room) if self._head.num_rows > room else None
                room -= batch.num_rows
                self._rows += batch.num_rows
                whole = self._head is None and item.kept.empty
                share = Share(*item.task, batch.num_rows, whole) if self.replicated else None  # Without replicas nobody needs it.
                events.append(RowsArrived(self.segment, self.partition, batch, share))
            if self._head is None and item.kept.empty:
                self._finish(item)
        if not self._queue:
            self.due_us = NEVER_US
        self._answer()
        return events

    def _next(self, attempt: Attempt) -> pa.RecordBatch | None:
        """Its next rows that are not in the log yet, if there are any in its next piece."""
        body = attempt.kept.take()
        self._waiting_bytes -= len(body)
        batch = attempt.new(pa.ipc.read_record_batch(pa.py_buffer(body), self.schema))
        if batch.num_rows and not attempt.agrees:
            raise self._differs(attempt)
        return batch if batch.num_rows else None

    def _finish(self, attempt: Attempt) -> None:
        if not attempt.agrees:
            raise self._differs(attempt)
        self._queue.popleft()
        attempt.kept.close()
        self._ends[attempt.task] = self._rows

    def _differs(self, attempt: Attempt) -> SourceError:
        (batch, task), rows = attempt.task, attempt.known.rows
        return SourceError(
            f"box {self.source!r}: a site was lost while partition {task} of Spark's batch {batch} was entering it, and when Spark read "
            f"that partition again its first {rows} rows were others, or in another order. What has entered cannot be completed exactly. "
            "Make the DataFrame repeatable: sort within its partitions (sortWithinPartitions), write shuffled or random rows to files and "
            "read those, or checkpoint the DataFrame before."
        )

    def settle(self, rows: int) -> None:
        """All live members have that many rows of this partition in their logs."""
        if rows != self._settled:
            self._settled = rows
            self._answer()

    def _answer(self) -> None:
        answers = self._answers
        if not self.replicated:
            while answers and self._waiting_bytes <= WAITING_BYTES_MAX:
                answers.popleft()[1]()
            return
        for _ in range(len(answers)):
            task, answer = answers.popleft()
            if task[0] <= self._batch_done or self._ends.get(task, NEVER_US) <= self._settled:
                answer()
            else:
                answers.append((task, answer))

    def close(self) -> None:
        """The source is over, or the run: whoever waits is let go, whoever comes later is dropped.

        With replicas nobody is told that his rows were taken: the run may go on elsewhere, and then they must be pushed there. Who waits
        sees the connection end, and asks the coordinator.
        """
        self._closed = True
        for item in self._queue:
            if isinstance(item, Attempt):
                item.kept.close()
        self._queue.clear()
        while self._answers:
            _, answer = self._answers.popleft()
            if not self.replicated:
                answer()
