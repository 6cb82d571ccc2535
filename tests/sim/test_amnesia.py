"""Amnesia in the simulator: what a lost site had is gone and counted, nothing comes twice, and the run goes on to its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import DrainSite, Happened, MovesRequested
from evenflow.exchange.inbox import Inbox
from evenflow.policy.move import Move
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.ids import SiteId
from evenflow.swarm.amnesia_mutations import AMNESIA as PLANTED
from evenflow.swarm.mutations import Mutation, planted
from evenflow.world.sim.model import LinkModel
from evenflow.world.sim.world import SimWorld

ROWS = 4_000


def some(values: Any, kept: int = 1) -> list[Any]:
    """All of them in conformance, a few else."""
    return [value if at < kept else pytest.param(value, marks=pytest.mark.conformance) for at, value in enumerate(values)]


FAST = FlowOptions(linger_ms=2.0, heartbeat_ms=20.0)


def world(draw: Any, *, seed: int = 0, sites: int = 4, spares: int = 0, rate: int = 20_000, **given: Any) -> SimWorld:
    flow = ef.Dataflow("amnesia")
    source = ef.sources.generator(rate, 50, rows=ROWS, partitions=4, seed=seed).begun(1_000_000)
    draw(flow.source(source, name="in")).to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=sites, partitions=8)
    return SimWorld(planned, sites=sites, spares=spares, seed=seed, options=FAST, availability="amnesia", **given)


def each_row(stream: Any) -> Any:
    return stream.select("key", "value", "ts")


def totals(stream: Any) -> Any:
    return stream.group_by("key").agg(n="count(*)")


def happened(run: SimWorld, kind: str) -> list[Happened]:
    return [event for _, event in run.happened if event.kind == kind]


def rows(run: SimWorld) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in run.output("out").to_pylist())


def whole(draw: Any, seed: int = 0) -> Counter[Any]:
    run = world(draw, seed=seed)
    run.run_until_quiet()
    assert run.error is None and not happened(run, "begun_anew")
    return rows(run)


def test_without_a_loss_it_is_as_ever() -> None:
    """Goal: amnesia changes nothing where nothing fails. Method: the same rows with pairs of one replica and with amnesia."""
    run = world(each_row)
    run.run_until_quiet()
    assert sum(rows(run).values()) == ROWS and all(len(sites) == 1 for row in run.coordinator.plan.placement for sites in row)


@pytest.mark.parametrize("victim", some((1, 0, 2, 3), 2))
@pytest.mark.parametrize("seed", some(range(3)))
def test_a_lost_site_costs_what_it_had_and_nothing_comes_twice(seed: int, victim: int) -> None:
    """Goal: the run goes on, each row comes at most once, and the loss is declared.
    Method: kill each of the sites in the middle; whatever it hosts, a source, the sink's segment or both."""
    truth = whole(each_row, seed)
    run = world(each_row, seed=seed)
    run.run_for(0.06)
    run.kill(victim)
    run.run_until_quiet()
    assert run.error is None
    found = rows(run)
    assert not found - truth, "rows came twice, or were never there"
    assert 0 < sum(found.values()) <= sum(truth.values())
    anew = happened(run, "begun_anew")
    losses = run.coordinator.losses
    assert anew and losses.frames + losses.rows > 0
    assert sum(found.values()) > ROWS * 0.5, "the run goes on without what was lost"


def by_content(seed: int, by: str) -> SimWorld:
    """Sources that every replica reads for itself: an epoch's rows are decided by what they say (E9, I4)."""
    flow = ef.Dataflow("amnesia")
    source = ef.sources.generator(20_000, 50, rows=ROWS, partitions=4, seed=seed).begun(1_000_000)
    if by == "place":
        parts = [[pa.record_batch([[p] * 1_000, [*range(1_000)]], names=["key", "value"])] for p in range(4)]
        source = ef.sources.memory(parts)
    width: Any = {"width_ms": 5} if by == "time" else {"width_rows": 20}
    flow.source(source, name="in", cut="content", **width).select("key", "value").to(ef.sinks.memory("out"), name="out")
    return SimWorld(layout(flow.network, sites=4, partitions=8), sites=4, seed=seed, options=FAST, availability="amnesia", read_rows=20)


@pytest.mark.parametrize("victim", some(range(4), 2))
@pytest.mark.parametrize("by", ["time", "place"])
def test_a_lost_reader_of_a_source_that_is_cut_by_content_begins_anew(by: str, victim: int) -> None:
    """Goal: what nobody has heard of is read again, and belongs to the first epoch behind the loss, since those before were closed without
    it. Method: kill each site while all read. Such rows were taken for a broken promise of the source, which ended the run."""
    plain = by_content(0, by)
    plain.run_until_quiet()
    run = by_content(0, by)
    run.run_for(0.02)
    run.kill(victim)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - rows(plain), "rows came twice, or were never there"
    if victim != 1:  # The sink's segment is at 1.
        assert rows(run) == rows(plain)


def test_a_site_with_a_sink_does_not_know_yet_where_a_source_stands_that_moves_there() -> None:
    """Goal: it goes on giving out rows, and says nothing of that source. Method: a partition of a source that is cut by content moves to
    the sink's site, and its state is lost on the way at first. The site ended with a KeyError."""
    plain = by_content(0, "place")
    plain.run_until_quiet()
    run = by_content(0, "place")
    run.run_for(0.02)
    run.transfer_fates.append("lost")
    run.driver.coordinate(MovesRequested((Move(0, (2,), 2, 1, "to see"),)))
    run.run_until_quiet()
    assert run.error is None and not happened(run, "site_lost") and not run.transfer_fates
    assert rows(run) == rows(plain)


@pytest.mark.parametrize("seed", some((0, 2, 3)))
def test_what_begins_anew_when_sources_that_are_cut_by_content_have_ended_hears_of_the_end(seed: int) -> None:
    """Goal: the run ends. Method: kill the site of the sink when the last epoch is closed everywhere and not out: no source has another
    one, and the plan that lets the sink's segment begin anew wants one."""
    run = by_content(seed, "place")

    def all_said() -> bool:
        led = [site.part.ingress.queues.values() for site in run.sites]
        return all(queues and all(queue.announced for queue in queues) for queues in led)

    run.run_until(all_said, 5.0, "the last epoch")
    run.kill(1)
    run.run_until_quiet(5.0)
    assert run.error is None and happened(run, "begun_anew")


@pytest.mark.parametrize("seed", some((1, 0, 2, 3)))
def test_totals_begin_anew(seed: int) -> None:
    """Goal: keys of what was lost are counted from nothing again; the others go on. Method: kill a site that hosts some of them."""
    truth = whole(totals, seed)
    run = world(totals, seed=seed, spares=1)
    run.run_for(0.06)
    run.kill(1)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    most = {key: max(n for (k, n), _ in truth.items() if k == key) for key in {k for k, _ in truth}}
    last: dict[Any, int] = {}
    for row in run.output("out").to_pylist():
        last[row["key"]] = row["n"]
    assert last and all(n <= most[key] for key, n in last.items())
    assert run.coordinator.view.load()[4] > 0, "the spare takes the place of the lost one"


@pytest.mark.conformance
def test_two_deaths_one_after_the_other() -> None:
    """Goal: what began anew may be lost as well. Method: kill the one that got the lost partitions, while it begins and after."""
    truth = whole(each_row)
    for after in (0.0, 0.002, 0.01, 0.05):
        run = world(each_row, spares=1)
        run.run_for(0.05)
        run.kill(0)
        run.run_until(lambda run=run: bool(happened(run, "begun_anew")), 5.0, "the partitions to begin anew")
        run.run_for(after)
        run.kill(4)
        run.run_until_quiet()
        assert run.error is None and len(happened(run, "begun_anew")) >= 2
        assert not rows(run) - truth


def test_the_last_site_cannot_be_lost() -> None:
    run = world(each_row, sites=2)
    run.run_for(0.05)
    run.kill(0)
    run.run_for(0.05)
    run.kill(1)
    run.run_for(1.0)
    assert type(run.error).__name__ == "PartitionsLost"


def test_a_site_that_is_to_leave_is_better_than_none() -> None:
    """Goal: the run goes on where all that are left are leaving. Method: empty one of two, and kill the other one."""
    run = world(each_row, sites=2)
    run.run_for(0.05)
    run.driver.coordinate(DrainSite(SiteId(1)))
    run.kill(0)
    run.run_until_quiet()
    assert run.error is None and {event.site for event in happened(run, "begun_anew")} == {1}
    assert not rows(run) - whole(each_row)


def mixed(seed: int) -> SimWorld:
    """Totals that are in pairs down to their sink, and others that are not, of the same source."""
    flow = ef.Dataflow("mixed")
    stream = flow.source(ef.sources.generator(20_000, 50, rows=ROWS, partitions=4, seed=seed).begun(1_000_000), name="in")
    stream.group_by("key").agg(n="count(*)").to(ef.sinks.memory("billed"), name="billed", guarantee="precise")
    shown = stream.group_by("key").agg(n="count(*)").availability("amnesia")
    shown.to(ef.sinks.memory("shown"), name="shown", guarantee="gap", availability="amnesia")
    planned = layout(flow.network, sites=4, partitions=8)
    return SimWorld(planned, sites=4, seed=seed, options=FAST, replicas=2)


def last(run: SimWorld, sink: str) -> dict[int, int]:
    return {row["key"]: row["n"] for row in run.output(sink).to_pylist()}


@pytest.mark.parametrize("victim", some((2, 0, 1, 3)))
def test_what_is_in_pairs_beside_it_loses_nothing(victim: int) -> None:
    """Goal: each output has its own guarantee. Method: kill each site; totals in pairs are exact, those beside them at most that."""
    plain = mixed(victim)
    plain.run_until_quiet()
    run = mixed(victim)
    run.sources_may_end = False
    run.run_for(0.06)
    run.kill(victim)
    run.run_until(lambda: bool(happened(run, "redundancy")), 10.0, "what is in pairs to be whole again")
    assert run.redundancy() == 2
    run.sources_may_end = True
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert last(run, "billed") == last(plain, "billed") == last(plain, "shown")
    assert all(n <= last(plain, "shown")[key] for key, n in last(run, "shown").items())
    assert last(run, "shown") != last(plain, "shown"), "something was lost"


def read_as_empty(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int, int]]:
    """(stream, epoch, producer partition) of all frames that some consumer has read as empty, as it reads them."""
    found: set[tuple[int, int, int]] = set()
    plain = Inbox.pop

    def pop(self: Inbox, epoch: int) -> Any:
        found.update((self.stream, epoch, partition) for partition, last in self.voids.items() if last >= epoch)
        return plain(self, epoch)

    monkeypatch.setattr(Inbox, "pop", pop)
    return found


@pytest.mark.parametrize("seed", some((1, 0, 2, 3)))
def test_what_is_declared_is_what_was_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the count of frames is the truth. Method: note what consumers read as empty, and compare with what they have said; kill two
    sites, the second one while what the first had begins anew."""
    actual = read_as_empty(monkeypatch)
    run = world(totals, seed=seed, spares=1)
    run.run_for(0.05)
    run.kill(seed % 4)
    run.run_until(lambda: bool(happened(run, "begun_anew")), 5.0, "the partitions to begin anew")
    run.run_for(0.003 * seed)
    run.kill((seed + 2) % 4)
    run.run_until_quiet()
    assert run.error is None
    declared = {
        (said.stream, epoch, partition)
        for _, said in run.coordinator.losses.voided
        for epoch in range(said.first, said.last + 1)
        for partition in said.partitions
    }
    assert actual and actual <= declared, "what was read as empty was said"
    dead = run.coordinator.losses.voided
    assert declared - actual <= {
        (said.stream, epoch, p) for site, said in dead if site not in run.coordinator.sites for epoch in range(said.first, said.last + 1)
        for p in said.partitions
    }, "what was said was read as empty, but by a site that has died since"  # fmt: skip


def site_of_sink(run: SimWorld) -> int:
    """The one that gives to it."""
    out = next(segment.id for segment in run.layout.segments if segment.sink)
    ((site,),) = run.coordinator.plan.placement[out]
    return site


def behind_a_new_link(seed: int, after_s: float) -> SimWorld:
    """A link is lost with what was said of an epoch; its frames are sent again, and their leader dies before the next epoch."""
    run = world(each_row, seed=seed, sites=2)
    run.run_for(0.05)
    run.network.lose(0, 1)
    run.run_until(lambda: not run.network.is_open(0, 1), 1.0, "the link to go")
    run.run_until(lambda: run.network.is_open(0, 1) and run.network.is_open(1, 0), 1.0, "the link to be back")
    run.run_for(after_s)
    run.kill(1 - site_of_sink(run))
    run.run_until_quiet()
    return run


def reaching_nobody(seed: int, after_s: float) -> SimWorld:
    """The site that gives to the sink leads a source, reaches no peer any more, and dies."""
    run = world(each_row, seed=seed, sites=2)
    run.run_for(0.05)
    victim = site_of_sink(run)
    run.cut((victim, 1 - victim))
    run.run_for(after_s)
    run.network.lose(0, 1, by=1 - victim)
    run.kill(victim)
    run.run_until_quiet()
    return run


@pytest.mark.parametrize(("how", "after_s"), [(behind_a_new_link, 0.0008), (reaching_nobody, 0.003)])
@pytest.mark.parametrize("seed", some((2, 1, 0)))
def test_a_source_is_not_read_again_of_which_only_its_rows_have_come(seed: int, how: Any, after_s: float) -> None:
    """Goal: no row comes twice, though nobody was told with it where its source stands. Method: lose the link that it was said on."""
    run = how(seed, after_s)
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - whole(each_row, seed)


def test_a_source_on_its_way_to_another_site_is_not_read_again() -> None:
    """Goal: who was to get a source that was read by one site knows how far it was. Method: a site is emptied, and dies when another one
    follows what it reads, and has not been told yet what came before."""
    truth = whole(each_row)
    run = world(each_row, sites=2, link=LinkModel(pack_us=(20_000, 30_000)))
    run.run_for(0.05)
    run.driver.coordinate(DrainSite(SiteId(0)))
    logs = run.sites[1].part.leading.logs
    run.run_until(lambda: any(not log.known and log.end > log.done for log in logs.values()), 5.0, "site 1 to follow a source of site 0")
    run.kill(0)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - truth, "rows came twice"


def test_who_knows_nothing_of_a_source_says_nothing_of_it() -> None:
    """Goal: where a source stands is what somebody has heard. Method: a site is emptied, and dies when another one has made room for the
    source that it reads, beyond what has come of it, and has heard nothing of it yet; a third one has its rows."""
    truth = whole(each_row)
    run = world(each_row, sites=3, link=LinkModel(pack_us=(20_000, 30_000)))
    run.run_for(0.05)
    run.driver.coordinate(DrainSite(SiteId(0)))

    def made_room() -> bool:
        logs = [log for site in run.sites[1:] for log in site.part.leading.logs.values()]
        return any(not log.known and log.end == log.done for log in logs)

    run.run_until(made_room, 5.0, "a site to make room for a source of site 0")
    run.kill(0)
    run.run_until_quiet()
    assert run.error is None and happened(run, "begun_anew")
    assert not rows(run) - truth, "rows came twice"


def no_rows(stream: Any) -> Any:
    return each_row(stream).filter("value < -1e18")


@pytest.mark.parametrize("draw", [each_row, no_rows])
def test_a_plan_acts_beyond_what_a_dead_source_has_sent(draw: Any) -> None:
    """Goal: what has come of a source that nobody follows keeps its epochs. Method: heartbeats are rare, and the site that has read the
    source dies. What it read is elsewhere by then, with rows for the sink or without: a plan from an epoch among these would let come
    again what is there, and what comes would be left out, and not declared."""
    flow = ef.Dataflow("amnesia")
    source = ef.sources.generator(20_000, 50, rows=ROWS, partitions=1).begun(1_000_000)
    draw(flow.source(source, name="in")).to(ef.sinks.memory("out"), name="out")
    rare = replace(FAST, heartbeat_ms=1000.0)
    run = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, options=rare, availability="amnesia")
    run.run_for(0.1)
    out = max(site.part.processed for site in run.sites)
    run.kill(0)
    run.run_until(lambda: bool(happened(run, "begun_anew")), 5.0, "the source to begin anew")
    assert run.coordinator.plan.effective > out > 20
    run.run_until_quiet()
    assert run.error is None and sum(rows(run).values()) == (ROWS if draw is each_row else 0)


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", PLANTED, ids=lambda mutation: mutation.name)
def test_planted_bugs_show(mutation: Mutation) -> None:
    truth = whole(each_row, 2)
    with planted(mutation):
        assert rows(behind_a_new_link(2, 0.0008)) - truth or rows(reaching_nobody(2, 0.003)) - truth
