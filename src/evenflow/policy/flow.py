"""The moves of one round of Evenflow's own policy: from the busiest sites to the idlest, planned on a working copy of their loads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from evenflow.policy.hosting import Hosting, Placement
from evenflow.policy.load import PartitionLoad, SiteLoad, mean
from evenflow.policy.memory import excess, largest_first, reason
from evenflow.policy.mixes import Mixed
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters
from evenflow.policy.swaps import TH_GAIN, Swap, best_swap

SPEED_BYTES_PER_S: Final = 100e6
"""How fast copies are taken to be until one has been measured."""
SPARE: Final = 0.03
"""A site that lacks memory gives away so much more than it lacks, as a share of its state: else it would lack some again as soon as that
grows, and what is on disk makes everybody wait."""
TINY: Final = 1e-9


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

    def __init__(
        self,
        sites: Sequence[SiteLoad],
        hosting: Hosting,
        parameters: Parameters,
        memory: Memory,
        th_imb: float,
        mixed: Mixed | None = None,
    ) -> None:
        self.sites = {site.site: site for site in sites}
        self.utilization = {site.site: site.utilization for site in sites}
        self.free = {site.site: site.free_bytes for site in sites}
        self.excess = {site.site: excess(site) for site in sites}
        self.chosen: list[Chosen] = []
        self.th_imb = th_imb
        self.undecided = False
        self.mixed = mixed
        self.swaps: dict[tuple[int, int], str] = {}
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
            self._move(best[0], donor, receiver, best[1])
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
            if self.mixed is not None:
                self.mixed.move(*chosen, back=True)

    def _best(self, donor: int, receiver: int, ratio: float) -> tuple[PartitionLoad, float] | None:
        """The partition with the greatest gain per cost, and what it costs the receiver. Gain: by how much the busier of the two gets less
        utilized, over all scenarios, if there is more to weigh than the present, which must gain too. Cost: the bytes to copy. One that
        would not pay for its copy in time is none."""
        high, low = self.utilization[donor], self.utilization[receiver]
        room = self._hosting.capacity[receiver]
        best: tuple[float, PartitionLoad, float] | None = None
        over_all = self._over_all(donor, receiver)
        for load in self._left[donor]:
            gained = load.cpu_share * self._relative_cost(load.segment, donor, receiver)
            gain = high - max(high - load.cpu_share, low + gained)
            if gain <= TINY or low + gained > room or not self._allowed(load, donor, receiver) or not self._fits(load, receiver):
                continue
            if over_all is not None:
                gain = over_all[load.segment, load.partition]
            if not self._pays(gain, load.state_bytes) or self._held(load, donor, receiver, ratio):
                continue
            if not self._affordable(load) or self._untried(receiver):
                self._limited.add(donor)
                continue
            score = gain / max(1, self._parameters.move_bytes + load.state_bytes)  # Either may be 0.
            if best is None or score > best[0]:
                best = score, load, gained
        return None if best is None else best[1:]

    def _over_all(self, donor: int, receiver: int) -> dict[tuple[int, int], float] | None:
        """By partition of the donor, what moving it gains over all scenarios; None where there is only the present."""
        mine = self._left[donor]
        if self.mixed is None or not mine:
            return None
        gained = [load.cpu_share * self._relative_cost(load.segment, donor, receiver) for load in mine]
        gains = self.mixed.gains(mine, donor, receiver, gained)
        return {(load.segment, load.partition): float(gain) for load, gain in zip(mine, gains, strict=True)}

    def _move(self, load: PartitionLoad, donor: int, receiver: int, gained: float) -> None:
        self.utilization[donor] -= load.cpu_share
        self.utilization[receiver] += gained
        if self.mixed is not None:
            self.mixed.move(load, donor, receiver, gained)
        self._take(load, donor, receiver, gained)

    def swap(self) -> None:
        """Where no move gains, partitions change places, as long as that pays for both copies and no site is in two of them."""
        if self.mixed is None or self.chosen or self.undecided or max(self.utilization.values()) <= self._parameters.idle:
            return
        while len(self.chosen) < 2 * self._parameters.moves_max:
            found = best_swap(self.mixed, self, max(TH_GAIN, self.th_imb - 1))
            if found is None:
                return
            text = f"they change places, so that at other rates the busier of the two has {1 - found.after / found.before:.0%} less to do"
            self.swaps[found.donor, found.receiver] = self.swaps[found.receiver, found.donor] = text
            self._move(found.given, found.donor, found.receiver, found.gained[0])
            self._move(found.taken, found.receiver, found.donor, found.gained[1])

    def swappable(self, site: int) -> list[PartitionLoad]:
        """What may leave the site: it takes part in no other move of this round, and what came lately stays."""
        if self._given[site] or site not in self._hosting.capacity:
            return []
        lately = {(moved.segment, moved.partition) for moved in self._lately}
        return [load for load in self._left[site] if (load.segment, load.partition) not in lately]

    def cost_there(self, piece: PartitionLoad, site: int, other: int) -> float:
        """What a partition of a site costs at another one."""
        return piece.cpu_share * self._relative_cost(piece.segment, site, other)

    def _pays(self, gain: float, state_bytes: int) -> bool:
        """Whether the load that is gained outweighs the copying in time."""
        return gain > TINY and gain * self._parameters.payback_us / 1e6 > state_bytes / self._speed

    def new_streams(self, swap: Swap) -> float:
        """How many more streams go from site to site than before."""
        return self._streams(swap.given.segment, swap.donor, swap.receiver) + self._streams(swap.taken.segment, swap.receiver, swap.donor)

    def _streams(self, segment: int, source: int, target: int) -> float:
        """The same of one partition of the segment that goes from source to target: of all that feed it, or that it feeds."""
        layout, replicas = self._hosting.layout, self._hosting.replicas
        if layout is None:
            return 0.0
        more = 0.0
        for arc in layout.arcs:
            if segment in (arc.producer, arc.consumer):
                other = arc.consumer if segment == arc.producer else arc.producer
                sites = [site for p in range(layout.segments[other].partitions) for site in replicas.get((other, p), ())]
                more += (sites.count(source) - sites.count(target)) / max(1, len(sites))
        return more

    def may_swap(self, swap: Swap) -> bool:
        """Whether both may go, there is memory for them, and it pays for both copies."""
        donor, receiver, given, taken, *_ = swap
        return (
            (given.segment, given.partition) != (taken.segment, taken.partition)
            and self._placement.allows(given.segment, given.partition, donor, receiver)
            and self._placement.allows(taken.segment, taken.partition, receiver, donor)
            and self._fits(given, receiver)  # Both copies come before either original goes.
            and self._fits(taken, donor)
            and self._pays(swap.before - swap.after, given.state_bytes + taken.state_bytes)
        )

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
        if (donor, receiver) in self.swaps:
            return self.swaps[donor, receiver]
        if what == "memory":
            return reason(donor, excess(self.sites[donor]))
        high, low = self.sites[donor].utilization, self.sites[receiver].utilization
        then = f"expected {self.utilization[donor]:.0%} and {self.utilization[receiver]:.0%}"
        return f"site {donor} is {high:.0%} utilized, site {receiver} {low:.0%}; {then}"
