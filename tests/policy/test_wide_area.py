"""Replicas at distant sites: the thesis' figure 5.2 by hand, and laws that hold for any network and query."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.errors import PolicyError
from evenflow.policy.wide_area.deploy import deploy
from evenflow.policy.wide_area.discard import discard, discards, utilities
from evenflow.policy.wide_area.legs import Arrow, Deployment, Leg, Replica, cost, legs_of, weighed
from evenflow.policy.wide_area.revive import revive
from evenflow.stream.arrays import Floats

LINE = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0))) * 10
"""Five sites on a line, 10 ms from one to the next."""
CHAIN: dict[Arrow, float] = {("source", "union"): 2.0, ("union", "app"): 1.0}
FIGURE: dict[Arrow, float] = {
    ("e1", "u1"): 1.0, ("e2", "u1"): 1.0, ("e2", "u2"): 1.0, ("e3", "u2"): 1.0,
    ("u1", "join"): 2.0, ("u2", "join"): 2.0, ("join", "filter"): 1.0, ("filter", "app"): 1.0,
}  # fmt: skip
"""HW figure 5.2, with one application."""
OPS = ("u1", "u2", "join", "filter")


def chain(k_max: int, d_min: float = 0.0, **changed: object) -> Deployment:
    asked = {"sites": (1.0,) * 5, "load": {"union": 0.1}, "alpha": 0.9, "pinned": {"source": 0, "app": 4}}
    return deploy(["union"], latency=LINE, rate=CHAIN, k_max=k_max, d_min=d_min, **{**asked, **changed})  # type: ignore[arg-type]


def figure(k: int, latency: Floats | None = None) -> Deployment:
    at = {"e1": (0,), "e2": (1,), "e3": (2,), "app": (4,)}
    return at | {op: tuple(range(k)) for op in OPS}


def test_a_replica_lies_where_it_adds_least_to_rate_times_latency() -> None:
    assert chain(1)["union"] == (0,), "two rows in for each row out, so it is with the source"
    assert chain(3)["union"] == (0, 1, 2)


def test_peers_are_apart_and_busy_sites_are_left_alone() -> None:
    assert chain(3, d_min=15.0)["union"] == (0, 2, 4)
    assert chain(3, d_min=30.0)["union"] == (0, 4), "no site is left for a third"
    assert chain(2, sites=(0.1, 1.0, 1.0, 1.0, 1.0))["union"] == (1, 2)


def test_first_replicas_can_be_given() -> None:
    assert chain(2, first={"union": 3})["union"] == (3, 0)


def test_first_replicas_go_on_to_where_they_cost_less() -> None:
    """Placed one after the other the first follows its source; the second, with the weight of the application, draws it away."""
    rate = {("source", "a"): 1.0, ("a", "b"): 3.0, ("b", "app"): 2.0}
    placed = deploy(["a", "b"], (1.0,) * 5, LINE, rate, {"a": 0.1, "b": 0.1}, 1, 0.9, 0.0, pinned={"source": 0, "app": 4})
    assert cost(legs_of(placed, rate, LINE)) == 40.0, "all on one site, wherever: 1 row/s for the whole way"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"k_max": 0}, "at least one"),
        ({"sites": (1.0,)}, "1 x 1"),
        ({"pinned": {"source": 0}}, "names app"),
        ({"load": {}}, "the load of union"),
        ({"alpha": 0.0}, "no site has room for union"),
    ],
)
def test_what_cannot_be_deployed_is_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        chain(**{"k_max": 1, **changed})  # type: ignore[arg-type]


def test_arrows_of_what_is_not_deployed_are_refused() -> None:
    with pytest.raises(PolicyError, match="union is nowhere"):
        legs_of({"source": (0,), "app": (4,)}, CHAIN, LINE)


def test_k_replicas_have_k_squared_legs_between_them() -> None:
    for k in (1, 2, 3):
        legs = legs_of(figure(k), FIGURE, LINE)
        assert len(legs) == 4 * k + 3 * k * k + k


def test_the_first_leg_is_worth_one_the_second_a_half() -> None:
    one, two, three = (Replica("u", at) for at in range(3))
    join = Replica("join", 4)
    legs = [Leg(each, join, 1.0, 0.0) for each in (one, two, three)]
    assert [leg.weight for leg in weighed(legs, {(one, join): 30.0, (two, join): 10.0, (three, join): 20.0})] == [1 / 3, 1.0, 0.5]
    assert [leg.weight for leg in weighed(legs, {(one, join): 10.0, (two, join): 10.0})] == [1.0, 1.0, 0.0]


def test_utility_flows_back_from_applications() -> None:
    """HW 5.4.2: an input's legs share the utility of their consumer, and a replica has that of its outputs."""
    source, one, two = Replica("s", 0), Replica("u", 0), Replica("u", 1)
    apps = Replica("a", 2), Replica("b", 3)
    ins = [Leg(source, one, 1.0), Leg(source, two, 1.0)]
    outs = [Leg(one, apps[0], 1.0, 1.0), Leg(two, apps[0], 1.0, 0.5), Leg(one, apps[1], 1.0, 0.25), Leg(two, apps[1], 1.0, 0.75)]
    found = utilities([*ins, *outs])
    assert [found[leg] for leg in outs] == pytest.approx([2 / 3, 1 / 3, 1 / 4, 3 / 4])
    assert [found[leg] for leg in ins] == pytest.approx([2 / 3 + 1 / 4, 1 / 3 + 3 / 4])


def test_a_replica_goes_with_its_last_output() -> None:
    """u at 1 feeds one consumer only: without that leg nobody needs what u hears."""
    source, app = Replica("s", 0), Replica("app", 4)
    near, far = Replica("u", 0), Replica("u", 1)
    legs = [Leg(source, near, 1.0), Leg(source, far, 50.0), Leg(near, app, 1.0), Leg(far, app, 2.0, 0.1)]
    assert set(discard(legs, 10.0, 1)) == {legs[1], legs[3]}
    assert discard(legs, 10.0, 2) == (), "two replicas are to survive"
    assert discard(legs, 54.0, 1) == (), "the cost is the target's"
    with pytest.raises(PolicyError, match="k_min is 0"):
        discard(legs, 1.0, 0)


def test_a_replica_goes_with_any_of_its_inputs() -> None:
    """A union that does not hear one of its sources has no results, so all that feeds it goes too."""
    legs = legs_of(figure(2), FIGURE, LINE)
    groups = list(discards(legs, 1))
    whole = [group for group in groups if any(leg.consumer.name == "u1" and leg.producer.name == "e1" for leg in group)]
    assert len(whole) == 1
    assert {("e1", "u1"), ("e2", "u1")} <= {leg.arrow for leg in whole[0]}


def test_a_late_input_takes_up_the_cheapest_leg_from_a_replica_that_works() -> None:
    join, one, two, three = Replica("join", 0), Replica("u", 1), Replica("u", 2), Replica("u", 3)
    gone = [Leg(two, join, 5.0), Leg(three, join, 4.0)]
    late = {("u", join): 900.0}
    assert revive(late, 500.0, discarded=gone, running=[one, two, three, join]) == (gone[1],)
    assert revive({**late, ("e", three): inf}, 500.0, discarded=gone, running=[one, two, three, join]) == (gone[0],)
    assert revive({("u", join): 500.0}, 500.0, discarded=gone, running=[one, two, three, join]) == ()
    assert revive(late, 500.0, discarded=[], running=[one]) == ()


def test_a_replica_that_was_given_up_comes_back_with_its_inputs() -> None:
    join, source, gone_u = Replica("join", 0), Replica("e", 1), Replica("u", 3)
    legs = [Leg(gone_u, join, 4.0), Leg(source, gone_u, 1.0), Leg(Replica("e2", 2), gone_u, 1.0)]
    late = {("u", join): 900.0}
    assert revive(late, 500.0, discarded=legs, running=[source, Replica("e2", 2), join]) == tuple(legs)
    assert revive(late, 500.0, discarded=legs, running=[source, join]) == (), "without one of its inputs it has no results"


networks = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed).uniform(1, 200, (8, 8)))


@settings(max_examples=25, deadline=None)
@given(networks, st.integers(1, 4), st.sampled_from([0.0, 30.0, 80.0]))
def test_never_more_replicas_than_asked_never_near_never_beyond_room(latency: Floats, k_max: int, d_min: float) -> None:
    np.fill_diagonal(latency, 0.0)
    pinned = {"e1": 0, "e2": 1, "e3": 2, "app": 3}
    found = deploy(OPS, (1.0,) * 8, latency, FIGURE, dict.fromkeys(OPS, 0.3), k_max, 0.95, d_min, pinned=pinned)
    assert found == deploy(OPS, (1.0,) * 8, latency, FIGURE, dict.fromkeys(OPS, 0.3), k_max, 0.95, d_min, pinned=pinned)
    for op in OPS:
        assert 1 <= len(found[op]) <= k_max and len(set(found[op])) == len(found[op])
        assert all(latency[one, other] > d_min for one in found[op] for other in found[op] if one != other)
    assert all(sum(0.3 for op in OPS if site in found[op]) < 0.95 for site in range(8))
    fewer = deploy(OPS, (1.0,) * 8, latency, FIGURE, dict.fromkeys(OPS, 0.3), max(1, k_max - 1), 0.95, d_min, pinned=pinned)
    assert all(found[op][: len(fewer[op])] == fewer[op] for op in OPS), "one more phase leaves the replicas before it where they are"


@settings(max_examples=25, deadline=None)
@given(networks, st.integers(1, 4), st.integers(1, 2), st.integers(0, 10_000))
def test_discarding_never_costs_and_leaves_every_replica_whole(latency: Floats, k: int, k_min: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    legs = [Leg(leg.producer, leg.consumer, leg.cost, float(random.uniform())) for leg in legs_of(figure(k), FIGURE, latency)]
    left = dict.fromkeys(legs)
    spent = [cost(legs)]
    for group in discards(legs, k_min):
        for leg in group:
            del left[leg]
        spent.append(cost(list(left)))
        for op in OPS:
            running = {leg.producer for leg in left if leg.producer.name == op}
            assert len(running) >= min(k, k_min)
            for replica in running:
                assert {leg.arrow for leg in left if leg.consumer == replica} == {arrow for arrow in FIGURE if arrow[1] == op}
        assert {leg.arrow for leg in left} == set(FIGURE), "sources are heard and the application hears"
    assert all(later < earlier for earlier, later in pairwise(spent))
    assert len(left) >= len(FIGURE) * k_min if k >= k_min else True
    half = discard(legs, spent[0] / 2, k_min)
    assert cost([leg for leg in legs if leg not in half]) <= max(spent[0] / 2, spent[-1] + 1e-9)
