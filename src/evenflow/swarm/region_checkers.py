"""What must hold of regions at every step (race.md, "Swarm"): they cut and put out the same, readers and shared sinks see the chain once,
who is silent is silent, and who can reach one region goes on. Each raises AssertionError with one sentence, or says it in the end.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.errors import RegionsDisagree
from evenflow.kernels.digest import add_digests
from evenflow.policy.hedge import ALLOWED, KEPT_ON, MOST_US
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.regions import SimOutlet, SimRegion, SimRegions
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.subscriber import SimSubscriber
from evenflow.world.sim.world import SimWorld

LOOK_US: Final = 20_000
ROUND_TRIPS: Final = 1 + KEPT_ON
"""Who comes back is asked for its heads, which is one. A leg that gives nothing keeps its place while KEPT_ON - 1 epochs are asked of
another one, each a round trip after the one before, and then that one is asked for all. Only the first waits for its hedge, from its head
on: tests/availability/test_hedging.py has a reader that falls behind by just so much."""
FENCINGS: Final = 12
"""So often regions may take a sink from each other for each thing that was done to them, or epoch that went by."""

Key = tuple[int, int]


class Alike(Observer):
    """What one life of a region cuts, and puts out if it is exact, is what the others do."""

    def __init__(self, checkers: RegionCheckers, region: SimRegion, world: SimWorld) -> None:
        self._checkers, self._region, self._world, self._exact = checkers, region, world, not region.after
        world.observers = (*world.observers, self)

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        if outcome.error is not None or outcome.asked or self._world.driver.dead or site.index not in self._world.coordinator.sites:
            return
        segment, epoch = work.hosted.segment, work.tick.epoch
        self._checkers.stamped(self._region.name, epoch, work.tick.stamp)
        if segment.kind != "ingress" and not self._exact:
            return
        digest = np.zeros(segment.partitions, np.uint64)
        for pieces in outcome.pieces:
            if pieces.rows is not None:
                add_digests(pieces.rows, np.ascontiguousarray(pieces.producers_of(0, pieces.rows.num_rows)), digest)
        self._checkers.put_out(self._region.name, segment.name, (segment.id, epoch), list(work.hosted.partitions), digest)


class RegionCheckers:
    """stamps: of each epoch. digests: by (segment, epoch) and partition. story: what happened, a line each."""

    def __init__(self, group: SimRegions) -> None:
        self._group = group
        self._stamps: dict[int, tuple[int, str]] = {}
        self._digests: dict[Key, tuple[np.ndarray, dict[int, str]]] = {}
        self._truth: dict[str, dict[int, Link]] = {}
        self._readers: list[SimSubscriber] = []
        self._seen: dict[int, deque[tuple[int, int]]] = {}
        self._slowest: dict[int, int] = {}
        self._well_since: dict[tuple[int, int], int] = {}
        self.story: list[str] = []
        group.on_made.append(self.made)
        group.on_given.append(self.gave)

    def watch(self, region: SimRegion, world: SimWorld) -> None:
        """A life of a region begins."""
        Alike(self, region, world)
        self.story.append(f"{self._ms:10.3f} ms  {region.name} begins behind epoch {world.coordinator.beginning.epoch}")

    @property
    def _ms(self) -> float:
        return self._group.clock.now_us / 1000

    # ------------------------------------------------------------ cuts and outputs

    def stamped(self, region: str, epoch: int, stamp: int) -> None:
        """E11."""
        first, by = self._stamps.setdefault(epoch, (stamp, region))
        assert first == stamp, f"epoch {epoch} has stamp {stamp} in {region} and {first} in {by}"

    def put_out(self, region: str, name: str, key: Key, partitions: list[int], digest: np.ndarray) -> None:
        """E9: each partition puts out the same rows in an epoch, in all regions."""
        known, by = self._digests.setdefault(key, (np.zeros(digest.size, np.uint64), {}))
        assert known.size == digest.size, f"{name} has {digest.size} partitions in {region}, and {known.size} in another region"
        for partition in partitions:
            if partition in by:
                assert known[partition] == digest[partition], (
                    f"{region} and {by[partition]} differ in what {name} {partition} puts out in epoch {key[1]}"
                )
            else:
                known[partition], by[partition] = digest[partition], region

    def made(self, outlet: SimOutlet, link: Link) -> None:
        """What an exact region makes is the truth, whoever is lost later; and all that are, and all their lives, make the same."""
        if not outlet.region.after and self._group.liar is None:
            known = self._truth.setdefault(outlet.name, {}).setdefault(link.epoch, link)
            assert known == link, f"{outlet.region.name} makes {link} of {outlet.name}, and an exact region has made {known}"

    def gave(self, outlet: SimOutlet, link: Link) -> None:
        """W4: who is silent gives nothing out, and who has been says what exact regions have made."""
        region = outlet.region
        assert region.gate.over, f"{region.name} is silent, and gives out epoch {link.epoch} of {outlet.name}"
        if self._group.liar is not None:
            return
        known = self._truth.get(outlet.name, {}).get(link.epoch, link)
        assert known == link, f"{region.name} gives out {link} of {outlet.name}, and an exact region has made {known}"
        if not outlet.gave:
            self._believed(region)
        self._truth.setdefault(outlet.name, {})[link.epoch] = link  # Who is believed is as good as exact, also when those are gone.

    def _believed(self, region: SimRegion) -> None:
        """W4: so many epochs in a row were as exact regions have made them, or those that are believed, by a count of its own, of one sink
        at least."""
        most = 0
        for sink in region.gate.silences:
            own, truth = region.outlets[sink].made, self._truth.get(sink, {})
            through, agreed = min(max(own, default=0), max(truth, default=0)), 0
            for epoch in sorted(epoch for epoch in {*own, *truth} if region.after < epoch <= through):
                agreed = agreed + 1 if own.get(epoch) == truth.get(epoch) else 0
            most = max(most, agreed)
        needed = max([silence.needed for silence in region.gate.silences.values()], default=0)
        assert most >= needed, f"{region.name} gives out after {most} epochs in a row that were as exact regions have them, of {needed}"

    # ------------------------------------------------------------ readers

    def follow(self, readers: list[SimSubscriber]) -> None:
        self._readers = readers
        self._look()

    def _look(self) -> None:
        for at, reader in enumerate(self._readers):
            self._check_reader(at, reader)
        for sink in self._group.shared.values():
            most = FENCINGS * (1 + len(sink.chain) + sum(len(region.lives) for region in self._group.regions))
            assert sink.fencings <= most, (
                f"regions took sink {sink.name} from each other {sink.fencings} times for {len(sink.chain)} epochs"
            )
        self._group.clock.after(LOOK_US, self._look)

    def _check_reader(self, at: int, reader: SimSubscriber) -> None:
        """W6: who reaches a region that goes on has what it had a while ago."""
        now_us, subscription = self._group.clock.now_us, reader.subscription
        delivered = subscription.chain.delivered
        allowed = KEPT_ON + ALLOWED * len(reader.got)
        assert subscription.hedged <= allowed, f"{subscription.hedged} of {len(reader.got)} epochs of {reader.sink} were asked for twice"
        if reader.error is not None or reader.over:
            return
        for place, leg in enumerate(reader.legs):
            key = (at, place)
            well = leg.up_us is not None and not leg.cut and not leg.slow_us
            patience_us = MOST_US + 2 * ROUND_TRIPS * self._slowest_us(at, reader)
            if not well:
                self._well_since.pop(key, None)
                self._seen.pop(10 * at + place, None)
                continue
            since_us = self._well_since.setdefault(key, now_us)
            seen = self._seen.setdefault(10 * at + place, deque())
            seen.append((now_us, leg.finished.last))
            while len(seen) > 1 and seen[1][0] <= now_us - patience_us:
                seen.popleft()
            if now_us - since_us >= patience_us and seen[0][0] <= now_us - patience_us and leg.finished.floor <= delivered:
                assert delivered >= seen[0][1], (
                    f"{reader.sink} is read up to epoch {delivered}, and {leg.region.name}, which can be reached, had {seen[0][1]} long ago"
                )

    def _slowest_us(self, at: int, reader: SimSubscriber) -> int:
        """The longest way of any leg so far: what was asked of one that was slow is on its way a while longer."""
        now_us = max(leg.delay_us + leg.slow_us for leg in reader.legs)
        self._slowest[at] = max(self._slowest.get(at, 0), now_us)
        return self._slowest[at]

    # ------------------------------------------------------------ in the end

    def judge(self, *, lied: bool) -> str | None:
        """What is wrong with what was given out, or None. lied: one region says other digests, on purpose."""
        for reader in self._readers:
            if reader.error is not None and not (lied and isinstance(reader.error, RegionsDisagree)):
                return f"{reader.sink}: {type(reader.error).__name__}: {reader.error}"
            two = next((epoch for epoch, links in sorted(reader.told.items()) if len(links) > 1), None)
            if two is not None and reader.error is None and not self._late(reader, two):
                return f"{reader.sink}: two regions contradict each other in epoch {two}, and nobody has noticed"
            if (found := self._chain(reader.sink, [link for link, _ in reader.got], lied=lied)) is not None:
                return found
        for sink in self._group.shared.values():
            if (found := self._chain(sink.name, sink.chain, lied=lied)) is not None:
                return found
        if self._group.disagreed and not lied:
            name, error = self._group.disagreed[0]
            return f"{name}: {type(error).__name__}: {error}"
        return None

    def _late(self, reader: SimSubscriber, epoch: int) -> bool:
        """Whether it was delivered too long ago to be remembered."""
        known = reader.subscription.chain.known
        return not known or epoch <= known[0].prev

    def _chain(self, sink: str, chain: list[Link], *, lied: bool) -> str | None:
        """W2: each link follows on the one before, and says what an exact region has made."""
        before = 0
        for link in chain:
            if link.prev != before:
                return f"{sink}: epoch {link.epoch} follows on {link.prev}, and {before} was given before it"
            before = link.epoch
        exact = self._exact(sink)
        wrong = [link for link in chain if link.epoch in exact and exact[link.epoch] != link and not lied]
        if wrong:
            return f"{sink}: {wrong[0]} was given, and an exact region has made {exact[wrong[0].epoch]}"
        return None

    def _exact(self, sink: str) -> dict[int, Link]:
        found: dict[int, Link] = {}
        for region in self._group.regions:
            outlet = region.outlets.get(sink)
            if outlet is not None and not region.after:
                found |= outlet.made
        return found

    def happened(self) -> Counter[str]:
        """How often what a person sees did, in all regions."""
        worlds = [world for region in self._group.regions for world in region.lives]
        found = Counter(happened.kind for world in worlds for _, happened in world.happened)
        counts = {
            "hedged": sum(reader.subscription.hedged for reader in self._readers),
            "swapped": sum(reader.subscription.swapped for reader in self._readers),
            "fenced": sum(sink.fencings for sink in self._group.shared.values()),
            "believed": sum(region.gate.over and bool(region.gate.silences) for region in self._group.regions),
        }
        return found + Counter({f"regions {name}": count for name, count in counts.items() if count})


class Ends:
    """Whether readers and shared sinks have everything: what an exact region has made that has come to its end."""

    def __init__(self, group: SimRegions, readers: list[SimSubscriber]) -> None:
        self._group, self._readers = group, readers

    @property
    def over(self) -> bool:
        if any(reader.error is not None for reader in self._readers) or self._group.disagreed:
            return True
        return not self.missing() and not any(self._may_be_believed(region) for region in self._group.regions)

    def _may_be_believed(self, region: SimRegion) -> bool:
        """It is silent, and has not made all that there is."""
        return region.there and not region.gate.over and not all(outlet.ended for outlet in region.outlets.values())

    def missing(self) -> str:
        """What has not come, in words; empty if nothing is missing."""
        for reader in self._readers:
            if not reader.over:
                return f"{reader.sink} is read up to epoch {reader.subscription.chain.delivered} only"
        for name, sink in self._group.shared.items():
            ended = [outlet for region in self._group.regions for each, outlet in region.outlets.items() if each == name and outlet.ended]
            exact = [outlet for outlet in ended if not outlet.region.after]
            if not exact:
                return f"no region has come to the end of {name}"
            if sink.held.epoch != exact[0].withheld.prev:
                return f"sink {name} has epoch {sink.held.epoch}, and {exact[0].withheld.prev} was the last"
        return ""

    def rows(self) -> dict[str, list[pa.RecordBatch]]:
        """By sink."""
        read = {reader.sink: [rows for _, rows in reader.got] for reader in self._readers}
        return read | {name: [rows for _, rows in sink.rows] for name, sink in self._group.shared.items()}
