"""When a driver that stands by takes the run of another one over (availability.md, K14, J4).

    waits  --a sign of life: another entry, another generation, another beat--> waits, and the silence is measured anew
    waits  --silent for the lease and twice the slowest look at the store--> begins
    begins --somebody was faster, the live driver too--> waits
    waits  --the journal says that a person has stopped the run--> waits, however long it is silent, until somebody begins
    waits  --the journal's last word--> over

Silence is measured by this driver's own monotonic clock alone: no clock of another machine is looked at. It lasts from the end of the look
that showed the newest sign to the beginning of the newest look, for what a look shows may have been there at any moment of it. Time in
which nobody could look is no silence: while the store is away the live driver cannot write either, and who was stopped itself, perhaps
with the whole machine, knows nothing of the others.

Nothing here knows a store, and to be wrong would cost time only: of two drivers one finds the other's entry (J4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, assert_never

LOOKS_KEPT: Final = 64
"""So many looks the slowest is of: a store that was slow for a while need not be believed so for ever."""
UNSEEN: Final = 0.25
"""Of the lease, of which two looks may be apart. What is more does not count as silence."""
LOOK: Final = 0.05
"""Of the lease, after which it is looked again, within these bounds in seconds."""
LOOK_S: Final = (0.05, 1.0)


class Verdict(Enum):
    """What is to be done."""

    WAIT = "wait"
    """Look again after `look_s`."""
    BEGIN = "begin"
    """The driver before is dead as far as anybody can know: begin the next generation."""
    OVER = "over"
    """The run has ended: there is nothing to wait for any more."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the store that has succeeded. began_s, ended_s: of this driver's monotonic clock. generation: that the newest driver has
    begun. sign: another one whenever that driver has said something. lease_s: the one that it has said, 0 if that is not known. over: the
    run has ended. stopped: a person has stopped it."""

    began_s: float
    ended_s: float
    generation: int
    sign: Hashable
    lease_s: float = 0.0
    over: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Missed:
    """What this driver wanted to begin, another one has, or an entry of the live one was in the way."""


@dataclass(slots=True)
class Standby:
    """See the module. lease_s: of this driver's engine. generation: whom it waits for. silent_s: how long nothing was heard of that one."""

    lease_s: float
    generation: int = 0
    silent_s: float = 0.0
    _theirs_s: float = 0.0
    _sign: Hashable = None
    _since_s: float | None = None
    _seen_s: float = 0.0
    _took_s: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKS_KEPT))

    @property
    def patience_s(self) -> float:
        """For how long the driver must be silent. Its sites may live as long as its own lease says; an entry that was under way when the
        silence began may come as late as a slow store makes it, and so may the look that would show it."""
        return max(self.lease_s, self._theirs_s) + 2 * max(self._took_s, default=0.0)

    @property
    def look_s(self) -> float:
        """From one look to the next."""
        return min(max(LOOK * self.lease_s, LOOK_S[0]), LOOK_S[1])

    def handle(self, event: Looked | Missed) -> Verdict:
        match event:
            case Looked():
                return self._look(event)
            case Missed():
                self._since_s, self.silent_s = None, 0.0
                return Verdict.WAIT
            case _:
                assert_never(event)

    def _look(self, looked: Looked) -> Verdict:
        self._took_s.append(looked.ended_s - looked.began_s)
        self._theirs_s = looked.lease_s
        if looked.over:
            self.generation, self.silent_s = looked.generation, 0.0
            return Verdict.OVER
        if looked.stopped:
            self.generation, self._since_s, self.silent_s = looked.generation, None, 0.0
            return Verdict.WAIT
        sign = looked.generation, looked.sign
        if self._since_s is None or sign != self._sign:
            self.generation, self._sign, self._since_s = looked.generation, sign, looked.ended_s
        else:
            unseen_s = looked.began_s - self._seen_s - UNSEEN * self.lease_s
            self._since_s += max(0.0, unseen_s)
        self._seen_s = looked.ended_s
        self.silent_s = max(0.0, looked.began_s - self._since_s)
        return Verdict.BEGIN if self.silent_s > self.patience_s else Verdict.WAIT
