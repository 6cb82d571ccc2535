"""Runs with a journal in the simulator: what is outside follows from what is in the store, whatever the store and the sites do (J1-J4)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import evenflow as ef
from evenflow.availability.entries import Logged
from evenflow.coordinator.events import EndRun, Kind, RunBroken
from evenflow.errors import Fenced, SinkError
from evenflow.query.planner import layout
from evenflow.sinks.parquet import read_committed
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.store import SimStore
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.sim.test_scenarios import Stage
from tests.sim.test_statistics import FED, ROWS, passed


def store_of(model: StoreModel | None = None) -> SimStore:
    return SimStore(VirtualClock(), model or StoreModel(), Random("store"))


class Journalled(Stage):
    """A stage whose run has a journal, which is looked at all the time."""

    def __init__(self, case: str = "running", *, model: StoreModel | None = None, **given: Any) -> None:
        self.store = store_of(model)
        super().__init__(case, store=self.store, **given)
        self.journal = JournalCheckers(self.world)

    def finish(self) -> None:
        super().finish()
        assert self.journal.judge(self.world.error, stopped=False) is None
        ended = self.store.standing().ended
        assert ended is not None and ended.epoch == self.journal.given > 5

    def closed(self) -> int:
        return max(site.part.closed for site in self.world.sites)


@pytest.mark.parametrize("replicas", one_in(2, [1, 2, 3]))
@pytest.mark.parametrize("case", ["running", "windows"])
def test_the_journal_has_everything_when_a_run_is_over(case: str, replicas: int) -> None:
    stage = Journalled(case, replicas=replicas)
    stage.world.run_for(0.05)
    stage.finish()
    standing = stage.store.standing()
    ingress = [(s.id, p) for s in stage.world.layout.segments if s.kind == "ingress" for p in range(s.partitions)]
    assert sorted(standing.cuts) == ingress
    taken = {key: cuts[-1].taken for key, cuts in standing.cuts.items()}
    names = {s.id: s.source or "" for s in stage.world.layout.segments if s.kind == "ingress"}
    assert taken == {(s, p): stage.case.counts[names[s]][p] for s, p in ingress}
    assert all(cuts[-1].ended for cuts in standing.cuts.values())


def test_a_slow_store_costs_latency_and_then_the_window_fills() -> None:
    """Goal: no throughput is lost to appends that are slow, and nothing piles up. Method: an append takes longer than many epochs; later
    it never ends."""
    stage = Journalled(model=StoreModel((40_000, 60_000)), options=FlowOptions(linger_ms=0.5, epoch_rows=5, window_epochs=16, pipeline=4))
    stage.wait(lambda: stage.journal.given > 12, "some output")
    entries = [entry for entry in stage.store.entries() if isinstance(entry.matter, Logged)]
    assert len(entries) < stage.journal.given / 2, "many epochs go into one entry"
    stage.store.refuses = True
    stage.world.run_for(1.0)
    given, closed = stage.journal.given, stage.closed()
    stage.world.run_for(1.0)
    assert (stage.journal.given, stage.closed()) == (given, closed) and closed - given <= 16
    assert [event.kind for _, event in stage.world.happened] == [Kind.JOURNAL_WAITS]
    stage.store.refuses = False
    stage.finish()
    assert [event.kind for _, event in stage.world.happened] == [Kind.JOURNAL_WAITS, Kind.JOURNAL_BACK]


def test_a_successor_tells_what_its_leader_took_along() -> None:
    """Goal: no epoch is lost between a leader's log and the store. Method: the coordinator does not hear a leader for a while; others
    have its records when it dies, and nobody has told them."""
    stage = Journalled()
    world, leader = stage.world, stage.leader()
    stage.wait(lambda: stage.journal.given > 3, "some output")
    world.cut_control(leader, down=False)
    told = stage.store.standing().durable
    key = (0, 0)
    stage.wait(lambda: world.sites[stage.follower()].part.leading.logs[key].settled > told + 2, "epochs that nobody has told")
    assert stage.store.standing().durable <= told + 1
    world.kill(leader)
    world.add_site()
    stage.whole()
    stage.finish()
    assert world.fired("T2", "lose_link") and world.fired("J2", "note_cuts")


def test_what_nobody_knows_of_is_found_out() -> None:
    """Goal: an entry is in once, whatever becomes of the answers. Method: half of them get lost, and what was asked for is done late."""
    stage = Journalled(model=StoreModel((200, 2_000), lost=0.5, late_us=30_000, torn=0.3))
    stage.world.run_for(0.3)
    stage.store.model = StoreModel()
    stage.finish()
    for row in ("read_later", "append_again", "believe"):
        assert stage.world.fired("J4", row), row


def test_a_driver_that_was_replaced_ends_and_gives_nothing_more_out() -> None:
    """Goal: of two drivers one goes on. Method: another one begins its generation at the location."""
    stage = Journalled()
    stage.wait(lambda: stage.journal.given > 5, "some output")
    begun = stage.store.standing().begun
    assert begun is not None
    found = stage.store.begin(begun, "another driver")
    with pytest.raises(Fenced, match="has begun generation 2 at the checkpoint location; this one was generation 1"):
        stage.finish()
    assert stage.journal.judge(stage.world.error, stopped=False) is None
    stored = {epoch for released in stage.world.released.values() for epoch, _ in released}
    assert max(stored) <= found.durable, "what it has given out is in the journal, so the other one makes it again"
    assert stage.world.fired("J4", "give_way")


def test_a_driver_that_pauses_hears_of_its_replacement_when_it_goes_on() -> None:
    stage = Journalled()
    stage.wait(lambda: stage.journal.given > 5, "some output")
    stage.world.pause_driver(0.1)
    stage.world.run_for(0.02)
    begun = stage.store.standing().begun
    assert begun is not None
    found = stage.store.begin(begun, "another driver")
    stage.wait(lambda: stage.world.ended, "its end")
    assert isinstance(stage.world.error, Fenced) and stage.journal.given <= found.durable


def test_a_run_that_is_drained_ends_with_its_journal() -> None:
    stage = Journalled()
    stage.wait(lambda: stage.journal.given > 5, "some output")
    stage.world.stop(drain=True)
    stage.world.run_until_quiet(20.0)
    assert stage.journal.judge(stage.world.error, stopped=False) is None
    standing = stage.store.standing()
    assert standing.ended is not None and standing.ended.epoch == standing.durable >= stage.closed()


def test_a_run_that_is_stopped_leaves_its_journal_open() -> None:
    stage = Journalled()
    stage.wait(lambda: stage.journal.given > 5, "some output")
    stage.world.stop(drain=False)
    stage.world.run_until_quiet(20.0)
    standing = stage.store.standing()
    assert standing.ended is None and standing.durable >= stage.journal.given > 5


def test_a_death_at_the_very_end_is_nobodys_loss() -> None:
    """Goal: a run whose sinks have everything ends well. Method: every site dies while the journal's last word is on its way."""
    stage = Journalled(model=StoreModel((20_000, 30_000)))
    world = stage.world
    world.quotas.clear()
    world.sources_may_end = True
    world.run_until(lambda: stage.machine.journal.closing, 20.0, "the last word")
    for site in range(4):
        world.kill(site)
    world.run_until_quiet(20.0)
    assert world.error is None and EndRun(None) in stage.seen.told
    assert stage.store.standing().ended is not None


def test_a_sink_that_fails_when_it_has_everything_ends_nothing() -> None:
    """Goal: a run fails or is over, never both: a restart would say that it is over. Method: a sink fails while the journal's last word,
    that it is, is on its way."""
    stage = Journalled(model=StoreModel((20_000, 30_000)))
    world = stage.world
    world.quotas.clear()
    world.sources_may_end = True
    world.run_until(lambda: stage.machine.journal.closing, 20.0, "the last word")
    world.driver.coordinate(RunBroken(SinkError("the connection could not be closed")))
    world.run_until_quiet(20.0)
    assert world.error is None and EndRun(None) in stage.seen.told
    assert stage.store.standing().ended is not None


@pytest.mark.parametrize("replicas", [1, 2])
def test_files_of_a_sink_at_the_sites_wait_for_the_journal(tmp_path: Path, replicas: int) -> None:
    """Goal: nothing of an epoch is in the directory, staged or not, before the epoch is durable: names bear it, and nothing is ever
    replaced. Method: the store is slow, and the checker looks at every epoch of both steps."""
    flow = ef.Dataflow("ended")
    parts = [[part.slice(at, 50) for at in range(0, ROWS, 50)] for part in FED]
    sink = ef.sinks.parquet(str(tmp_path), commit_interval_ms=5)
    flow.source(ef.sources.memory(parts), name="rows").where("value < 50", name="half").to(sink)
    store = store_of(StoreModel((5_000, 30_000)))
    planned = layout(flow.network, sites=3, partitions=4)
    assert [segment.name.split(".")[-1] for segment in planned.segments if segment.publishes] == ["stage", planned.segments[-1].name]
    world = SimWorld(planned, sites=3, replicas=replicas, options=FlowOptions(linger_ms=1), read_rows=50, seed=3, store=store)
    Checkers(world)
    journal = JournalCheckers(world)
    world.run_until_quiet()
    assert journal.judge(world.error, stopped=False) is None and journal.given > 5
    assert read_committed(str(tmp_path)).num_rows == passed().num_rows
    assert world.fired("J3", "open_ends") and sum(site.part.counters.rows_out for site in world.sites) == passed().num_rows


def test_rows_that_end_at_sites_are_in_the_journal_when_the_run_ends() -> None:
    """Goal: also a run whose ends wait for nothing says in its journal what it has done. Method: the ends only count, the store is slow."""
    flow = ef.Dataflow("counted")
    parts = [[part.slice(at, 50) for at in range(0, ROWS, 50)] for part in FED]
    flow.source(ef.sources.memory(parts), name="rows").where("value < 50", name="half").to(ef.sinks.discard())
    store = store_of(StoreModel((20_000, 50_000)))
    planned = layout(flow.network, sites=3, partitions=4)
    world = SimWorld(planned, sites=3, replicas=2, options=FlowOptions(linger_ms=1), read_rows=50, seed=3, store=store)
    journal = JournalCheckers(world)
    world.run_until_quiet()
    assert journal.judge(world.error, stopped=False) is None
    assert [cuts[-1].taken for _, cuts in sorted(store.standing().cuts.items())] == [part.num_rows for part in FED]


def test_a_run_without_a_journal_asks_for_none() -> None:
    stage = Stage()
    stage.finish()
    assert not any("J" in rule[0] for site in stage.world.sites for rule in site.part.story.fired)
    assert not any("J" in rule[0] for rule in stage.machine.story.fired)
