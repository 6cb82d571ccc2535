"""A location in S3: what a server may answer, and two processes for one name."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evenflow.errors import LocationError
from evenflow.store.objects import Store
from evenflow.store.opening import open_store, probe
from tests.store.s3_server import ACCESS


@contextmanager
def answering(status: int, code: str) -> Iterator[Store]:
    """A store at a server that answers every put with this, in as few words as servers have that are not AWS's."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield open_store("s3://bucket/a", {**ACCESS, "endpoint_url": f"http://127.0.0.1:{server.server_port}"})
        finally:
            server.shutdown()
            thread.join()


def test_a_refusal_without_awss_words_is_one() -> None:
    with answering(412, "PreconditionFailed") as store, pytest.raises(FileExistsError):
        store.create("a", b"x")


def test_a_conflict_of_two_writers_leaves_open_who_was_first() -> None:
    with answering(409, "ConditionalRequestConflict") as store, pytest.raises(OSError, match="not done yet") as raised:
        store.create("a", b"x")
    assert not isinstance(raised.value, FileExistsError)


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (501, "NotImplemented", "cannot create an object only if there is none"),
        (403, "AccessDenied", "give the user"),
        (418, "Odd", "check that"),
    ],
)
def test_a_server_that_will_not_is_refused_with_what_to_do(status: int, code: str, advice: str) -> None:
    with answering(status, code) as store, pytest.raises(LocationError, match=advice):
        probe(store)


def test_a_bucket_that_is_not_there_is_said_to(s3_endpoint: str) -> None:
    with pytest.raises(LocationError, match="create the bucket"):
        probe(open_store("s3://no-such-bucket/a", {**ACCESS, "endpoint_url": s3_endpoint}))


def test_options_that_cannot_be_together_are_refused() -> None:
    with pytest.raises(LocationError, match="s3fs does not take these options"):
        open_store("s3://bucket/a", {"key": "a", "username": "b"})


@pytest.mark.parametrize("option", ["endpoint", "loop"])
def test_an_option_that_s3fs_does_not_have_is_refused(option: str) -> None:
    with pytest.raises(LocationError, match=f"has no option '{option}'; it has .*endpoint_url"):
        open_store("s3://bucket/a", {option: "x"})


def test_without_s3fs_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(LocationError, match=r"pip install 'evenflow\[s3\]'"):
        open_store("s3://bucket/a")


@pytest.mark.conformance
def test_a_large_object_is_created_by_one_request(s3_store: Store) -> None:
    """s3fs would send what has more than 100 MB in parts; then some servers do not keep the condition."""
    size = 101 << 20
    s3_store.create("large", bytes(size))
    with pytest.raises(FileExistsError):
        s3_store.create("large", b"x" * size)
    assert s3_store.get("large") == bytes(size)


CREATES_ALL = """
import sys
from evenflow.store.opening import open_store
store = open_store(sys.argv[1], {"key": "somebody", "secret": "something", "endpoint_url": sys.argv[2]})
won = 0
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    try:
        store.create(f"journal/{number:06d}", sys.argv[4].encode() * 100)
        won += 1
    except FileExistsError:
        pass
print(won)
"""


@pytest.mark.conformance
def test_of_two_processes_exactly_one_creates_each_object(s3_store: Store, s3_endpoint: str) -> None:
    names = 100
    command = [sys.executable, "-c", CREATES_ALL, s3_store.url, s3_endpoint, str(names)]
    writers = [subprocess.Popen([*command, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for who in "ab"]
    won = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        won.append(int(writer.communicate()[0]))
    objects = [s3_store.get(name) for name in s3_store.names()]
    assert len(objects) == names == sum(won)
    assert [objects.count(who * 100) for who in (b"a", b"b")] == won
