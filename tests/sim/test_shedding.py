"""More comes than can be done: rows of a late source are left out by the plan of its outputs' worth, and everything else stays as it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

import evenflow as ef
from evenflow.coordinator.ledger import REMEMBERED, Ledger, shed_table
from evenflow.errors import QueryError, SourceError
from evenflow.exchange.section import SHARES
from evenflow.exchange.shedding import classes, staying
from evenflow.plan.layout import Layout, Shed
from evenflow.query.lateness import never_late, never_late_text
from evenflow.query.planner import layout
from evenflow.site.facts import ArcThinned, RowsShed
from evenflow.site.options import FlowOptions
from evenflow.site.reflex import FIRST, GROWTH, LEAST_ROWS, Allowance
from evenflow.sources.generator import GeneratorReader, GeneratorSource
from evenflow.stream.waiting import Waiting
from evenflow.stream.worth import Classes
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.shed_cases import read_whole
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.watching import SimWatch
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

PATIENCE_MS = 100
SITES = 3
CAN = 12_000
"""Rows per second that the sites can do."""
ROW_US = SITES * 1e6 / CAN
QOS = ef.qos(latency=[(f"{PATIENCE_MS} ms", 1), ("1 s", 0)])


class Flood:
    """A source of `load` times what the sites can do, for `seconds`, into one output. ages_ms: of what came out, the oldest row of each
    look."""

    def __init__(
        self,
        load: float,
        seconds: float,
        *,
        qos: Any = QOS,
        shedding: str = "reflex",
        protect: bool = False,
        journal: bool = False,
        calm_s: float = 0.0,
        linger_ms: float | None = None,
        **given: Any,
    ) -> None:
        rate = int(load * CAN)
        self.rows, self.seconds = int(rate * seconds), seconds
        made = ef.sources.generator(rate, 1000, rows=self.rows, partitions=SITES, seed=5).begun(1_000_000)
        flow = ef.Dataflow("flood")
        rows = flow.source(made, name="in").select("key", "value", "ts", "p0")
        rows.to(ef.sinks.memory("out"), name="out", qos=qos)
        if protect:
            rows.to(ef.sinks.memory("whole"), name="whole")
        if calm_s:
            slow = ef.sources.generator(100, 10, rows=int(100 * (seconds + calm_s)), partitions=1, seed=5).begun(1_000_000)
            flow.source(slow, name="slow").select("key").to(ef.sinks.memory("calm"), name="calm")
        self.planned: Layout = layout(flow.network, sites=SITES)
        cost = CostModel(row_us=ROW_US / given.get("replicas", 1), free=frozenset({"egress"}))
        options = FlowOptions(shedding=shedding, heartbeat_ms=50.0)
        options = options if linger_ms is None else replace(options, linger_ms=linger_ms)
        settled = {"sites": SITES, "cost": cost, "options": options, "read_rows": 20_000, "read_every_us": (500, 1_500), "seed": 7} | given
        self.cluster = SimCluster(self.planned, **settled) if journal else None
        self.only = SimWorld(self.planned, **settled) if self.cluster is None else None
        Checkers(self.world)
        self.ages_ms: list[float] = []
        self.seen = 0

    def look(self) -> None:
        released = self.world.released["out"]
        for _, batch in released[self.seen :]:
            if batch.num_rows:
                times = batch.column("ts").cast(pa.timestamp("us")).view(pa.int64()).to_numpy()
                self.ages_ms.append((self.world.now_us - int(times.min())) / 1000)
        self.seen = len(released)

    def run_for(self, seconds: float) -> None:
        until_us = self.world.now_us + int(seconds * 1e6)
        while self.world.now_us < until_us and not self.world.ended:
            self.world.run_for(0.005)
            self.look()

    def finish(self) -> None:
        while not self.world.ended:
            self.run_for(0.1)
            assert self.world.now_us < 60_000_000
        if self.world.error is not None:
            raise self.world.error

    @property
    def world(self) -> Any:
        return self.cluster.world if self.cluster is not None else self.only

    @property
    def ledger(self) -> Ledger:
        return self.world.coordinator.ledger

    def rows_out(self, sink: str = "out") -> list[tuple[Any, ...]]:
        return sorted(zip(*self.world.output(sink).to_pydict().values(), strict=True))

    def oracle(self) -> list[tuple[Any, ...]]:
        """All rows of the source but those that the ledger says were left out."""
        source, found = self.planned.sources["in"], []
        for partition in range(SITES):
            part = read_whole(source.open(partition, SITES))
            stays = np.ones(part.num_rows, bool)
            for said in self.ledger:
                if said.partition == partition:
                    rows = part.slice(said.first, said.taken - said.first)
                    of = classes(self.planned.sheds["in"], rows)
                    there = np.arange(said.first, said.taken)
                    stays[said.first : said.taken] = staying("in", partition, there, of, said.keep)
                    assert int(stays[said.first : said.taken].sum()) == said.kept
                    assert said.kept + sum(said.dropped) == said.taken - said.first
            found += list(zip(*part.filter(pa.array(stays)).select(["key", "value", "ts", "p0"]).to_pydict().values(), strict=True))
        return sorted(found)


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share))


@pytest.mark.parametrize(
    ("load", "dear", "cheap"), one_in(2, [(1.5, (0.8, 1.0), (0.1, 0.45)), (3.0, (0.35, 0.75), (0.0, 0.15))], spread=True)
)
def test_of_two_sources_the_dear_one_keeps_more(load: float, dear: tuple[float, float], cheap: tuple[float, float]) -> None:
    """Goal: what an epoch may have goes to rows that are worth most, without any plan. Two sources of half the load each, for outputs of
    weight 1 and 0.2."""
    flow, rate = ef.Dataflow("two"), int(load * CAN / 2)
    for seed, (name, weight) in enumerate((("dear", 1.0), ("cheap", 0.2))):
        made = ef.sources.generator(rate, 1000, rows=2 * rate, partitions=SITES, seed=seed).begun(1_000_000)
        qos = ef.qos(latency=[(f"{PATIENCE_MS} ms", 1), ("1 s", 0)], weight=weight)
        flow.source(made, name=name).select("key", "value").to(ef.sinks.memory(f"{name} out"), name=f"{name} out", qos=qos)
    cost, options = CostModel(row_us=ROW_US, free=frozenset({"egress"})), FlowOptions(shedding="reflex", heartbeat_ms=50.0)
    world = SimWorld(
        layout(flow.network, sites=SITES), sites=SITES, cost=cost, options=options, read_rows=20_000, read_every_us=(500, 1_500)
    )
    Checkers(world)
    while not world.ended:
        world.run_for(0.1)
        assert world.now_us < 60_000_000
    for name, (least, most) in (("dear", dear), ("cheap", cheap)):
        assert least <= world.output(f"{name} out").num_rows / (2 * rate) <= most, name


def test_without_overload_nothing_is_left_out() -> None:
    flood = Flood(0.8, 0.5)
    flood.finish()
    assert flood.ledger.totals() == {} and len(flood.rows_out()) == flood.rows
    assert not [event for _, event in flood.world.happened if event.kind == "shedding"]
    assert percentile(flood.ages_ms, 0.99) < PATIENCE_MS


@pytest.mark.parametrize("load", [1.5, pytest.param(5.0, marks=pytest.mark.conformance)])
def test_answers_come_in_time_and_are_those_of_the_oracle(load: float) -> None:
    """Goal: under overload answers are in time, most of what can be done is delivered, and what is left out is what is told."""
    flood = Flood(load, 1.0 if load < 2 else 1.5)
    flood.finish()
    answers = flood.rows_out()
    assert answers == flood.oracle()
    assert len(answers) + sum(flood.ledger.totals().values()) == flood.rows
    settled = flood.ages_ms[len(flood.ages_ms) * 2 // 3 :]
    assert percentile(settled, 0.99) < 1.2 * PATIENCE_MS and percentile(flood.ages_ms, 0.99) < 2 * PATIENCE_MS
    assert len(answers) > (0.92 if load < 2 else 0.85) * CAN * flood.seconds
    [event] = [event for _, event in flood.world.happened if event.kind == "shedding"]
    assert "'in'" in event.text and "'out'" in event.text
    [ended] = [event for _, event in flood.world.happened if event.kind == "shedding_ended"]
    said = [*flood.ledger]
    assert ended.details["rows"] == sum(flood.ledger.totals().values()) and ended.text.startswith("the run is over")
    assert (ended.details["epoch"], ended.details["through"]) == (min(s.epoch for s in said), max(s.epoch for s in said))
    assert ended.details["seconds"] == round((max(s.stamp for s in said) - min(s.stamp for s in said)) / 1e6, 3) > 0


def test_leaders_keep_the_same_share_of_what_comes() -> None:
    """Goal: no site is idle while another one has too much: all take part in an epoch, which is over when the slowest is. Method: their
    first epochs differ, and so do the shares that they begin with."""
    flood = Flood(2.0, 0.7)
    flood.run_for(0.5)
    shares = [site.part.ingress.reflex.allowance.share for site in flood.world.sites]
    assert len(shares) == SITES and None not in shares and max(shares) < 1.2 * min(shares)
    flood.finish()


def test_the_first_epochs_are_no_longer_than_those_that_can_be_seen_to_be_in_time() -> None:
    """Goal: what came before anybody knew how much can be done is not seconds of work. Method: epochs that came through at once, slowly,
    and two together of which the second seems to have taken no time."""
    allowance = Allowance(epoch_us=25_000.0)
    assert allowance.ahead is None
    allowance.close(1, 100, 0)
    assert allowance.ahead == GROWTH * 100
    allowance.note(1, 1_000)
    assert allowance.ahead == GROWTH * 100
    allowance.close(2, 400, 1_000)
    allowance.note(2, 51_000)
    assert allowance.ahead == 200
    for epoch in (3, 4):
        allowance.close(epoch, 200, 51_000)
    allowance.note(3, 151_000)
    allowance.note(4, 151_001)
    assert allowance.ahead == 200 * 25_000 / 50_000.5
    allowance.close(5, 1, 151_001)
    allowance.note(5, 951_001)
    assert allowance.ahead == LEAST_ROWS and allowance.rows is None


def test_who_is_late_after_others_begins_with_what_they_keep() -> None:
    allowance = Allowance(epoch_us=25_000.0, rate=0.06)
    allowance.note(0, 0, [SHARES // 2, SHARES // 4])
    allowance.begin(1_000)
    assert allowance.share == 0.375 and allowance.told == 3 * SHARES // 8
    alone = Allowance(epoch_us=25_000.0, rate=0.06)
    alone.begin(1_000)
    assert alone.share == FIRST


def test_the_end_of_shedding_is_told_once_and_its_next_beginning_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who watches sees when it is over, and how much was left out. Method: one source stops, and another one goes on."""
    monkeypatch.setattr("evenflow.coordinator.ledger.CALM_EPOCHS", 8)
    flood = Flood(3.0, 0.25, calm_s=0.3)
    flood.run_for(0.5)
    assert not flood.world.ended
    [ended] = [event for _, event in flood.world.happened if event.kind == "shedding_ended"]
    assert ended.text.startswith("nothing more is left out") and 0 < ended.details["seconds"] < 0.4
    assert ended.details["rows"] == sum(flood.ledger.totals().values()) > 1_000
    flood.finish()
    told = [event.kind for _, event in flood.world.happened if event.kind.startswith("shedding")]
    assert told == ["shedding", "shedding_ended"]
    again = replace(next(iter(flood.ledger)), epoch=10**6)
    assert flood.ledger.take(again) and not flood.ledger.take(replace(again, epoch=10**6 + 1))


def test_off_means_that_nothing_is_ever_left_out() -> None:
    flood = Flood(3.0, 0.5, shedding="off")
    flood.finish()
    assert flood.ledger.totals() == {} and len(flood.rows_out()) == flood.rows
    assert max(flood.ages_ms) > 2 * PATIENCE_MS


def test_what_a_protected_output_needs_stays_whole() -> None:
    flood = Flood(3.0, 0.5, protect=True)
    assert flood.planned.sheds == {}
    flood.finish()
    assert len(flood.rows_out("whole")) == flood.rows and flood.ledger.totals() == {}


def test_a_successor_goes_on_behind_what_was_left_out() -> None:
    """Goal: replicas agree on what stays, and neither what was left out comes back nor what was kept goes, whoever leads. Method: two
    leaders die one after the other under overload."""
    flood = Flood(3.0, 0.7, replicas=2)
    flood.run_for(0.25)
    flood.world.kill(0)
    flood.world.add_site()
    flood.run_for(0.25)
    flood.world.kill(2)
    flood.finish()
    assert len({said.epoch for said in flood.ledger}) > 10
    assert flood.rows_out() == flood.oracle()
    assert len(flood.rows_out()) + sum(flood.ledger.totals().values()) == flood.rows


def test_a_restart_leaves_out_what_was_left_out() -> None:
    """Goal: what the journal has is made again as it was (J3). Method: everything dies under overload; the next driver replays it."""
    flood = Flood(3.0, 0.5, journal=True)
    flood.run_for(0.3)
    before = {(said.partition, said.epoch): said for said in flood.ledger}
    flood.cluster.lose_all()
    flood.cluster.restart()
    Checkers(flood.world)
    flood.finish()
    again = {(said.partition, said.epoch): said for said in flood.ledger}
    durable = flood.world.coordinator.beginning.durable
    replayed = [at for at in again if at[1] <= durable]
    assert len(replayed) > 3 and all(again[at] == before[at] for at in replayed if at in before)
    assert flood.rows_out() == flood.oracle()


@pytest.mark.parametrize("checkpoint", one_in(2, [True, False]))
def test_a_recovery_in_place_leaves_out_what_was_left_out(checkpoint: bool) -> None:
    """Goal: the same driver's next generation makes the epochs of a spell again as they are recorded, and what is told of them counts once
    (J3, K14). Method: all replicas of some partitions die under overload, twice, with checkpoints in the spell or without; what sites tell
    of the replayed epochs is compared with the cuts in the journal, and with what they had told before."""
    flood = Flood(3.0, 1.4 if checkpoint else 0.7, journal=True)
    cluster = flood.cluster
    assert cluster is not None
    for loss in (1, 2):
        flood.run_for(0.15)
        if checkpoint:
            flood.world.checkpoint()
            flood.world.run_until(lambda: bool(flood.world.answers), 10.0, "a checkpoint in the middle of the spell")
        flood.run_for(0.05)
        assert not flood.world.ended and flood.ledger.totals(), "rows are being left out"
        flood.world.kill(loss)
        flood.world.run_until(lambda: flood.world.error is not None, 10.0, "the loss is known")
        before = {(said.partition, said.epoch): said for said in flood.ledger}
        cluster.go_on_in_place()
        Checkers(flood.world)
        flood.seen = 0
    beginning = flood.world.coordinator.beginning
    assert (beginning.epoch > 0) == checkpoint and beginning.durable > beginning.epoch + 1
    recorded = {
        (partition, cut.epoch): (cut.taken, cut.keep, cut.dropped, (cut.rows or 0) - sum(cut.dropped))
        for (_, partition), cuts in beginning.cuts.items()
        for cut in cuts
        if cut.keep
    }
    flood.finish()
    again = {(said.partition, said.epoch): said for said in flood.ledger}
    replayed = {at: said for at, said in again.items() if beginning.epoch < at[1] <= beginning.durable}
    assert len(recorded) >= 3
    assert recorded == {at: (said.taken, said.keep, said.dropped, said.kept) for at, said in replayed.items()}
    assert all(said == before[at] for at, said in replayed.items() if at in before)
    earlier = sum(sum(each.dropped) for each in flood.ledger.before.values())
    assert len(flood.rows_out()) + earlier + sum(flood.ledger.totals().values()) == flood.rows, "each is kept or left out, once"
    if not checkpoint:
        assert flood.rows_out() == flood.oracle()


@pytest.mark.parametrize("other", [{}, {"in": Shed(("out",), 1, "value", Classes((500.0,), (0.0, 1.0)))}])
def test_a_restart_whose_rows_differ_otherwise_in_worth_is_refused(other: dict[str, Shed]) -> None:
    """Goal: what cannot be made again is an error, and not other rows. Method: the journal says that rows of one class were left out; the
    dataflow that goes on has two, or an output that is protected."""
    flood = Flood(3.0, 0.5, journal=True)
    flood.run_for(0.3)
    assert flood.cluster is not None and flood.ledger.totals()
    flood.cluster.lose_all()
    sheds: Any = flood.planned.sheds
    sheds.clear()
    sheds |= other
    flood.cluster.restart()
    with pytest.raises(SourceError, match=f"rows were left out by their worth, in 1 classes, and there are {2 * len(other)} now"):
        flood.finish()


def test_windows_tell_what_was_offered_kept_and_dropped() -> None:
    """D5: offered = kept + dropped + growth of what waits at the source."""
    flood = Flood(3.0, 0.6)
    flood.world.collect()
    flood.finish()
    windows = [source for window in flood.world.collect().sites for source in window.sources]
    assert sum(window.kept for window in windows) == len(flood.rows_out())
    dropped = sum(flood.ledger.totals().values())
    assert sum(sum(window.dropped) for window in windows) == dropped > 0
    [run] = SimWatch(flood.world).look()[1].runs
    assert run.delivered_ppm == round(1e6 * (1 - dropped / flood.rows))


def test_what_is_left_out_again_is_counted_though_nothing_new_is() -> None:
    """Goal: windows say what came in. Method: a restart without shedding, of a run that had it."""
    flood = Flood(3.0, 0.3, journal=True)
    flood.run_for(0.2)
    assert flood.cluster is not None
    flood.cluster.lose_all()
    flood.cluster.restart(options=FlowOptions(shedding="off", heartbeat_ms=50.0))
    flood.world.collect()
    flood.finish()
    windows = [source for window in flood.world.collect().sites for source in window.sources]
    dropped = sum(flood.ledger.totals().values())
    assert sum(sum(window.dropped) for window in windows) == dropped > 0
    assert sum(window.kept for window in windows) == flood.rows - dropped == len(flood.rows_out())


def test_what_is_worth_most_is_kept() -> None:
    """Goal: of rows that differ in worth those that are worth most come through. Method: value 0 to 999 is worth a tenth to one."""
    flood = Flood(3.0, 0.8, qos=ef.qos(latency=[(f"{PATIENCE_MS} ms", 1), ("1 s", 0)], value=("value", [(0, 0.1), (1000, 1)])))
    assert len(flood.planned.sheds["in"].classes) == 8
    flood.finish()
    answers = flood.rows_out()
    assert answers == flood.oracle()
    worth = (0.1 + 0.9 * np.array([row[1] for row in answers]) / 1000).sum()
    share = len(answers) / flood.rows
    best = flood.rows * share * (0.1 + 0.9 * (1 - share / 2))
    assert worth > 0.9 * best, "the knapsack has the rows of greatest value"


def test_calm_epochs_end_the_reflex() -> None:
    """Goal: what an overload has left over ends when it does. Method: epochs that find nothing under way, and then a pause."""
    allowance, now_us = Allowance(epoch_us=25_000.0, share=0.3, rate=0.06), 1_000_000
    for epoch in range(1, 101):
        allowance.offer(300, 5_000)
        allowance.open(now_us)
        allowance.close(epoch, 300, now_us)
        allowance.note(epoch, now_us + 2_000)
        now_us += 5_000
    assert allowance.share is None
    paused = Allowance(epoch_us=25_000.0, share=0.3, rate=0.06)
    for beat in range(3):
        paused.open(now_us + beat * 1_000_000)
        paused.close(beat, 0, now_us + beat * 1_000_000)
    assert paused.rows is None


def test_the_first_rows_say_over_how_much_time_they_came() -> None:
    """Goal: a backlog is no rate. Method: a second's rows come at once, and they are late."""
    allowance = Allowance(epoch_us=25_000.0)
    allowance.offer(30_000, 1_000_000)
    allowance.open(1_000_000)
    allowance.begin(1_000_000)
    assert allowance.share == FIRST and allowance.rows == pytest.approx(FIRST * 0.03 * 25_000)


def test_when_an_overload_is_over_no_row_is_left_out() -> None:
    """Goal: rows in time stay (D6). Method: the sites are slow for a while, and then as before, at a third of what they can do."""
    qos = ef.qos(latency=[(f"{PATIENCE_MS} ms", 1), ("1 s", 0)], value=("value", [(0, 0.1), (1000, 1)]))
    flood = Flood(0.3, 3.0, qos=qos, linger_ms=20.0)
    flood.run_for(0.2)
    for site in range(SITES):
        flood.world.slow_down(site, 20)
    flood.run_for(0.8)
    for site in range(SITES):
        flood.world.slow_down(site, 1.0)
    flood.run_for(0.8)
    before = sum(flood.ledger.totals().values())
    assert before > 0
    flood.finish()
    assert sum(flood.ledger.totals().values()) == before


def test_a_backlog_is_shed_from_its_first_epoch_on() -> None:
    """Goal: after a restart answers are in time within a second. Method: all sites are lost, and it takes three seconds to start others."""
    flood = Flood(0.8, 6.0, journal=True)
    flood.run_for(0.3)
    assert flood.cluster is not None
    flood.cluster.lose_all()
    flood.cluster.restart(dark_us=3_000_000)
    flood.ages_ms, flood.seen = [], 0
    flood.run_for(1.0)
    assert sum(flood.ledger.totals().values()) > 0
    flood.ages_ms.clear()
    flood.run_for(0.5)
    assert flood.ages_ms and max(flood.ages_ms) < 2 * PATIENCE_MS


@pytest.mark.conformance
def test_what_is_told_costs_little_and_is_forgotten_in_its_order() -> None:
    """Goal: an overload of hours neither fills the driver nor keeps its thread. Method: many more epochs than are remembered, of two
    partitions, as two replicas tell them."""
    ledger, told = Ledger(), REMEMBERED // 2 + 500
    said = [RowsShed(0, partition, 1, 0, 10, (7,) * 8, 2, (1,) * 8, 5) for partition in (0, 1)]
    for epoch in range(1, told + 1):
        for each in said:
            ledger.take(replace(each, epoch=epoch))
    began_s = time.process_time()
    for epoch in range(told + 1, told + 51):
        for each in said:
            assert not ledger.take(replace(each, epoch=epoch)) and not ledger.take(replace(each, epoch=epoch))
    assert time.process_time() - began_s < 0.1
    assert not ledger.take(said[0]) and ledger.totals() == {0: 16 * (told + 50)}
    remembered = [*ledger]
    assert (
        len(remembered) == REMEMBERED
        and remembered[0] == replace(said[0], epoch=551)
        and remembered[-1] == replace(said[1], epoch=told + 50)
    )
    assert sum(map(len, ledger.copied().packed())) < REMEMBERED * 250


def test_what_is_forgotten_is_told_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: however long an overload is, `run.shed()` has all that was left out, and nobody reads a part of it again as if it were all. Of
    epochs that were not remembered any more there was nothing in it. Method: a few are remembered, of a source and of an arc."""
    monkeypatch.setattr("evenflow.coordinator.ledger.REMEMBERED", 5)
    monkeypatch.setattr("evenflow.coordinator.thinnings.REMEMBERED", 5)
    flow = ef.Dataflow("long")
    rows = flow.source(ef.sources.generator(1000, 10, rows=1000, partitions=2), name="in").select("key")
    rows.repartition().select("key").to(ef.sinks.memory("out"), name="out", qos=QOS)
    planned, ledger = layout(flow.network, sites=2), Ledger()
    arc = min(planned.thins)
    counts = np.array([[4], [2]], np.int64)
    for epoch in range(1, 21):
        for partition in (0, 1):
            ledger.take(RowsShed(0, partition, epoch, 10 * epoch, 10 * epoch + 10, (7,), 6, (4,), 5))
        ledger.arcs.take(ArcThinned(arc, epoch, (7,), (0, 1), (counts * 2).tobytes(), counts.tobytes(), 5))
    assert not ledger.take(RowsShed(0, 0, 3, 30, 40, (7,), 6, (4,), 5)), "it has been told"
    table = shed_table(planned, ledger.copied())
    rows_of = [[row for row in table.to_pylist() if (row["arc"] is None) is one] for one in (True, False)]
    for told, dropped, kept in zip(rows_of, (160, 120), (240, 120), strict=True):
        assert sum(sum(row["dropped"]) for row in told) == dropped and sum(row["kept"] for row in told) == kept
    assert [row["epoch"] for row in rows_of[0] if row["first"] is None] == [18, 17] and [row["keep"] is None for row in rows_of[1]][:2] == [
        True,
        False,
    ]
    with pytest.raises(QueryError, match="nobody can say which"):
        ef.sources.dropped(ef.sources.generator(None, 10, rows=1000, partitions=2), table)
    known = table.filter(pa.compute.or_(pa.compute.is_valid(table["first"]), pa.compute.is_valid(table["arc"])))
    both = pa.concat_tables([known, known])  # Of a long overload the table is taken from time to time.
    assert len(ef.sources.dropped(ef.sources.generator(None, 10, rows=1000, partitions=2), both).spans) == 5


class UndatedReader(GeneratorReader):
    def waiting(self, now_us: int) -> Waiting | None:
        told = super().waiting(now_us)
        return None if told is None else Waiting(told.rows)


class Undated(GeneratorSource):
    """Rows come at a rate, and nobody knows since when one waits: as of a broker."""

    reader = UndatedReader

    @property
    def tells_due(self) -> bool:
        return False


def test_a_source_that_cannot_say_since_when_a_row_is_due_is_never_shed() -> None:
    """Goal: what is never late loses nothing, whatever becomes of others. Method: such a source, whose rows differ in worth, beside
    one that is late."""
    flow, qos = ef.Dataflow("two"), ef.qos(latency=[(f"{PATIENCE_MS} ms", 1), ("1 s", 0)], value=("value", [(0, 0.1), (1000, 1)]))
    for name, rate, make in (("late", 2 * CAN, GeneratorSource), ("calm", CAN // 4, Undated)):
        made = make(rate=rate, rows=int(rate * 0.4), keys=1000, count=SITES, seed=5, begin_us=1_000_000)
        flow.source(made, name=name).select("key", "value").to(ef.sinks.memory(f"{name}s"), name=f"{name}s", qos=qos)
    planned = layout(flow.network, sites=SITES)
    assert [*planned.sheds] == ["late"] and never_late(flow.network) == ("calm",)
    assert "nothing is ever left out of source 'calm'" in never_late_text(flow.network)
    cost = CostModel(row_us=ROW_US, free=frozenset({"egress"}))
    options = FlowOptions(shedding="reflex", heartbeat_ms=50.0)
    world = SimWorld(planned, sites=SITES, cost=cost, options=options, read_rows=200, read_every_us=(500, 1_500), seed=7)
    Checkers(world)
    while not world.ended:
        world.run_for(0.1)
        assert world.now_us < 60_000_000
    assert sum(world.coordinator.ledger.totals().values()) > 1_000 < world.output("lates").num_rows
    assert world.output("calms").num_rows == int(CAN // 4 * 0.4)
