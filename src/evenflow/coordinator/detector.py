"""Who is dead: the coordinator's judgement from what it hears and from what the sites say of each other (protocol V4, T1).

A site is *accused* by a peer that has lost the link to it or has not heard it for `misses` beats. A *voter* is a site whose connection to
the coordinator stands and that has spoken lately. A death needs two voices, of which the coordinator's own observation is one, or most of
at least two voters; a single peer's word is never enough, because a broken link is not a dead site. While most of the others are silent
too, it is rather the machine or the network that holds its breath, so silence is dead only after `BREATH` times as long.

    what the coordinator sees              what else it takes                              verdict after
    its connection ended                   most voters accuse it                           at once
    its connection ended                   Spark has removed its executor                  at once
    its connection ended                   it has not come back: its peers are not asked   grace_us
                                           while a run cannot do without it if
                                           all who are silent are dead
    silent for `misses` beats              most voters accuse it                           at once; `BREATH` times as
                                                                                           long if most others are silent
    silent for `misses` beats              nothing: its peers hear it, or a run cannot     lease_us
                                           do without it if all who are silent are dead
    it speaks                              most voters cannot talk with it, or it          outvoted_us, one site at a time, and never
                                           with them, all the time                         one that a run cannot do without
                                                                                           if all who are silent are dead

Silence is measured by a site's own habits: one whose beats are late by nature is silent after `TOLERANCE` times its lateness, and what it
and a peer say of each other counts no sooner, since each hears the other late. Who said that user code may hold its interpreter, and has no
habits yet, is not silent before `busy_us`. A judge that was asleep itself (a tick came late) judges nobody before it has listened for a
beat, and grants every deadline afresh. Indices of sites are never used twice, so a verdict is final.

This file knows no clock: every event carries the time at which it came, in microseconds of one clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from evenflow.coordinator.events import Absence

# ---------------------------------------------------------------- events and verdicts


@dataclass(frozen=True, slots=True)
class Joined:
    """A site has said hello."""

    site: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Spoke:
    """A site has said anything at all."""

    site: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Beat:
    """A site lives.

    accused: peers to which it has lost the link or that it has not heard for `misses` beats, which replaces what it said before. busy: what
    may keep it from speaking for a while; None for nothing. late_us: by how much its beats have been late lately at most, whatever kept
    it; None while it does not know that yet.
    """

    site: int
    at_us: int
    accused: tuple[int, ...] = ()
    busy: str | None = None
    late_us: int | None = None


@dataclass(frozen=True, slots=True)
class ControlLost:
    """The connection to a site has ended. why: for the verdict's text."""

    site: int
    at_us: int
    why: str = "its connection to the driver has ended"


@dataclass(frozen=True, slots=True)
class ControlBack:
    """The site has connected again."""

    site: int
    at_us: int


@dataclass(frozen=True, slots=True)
class ExecutorRemoved:
    """Spark says that the executor of the site is gone."""

    site: int
    at_us: int


@dataclass(frozen=True, slots=True)
class SiteEnded:
    """The site has said itself that it ends. why: what it said."""

    site: int
    at_us: int
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. Due every `beat_us`; one that is late says that the judge was asleep."""

    at_us: int


@dataclass(frozen=True, slots=True)
class PatienceChanged:
    """From now on sites beat at another pace, and are waited for accordingly. Every deadline is granted afresh."""

    patience: Patience
    at_us: int


DetectorEvent = PatienceChanged | Joined | Spoke | Beat | ControlLost | ControlBack | ExecutorRemoved | SiteEnded | Tick


@dataclass(frozen=True, slots=True)
class Dead:
    """The coordinator's verdict, for ever. why: for the user. absence: the judge's own, just before, if no site could have outlived it."""

    site: int
    why: str
    absence: Absence | None = None


# ---------------------------------------------------------------- how long to wait


@dataclass(frozen=True, slots=True)
class Patience:
    """Microseconds, except misses. votes: peers are asked; without them only the coordinator's own observation counts.

    late_us: a tick that comes so much after it was due shows that the judge was asleep.
    """

    beat_us: int = 50_000
    misses: int = 4
    grace_us: int = 250_000
    lease_us: int = 10_000_000
    busy_us: int = 10_000_000
    late_us: int = 100_000
    votes: bool = True

    @property
    def silent_us(self) -> int:
        return self.beat_us * self.misses

    @property
    def outvoted_us(self) -> int:
        """A site that has just fallen silent must have had the time to be silent."""
        return max(self.grace_us, self.silent_us)


REPLICATED: Final = Patience()
IDLE: Final = Patience(beat_us=250_000, late_us=500_000)
"""While no run is active, a life sign costs more than it is worth."""
UNREPLICATED: Final = Patience(1_000_000, misses=60, grace_us=0, lease_us=60_000_000, busy_us=60_000_000, late_us=2_000_000, votes=False)
"""Where a death ends a run nobody dies needlessly; and where a connection has ended there is nothing that a grace could save."""


EXCUSED_US: Final = 5_000_000
"""Deaths that are noticed so soon after the judge has come back from a long absence are due to that."""
NAMED: Final = 5
"""So many sites are named in a verdict; of more only the number is said."""
TOLERANCE: Final = 5
"""How many times as late as ever lately a site's beat may be."""
BREATH: Final = 4
"""How many times as long as else a site may be silent while most of the others are silent too."""


@dataclass(slots=True)
class Watched:
    """A site. lost_us: since when its connection is gone. outvoted_us: since when most voters and it cannot talk with each other."""

    heard_us: int
    accused: tuple[int, ...] = ()
    busy: str | None = None
    late_us: int | None = None
    lost_us: int | None = None
    lost_why: str = ""
    removed: bool = False
    outvoted_us: int | None = None


def nobody(site: int, silent: Collection[int] = ()) -> bool:
    return False


class Detector:
    """See the module. vital(site, silent): a run would lose the last replica of a partition with it, if these were gone too. lease_us: how
    long sites live without the coordinator; None: as in `patience`."""

    def __init__(
        self, patience: Patience = REPLICATED, vital: Callable[[int, Collection[int]], bool] = nobody, lease_us: int | None = None
    ) -> None:
        self.patience, self._vital, self._lease_us = patience, vital, lease_us or patience.lease_us
        self._absence: Absence | None = None
        self._back_us = 0
        self.sites: dict[int, Watched] = {}
        self._due_us: int | None = None
        self._deaf_until_us = 0

    def __repr__(self) -> str:
        return f"detector of sites {list(self.sites)}, suspects {self.suspects}"

    @property
    def suspects(self) -> list[int]:
        """Sites of which Spark's opinion would be worth having: their connection is gone."""
        return [index for index, site in self.sites.items() if site.lost_us is not None]

    def handle(self, event: DetectorEvent) -> Iterator[Dead]:
        """Take one event. Yields the deaths that follow from it; the dead are forgotten.

        The next one is judged when the last has been announced: who is vital, and who votes, depends on it.
        What is said of a site that is not there (any more) is ignored: it is dead, and its last words may come late (V3).
        """
        self._note_time(event)
        if isinstance(event, Joined):
            self.sites[event.site] = Watched(event.at_us)
        elif isinstance(event, PatienceChanged):
            self.patience = event.patience
            self._grant(event.at_us)
        elif not isinstance(event, Tick):
            site = self.sites.get(event.site)
            if site is None:
                return iter(())
            if isinstance(event, SiteEnded):
                del self.sites[event.site]
                return iter((self._excused(Dead(event.site, event.why), event.at_us),))
            if isinstance(event, Spoke) or (isinstance(event, Beat) and (site.accused, site.busy) == (event.accused, event.busy)):
                site.heard_us = event.at_us
                if isinstance(event, Beat):
                    site.late_us = event.late_us
                return iter(())  # Nobody is worse off for it than at the last tick.
            self._note(site, event)
        return self._judge(event.at_us, isinstance(event, Tick))

    def forget(self, site: int) -> None:
        """It is gone for reasons of its own."""
        self.sites.pop(site, None)

    # ------------------------------------------------------------ what is known

    def _note_time(self, event: DetectorEvent) -> None:
        now_us, patience = event.at_us, self.patience
        if self._due_us is not None and now_us > self._due_us + patience.late_us:
            self._grant(now_us)
            away_us = now_us - self._due_us + patience.beat_us
            if away_us > self._lease_us:
                self._absence, self._back_us = Absence(away_us / 1e6, self._lease_us / 1e6), now_us
            # What waits to be read was said long ago, by some: all of it must be read before anybody is judged.
            self._deaf_until_us = now_us + patience.beat_us
            self._due_us = now_us + patience.beat_us
        if isinstance(event, Tick):
            self._due_us = now_us + patience.beat_us

    def _grant(self, now_us: int) -> None:
        """Every deadline begins now, and nobody is accused."""
        for site in self.sites.values():
            site.heard_us, site.accused, site.outvoted_us = now_us, (), None
            if site.lost_us is not None:
                site.lost_us = now_us

    def _note(self, site: Watched, event: DetectorEvent) -> None:
        if isinstance(event, Beat):
            site.heard_us, site.accused, site.busy, site.late_us = event.at_us, event.accused, event.busy, event.late_us
        elif isinstance(event, ControlLost):
            site.lost_us, site.lost_why = event.at_us, event.why
        elif isinstance(event, ControlBack):
            site.lost_us, site.heard_us = None, event.at_us
        elif isinstance(event, ExecutorRemoved):
            site.removed = True

    # ------------------------------------------------------------ what follows

    def _judge(self, now_us: int, ticked: bool) -> Iterator[Dead]:
        """One death after the other: each changes who may vote, and without whom nothing can go on. Silence is judged at ticks only: what a
        site says may stand behind what was said of it at the same time.
        """
        if now_us < self._deaf_until_us:
            return
        while (verdict := self._gone(now_us, ticked) or self._outvoted(now_us)) is not None:
            del self.sites[verdict.site]
            yield self._excused(verdict, now_us)

    def _excused(self, verdict: Dead, now_us: int) -> Dead:
        """With the judge's absence, if it has just come back: then the site has ended because of that."""
        return replace(verdict, absence=self._absence) if now_us - self._back_us < EXCUSED_US else verdict

    def _voters(self, of: int, now_us: int) -> list[int]:
        """Who else has a connection and has spoken lately, so that what it said last still holds."""
        limit_us = self.patience.silent_us
        return [i for i, site in self.sites.items() if i != of and site.lost_us is None and now_us - site.heard_us < limit_us]

    def _gone(self, now_us: int, ticked: bool) -> Dead | None:
        """A site that the coordinator itself does not hear any more, and that somebody else gives up too."""
        patience = self.patience
        for index, site in self.sites.items():
            silence_us = now_us - site.heard_us
            if site.lost_us is None and not (ticked and silence_us >= self._patient_us(site)):
                continue
            if site.lost_us is not None and site.removed:
                return Dead(index, f"{site.lost_why}; Spark has removed its executor")
            voters = self._voters(index, now_us)
            if patience.votes and not self._may_come_back(index, site, voters):
                accusers = [voter for voter in voters if index in self.sites[voter].accused]
                held = self._holds_breath(site, voters, now_us) and silence_us < BREATH * self._patient_us(site)
                if not held and 2 * len(accusers) > len(voters):
                    seen = site.lost_why if site.lost_us is not None else f"it has been silent for {silence_us // 1000} ms"
                    return Dead(index, f"{seen}; {self._name(accusers)} cannot reach it either")
            if site.lost_us is not None and now_us - site.lost_us >= patience.grace_us:
                waited = f", and it has not come back within {patience.grace_us // 1000} ms" if patience.grace_us else ""
                return Dead(index, site.lost_why + waited)
            if silence_us >= max(patience.lease_us, patience.busy_us if site.busy else 0):
                return Dead(index, f"it has been silent for {silence_us / 1e6:.0f} s" + (f", busy with {site.busy}" if site.busy else ""))
        return None

    def _may_come_back(self, index: int, site: Watched, voters: list[int]) -> bool:
        """Whether its peers are not asked, since without it and those that are silent there is nothing left to go on with: it may speak
        again within the lease or, if its connection has ended while it spoke, be back within the grace."""
        spoke = site.lost_us is None or site.lost_us - site.heard_us < self.patience.silent_us
        return spoke and self._vital(index, self._silent(index, voters))

    def _holds_breath(self, site: Watched, voters: list[int], now_us: int) -> bool:
        """Whether most of the others have fallen silent too: they have not spoken in half the time after which they would be silent."""
        lately = [voter for voter in voters if now_us - self.sites[voter].heard_us < self.patience.silent_us // 2]
        return site.lost_us is None and 2 * len(lately) < len(self.sites) - 1

    def _patient_us(self, site: Watched) -> int:
        """How long it may say nothing."""
        if site.late_us is not None:
            return max(self.patience.silent_us, min(TOLERANCE * site.late_us, self.patience.busy_us))
        return self.patience.busy_us if site.busy is not None else self.patience.silent_us

    def _outvoted(self, now_us: int) -> Dead | None:
        """A site that speaks to the coordinator, but with which most others cannot talk: mute, deaf, or on the wrong side of a cut.

        Both ends of a dead link may accuse each other, so what counts is with how many of the others a site is in trouble; of several that
        are outvoted (a cut through the middle) only the worst goes, the newest if they are equal, and the others are judged again.
        """
        if not self.patience.votes:
            return None
        if not any(site.accused for site in self.sites.values()):
            for site in self.sites.values():
                site.outvoted_us = None
            return None
        worst: tuple[int, int, list[int], int] | None = None
        for index, site in self.sites.items():
            voters = self._voters(index, now_us)
            apart = [v for v in voters if index in self.sites[v].accused or v in site.accused]
            speaks = site.lost_us is None and site.busy is None and now_us - site.heard_us < self.patience.silent_us
            if not speaks or len(voters) < 2 or 2 * len(apart) <= len(voters):
                site.outvoted_us = None
                continue
            if site.outvoted_us is None:
                site.outvoted_us = now_us
            apart_us = now_us - site.outvoted_us
            heeded = [v for v in apart if apart_us >= self._apart_us(site, self.sites[v])]
            if 2 * len(heeded) > len(voters) and not self._vital(index, self._silent(index, voters)):
                worst = max(worst or (0, 0, [], 0), (len(apart), index, heeded, apart_us))
        if worst is None:
            return None
        _, index, heeded, apart_us = worst
        return Dead(index, f"{self._name(heeded)} and it have not been able to talk for {apart_us // 1000} ms")

    def _apart_us(self, *two: Watched) -> int:
        """How long two may not be able to talk before that counts: on a machine that is short of processors each hears the other late."""
        return max(self.patience.outvoted_us, *(self._patient_us(site) for site in two))

    def _silent(self, of: int, voters: list[int]) -> set[int]:
        """Who may be dead already, though not enough others say so: newcomers have never had a link to it."""
        return set(self.sites) - {of, *voters}

    def _name(self, sites: list[int]) -> str:
        others = f" and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
        return ("site " if len(sites) == 1 else "sites ") + ", ".join(map(str, sites[:NAMED])) + others
