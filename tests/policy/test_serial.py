"""A hosting from JSON: what is read, and what is said of what is wrong."""

from __future__ import annotations

import json

import pytest

from evenflow.errors import PolicyError
from evenflow.policy.catalogue import POLICIES, described
from evenflow.policy.hosting import Hosting
from evenflow.policy.proposal import Parameters
from evenflow.policy.serial import hosting_from_json


def test_everything_is_read() -> None:
    text = '{"replicas": {"1": [[0, 2], [1]]}, "capacity": {"0": 0.5}, "pinned": [[1, 0]], "hosts": {"0": "a"}, "on_disk": [[2, 1, 0]]}'
    expected = Hosting({(1, 0): (0, 2), (1, 1): (1,)}, {0: 0.5}, frozenset({(1, 0)}), {0: "a"}, frozenset({(2, 1, 0)}))
    assert hosting_from_json(text) == expected


def test_without_capacity_all_that_host_something_may_get_more() -> None:
    assert hosting_from_json('{"replicas": {"1": [[3], [1]]}}').capacity == {1: 1.0, 3: 1.0}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "no JSON"),
        ([], "an object with replicas"),
        ({"capacity": {}}, "an object with replicas"),
        ({"replicas": {}, "colour": 1}, "an object with replicas"),
        ({"replicas": {"x": []}}, "replicas is an object with numbers for keys"),
        ({"replicas": {"1": 3}}, "replicas of segment 1 must be a list"),
        ({"replicas": {"1": [[0], ["1"]]}}, "replicas of segment 1, partition 1 must be a list of whole numbers"),
        ({"replicas": {"1": [[0, 0]]}}, "two replicas on one site"),
        ({"replicas": {}, "capacity": {"0": 2}}, "capacity of site 0"),
        ({"replicas": {}, "capacity": {"0": True}}, "capacity of site 0"),
        ({"replicas": {}, "hosts": {"0": 1}}, "hosts are names"),
        ({"replicas": {}, "pinned": [[1]]}, "each of pinned must be a list of 2 numbers"),
        ({"replicas": {}, "pinned": 1}, "pinned must be a list"),
        ({"replicas": {}, "on_disk": [[1, 2]]}, "each of on_disk must be a list of 3 numbers"),
        ("[" * 100_000, "the hosting is no JSON"),
        ({"replicas": {"1" * 5_000: []}}, "replicas is an object with numbers for keys"),
    ],
)
def test_what_is_wrong_is_said(data: object, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        hosting_from_json(data if isinstance(data, str) else json.dumps(data))


@pytest.mark.parametrize(
    "wrong",
    [
        {"th_imb": 0.9}, {"severe": 0.5}, {"th_util": 0.0}, {"th_util": 1.1}, {"idle": -0.1}, {"delta_min_us": 0}, {"delta_least_us": 0},
        {"delta_most_us": 1}, {"moves_max": 0}, {"hold_rounds": -1}, {"noise_factor": -1.0}, {"payback_us": 0}, {"phase_us": 0},
        {"evidence_us": 0},
        {"move_bytes": -1}, {"th_imb": float("nan")},
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PolicyError):
        Parameters(**wrong)  # type: ignore[arg-type]


def test_an_unknown_policy_names_those_that_there_are() -> None:
    with pytest.raises(PolicyError, match=", ".join(POLICIES)):
        described("fountain")
