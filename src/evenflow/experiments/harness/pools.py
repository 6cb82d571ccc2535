"""The papers' buffers between a producer and its consumers, as queues: what `transient-skew` holds Evenflow's in-flight window against.

All producers are alike, so one stands for all: it makes rows for consumers at random, as fast as there is room, and each consumer takes
its rows in order, at its own speed of the moment. What differs is who may use the room.

- **divided**: every consumer has its own share (Exchange; FT 5.2.1, the evenly divided buffer).
- **shared**: all draw on one pool, beyond what the connection of each holds (the transient-skew buffer, FL 4; DTSB with its reserved slots,
  FT 5.1.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np

from evenflow.stream.arrays import Floats

Pool = Literal["divided", "shared"]
Speed = Callable[[float, int], float]
"""By second and consumer, the share of its full speed that it has."""

STEP_S: Final = 0.001
LINE_ROWS: Final = 16
"""What a connection holds itself, however the buffer is divided."""


def rotating(consumers: int, turn_s: float, left: float) -> Speed:
    """A load that stays `turn_s` at each consumer in turn and leaves it a share `left` of its speed."""
    return lambda second, consumer: left if int(second / turn_s) % consumers == consumer else 1.0


def throughput(pool: Pool, entries: int, consumers: int, rows_per_s: float, speed: Speed, seconds: float, seed: int = 0) -> float:
    """Rows that the consumers took, as a share of what they could take at full speed all the time.

    entries: rows that the buffer of one producer holds, >= 0, beyond LINE_ROWS per consumer. rows_per_s: of one producer, to all
    consumers together. Cost: consumers x seconds / STEP_S.
    """
    random = np.random.default_rng(seed)
    waiting = np.zeros(consumers)
    credit = np.zeros(consumers)
    taken = 0.0
    per_step = rows_per_s * STEP_S / consumers
    steps = round(seconds / STEP_S)
    order: list[int] = []
    for step in range(steps):
        for consumer in _made(pool, entries, waiting, order, random):
            waiting[consumer] += 1
        speeds = np.array([speed(step * STEP_S, consumer) for consumer in range(consumers)])
        # Who has nothing to take loses its time, but for what is less than a row.
        credit = np.minimum(credit, 1.0) + per_step * speeds
        now = np.minimum(np.floor(credit), waiting)
        credit -= now
        waiting -= now
        taken += float(now.sum())
    return taken / (per_step * consumers * steps)


def _made(pool: Pool, entries: int, waiting: Floats, order: list[int], random: np.random.Generator) -> list[int]:
    """The consumers of the rows that the producer makes before one has no room. order: what it will make; the first has been in its way."""
    consumers = len(waiting)
    held = np.array(waiting, np.int64)
    made: list[int] = []
    room = entries // consumers + LINE_ROWS if pool == "divided" else 0
    while True:
        if not order:
            order.extend(int(each) for each in random.integers(consumers, size=256))
            order.reverse()
        consumer = order[-1]
        if pool == "divided":
            free = held[consumer] < room
        else:
            free = held[consumer] < LINE_ROWS or int(np.maximum(held - LINE_ROWS, 0).sum()) < entries
        if not free:
            return made
        held[consumer] += 1
        made.append(order.pop())
