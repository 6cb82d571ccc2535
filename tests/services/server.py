"""A web service on this machine that does what a path says: answers, is slow, fails, breaks off, says nonsense."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen


class Service:
    """asked: how often each path was. most: calls that were under way at once. gate: slow calls wait for it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: Counter[str] = Counter()
        self.now = self.most = 0
        self.gate = threading.Event()
        self.lock = threading.Lock()

    def get(self, path: Any, timeout: float = 5) -> Any:
        with urlopen(f"{self.url}/{path}", timeout=timeout) as answer:
            return json.load(answer)


@contextmanager
def service(together: int = 0) -> Iterator[Service]:
    """together: calls of `meet` go on when so many are there."""
    barrier = threading.Barrier(together) if together else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what, _, rest = self.path.removeprefix("/").partition("/")
            with found.lock:
                found.asked[self.path] += 1
                times = found.asked[self.path]
                found.now += 1
                found.most = max(found.most, found.now)
            try:
                if what == "meet" and barrier is not None:
                    barrier.wait(20)
                if what == "slow":
                    found.gate.wait(20)
            finally:
                with found.lock:
                    found.now -= 1  # Who has the answer may call again before this thread goes on.
            self._answer(what, rest, times)

        def _answer(self, what: str, rest: str, times: int) -> None:
            if what == "close":
                return  # Without a word.
            if what == "down" or (what == "third" and times < 3):
                self.send_response(503)
                self.end_headers()
                return
            if what == "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"name": ')
                return
            said = b"<html>" if what == "garbage" else json.dumps({"name": f"{what} {rest}".strip(), "times": times}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    found = Service(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
