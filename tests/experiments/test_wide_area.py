"""Replicas at distant sites: delays, the arithmetic of arrivals against events hop by hop, and the ways of being reliable."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.experiments.harness.arrivals import Flow, Hedge, carried, held, surveyed, weighed
from evenflow.experiments.harness.distant_sites import DAY, STEP_S, Trace
from evenflow.experiments.harness.replica_price import OPERATORS, WIDTH_MS, _rows, cpu_us, operator
from evenflow.experiments.harness.wide_query import Month, min_cost, query, randomly, worst_difference_s
from evenflow.experiments.papers import wide_area, wide_area_failure
from evenflow.kernels.hash import hash_columns
from evenflow.policy.wide_area.legs import Leg, Replica
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

TRACE = Trace.drawn(1, 400)
SOURCE, NEAR, FAR, APP = Replica("source", 0), Replica("union", 1), Replica("union", 2), Replica("app", 3)


def even(delays_s: dict[tuple[int, int], list[float]], epochs: int) -> Trace:
    """Four sites; the delays said, by step, and else 10 ms."""
    trace = Trace(0, epochs, np.zeros((4, 4)), np.zeros(4, np.int64), np.zeros((4, 4)))
    for a in range(4):
        for b in range(4):
            trace._kept[a, b] = np.array(delays_s.get((a, b), [0.01] * epochs), np.float32)
    return trace


def test_delays_are_always_the_same_and_never_below_the_way() -> None:
    again = Trace.drawn(1, 400)
    for a, b in ((0, 29), (29, 0), (3, 11)):
        assert (TRACE.delays_s(a, b) == again.delays_s(a, b)).all()
        assert (TRACE.delays_s(a, b) >= np.float32(TRACE.base_ms[a, b] / 1000)).all()
    assert not TRACE.delays_s(4, 4).any() and np.allclose(TRACE.base_ms, TRACE.base_ms.T)


def test_what_is_sent_while_a_path_is_cut_arrives_when_it_is_whole() -> None:
    """On the worst of all paths over ten days: delays of a cut fall by ten seconds a step."""
    trace = Trace.drawn(2, 10 * DAY)
    a, b = np.unravel_index(int(trace.trouble.argmax()), trace.trouble.shape)
    delays = trace.delays_s(int(a), int(b))
    long = np.flatnonzero(delays > 35)
    assert long.size and np.allclose(delays[long] - delays[long + 1], STEP_S, atol=0.01)


def test_a_leg_delivers_in_order_and_never_what_was_never_sent() -> None:
    found = carried(np.array([0.0, 10.0, 20.0, np.inf]), np.array([25.0, 1.0, 1.0], np.float32))
    assert found.tolist() == [25.0, 25.0, 25.0, np.inf]


def test_a_spell_lasts_so_many_epochs_behind_its_last_reason() -> None:
    late = np.array([0, 1, 0, 0, 1, 0, 0, 0, 0], bool)
    assert held(late, 2).tolist() == [False, True, True, True, True, True, True, False, False]


@pytest.mark.parametrize("k", [1, 3])
def test_the_arithmetic_is_what_events_hop_by_hop_are(k: int) -> None:
    month = Month(TRACE, query(TRACE.sites, np.random.default_rng(5)), TRACE.base_ms, {}, np.arange(400) * STEP_S)
    legs = month.legs(randomly(month.asked, TRACE.base_ms, k, np.random.default_rng(k)))
    assert worst_difference_s(month, legs, 150, 30) < 1e-9


def test_what_all_sources_have_sent_is_surveyed_once() -> None:
    due = np.arange(400) * STEP_S
    latency_ms, gathered = surveyed(TRACE, due, 100)
    one = Flow(TRACE, due, [Leg(Replica(f"s{site}", site), Replica("union", 7), 1.0) for site in range(TRACE.sites)])
    assert (one.ready(Replica("union", 7)) == gathered[7]).all()
    assert latency_ms[3, 7] == pytest.approx(1000 * TRACE.delays_s(3, 7)[:100].mean())


def test_a_leg_that_was_left_out_is_asked_and_stays() -> None:
    """The way from the near replica is cut from the third epoch to the sixth; the far one is asked half a second behind the third."""
    cut = [0.01, 0.01, 40.01, 30.01, 20.01, 10.01, 0.01, 0.01, 0.01]
    trace = even({(1, 3): cut, (2, 3): [0.2] * 9, (3, 2): [0.2] * 9}, 9)
    due = np.arange(9) * 10.0
    live = [Leg(SOURCE, NEAR, 1.0), Leg(SOURCE, FAR, 1.0), Leg(NEAR, APP, 1.0)]
    spare = Leg(FAR, APP, 5.0)
    flow = Flow(trace, due, live, [spare], Hedge({("union", APP): 0.5}, held=3))
    late = flow.ready(APP) - due
    assert late == pytest.approx([0.02, 0.02, 0.9, 0.21, 0.21, 0.21, 0.02, 0.02, 0.02], abs=1e-6)
    assert flow.share[spare] == pytest.approx(7 / 9), "four late ones and three behind them"
    without = Flow(trace, due, live, [spare])
    assert (without.ready(APP) - due)[2] == pytest.approx(40.02), "nobody asks without a hedge"


def test_the_first_leg_weighs_most() -> None:
    trace = even({(2, 3): [0.2] * 5}, 5)
    legs = [Leg(SOURCE, NEAR, 1.0), Leg(SOURCE, FAR, 1.0), Leg(NEAR, APP, 1.0), Leg(FAR, APP, 1.0)]
    flow = Flow(trace, np.arange(5) * 10.0, legs, watched=True)
    flow.ready(APP)
    assert {leg.producer: leg.weight for leg in weighed(flow) if leg.consumer == APP} == {NEAR: 1.0, FAR: 0.5}


def test_replication_misses_nothing_and_waits_for_nobody() -> None:
    late = wide_area_failure.latencies_s(Trace.drawn(3, 240).calm())
    found = wide_area_failure.figures(late)
    assert found["missing_none"] == 120 and found["missing_race"] == 0 == found["missing_synchronized"]
    assert found["race_by_synchronized"] < 1 and found["race_by_deterministic"] < 1
    assert found["latency_synchronized_max_ms"] > 250, "somebody has to notice the death"
    dies = int(wide_area_failure.DIES_S / wide_area_failure.WIDTH_S)
    assert late["synchronized"][dies + 4 :].mean() < late["synchronized"][: dies - 4].mean(), "without a partner nothing is acknowledged"


def test_least_cost_is_no_dearer_than_chance_and_keeps_peers_apart() -> None:
    asked = query(TRACE.sites, np.random.default_rng(5))
    month = Month(TRACE, asked, TRACE.base_ms, {}, np.arange(400) * STEP_S)
    least = month.legs(min_cost(asked, TRACE.base_ms, 3))
    chance = month.legs(randomly(asked, TRACE.base_ms, 3, np.random.default_rng(1)))
    assert sum(leg.cost for leg in least) < sum(leg.cost for leg in chance)
    assert month.rows_per_s(least) == month.rows_per_s(chance)


def test_a_month_without_any_target_that_is_not_told_of() -> None:
    targets = {name for k in (2, 3) for name in (f"bandwidth_min_{k}", f"revived_by_discarded_{k}")}
    found = wide_area.Found(1, discarded={2: None, 3: None})  # type: ignore[dict-item]
    assert targets <= wide_area.targets(found).keys()


@pytest.mark.parametrize(("name", "rows"), [("union", 2 * WIDTH_MS), ("filter", WIDTH_MS), ("aggregate", WIDTH_MS), ("join", WIDTH_MS)])
def test_a_priced_operator_puts_out_a_row_a_millisecond(name: str, rows: int) -> None:
    priced = operator(name)
    for epoch in range(1, 6):
        batch, edge = _rows(epoch), epoch * WIDTH_MS * 1000
        side = Rows(batch, np.zeros(batch.num_rows, np.int32), hash_columns(batch, ["k"]))
        tick = Tick(epoch, edge, NO_WATERMARK if epoch == 1 else edge - WIDTH_MS * 1000, edge)
        found = priced.process([side] * priced.sides, tick)
    assert found.num_rows == rows


@pytest.mark.parametrize("name", OPERATORS)
def test_legs_that_are_late_are_dropped_whatever_they_feed(name: str) -> None:
    assert cpu_us(name, 3, 8) > 0
