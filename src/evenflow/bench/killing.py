"""Kill or stop an executor of a cluster that this process has started on this machine, as kill -9, a crash or a lost machine would.

Processes are found by who started whom: whatever is not below this process is never touched. Needs /proc (Linux).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from evenflow.errors import ClusterError

Manner = Literal["machine", "executor", "worker"]
MANNERS: Final[tuple[Manner, ...]] = ("machine", "executor", "worker")
"""machine: the executor's JVM and all processes below it, at once. executor: its JVM alone. worker: the site's Python process alone."""

PROC: Final = Path("/proc")
GONE_S: Final = 5.0
EXECUTOR: Final = b"--executor-id"


@dataclass(frozen=True, slots=True)
class Victim:
    """A site's Python process and the executor around it. workers: all processes below the executor's JVM, the site's among them."""

    site: int
    worker: int
    executor: int
    workers: tuple[int, ...]

    def processes(self, manner: Manner) -> tuple[int, ...]:
        if manner == "worker":
            return (self.worker,)
        return (self.executor,) if manner == "executor" else (self.executor, *self.workers)


def parents() -> dict[int, int]:
    """Parent of every process that runs now. Zombies are left out."""
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = int(fields[1])
    return found


def runs(process: int) -> bool:
    """Whether it runs, or is stopped. A zombie does not."""
    try:
        text = (PROC / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def below(root: int, parent_of: Mapping[int, int]) -> list[int]:
    """All processes below `root`, without it, parents before their children."""
    children: dict[int, list[int]] = {}
    for process, parent in parent_of.items():
        children.setdefault(parent, []).append(process)
    found: list[int] = []
    waiting = [root]
    while waiting:
        here = sorted(children.get(waiting.pop(0), []))
        found += here
        waiting += here
    return found


def is_executor(process: int) -> bool:
    """Whether it is the JVM of an executor, of any cluster manager."""
    try:
        words = (PROC / str(process) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return EXECUTOR in words


def executors() -> list[int]:
    """JVMs of executors below this process."""
    return [process for process in below(os.getpid(), parents()) if is_executor(process)]


def victim_of(site: int, worker: int) -> Victim:
    """What there is to kill of a site. worker: its Python process. Raises ClusterError if it does not run below this process."""
    parent_of = parents()
    if worker not in below(os.getpid(), parent_of):
        raise ClusterError(f"site {site} (process {worker}) does not run on a cluster that this command has started: it will not be killed")
    process = worker
    while process in parent_of and not is_executor(process):
        process = parent_of[process]
    if process not in parent_of or process == os.getpid():
        raise ClusterError(f"site {site} (process {worker}) has no executor above it")
    return Victim(site, worker, process, tuple(below(process, parent_of)))


def send(number: signal.Signals, processes: Iterable[int]) -> float:
    """Signal all of them at once. Returns when, by the monotonic clock, seconds; those that are gone already are no mistake."""
    at = time.monotonic()
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
    return at


def kill(processes: Sequence[int]) -> float:
    """SIGKILL. Returns when, by the monotonic clock."""
    return send(signal.SIGKILL, processes)


def stop(processes: Sequence[int]) -> float:
    """SIGSTOP: they hang, every thread of them, when this returns. Returns when they were signalled, by the monotonic clock."""
    at = send(signal.SIGSTOP, processes)
    while any(not hangs(process) for process in processes) and time.monotonic() < at + GONE_S:
        time.sleep(0.001)
    return at


def hangs(process: int) -> bool:
    """Whether all its threads are stopped. One that is gone does nothing either."""
    try:
        threads = list((PROC / str(process) / "task").iterdir())
        return all((thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "TtZX" for thread in threads)
    except OSError:
        return not runs(process)


def resume(processes: Sequence[int]) -> float:
    """SIGCONT. Returns when, by the monotonic clock."""
    return send(signal.SIGCONT, processes)


def gone(processes: Sequence[int], within_s: float = GONE_S) -> bool:
    """Wait until none of them runs any more. False if one still does."""
    deadline = time.monotonic() + within_s
    while any(runs(process) for process in processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
