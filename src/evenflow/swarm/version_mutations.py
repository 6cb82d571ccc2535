"""Planted bugs of runs that are replaced at a location (K11). Scenarios of their own show them:
`tests/sim/test_replacing_at_a_location.py`.

`evenflow swarm --mutations` asks for none of them: a seed must replace a run, and lose it at the right moment.
"""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

VERSIONS: Final = (
    Mutation(
        "who replaces is answered before the journal has it",
        "coordinator.replacing:Replacing._answered",
        "if journalled:",
        "if False:",
    ),
    Mutation(
        "a version that was promised is forgotten",
        "availability.standing:begun_with",
        "if newest.version != acting[-1].version:",
        "if False:",
    ),
    Mutation(
        "a version acts from an epoch that is durable",
        "availability.standing:begun_with",
        "effective=durable + 1, version",
        "effective=durable, version",
    ),
    Mutation(
        "a version goes that a checkpoint needs",
        "availability.standing:Standing.programs_since",
        "if effective <= epoch][-1:]",
        "if effective < 0][-1:]",
    ),
    Mutation(
        "a version that nobody needs stays",
        "availability.standing:Standing.programs_since",
        "if effective <= epoch][-1:]",
        "if effective <= epoch]",
    ),
    Mutation(
        "epochs are made again by another version",
        "coordinator.versions:_since",
        "since := -number - 1",
        "since := 0",
    ),
)
