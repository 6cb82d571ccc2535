"""The number of sites follows the load, in virtual time: sites come when more is offered than those that are there can do, and leave when
it is less, and what comes out is what came in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.events import BEGIN_US, VaryingEvents
from evenflow.policy.scaling import Bounds, Times
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.scaling import SimScaling
from evenflow.world.sim.world import SimWorld

CAN = 100
"""Rows per second that one site can do."""
BOUNDS = Bounds(2, 6)
TIMES = Times(past_s=12.0, calm_s=6.0, start_s=5.0, backlog_s=30.0)
"""A fiftieth of the time that an engine takes."""


LATENCY = [("2 s", 1), ("4 s", 0)]


class Scaled:
    """A keyed count whose source offers what the steps say: (from second, share of what all sites can do)."""

    shedding = "off"

    def __init__(
        self, steps: list[tuple[float, float]], seconds: float, *, sites: int = 2, slots: int = 6, count: int = BOUNDS.most, **given: Any
    ) -> None:
        rates = [(int(at * 1e6), max(1, int(share * BOUNDS.most * CAN))) for at, share in steps]
        self.source = VaryingEvents(1, 1 << 40, 512, count=count, steps=tuple(rates))
        self.rows = self.source.due(BEGIN_US + int(seconds * 1e6))
        source = VaryingEvents(1, self.rows, 512, count=count, steps=tuple(rates))
        flow = ef.Dataflow("scaled")
        self.draw(flow.source(source, name="in"))
        planned = layout(flow.network, sites=BOUNDS.most, partitions=24)
        cost = CostModel(row_us=1e6 / CAN, free=frozenset({"ingress", "egress"}))
        options = FlowOptions(heartbeat_ms=250.0, linger_ms=250.0, epoch_rows=16, shedding=self.shedding)
        settled = {"sites": sites, "cost": cost, "options": options, "read_rows": 2_000, "read_every_us": (2_000, 6_000), "seed": 3} | given
        self.world = SimWorld(planned, **settled)
        Checkers(self.world)
        self.scaling = SimScaling(self.world, BOUNDS, TIMES, start_us=3_000_000, slots=slots)
        self.ages_ms: list[tuple[float, float]] = []
        self.sites: list[tuple[float, int]] = []

    def draw(self, rows: Any) -> None:
        """What comes out, and where."""
        counted = rows.group_by("key").agg(n="count(*)", ts="max(ts)", combine=False).name("counts")
        counted.to(ef.sinks.memory("out"), name="out")

    def finish(self) -> Scaled:
        seen = 0
        while not self.world.ended:
            self.world.run_for(0.1)
            assert self.world.now_us < 600_000_000
            released = self.world.released["out"]
            ages = [
                (self.world.now_us - int(np.max(batch.column("ts").cast(pa.int64()).to_numpy()))) / 1e3
                for _, batch in released[seen:] if batch.num_rows
            ]  # fmt: skip
            seen = len(released)
            now_s = (self.world.now_us - BEGIN_US) / 1e6
            self.ages_ms += [(now_s, age) for age in ages]
            self.sites.append((now_s, self.hosts()))
        if self.world.error is not None:
            raise self.world.error
        return self

    def hosts(self) -> int:
        return len(self.world.coordinator.view.active())

    def counted(self) -> int:
        """Rows, by the last answer of each key."""
        table = self.world.output("out")
        newest: dict[int, int] = {}
        for key, n in zip(table["key"].to_pylist(), table["n"].to_pylist(), strict=True):
            newest[key] = max(n, newest.get(key, 0))
        return sum(newest.values())

    def oldest_ms(self, from_s: float, to_s: float) -> float:
        return max(age for at, age in self.ages_ms if from_s <= at < to_s)

    def kinds(self) -> list[str]:
        return [str(event.kind) for _, event in self.world.happened]


def test_every_row_that_is_due_is_offered_however_busy_its_site_is() -> None:
    """Goal: one look is enough to know what comes. Rows that a reader had given and whose site was busy were in no window, and a look saw
    five sixths or ten ninths of what came, so half of all runs took a step too much. Method: looks at twice what can be done, before the
    first decision."""
    scaled = Scaled([(0, 0.67)], 3)
    world, behind, due = scaled.world, 0, 0
    for look in range(6):
        world.run_for(0.15)
        windows = [each for site in world.collect().sites for each in site.sources]
        before, due, behind = due, scaled.source.due(world.now_us), sum(each.behind or 0 for each in windows)
        if look:  # What is behind at the first one may have come before.
            assert sum(each.offered for each in windows) == due - before
    assert behind > 0, "more is due than was taken"


@pytest.mark.timeout(120)
@pytest.mark.conformance
def test_sites_follow_a_load_that_rises_and_falls() -> None:
    """Goal: three times the load and back is one change each way; nothing is lost, and answers are soon in time again."""
    scaled = Scaled([(0, 0.22), (5, 0.55), (22, 0.2)], 50, seed=6).finish()
    changes = [(round(at / 1e6 - 1), sites) for at, sites, _ in scaled.scaling.wanted]
    assert [sites for _, sites in changes] == [5, 2], scaled.scaling.wanted
    assert changes[0][0] <= 10 and 38 <= changes[1][0] <= 48
    assert scaled.counted() == scaled.rows
    assert scaled.sites[-1][1] == 2 and max(sites for _, sites in scaled.sites) == 5
    assert scaled.oldest_ms(1, 5) < 1200, "calm before"
    assert scaled.oldest_ms(30, 38) < 1200, "what waited is done"
    assert "move_dropped" not in scaled.kinds() and scaled.kinds().count("site_left") == 3


@pytest.mark.conformance
@pytest.mark.timeout(240)
def test_a_sine_changes_nothing() -> None:
    """Thirty percent to and fro, each period a third of what is remembered: the sites of the first peak stay."""
    steps = [(at / 2, 0.45 * (1 + 0.3 * math.sin(2 * math.pi * at / 14))) for at in range(120)]
    scaled = Scaled(steps, 60, sites=4).finish()
    assert len(scaled.scaling.wanted) <= 1 and not [at for at, *_ in scaled.scaling.wanted if at > 10_000_000], scaled.scaling.wanted
    assert scaled.counted() == scaled.rows


class Shed(Scaled):
    """Two outputs that each cost half of a row, of which one is worth a fifth of the other: a plan leaves rows out between."""

    shedding = "lp"

    def draw(self, rows: Any) -> None:
        rows = rows.select("key", "value", "ts")
        for name, weight in (("out", 1.0), ("cheap", 0.2)):
            qos = ef.qos(latency=LATENCY, weight=weight)
            rows.repartition().select("key", "value", "ts").to(ef.sinks.memory(name), name=name, qos=qos)


def test_rows_are_left_out_by_plan_until_the_sites_are_there() -> None:
    """Goal: who is called because there is too much gets his part although rows are left out: that is why he has come. Else a plan went on
    leaving out what idle sites could do, for as long as the load lasted. Method: a third more than two sites can do, from the beginning
    on; a plan leaves out rows of the cheap output."""
    cost = CostModel(row_us=0.5e6 / CAN, free=frozenset({"ingress", "egress"}))
    scaled = Shed([(0, 0.45)], 12, cost=cost)
    world = scaled.world
    while scaled.hosts() < 4:
        world.run_for(0.1)
        assert world.now_us < 10_000_000, (scaled.hosts(), scaled.scaling.wanted)
    assert any("the plan keeps" in event.text for _, event in world.happened if event.kind == "round")
    while any(world.coordinator.plan.settings.keeps):
        world.run_for(0.1)
        assert world.now_us < 12_000_000
    late = {name: world.output(name).num_rows for name in ("out", "cheap")}
    scaled.finish()
    dear, cheap = (world.output(name).num_rows - rows for name, rows in late.items())
    assert dear - CAN / 2 < cheap <= dear, "nothing is left out any more, but of epochs that were open"
    assert len(scaled.scaling.wanted) == 1


class Narrow(Scaled):
    """A source of one partition, which a site can read so fast and no faster: the others have nothing to do."""

    shedding = "reflex"

    def draw(self, rows: Any) -> None:
        rows.select("key", "value", "ts").to(ef.sinks.memory("out"), name="out", qos=ef.qos(latency=LATENCY))


def test_nobody_leaves_while_rows_are_left_out() -> None:
    """Goal: sites leave when all that comes is done, and not a moment before (R3): fewer would do as well of what is too much for any of
    them. Method: twice what one site can read, of one partition, of four sites; then a tenth."""
    over_s = 16.0
    narrow = Narrow([(0, 2 / BOUNDS.most), (over_s, 0.1 / BOUNDS.most)], 40, sites=4, count=1, cost=CostModel(row_us=1e6 / CAN))
    dropped: dict[int, int] = {}
    while not narrow.world.ended:
        narrow.world.run_for(0.5)
        assert narrow.world.now_us < 60_000_000
        ledger = narrow.world.coordinator.ledger
        dropped[narrow.world.now_us] = sum(ledger.totals().values())
        narrow.sites.append(((narrow.world.now_us - BEGIN_US) / 1e6, narrow.hosts()))
    assert narrow.world.error is None
    last_us = min(at for at, rows in dropped.items() if rows == max(dropped.values()))
    removed = [at for at, sites, _ in narrow.scaling.wanted if sites < 4]
    assert max(dropped.values()) > 0.5 * CAN * over_s and last_us > over_s * 1e6
    assert removed and min(removed) > last_us, (removed, last_us)


def test_without_room_it_goes_on_with_what_there_is_and_says_so() -> None:
    scaled = Scaled([(0, 0.22), (3, 0.5)], 9, slots=3).finish()
    assert scaled.counted() == scaled.rows and max(sites for _, sites in scaled.sites) == 3
    assert "there is room for 3" in scaled.scaling.waits
    assert scaled.scaling.overloaded == [], "those that are missing would be enough"


def test_where_even_the_most_sites_are_too_few_that_is_said_once() -> None:
    """Goal: who watches learns that nothing is left to be done here: more sites may not be, and what is over waits."""
    scaled = Scaled([(0, 0.22), (3, 1.6)], 14)
    scaled.world.run_for(14)
    [text] = scaled.scaling.overloaded
    assert "6 sites, the most that there may be" in text and int(text.partition("%")[0].rpartition(" ")[2]) > 120


@pytest.mark.conformance
def test_nobody_is_called_for_while_a_lost_site_is_still_missing() -> None:
    """Goal: a death while sites come neither stops the run nor brings more than there may be."""
    scaled = Scaled([(0, 0.22), (3, 0.6)], 14, replicas=2)
    scaled.world.run_for(8.5)
    scaled.world.kill(1)
    scaled.finish()
    assert scaled.counted() == scaled.rows and "site_lost" in scaled.kinds()
    assert max(sites for _, sites in scaled.sites) <= BOUNDS.most
