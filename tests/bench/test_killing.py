"""Processes are found by who started whom, and nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from evenflow.bench import killing
from evenflow.errors import ClusterError

pytestmark = pytest.mark.skipif(not killing.PROC.is_dir(), reason="needs /proc")

WORKER = "import sys; print('here', flush=True); sys.stdin.read()"
EXECUTOR = f"""
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", {WORKER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def executor() -> Iterator[tuple[int, int]]:
    """(process of something that looks like an executor, the worker that it has started)."""
    command = [sys.executable, "-c", EXECUTOR, "--executor-id", "7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        yield process.pid, worker
        for left in (process.pid, worker):
            killing.resume([left])
            killing.kill([left])


def test_below_lists_parents_before_children() -> None:
    assert killing.below(1, {2: 1, 3: 2, 4: 1, 5: 3, 6: 9}) == [2, 4, 3, 5]


def test_an_executor_is_found_from_its_worker(executor: tuple[int, int]) -> None:
    process, worker = executor
    victim = killing.victim_of(3, worker)
    assert victim == killing.Victim(3, worker, process, (worker,)) and process in killing.executors()
    assert [victim.processes(manner) for manner in killing.MANNERS] == [(process, worker), (process,), (worker,)]


def test_a_lost_machine_takes_everything_along(executor: tuple[int, int]) -> None:
    process, worker = executor
    killing.kill(killing.victim_of(3, worker).processes("machine"))
    assert killing.gone([process, worker])
    killing.kill([process, worker])  # Those that are gone are no mistake.


def test_a_stopped_executor_goes_on(executor: tuple[int, int]) -> None:
    process, _ = executor
    killing.stop([process])
    assert killing.hangs(process)
    assert os.waitpid(process, os.WUNTRACED)[1] >> 8 == signal.SIGSTOP
    killing.resume([process])
    assert process in killing.parents() and not killing.hangs(process)


@pytest.mark.parametrize("worker", [1, os.getpid(), os.getppid()], ids=["init", "self", "parent"])
def test_who_is_not_ours_is_left_alone(worker: int) -> None:
    with pytest.raises(ClusterError, match="will not be killed"):
        killing.victim_of(0, worker)


def test_a_process_without_an_executor_is_refused() -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ClusterError, match="no executor above"):
            killing.victim_of(0, process.pid)
        process.kill()
