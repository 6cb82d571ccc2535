"""A process that commits epoch after epoch and is killed (kill -9) before the n-th of its touches of the directory, for every n.

`Dying(root)` runs it: the process of this module forks, for each n or each so many, a child that works in `root/NNN` and kills itself;
says so; waits until the readers of the test have looked at what is there; and then forks another one, which begins again and comes to the
end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.operator.operator import Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK

SCHEMA = pa.schema([("epoch", pa.int64()), ("partition", pa.int32())])
EPOCHS = 5
INTERVAL_MS = 2
TOUCHES = {"open", "os.link", "os.remove", "os.rename", "os.mkdir", "os.listdir", "os.scandir"}
"""Python tells its audit hooks of these before they happen."""


def partitions_of(epoch: int) -> list[int]:
    """Which of three have a row in an epoch. In the epochs that cut, 2 and 4, one has that had none before."""
    return {1: [0, 1], 2: [0, 2], 3: [1], 4: [0, 1, 2], 5: [0, 2]}[epoch]


def rows_through(epoch: int) -> list[tuple[int, int]]:
    """(epoch, partition) of all rows up to the end of an epoch."""
    return [(e, p) for e in range(1, epoch + 1) for p in partitions_of(e)]


class Dying:
    """Iterating gives, for each n, the directory in which the process died; when the iterator is asked for the next one, a successor has
    finished the work in it.

    first, every: the least n, from 1, and from one to the next. file_ms: the commits of so long are one file; 0: each is."""

    def __init__(self, root: Path, first: int = 1, every: int = 1, file_ms: int = 0) -> None:
        self.root, self._first, self._every, self._file_ms = root, first, every, file_ms
        self.kills = 0
        self.finished: list[Path] = []

    def __iter__(self) -> Iterator[Path]:
        here = Path(__file__).resolve().parents[2]
        environment = os.environ | {"PYTHONPATH": f"{here}:{here / 'src'}"}
        command = [sys.executable, "-m", "tests.sinks.dying", str(self.root), str(self._first), str(self._every), str(self._file_ms)]
        with subprocess.Popen(command, env=environment, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    what, place = line.split()
                    if what == "killed":
                        self.kills += 1
                        yield Path(place)
                        process.stdin.write("\n")
                        process.stdin.flush()
                    else:
                        self.finished.append(Path(place))
            finally:
                process.stdin.close()
                process.wait(60)
        assert process.returncode == 0


def work(path: str, file_ms: int = 0) -> None:
    """Both steps, from the first epoch to the last."""
    params: dict[str, Any] = {"path": path, "run": "r1", "commit_interval_ms": INTERVAL_MS, "retries": 0, "file_interval_ms": file_ms}
    stage, commit = ParquetStage(SCHEMA, **params), ParquetCommit(**params)
    for epoch in range(1, EPOCHS + 1):
        mine = partitions_of(epoch)
        batch = pa.record_batch([pa.array([epoch] * len(mine), pa.int64()), pa.array(mine, pa.int32())], schema=SCHEMA)
        at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if epoch == EPOCHS else NO_WATERMARK)
        (records,) = stage.process(Rows(batch, np.array(mine, np.int32)), at)
        commit.process(records, at)


def die_at(path: str, touch: int) -> None:
    """Kill this process before it touches what is below `path` for the n-th time, from 1."""
    left = touch

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in TOUCHES and str(arguments[0]).startswith(path):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_child(path: str, file_ms: int, touch: int = 0) -> int:
    """Exit code of a forked process that does the work: -9 if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            os.fsync = lambda descriptor: (
                None
            )  # A killed process leaves what it has written to the kernel; only a machine's death does not.
            if touch:
                die_at(path, touch)
            work(path, file_ms)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(root: str, first: int, every: int, file_ms: int) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        work(elsewhere, file_ms)  # What is imported at the first need is here before the first fork.
    for touch in count(first, every):
        path = f"{root}/{touch:03d}"
        os.mkdir(path)
        code = in_child(path, file_ms, touch)
        if code == 0:
            return
        assert code == -signal.SIGKILL, code
        print("killed", path, flush=True)
        if not sys.stdin.readline():
            return
        assert in_child(path, file_ms) == 0
        print("finished", path, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
