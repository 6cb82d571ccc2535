"""Journalling: what the leaders of a site tell the coordinator, so that a restart cuts the same epochs (protocol I3; availability.md, J2).

A cut is told when all live members hold its record: from then on no successor can contradict it. It is told at once if nothing was for
`journal_ms`, else when that time is over, so a busy site tells many at a time. Nobody but ends waits for what becomes of it, and what is
told here waits for no end: so the two never wait for each other.

A leader may die with what it has told still on its way, so every replica of an ingress partition keeps its cuts until they are durable,
those of the epochs before its own first one included (they come with the state of a copy), and a new leader tells all of them again.
"""

from __future__ import annotations

from evenflow.availability.entries import Cut, Key
from evenflow.site.facts import Logged
from evenflow.site.ground import Ground
from evenflow.stream.ids import Term


class Journalling:
    """_told: by led ingress partition, the last epoch whose cut was told in the term. _not_before_us: when it may be told again."""

    def __init__(self, part: Ground) -> None:
        self._part = part
        self._told: dict[Key, tuple[Term, int]] = {}
        self._not_before_us = 0
        self._timer_set = False

    def look(self) -> None:
        """Tell what has been settled, or see to it that it is told later."""
        part = self._part
        if self._timer_set or not any(part.leading.logs[key].settled > self._last(key, term) for key, term in part.leading.journalled()):
            return
        if part.now_us >= self._not_before_us:
            self._tell()
        else:
            self._timer_set = True
            part.set_timer("journal", (self._not_before_us - part.now_us) / 1000)

    def expire(self) -> None:
        """Enough time has passed."""
        self._timer_set = False
        self._tell()

    def _last(self, key: Key, term: Term) -> int:
        """The last epoch that need not be told. What was told in a former term, here or elsewhere, may be lost."""
        told = self._told.get(key)
        return told[1] if told is not None and told[0] == term else self._part.durable

    def _tell(self) -> None:
        part, cuts = self._part, dict[Key, tuple[Cut, ...]]()
        for key, term in part.leading.journalled():
            log = part.leading.logs[key]
            if found := log.settled_cuts(self._last(key, term)):
                # Where they begin may be later: who had them before has heard sooner of what is durable.
                assert found[-1].epoch == log.settled == found[0].epoch + len(found) - 1, f"{key}: cuts up to {log.settled} are missing"
                cuts[key] = found
            self._told[key] = (term, max(log.settled, part.durable))
        if cuts:
            part.tell(Logged(cuts))
            self._not_before_us = part.now_us + int(part.options.journal_ms * 1000)
