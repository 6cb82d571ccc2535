"""Faults of a run: which, when, and at whom. Everything follows from the seed; whom a fault hits is said by role.

Unless a run is to lose partitions, every fault leaves each partition a live replica at a site that nothing is wrong with: whoever is
killed, hung or cut off is **at risk** from then on until it is certain that nobody will be declared dead for it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Happened, SiteReady, Tell
from evenflow.plan.plan import Copy
from evenflow.site.events import MembershipChanged, PlanCommitted, PlanProposed
from evenflow.stream.ids import SiteId
from evenflow.swarm.base_checkers import in_pairs, may_begin_again, one_at_a_time
from evenflow.swarm.doom import doom
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld

FOR_EVER: Final = 2**62
LOOK_US: Final = 50
LOOKS: Final = 1_000
"""How often, and how many times at most, it is looked whether a fault's moment has come."""
BRIEF_US: Final = 200_000
"""The longest that something lasts where sites are soon missed: no driver is away for as long as they live without it."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What may go wrong in a run. kinds: names of methods of `Faults`, and how often, relative to each other. every_us: mean time between.

    until_us: virtual time after the start at which the last one begins. replaced: how likely a dead site is replaced soon. moments: how
    likely something happens at a moment that matters: a plan, a copy, a take-over.
    """

    kinds: dict[str, int] = field(default_factory=dict)
    every_us: int = 50_000
    until_us: int = 300_000
    replaced: float = 0.8
    moments: float = 0.3
    longest_us: int = 400_000


class Faults(Observer):
    """random: of its own, so that the same faults fall on the same run."""

    def __init__(self, world: SimWorld, mix: Mix, random: Random, careful: bool = True) -> None:
        self.world, self.mix, self.random, self.careful = world, mix, random, careful
        self.over = False
        self.done: dict[str, int] = {}
        self._risky: dict[int, int] = {}
        self._undo: dict[int, Callable[[], None]] = {}
        self._undone = 0
        self._start_us = world.clock.now_us
        world.observers = (*world.observers, self)
        if mix.kinds:
            self._next()

    # ------------------------------------------------------------ when

    def _next(self) -> None:
        wait_us = int(self.random.expovariate(1.0) * self.mix.every_us) + 1
        self.world.clock.after(wait_us, self._strike)

    def _strike(self) -> None:
        if self.over or self.world.ended or self.world.clock.now_us - self._start_us > self.mix.until_us:
            return
        names = list(self.mix.kinds)
        self.strike(self.random.choices(names, [self.mix.kinds[name] for name in names])[0])
        self._next()

    def strike(self, name: str) -> None:
        """Let one fault of this kind happen now, if it may."""
        if getattr(self, name)():
            self.done[name] = self.done.get(name, 0) + 1

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """At moments that matter, something may happen a little later."""
        if self.over or not self.mix.kinds or not actions:
            return
        names: list[str] = []
        for action in actions:
            if isinstance(action, Happened):
                if action.kind in ("copy_begun", "move_begun"):
                    names += ["kill_source", "kill_target", "cut_copy", "hang_target", "hang_source", "spoil_transfer", "drop_copy_link"]
                    names += ["delay_source", "delay_target", "delay_source"]
                elif action.kind in ("copy_live", "redundancy"):
                    names += ["kill_joined", "drop_link", "kill"]
                elif action.kind in ("site_lost", "take_over"):
                    names += ["kill_successor", "kill", "hang_successor", "drop_link", "kill_two"]
                elif action.kind == "site_joined":
                    names += ["kill_newest", "drop_link", "hang_newest"]
            elif isinstance(action, Tell) and isinstance(action.message, PlanProposed | PlanCommitted | MembershipChanged):
                names += ["kill", "drop_link", "cut_pair", "cut_control", "kill_leader", "strand_leader", "delay_news", "pause_driver"]
        if names and self.random.random() < self.mix.moments:
            name = self.random.choice(names)
            self.world.clock.after(self.random.randint(0, self.random.choice([100, 2_000, 20_000])), lambda: self._at_moment(name))

    def _at_moment(self, name: str) -> None:
        if not self.over and not self.world.ended:
            self.strike(name)

    def end(self) -> None:
        """No more faults; those that last are over, in the order in which they began."""
        self.over = True
        undo, self._undo = self._undo, {}
        for do in undo.values():
            do()

    def lasting(self, seconds_us: int, undo: Callable[[], None]) -> None:
        """Undo it after a while, or when all faults end."""
        self._undone += 1
        number = self._undone
        self._undo[number] = undo

        def now() -> None:
            if self._undo.pop(number, None) is not None and not self.world.ended:
                undo()

        self.world.clock.after(seconds_us, now)

    def length(self) -> int:
        return int(self.random.choice([0.02, 0.2, 1.0]) * self.mix.longest_us * (0.2 + 0.8 * self.random.random()))

    # ------------------------------------------------------------ whom

    def living(self) -> list[int]:
        """Sites of the run that are well."""
        world = self.world
        return [i for i in world.coordinator.sites if world.sites[i].alive and not world.sites[i].hung and i in world.driver.present]

    def at_risk(self, site: int) -> bool:
        return self._risky.get(site, 0) > self.world.clock.now_us

    def may_lose(self, victims: Iterable[int], though: Sequence[int] = ()) -> bool:
        """Whether every partition keeps a replica that nothing is wrong with. though: what is wrong with these does not lose them."""
        if not self.careful:
            return True
        if not self.world.detection.patience.votes:
            return False  # Where nothing is replicated a silent death, even of an empty site, is noticed after half a minute only.
        lost, view, sites = set(victims), self.world.coordinator.view, self.world.sites
        retiring = self.world.coordinator.moving.unconfirmed.values()
        if not may_begin_again(self.world):
            return False
        others = [site for site in view.membership.sites if site not in lost and site not in though]
        if one_at_a_time(self.world) and (len(lost) > 1 or any(self.at_risk(site) or not sites[site].alive for site in others)):
            return False
        for segment in in_pairs(self.world):
            for block in view.blocks(segment.id):
                # The answer of a move's target may be on its way: what it replaces may go at any moment.
                going = {c.replaces for c in retiring if c.segment == segment.id and not set(c.partitions).isdisjoint(block.partitions)}
                if not any(s not in lost | going and sites[s].alive and (s in though or not self.at_risk(s)) for s in view.live(block)):
                    return False
        return any(site not in lost and (site in though or not self.at_risk(site)) for site in self.living())

    def risk(self, sites: Iterable[int], for_us: int) -> None:
        patience = self.world.detection.patience
        until_us = for_us if for_us == FOR_EVER else self.world.clock.now_us + for_us + 3 * patience.silent_us + 2 * patience.grace_us
        for site in sites:
            self._risky[site] = max(self._risky.get(site, 0), until_us)

    def _pick(self, candidates: Iterable[int], though: Sequence[int] = ()) -> int | None:
        """One that may be lost."""
        able = [site for site in sorted(set(candidates)) if site in self.living() and self.may_lose((site,), though)]
        return self.random.choice(able) if able else None

    def _copy(self) -> Copy | None:
        under_way = self.world.coordinator.membership.joining
        return self.random.choice(under_way) if under_way else None

    def _leaders(self) -> list[int]:
        return [leader.site for row in self.world.coordinator.membership.leaders for leader in row]

    def _successors(self) -> list[int]:
        """Leaders of the newest term."""
        leaders = [leader for row in self.world.coordinator.membership.leaders for leader in row]
        newest = max(leader.since for leader in leaders)
        return [leader.site for leader in leaders if leader.since == newest]

    def lose_for_good(self, site: int) -> None:
        """It is as good as dead from now on: nobody else may be lost with whom a partition would be."""
        self.risk([site], FOR_EVER)

    # ------------------------------------------------------------ deaths

    def _kill(self, victims: list[int | None], though: Sequence[int] = ()) -> bool:
        known = sorted({site for site in victims if site is not None})
        if not known or not self.may_lose(known, though):
            return False
        self.risk(known, FOR_EVER)
        for site in known:
            self.world.kill(site, silently=self.random.random() < 0.15)
            if self.random.random() < self.mix.replaced:
                self.world.clock.after(self.random.randint(1_000, 150_000), self._replace)
        return True

    def _replace(self) -> None:
        if not self.world.ended and not self.over:
            self.world.add_site()

    def kill(self) -> bool:
        return self._kill([self._pick(self.living())])

    def kill_two(self) -> bool:
        living = self.living()
        return len(living) > 2 and self._kill(list(self.random.sample(living, 2)))

    def kill_leader(self) -> bool:
        return self._kill([self._pick(self._leaders())])

    def strand_leader(self) -> bool:
        """What a leader says last reaches only some of its followers: it dies soon after the way to one is cut."""
        leader = self._pick(self._leaders())
        followers = sorted({peer for peer in self.living() if peer != leader})
        if leader is None or not followers:
            return False
        wire = (leader, self.random.choice(followers))
        self.world.cut(wire)
        self.lasting(self.random.randint(10_000, 50_000), lambda: self.world.heal(wire))
        self.risk([leader], FOR_EVER)

        def kill() -> None:
            # A move may have retired another replica meanwhile, which was not at risk.
            if self.world.sites[leader].alive and not self.world.ended and self.may_lose((leader,)):
                self.world.network.lose(*wire, by=leader)
                self.world.kill(leader)

        self.world.clock.after(self.random.randint(100, 5_000), kill)
        return True

    def hide_settled(self) -> bool:
        """Of three replicas, one does not hear its leader's last word of what all hold; another one has emitted that and forgotten its
        record, when the leader dies."""
        leaders = self.world.coordinator.membership.leaders
        led = [(segment, p, leader.site) for segment, row in enumerate(leaders) for p, leader in enumerate(row)]
        able = [(s, p, site) for s, p, site in led if len(self._members(s, p)) > 2 and self._pick([site]) is not None]
        if not able:
            return False
        segment, partition, leader = self.random.choice(able)
        keeper, *others = [site for site in self._members(segment, partition) if site != leader]  # The first by rank will lead.
        deaf = self.random.choice(others)
        self.risk([leader], FOR_EVER)
        self._await_settled((segment, partition), leader, keeper, deaf, tries=LOOKS)
        return True

    def _members(self, segment: int, partition: int) -> list[int]:
        living = self.living()
        return [s for s in self.world.coordinator.view.members(segment, partition) if s in living]

    def _await_settled(self, key: tuple[int, int], leader: int, keeper: int, deaf: int, tries: int) -> None:
        """Look again and again whether what `hide_settled` waits for is so; kill the leader then, or in the end."""
        world = self.world
        if self.over or world.ended or not world.sites[leader].alive:
            world.heal((leader, deaf))
            return
        kept, lacking = (world.sites[site].part.leading.logs.get(key) for site in (keeper, deaf))
        if not tries or kept is None or lacking is None:
            self._kill_for_certain(leader, (leader, deaf))
            return
        unsure = lacking.settled < lacking.matched  # It holds a record of which it does not know yet that all do.
        if unsure and world.network.wires[leader, deaf].cut and kept.done > lacking.settled:
            self._kill_for_certain(leader, (leader, deaf))
            return
        (world.cut if unsure else world.heal)((leader, deaf))
        world.clock.after(LOOK_US, lambda: self._await_settled(key, leader, keeper, deaf, tries - 1))

    def _kill_for_certain(self, site: int, wire: tuple[int, int]) -> None:
        """What is on this wire never comes."""
        if self.may_lose((site,)):  # See `strand_leader`.
            self.world.network.lose(*wire, by=site)
            self.world.kill(site)
        self.world.heal(wire)

    def lose(self, site: int, though: Sequence[int] = ()) -> bool:
        """This one dies, if it may. though: see `may_lose`."""
        return self._kill([self._pick([site], though)], though)

    def kill_successor(self) -> bool:
        return self._kill([self._pick(self._successors())])

    def kill_source(self) -> bool:
        copy = self._copy()
        return copy is not None and self._kill([self._pick([copy.source])])

    def kill_target(self) -> bool:
        copy = self._copy()
        return copy is not None and self._kill([self._pick([copy.target])])

    def kill_copy(self) -> bool:
        """Source and target at once."""
        copy = self._copy()
        return copy is not None and {copy.source, copy.target} <= set(self.living()) and self._kill([copy.source, copy.target])

    def kill_joined(self) -> bool:
        """A site that has just got a replica, or the one that it has it from."""
        copies = self.world.coordinator.plan.copies
        return bool(copies) and self._kill([self._pick([site for copy in copies for site in (copy.source, copy.target)])])

    def kill_newest(self) -> bool:
        return self._kill([self._pick([max(self.living(), default=-1)])])

    def join(self) -> bool:
        """A site that nobody has asked for."""
        if len(self.living()) > 8:
            return False
        self.world.add_site()
        return True

    # ------------------------------------------------------------ hangs and slow sites

    def _hang(self, site: int | None) -> bool:
        if site is None:
            return False
        length_us = self.length()
        self.risk([site], length_us)
        self.world.hang(site)
        self.lasting(length_us, lambda: self.world.go_on(site))
        return True

    def hang(self) -> bool:
        return self._hang(self._pick(self.living()))

    def hang_successor(self) -> bool:
        return self._hang(self._pick(self._successors()))

    def hang_newest(self) -> bool:
        return self._hang(self._pick([max(self.living(), default=-1)]))

    def hang_source(self) -> bool:
        copy = self._copy()
        return copy is not None and self._hang(self._pick([copy.source]))

    def hang_target(self) -> bool:
        copy = self._copy()
        return copy is not None and self._hang(self._pick([copy.target]))

    def slow(self) -> bool:
        living = self.living()
        if not living:
            return False
        site = self.random.choice(living)
        self.world.slow_down(site, self.random.choice([3.0, 10.0, 50.0]))
        self.lasting(self.length(), lambda: self.world.slow_down(site, 1.0))
        return True

    # ------------------------------------------------------------ links

    def _two(self) -> tuple[int, int] | None:
        living = self.living()
        return None if len(living) < 2 else tuple(self.random.sample(living, 2))  # type: ignore[return-value]

    def drop_link(self) -> bool:
        two = self._two()
        if two is None:
            return False
        self.world.drop_link(*two)
        return True

    def drop_copy_link(self) -> bool:
        copy = self._copy()
        if copy is None or not {copy.source, copy.target} <= set(self.living()):  # What is made again of rows upstream has no source.
            return False
        self.world.drop_link(copy.source, copy.target)
        return True

    def slow_link(self) -> bool:
        two = self._two()
        if two is None:
            return False
        self.world.slow_link(*two, self.random.choice([1_000, 10_000]))
        self.lasting(self.length(), lambda: self.world.slow_link(*two, 0))
        return True

    def _cut(self, wires: list[tuple[int, int]], suspects: Iterable[int]) -> bool:
        suspects = list(suspects)
        if not wires or not self.may_lose(suspects):
            return False
        length_us = self.length()
        self.risk(suspects, length_us)
        self.world.cut(*wires)
        self.lasting(length_us, lambda: self.world.heal(*wires))
        return True

    def _directions(self, a: int, others: Iterable[int]) -> list[tuple[int, int]]:
        out, back = [(a, b) for b in others], [(b, a) for b in others]
        return self.random.choice([out, back, out + back])

    def cut_pair(self) -> bool:
        two = self._two()
        return two is not None and self._cut(self._directions(two[0], [two[1]]), two)

    def cut_copy(self) -> bool:
        copy = self._copy()
        if copy is None or not {copy.source, copy.target} <= set(self.living()):
            return False
        return self._cut(self._directions(copy.source, [copy.target]), (copy.source, copy.target))

    def isolate(self) -> bool:
        """One site from all its peers, one way or both."""
        site = self._pick(self.living())
        if site is None:
            return False
        return self._cut(self._directions(site, [peer for peer in self.world.network.peers(site) if self.world.sites[peer].alive]), [site])

    def cut_control(self) -> bool:
        """One site from the coordinator, one way or both."""
        site = self._pick(self.living())
        if site is None:
            return False
        length_us = self.length()
        self.risk([site], length_us)
        up, down = self.random.choice([(True, True), (True, False), (False, True)])
        self.world.cut_control(site, up=up, down=down)
        self.lasting(length_us, lambda: self.world.heal_control(site))
        return True

    def _delay(self, site: int) -> bool:
        """A site that its peers hear is not declared dead for a silence that is shorter than four beats."""
        up = self.random.random() < 0.5
        self.world.cut_control(site, up=up, down=not up)
        beats = self.random.choice([1, 3])
        self.lasting(self.random.randint(100, beats * self.world.detection.patience.beat_us), lambda: self.world.heal_control(site))
        return True

    def delay_news(self) -> bool:
        """What the coordinator says reaches one site late, or what that says, for a moment too short to be noticed."""
        living = self.living()
        return bool(living) and self._delay(self.random.choice(living))

    def delay_source(self) -> bool:
        copy = self._copy()
        return copy is not None and copy.source in self.living() and self._delay(copy.source)

    def delay_target(self) -> bool:
        copy = self._copy()
        return copy is not None and copy.target in self.living() and self._delay(copy.target)

    def drop_control(self) -> bool:
        site = self._pick(self.living())
        if site is None:
            return False
        length_us = self.random.randint(500, self.world.detection.patience.grace_us)
        self.risk([site], length_us)
        self.world.drop_control(site, length_us / 1e6)
        return True

    # ------------------------------------------------------------ the driver, transfers, plans

    def pause_driver(self) -> bool:
        if self.world.driver.paused:
            return False
        self.world.pause_driver(self.length() / 1e6)
        return True

    def block_sinks(self) -> bool:
        self.world.block_sinks(self.length() / 1e6)
        return True

    def spoil_transfer(self) -> bool:
        self.world.transfer_fates.append(self.random.choice(["corrupt", "lost"]))
        return True

    def repeat_news(self) -> bool:
        """What a site or the coordinator knows already, it is told again."""
        living = self.living()
        if not living or self.world.driver.paused:
            return False
        site, driver, machine = self.random.choice(living), self.world.driver, self.world.coordinator
        driver.tell(site, PlanCommitted(machine.plan))
        driver.tell(site, MembershipChanged(machine.membership))
        driver.coordinate(SiteReady(SiteId(site)))
        return True

    def change_plan(self) -> bool:
        self.world.change_plan()
        return True

    # ------------------------------------------------------------ beyond what survives

    def doom(self) -> bool:
        doom(self.world, self.random)
        return True


DEATHS: Final = {
    "kill": 4, "kill_two": 2, "kill_leader": 2, "strand_leader": 2, "hide_settled": 2, "kill_source": 1, "kill_target": 1, "kill_copy": 2,
}  # fmt: skip
HANGS: Final = {"hang": 3, "slow": 2, "hang_source": 1, "hang_target": 1}
CUTS: Final = {"drop_link": 4, "cut_pair": 2, "isolate": 2, "cut_control": 2, "slow_link": 1, "drop_control": 1, "delay_news": 2}
DRIVER: Final = {"pause_driver": 1, "block_sinks": 1, "change_plan": 2, "join": 1, "spoil_transfer": 1, "repeat_news": 1}
HARMLESS: Final = {
    "slow": 2, "drop_link": 4, "slow_link": 2, "pause_driver": 1, "block_sinks": 1, "change_plan": 3, "delay_news": 2, "spoil_transfer": 1,
    "repeat_news": 1,
}  # fmt: skip
"""For runs without replicas: nobody dies of these."""
