"""Planted bugs of amnesia (availability.md, B4). Seeds find these, and scenarios (tests/sim/test_amnesia.py,
tests/site/test_leading.py)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation
from evenflow.swarm.traits import amnesia

WORD: Final = Mutation("word of where a source stands is its record", "site.leading:_witness", "NO_TERM", "FIRST_TERM")
"""Links must carry that word before a site has asked for records, which few seeds do."""
AMNESIA: Final = (
    Mutation(
        "who asks for frames hears of no source",
        "site.leading:Leading.bear_witness_to",
        "if log.done]:",
        "if not log.done]:",
        needs=amnesia,
    ),
    Mutation(
        "a sink has rows of whose source the driver has not heard",
        "site.leading:Leading.stands",
        "return tuple(moved.values())",
        "return ()",
        needs=amnesia,
    ),
    Mutation(
        "a source is read again from what was heard first",
        "coordinator.losses:Losses.hear",
        "begins.epoch > ",
        "begins.epoch < ",
        needs=amnesia,
    ),
)
