"""Readers that do not read, on real sockets: what they cost the page's process and the driver, and when they are hung up on. And garbage,
at every path there is."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from evenflow.bench.dashboard import Big, memory_of, server
from evenflow.cli.editing import FileShelf
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.web import serve
from evenflow.monitor.web.app import make_app
from evenflow.monitor.web.editor import Editor, make_editor
from evenflow.monitor.web.feed import Feed
from evenflow.monitor.web.replay import make_replay
from evenflow.monitor.web.server import Guard, Site
from evenflow.monitor.web.tape import Tape
from evenflow.world.spark.driver import control_port, watching
from evenflow.world.spark.driver.control_client import engines, watch
from evenflow.world.spark.driver.control_port import ControlPort
from tests.monitor.simulated import line_of, stream
from tests.query.test_checking import drawn
from tests.ui.editing import editing
from tests.ui.serving import TOKENS, serving, sessions, simulated
from tests.ui.test_replay import kill, replaying
from tests.world.test_watching import watched_engine

__all__ = ["watched_engine"]  # The fixture.
STUCK = 24
READINGS = 120
SOON_S = 20.0


class Again(Big):
    """A big run that always says the same, under the next number."""

    def turn(self) -> tuple[Scene, Reading]:
        if not hasattr(self, "told"):
            self.told = super().turn()
        scene, reading = self.told
        self.told = scene, replace(reading, number=reading.number + 1, at_us=reading.at_us + 500_000)
        return self.told


@contextlib.contextmanager
def stuck(host: str, port: int, token: str, count: int) -> Iterator[list[socket.socket]]:
    """Readers of the stream that take the first bytes and nothing else."""
    wires = list[socket.socket]()
    try:
        for _ in range(count):
            wire = socket.socket()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(SOON_S)
            wire.connect((host, port))
            wire.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            wires.append(wire)
        assert all(wire.recv(12) == b"HTTP/1.1 200" for wire in wires)
        yield wires
    finally:
        for wire in wires:
            wire.close()


def test_who_never_reads_costs_a_buffer_and_delays_nobody() -> None:
    """Method: some readers stop at once while hundreds of readings of the target's size go by, of which one who reads gets the newest. Kept
    for them, these would be 24 times 4 MB; the process has grown by a fraction of that."""
    big = Again()
    scene, _ = big.turn()
    with server(big, scene, 0.008) as (url, _):
        host, port = url.split("/")[2].split(":")
        pid = server_of(int(port))
        with stuck(host, int(port), "bench", STUCK):
            before, numbers = memory_of(pid), list[int]()
            with socket.create_connection((host, int(port)), timeout=SOON_S) as wire:
                wire.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer bench\r\n\r\n".encode())
                for line in wire.makefile("rb"):
                    if line.startswith(b'data: {"kind":"reading"'):
                        numbers.append(json.loads(line[6:])["number"])
                        if numbers[-1] >= numbers[0] + READINGS:
                            break
            assert memory_of(pid) - before < 40 << 20
    assert numbers == sorted(set(numbers)) and len(numbers) > READINGS / 4, "who reads has them as they come"


def server_of(port: int) -> int:
    """The process that listens there: the one child that the bench has started."""
    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    return child.pid


def test_who_has_not_read_for_long_loses_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "STUCK_MS", 500)
    with serving(simulated(sessions())) as page:
        parts = urlsplit(page.at)
        with stuck(cast(str, parts.hostname), cast(int, parts.port), "look", 3):
            until_s = time.monotonic() + SOON_S
            assert page.teller.feed.readers == 3
            while page.teller.feed.readers and time.monotonic() < until_s:
                threading.Event().wait(0.05)
            assert page.teller.feed.readers == 0


def test_a_process_that_watches_and_does_not_read_is_let_go_by_the_driver(
    watched_engine: ControlPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: readings of a megabyte, of which the kernel keeps a few; whoever reads gets them meanwhile."""
    monkeypatch.setattr(control_port, "READ_S", 0.5)
    monkeypatch.setattr(watching, "EVERY_S", 0.02)
    encoded = watching.encoded
    monkeypatch.setattr(watching, "encoded", lambda told: encoded(told)[:-1] + b',"pad":"' + b"x" * (1 << 20) + b'"}')
    (there,) = engines()
    still, reads = watch(there), watch(there)
    next(still)
    next(reads)
    assert watched_engine._watchers == 2
    numbers, until_s = list[int](), time.monotonic() + SOON_S
    while watched_engine._watchers == 2 and time.monotonic() < until_s:
        told = next(reads)
        if isinstance(told, Reading):
            numbers.append(told.number)
    assert watched_engine._watchers == 1 and len(numbers) > 3 and numbers == sorted(set(numbers))
    reads.close()
    still.close()


# ---------------------------------------------------------------- garbage everywhere


def paths(app: Any) -> list[APIRoute]:
    assert isinstance(app, Guard)
    inner = cast(FastAPI, app._app)
    return [route for route in inner.routes if isinstance(route, APIRoute)]


BODIES = [b"", b"\x00\xff", b"{", b"null", b"[]", b'{"document": {"boxes": [[]]}, "text": 3, "cell": {}}', b'{"a":' * 5_000]
QUERIES = [
    "",
    "?since=x&first=x&count=x",
    "?since=-1&first=-1&count=-1",
    "?since=9e99&first=1e9&count=0",
    "?since=" + "9" * 400,
    "?%00=%ff",
]
HEADERS = ["", "*", "n." + "9" * 400, "../..", "\u00ff"]


def answers_to_garbage(at: str, routes: list[APIRoute], token: str = "act") -> Iterator[tuple[str, int, bytes]]:
    netloc = urlsplit(at).netloc
    for route in routes:
        path = route.path.replace("{number}", "x").replace("{path:path}", "%2e%2e/x")
        for method in sorted({*(route.methods or ()), "DELETE"}):
            if path.endswith("/stream") and method == "GET":
                continue  # It never ends; what is no id is the beginning, which a test of the feed holds.
            sent = [(query, b"") for query in QUERIES] + [("", body) for body in (BODIES if method == "POST" else BODIES[1:2])]
            for place, (query, body) in enumerate(sent):
                connection = http.client.HTTPConnection(netloc, timeout=SOON_S)
                with contextlib.closing(connection):
                    headers = {"Authorization": f"Bearer {token}", "If-None-Match": HEADERS[place % len(HEADERS)].encode("latin-1")}
                    try:
                        connection.request(method, path + query, body, headers)
                    except (ValueError, http.client.InvalidURL):
                        continue  # Our own client does not send it.
                    answer = connection.getresponse()
                    yield f"{method} {path}{query[:40]} {body[:20]!r}", answer.status, answer.read()


def test_garbage_at_every_path_is_answered(tmp_path: Path) -> None:
    """Every path that any of the three pages has, with every method that it has and one more: no fault of the server, and what is wrong is
    said as a problem. What lasts is left out: a preview of nonsense is one of the tests of previews."""
    site: Any = Site(Feed("n", ()), lambda name, arguments, say: {}, lambda: b"", lambda: None, TOKENS)
    drawing, recording = tmp_path / "drawn.json", tmp_path / "incident.jsonl"
    drawing.write_text(json.dumps(drawn()))
    recording.write_bytes(b"".join(kill()))
    with serving(simulated(sessions())) as page:
        found = list(answers_to_garbage(page.at, paths(make_app(site))))
    with replaying(recording) as at:
        found += answers_to_garbage(at, paths(make_replay(site, Tape(recording))), "look")
    with editing(drawing) as edited:
        found += answers_to_garbage(edited.at, paths(make_editor(site, Editor(FileShelf(drawing)))))
    assert len(found) > 400
    for what, status, body in found:
        assert status < 500 or status == 503, (what, status, body[:200])
        if status >= 400 and body and "/readyz" not in what:
            assert json.loads(body)["status"] == status, what
    assert json.loads(drawing.read_text()) == drawn(), "and nothing is saved"


def test_who_says_nothing_keeps_nobody_out(tmp_path: Path) -> None:
    """Method: a page that may have few files, and more connections on which nothing is asked, or half of a request. They need no token."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(line_of(each) for each in stream(4.0, kill_s=1.2)), encoding="utf-8")
    few = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"
    command = [
        sys.executable,
        "-c",
        f"{few}; from evenflow.cli.app import main; main(sys.argv[1:])",
        "ui",
        str(path),
        "--port",
        "0",
        "--child",
    ]
    environ = {**os.environ, "EVENFLOW_CONTROL_DIR": str(tmp_path / "control")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as served, contextlib.ExitStack() as stack:
        assert served.stdout is not None and served.stdin is not None
        stack.callback(served.stdin.close)
        url = urlsplit(json.loads(served.stdout.readline())["url"])
        there = (cast(str, url.hostname), cast(int, url.port))
        with contextlib.closing(http.client.HTTPConnection(*there, timeout=SOON_S)) as first:
            first.request("GET", "/healthz")
            assert first.getresponse().read() == b"ok\n"
        for number in range(160):
            wire = stack.enter_context(socket.create_connection(there, timeout=SOON_S))
            wire.sendall(
                (b"", b"GET /healthz HTTP/1.1\r\nHost: loc", b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")[
                    number % 3
                ]
            )
        with contextlib.closing(http.client.HTTPConnection(*there, timeout=SOON_S)) as last:
            last.request("GET", "/healthz")
            assert last.getresponse().read() == b"ok\n"
