"""A process that is asked one thing and is not trusted: it has so much time and may say so much, and all that it has started ends with it.

It leads a session of its own, so that one signal ends it and its children. Its standard input stays open for as long as whoever has started
it lives; when that ends, it ends itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final

COMPLAINED: Final = 1 << 16
"""Bytes of the standard error that are kept, the last ones."""
ENDING_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """code: as `Popen.returncode`. said, complained: standard output and error. cpu_s: it took. late: its time was over."""

    code: int
    said: bytes
    complained: bytes
    cpu_s: float
    late: bool


def run_limited(command: Sequence[str], text: str, wall_s: float, most_said: int) -> Ended:
    """Start it, give it one line, wait for its end. Who says more than most_said bytes is ended, and one byte more of it is returned."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    said, complained, over = bytearray(), bytearray(), threading.Event()

    def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def hear(stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := stream.read(1 << 16):
                said.extend(part[: most_said + 1 - len(said)])
                if len(said) > most_said:
                    end()

    def hear_complaints(stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := stream.read(1 << 16):
                complained.extend(part)
                del complained[:-COMPLAINED]

    def give(stream: IO[bytes]) -> None:
        data = memoryview(text.encode())
        with contextlib.suppress(OSError, ValueError):
            while data:
                data = data[stream.write(data) or 0 :]

    def wait() -> None:
        """Its number stays its own until it is asked for at the end, so that no other process can get the signal."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        over.set()

    work = [(hear, process.stdout), (hear_complaints, process.stderr), (give, process.stdin)]
    threads = [threading.Thread(target=each, args=(stream,), name="evenflow-preview", daemon=True) for each, stream in work]
    for thread in [*threads, threading.Thread(target=wait, name="evenflow-preview", daemon=True)]:
        thread.start()
    late = False
    try:
        late = not over.wait(wall_s)
    finally:
        end()
        over.wait(ENDING_S)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for thread in threads:
            thread.join(ENDING_S)
        for _, stream in work:
            with contextlib.suppress(OSError):
                stream.close()
    return Ended(process.returncode, bytes(said), bytes(complained), used.ru_utime + used.ru_stime, late)


def end_with_parent() -> None:
    """Called in the process, after its line has come: it ends, with all it has started, when its standard input does."""
    alive = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(os.devnull, encoding="ascii")  # noqa: SIM115

    def wait() -> None:
        while os.read(alive, 1 << 12):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="evenflow-parent", daemon=True).start()


__all__ = ["Ended", "end_with_parent", "run_limited"]
