"""The flow problem: the paper's example, and what holds for every answer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evenflow.errors import PolicyError
from evenflow.policy.shedding.alternatives import alternative
from evenflow.policy.shedding.flow import Shedding, solve
from evenflow.policy.shedding.network import Arc, FlowNetwork, Output, Source
from evenflow.stream.curve import Curve
from tests.policy.shedding.flows import DEFAULT, figure_6, fork


def solved(network: FlowNetwork, rates: dict[str, float], headroom: float = 0.95) -> Shedding:
    found = solve(network, rates, headroom=headroom)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rates", "loads", "throughput"),
    [
        ((1, 1), (3, 4 / 3), ((1 / 3, 1 / 3), (1 / 4, 1 / 4))),
        ((1 / 3, 1 / 3), (1, 4 / 3), ((1 / 3, 1 / 3), (1 / 4, 1 / 4))),
        ((1, 0), (1, 3), ((1, 0), (1 / 3, 0))),
        ((0, 1 / 2), (1, 1 / 2), ((0, 1 / 2), (0, 1 / 2))),
        ((1 / 5, 2 / 5), (1, 1), ((1 / 5, 2 / 5), (1 / 5, 2 / 5))),
    ],
)
def test_table_1(rates: tuple[float, ...], loads: tuple[float, ...], throughput: tuple[tuple[float, ...], ...]) -> None:
    found = alternative(figure_6(), {"1": rates[0], "2": rates[1]})
    assert tuple(found.loads.values()) == pytest.approx(loads)
    assert [tuple(each.values()) for each in found.throughput.values()] == [pytest.approx(each) for each in throughput]


def test_the_best_plan_of_the_paper() -> None:
    found = solved(figure_6(), {"1": 1, "2": 1}, headroom=1)
    assert found.keeps["1a1"] == pytest.approx((1 / 5,)) and found.keeps["2a2"] == pytest.approx((2 / 5,))
    assert found.how == "plan" and found.worth == pytest.approx(3 / 5) and not found.over


def test_what_fits_is_kept_whole_without_asking_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.policy.shedding.flow._program", None)
    found = solved(fork(), {"s": 1000})
    assert found.how == "all" and set(found.keeps.values()) == {(1.0,)} and found.delivered == {"cheap": 1, "dear": 1}


def test_rows_are_left_out_inside_where_one_reader_alone_is_too_much() -> None:
    """The heavy reader gets less, and the light one all: at the source both would lose."""
    found = solved(fork(), {"s": 4000})
    assert found.keeps["in"] == (1,) and found.keeps["to light"] == (1,)
    assert 0 < found.keeps["to heavy"][0] < 1 and found.loads[1] == pytest.approx(0.95, abs=1e-6)


def test_a_linear_loss_starves_the_dear_output_and_the_default_does_not() -> None:
    assert solved(fork(), {"s": 15_000}).delivered["dear"] < 0.05
    assert solved(fork(loss=DEFAULT), {"s": 8_000}).delivered["dear"] > 0.1


def pair(left: Curve, right: Curve) -> FlowNetwork:
    """Two outputs, each behind a box that could do all of its rows if it were alone."""
    return FlowNetwork(
        {"s": Source(), "t": Source()},
        {"a": {0: 0.01}, "b": {0: 0.01}},
        (Arc("sa", "s", "a"), Arc("tb", "t", "b"), Arc("ao", "a", "left"), Arc("bo", "b", "right")),
        {"left": Output(1, left), "right": Output(1, right)},
        {0: 1.0},
    )


@pytest.mark.parametrize(
    ("short", "whole", "other", "delivered"),
    [
        (((0, 0), (0.5, 1)), ((0, 0), (0.5, 1), (1, 1)), ((0, 0), (1, 1)), (0.5, 0.5)),
        (((0.5, 0), (1, 1)), ((0, 0), (0.5, 0), (1, 1)), ((0, 0), (1, 1.5)), (0, 1)),
    ],
)
def test_a_curve_is_level_where_it_has_no_points(short: object, whole: object, other: object, delivered: tuple[float, ...]) -> None:
    """Goal: a curve and the one that says what it means beyond its ends make one plan, the best one."""
    right = Curve.of(other)  # type: ignore[arg-type]
    found, same = (
        solved(pair(Curve.of(left), right), {"s": 100, "t": 100}, headroom=1)  # type: ignore[arg-type]
        for left in (short, whole)
    )
    assert tuple(found.delivered.values()) == pytest.approx(delivered, abs=1e-6)
    assert found.worth == pytest.approx(1.5) == same.worth
    assert found.delivered == pytest.approx(same.delivered, abs=1e-6)


def test_a_protected_output_is_whole_and_what_it_costs_is_told() -> None:
    found = solved(fork(protected=True), {"s": 1_800})
    assert found.delivered["dear"] == 1 and found.keeps["in"] == (1,) and found.how == "plan"
    much = solved(fork(protected=True), {"s": 4_000})
    assert much.how == "over" and much.delivered["dear"] == 1 and much.over[1] == pytest.approx(2 - 0.95, abs=1e-6)
    assert much.delivered["cheap"] == pytest.approx(0, abs=1e-6)


def test_nothing_is_left_out_before_a_box_that_cannot_miss_a_row() -> None:
    found = solved(fork(drops="none"), {"s": 15_000})
    assert found.keeps["to heavy"] == (1,) and found.keeps["in"][0] < 1


def test_rows_that_are_worth_most_are_kept() -> None:
    network = fork(shares=(0.9, 0.1))
    valued = FlowNetwork(
        network.sources, network.boxes, network.arcs, {**network.outputs, "dear": Output(2, worth=(1.0, 100.0))}, network.capacity
    )
    found = solved(valued, {"s": 15_000})
    low, high = found.keeps["to heavy"]
    assert high == 1 and low < 0.1 and found.delivered["dear"] > 0.9


def test_reading_what_is_dropped_costs_too() -> None:
    reading = FlowNetwork(
        {"s": Source(read_s={0: 5e-5})}, {"b": {0: 1e-4}}, (Arc("in", "s", "b"), Arc("out", "b", "o")), {"o": Output()}, {0: 1.0}
    )
    found = solved(reading, {"s": 10_000})
    assert found.keeps["in"] == pytest.approx(((0.95 - 0.5) / 1.0,), abs=1e-6) and found.loads[0] == pytest.approx(0.95)
    assert solved(reading, {"s": 20_000}).how == "over"


def test_a_curve_that_is_level_at_the_top_loses_no_row_without_need() -> None:
    level = Curve(((0, 0), (0.5, 1), (1, 1)))
    found = solved(fork(loss=level), {"s": 2_100})
    assert found.loads[1] == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize("rates", [{"s": 0.0}, {}])
def test_a_source_without_rows_is_no_trouble(rates: dict[str, float]) -> None:
    assert solved(fork(), rates).how == "all"


def test_a_program_that_takes_too_long_is_no_plan() -> None:
    assert solve(fork(), {"s": 15_000}, limit_s=0.0) is None


def test_numbers_and_arcs_that_cannot_be() -> None:
    with pytest.raises(PolicyError, match="rate of source 's' is nan"):
        solve(fork(), {"s": float("nan")})
    with pytest.raises(PolicyError, match="'t', which is no source"):
        solve(fork(), {"t": 1})
    with pytest.raises(PolicyError, match="there is no 'c' for it"):
        FlowNetwork({"s": Source()}, {"b": {0: 1}}, (Arc("x", "s", "c"),), {}, {0: 1})
    with pytest.raises(PolicyError, match="cycle"):
        FlowNetwork({"s": Source()}, {"b": {0: 1}, "c": {0: 1}}, (Arc("x", "b", "c"), Arc("y", "c", "b")), {}, {0: 1})
    with pytest.raises(PolicyError, match="capacity of site 0 is 0"):
        FlowNetwork({"s": Source()}, {}, (), {}, {0: 0})
    with pytest.raises(PolicyError, match="classes of rows"):
        FlowNetwork({"s": Source((0.5, 0.5))}, {}, (), {"o": Output()}, {0: 1})


@pytest.mark.parametrize("cost", [1e10, 1e200])
def test_numbers_that_are_too_far_apart_are_an_error_and_not_a_plan_that_was_late(cost: float) -> None:
    network = FlowNetwork(
        {"s": Source()}, {"b": {0: cost}}, (Arc("in", "s", "b"), Arc("out", "b", "o")), {"o": Output()}, {0: 1.0}
    )  # fmt: skip
    with pytest.raises(PolicyError, match="units"):
        solve(network, {"s": cost})


def test_a_plan_is_found_where_others_have_used_the_solver_before() -> None:
    """Goal: whoever has used it with other threads, the default included, takes no plan from us. Method: a process of its own, since the
    solver has one scheduler in each."""
    code = "import highspy; h = highspy.Highs(); h.setOptionValue('output_flag', False); h.addVar(0, 1); h.run()\n"
    code += "from evenflow.policy.shedding.highs import Program; print(Program([1.0], [0.0], [1.0]).solved())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[-1] == "[1.]"


def test_no_site_is_over_its_capacity_where_none_need_be() -> None:
    """Goal: what may be left out is left out first, however cheap and dear it is. Method: a protected output takes all there is."""
    network = FlowNetwork(
        {"p": Source(), "s": Source()},
        {"a": {0: 0.0095}, "b": {0: 1e-6}},
        (Arc("pa", "p", "a"), Arc("sb", "s", "b"), Arc("ao", "a", "whole"), Arc("bo", "b", "cheap")),
        {"whole": Output(protected=True), "cheap": Output()},
        {0: 1.0},
    )
    found = solved(network, {"p": 100, "s": 100})
    assert found.how == "plan" and not found.over and found.delivered["whole"] == 1


@pytest.mark.parametrize(
    ("source", "output", "says"),
    [
        (Source(shares=(float("nan"),)), Output(), "share of source 's'"),
        (Source(shares=(-1.0,)), Output(), "share of source 's'"),
        (Source(read_s={7: 1.0}), Output(), "site 7"),
        (Source(read_s={0: -1.0}), Output(), "read_s of source 's'"),
        (Source(), Output(weight=-1.0), "weight of output 'o'"),
        (Source(), Output(worth=(float("inf"),)), "worth of a row of output 'o'"),
    ],
)
def test_sources_and_outputs_are_judged(source: Source, output: Output, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        FlowNetwork({"s": source}, {"b": {0: 1.0}}, (Arc("in", "s", "b"), Arc("out", "b", "o")), {"o": output}, {0: 1.0})
