"""A driver's sink: each epoch again until it is written, and no failure is kept quiet."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from evenflow.coordinator.first_copy import FirstCopy, FirstPortions
from evenflow.errors import EvenflowError, SinkError
from evenflow.exchange.portion import Portion
from evenflow.plan.layout import FROM_COLUMN
from evenflow.sinks.sink import Writer
from evenflow.world.spark.driver.outlet import EVERY_EPOCH, Finished, Given, Outlet
from evenflow.world.spark.net.reactor import Clock

BATCH = pa.record_batch({"v": [1]})


@dataclass
class Scripted(Writer):
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


def test_a_sink_that_waits_for_no_journal_has_nothing_of_a_run_that_begins() -> None:
    """Where only checkpoints are journalled every generation is a run of its own: what the sink has of it another history has given it."""
    written: list[EvenflowError] = []
    for newest in (0, 1):
        sink = Scripted([], newest=newest)
        outlet = Outlet("out", sink, "run-1.g2", Clock(), lambda _: None, written.append, EVERY_EPOCH, 50, known=0)
        outlet.put(Finished(51, 0, BATCH.serialize(), BATCH.schema))
        outlet.close()
        assert outlet.join(20)
    [error] = written
    assert isinstance(error, SinkError) and "has the epochs up to 1 of run run-1.g2, and" in str(error)


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


def test_the_first_copy_of_each_partitions_rows_counts_whoever_sends_them_together() -> None:
    """Replicas that are fed by others send a partition's epochs in order, in portions of their own, and one ends early."""
    for seed in range(100):
        rng = random.Random(seed)
        replicas = [portions_of(rng), portions_of(rng)[: rng.randrange(20)], portions_of(rng)]
        first, taken = FirstPortions(), list[tuple[int, int]]()
        while any(replicas):
            epoch, producers = rng.choice([replica for replica in replicas if replica]).pop(0)
            taken += [(producer, epoch) for producer in first.accept(0, producers, epoch)]
        for producer in range(4):
            assert [epoch for p, epoch in taken if p == producer] == list(range(1, 11))


def portions_of(rng: random.Random) -> list[tuple[int, tuple[int, ...]]]:
    """Ten epochs of four partitions, from two feeders each at its own pace."""
    some = rng.sample(range(4), rng.randrange(1, 4))
    rest = [p for p in range(4) if p not in some]
    feeds = [[(epoch, tuple(group)) for epoch in range(1, 11)] for group in (some, rest)]
    return [rng.choice([feed for feed in feeds if feed]).pop(0) for _ in range(20)]


# ---------------------------------------------------------------- first come, first served


ROWS = pa.record_batch({"v": pa.array([10, 11, 20]), FROM_COLUMN: pa.array([1, 1, 2], pa.int32())})


@dataclass
class Noting(Scripted):
    """got: what it was given, in order: epoch, values."""

    got: list[tuple[int, list[int]]] = field(default_factory=list)

    def write_portion(self, epoch: int, batch: pa.RecordBatch) -> None:
        self.write(epoch, batch)
        assert batch.schema.names == ["v"]
        self.got.append((epoch, batch.column("v").to_pylist()))


def portion(epoch: int, wanted: tuple[int, ...] = (1, 2)) -> Finished:
    return Finished(epoch, 0, ROWS.serialize(), ROWS.schema, Portion(0, (1, 2)), Portion(0, wanted))


def given(sink: Noting, through: int, put: Callable[[Outlet], None]) -> tuple[list[int], list[EvenflowError]]:
    committed: list[int] = []
    failed: list[EvenflowError] = []
    outlet = Outlet("out", sink, "run", Clock(), committed.append, failed.append, through)
    put(outlet)
    deadline = time.monotonic() + 20
    while not outlet._epochs.empty() and not failed and time.monotonic() < deadline:
        time.sleep(0.001)
    outlet.close()
    assert outlet.join(20)
    return committed, failed


def test_portions_are_written_as_they_come_and_an_epoch_is_committed_when_it_is_whole() -> None:
    sink = Noting([])

    def put(outlet: Outlet) -> None:
        for item in (portion(1, (1,)), portion(2, (1,)), portion(1, (2,)), Given(1), portion(2, (2,)), Given(2)):
            outlet.put(item)

    assert given(sink, EVERY_EPOCH, put) == ([1, 2], [])
    assert sink.got == [(1, [10, 11]), (2, [10, 11]), (1, [20]), (2, [20])]


def test_a_portion_that_could_not_be_written_is_written_again() -> None:
    sink = Noting([full, full])

    def put(outlet: Outlet) -> None:
        outlet.put(portion(1))
        outlet.put(Given(1))

    assert given(sink, EVERY_EPOCH, put) == ([1], [])
    assert sink.got == [(1, [10, 11, 20])]


def test_portions_wait_until_their_epoch_is_durable_and_another_generation_gives_what_is_missing() -> None:
    """Of epoch 1 partition 1 was written, and nothing of epoch 2 could be: the next generation makes both again."""
    sink = Noting([])

    def put(outlet: Outlet) -> None:
        outlet.put(portion(2))
        outlet.put(portion(1, (1,)))
        outlet.succeed(outlet._committed, outlet._on_failure, 1)
        for item in (portion(1), Given(1), portion(2)):
            outlet.put(item)
        outlet.open(2)

    assert given(sink, 1, put) == ([1], [])
    assert sink.got == [(1, [10, 11]), (1, [20]), (2, [10, 11, 20])]
