"""A driver's sign of life beside its journal, where the journal itself is none (availability.md, J4, K14).

A run whose sinks hold it up, whose state is being restored, or whose user code takes minutes appends nothing, and lives. So its driver
replaces one small object whenever the journal has been silent for a part of its lease, and once when it begins: from that, others know
for how long its sites live without it. It is evidence only. Who drives, the journal alone decides.

What cannot be read says nothing: it may be of anybody, and all that it can do is to make who waits wait longer.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

ALIVE: Final = "alive/"
MOST_ALIVE_BYTES: Final = 1 << 12
LONGEST_LEASE_S: Final = 1e6
"""As for the engine's option."""
EVERY: Final = 0.25
"""Of its lease, after which a driver that has appended nothing says that it lives: three times before anybody may doubt it."""


@dataclass(frozen=True, slots=True)
class Alive:
    """generation, nonce: of the driver. count: how often it has said so. lease_s: for how long its sites live without it. at_s: wall
    clock, by which only the ordinary start shortens its wait."""

    generation: int
    nonce: str
    count: int
    lease_s: float
    at_s: float


def alive_name(generation: int) -> str:
    """Of its object, below the location. Each generation has its own, so a stale driver overwrites nobody's."""
    return f"{ALIVE}{generation:06d}.json"


def to_bytes(alive: Alive) -> bytes:
    said = {
        "generation": alive.generation, "nonce": alive.nonce, "count": alive.count, "lease_s": alive.lease_s, "at_s": alive.at_s,
    }  # fmt: skip
    return json.dumps(said).encode() + b"\n"


def from_bytes(data: bytes) -> Alive | None:
    """The inverse; None for what is none."""
    try:
        said = json.loads(data)
        generation, nonce, count = said["generation"], said["nonce"], said["count"]
        lease_s, at_s = float(said["lease_s"]), float(said["at_s"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    if type(generation) is not int or type(count) is not int or not isinstance(nonce, str):
        return None
    if not 0 < lease_s <= LONGEST_LEASE_S or not math.isfinite(at_s):
        return None
    return Alive(generation, nonce, count, lease_s, at_s)
