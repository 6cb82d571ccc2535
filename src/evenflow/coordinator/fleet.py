"""The sites of an engine: who comes, who is there, who leaves, who is dead, and in which order everybody hears of it.

    what comes                            what follows, in this order
    a site says hello for the first time  it is refused, or it gets an index that nobody had; everybody gets a roster with it
    a known site says hello again         its line goes on
    a site has reached all its peers      every run that is under way begins a part there
    a run begins                          it loses the sites that have gone meanwhile; the others begin their parts
    a site is dead (`detector`, V4)       it is told to leave; the others get a roster without it; the runs hear of it (V1)
    a site is to leave                    the runs empty it; when none has anything there it goes, as one that is dead goes
    a site is to stay after all           the runs may use it again; one that does not know it learns of it

An index is never given twice, so what follows on a death is final. This file knows no clock, no socket and no thread: every event that
needs a time carries it. A world carries out each action before it asks for the next one, since what a run does about one decides the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from evenflow.coordinator.detector import (
    ControlBack,
    ControlLost,
    Detector,
    DetectorEvent,
    Joined,
    Patience,
    PatienceChanged,
)
from evenflow.coordinator.events import Absence, DrainSite, SiteLost
from evenflow.coordinator.machine import RunMachine
from evenflow.coordinator.operations import is_empty, obstacles
from evenflow.errors import OperationRefused
from evenflow.stream.ids import SiteId

ANYWHERE: Final = ("?", "driver")
"""What is said of the executor where none is known."""

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What a site says of itself, and the world of it.

    job: Spark's, which started it. executor: its id. identity: of the executor's process, which two sites never share. incarnation: of
    the site's own. described: where it runs, for a person.
    """

    job: int = 0
    executor: str = "?"
    identity: str = ""
    incarnation: str = ""
    described: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """A site connects. site: what the driver has called it before, None if it has not."""

    newcomer: Newcomer
    at_us: int
    site: int | None = None


@dataclass(frozen=True, slots=True)
class Linked:
    """A site has reached every peer in the roster of that number."""

    site: int
    roster: int


@dataclass(frozen=True, slots=True)
class RunBegun:
    """A run is to begin on the sites that its machine names. name: for a person."""

    run: int
    name: str
    machine: RunMachine
    at_us: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Nobody waits for anything of the run any more."""

    run: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Drain:
    """These sites leave as soon as nobody misses them."""

    sites: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stay:
    """These sites do not leave after all."""

    sites: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Time has passed: a site that leaves may be empty now, or a run may have begun that does not know."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """The engine ends: all sites leave, and those that are still to come."""

    why: str


FleetEvent = Hello | Linked | RunBegun | RunEnded | Drain | Stay | Look | Dismiss | DetectorEvent

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell who has just said hello to leave. again: another executor may do."""

    why: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Who has just said hello is a site now, with this index."""

    site: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Who has just said hello is this site: its line goes on over the new connection."""

    site: int


@dataclass(frozen=True, slots=True)
class SendRoster:
    """Tell every site who is there."""

    number: int
    sites: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LetGo:
    """Tell a site to leave, and forget it."""

    site: int
    why: str


@dataclass(frozen=True, slots=True)
class LetAllGo:
    """Tell every site to leave; each is forgotten when it has gone."""

    why: str


@dataclass(frozen=True, slots=True)
class BeginPart:
    """Let a site build its part of a run."""

    run: int
    site: int


@dataclass(frozen=True, slots=True)
class TellRun:
    """Give a run's machine this event."""

    run: int
    event: SiteLost | DrainSite


@dataclass(frozen=True, slots=True)
class SiteCame:
    """For those who wait: a site has reached all its peers, and the runs have heard of it."""

    site: int


@dataclass(frozen=True, slots=True)
class SiteGone:
    """For those who wait: a site has gone, and the runs have heard of it."""

    site: int
    why: str


@dataclass(frozen=True, slots=True)
class SetPace:
    """Life signs come at another pace from now on."""

    patience: Patience


FleetAction = Refuse | TakeIn | Resume | SendRoster | LetGo | LetAllGo | BeginPart | TellRun | SiteCame | SiteGone | SetPace

# ---------------------------------------------------------------- the machine


@dataclass(slots=True)
class Member:
    """A site that is there. since: number of the first roster with it. linked: it has reached all its peers."""

    index: int
    newcomer: Newcomer
    since: int
    linked: bool = False


class Fleet:
    """wanted: how many sites there shall be. patience: with sites while a run is active. idle: while none is. lease_us: how long
    sites live without the driver; None: as in `patience`.

    sites: that are there, by index. leaving: those that are being emptied; when one goes, whatever the reason, one less is wanted. runs:
    name and machine of each that has not ended. unwanted: jobs whose site has gone; Spark may start them again, but what comes of it is
    refused. released: those of them whose site went as planned. shunned: executors that are given back; they get no site again.
    """

    def __init__(self, wanted: int, patience: Patience, idle: Patience | None = None, lease_us: int | None = None) -> None:
        self.wanted, self._active, self._idle = wanted, patience, idle or patience
        self.sites: dict[int, Member] = {}
        self.runs: dict[int, tuple[str, RunMachine]] = {}
        self.leaving: list[int] = []
        self.unwanted: set[int] = set()
        self.released: set[int] = set()
        self.shunned: set[str] = set()
        self.dismissed: str | None = None
        self.detector = Detector(self._idle, self.vital, lease_us or self._idle.lease_us)
        self._next = self._rosters = 0

    def __repr__(self) -> str:
        return f"fleet of {list(self.sites)}, {self.wanted} wanted, leaving {self.leaving}"

    @property
    def patience(self) -> Patience:
        """With sites, now."""
        return self.detector.patience

    def enough(self, sites: int) -> bool:
        """That many sites, or more, are there and have reached their peers. From any thread."""
        return sum(site.linked for site in list(self.sites.values())) >= sites

    def vital(self, site: int, silent: Collection[int] = ()) -> bool:
        """Some run cannot go on without this site, if the silent ones are gone too."""
        return any(not machine.over and machine.vital(SiteId(site), silent) for _, machine in self.runs.values())

    def needed(self, site: int, but: int) -> bool:
        """Some other run would end with this site."""
        others = [machine for number, (_, machine) in self.runs.items() if number != but and not machine.over and site in machine.sites]
        return not all(machine.outlives(SiteId(site)) for machine in others)

    def handle(self, event: FleetEvent) -> Iterator[FleetAction]:
        """Take one event. Yields what follows: each is to be carried out before the next one is asked for, and all of them are."""
        match event:
            case Hello():
                return self._welcome(event)
            case Linked():
                return self._link(event)
            case RunBegun():
                return self._begin(event)
            case RunEnded(run, at_us):
                self.runs.pop(run, None)
                return self._set_pace(at_us)
            case Drain(sites):
                self.leaving += [site for site in sites if site in self.sites and site not in self.leaving]
                return iter(())
            case Stay(sites):
                return self._stay(sites)
            case Look():
                return self._look()
            case Dismiss(why):
                self.dismissed = why
                return iter((LetAllGo(why),))
            case ControlLost(site, _, why) if self.dismissed is not None:
                return self._let_go(site, why) if site in self.sites else iter(())
            case _:
                return self._observe(event)

    # ------------------------------------------------------------ who comes

    def _welcome(self, hello: Hello) -> Iterator[FleetAction]:
        newcomer, again = hello.newcomer, self.sites.get(hello.site) if hello.site is not None else None
        if self.dismissed is not None:
            yield Refuse(self.dismissed)  # Its task was still starting, or has been started again.
        elif hello.site is not None and (again is None or again.newcomer.incarnation != newcomer.incarnation):
            yield Refuse("it has been declared dead")
        elif again is None and (why := self._refusal(newcomer)):
            yield Refuse(why, again=True)
        elif again is not None:
            yield Resume(again.index)
            yield from self._observe(ControlBack(again.index, hello.at_us))
        else:
            index, self._next = self._next, self._next + 1
            self.sites[index] = Member(index, newcomer, self._rosters + 1)
            yield TakeIn(index)
            yield from self._observe(Joined(index, hello.at_us))
            yield from self._observe(ControlBack(index, hello.at_us))
            yield self._roster()

    def _refusal(self, newcomer: Newcomer) -> str:
        """Why a newcomer cannot stay, "" if it can: placement by Spark is soft, and a lost task may come back beside its successor."""
        if newcomer.job in self.unwanted:
            return "its job has been given up"
        if newcomer.executor in self.shunned:
            return "its executor is given back"
        twin = next((i for i, site in self.sites.items() if site.newcomer.identity == newcomer.identity), None)
        if twin is not None:
            return f"site {twin} is on the same executor"
        return f"there are {self.wanted} sites already" if len(self.sites) >= self.wanted else ""

    def _roster(self) -> SendRoster:
        self._rosters += 1
        return SendRoster(self._rosters, tuple(self.sites))

    def _link(self, linked: Linked) -> Iterator[FleetAction]:
        """Runs that are under way may want a newcomer."""
        site = self.sites.get(linked.site)
        if site is None or site.linked or linked.roster < site.since:
            return
        site.linked = True
        for run in list(self.runs):
            yield from self._join(run, site.index)
        yield SiteCame(site.index)

    def _join(self, run: int, site: int) -> Iterator[FleetAction]:
        if run in self.runs:
            _, machine = self.runs[run]
            if not machine.over and site not in machine.sites:
                yield BeginPart(run, site)

    # ------------------------------------------------------------ runs

    def _begin(self, begun: RunBegun) -> Iterator[FleetAction]:
        run, machine = begun.run, begun.machine
        self.runs[run] = (begun.name, machine)
        machine.needed_elsewhere = lambda site: self.needed(site, but=run)
        yield from self._set_pace(begun.at_us)
        for site in machine.sites:
            if site not in self.sites and not machine.over:
                yield TellRun(run, SiteLost(site, "it went before the run began"))
        if machine.over:
            return
        for site in machine.sites:
            yield BeginPart(run, site)
        for there, member in list(self.sites.items()):
            # The others are newcomers: the run hears of them when they have reached their peers; or they are about to leave.
            if member.linked and there not in self.leaving:
                yield from self._join(run, there)

    def _set_pace(self, at_us: int) -> Iterator[FleetAction]:
        """Life signs are quick while a run is active, and nobody is blamed for what the change does to them."""
        patience = self._active if self.runs else self._idle
        if self.patience is not patience:
            yield from self._observe(PatienceChanged(patience, at_us))
            yield SetPace(patience)

    # ------------------------------------------------------------ who goes

    def _observe(self, event: DetectorEvent) -> Iterator[FleetAction]:
        for verdict in self.detector.handle(event):
            yield from self._let_go(verdict.site, verdict.why, absence=verdict.absence)

    def _let_go(self, index: int, why: str, *, planned: bool = False, absence: Absence | None = None) -> Iterator[FleetAction]:
        """The site is dead, for ever; or it has been emptied and goes as planned (decision 22)."""
        site = self.sites.pop(index)
        newcomer = site.newcomer
        self.detector.forget(index)
        self.unwanted.add(newcomer.job)
        if index in self.leaving:
            self.leaving.remove(index)
            self.wanted -= 1
            self.shunned |= {newcomer.executor}.difference(ANYWHERE)
        if planned:
            self.released.add(newcomer.job)
        yield LetGo(index, why if planned else f"it has been declared dead: {why}")
        if self.dismissed is None:
            yield self._roster()
        told = f"{newcomer.described}: {why}" if newcomer.described else why
        for run in list(self.runs):
            yield TellRun(run, SiteLost(SiteId(index), told, planned, absence=absence))
        if self.dismissed is None:
            yield SiteGone(index, why)

    # ------------------------------------------------------------ who leaves as planned

    def check_drain(self, sites: Sequence[int], replicas: int) -> None:
        """Raise OperationRefused, with the reason and what to do, if not all of these sites can leave."""
        there = sorted(self.sites)
        for site in sites:
            if site not in self.sites:
                raise OperationRefused(f"there is no site {site}; there are {', '.join(map(str, there))}")
        left = [site for site in there if site not in sites and self.sites[site].linked]
        if len(left) < replicas:
            raise OperationRefused(
                f"{named(sites)} cannot leave: {len(left)} would be left, and {replicas} replicas of every partition need as many sites. "
                "Add one first, with add_sites(1)"
            )
        found = [f"{name}: {each}" for name, machine in self.runs.values() for site in sites for each in obstacles(machine, SiteId(site))]
        if found:
            raise OperationRefused(f"{named(sites)} cannot leave, since not everything there can move. {'; '.join(found)}")

    def hosted(self, site: int) -> int:
        """How many replicas all runs together have at a site."""
        return sum(machine.view.load()[SiteId(site)] for _, machine in self.runs.values())

    def _look(self) -> Iterator[FleetAction]:
        for site in list(self.leaving):
            if site not in self.sites:
                continue
            for run, (_, machine) in list(self.runs.items()):
                if machine.running and site in machine.sites and site not in machine.moving.leaving:
                    yield TellRun(run, DrainSite(SiteId(site)))
            if all(is_empty(machine, SiteId(site)) for _, machine in self.runs.values()):
                yield from self._let_go(site, "it was drained", planned=True)

    def _stay(self, sites: tuple[int, ...]) -> Iterator[FleetAction]:
        self.leaving = [site for site in self.leaving if site not in sites]
        for run, (_, machine) in list(self.runs.items()):
            for site in sites:
                if site in machine.sites:
                    yield TellRun(run, DrainSite(SiteId(site), stays=True))
                elif site in self.sites:
                    yield from self._join(run, site)


def named(sites: Sequence[int]) -> str:
    return f"site {sites[0]}" if len(sites) == 1 else f"sites {', '.join(map(str, sites))}"
