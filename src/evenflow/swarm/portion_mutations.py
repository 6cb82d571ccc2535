"""Planted bugs of sinks that take first come, first served (O1)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

PORTIONS: Final = (
    Mutation(
        "the driver takes every portion",
        "coordinator.first_copy:FirstPortions.accept",
        "if self.newest.get((stream, producer), 0) < epoch",
        "if epoch",
    ),
    Mutation(
        "of a portion that has come in part nothing is taken",
        "coordinator.first_copy:FirstPortions.accept",
        "return fresh",
        "return fresh if len(fresh) == len(tuple(producers)) else ()",
    ),
    Mutation(
        "a replica forgets which portions were its own to give",
        "site.portioning:Portioning.came",
        "given.get((inbox.stream, p), 0) < mark.epoch",
        "not given or max(given.values()) < mark.epoch",
    ),
    Mutation(
        "portions of a copy that is not live go out",
        "site.releasing:Releasing.pass_on",
        "if cohort.number:",
        "if cohort.number and release.portion is None:",
    ),
    Mutation(
        "an epoch is committed with its first portion",
        "world.sim.driver:SimDriver._store_portion",
        "if stored:",
        "self.say_committed(release.segment, release.epoch)\n    if stored:",
    ),
    Mutation(
        "portions do not wait for the journal",
        "world.sim.driver:SimDriver._let_out",
        "release.epoch > durable",
        "release.epoch > durable and release.portion is None",
    ),
)
