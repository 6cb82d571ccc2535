"""What must hold while load is balanced and sites come and go. Like the other checkers: outside the product, and they only look.

Each raises AssertionError with one sentence. They go by what the coordinator has said and been told, in the order in which it was.
"""

from __future__ import annotations

from evenflow.availability.mode import of_segment, replicas_of
from evenflow.coordinator.events import (
    Collect,
    Collected,
    CoordinatorAction,
    CoordinatorEvent,
    Happened,
    Pin,
    RebalanceRequested,
    SiteLost,
    Tell,
)
from evenflow.plan.placement import first_plan
from evenflow.plan.plan import Copy
from evenflow.policy.move import Move
from evenflow.policy.start import place_of
from evenflow.site.events import PlanProposed
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld

Replicas = dict[tuple[int, int], tuple[int, ...]]


def check_first(world: SimWorld) -> None:
    """A generation begins where its option says: what has one partition, which nothing brings together with anything else, lies there."""
    sites, replicas, scheme, first_placement = world.placed
    planned, machine = world.layout, world.coordinator
    place, modes = place_of(first_placement, planned), (machine.beginning.plans or (machine.plan,))[0].modes
    wanted = first_plan(planned, sites, replicas, scheme, place=place, modes=modes).placement
    plans = machine.beginning.plans
    began = (plans[0] if plans else machine.plan).placement
    for segment in planned.segments:
        if segment.partitions == 1 and segment.kind != "ingress":
            there, asked = began[segment.id], wanted[segment.id]
            assert there == asked, f"{segment.name} begins at sites {there[0]}, and is to by {first_placement!r} at {asked[0]}"


class BalanceCheckers(Observer):
    """rounds: reports that the coordinator has been given. asked: reports that it waits for, 0 or 1."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rounds = self.asked = 0
        machine = world.coordinator
        self._numbers = machine.plan.number, machine.membership.number
        self._replicas, self._modes = self._live(), machine.plan.modes
        _, self._most, *_ = world.placed  # Where all has amnesia at first, the first plan has one.
        self._pinned: set[tuple[int, int]] = set()
        self._left: set[int] = set()
        self._begun: set[int] = set()
        self._idle: list[int] = []
        self._waiting: set[Move] = set()
        self._homeward: set[tuple[int, int, int]] = set()
        self._travels: set[int] = set()
        self._busy = False
        # The machine has asked for its first report before anybody looks.
        self.asked = int(machine.started and machine.rounds.active)
        self._look()
        world.observers = (*world.observers, self)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if isinstance(event, Pin):
            (self._pinned.update if event.pinned else self._pinned.difference_update)(event.partitions)
        self.asked += sum(isinstance(action, Collect) for action in actions)
        if isinstance(event, Collected):
            self.rounds, self.asked = self.rounds + 1, self.asked - 1
        if driver.machine.over:
            return
        assert self.asked in (0, 1), f"the coordinator waits for {self.asked} reports at once"
        self._check_hosts(event)
        beginning = [copy for copy in moves_in(actions) if copy.number not in self._begun]
        for copy in beginning:
            move = driver.machine.moving.begun[copy.number].move
            wrong = self._pinned & {(copy.segment, partition) for partition in copy.partitions}
            assert move.asked or not wrong, f"{sorted(wrong)[0]} is pinned, and moves to site {copy.target}: {move.reason}"
        if isinstance(event, Collected | RebalanceRequested) and kinds_in(actions, "round"):
            self._check_round(event, actions, beginning)
        self._begun.update(copy.number for copy in beginning)
        self._look()

    def _look(self) -> None:
        """What the next round must respect."""
        machine = self.world.coordinator
        hosts = {site for sites in self._replicas.values() for site in sites}
        self._idle = [site for site in machine.sites if site not in hosts]
        self._waiting = set(machine.moving.wanted)
        self._homeward = {(refugee.segment, refugee.partition, refugee.heir) for refugee in machine.recovery.refugees()}
        self._travels = self._under_way()
        wanted = [replicas_of(machine.plan.mode(segment.id), self._most) for segment in machine.layout.segments]
        self._busy = machine.under_way() or any(len(live) < wanted[segment] for (segment, _), live in self._replicas.items())

    def _live(self) -> Replicas:
        view = self.world.coordinator.view
        blocks = [(segment.id, block) for segment in self.world.layout.segments for block in view.blocks(segment.id)]
        return {(segment, partition): view.live(block) for segment, block in blocks for partition in block.partitions}

    def _check_hosts(self, event: CoordinatorEvent) -> None:
        """C3, C5: a replica goes by a death, or when another site has it by a move that is done, or its mode wants fewer. A site
        that leaves is missed by nobody."""
        machine = self.world.coordinator
        numbers = machine.plan.number, machine.membership.number
        if numbers == self._numbers:
            return
        self._numbers, before, self._replicas = numbers, self._replicas, self._live()
        sites = set(machine.sites)
        retired = [copy for copy in machine.plan.copies if copy.number in machine.membership.retired]
        modes, self._modes = self._modes, machine.plan.modes
        for key, had in before.items():
            live = self._replicas[key]
            if of_segment(modes, key[0]) is not (mode := machine.plan.mode(key[0])):
                least = min(len(set(had) & sites), replicas_of(mode, self._most))
                assert len(live) >= least, f"{key} is {mode} now, and at sites {live}; it was at {had}"
                continue
            moved = {move.replaces for move in retired if key[0] == move.segment and key[1] in move.partitions and move.target in live}
            missing = (set(had) & sites) - set(live) - moved
            assert not missing, f"replicas of {key}: {had} before, {live} now; {missing} have not died, and not moved"
            assert len(live) <= self._most + 1, f"{key} has {len(live)} replicas: {live}"
        if isinstance(event, SiteLost) and event.planned:
            self._left.add(event.site)
            hosted = [key for key, had in before.items() if event.site in had]
            assert not hosted, f"site {event.site} has left, and hosted {hosted[:3]}"
            assert before == self._replicas, f"site {event.site} has left, and replicas have changed"
            assert event.site not in self._travels, f"site {event.site} has left while something was on its way to or from it"
        lost = self._left & self._under_way()
        assert not lost, f"a copy is about sites {lost}, which have left"

    def _under_way(self) -> set[int]:
        """Sites that a copy is about."""
        machine = self.world.coordinator
        proposed = machine.proposed.copies if machine.proposed is not None else ()
        copies = (*machine.membership.joining, *machine.moving.unconfirmed.values(), *proposed)
        return {site for copy in copies for site in (copy.source, copy.target, copy.replaces)}

    def _check_round(self, event: CoordinatorEvent, actions: list[CoordinatorAction], beginning: list[Copy]) -> None:
        """FL 5.3, C6: what a round proposes could be done at once, however old the numbers that it goes by; recovery comes first."""
        machine = self.world.coordinator
        if isinstance(event, Collected):
            assert not self._busy, "a round was decided while copies were under way or replicas missing"
            refused = kinds_in(actions, "move_refused")
            assert not refused, f"a round proposes what cannot be done: {refused[0]}"
        gaining: set[int] = set()
        proposed = [machine.moving.begun[copy.number].move for copy in beginning] + list(machine.moving.wanted)
        for move in proposed:
            goes_home = self._homeward.issuperset((move.segment, partition, move.target) for partition in move.partitions)
            if move.asked or move in self._waiting or goes_home:
                continue  # It is not of this round.
            for partition in move.partitions:
                live = self._replicas[move.segment, partition]
                assert move.source in live and move.target not in live, f"{move} though the replicas are at {live}"
                assert (move.segment, partition) not in self._pinned, f"{move} though partition {partition} is pinned"
            assert move.target in machine.sites and move.target not in machine.moving.leaving, f"{move} to a site that leaves or has left"
            gaining.add(move.target)
        spares = min(machine.rounds.spares, len(self._idle))
        assert len(set(self._idle) - gaining) >= spares, f"{spares} of {self._idle} are spares, and {gaining} get something"


def moves_in(actions: list[CoordinatorAction]) -> list[Copy]:
    """Moves that a plan proposed among the actions begins."""
    plans = [action.message.plan for action in actions if isinstance(action, Tell) and isinstance(action.message, PlanProposed)]
    return [copy for copy in plans[0].copies if copy.moves] if plans else []


def kinds_in(actions: list[CoordinatorAction], kind: str) -> list[str]:
    """What is told of that kind."""
    return [action.text for action in actions if isinstance(action, Happened) and action.kind == kind]
