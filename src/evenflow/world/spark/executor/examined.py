"""What a task of `ef.doctor` looks at on its executor, and whom it reaches. Only the standard library: what is missing is to be found.

The task connects to the driver and says what it has seen, and at which port it listens; when the driver knows all of them it says where the
others are, and the task tries each. Lines of JSON; the first one has the token, without which nobody is listened to.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import tempfile
import time
from typing import Any, Final

from evenflow.world.spark.executor.requirements import versions
from evenflow.world.spark.net.names import family_of, resolve

DIAL_S: Final = 3.0
MOST_BYTES: Final = 1 << 20


def examine(host: str, port: int, token: str, ports: tuple[int, int] | None, patience_s: float) -> dict[str, Any]:
    """Facts about this executor: see `diagnosis.Examined`. Never raises for what is wrong with it."""
    facts = about_here()
    listening, facts["listens"] = _listen(host, ports)
    facts["unreached"], facts["driver"] = {}, ""
    try:
        with socket.create_connection((host, port), DIAL_S) as driver:
            driver.settimeout(patience_s)
            own = driver.getsockname()[0]
            where = None if listening is None else [own, listening.getsockname()[1]]
            _say(driver, {"token": token, "executor": facts["executor"], "where": where, "now_s": time.time()})
            others = _hear(driver)
            facts["unreached"] = _try_all(others)
            _say(driver, {"done": True})
            _hear(driver)  # Until everybody has tried: this end has to listen so long.
    except (OSError, ValueError) as error:
        facts["driver"] = f"{host}:{port} cannot be reached: {error}"
    finally:
        if listening is not None:
            listening.close()
    return facts


def about_here() -> dict[str, Any]:
    """What needs no network."""
    temporary, wrong, free = "the temporary directory", "", 0
    try:
        with tempfile.NamedTemporaryFile() as file:
            temporary = os.path.dirname(file.name)
            file.write(b"\0" * 4096)
        room = os.statvfs(temporary)
        free = room.f_bavail * room.f_frsize
    except OSError as error:
        wrong = str(error)
    return {
        "executor": executor_id(), "host": os.uname().nodename, "pid": os.getpid(), "python": sys.executable, "versions": versions(),
        "temporary": temporary, "temporary_wrong": wrong, "temporary_bytes": free, "descriptors": _descriptors(),
    }  # fmt: skip


def executor_id() -> str:
    """Of the executor above this process, "?" where the system does not say: as a site finds it."""
    pid = os.getpid()
    for _ in range(6):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except (OSError, ValueError, IndexError):
            break
        if b"--executor-id" in words:
            return words[words.index(b"--executor-id") + 1].decode()
        if any(word.endswith(b"SparkSubmit") for word in words):
            return "driver"
    return "?"


def _descriptors() -> int:
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _listen(host: str, ports: tuple[int, int] | None) -> tuple[socket.socket | None, str]:
    """(a listening socket, of the kind by which that host is reached, ""), or (None, why there is none)."""
    error: OSError | ValueError | None = None
    for port in (0,) if ports is None else range(ports[0], ports[1] + 1):
        try:
            return socket.create_server(("", port), family=family_of(resolve(host))), ""
        except (OSError, ValueError) as failed:
            error = failed
    return None, f"no port of {ports} is free: {error}" if ports else f"no port can be opened: {error}"


def _try_all(others: dict[str, Any]) -> dict[str, str]:
    """Whom of the others this one cannot reach, and why."""
    unreached = {}
    for name, (host, port) in others.items():
        try:
            socket.create_connection((host, port), DIAL_S).close()
        except OSError as error:
            unreached[name] = f"{host}:{port}: {error}"
    return unreached


def _say(to: socket.socket, words: dict[str, Any]) -> None:
    to.sendall(json.dumps(words).encode() + b"\n")


def _hear(of: socket.socket) -> dict[str, Any]:
    """The next line. Raises ValueError for what is no object, OSError when the other end is gone."""
    line = b""
    while not line.endswith(b"\n"):
        got = of.recv(65_536)
        if not got or len(line) > MOST_BYTES:
            raise ConnectionError("the driver has ended the examination")
        line += got
    words = json.loads(line)
    if not isinstance(words, dict):
        raise ValueError("no object")
    return words
