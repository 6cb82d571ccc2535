"""What every policy takes and gives: hosting, parameters and memory in, a proposal out.

A policy is a pure function: equal input gives an equal proposal. It runs in rounds (FL 5.3): statistics are collected for delta, the
policy proposes moves, they are carried out, and the next collection begins. What it must know of earlier rounds is its `Memory`, which
it is given and gives back:

    memory = Memory()
    while running:
        statistics = collect(memory.delta_us or parameters.delta_min_us)
        proposal = policy(statistics, hosting, parameters, memory)
        move_us = carry_out(proposal.moves)
        memory = proposal.memory.moved(move_us)

This file knows nothing of utilization or memory, and nothing of how a move is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from evenflow.errors import PolicyError
from evenflow.policy.forecast import Known
from evenflow.policy.hosting import Hosting
from evenflow.policy.mixes import Offered
from evenflow.policy.move import Move
from evenflow.statistics.statistics import Statistics

SPEED_WEIGHT: Final = 0.5
"""Weight of the newest move phase in the measured speed of copies."""
MEASURABLE_BYTES: Final = 1_000_000
"""What a move phase must have copied to say how fast copies are: with less, its time is that of plans and of catching up."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Thresholds and bounds of all policies, with the papers' names and defaults; each policy's own are in `catalogue.POLICIES`.

    th_imb: least ratio of the donor's utilization to the receiver's that is acted on, >= 1 (FL 5.3). th_util: a receiver that is busier
    than this gets nothing, in (0, 1]. delta_min_us: shortest collection phase; the papers' later 250 ms (FT 5.2.2), since their first 10 ms
    thrashes on skewed keys (FL figure 9). segments: those to balance (FT 5.1.3.2); None means all.

    Of Evenflow's own variant only (decision 19). moves_max: partitions that one site gives away per round. delta_least_us, delta_most_us:
    bounds within which it tunes delta_min; evidence_us: so long evidence is gathered. noise_factor: so many times the noise is added to
    th_imb. hold_rounds: a partition does not go back to where it came from within so many rounds. severe: ratio from which a partition that
    came lately may go on, and by which a load must have changed for its window to decide nothing. payback_us: time within which the load
    that a move takes off its donor must have outweighed the copying. phase_us: how long a round's copies may take together at the speed
    measured so far; moves that relieve memory do not count. relief_us: how long a site that lacks memory waits for moves before it uses its
    disk. move_bytes: what moving a partition costs besides its bytes, in bytes. idle: a donor that is less utilized than this is left
    alone.
    """

    th_imb: float = 1.2
    th_util: float = 0.9
    delta_min_us: int = 250_000
    segments: tuple[int, ...] | None = None
    moves_max: int = 1
    delta_least_us: int = 100_000
    delta_most_us: int = 2_000_000
    evidence_us: int = 4_000_000
    noise_factor: float = 2.0
    hold_rounds: int = 8
    severe: float = 1.2
    payback_us: int = 60_000_000
    phase_us: int = 2_000_000
    relief_us: int = 0
    move_bytes: int = 1_000_000
    idle: float = 0.05

    def __post_init__(self) -> None:
        if not self.th_imb >= 1 or not self.severe >= 1:
            raise PolicyError(f"th_imb and severe are ratios >= 1, not {self.th_imb} and {self.severe}")
        if not 0 < self.th_util <= 1 or not 0 <= self.idle <= 1:
            raise PolicyError(f"th_util is in (0, 1] and idle in [0, 1], not {self.th_util} and {self.idle}")
        if self.delta_min_us <= 0 or not 0 < self.delta_least_us <= self.delta_most_us:
            raise PolicyError(
                f"delta_min_us must be > 0 and 0 < delta_least_us <= delta_most_us; they are {self.delta_min_us}, "
                f"{self.delta_least_us} and {self.delta_most_us}"
            )
        if self.evidence_us <= 0:
            raise PolicyError(f"evidence_us must be > 0; it is {self.evidence_us}")
        if self.moves_max < 1 or self.hold_rounds < 0 or self.noise_factor < 0:
            raise PolicyError("moves_max must be >= 1, hold_rounds and noise_factor >= 0")
        if min(self.payback_us, self.phase_us) <= 0 or min(self.move_bytes, self.relief_us) < 0:
            raise PolicyError("payback_us and phase_us must be > 0, move_bytes and relief_us >= 0")


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of one partition that was proposed in round `round`."""

    round: int
    segment: int
    partition: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a policy keeps from round to round. Start with `Memory()`; nobody but a policy and `moved` makes another one.

    round: rounds so far. delta_us: how long to collect next; 0 before the first round. delta_min_us: as tuned; 0: not yet.
    noise: relative error of predicted utilizations, smoothed, in windows of window_us. expected: utilization by site as predicted for the
    next window. copying: bytes that the proposed moves copy. speed: bytes per second that copies were measured to reach; 0: not yet.
    recent: moves of the last rounds, oldest first. calm: rounds in a row with nothing to do. slowness: by site, how much longer a row takes
    there than at the median site. evidence: what was seen since something moved or a load changed, of `placement`. known: of partitions and
    sites, from before too. offered: of sources, and of what their rows cost. upset: the last window was one in which a load changed.
    wait_most_us: a collection need not be longer than this because moves took long; None: as long as they took (FL 5.3).
    """

    round: int = 0
    delta_us: int = 0
    delta_min_us: int = 0
    noise: float = 0.0
    window_us: int = 0
    expected: tuple[tuple[int, float], ...] = ()
    copying: int = 0
    speed: float = 0.0
    recent: tuple[Moved, ...] = ()
    calm: int = 0
    slowness: tuple[tuple[int, float], ...] = ()
    evidence: Statistics | None = None
    placement: Mapping[tuple[int, int], tuple[int, ...]] | None = None
    known: Known = field(default_factory=Known)
    offered: Offered = field(default_factory=Offered)
    upset: bool = False
    wait_most_us: int | None = None

    def moved(self, move_us: int) -> Memory:
        """After the move phase, which took `move_us` in all: the next collection lasts at least as long (FL 5.3) but for wait_most_us, and
        how fast copies are is learnt. With no moves, or 0, nothing changes."""
        if move_us <= 0:
            return self
        speed = self.speed
        if self.copying >= MEASURABLE_BYTES:
            measured = self.copying * 1e6 / move_us
            speed = measured if speed == 0 else speed + SPEED_WEIGHT * (measured - speed)
        wait_us = move_us if self.wait_most_us is None else min(move_us, self.wait_most_us)
        return replace(self, delta_us=max(self.delta_us, wait_us), speed=speed, copying=0)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy proposes. moves: in the order of their importance, and no partition twice. next_delta_us: how long to collect next if
    the moves took no longer (`memory.moved` knows). imbalance: greatest utilization by mean utilization, >= 1; 1.0 if nothing is known.
    text: for people, one sentence. memory: for the next round.
    """

    moves: tuple[Move, ...]
    next_delta_us: int
    imbalance: float
    text: str
    memory: Memory


Policy = Callable[[Statistics, Hosting, Parameters, Memory], Proposal]


def next_delta_us(statistics: Statistics, memory: Memory, delta_min_us: int, *, moving: bool) -> int:
    """Length of the next collection phase before the moves' duration is known (FL 5.3): halved after a round without a move, never below
    delta_min. With moves it is that minimum; `Memory.moved` raises it to what they took."""
    if moving:
        return delta_min_us
    last = memory.delta_us or statistics.end_us - statistics.begin_us
    return max(last // 2, delta_min_us)
