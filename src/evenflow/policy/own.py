"""Evenflow's own policy (decision 19): several moves per round, chosen by gain and cost, until the gain is lost in the measured noise.

While sites spill it is about memory, else about time. Each round it plans a flow from the busiest sites to the idlest on a working copy
of the loads, which later moves of the same round see. What it learns from round to round (how well it predicts, how fast copies are,
whether moves turn back) is in its `Memory`, and sets how small an imbalance it acts on and how long statistics are collected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import median
from typing import Final, NamedTuple

from evenflow.policy.forecast import forecast, usual
from evenflow.policy.hosting import Hosting, Placement
from evenflow.policy.load import PartitionLoad, SiteLoad, imbalance, mean, measure, told
from evenflow.policy.memory import excess, largest_first, reason, spilling
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Moved, Parameters, Proposal, next_delta_us
from evenflow.statistics.statistics import Statistics

SPEED_BYTES_PER_S: Final = 100e6
"""How fast copies are taken to be until one has been measured."""
SURPRISE_MIN: Final = 0.01
"""The noise estimate grows at most to twice itself and this per round, so that a real change of load is not taken for noise."""
CALM_ROUNDS: Final = 4
"""Rounds with nothing to do after which the collection phase is shortened."""
FORGETTING: Final = 0.98
"""What is left after a round of the remembered slowness of a site that runs nothing."""
SPARE: Final = 0.03
"""A site that lacks memory gives away so much more than it lacks, as a share of its state: else it would lack some again as soon as that
grows, and what is on disk makes everybody wait."""
TINY: Final = 1e-9


def evenflow(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """While any site has state on disk, give away what does not fit; else relieve the busiest sites, if the others have room."""
    window = measure(statistics, hosting, parameters.segments)
    memory = at_length(memory, statistics.end_us - statistics.begin_us)
    memory = replace(memory, known=memory.known.then(statistics, hosting))
    if upset(window, memory, parameters) and not spilling(window):
        return _wait(window, statistics, parameters, memory)
    memory = replace(memory, noise=surprise(window, memory), upset=False)
    evidence = gathered(statistics, hosting, parameters, memory)
    measured = window if evidence is statistics else measure(evidence, hosting, parameters.segments)
    memory = replace(memory, slowness=slowness(measured, memory), evidence=evidence, placement=hosting.replicas)
    sites = forecast(measured, evidence, hosting, memory.known, dict(memory.slowness))
    noise = max(at_length(memory, round(memory.known.seen_us)).noise, memory.known.chance(hosting, len(sites)))
    flow = Flow(sites, hosting, parameters, memory, threshold(parameters, noise))
    if spilling(sites):
        flow.unload()
    else:
        flow.relieve()
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


class Chosen(NamedTuple):
    """One partition to move. gained: utilization that the receiver gets with it."""

    load: PartitionLoad
    donor: int
    receiver: int
    gained: float


class Flow:
    """The moves of one round, and what the sites look like after those chosen so far.

    A donor of the round receives nothing and a receiver gives nothing away. Ties break by site, segment and partition.
    """

    def __init__(self, sites: Sequence[SiteLoad], hosting: Hosting, parameters: Parameters, memory: Memory, th_imb: float) -> None:
        self.sites = {site.site: site for site in sites}
        self.utilization = {site.site: site.utilization for site in sites}
        self.free = {site.site: site.free_bytes for site in sites}
        self.excess = {site.site: excess(site) for site in sites}
        self.chosen: list[Chosen] = []
        self.th_imb = th_imb
        self.undecided = False
        self._hosting, self._parameters, self._memory = hosting, parameters, memory
        self._placement = Placement(hosting)
        self._left = {site.site: list(site.partitions) for site in sites}
        self._given: dict[int, int] = defaultdict(int)
        self._takers: set[int] = set()
        self._limited: set[int] = set()
        self._slowness = dict(memory.slowness)
        self._speed = memory.speed or SPEED_BYTES_PER_S
        self._bytes_left = self._speed * parameters.phase_us / 1e6
        since = memory.round - parameters.hold_rounds
        self._lately = [moved for moved in memory.recent if moved.round >= since]

    # ---- time ----

    def relieve(self) -> None:
        """Until no donor gains by a move: the busiest gives the partition with the most gain per cost to the idlest that may have it.

        The moves of a donor together must gain more than the threshold, else it is left as it is.
        """
        average = mean(self.utilization.values())
        donors = {s for s, u in self.utilization.items() if u > self._parameters.idle and u > average}
        while donors:
            donor = min(donors, key=lambda s: (-self.utilization[s], s))
            if self._given[donor] >= self._parameters.moves_max:
                self._limited.add(donor)
                donors.discard(donor)
            elif not self._give(donor):
                donors.discard(donor)
        for donor in sorted(s for s, given in self._given.items() if given):
            self._drop_if_in_vain(donor)

    def _give(self, donor: int) -> bool:
        """Choose one partition of `donor` and a receiver for it; whether there were any."""
        for receiver in sorted(self._receivers(donor), key=lambda s: (self.utilization[s], s)):
            ratio = self.utilization[donor] / max(self.utilization[receiver], TINY)
            if ratio < self._parameters.th_imb or self.utilization[receiver] > self._parameters.th_util:
                return False  # The rest are busier still.
            best = self._best(donor, receiver, ratio)
            if best is None:
                continue
            if ratio < self.th_imb:
                self.undecided = True
                return False
            load, gained = best
            self.utilization[donor] -= load.cpu_share
            self.utilization[receiver] += gained
            self._take(load, donor, receiver, gained)
            return True
        return False

    def _drop_if_in_vain(self, donor: int) -> None:
        """Forget the moves of a donor that together gain less than two sites would that are just far enough apart: half of that. The
        gain is that in the utilization of the donor or of who relieves it. Not if only the bounds of a round keep it from more."""
        mine = [chosen for chosen in self.chosen if chosen.donor == donor]
        peak = max(self.utilization[site] for site in (donor, *(chosen.receiver for chosen in mine)))
        gain = 1 - peak / self.sites[donor].utilization
        if donor in self._limited or gain >= (self.th_imb - 1) / 2:
            return
        for chosen in mine:
            self.chosen.remove(chosen)
            self.utilization[donor] += chosen.load.cpu_share
            self.utilization[chosen.receiver] -= chosen.gained

    def _best(self, donor: int, receiver: int, ratio: float) -> tuple[PartitionLoad, float] | None:
        """The partition with the greatest gain per cost, and what it costs the receiver. Gain: by how much the busier of the two gets less
        utilized. Cost: the bytes to copy. One that would not pay for its copy in time is none."""
        high, low = self.utilization[donor], self.utilization[receiver]
        room = self._hosting.capacity[receiver]
        best: tuple[float, PartitionLoad, float] | None = None
        for load in self._left[donor]:
            gained = load.cpu_share * self._relative_cost(load.segment, donor, receiver)
            gain = high - max(high - load.cpu_share, low + gained)
            if gain <= TINY or low + gained > room or not self._allowed(load, donor, receiver) or not self._fits(load, receiver):
                continue
            if gain * self._parameters.payback_us / 1e6 <= load.state_bytes / self._speed or self._held(load, donor, receiver, ratio):
                continue
            if not self._affordable(load) or self._untried(receiver):
                self._limited.add(donor)
                continue
            score = gain / max(1, self._parameters.move_bytes + load.state_bytes)  # Either may be 0.
            if best is None or score > best[0]:
                best = score, load, gained
        return None if best is None else best[1:]

    def _relative_cost(self, segment: int, donor: int, receiver: int) -> float:
        """How much longer a row takes at the receiver than at the donor: by this segment's costs, else by how slow the two are."""
        mine, theirs = self.sites[donor].costs.get(segment, 0.0), self.sites[receiver].costs.get(segment, 0.0)
        if mine > 0 and theirs > 0:
            return theirs / mine
        return self._slowness.get(receiver, 1.0) / self._slowness.get(donor, 1.0)

    def _held(self, load: PartitionLoad, donor: int, receiver: int, ratio: float) -> bool:
        """Whether the partition came here lately: it does not go back, and goes elsewhere only if the imbalance is severe."""
        for moved in self._lately:
            if (moved.segment, moved.partition, moved.target) == (load.segment, load.partition, donor):
                return moved.source == receiver or ratio < self._parameters.severe
        return False

    # ---- memory ----

    def unload(self) -> None:
        """Sites that lack memory give away what lowers the difference to the site with most, until they have some to spare (FL 6.2).

        All at once, however long that takes: what waited for another round would go to disk meanwhile, and everybody would wait for it.
        """
        donors = {s for s, lack in self.excess.items() if lack < 0}
        while donors:
            donor = min(donors, key=lambda s: (self.excess[s], s))
            spare = SPARE * sum(load.state_bytes for load in self._left[donor])
            if self.excess[donor] >= spare or self._given[donor] >= self._parameters.moves_max or not self._shed(donor):
                donors.discard(donor)

    def _shed(self, donor: int) -> bool:
        receivers = [s for s in self._receivers(donor) if self.free[s] is not None]
        for receiver in sorted(receivers, key=lambda s: (-self.excess[s], s)):
            gap = self.excess[receiver] - self.excess[donor]
            for load in largest_first(self._left[donor]):
                if 0 < load.state_bytes < gap and self._allowed(load, donor, receiver):
                    self._take(load, donor, receiver, 0.0)
                    return True
        return False

    # ---- both ----

    def _receivers(self, donor: int) -> list[int]:
        return [s for s in self.sites if s != donor and s in self._hosting.capacity and not self._given[s]]

    def _allowed(self, load: PartitionLoad, donor: int, receiver: int) -> bool:
        return donor not in self._takers and self._placement.allows(load.segment, load.partition, donor, receiver)

    def _affordable(self, load: PartitionLoad) -> bool:
        """Whether its copy fits into this round's move phase. The first one always does, else what is large would never move."""
        return not self.chosen or load.state_bytes <= self._bytes_left

    def _fits(self, load: PartitionLoad, receiver: int) -> bool:
        free = self.free[receiver]
        return free is None or load.state_bytes <= free

    def _untried(self, receiver: int) -> bool:
        """Whether the receiver got a partition in this round and has not shown its speed yet: the next round knows more."""
        return receiver in self._takers and not self.sites[receiver].costs

    def _take(self, load: PartitionLoad, donor: int, receiver: int, gained: float) -> None:
        self._placement.move(load.segment, load.partition)
        self._left[donor].remove(load)
        self._given[donor] += 1
        self._takers.add(receiver)
        self._bytes_left -= load.state_bytes
        self.excess[donor] += load.state_bytes
        self.excess[receiver] -= load.state_bytes
        free = self.free[receiver]
        self.free[receiver] = None if free is None else free - load.state_bytes
        self.chosen.append(Chosen(load, donor, receiver, gained))

    @property
    def turned_back(self) -> bool:
        """Whether a site gives away what a round or two ago it was given, or a partition moves that moved lately: rounds oscillate."""
        takers = {moved.target for moved in self._lately if moved.round >= self._memory.round - 2}
        moved = {(m.segment, m.partition) for m in self._lately}
        return any(donor in takers or (load.segment, load.partition) in moved for load, donor, *_ in self.chosen)

    @property
    def severe(self) -> bool:
        """Whether the sites were as far apart as cannot wait."""
        busy = [site.utilization for site in self.sites.values()]
        return max(busy) >= self._parameters.severe * mean(busy)

    def moves(self, what: str) -> tuple[Move, ...]:
        """Grouped by segment, donor and receiver, in the order in which a group was first chosen."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for load, donor, receiver, _ in self.chosen:
            groups.setdefault((load.segment, donor, receiver), []).append(load.partition)
        return tuple(
            Move(segment, tuple(sorted(partitions)), donor, receiver, self._reason(what, donor, receiver))
            for (segment, donor, receiver), partitions in groups.items()
        )

    def _reason(self, what: str, donor: int, receiver: int) -> str:
        if what == "memory":
            return reason(donor, excess(self.sites[donor]))
        high, low = self.sites[donor].utilization, self.sites[receiver].utilization
        then = f"expected {self.utilization[donor]:.0%} and {self.utilization[receiver]:.0%}"
        return f"site {donor} is {high:.0%} utilized, site {receiver} {low:.0%}; {then}"


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
