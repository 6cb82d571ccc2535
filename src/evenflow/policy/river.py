"""River: rows that may go anywhere go where there is room (FL 2.4), as weights of the plan (decision 32).

The paper's producer looks at its queues for every row. Here replicas must agree on where a row goes, so the weights change from round to
round, by what the sites' utilization says of their room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from evenflow.plan.layout import Layout
from evenflow.policy.hosting import Hosting
from evenflow.policy.load import mean, measure
from evenflow.policy.proposal import Parameters
from evenflow.statistics.statistics import Statistics

WHOLE: Final = 65_536
"""What the weights of a segment add up to, about."""
FACTOR_MAX: Final = 2.0
"""A weight changes by this factor at most in a round: a site that had nothing to do shows no speed."""
LEAST: Final = 64
"""No partition gets less than one in so many of its even share: its site must go on showing how fast it is."""

Weights = tuple[tuple[int, ...], ...]


def river(statistics: Statistics, hosting: Hosting, parameters: Parameters, layout: Layout, weights: Weights) -> tuple[Weights, str]:
    """(weights by segment, a sentence about what has changed, "" if nothing has).

    A partition's weight is multiplied with the mean utilization by that of its busiest site: an epoch is over when its slowest replica is
    through. A segment is left alone if its busiest site is not th_imb times as utilized as the mean, or less than `idle`, or if one of its
    sites has not reported. weights: now; nothing: all the same.
    """
    utilization = {site.site: site.utilization for site in measure(statistics, hosting)}
    found = list(weights or ((),) * len(layout.segments))
    said = []
    for number in layout.dealt():
        segment = layout.segments[number]
        now = found[number] or (round(WHOLE / segment.partitions),) * segment.partitions
        changed = _dealt_anew(now, [hosting.replicas.get((number, p), ()) for p in range(len(now))], utilization, parameters)
        if changed is not None:
            found[number] = changed
            said.append(f"rows of {segment.name} are dealt out anew: {min(changed) / WHOLE:.1%} to {max(changed) / WHOLE:.1%} of them each")
    return (tuple(found), "; ".join(said)) if said else (weights, "")


def _dealt_anew(
    now: tuple[int, ...], replicas: list[tuple[int, ...]], utilization: Mapping[int, float], parameters: Parameters
) -> tuple[int, ...] | None:
    hosts = {site for sites in replicas for site in sites}
    if len(hosts) < 2 or not hosts <= set(utilization) or not all(replicas):
        return None
    average, busiest = mean(utilization[site] for site in hosts), max(utilization[site] for site in hosts)
    if busiest < parameters.idle or busiest <= average * parameters.th_imb or average <= 0:
        return None
    fresh = []
    for weight, sites in zip(now, replicas, strict=True):
        used = max(utilization[site] for site in sites)
        fresh.append(weight * min(FACTOR_MAX, max(1 / FACTOR_MAX, average / used if used else FACTOR_MAX)))
    least = WHOLE / (LEAST * len(now))
    changed = tuple(max(1, round(max(least, WHOLE * weight / sum(fresh)))) for weight in fresh)
    return None if changed == now else changed
