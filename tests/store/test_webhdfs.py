"""A location in HDFS: what is its own beside what every store keeps."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import open_store

STATE = bytes(range(256)) * 64


class Node(BaseHTTPRequestHandler):
    """A name node that sends to itself as to a data node. That gives so many bytes of STATE, and then closes the connection."""

    given = len(STATE)

    def do_GET(self) -> None:
        if "at=data" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", str(len(STATE)))
            self.end_headers()
            self.wfile.write(STATE[: self.given])
        else:
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}{self.path}&at=data")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *said: Any) -> None:
        pass


@contextmanager
def node(given: int) -> Iterator[Store]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Some", (Node,), {"given": given}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield open_store(f"webhdfs://127.0.0.1:{server.server_port}/location", {"user": "somebody"})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("given", [0, 1, len(STATE) - 1])
def test_an_object_that_is_cut_off_on_its_way_is_not_taken_for_whole(given: int) -> None:
    """A data node that fails closes the connection as one that has given everything does."""
    with node(given) as store, pytest.raises(OSError, match="cut off") as cut:
        store.get("checkpoints/000001/000001/a")
    assert cut.value.errno == errno.EPROTO


def test_an_object_that_is_whole_or_larger_than_its_reader_takes_is_not_cut_off() -> None:
    with node(len(STATE)) as store:
        assert store.get("a") == STATE == store.get("a", len(STATE))
        with pytest.raises(TooLarge):
            store.get("a", 100)


@pytest.mark.conformance
def test_what_a_writer_has_left_is_cleared_if_nobody_writes_it_any_more(webhdfs_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = webhdfs_store
    ask, name = store._ask, "checkpoints/000001/000001/a"

    def dies(method: str, op: str, *more: Any, **said: Any) -> bytes:
        if op in ("RENAME", "DELETE"):
            raise ConnectionError("gone")
        return bytes(ask(method, op, *more, **said))

    with monkeypatch.context() as patch:
        patch.setattr(store, "_ask", dies)
        with pytest.raises(ConnectionError):
            store.create(name, b"state")
    assert store.names() == []
    assert store.clear("checkpoints/", lambda found: found != name) == 0
    assert store.clear("checkpoints/", lambda found: found == name) == 1
    assert store.clear("checkpoints/", lambda found: True) == store.clear("nowhere/", lambda found: True) == 0
