"""What the experiments about placement share: query trees as the papers draw them, bursts, and how late answers are under them."""

from __future__ import annotations

from typing import Final

import numpy as np

from evenflow.policy.linear import Model
from evenflow.stream.arrays import Floats

SITES: Final = 10
SOURCES: Final = 5
STEP_S: Final = 0.01
"""An epoch."""


def trees(random: np.random.Generator, boxes: int) -> Model:
    """A tree of boxes for each source, all of about the same number: 1 to 3 children each, 0.1 to 1 ms per row, selectivity 1 or 0.5 to 1,
    each half of the time (BO fig. 5)."""
    coefficients, links, first = np.zeros((boxes, SOURCES)), list[tuple[int, int]](), 0
    for source in range(SOURCES):
        size = boxes // SOURCES + (source < boxes % SOURCES)
        grown, rows = 1, [1.0] * size
        for box in range(size):
            coefficients[first + box, source] = rows[box] * random.uniform(1e-4, 1e-3)
            passes = 1.0 if random.random() < 0.5 else random.uniform(0.5, 1)
            for _ in range(min(int(random.integers(1, 4)), size - grown)):
                links.append((first + box, first + grown))
                rows[grown] = rows[box] * passes
                grown += 1
        first += size
    return Model(coefficients, np.ones(SITES), tuple(links))


def bursts(random: np.random.Generator, windows: int, sources: int = SOURCES, *, share: float = 0.1, times: float = 4.0) -> Floats:
    """float (windows, sources): 1, and `times` in a share of the windows, each source for itself."""
    found: Floats = np.where(random.random((windows, sources)) < share, times, 1.0)
    return found


def waves(random: np.random.Generator, steps: int, sources: int = SOURCES, *, depth: float = 0.5, held: int = 50) -> Floats:
    """float (steps, sources): rates that jump between 1 - depth and 1 + depth, each source for itself, every `held` steps on average."""
    up = random.random(sources) < 0.5
    jumps = random.random((steps, sources)) < 1 / held
    found: Floats = 1 + depth * np.where((np.cumsum(jumps, axis=0) + up) % 2, 1.0, -1.0)
    return found


def waits_s(loads: Floats, step_s: float = STEP_S) -> Floats:
    """float (steps, ...): how late answers are to what comes in each step. An epoch is over when its slowest site is, and a site works off
    what came before first. loads: float (steps, ..., sites), by the capacity of each; several runs beside each other cost little more."""
    work = loads * step_s
    backlog, found = np.zeros(work.shape[1:]), np.zeros(work.shape[:-1])
    for step, comes in enumerate(work):
        backlog += comes
        backlog.max(axis=-1, out=found[step, ...])
        np.maximum(0.0, backlog - step_s, out=backlog)
    return found


def p99_ms(loads: Floats) -> Floats:
    """float (...): of the latency under these loads, float (steps, ..., sites)."""
    found: Floats = np.quantile(waits_s(loads), 0.99, axis=0) * 1000
    return found
