"""Whether an engine is well, for whoever asks over HTTP for `/readyz`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene

OLD_US: Final = 3_000_000
"""A reading that is older says nothing of now."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """ready: else why not, in short sentences."""

    ready: bool
    reasons: tuple[str, ...] = ()


def readiness(scene: Scene | None, reading: Reading | None, now_us: int) -> Readiness:
    """Whether the engine has been heard of in the last three seconds, and each active run has all the replicas that it shall have,
    and of no dataflow the newest run has failed.

    scene, reading: the newest, None before the first. now_us: microseconds since 1970.
    """
    if scene is None or reading is None:
        return Readiness(False, ("nothing has been heard of the engine yet",))
    reasons = []
    age_us = now_us - reading.at_us
    if age_us > OLD_US:
        reasons.append(f"the newest reading is {age_us / 1e6:.1f} s old")
    reasons += [
        f"{run.dataflow}: redundancy is {run.redundancy} of {run.replicas}"
        for run in scene.runs
        if run.active and run.redundancy < run.replicas
    ]
    reasons += [f"{run.dataflow}: {run.run} has failed: {run.failure}" for run in scene.newest() if run.failure is not None]
    return Readiness(not reasons, tuple(reasons))
