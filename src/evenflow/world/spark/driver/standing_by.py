"""A driver that stands by: its Spark runs and its sites are placed, and it waits at a location until the driver there is silent (K14).

    the location --look, again and again--> what the journal adds up to by now, and whether its driver has said something
    `coordinator.standby` --decides--> wait, begin the next generation, or end, since the run is over

It reads the journal on while it waits, so at the moment of taking over there is hardly anything left to be read. It writes nothing before
the entry with which it begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import Standing
from evenflow.coordinator.events import Happened, Kind
from evenflow.coordinator.journal import CORRUPT_MAX
from evenflow.coordinator.standby import Looked, Missed, Standby, Verdict
from evenflow.errors import ClusterError, JournalCorrupt, LocationError, LostBeforeStart, Overtaken
from evenflow.site.view import NOBODY
from evenflow.statistics.plain import plain_fields
from evenflow.store.journal import has_entries, read_journal, read_on
from evenflow.store.location import head_of
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.world.locations.silence import alive_at
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.driver.readable import readable_on
from evenflow.world.spark.driver.taking import Found

if TYPE_CHECKING:
    from evenflow.stream.ids import SiteId
    from evenflow.world.spark.driver.driver_loop import DriverLoop
    from evenflow.world.spark.driver.run import Run

FIRST_LOOK_S: Final = 0.5
"""Between two looks at a location at which nobody has begun yet."""
MENDED: Final = (Overtaken, LostBeforeStart)
"""Errors of a beginning after which this driver stands by again."""


@dataclass(frozen=True, slots=True)
class StandbyProgress:
    """What a driver that stands by waits for. Its fields are the keys of the JSON object."""

    location: str
    dataflow: str
    generation: int
    """That the driver has begun which it waits for; 0: nobody has begun yet, and this one does not begin first."""
    entry: int
    """The newest of the journal."""
    silent_s: float
    """Since the last sign of life of that driver that counts, by this one's own clock."""
    patience_s: float
    """For so long it must be silent."""
    waited_s: float
    """Since this driver stands by."""
    sites: int
    """That are there for it."""
    trouble: str | None
    """Why it cannot be seen now whether that driver lives, or why it cannot be replaced yet; None: it can."""
    said: str
    """What happened last, for people."""

    def to_json(self) -> dict[str, Any]:
        return plain_fields(self)


Watch = Callable[[StandbyProgress], None]
"""Is told how it stands, after each look."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a driver takes over with. sites: how many it has now, called at each look; may raise, when its engine has been stopped.
    wanted: so many are waited for for patience_s; then fewer will do, and never fewer than replicas."""

    sites: Callable[[], int]
    wanted: int
    replicas: int
    patience_s: float


class StandingBy:
    """One driver's waiting at one location. lease_s: of its engine."""

    def __init__(self, url: str, dataflow: str, place: Place, lease_s: float, watch: Watch | None = None) -> None:
        self._url, self._dataflow, self._place, self._watch = url, dataflow, place, watch
        self._machine = Standby(lease_s)
        self._began_s = time.monotonic()
        self._pause = threading.Event()
        self._alive: Hashable = None
        self._theirs_s, self._corrupt, self._stopped = 0.0, 0, False
        self._short_s: float | None = None
        self._entry = 0
        self._trouble: str | None = None
        self.happened: list[tuple[Happened, float]] = []
        """What there is to be said of it, with times of this process's monotonic clock, oldest first."""

    # ------------------------------------------------------------ before anything has begun

    def await_first(self) -> None:
        """Wait until somebody has begun at the location: who stands by does not begin first, or a name that is misspelt would be a new run.

        Raises LocationError if there cannot be a location, or, at the first look, if it cannot be read.
        """
        store = open_store(self._url)
        if _has_begun(store):
            return
        self._note(
            Kind.STANDBY_WAITS, f"stands by: nobody has begun at {store.url} yet, and this driver does not begin first", generation=0
        )
        while True:
            try:
                if _has_begun(store):
                    self._trouble = None
                    return
                self._trouble = None
            except LocationError as error:
                if not isinstance(error.__cause__, OSError):
                    raise
                self._trouble = str(error)
            self._tell()
            heed()
            self._pause.wait(FIRST_LOOK_S)

    # ------------------------------------------------------------ while another one drives

    def await_turn(self, found: Found) -> Found:
        """Wait until the run is this driver's, or is over. Returns the location as it stands then; to begin there may fail yet, if another
        one is faster (`overtaken`).

        Raises JournalCorrupt, and LocationError for what no waiting mends: that the run was replaced, too.
        """
        standing, store, base = found.standing, found.location.store, found.standing.base
        while True:
            heed()
            verdict = self._look(store, standing)
            if not self._goes_on(found, standing):
                verdict = Verdict.WAIT
            if verdict is Verdict.OVER:
                self._note(Kind.STANDBY_ENDS, "the run has ended: nobody needs to stand by any more", generation=standing.generation)
                self._tell()
                return replace(found, saved=None, carried=None)
            fresh = self._turn(store, standing) if verdict is Verdict.BEGIN and self._has_sites() else None
            self._tell()
            if fresh is not None:
                passed_over = (*(found.passed_over if standing.base == base else ()), *fresh[1])
                return replace(found, standing=fresh[0], passed_over=passed_over, saved=None, carried=None)
            self._pause.wait(self._machine.look_s)

    def _goes_on(self, found: Found, standing: Standing) -> bool:
        """Whether it is known that this driver can go on as what runs. Raises ProgramChanged if it could not; a store that fails shows
        nothing, and what is superseded may be gone by now."""
        if found.programs is None or standing.ended is not None or not standing.generation:
            return True
        try:
            found.programs.check(standing, self._dataflow)
        except LocationError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._trouble = str(error)
            return False
        return True

    def overtaken(self, why: str) -> None:
        """What `await_turn` said could be begun was not: somebody was faster."""
        self._machine.handle(Missed())
        self._note(Kind.STANDBY_WAITS, f"stands by again: {why}", generation=self._machine.generation)

    def _look(self, store: Store, standing: Standing) -> Verdict:
        """See what there is by now. A store that fails shows nothing, so nothing is concluded."""
        began_s, generation = time.monotonic(), self._machine.generation
        try:
            read_on(store, standing)
            alive = alive_at(store, standing)
        except JournalCorrupt as error:
            self._corrupt += 1  # Some stores show an object before it is whole.
            if self._corrupt >= CORRUPT_MAX:
                raise
            self._trouble = str(error)
            return Verdict.WAIT
        except (LocationError, OSError) as error:
            self._trouble = str(error)
            return Verdict.WAIT
        self._corrupt, self._trouble, self._entry = 0, None, standing.last
        _shorten(standing)
        if standing.generation != generation:
            self._alive, self._theirs_s = None, 0.0
        if alive is not None:
            self._alive, self._theirs_s = alive, alive.lease_s
        over, sign = standing.ended is not None, (standing.last, self._alive)
        looked = Looked(began_s, time.monotonic(), standing.generation, sign, self._theirs_s, over, standing.stopped)
        verdict = self._machine.handle(looked)
        if standing.stopped != self._stopped:
            self._stopped = standing.stopped
            if self._stopped:
                text = f"stands by at {store.url}: the run was stopped, so nobody is missing; waits until somebody starts it again"
                self._note(Kind.STANDBY_WAITS, text, generation=standing.generation)
        if standing.generation != generation and not (over or standing.stopped):
            patience_s = self._machine.patience_s
            text = (
                f"stands by at {store.url}: takes over when the driver of generation {standing.generation} is silent for {patience_s:.1f} s"
            )
            self._note(Kind.STANDBY_WAITS, text, generation=standing.generation)
        return verdict

    def _has_sites(self) -> bool:
        """Enough to take over with, or as many as there will be."""
        place, now_s = self._place, time.monotonic()
        there = place.sites()
        if there >= place.wanted:
            self._short_s = None
            return True
        self._short_s = now_s if self._short_s is None else self._short_s
        self._trouble = f"{there} of {place.wanted} sites are there to take over with"
        return there >= place.replicas and now_s - self._short_s >= place.patience_s

    def _turn(self, store: Store, standing: Standing) -> tuple[Standing, tuple[str, ...]] | None:
        """What this driver is to go on from, and what is to be said of checkpoints; None if it cannot be read now, or if an entry has come
        meanwhile, be it that a person has stopped the run."""
        try:
            fresh = readable_on(store, standing)
            if fresh[0].last != standing.last:
                # Where entries behind the newest known one were collected, reading on never comes to those that are there.
                standing.become(read_journal(store, standing.unreadable))
                self._machine.handle(Missed())
                return None
        except LocationError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._trouble = str(error)
            return None
        silent_s = self._machine.silent_s
        text = f"takes over from the driver of generation {standing.generation}, which has been silent for {silent_s:.1f} s"
        self._note(
            Kind.STANDBY_TAKES_OVER, text, generation=standing.generation, silent_s=round(silent_s, 3), waited_s=round(self._waited_s, 3)
        )
        return fresh

    # ------------------------------------------------------------ what people are told

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def progress(self) -> StandbyProgress:
        """From any thread."""
        machine, said = self._machine, self.happened[-1][0].text if self.happened else ""
        return StandbyProgress(
            self._url, self._dataflow, machine.generation, self._entry, round(machine.silent_s, 3), round(machine.patience_s, 3),
            round(self._waited_s, 3), self._place.sites(), self._trouble, said,
        )  # fmt: skip

    def _tell(self) -> None:
        progress = self.progress  # Asking for sites also finds out that the engine has been stopped.
        if self._watch is not None:
            self._watch(progress)

    def _note(self, kind: Kind, text: str, **details: Any) -> None:
        given: Mapping[str, Any] = {"location": self._url, **details}
        self.happened.append((Happened(kind, NOBODY, text, given), time.monotonic()))


class Patient(Protocol):
    """Options of an engine that count here; see `EngineOptions`."""

    @property
    def lease_s(self) -> float: ...
    @property
    def patience_s(self) -> float: ...


class Engaged(Protocol):
    """What standing by asks of the engine."""

    sites: int
    _stopped: bool

    @property
    def options(self) -> Patient: ...
    def _ensure_sites(self) -> DriverLoop: ...
    def _sites_to_use(self) -> tuple[SiteId, ...]: ...


class Standbys:
    """What one engine stands by for."""

    def __init__(self, engine: Engaged) -> None:
        self._engine = engine
        self._waiting: list[StandingBy] = []

    @property
    def progress(self) -> tuple[StandbyProgress, ...]:
        """From any thread."""
        return tuple(waiting.progress for waiting in list(self._waiting))

    def stand_by(
        self,
        url: str,
        dataflow: str,
        replicas: int,
        watch: Watch | None,
        looks: Callable[[], Found],
        begins: Callable[[Found, StandingBy], Run],
    ) -> Run:
        """Wait at the location, with all sites placed, until the run there is this engine's, or is over. looks, begins: see `look` of
        `taking`, and `Engine.start`. Raises as they do, except for what more waiting mends."""
        engine = self._engine
        engine._ensure_sites()

        def there() -> int:
            if engine._stopped:
                raise ClusterError("the engine has been stopped")
            return len(engine._sites_to_use())

        options = engine.options
        waiting = StandingBy(url, dataflow, Place(there, engine.sites, replicas, options.patience_s), options.lease_s, watch)
        self._waiting.append(waiting)
        try:
            waiting.await_first()
            found = looks()
            while True:
                found = waiting.await_turn(found)
                try:
                    return begins(found, waiting)
                except (LocationError, LostBeforeStart) as error:
                    if not isinstance(error, MENDED) and not isinstance(error.__cause__, OSError):
                        raise
                    waiting.overtaken(str(error))
        finally:
            self._waiting.remove(waiting)


def check_standby(url: str | None, *, take_over: bool) -> None:
    """Raise LocationError for what makes no sense together."""
    if url is None:
        raise LocationError("standby needs a checkpoint location to watch: checkpoint_location=, --checkpoint-location")
    if take_over:
        raise LocationError("standby waits until another driver is silent, and take_over does not wait: choose one of them")


def _has_begun(store: Store) -> bool:
    """Raises LocationError."""
    return head_of(store) is not None and has_entries(store)


def _shorten(standing: Standing) -> None:
    """Forget what no restart needs, as the driver that lives does: who stands by for months would keep all checkpoints that ever were."""
    if len(standing.checkpoints) > RETAINED:
        del standing.checkpoints[:-RETAINED]
        oldest = standing.checkpoints[0].epoch
        standing.rows = {name: epoch for name, epoch in standing.rows.items() if epoch > oldest}
