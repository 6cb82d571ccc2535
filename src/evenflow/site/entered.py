"""What of Spark's pushed tasks is in the log of an ingress partition (protocol I2).

A task that is not answered is pushed again, to the leader of that moment. If that is a successor, the task may be in its log already, whole
or in part. So every replica of the partition remembers, for the tasks of batches that are not whole, how many of their rows are in the log
and a digest of them that depends on their order, and not on how they were cut into epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evenflow.exchange.section import WHOLE_BATCH, Record
from evenflow.kernels.digest import roll_rows

Task = tuple[int, int]
"""Number of the Spark batch, number of its task (which is Spark's partition)."""


class Progress(NamedTuple):
    """rows: of a task that are in the log. digest: of them. whole: it has no more."""

    rows: int = 0
    digest: int = 0
    whole: bool = False


NOTHING = Progress()


@dataclass(slots=True)
class Entered:
    """See the module. batch_done: number of the newest batch that is whole, -1 if none is; tasks of older ones are of no interest."""

    batch_done: int = -1
    tasks: dict[Task, Progress] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """The next record of the log. Cost: a few nanoseconds per value, and nothing where rows are not pushed."""
        at = 0
        for share in record.shares:
            if share.task == WHOLE_BATCH:
                self.end_batch(share.batch)
                continue
            assert record.rows is not None
            before = self.tasks.get((share.batch, share.task), NOTHING)
            digest = roll_rows(record.rows.slice(at, share.rows), before.digest)
            self.tasks[share.batch, share.task] = Progress(before.rows + share.rows, digest, share.whole)
            at += share.rows

    def end_batch(self, batch: int) -> None:
        self.batch_done = max(self.batch_done, batch)
        self.tasks = {task: progress for task, progress in self.tasks.items() if task[0] > self.batch_done}

    def copy(self) -> Entered:
        return Entered(self.batch_done, dict(self.tasks))

    def to_facts(self) -> list[Any]:
        """As JSON can say it."""
        return [self.batch_done, [[*task, *progress] for task, progress in self.tasks.items()]]

    @staticmethod
    def from_facts(facts: Sequence[Any]) -> Entered:
        batch_done, tasks = facts
        return Entered(batch_done, {(batch, task): Progress(*progress) for batch, task, *progress in tasks})
