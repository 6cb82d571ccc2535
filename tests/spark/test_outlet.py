"""A driver's sink: each epoch again until it is written, and no failure is kept quiet."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from evenflow.coordinator.first_copy import FirstCopy
from evenflow.errors import EvenflowError, SinkError
from evenflow.world.spark.driver.outlet import Finished, Outlet
from evenflow.world.spark.net.reactor import Clock

BATCH = pa.record_batch({"v": [1]})


@dataclass
class Scripted:
    """A sink and its own writer. writes: called one after the other, then nothing happens. closing: called when it is closed."""

    writes: list[Callable[[], object]]
    closing: Callable[[], object] = bool
    retries: int = 2
    backoff_ms: float = 0.01
    newest: int = 0

    def open(self, run_id: str) -> Scripted:
        return self

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if self.writes:
            self.writes.pop(0)()

    def close(self) -> None:
        self.closing()


def full() -> None:
    raise OSError("disk full")


def outlet_of(sink: Scripted) -> tuple[Outlet, list[int], list[EvenflowError]]:
    """One epoch has been put, and the outlet closed behind it if the sink takes it."""
    committed: list[int] = []
    failed: list[EvenflowError] = []
    made: list[Any] = []

    def commit(epoch: int) -> None:
        committed.append(epoch)
        made[0].close()

    outlet = Outlet("out", sink, "run", Clock(), commit, failed.append)
    made.append(outlet)
    outlet.put(Finished(1, 0, BATCH.serialize(), BATCH.schema))
    assert outlet.join(20)
    return outlet, committed, failed


def test_a_sink_that_recovers_loses_nothing() -> None:
    outlet, committed, failed = outlet_of(Scripted([full, full]))
    assert (committed, failed, outlet.error) == ([1], [], None)


def test_a_sink_that_knows_later_epochs_than_the_journal_is_given_none() -> None:
    """The location was put back to an earlier time: what is made next would be taken for what the sink has."""
    written: list[EvenflowError] = []
    for newest, known in ((7, 7), (8, 7)):
        outlet = Outlet("out", Scripted([], newest=newest), "run-1", Clock(), lambda _: None, written.append, known)
        outlet.put(Finished(known, 0, BATCH.serialize(), BATCH.schema))
        outlet.close()
        assert outlet.join(20)
    [error] = written
    assert isinstance(error, SinkError) and "has the epochs up to 8 of run run-1" in str(error) and "those up to 7" in str(error)
    assert "was put back to an earlier time. Give it back as it was, or start" in str(error)


def test_a_sink_that_does_not_recover_fails_once_though_it_cannot_be_closed_either() -> None:
    outlet, committed, failed = outlet_of(Scripted([full] * 3, closing=full))
    assert committed == []
    assert [str(error) for error in failed] == ["sink 'out' could not take epoch 1 in 3 attempts: OSError: disk full"]
    assert outlet.error is failed[0]


def test_a_sink_that_cannot_be_closed_after_its_last_epoch_says_so() -> None:
    outlet, committed, _ = outlet_of(Scripted([], closing=full))
    assert committed == [1]
    with pytest.raises(SinkError, match="'out' cannot be closed: OSError: disk full"):
        raise outlet.error or AssertionError("nothing said")


def test_a_function_that_wants_to_exit_does_not_end_the_thread_in_silence() -> None:
    _, committed, failed = outlet_of(Scripted([lambda: sys.exit("enough")] * 3))
    assert committed == []
    assert "SystemExit: enough" in str(failed[0])


def test_the_first_copy_of_an_epoch_counts_whoever_sends_it() -> None:
    """Three replicas at their own pace: empty epochs are not sent, one replica ends early, one begins where another has come to."""
    for seed in range(100):
        rng = random.Random(seed)
        epochs = sorted(rng.sample(range(1, 100), 30))
        replicas = [list(epochs), epochs[: rng.randrange(30)]]
        first, taken = FirstCopy(), []
        while any(replicas):
            epoch = rng.choice([replica for replica in replicas if replica]).pop(0)
            if first.accept(epoch):
                taken.append(epoch)
            if len(replicas) == 2 and rng.random() < 0.1:
                replicas.append([later for later in epochs if later > epoch])
        assert taken == epochs
