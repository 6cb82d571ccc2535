"""Evenflow's own policy (decision 19): several moves per round, chosen by gain and cost, until the gain is lost in the measured noise.

While sites spill it is about memory, else about time. Each round it plans a flow from the busiest sites to the idlest on a working copy
of the loads, which later moves of the same round see. What it learns from round to round (how well it predicts, how fast copies are,
whether moves turn back) is in its `Memory`, and sets how small an imbalance it acts on and how long statistics are collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import median
from typing import Final

from evenflow.policy.flow import TINY, Flow
from evenflow.policy.forecast import forecast, usual
from evenflow.policy.hosting import Hosting
from evenflow.policy.load import SiteLoad, imbalance, measure, told
from evenflow.policy.memory import spilling
from evenflow.policy.proposal import Memory, Moved, Parameters, Proposal, next_delta_us
from evenflow.statistics.statistics import Statistics

SURPRISE_MIN: Final = 0.01
"""The noise estimate grows at most to twice itself and this per round, so that a real change of load is not taken for noise."""
CALM_ROUNDS: Final = 4
"""Rounds with nothing to do after which the collection phase is shortened."""
FORGETTING: Final = 0.98
"""What is left after a round of the remembered slowness of a site that runs nothing."""


def evenflow(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """While any site has state on disk, give away what does not fit; else relieve the busiest sites, if the others have room."""
    window = measure(statistics, hosting, parameters.segments)
    memory = at_length(memory, statistics.end_us - statistics.begin_us)
    offered = memory.offered.then(statistics, hosting, dict(memory.slowness))
    memory = replace(memory, known=memory.known.then(statistics, hosting), offered=offered)
    if upset(window, memory, parameters) and not spilling(window):
        return _wait(window, statistics, parameters, memory)
    memory = replace(memory, noise=surprise(window, memory), upset=False)
    evidence = gathered(statistics, hosting, parameters, memory)
    measured = window if evidence is statistics else measure(evidence, hosting, parameters.segments)
    memory = replace(memory, slowness=slowness(measured, memory), evidence=evidence, placement=hosting.replicas)
    sites = forecast(measured, evidence, hosting, memory.known, dict(memory.slowness))
    noise = max(at_length(memory, round(memory.known.seen_us)).noise, memory.known.chance(hosting, len(sites)))
    mixed = offered.mixed(sites, hosting, memory.known, dict(memory.slowness))
    flow = Flow(sites, hosting, parameters, memory, threshold(parameters, noise), mixed)
    if spilling(sites):
        flow.unload()
    else:
        flow.relieve()
        flow.swap()
    return _proposal(flow, sites, statistics, parameters, memory, noise)


def upset(sites: Sequence[SiteLoad], memory: Memory, parameters: Parameters) -> bool:
    """Whether a site's load has changed so much within this window that the window tells of neither before nor after. Then the next one
    decides, whatever it shows."""
    errors = deviations(sites, memory)
    return not memory.upset and any(abs(error) > log(parameters.severe) + parameters.noise_factor * memory.noise for error in errors)


def gathered(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Statistics:
    """All that has been seen since something moved or a load changed, up to evidence_us: chance averages out, nobody is blind meanwhile."""
    before = memory.evidence
    if before is None or before.end_us > statistics.begin_us or memory.placement != hosting.replicas:
        return statistics
    if before.end_us - before.begin_us >= parameters.evidence_us:
        return statistics
    return Statistics.of([*before.sites, *statistics.sites])


def at_length(memory: Memory, window_us: int) -> Memory:
    """The memory with its noise as of windows of this length: the error of counts falls with the square root of their number."""
    if not memory.window_us or window_us <= 0:
        return replace(memory, window_us=window_us)
    return replace(memory, noise=memory.noise * sqrt(memory.window_us / window_us), window_us=window_us)


def surprise(sites: Sequence[SiteLoad], memory: Memory) -> float:
    """The noise, given how far the utilizations are from what was expected: a smoothed, relative, median error.

    All sites together may speed up or slow down with the input, so only deviations from the median count. A site whose speed really
    changed is an outlier, which neither the median nor the bounded growth lets through.
    """
    errors = deviations(sites, memory)
    if len(errors) < 2:
        return memory.noise
    seen = median(abs(error) for error in errors)
    return memory.noise + (min(seen, 2 * memory.noise + SURPRISE_MIN) - memory.noise) / 2


def deviations(sites: Sequence[SiteLoad], memory: Memory) -> list[float]:
    """By how much the utilizations differ from what was expected, as logarithms, less what they have in common."""
    expected = dict(memory.expected)
    errors = [
        log(site.utilization / expected[site.site]) for site in sites if site.utilization > TINY and expected.get(site.site, 0.0) > TINY
    ]
    middle = median(errors) if errors else 0.0
    return [error - middle for error in errors]


def slowness(sites: Sequence[SiteLoad], memory: Memory) -> tuple[tuple[int, float], ...]:
    """How much longer a row takes at each site than at the median one, over the segments that it ran in the window.

    One that finished no epoch in the window is as slow as its rows last cost, which compares otherwise when many have become slower. What
    a site without partitions showed last is remembered, and slowly forgotten: an overloaded site that has given everything away would
    else look like the best receiver of all.
    """
    middle = usual(sites, memory.known)
    known = {site: 1 + (factor - 1) * FORGETTING for site, factor in memory.slowness}
    for site in sites:
        last = {segment: cost for (at, segment), cost in memory.known.costs.items() if at == site.site and site.partitions}
        shown = [cost / middle[segment] for segment, cost in (site.costs or last).items() if cost > 0]
        if shown:
            known[site.site] = median(shown)
    return tuple(sorted(known.items()))


def threshold(parameters: Parameters, noise: float) -> float:
    """Least ratio of two measured utilizations that is acted on: th_imb, and on top of it what may be noise."""
    return parameters.th_imb + parameters.noise_factor * noise


def _wait(sites: Sequence[SiteLoad], statistics: Statistics, parameters: Parameters, memory: Memory) -> Proposal:
    """Nothing moves; what was gathered is of another load."""
    now = tuple((site.site, site.utilization) for site in sites)
    delta_us = memory.delta_min_us or parameters.delta_min_us
    kept = replace(memory, round=memory.round + 1, expected=now, evidence=None, upset=True, calm=0, delta_us=delta_us)
    text = "nothing to move: the load has just changed; the next window shows how"
    return Proposal((), delta_us, imbalance(sites), text, kept)


def _proposal(
    flow: Flow, sites: Sequence[SiteLoad], statistics: Statistics, parameters: Parameters, memory: Memory, noise: float
) -> Proposal:
    moves = flow.moves("memory" if spilling(sites) else "time")
    delta_min_us, calm = tuned(flow, parameters, memory)
    delta_us = next_delta_us(statistics, memory, delta_min_us, moving=bool(moves))
    measured = imbalance(sites) if sites else 1.0
    since = memory.round - parameters.hold_rounds
    lately = tuple(moved for moved in memory.recent if moved.round >= since)
    now = tuple(Moved(memory.round, load.segment, load.partition, donor, receiver) for load, donor, receiver, _ in flow.chosen)
    kept = replace(
        memory,
        round=memory.round + 1,
        delta_us=delta_us,
        delta_min_us=delta_min_us,
        expected=tuple(flow.utilization.items()),
        copying=sum(load.state_bytes for load, *_ in flow.chosen),
        recent=(*lately, *now),
        calm=calm,
        evidence=None if flow.chosen else memory.evidence,
        wait_most_us=2 * delta_min_us,
    )
    quiet = f"nothing to move: the busiest of {len(sites)} sites is at {measured:.2f} of the mean"
    if flow.undecided:
        quiet += f", which is within the noise ({noise:.1%}); more is gathered"
    return Proposal(moves, delta_us, measured, told(moves, quiet if sites else "nothing to move: no site has reported"), kept)


def tuned(flow: Flow, parameters: Parameters, memory: Memory) -> tuple[int, int]:
    """delta_min for the next round, and rounds in a row that were calm.

    Doubled when rounds oscillate; halved after some calm rounds, if the noise of a window of half the length is well below th_imb.
    """
    last = memory.delta_min_us or parameters.delta_min_us
    half = at_length(memory, last // 2)
    calm = 0 if flow.chosen or flow.undecided else memory.calm + 1
    if flow.turned_back and not flow.severe:
        last *= 2
    elif calm >= CALM_ROUNDS and parameters.noise_factor * half.noise <= (parameters.th_imb - 1) / 2:
        last, calm = last // 2, 0
    return min(max(last, parameters.delta_least_us), parameters.delta_most_us), calm
