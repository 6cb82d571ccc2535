"""A run is balanced, pinned and asked for its moves by hand: rounds of the policy on a run of the simulator."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.policy.windows import segment
from tests.sim.test_scenarios import Stage

from evenflow.errors import ClusterError, OperationRefused
from evenflow.query.planner import layout
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow
from evenflow.swarm.draw import EVERY_CASE
from evenflow.world.spark.driver import run as run_module
from evenflow.world.spark.driver.run import Run

WINDOW_US = 1_000_000


class Over:
    """Whoever waits for the run's end lets time pass in the simulator."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def wait(self, timeout_s: float) -> None:
        self.stage.world.run_for(0.002)

    def is_set(self) -> bool:
        return bool(self.stage.machine.over)


class Driven:
    """The run as the driver has it, and its numbers; a site's load is its share of the keyed partitions. silent: says nothing."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.machine, self.layout, self.run_id, self.over = stage, stage.machine, stage.world.layout, "run-1", Over(stage)
        self.silent: set[int] = set()
        self.collected = self.requests = 0
        self.located, self.store_url = False, None
        self.numbers = self

    def handle(self, event: Any) -> None:
        self.stage.world.driver.coordinate(event)

    def request(self, make: Any) -> int:
        self.requests += 1
        self.handle(make(self.requests))
        return self.requests

    def answer(self, request: int) -> Any:
        return self.stage.world.answers.pop(request, None)

    def events(self) -> list[dict[str, Any]]:
        extra = {"seconds": 0.5, "stall_ms": 4.0}
        happened = self.stage.world.happened
        return [{"kind": e.kind, "at_s": 0.0, "text": e.text, **e.details} | (extra if e.kind == "move_done" else {}) for _, e in happened]

    def statistics_since(self, seen: int) -> tuple[Statistics, int]:
        if not seen:
            self.collected += 1
        windows = []
        for site in self.machine.sites:
            mine = {p: 10_000 for p in range(16) if site in self.machine.membership.live(self.machine.plan, 1, p)}
            busy_us = 50_000 * len(mine) + 1_000
            if site not in self.silent:
                segments = (segment(mine, busy_us),) if mine else ()
                windows.append(SiteWindow(site, 0, WINDOW_US, busy_us, None, 0, 0, segments))
        return Statistics.of(windows), 1


class Caller:
    def ask(self, call: Any) -> Any:
        return call()


def handle(monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[Run, Driven]:
    for name in ("COLLECT_S", "REPORTED_S"):
        monkeypatch.setattr(run_module, name, 0.0 if name == "COLLECT_S" else 0.2)
    stage = Stage(sites=4, replicas=1, **given)
    stage.world.run_for(0.02)
    driven = Driven(stage)
    return Run(SimpleNamespace(newest=driven, over=driven.over), Caller(), partial(layout, sites=4, partitions=16)), driven  # type: ignore[arg-type]


def keyed(driven: Driven) -> Counter[int]:
    machine = driven.machine
    return Counter(machine.membership.live(machine.plan, 1, p)[0] for p in range(16))


def test_new_sites_get_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: more sites are of use at once. Method: one comes, and load is balanced by hand, though no policy balances by itself."""
    run, driven = handle(monkeypatch)
    driven.stage.world.add_site()
    driven.stage.wait(lambda: 4 in driven.machine.sites, "the newcomer")
    assert keyed(driven)[4] == 0
    moves = run.rebalance()
    assert keyed(driven)[4] >= 3 and max(keyed(driven).values()) <= 4
    assert moves == sum(event.get("moves", 0) for event in driven.events()) > 1, "one round gives a new site one partition only"
    assert driven.collected > 2, "each round has statistics of its own"
    assert {move["state"] for move in run.moves()} == {"done"}
    assert run.rebalance() == 0
    driven.stage.finish()


def test_a_site_that_is_silent_is_waited_for_a_while_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run, driven = handle(monkeypatch)
    driven.stage.world.add_site()
    driven.stage.wait(lambda: 4 in driven.machine.sites, "the newcomer")
    driven.silent = {4}
    run.rebalance()
    assert keyed(driven)[4] == 0
    driven.silent = {0, 1, 2, 3, 4}
    with pytest.raises(OperationRefused, match="no site has reported what it does in run run-1"):
        run.rebalance()
    driven.stage.finish()


def test_no_round_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    run, driven = handle(monkeypatch)
    driven.stage.world.add_site()
    driven.stage.wait(lambda: 4 in driven.machine.sites, "the newcomer")
    assert run.rebalance(timeout_s=0.0) == 1 == [event["kind"] for event in driven.events()].count("round")
    driven.stage.finish()


def test_a_box_is_pinned_by_hand_and_no_round_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run, driven = handle(monkeypatch)
    name = driven.layout.segments[1].name
    before = keyed(driven)
    assert run.pin(name) == 0
    driven.stage.world.add_site()
    driven.stage.wait(lambda: 4 in driven.machine.sites, "the newcomer")
    assert run.rebalance() == 0 and keyed(driven) == before
    assert run.pin(name, sites=[4], partitions=[0, 1]) > 0
    driven.stage.wait(lambda: keyed(driven)[4] == 2, "the pinned partitions")
    with pytest.raises(OperationRefused, match="there is no site 9"):
        run.pin(name, sites=[9])
    with pytest.raises(OperationRefused, match="has no box 'nowhere'"):
        run.unpin("nowhere")
    run.unpin(name)
    assert driven.machine.view.load()[4] == 2 and run.rebalance() > 0
    driven.stage.finish()


def test_a_box_is_divided_anew_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who asks waits until it is so, and hears why not. Method: fewer partitions, then too many, then none arrives, then no time."""
    run, driven = handle(monkeypatch)
    name = driven.layout.segments[1].name
    assert run.repartition(name, 4) == 16 and driven.machine.repartitioning.count(1) == 4
    assert run.repartition(name, 4) == 4, "it is so already"
    with pytest.raises(OperationRefused, match="16 partitions at most, not 17"):
        run.repartition(name, 17)
    driven.stage.world.transfer_fates.extend(["corrupt"] * 1_000)
    with pytest.raises(OperationRefused, match="cannot be divided into 1 partitions: .* do not come to the same sites"):
        run.repartition(name, 1)
    with pytest.raises(ClusterError, match="was not divided into 1 partitions within 0 s, and stays as it is"):
        run.repartition(name, 1, timeout_s=0.0)
    driven.stage.world.transfer_fates.clear()
    driven.stage.world.run_for(0.2)
    assert driven.machine.repartitioning.count(1) == 4
    driven.stage.finish()


def test_a_run_goes_on_as_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who asks hears from which epoch on. Method: the same flow with processors that are built anew, then one that is another flow,
    then no time."""
    run, driven = handle(monkeypatch, case="boxes")
    again, other = EVERY_CASE["boxes"](Random(1), 400).flow, EVERY_CASE["running"](Random(1), 400).flow
    found = run.replace(again)
    assert found["version"] == 1 and found["boxes"] and found["epoch"] == driven.machine.plan.effective
    with pytest.raises(OperationRefused, match="this is no version of what runs"):
        run.replace(other)
    with pytest.raises(ClusterError, match="version 2 could not begin within 0 s, and is not wanted any more"):
        run.replace(EVERY_CASE["boxes"](Random(1), 400).flow, timeout_s=0.0)
    assert run.replace(EVERY_CASE["boxes"](Random(1), 400).flow)["version"] == 3
    driven.stage.finish()


def test_a_run_that_is_over_is_not_operated(monkeypatch: pytest.MonkeyPatch) -> None:
    run, driven = handle(monkeypatch)
    driven.stage.finish()
    for ask in (run.rebalance, lambda: run.pin("x"), lambda: run.unpin("x"), lambda: run.repartition("x", 2)):
        with pytest.raises(OperationRefused, match="run run-1 has ended"):
            ask()
