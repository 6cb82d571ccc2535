"""Processes found by a mark in their environment, which children inherit whoever their parents are by now.

Only where the system shows environments under /proc (Linux). Elsewhere nothing is found, and processes end by the means of Spark alone:
the JVM with the pipe to its parent, executors and workers with their driver.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
GRACE_S: Final = 5.0
POLL_S: Final = 0.05


def marked(name: str, value: str) -> list[int]:
    """Ids of the running processes whose environment has `name=value`, without this one and without those that are dead already."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            # A zombie's environment reads as empty.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # It has ended meanwhile, or is somebody else's.
    return sorted(found)


def end_marked(name: str, value: str, grace_s: float = GRACE_S) -> list[int]:
    """Ask the marked processes to end, then make them. Returns those that had to be killed; blocks at most 2 * grace_s seconds."""
    if _gone(name, value, grace_s / 5):
        return []
    _signal_all(marked(name, value), signal.SIGTERM)
    if _gone(name, value, grace_s):
        return []
    stubborn = marked(name, value)
    _signal_all(stubborn, signal.SIGKILL)
    _gone(name, value, grace_s)
    return stubborn


def _gone(name: str, value: str, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while marked(name, value):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
