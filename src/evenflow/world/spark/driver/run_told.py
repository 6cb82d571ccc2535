"""What people are told of one run: its numbers, its events, and why it has failed. From any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenflow.coordinator.clocks import behind_us
from evenflow.coordinator.events import Happened, Kind
from evenflow.errors import EvenflowError
from evenflow.monitor.watching import Watched
from evenflow.site.view import NOBODY
from evenflow.statistics.progress import CheckpointProgress, JournalProgress, Progress, SiteProcess, TableProgress
from evenflow.world.spark.driver.run_numbers import RunNumbers, WatchedFacts

if TYPE_CHECKING:
    from evenflow.coordinator.machine import RunMachine
    from evenflow.query.network import Network
    from evenflow.world.spark.driver.appending import Appender
    from evenflow.world.spark.driver.checkpoint_numbers import CheckpointNumbers
    from evenflow.world.spark.driver.collecting import Later
    from evenflow.world.spark.driver.happenings import Happenings
    from evenflow.world.spark.driver.outlet import Outlet


class RunTold:
    """For a `RunLoop`. over, error: when the run has ended, and of what. outlets: its sinks in the driver, by segment. located: it has a
    checkpoint location."""

    machine: RunMachine
    over: threading.Event
    error: EvenflowError | None
    outlets: dict[int, Outlet]
    happenings: Happenings
    numbers: RunNumbers
    checkpoint_numbers: CheckpointNumbers
    located: bool
    _appender: Appender | None
    _calls: Later
    _began_s: float
    _ended_s: float | None

    @property
    def failure(self) -> EvenflowError | None:
        """Why the run failed, or why one of its sinks could not be closed after a run that went well."""
        return self.error or next((outlet.error for outlet in self.outlets.values() if outlet.error is not None), None)

    def record(self, kind: Kind, text: str, **details: Any) -> None:
        """Something that the driver has to say of the run, as an event."""
        self.happenings.note(Happened(kind, NOBODY, text, details), time.monotonic())

    def events(self) -> list[dict[str, Any]]:
        """See Run.events."""
        return self.happenings.all()

    def _checkpoint(self) -> CheckpointProgress | None:
        kept = self.machine.checkpointing
        open_number = None if (found := kept.open) is None else found.number
        return self.checkpoint_numbers.progress(kept.failures, open_number) if self.located else None

    def _journal(self) -> JournalProgress | None:
        if self._appender is None or self.machine.journal is None:
            return None
        return self._appender.progress(self.machine.kept, behind_us(self.machine.journal.stamp, self._calls.clock.now_us()))

    def watched(self, network: Network | None) -> Watched:
        """What those who watch are told. network: as the user drew it."""
        now_s = time.monotonic()
        self.numbers.add_latencies({at: outlet.take_latencies() for at, outlet in self.outlets.items()}, now_s)
        journal = self._journal()
        facts = WatchedFacts(network, int(((self._ended_s or now_s) - self._began_s) * 1e6), journal, self._checkpoint())
        return replace(self.numbers.watched(not self.over.is_set(), self.happenings.since, facts), born=self.happenings)

    def progress(self, sites: Sequence[SiteProcess], tables: tuple[TableProgress, ...] = ()) -> Progress:
        """See Run.progress. sites: what the coordinator knows of each site. tables: those that are refreshed."""
        now_s, active = time.monotonic(), not self.over.is_set()
        self.numbers.add_latencies({at: outlet.take_latencies() for at, outlet in self.outlets.items()}, now_s)
        journal = self._journal()
        return self.numbers.progress(active, (self._ended_s or now_s) - self._began_s, sites, tables, journal, self._checkpoint())
