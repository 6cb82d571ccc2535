"""When epochs are where, over a month: the least over legs, the greatest over inputs (HW 5.5.5 by arithmetic instead of events).

An epoch of a replica is finished when all of its inputs have come, and an input has come when the first of its legs has brought it. A leg
delivers in order, so an epoch is never there before the one before it. All arrays have one place per epoch and are seconds; epoch e is
due at e times the width, and sources have it then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.experiments.harness.distant_sites import STEP_S, Trace
from evenflow.policy.wide_area.discard import Input
from evenflow.policy.wide_area.legs import Leg, Replica
from evenflow.stream.arrays import Bools, Floats

WIDTH_S: Final = 10.0

Delays = Callable[[int, int], npt.NDArray[np.float32]]
"""From one site to another, seconds by step."""


def carried(sent: Floats, delays: npt.NDArray[np.float32], step_s: float = STEP_S) -> Floats:
    """When each epoch arrives that is sent then. What is sent behind the end of the trace has the delay of its last step."""
    never = ~np.isfinite(sent)
    step = np.minimum((np.where(never, 0.0, sent) / step_s).astype(np.int64), delays.size - 1)
    arrives = sent + delays[step]
    found: Floats = np.maximum.accumulate(arrives)
    return found


@dataclass(frozen=True, slots=True)
class Hedge:
    """How legs that were left out are asked again. late_s: by input, how late an epoch is, behind when it was due, before the cheapest of
    them is asked; the next one when it is as late again. held: epochs for which a leg stays once it was asked."""

    late_s: Mapping[Input, float]
    held: int


@dataclass(slots=True)
class Flow:
    """A deployment whose arrivals are asked. legs: live ones. spare: legs that were left out. due: when each epoch is due.

    share: of the spare legs, the part of all epochs for which each was asked. by_leg: what each live leg brought when, if `watched`.
    """

    trace: Trace
    due: Floats
    legs: Sequence[Leg]
    spare: Sequence[Leg] = ()
    hedge: Hedge | None = None
    watched: bool = False
    sources: Mapping[int, Floats] = field(default_factory=dict)
    share: dict[Leg, float] = field(default_factory=dict)
    by_leg: dict[Leg, Floats] = field(default_factory=dict)
    inputs: dict[Replica, dict[str, list[Leg]]] = field(default_factory=dict)
    left_out: dict[Input, list[Leg]] = field(default_factory=dict)
    done: dict[Replica, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leg in self.legs:
            self.inputs.setdefault(leg.consumer, {}).setdefault(leg.producer.name, []).append(leg)
        running = {leg.producer for leg in self.legs} | self.inputs.keys()
        for leg in sorted(self.spare, key=lambda leg: leg.cost):
            if leg.producer in running and leg.consumer in running:
                self.left_out.setdefault((leg.producer.name, leg.consumer), []).append(leg)

    def ready(self, replica: Replica) -> Floats:
        """When this replica has finished each epoch."""
        if replica not in self.done:
            self.done[replica] = self._ready(replica)
        return self.done[replica]

    def _ready(self, replica: Replica) -> Floats:
        if replica not in self.inputs:
            return self.due
        names = self.inputs[replica]
        if self.sources and not self.watched and all(leg.producer not in self.inputs for legs in names.values() for leg in legs):
            return self.sources[replica.site]
        found = self.due
        for name, legs in names.items():
            first = self._first(legs)
            if self.hedge is not None and (name, replica) in self.left_out:
                first = self._asked(first, (name, replica), self.hedge)
            found = np.maximum(found, first)
        return found

    def _first(self, legs: Sequence[Leg]) -> Floats:
        first: Floats | None = None
        for leg in legs:
            arrives = self._over(leg, self.ready(leg.producer))
            if self.watched:
                self.by_leg[leg] = arrives
            first = arrives if first is None else np.minimum(first, arrives)
        assert first is not None, "an input has a leg"
        return first

    def _over(self, leg: Leg, sent: Floats) -> Floats:
        return carried(sent, self.trace.delays_s(leg.producer.site, leg.consumer.site))

    def _asked(self, first: Floats, key: Input, hedge: Hedge) -> Floats:
        """The input with the spare legs that were asked for what was late."""
        late_s = hedge.late_s.get(key, np.inf)
        for turn, leg in enumerate(self.left_out[key], 1):
            asked_at = self.due + late_s * turn
            late = first > asked_at
            if not late.any():
                break
            on = held(late, hedge.held)
            # The first epoch of a spell is asked for; those behind it come by themselves.
            asks = on & ~np.concatenate([[False], on[:-1]])
            heard = carried(asked_at, self.trace.delays_s(leg.consumer.site, leg.producer.site))
            sent = np.maximum(self.ready(leg.producer), np.where(asks, heard, 0.0))
            brings = self._over(leg, np.where(on, np.maximum.accumulate(sent), self.ready(leg.producer)))
            first = np.where(on, np.minimum(first, brings), first)
            self.share[leg] = float(on.mean())
        return first


def held(late: Bools, epochs: int) -> Bools:
    """bool (epochs,): late now, or at most so many epochs ago."""
    last = np.maximum.accumulate(np.where(late, np.arange(late.size), -epochs - 1))
    found: Bools = np.arange(late.size) - last <= epochs
    return found


def surveyed(trace: Trace, due: Floats, steps: int) -> tuple[Floats, dict[int, Floats]]:
    """The mean latency of all paths in the first so many steps, ms, as a test run would find it; and by site when it has heard an epoch of
    sources at all sites, each by its own leg. Every path is gone through once."""
    latency_ms, gathered = np.zeros_like(trace.base_ms), {}
    for site in range(trace.sites):
        there = due
        for source in range(trace.sites):
            delays = trace.delays_s(source, site)
            latency_ms[source, site] = 1000 * float(delays[:steps].mean())
            there = np.maximum(there, carried(due, delays))
        gathered[site] = there
    return latency_ms, gathered


def weighed(flow: Flow) -> tuple[Leg, ...]:
    """The legs of a watched flow with what each was worth: for each epoch 1 / place, the mean over all of them (HW 5.4.2)."""
    found = []
    for names in flow.inputs.values():
        for legs in names.values():
            arrives = np.stack([flow.by_leg[leg] for leg in legs])
            for at, leg in enumerate(legs):
                place = 1 + (arrives < arrives[at]).sum(axis=0)
                found.append(replace(leg, weight=float((1 / place).mean())))
    return tuple(found)
