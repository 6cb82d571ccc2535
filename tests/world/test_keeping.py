"""What a person asks a run with a location for: a checkpoint now, a savepoint, an end behind a last checkpoint. Real sites and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.golden import SITES, dataflow, expected, results

import evenflow as ef
from evenflow.availability.entries import Completed, Entry, Logged
from evenflow.bench.bare import BareEngine
from evenflow.errors import LocationError, OperationRefused
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.driver.checkpoint_numbers import CheckpointNumbers
from evenflow.world.spark.driver.keeping import Keeping
from evenflow.world.spark.driver.run import Run

pytestmark = [pytest.mark.timeout(240)]


@pytest.mark.conformance
def test_a_run_is_asked_for_checkpoints_savepoints_and_an_end_and_goes_on(tmp_path: Path) -> None:
    """Goal: suspended, it goes on to the results of a run that nobody has disturbed, and nothing is made again."""
    location, saved = str(tmp_path / "location"), str(tmp_path / "saved")
    with BareEngine(**SITES, checkpoint_s=None) as engine:
        flow, _ = dataflow()
        without = engine.start(dataflow()[0])
        with pytest.raises(OperationRefused, match="has no checkpoint location, so it has no checkpoints"):
            without.checkpoint()
        with pytest.raises(OperationRefused, match="has no checkpoint location, and a look at state is a checkpoint"):
            without.state("counts")
        without.stop()
        run = engine.start(flow, checkpoint_location=location)
        while run.progress()["rows_in"] < 500:
            run.await_termination(0.05)
        first = run.checkpoint()
        assert first["number"] >= 1 and first["generation"] == 1 and first["bytes"] > 0, "one that comes too late is tried anew"
        told = run.progress()["checkpoint"]
        assert (told["number"], told["epoch"], told["failures"], told["under_way"]) == (first["number"], first["epoch"], 0, None)
        assert 0 <= told["age_s"] < 60 and told["seconds"] > 0
        [event] = [each for each in run.events() if each["kind"] == "checkpoint_completed"]
        assert event["number"] == first["number"] and event["seconds"] == told["seconds"]
        with pytest.raises(LocationError, match="is the checkpoint location of run"):
            run.savepoint(location)
        made = run.savepoint(saved)
        assert made.epoch > first["epoch"] and ef.checkpoints(saved).verify().whole
        last = run.suspend()
        assert not run.is_active and run.exception() is None
        with pytest.raises(OperationRefused, match="has ended"):
            run.checkpoint()
    [one, two, three] = [each for each in ef.checkpoints(location).list() if each.complete]
    assert (one.epoch, two.epoch, three.epoch) == (first["epoch"], made.epoch, last["epoch"])
    assert one.ended_at is not None and one.seconds == told["seconds"]
    standing = read_journal(open_store(location))
    assert standing.base == standing.durable == last["epoch"] and standing.ended is None
    flow, sinks = dataflow()
    with BareEngine(**SITES, checkpoint_s=None) as engine:
        run = engine.start(flow, checkpoint_location=location)
        assert run.await_termination(120)
        assert run.progress()["checkpoint"]["number"] == last["number"]
    wanted, found = expected(), results(sinks)
    assert all(found[name] == wanted[name] for name in ("totals", "hours", "visits"))


@pytest.mark.conformance
def test_a_suspend_that_is_broken_off_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the run gives out all it has. Method: Ctrl-C when the last checkpoint is whole, before the run is stopped, and before that."""
    location, flow = str(tmp_path / "location"), ef.Dataflow("endless")
    flow.source(ef.sources.generator(rate=500, keys=4)).group_by("key").agg(n="count(*)").to(ef.sinks.discard(), name="counts")
    with BareEngine(**SITES, checkpoint_s=None) as engine:
        run = engine.start(flow, checkpoint_location=location)
        while run.progress()["rows_in"] < 500:
            run.await_termination(0.05)
        for broken_off in ((Run, "stop"), (Keeping, "_answered")):
            with monkeypatch.context() as patch:
                patch.setattr(*broken_off, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    run.suspend()
        assert run.is_active
        run.await_termination(1.0)
        made, standing = ef.checkpoints(location).list()[-1], read_journal(open_store(location))
        assert standing.durable > made.epoch
        last = run.suspend()
    assert read_journal(open_store(location)).durable == last["epoch"]


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_times_are_of_the_first_order_and_stay_when_the_entry_is_tried_again() -> None:
    now = [100.0]
    numbers = CheckpointNumbers(now_s=lambda: now[0])
    numbers.ordered(4)
    now[0] = 101.0
    numbers.ordered(4)  # Anew, further ahead.
    now[0] = 103.5
    entry = Entry(9, 1, "n", Completed(4, 7, ()))
    stamped = numbers.stamped(entry, lambda epoch: {"out": epoch - 1})
    assert isinstance(stamped.matter, Completed) and (stamped.matter.began_s, stamped.matter.ended_s) == (100.0, 103.5)
    assert stamped.matter.lasts == {"out": 6}
    now[0] = 110.0
    assert numbers.stamped(entry, lambda _: {}).matter == stamped.matter
    assert numbers.completed() == {"seconds": 3.5} and numbers.progress(0, None).age_s == 6.5
    now[0] = 50.0  # Somebody has set the clock.
    assert numbers.progress(0, None).age_s == 0.0
    other = Entry(10, 1, "n", Logged({}))
    assert numbers.stamped(other, lambda _: {}) is other


def test_what_is_being_copied_is_kept_though_newer_ones_come() -> None:
    def made(number: int) -> Completed:
        return Completed(number, number, (), generation=1)

    numbers = CheckpointNumbers()
    numbers.kept = (made(1),)
    assert [each.number for each in numbers.retained([made(4), made(5), made(6)])] == [1, 4, 5, 6]
    assert [each.number for each in numbers.retained([made(1), made(2)])] == [1, 2]
