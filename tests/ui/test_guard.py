"""Wrong tokens, wrong hosts, other sites' pages, garbage, slow readers: what each gets."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from evenflow.coordinator.requests import OPERATIONS
from evenflow.monitor.web.app import STREAMS
from evenflow.monitor.web.guard import Tokens, is_host
from evenflow.monitor.web.server import BODY_BYTES
from tests.ui.serving import Page

MANY = 1_000
"""Streams that somebody opens at once."""
LOOK, ACT = {"Authorization": "Bearer look"}, {"Authorization": "Bearer act"}


def ask(page: Page, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(page.at).netloc, timeout=20)
    try:
        connection.request(method, f"/{path}", body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def problem(answer: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    status, headers, body = answer
    assert headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = json.loads(body)
    assert told["status"] == status and told["detail"] and told["exit_code"]
    return told


DATA = ["api/v1/scene", "api/v1/reading", "api/v1/stream", "api/v1/openapi.json", "api/v1/sites", "api/v1/requests/1"]


@pytest.mark.parametrize("path", DATA)
def test_no_token_no_data(page: Page, path: str) -> None:
    for header in (None, "Bearer", "Bearer ", "Bearer guessed", "Basic bG9vazo=", "look", "Bearer look act", "Bearer \u00ff"):
        answer = ask(page, path, **({} if header is None else {"Authorization": header}))
        assert answer[0] == 401, header
        assert "token" in problem(answer)["detail"]
        assert answer[1]["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("operation", [each.name for each in OPERATIONS if each.effect != "read"])
def test_the_token_of_who_looks_changes_nothing(page: Page, operation: str) -> None:
    assert ask(page, f"api/v1/{operation}", method="POST", body=b"{}", **LOOK)[0] == 403
    assert ask(page, f"api/v1/{operation}", method="POST", body=b"{}")[0] == 401
    assert ask(page, f"api/v1/{operation}", **ACT)[0] == 405


@pytest.mark.parametrize("path", ["", "healthz", "metrics", "static/main.js", *DATA])
def test_a_name_that_was_bent_to_this_machine_is_no_host(page: Page, path: str) -> None:
    for host in ("evil.example", "evil.example:4141", "127.0.0.1.evil.example", "", "0.0.0.0", "[::2]:80", "localhost.evil.example"):
        assert ask(page, path, Host=host, **LOOK)[0] in (400, 421), host


@pytest.mark.parametrize("host", ["127.0.0.1:4141", "localhost", "LOCALHOST:1", "[::1]:80", "::1", "127.8.8.8"])
def test_names_of_this_machine_are(host: str) -> None:
    assert is_host(host, "127.0.0.1")


def test_a_proxy_has_its_name() -> None:
    assert is_host("spark.example:443", "127.0.0.1", ("spark.example",)) and not is_host("spark.example", "127.0.0.1")


def test_nothing_may_be_changed_without_a_token_that_may() -> None:
    tokens = Tokens("look", None)
    assert tokens.right("Bearer look") == "view" and tokens.right("Bearer None") is None and tokens.right("Bearer ") is None
    assert Tokens().view != Tokens().view and len(Tokens().view) >= 32 and Tokens().view not in repr(Tokens())


def test_every_answer_says_what_a_browser_may_do_with_it(page: Page) -> None:
    status, headers, body = ask(page, "")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';") and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert policy.split("'nonce-")[1].split("'")[0].encode() in body and b"{{" not in body
    for path in ("", "healthz", "api/v1/scene", "nowhere", "static/main.js"):
        assert ask(page, path)[1]["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in ask(page, path, Origin="https://evil.example")[1]
    assert "set-cookie" not in headers


def test_a_page_elsewhere_may_not_even_ask_first(page: Page) -> None:
    answer = ask(page, "api/v1/drain", method="OPTIONS", Origin="https://evil.example", Access_Control_Request_Method="POST")
    assert answer[0] == 405 and "access-control-allow-origin" not in answer[1]


GARBAGE = [
    b"\x00\xff\xfe", b"{", b"[]", b"null", b"1", b'"drain"', b'{"site": "1"}', b'{"site": -1}', b'{"site": 1e999}', b'{"site": true}',
    b'{"site": 99999999999}', b'{"nonsense": 1}', b'{"site": {"$ne": 1}}', b'{"site": [1]}', b"[" * 100_000, b"site=1&x=2",
    b'{"box": "\\u0000", "count": 1, "target": "\\u0000", "file": ""}',
]  # fmt: skip


@pytest.mark.parametrize("operation", [each.name for each in OPERATIONS])
def test_garbage_is_refused_by_every_operation(page: Page, operation: str) -> None:
    before = page.live.readings
    for body in GARBAGE:
        answer = ask(page, f"api/v1/{operation}", method="POST", body=body, **ACT)
        assert answer[0] in (400, 409, 422), (operation, body, answer)
        problem(answer)
    assert page.live.readings >= before


@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        "api/v1/nothing",
        "api/v2/sites",
        "static/../app.py",
        "static/%2e%2e/%2e%2e/app.py",
        "static//etc/passwd",
        "api/v1/requests/x",
        "%00",
    ],
)
def test_what_is_not_there_is_a_problem(page: Page, path: str) -> None:
    answer = ask(page, path, **ACT)
    assert answer[0] in (404, 422)
    problem(answer)


def test_too_much_is_refused_however_it_is_sent(page: Page) -> None:
    assert ask(page, "api/v1/drain", method="POST", body=b" " * (BODY_BYTES + 1), **ACT)[0] == 413
    assert ask(page, "api/v1/drain", method="POST", Content_Length="nonsense", **ACT)[0] in (400, 413)
    with socket.create_connection(("127.0.0.1", urlsplit(page.at).port or 0), timeout=20) as wire:
        wire.sendall(b"POST /api/v1/drain HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer act\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        try:
            for _ in range(BODY_BYTES // 65_536 + 2):
                wire.sendall(piece)
        except OSError:
            pass  # It has been told, and hung up.
        else:
            assert wire.recv(64).startswith(b"HTTP/1.1 413")


def test_no_bytes_at_all_or_nonsense_on_the_wire_harm_nobody(page: Page) -> None:
    for sent in (
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 40_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", urlsplit(page.at).port or 0), timeout=20) as wire:
            wire.sendall(sent)
            wire.shutdown(socket.SHUT_WR)
            wire.settimeout(20)
            try:
                assert b"200 OK" not in wire.recv(100)
            except ConnectionResetError:
                pass
    assert ask(page, "healthz")[0] == 200


def test_a_reader_that_does_not_read_holds_nobody_up(page: Page) -> None:
    """It gets the newest when it reads again, and others have theirs all the while."""
    request = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(page.at).port or 0), timeout=20) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(request)
        numbers = [json.loads(ask(page, "api/v1/reading", **LOOK)[2])["number"] for _ in range(3)]
        assert numbers == sorted(numbers)
        assert wire.recv(15) == b"HTTP/1.1 200 OK"


def test_more_readers_than_there_is_room_for_are_told_so(page: Page) -> None:
    request = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look\r\n\r\n"
    there = ("127.0.0.1", urlsplit(page.at).port or 0)
    wires: list[socket.socket] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 3 * MANY), hard), hard))  # Both ends of each are in this process.
    try:
        for _ in range(MANY):
            wires.append(socket.create_connection(there, timeout=20))
            wires[-1].sendall(request)
        first = [wire.recv(12) for wire in wires]
        assert first.count(b"HTTP/1.1 200") >= STREAMS - 8
        assert first.count(b"HTTP/1.1 503") >= MANY - STREAMS
        assert ask(page, "api/v1/reading", **LOOK)[0] == 200
    finally:
        for wire in wires:
            wire.close()
    gone = threading.Event()
    for _ in range(100):  # Their places are free again as soon as the server has noticed.
        with socket.create_connection(there, timeout=20) as wire:
            wire.sendall(request)
            if wire.recv(12) == b"HTTP/1.1 200":
                return
        gone.wait(0.05)
    pytest.fail("no place has become free")


def test_health_and_metrics_need_no_token(page: Page) -> None:
    assert ask(page, "healthz")[::2] == (200, b"ok\n")
    assert ask(page, "metrics")[0] == 200
    assert ask(page, "readyz")[0] in (200, 503)
