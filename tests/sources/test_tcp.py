"""Lines from real sockets on the loopback interface: connecting, listening, losing the peer, and bad lines."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from evenflow import sources
from evenflow.errors import SourceError
from evenflow.sources import Reader, tcp
from evenflow.sources.lines import MAX_LINE_BYTES, Lines
from evenflow.sources.tcp import FIRST_BACKOFF_US

from .reading import wait_readable

SCHEMA = pa.schema([("a", pa.int64()), ("text", pa.string())])


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def rows_until(reader: Reader, count: int, max_rows: int = 1000, now_us: int = 0) -> list[dict[str, object]]:
    """At least `count` rows, waiting on the descriptor."""
    rows: list[dict[str, object]] = []
    while len(rows) < count:
        batch = reader.read(now_us, max_rows)
        if batch is None:
            if reader.fileno() is not None:
                wait_readable(reader)
            continue
        assert batch.num_rows <= max_rows
        rows += batch.to_pylist()
    return rows


def connected(source: sources.Source, listener: socket.socket, now_us: int = 0) -> tuple[Reader, socket.socket]:
    reader = source.open(0, 1)
    assert reader.read(now_us, 10) is None
    peer, _ = listener.accept()
    peer.settimeout(5)
    assert reader.read(now_us, 10) is None
    assert reader.fileno() is not None
    return reader, peer


def send_until_stopped(peer: socket.socket, limit_bytes: int) -> None:
    """Raises BlockingIOError when the other end takes no more."""
    sent = 0
    while sent < limit_bytes:
        sent += peer.send(b"1,x\n" * 16384)


def send_and_read(peer: socket.socket, reader: Reader, limit_bytes: int) -> None:
    """Bytes without a newline, read as they come."""
    for _ in range(limit_bytes >> 18):
        with contextlib.suppress(BlockingIOError):
            peer.send(b"\0" * (1 << 18))
        wait_readable(reader)
        reader.read(0, 10)


def wait_for_ever(reader: Reader, waits: list[int]) -> None:
    """Go from wake-up to wake-up, noting those longer than a look at whether the connection is made, or the name known."""
    now_us = 0
    while True:
        assert reader.read(now_us, 10) is None
        assert reader.wake_us is not None
        if reader.wake_us - now_us >= FIRST_BACKOFF_US:
            waits.append(reader.wake_us - now_us)
        now_us = reader.wake_us


@pytest.mark.parametrize(
    ("format_", "data"),
    [("csv", b'1,x\n2,"y,z"\n\n'), ("json", b'{"a": 1, "text": "x"}\n{"text": "y,z", "a": 2, "more": []}\n')],
)
def test_lines_that_come_in_pieces_are_rows(server: socket.socket, format_: str, data: bytes) -> None:
    source = sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA, format_)  # type: ignore[arg-type]
    reader, peer = connected(source, server)
    seen: list[dict[str, object]] = []
    for piece in (data[:3], data[3:9], data[9:]):
        peer.sendall(piece)
        wait_readable(reader)
        batch = reader.read(0, 10)
        if batch is not None:
            assert batch.schema.equals(SCHEMA)
            seen += batch.to_pylist()
    assert seen == [{"a": 1, "text": "x"}, {"a": 2, "text": "y,z"}]
    assert source.streaming
    assert source.partitions(8) == 1
    reader.close()
    reader.close()
    peer.close()


def test_text_is_one_column_and_the_last_line_needs_no_newline(server: socket.socket) -> None:
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), format="text", on_close="end"), server)
    peer.sendall("a b\r\n\nä\nlast".encode())
    peer.close()
    assert [r["line"] for r in rows_until(reader, 3)] == ["a b", "ä", "last"]
    while not reader.ended:
        assert reader.read(0, 10) is None
    assert reader.fileno() is None


def test_rows_beyond_the_limit_wait_and_the_peer_is_held_back(server: socket.socket) -> None:
    """What nobody reads stays in the kernel, so a peer that sends without end is stopped by its own socket."""
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA), server)
    peer.sendall(b"".join(b"%d,x\n" % i for i in range(1000)))
    rows = rows_until(reader, 1000, max_rows=7)
    assert [r["a"] for r in rows] == list(range(1000))
    peer.setblocking(False)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    with pytest.raises(BlockingIOError):
        send_until_stopped(peer, 1 << 28)
    assert reader.read(0, 7).num_rows == 7
    peer.close()
    reader.close()


def test_a_lost_peer_is_found_again(server: socket.socket) -> None:
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA), server)
    peer.sendall(b"1,x\n2,half")
    assert rows_until(reader, 1) == [{"a": 1, "text": "x"}]
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()  # A reset: half a line is not a line.
    wait_readable(reader)
    assert reader.read(50, 10) is None
    assert reader.fileno() is None
    assert reader.wake_us == 50 + FIRST_BACKOFF_US
    assert reader.read(60, 10) is None
    assert reader.wake_us == 50 + FIRST_BACKOFF_US
    assert reader.read(50 + FIRST_BACKOFF_US, 10) is None
    again, _ = server.accept()
    again.sendall(b"3,z\n")
    assert rows_until(reader, 1, now_us=60 + FIRST_BACKOFF_US) == [{"a": 3, "text": "z"}]
    again.close()
    reader.close()
    assert not reader.ended


def test_a_peer_that_is_not_there_is_waited_for_longer_and_longer_and_then_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = port_of(listener)
    reader = sources.tcp_lines("127.0.0.1", port, SCHEMA).open(0, 1)
    waits: list[int] = []
    with pytest.raises(SourceError, match=rf"cannot connect to 127.0.0.1:{port} after 11 tries: Connection refused; start the sender"):
        wait_for_ever(reader, waits)
    assert waits == [min(FIRST_BACKOFF_US << i, 10_000_000) for i in range(10)]


class Resolver:
    """The system's, as far as a test lets it. says: an address, or an error. asked: the names, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: OSError | str = "127.0.0.1"
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *more: Any, **named: Any) -> Any:
            if host == "127.0.0.1" or named.get("flags", 0) & socket.AI_NUMERICHOST:
                return real(host, *more, **named)
            self.asked.append(host)
            assert self.answers.wait(5), "who asks waits for it"
            if isinstance(self.says, OSError):
                raise self.says
            return real(self.says, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver(monkeypatch)
    yield made
    made.answers.set()


AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def until_connected(reader: Reader, listener: socket.socket, now_us: int = 0) -> socket.socket:
    """Go from wake-up to wake-up until there is a connection."""
    while reader.fileno() is None:
        assert reader.read(now_us, 10) is None
        now_us = now_us if reader.wake_us is None else reader.wake_us
    peer, _ = listener.accept()
    return peer


def test_a_host_that_does_not_exist_is_tried_again_and_then_an_error() -> None:
    waits: list[int] = []
    reader = sources.tcp_lines("no-such-host.invalid", 9, SCHEMA).open(0, 1)
    with pytest.raises(SourceError, match=r"after 11 tries: the name 'no-such-host.invalid' does not resolve: .*check host and port"):
        wait_for_ever(reader, waits)
    assert waits == [min(FIRST_BACKOFF_US << i, 10_000_000) for i in range(10)]


@pytest.mark.parametrize("host", ["a" * 70 + ".invalid", "a..b"])
def test_what_can_be_no_name_is_an_error_at_once(host: str) -> None:
    with pytest.raises(SourceError, match="check the host name"):
        sources.tcp_lines(host, 9, SCHEMA).open(0, 1).read(0, 1)


@pytest.mark.parametrize("error", [AGAIN, UNKNOWN])
def test_a_name_that_does_not_resolve_for_a_while_is_asked_for_again(server: socket.socket, resolver: Resolver, error: OSError) -> None:
    """Goal: who was there is waited for for ever, as when it refuses. Method: the resolver fails more often than a first connection may."""
    resolver.says = error
    reader = sources.tcp_lines("sender.test", port_of(server), SCHEMA).open(0, 1)
    assert reader.read(0, 10) is None
    now_us = asked_again(reader, resolver, 5)
    resolver.says = "127.0.0.1"
    until_connected(reader, server, now_us).close()
    resolver.says = error
    wait_readable(reader)
    now_us = asked_again(reader, resolver, 30, now_us)
    resolver.says = "127.0.0.1"
    peer = until_connected(reader, server, now_us)
    peer.sendall(b"3,z\n")
    assert rows_until(reader, 1) == [{"a": 3, "text": "z"}]
    peer.close()
    reader.close()


def asked_again(reader: Reader, resolver: Resolver, times: int, now_us: int = 0) -> int:
    """Go from wake-up to wake-up until the resolver has been asked so many times more. Returns the time then."""
    before = len(resolver.asked)
    while len(resolver.asked) < before + times:
        assert reader.read(now_us, 10) is None
        assert reader.wake_us is not None
        now_us = reader.wake_us
    return now_us


def test_a_resolver_that_says_nothing_holds_nobody_up(server: socket.socket, resolver: Resolver) -> None:
    resolver.answers.clear()
    reader = sources.tcp_lines("sender.test", port_of(server), SCHEMA).open(0, 1)
    for now_us in range(0, 10_000_000, 100_000):
        assert reader.read(now_us, 10) is None
        assert reader.wake_us is not None and now_us < reader.wake_us <= now_us + 20_000
    assert resolver.asked == ["sender.test"]
    resolver.answers.set()
    until_connected(reader, server).close()
    reader.close()


def test_a_reader_is_closed_while_the_resolver_says_nothing(server: socket.socket, resolver: Resolver) -> None:
    resolver.answers.clear()
    reader = sources.tcp_lines("sender.test", port_of(server), SCHEMA).open(0, 1)
    assert reader.read(0, 10) is None
    reader.close()
    assert reader.fileno() is None


def test_a_descriptor_of_any_number_connects(server: socket.socket) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2048:
        pytest.skip("a process may have no more descriptors here")
    with contextlib.ExitStack() as opened:
        if soft < 2048:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
            opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            opened.enter_context(open(os.devnull))
        reader = sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA).open(0, 1)
        until_connected(reader, server).close()
        assert (reader.fileno() or 0) >= 1024
        reader.close()


def dialled_and_accepted(server: socket.socket) -> Iterator[tuple[Reader, socket.socket]]:
    """A reader of each kind with a peer."""
    yield connected(sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA), server)
    reader = sources.tcp_lines("127.0.0.1", 0, SCHEMA, listen=True).open(0, 1)
    peer = socket.create_connection(("127.0.0.1", reader.port), 5)  # type: ignore[attr-defined]
    wait_readable(reader)
    assert reader.read(0, 10) is None
    yield reader, peer


def test_a_peer_that_says_nothing_is_asked_whether_it_is_there(server: socket.socket) -> None:
    for reader, peer in dialled_and_accepted(server):
        (connection,) = reader._sockets()  # type: ignore[attr-defined]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            connection.getsockopt(socket.IPPROTO_TCP, name) for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert 5 <= idle <= 10 and idle + interval * count <= 60
        reader.close()
        peer.close()


TCP_REPAIR = 19
"""Of Linux: a socket that is closed in this mode sends nothing, as if its machine had been switched off."""


def test_a_peer_that_vanished_without_a_word_is_noticed(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "KEEPALIVE", (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 2)), raising=False)
    for reader, peer in dialled_and_accepted(server):
        (connection,) = reader._sockets()  # type: ignore[attr-defined]
        peer.sendall(b"1,x\n2,ha")
        assert rows_until(reader, 1) == [{"a": 1, "text": "x"}]
        try:
            peer.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except OSError as error:
            pytest.skip(f"a socket cannot be made to vanish here ({error})")
        peer.close()
        wait_readable(reader)
        assert reader.read(0, 10) is None
        assert connection.fileno() == -1
        reader.close()


@pytest.mark.parametrize(
    ("format_", "bad"),
    [("csv", b"three,x\n"), ("csv", b"1,2,3\n"), ("csv", b"\xff\xfe,x\n"), ("json", b'{"a": "x"}\n'), ("json", b"{oops\n")],
)
def test_a_bad_line_is_an_error_that_shows_it_or_is_counted(server: socket.socket, format_: str, bad: bytes) -> None:
    good = b"1,x\n" if format_ == "csv" else b'{"a": 1, "text": "x"}\n'
    strict = sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA, format_)  # type: ignore[arg-type]
    reader, peer = connected(strict, server)
    peer.sendall(good + bad + good)
    wait_readable(reader)
    with pytest.raises(SourceError, match=r"line 2 from 127\.0\.0\.1:\d+ is not (csv|json)"):
        reader.read(0, 10)
    reader.close()
    peer.close()
    lenient = sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA, format_, bad_lines="skip")  # type: ignore[arg-type]
    reader, peer = connected(lenient, server)
    peer.sendall(good + bad + good)
    assert rows_until(reader, 2) == [{"a": 1, "text": "x"}] * 2
    assert reader.bad_lines == 1  # type: ignore[attr-defined]
    reader.close()
    peer.close()


@pytest.mark.parametrize(
    ("format_", "pieces", "kept"),
    [
        ("json", [b'{"a": 7,\n', b'"text": "y"}\n'], []),
        ("json", [b'{"a": 7, "text": "y\\\n', b'"}\n'], []),
        ("csv", [b'7,"y\n', b'z"\n'], [{"a": 7, "text": "y\n"}]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_line_is_does_not_depend_on_what_comes_with_it(
    server: socket.socket, format_: str, pieces: list[bytes], kept: list[dict[str, object]], at_once: bool
) -> None:
    """Goal: a peer that breaks rows over lines is wrong however its lines arrive. Method: pieces of a row in one read, and in several."""
    good = b"1,x\n" if format_ == "csv" else b'{"a": 1, "text": "x"}\n'
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA, format_, bad_lines="skip"), server)  # type: ignore[arg-type]
    found: list[dict[str, object]] = []
    for sent in [b"".join([*pieces, good])] if at_once else [*pieces, good]:
        peer.sendall(sent)
        wait_readable(reader)
        found += (batch := reader.read(0, 10)) and batch.to_pylist() or []
    while len(found) <= len(kept):
        found += rows_until(reader, 1)
    assert found == [*kept, {"a": 1, "text": "x"}]
    assert reader.bad_lines == 2 - len(kept)  # type: ignore[attr-defined]
    reader.close()
    peer.close()


def test_something_that_is_no_line_does_not_fill_the_memory(server: socket.socket) -> None:
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA), server)
    peer.setblocking(False)
    with pytest.raises(SourceError, match="without a newline"):
        send_and_read(peer, reader, 100 * MAX_LINE_BYTES)
    reader.close()
    peer.close()


SIZES = (257, 4096, 1 << 16, 1 << 18, 1 << 23)


def fed(lines: Lines, data: bytes, size: int) -> list[int]:
    """The first column of what comes of data in pieces."""
    made = [batch for start in range(0, len(data), size) for batch in lines.feed(data[start : start + size])]
    return [row["a"] for batch in [*made, *lines.feed(b"", last=True)] for row in batch.to_pylist()]


def line_of(length: int, a: int) -> bytes:
    """Bytes without the newline."""
    return b"%d," % a + b"x" * (length - 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", [b"\n", b"\n9,nine", b""])
def test_a_line_that_is_too_long_is_dropped_and_counted(size: int, end: bytes) -> None:
    """Goal: one line is dropped, and it is the same however it comes. Method: the longest that may be, one more, and several times that."""
    long = [line_of(MAX_LINE_BYTES, 1), line_of(MAX_LINE_BYTES + 1, 2), b"3,z", line_of(3 * MAX_LINE_BYTES + 7, 4), b"oops", b"6,z"]
    data = b"\n".join([*long, line_of(2 * MAX_LINE_BYTES, 7)]) + end
    lines = Lines("a peer", SCHEMA, "csv", True)
    assert fed(lines, data, size) == [1, 3, 6, *([9] if b"nine" in end else [])]
    assert lines.bad == 4
    strict = Lines("a peer", SCHEMA, "csv", False)
    with pytest.raises(SourceError, match=r"line 2 from a peer has more than 1048576 bytes .*without a newline.*bad_lines='skip'"):
        fed(strict, data, size)


def test_the_lines_behind_one_that_is_too_long_keep_their_numbers() -> None:
    lines = Lines("a peer", SCHEMA, "csv", True)
    assert fed(lines, b"1,x\n" + line_of(2 * MAX_LINE_BYTES, 2) + b"\n3,x\n", 1 << 18) == [1, 3]
    assert lines.number == 3 and lines.bad == 1


def test_a_peer_whose_line_is_too_long_goes_on_and_so_do_others() -> None:
    reader = sources.tcp_lines("127.0.0.1", 0, SCHEMA, listen=True, bad_lines="skip", on_close="end").open(0, 1)
    long, other = (socket.create_connection(("127.0.0.1", reader.port), 5) for _ in range(2))  # type: ignore[attr-defined]
    sending = threading.Thread(target=long.sendall, args=(b"1,x\n" + line_of(5 * MAX_LINE_BYTES, 2) + b"\n3,x\n",))
    sending.start()
    other.sendall(b"4,x\n")
    assert sorted(str(row["a"]) for row in rows_until(reader, 3)) == ["1", "3", "4"]
    assert reader.bad_lines == 1  # type: ignore[attr-defined]
    sending.join()
    other.sendall(b"5,x\n")
    assert rows_until(reader, 1) == [{"a": 5, "text": "x"}]
    for peer in (long, other):
        peer.close()
    while not reader.ended:
        wait_readable(reader)
        reader.read(0, 10)
    assert reader.bad_lines == 1  # type: ignore[attr-defined]
    reader.close()


def test_a_long_line_in_small_packets_costs_what_it_has_bytes() -> None:
    lines, begun_s = Lines("a peer", SCHEMA, "csv", False), time.process_time()
    assert fed(lines, line_of(MAX_LINE_BYTES, 1) + b"\n", 4) == [1]
    assert time.process_time() - begun_s < 2.0, "each packet is looked at once"


def test_several_peers_may_connect_and_the_last_one_ends_it() -> None:
    reader = sources.tcp_lines("127.0.0.1", 0, SCHEMA, listen=True, on_close="end").open(0, 1)
    peers = [socket.create_connection(("127.0.0.1", reader.port), 5) for _ in range(2)]  # type: ignore[attr-defined]
    peers[0].sendall(b"1,x\n")
    assert rows_until(reader, 1) == [{"a": 1, "text": "x"}]
    peers[1].sendall(b"2,y\n3,")
    assert rows_until(reader, 1) == [{"a": 2, "text": "y"}]
    peers[0].close()
    peers[1].sendall(b"z\n")
    assert rows_until(reader, 1) == [{"a": 3, "text": "z"}]
    assert not reader.ended
    peers[1].close()
    while not reader.ended:
        wait_readable(reader)
        reader.read(0, 10)
    reader.close()
    reader.close()


def ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.skipif(not ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("host", "peers"), [("::1", ["::1"]), ("::", ["::1", "127.0.0.1"]), ("0.0.0.0", ["127.0.0.1"])])
def test_it_listens_where_the_host_says(host: str, peers: list[str]) -> None:
    reader = sources.tcp_lines(host, 0, SCHEMA, listen=True, on_close="end").open(0, 1)
    for peer in peers:
        with socket.create_connection((peer, reader.port), 5) as sender:  # type: ignore[attr-defined]
            sender.sendall(b"1,x\n")
    assert rows_until(reader, len(peers)) == [{"a": 1, "text": "x"}] * len(peers)
    reader.close()


@pytest.mark.skipif(not ipv6(), reason="this machine has no IPv6")
def test_a_bad_line_over_ipv6_says_whose_it_is() -> None:
    reader = sources.tcp_lines("::1", 0, SCHEMA, listen=True).open(0, 1)
    with socket.create_connection(("::1", reader.port), 5) as sender:  # type: ignore[attr-defined]
        sender.sendall(b"one,x\n")
        with pytest.raises(SourceError, match=r"\[::1\]:\d+"):
            rows_until(reader, 1)
    reader.close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 70 + ".invalid", "192.0.2.1"])
def test_where_nobody_can_listen_is_an_error(host: str) -> None:
    with pytest.raises(SourceError, match="cannot listen"):
        sources.tcp_lines(host, 0, SCHEMA, listen=True).open(0, 1)


def test_a_port_that_is_taken_is_an_error(server: socket.socket) -> None:
    with pytest.raises(SourceError, match="choose a free port"):
        sources.tcp_lines("127.0.0.1", port_of(server), SCHEMA, listen=True).open(0, 1)


def test_what_the_kernel_has_is_counted_by_the_size_of_the_rows_so_far(server: socket.socket) -> None:
    reader, peer = connected(sources.tcp_lines("127.0.0.1", port_of(server), schema=SCHEMA), server)
    peer.sendall(b"1,abcdef\n" * 10)
    assert len(rows_until(reader, 4, max_rows=4)) == 4 and reader.waiting(0) == (6, None)
    peer.sendall(b"1,abcdef\n" * 100)
    wait_readable(reader)
    wanted = 6
    while wanted < 106:  # It may come in pieces.
        told = reader.waiting(0)
        assert told is not None and wanted <= told.rows <= 106
        wanted = told.rows
    peer.close()
    reader.close()
    assert reader.waiting(0) == (6, None)


EXHAUSTED = """
import os, resource, select, sys, time
import pyarrow as pa
from evenflow import sources

reader, rows = sources.tcp_lines("127.0.0.1", 0, pa.schema([("a", pa.int64())]), listen=True, on_close="end").open(0, 1), []
print(reader.port, flush=True)

def turns(until):
    count = 0
    while not until() and not reader.ended:
        now_us = time.time_ns() // 1000
        batch = reader.read(now_us, 100)
        count += 1
        if batch is not None:
            rows.extend(batch.column(0).to_pylist())
        elif reader.wake_us is not None:
            time.sleep(max(0, reader.wake_us - now_us) / 1e6)
        else:
            select.select([reader.fileno()], [], [], 1.0)
    return count

turns(lambda: rows == [1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hoard = []
try:
    while True:
        hoard.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print("full", flush=True)
turns(lambda: rows == [1, 2])
cpu, over = time.process_time(), time.monotonic() + 1.0
print(turns(lambda: time.monotonic() > over), time.process_time() - cpu, flush=True)
turns(lambda: rows == [1, 2, 3])
print(rows, flush=True)
for fd in hoard:
    os.close(fd)
turns(lambda: rows == [1, 2, 3, 4])
print(rows, flush=True)
"""


@pytest.fixture
def exhausted() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", EXHAUSTED], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.timeout(60)
def test_at_the_limit_of_open_files_peers_wait_and_those_that_are_there_go_on(exhausted: subprocess.Popen[str]) -> None:
    assert exhausted.stdout is not None
    port = int(exhausted.stdout.readline())
    with contextlib.ExitStack() as opened:

        def peer() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", port), 5))

        there = peer()
        there.sendall(b"1\n")
        assert exhausted.stdout.readline() == "full\n"
        for number in (3, 4):
            peer().sendall(b"%d\n" % number)
        there.sendall(b"2\n")
        turns, cpu_s = exhausted.stdout.readline().split()
        assert 2 <= int(turns) < 100 and float(cpu_s) < 0.5, "it looks again now and then, and does not spin"
        there.close()
        assert exhausted.stdout.readline() == "[1, 2, 3]\n", "the last one that is there does not end it for those that wait"
        assert exhausted.stdout.readline() == "[1, 2, 3, 4]\n"
