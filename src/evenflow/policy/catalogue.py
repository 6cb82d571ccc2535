"""The policies by name, each with its own parameters and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evenflow.errors import PolicyError
from evenflow.policy.hosting import Hosting
from evenflow.policy.load import measure
from evenflow.policy.memory import hybrid, memory
from evenflow.policy.own import evenflow
from evenflow.policy.proposal import Memory, Parameters, Policy, Proposal
from evenflow.policy.utilization import propose, utilization
from evenflow.statistics.statistics import Statistics

DEFAULT: Final = "evenflow"


def none(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """Nothing ever moves; the rounds only watch."""
    return propose((), measure(statistics, hosting, parameters.segments), statistics, parameters, memory)


@dataclass(frozen=True, slots=True)
class Described:
    """A policy, what it is in a phrase, its source, and the parameters that it is used with."""

    policy: Policy
    title: str
    source: str
    parameters: Parameters


POLICIES: Final[Mapping[str, Described]] = {
    "evenflow": Described(
        evenflow,
        "time and memory, several moves per round, until the gain is within the noise",
        "decision 19, after FL 5.3, 6.4, FT 5.4.2",
        Parameters(th_imb=1.01, th_util=0.99, moves_max=128, relief_us=5_000_000),
    ),
    "utilization": Described(utilization, "time, one move per pair and round", "FL 5.3, FT 4.4.3, 5.1.3", Parameters()),
    "memory": Described(memory, "memory, one move per pair and round", "FL 6.2", Parameters()),
    "hybrid": Described(hybrid, "memory while any site has spilled, else time", "FL 6.4", Parameters()),
    "none": Described(none, "nothing moves", "the papers' static case", Parameters()),
}


def described(name: str) -> Described:
    """Raises PolicyError naming those that there are."""
    if name not in POLICIES:
        raise PolicyError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]
