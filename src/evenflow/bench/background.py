"""Programs that run beside a benchmark and never outlive it: a shell that waits at a pipe ends them also when this process is killed. And
ports for them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 15.0
ENDS_WITH_ITS_PARENT: Final = '"$@" & read -r _; kill $!; wait $!'


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start it; what it says goes into `log`. environment: besides this process's own. The process that is returned is the shell."""
    words = ["/bin/sh", "-c", ENDS_WITH_ITS_PARENT, "sh", *command]
    with open(log, "ab") as said:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=said, env={**os.environ, **(environment or {})})


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then make it. One that was killed already is no mistake."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at right now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in taken]
    for each in taken:
        each.close()
    return ports


def tail(log: Path, lines: int = 10) -> str:
    """The last lines of what was said; "" if nothing was."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.is_file() else ""
