"""Losses that a driver survives itself: the next generation of its run begins in the same process (availability.md, K14).

    running --all replicas of a partition lost, the driver away, a checkpoint unreadable--> lost
    lost    --sites are there, nobody else has begun--> running, generation g + 1, which makes again what a restart would
    lost    --stopped: the journal is told so, for a while--> over
    lost    --another driver has begun, no sites, nothing gained by it again and again--> over

What a generation is made of, the engine knows (`Means`); here is when one begins, and when it is over for good. The waiting is done in a
thread of its own, so that other runs go on, and the journal is read meanwhile. Sinks in the driver stay open over all generations: none
sees an epoch twice, unless they know each generation by a run of its own (durability "no-loss").
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from evenflow.availability.reading import Read
from evenflow.availability.standing import Standing
from evenflow.coordinator.effects import STOP_MS
from evenflow.coordinator.events import Kind, StopRequested
from evenflow.coordinator.survival import SURVIVED, Gathering, Survival
from evenflow.errors import ClusterError, EvenflowError, LocationError, Overtaken, in_a_line
from evenflow.store.journal import Unsure
from evenflow.stream.ids import SiteId
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.driver.outlet import Outlet
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.taking import Found, Own, leave, look_again, look_ahead

LOOK_S: Final = 0.05
STORE_S: Final = 0.5
WAIT_SLICE_S: Final = 0.2
"""Waits are in slices of this, so that Ctrl-C is noticed at once on every platform."""
SINKS_S: Final = 10.0
"""For which the sinks of a run that was stopped, or has failed, are waited for."""

log = logging.getLogger("evenflow")


@dataclass(frozen=True, slots=True)
class Means:
    """What generations are made of. sites: those that can have partitions now; more are called for. wanted: how many are best; they are
    waited for for patience_s. replicas: of each partition; so many sites are waited for for at most place_timeout_s, then any will do.

    found: the location. begin(before, sites, fresh, begun): the next generation, its entry in the journal; fresh: the location as it stands
    now; begun: gets what that entry is known by, whatever comes of the generation. Raises LocationError, and what planning raises. Returns
    None if the journal says that the run has ended.
    """

    sites: Callable[[], tuple[SiteId, ...]]
    wanted: int
    replicas: int
    patience_s: float
    place_timeout_s: float
    found: Found
    begin: Callable[[RunLoop, tuple[SiteId, ...], Found, list[Own]], RunLoop | None]


class Ahead:
    """The journal, read in a thread of its own while sites are waited for."""

    def __init__(self, found: Found, name: str) -> None:
        self._found, self._read = found, list[Read[Standing]]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(EvenflowError):  # Whoever needs it reads it again, and says what is wrong.
            self._read.append(look_ahead(self._found))

    def take(self, wanted: Callable[[], bool] = lambda: True) -> Read[Standing] | None:
        """Once, since who has it adds to it; None the next time, and if it could not be read. Waits until it is, or not wanted any more."""
        while self._thread.is_alive() and wanted():
            self._thread.join(LOOK_S)
        return self._read.pop() if self._read else None


class Generations:
    """newest: the generation that runs, or ran last. over: set when the run has ended for good; then its `failure` is final.

    means: None if the run cannot be survived: it has no location, or results that Spark reads at the sites of one generation.
    """

    def __init__(self, first: RunLoop, means: Means | None, start: Callable[[RunLoop], None]) -> None:
        self.newest, self._means, self._start = first, means, start
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._asked: StopRequested | None = None
        self._finished = False
        self._told_failure = False
        self._on_over: list[Callable[[], None]] = []
        self._survival = Survival()
        self._told_unclosed, self._over_s, self._stopped_s = False, time.monotonic(), 0.0
        if first.over.is_set():
            self.over.set()
        else:
            self._watch(first)

    def stop(self, drain: bool, *, willed: bool = True) -> None:
        """In the coordinator's thread. Between two generations it is the next one that drains; to stop there is none: it is over when the
        journal says that a person wants it so, or, as of a generation that runs, when that takes too long or he insists."""
        asked = StopRequested(drain, willed)
        with self._lock:
            insists, newest = self._stopping, self.newest
            self._asked = self._asked if insists else asked
            self._stopped_s = time.monotonic()
        if drain or not newest.over.is_set() or self.over.is_set():
            newest.handle(asked)
        elif willed and not insists:
            self._finish_later()
        else:
            self._finish(None)

    def wait(self, timeout_s: float | None) -> bool:
        """Until the run is over: True, or False if it is not in time. From a user's thread, whose interrupts are heeded."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.over.is_set():
            heed()
            left_s = WAIT_SLICE_S if deadline is None else min(WAIT_SLICE_S, deadline - time.monotonic())
            if left_s <= 0:
                return False
            self.over.wait(left_s)
        return True

    def when_over(self, call: Callable[[], None]) -> None:
        """Call when the run is over for good, in whatever thread ends it; at once, in the caller's, if it is. To return at once."""
        with self._lock:
            if not self._finished and not self.over.is_set():
                self._on_over.append(call)
                return
        call()

    def settle(self, timeout_s: float | None = SINKS_S) -> bool:
        """Let sinks' threads finish what they are writing, and close, for which those of a run that has ended as it should may need long.
        False if some have not in time, or are given up. As for `wait`."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while unclosed := self._unclosed():
            heed()
            now_s = time.monotonic()
            if self.over.is_set() and now_s >= self._over_s + SINKS_S and not self._told_unclosed:
                self._told_unclosed = True
                log.warning("run %s has ended, and %s not been closed yet", self.newest.run_id, _named(unclosed))
            if now_s >= min(deadline, self._late_s):
                return False
            unclosed[0].join(min(WAIT_SLICE_S, deadline - now_s, self._late_s - now_s))
        return True

    def given_up(self) -> str:
        """The sinks that are not waited for any more, though they are not closed, as people call them; "" if there are none."""
        return _named(self._unclosed()) if time.monotonic() >= self._late_s else ""

    @property
    def _late_s(self) -> float:
        if self._stopping or self.newest.error is not None:
            return max(self._over_s, self._stopped_s) + SINKS_S
        return math.inf

    def _unclosed(self) -> list[Outlet]:
        return [outlet for outlet in self.newest.outlets.values() if not outlet.join(0)]

    def _watch(self, generation: RunLoop) -> None:
        if self._means is not None:
            generation.survives = lambda error: isinstance(error, SURVIVED)
        generation.when_over(self._ended)

    # ------------------------------------------------------------ a generation has ended

    def _ended(self) -> None:  # in the coordinator's thread; in that which begins it, of one that has ended before it was watched
        newest, means = self.newest, self._means
        error, durable = newest.error, newest.machine.kept
        if self._stopping and isinstance(error, SURVIVED):
            if means is None:
                self._finish(None)
                return
            self._finish_later()  # What says that it is stopped may have waited behind what could not be appended any more.
            self._beside("evenflow-leaves", self._leave, means, newest)
            return
        if means is None or not self._survival.survives(error, durable):
            self._finish(error)
            return
        newest.record(Kind.LOST, f"everything from epoch {durable + 1} on is lost, and will be made again: {error}", epoch=durable)
        self._beside("evenflow-again", self._go_on, means, newest)

    @property
    def _stopping(self) -> bool:
        return self._asked is not None and not self._asked.drain

    def _beside(self, name: str, do: Callable[[Means, RunLoop], None], means: Means, newest: RunLoop) -> None:
        threading.Thread(target=do, args=(means, newest), name=f"{name}-{newest.run_id}", daemon=True).start()

    def _finish_later(self) -> None:
        """A store that does not answer keeps no run from being stopped."""
        late = threading.Timer(STOP_MS / 1000, self._finish, (None,))
        late.daemon = True
        late.start()

    def _finish(self, error: EvenflowError | None) -> None:
        """For good. Who comes second is too late."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self.newest.error = error
        if error is not None:
            self._tell(error)
        self.newest.close_sinks()
        for outlet in self.newest.outlets.values():
            outlet.last_words(self._tell)
        self._over_s = time.monotonic()
        self.over.set()
        for call in self._on_over:
            call()

    def _tell(self, error: EvenflowError) -> None:  # from any thread
        """Whoever watches hears why it has failed, once: what comes behind the first error follows from it."""
        with self._lock:
            told, self._told_failure = self._told_failure, True
        if not told:
            self.newest.record(Kind.FAILED, in_a_line(error), error=type(error).__name__, message=str(error))

    def _go_on(self, means: Means, before: RunLoop) -> None:  # in a thread of its own
        error: EvenflowError | None = before.error
        begun: list[Own] = []
        try:
            ahead = Ahead(means.found, f"evenflow-ahead-{before.run_id}")
            sites = self._await_sites(means)
            after = self._begin(means, before, sites, ahead, begun) if sites else None
            if sites and after is None:
                error = None  # The journal's last word was in, and its answer was lost.
        except EvenflowError as failure:
            after, error = None, failure
        except Exception as failure:
            log.exception("run %s cannot go on in place", before.run_id)
            after, error = None, ClusterError(f"the run was lost ({before.error}), and cannot go on: {failure!r}")
        with self._lock:
            stopped, asked = self._stopping, self._asked
            if after is not None and not stopped:
                self.newest = after
        if stopped:
            if after is not None:
                after.abandon()  # The run may be over by now, and nobody would ever end this one.
            self._leave(means, before, begun)
        elif after is None:
            self._finish(error)
        else:
            self._watch(after)
            self._start(after)
            if asked is not None:
                after.ask_soon(asked)

    def _leave(self, means: Means, newest: RunLoop, begun: Collection[Own] = ()) -> None:  # in a thread of its own
        """Nobody goes on with a run that was stopped, and nobody else is to. By whoever might have begun the next generation, so that this
        is the last thing that the driver says. newest: the last one that ran. begun: see `Means`."""
        asked, journal = self._asked, newest.machine.journal
        if asked is not None and asked.willed and journal is not None:
            try:
                leave(means.found, journal, begun)
            except Exception as error:  # A store's client may raise anything.
                log.warning("it is not written down at %s that run %s was stopped: %r", means.found.url, newest.run_id, error)
        self._finish(None)

    def _begin(self, means: Means, before: RunLoop, sites: tuple[SiteId, ...], ahead: Ahead, begun: list[Own]) -> RunLoop | None:
        """A store that does not answer is asked again for a while. What this driver may have begun with meanwhile is a generation without
        anything, behind which the next one begins. Raises Fenced, and as `Means.begin`. Returns None if there is nothing to begin."""
        late_s, journal = time.monotonic() + means.place_timeout_s, before.machine.journal
        assert journal is not None
        while True:
            try:
                known = ahead.take(lambda: not self._stopping)
                fresh = None if self._stopping else look_again(means.found, journal.generation, journal.nonce, known, begun)
                return None if fresh is None or self._stopping else means.begin(before, sites, fresh, begun)
            except LocationError as error:
                if isinstance(error, Unsure):
                    begun.append(error.own)
                again = isinstance(error.__cause__, OSError) or (isinstance(error, Overtaken) and begun)
                if self._stopping or time.monotonic() >= late_s or not again:
                    raise
            threading.Event().wait(STORE_S)
            sites = means.sites() or sites

    def _await_sites(self, means: Means) -> tuple[SiteId, ...]:
        """Those with which to go on; () if there are none in time, or nobody wants to go on any more."""
        pause = threading.Event()
        pause.wait(self._survival.settle_s)
        gathering = Gathering(means.wanted, means.replicas, means.patience_s, means.place_timeout_s)
        began_s = time.monotonic()
        while not self._stopping:
            chosen = gathering.chosen(means.sites(), time.monotonic() - began_s)
            if chosen is not None:
                return tuple(chosen)
            pause.wait(LOOK_S)
        return ()


def _named(outlets: list[Outlet]) -> str:
    names = ", ".join(repr(outlet.name) for outlet in outlets)
    return f"sink{'s' * (len(outlets) > 1)} {names} {'have' if len(outlets) > 1 else 'has'}" if outlets else ""
