"""A location in HDFS: what is its own beside what every store keeps."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import open_store
from evenflow.store.webhdfs import _refusal as refusal

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


def named(paths: dict[str, str | None], path: str) -> list[dict[str, Any]]:
    """As a name node lists a folder. paths: of folders (None) and files, with what is in them."""
    inside = {each.removeprefix(f"{path}/").partition("/")[0] for each in paths if each.startswith(f"{path}/")}
    kinds = {each: "DIRECTORY" if paths.get(f"{path}/{each}") is None else "FILE" for each in sorted(inside)}
    return [{"pathSuffix": each, "type": kind, "length": 0} for each, kind in kinds.items()]


def test_folders_in_which_nothing_is_left_go_by_a_request_that_spares_what_is_new_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name node in memory. Method: folders of two generations, in one of which somebody writes between the look and the request."""
    store: Any = open_store("webhdfs://127.0.0.1:1/location", {"user": "somebody"})
    root = "/location/checkpoints"
    paths: dict[str, str | None] = dict.fromkeys([f"{root}/{each}" for each in ("1", "1/1", "1/2", "1/3", "2", "2/1")])
    paths |= {f"{root}/1/2/a": "state", f"{root}/1/3/.a.0123456789ab.tmp": "st"}
    deleted: list[str] = []

    def ask(method: str, op: str, path: str, **said: str) -> bytes:
        if op == "LISTSTATUS":
            return json.dumps({"FileStatuses": {"FileStatus": named(paths, path)}}).encode()
        assert (method, op, said) == ("DELETE", "DELETE", {"recursive": "false"})
        deleted.append(path)
        if path == f"{root}/1/1":
            paths[f"{path}/b"] = "new"
        if any(each.startswith(f"{path}/") for each in paths):
            exception = {"exception": "PathIsNotEmptyDirectoryException", "message": f"`{path} is non empty': Directory is not empty"}
            raise refusal(403, json.dumps({"RemoteException": exception}).encode(), path)
        del paths[path]
        return b'{"boolean": true}'

    monkeypatch.setattr(store, "_ask", ask)
    assert store.clear("checkpoints/", lambda name: not name.startswith("checkpoints/2/")) == 1, "files are counted"
    assert deleted == [f"{root}/1/1", f"{root}/1/3/.a.0123456789ab.tmp", f"{root}/1/3"]
    assert sorted(paths) == [f"{root}/{each}" for each in ("1", "1/1", "1/1/b", "1/2", "1/2/a", "2", "2/1")]


@pytest.mark.conformance
@pytest.mark.parametrize("op", ["CREATE", "RENAME", "DELETE"])
def test_who_writes_into_a_folder_while_it_is_removed_makes_it_again(
    op: str, webhdfs_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: another sweeps before a request of a writer."""
    store: Any = webhdfs_store
    ask, name, swept = store._ask, "checkpoints/000001/000001/a", list[str]()

    def sweeps(method: str, asked: str, *more: Any, **said: Any) -> bytes:
        if asked == op and not swept:
            swept.append(asked)
            store.clear("checkpoints/", lambda found: found.endswith("/"))
            assert ("000001" in str(ask("GET", "LISTSTATUS", f"{store._root}/checkpoints"))) is (op != "CREATE")
        return bytes(ask(method, asked, *more, **said))

    with monkeypatch.context() as patch:
        patch.setattr(store, "_ask", sweeps)
        store.put(name, b"state")
    assert store.get(name) == b"state" and swept == [op]
    store.delete(name)
    assert store.clear("checkpoints/", lambda found: True) == 0
    assert b"000001" not in ask("GET", "LISTSTATUS", f"{store._root}/checkpoints")


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
