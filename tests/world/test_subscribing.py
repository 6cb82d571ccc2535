"""Subscribers of real ports: each epoch once and in order, whichever region is there; whoever misbehaves harms nobody else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evenflow import subscribe
from evenflow.availability.chain import Link
from evenflow.errors import (
    EpochsGone,
    GroupDiffers,
    OperationRefused,
    OptionError,
    RegionsDisagree,
    RegionsUnreachable,
    SinkError,
)
from evenflow.kernels.digest import set_of_rows
from evenflow.sinks import stream
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.stream.region_url import place_of
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.handshake import Connecting, dial
from evenflow.world.spark.regions import serving
from evenflow.world.spark.regions.serving import Served, StreamServer, StreamWriter
from evenflow.world.spark.regions.subscriber import Subscriber
from evenflow.world.spark.regions.words import epoch_in, epoch_pieces, schema_text, secret_of

SECRET = "a secret of sixteen or more"
SCHEMA = pa.schema([("epoch", pa.int64()), ("text", pa.string())])


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)


def rows(epoch: int, text: str = "x", count: int = 2) -> pa.RecordBatch:
    return pa.record_batch([[epoch] * count, [text] * count], schema=SCHEMA)


@pytest.fixture
def region() -> Iterator[Callable[..., StreamServer]]:
    opened: list[StreamServer] = []

    def make(*, port: int = 0, name: str = "traffic", behind: int = 0, **options: Any) -> StreamServer:
        opened.append(StreamServer(stream(port, **options), "out", {"name": name, "width_us": 50_000}, behind))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def at(*servers: StreamServer) -> list[str]:
    return [f"127.0.0.1:{server.port}" for server in servers]


def all_of(subscriber: Subscriber) -> list[int]:
    with subscriber:
        found = []
        for epoch, batch in subscriber:
            assert batch.column("epoch").to_pylist() == [epoch] * batch.num_rows
            found.append(epoch)
        return found


def some(subscriber: Subscriber, count: int) -> list[int]:
    found = []
    while len(found) < count:
        taken = subscriber.take(10.0)
        assert taken is not None, f"only {found} came"
        found.append(taken[0])
    return found


def publish(server: StreamServer, *epochs: int, ended: bool = False) -> None:
    for epoch in epochs:
        server.publish(epoch, rows(epoch))
    if ended:
        server.finish()


# ---------------------------------------------------------------- one region


def test_epochs_come_once_and_in_order_and_empty_ones_do_not_come(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 1, 4)
    server.publish(5, rows(5, count=0))
    publish(server, 9, 9, 4)
    publish(server, 12, ended=True)
    assert all_of(subscribe(at(server), "traffic", "out", after=0)) == [1, 4, 9, 12]
    assert all_of(subscribe(at(server), after=4)) == [9, 12]


def test_a_reader_that_went_away_goes_on_behind_what_it_was_given(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, *range(1, 40))
    first = subscribe(at(server), after=0)
    assert some(first, 10) == list(range(1, 11))
    first.close()
    publish(server, ended=True)
    assert all_of(subscribe(at(server), after=first.delivered)) == list(range(11, 40))


def test_a_region_that_comes_back_at_its_port_is_found_again(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 1, 2)
    with subscribe(at(server), after=0) as subscriber:
        assert some(subscriber, 2) == [1, 2]
        server.close()
        again = region(port=server.port)
        publish(again, 1, 2, 3, ended=True)
        assert [epoch for epoch, _ in subscriber] == [3]


def test_without_a_place_what_comes_from_now_on_comes(region: Callable[..., StreamServer]) -> None:
    server = region()
    publish(server, 1, 2)
    with subscribe(at(server)) as subscriber:
        assert subscriber.take(0.3) is None
        publish(server, 3, ended=True)
        assert [epoch for epoch, _ in subscriber] == [3]
        assert subscriber.ended


def test_what_nobody_keeps_is_an_error_that_says_from_where_one_can_go_on(region: Callable[..., StreamServer]) -> None:
    server = region(behind=40)
    publish(server, 44, ended=True)
    with pytest.raises(EpochsGone, match="after=40"):
        all_of(subscribe(at(server), after=3))
    assert all_of(subscribe(at(server), after=40)) == [44]


def test_large_epochs_and_many_of_them(region: Callable[..., StreamServer]) -> None:
    server = region()
    for epoch in range(1, 9):
        server.publish(epoch, rows(epoch, "y" * 1000, 3000))
    server.finish()
    assert all_of(subscribe(at(server), after=0)) == list(range(1, 9))


# ---------------------------------------------------------------- several regions


@pytest.mark.parametrize("race", [False, True])
def test_a_region_that_is_lost_is_not_missed(region: Callable[..., StreamServer], race: bool) -> None:
    east, west = region(), region()
    with subscribe(at(east, west), "traffic", after=0, race=race) as subscriber:
        found = []
        for epoch in range(1, 60):
            if epoch == 20:
                east.close()
            if epoch < 20:
                publish(east, epoch)
            publish(west, epoch)
            found += some(subscriber, 1)
        publish(west, ended=True)
        assert subscriber.take(5.0) is None and subscriber.ended
    assert found == list(range(1, 60))


def test_heads_cost_no_rows_and_what_is_late_is_asked_of_who_has_it(region: Callable[..., StreamServer]) -> None:
    east, west = region(), region()
    with subscribe(at(east, west), after=0) as subscriber:
        publish(east, 1)
        publish(west, 1)
        assert some(subscriber, 1) == [1]
        brought = subscriber.bytes
        assert brought > 0 and subscriber.take(0.1) is None and subscriber.bytes == brought, "of the second region only heads came"
        late, other = (east, west) if subscriber.leg == 0 else (west, east)
        publish(other, 2)
        assert some(subscriber, 1) == [2] and subscriber.progress()["hedged"] == 1
        publish(late, 2, 3)
        assert some(subscriber, 1) == [3] and subscriber.progress()["repeated"] == 1


def test_regions_of_different_groups_are_told_apart(region: Callable[..., StreamServer]) -> None:
    east = region()
    west = StreamServer(stream(0), "out", {"name": "traffic", "width_us": 20_000})
    try:
        with pytest.raises(GroupDiffers, match="width_us"):
            all_of(subscribe(at(east, west), after=0))
    finally:
        west.close()


def test_regions_that_contradict_each_other_stop_the_subscription(region: Callable[..., StreamServer]) -> None:
    east, west = region(), region()
    with subscribe(at(east, west), after=0) as subscriber:
        assert subscriber.take(0.2) is None, "both are there"
        publish(east, 1, 2)
        publish(west, 1)
        west.publish(2, rows(2, "other"))
        with pytest.raises(RegionsDisagree, match="epoch 2"):
            list(subscriber)


def test_equal_rows_in_other_buffers_are_no_contradiction(region: Callable[..., StreamServer]) -> None:
    east, west = region(), region()
    whole = pa.record_batch([[0, 1, 1, 0], ["a", "x", None, "b"]], schema=SCHEMA)
    east.publish(1, whole.slice(1, 2))
    west.publish(1, pa.record_batch([[1, 1], ["x", None]], schema=SCHEMA))
    east.finish()
    west.finish()
    with subscribe(at(east, west), after=0) as subscriber:
        assert [epoch for epoch, _ in subscriber] == [1]


# ---------------------------------------------------------------- who misbehaves


def test_another_secret_is_refused_and_said(region: Callable[..., StreamServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server = region()
    monkeypatch.setenv(SECRET_VARIABLE, "another secret, of a stranger")
    with pytest.raises(RegionsUnreachable, match="secret"):
        all_of(subscribe(at(server), after=0, patience_s=0.3))


@pytest.mark.parametrize(("group", "sink"), [("other", None), (None, "other")])
def test_another_group_or_sink_is_refused_at_once(region: Callable[..., StreamServer], group: str | None, sink: str | None) -> None:
    with pytest.raises(GroupDiffers, match="other"):
        all_of(subscribe(at(region()), group, sink, after=0))


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"EFH2" + b"\xff" * 200, b""])
def test_strangers_at_the_port_harm_nobody(region: Callable[..., StreamServer], said: bytes) -> None:
    server = region()
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(said)
        publish(server, 1, ended=True)
        assert all_of(subscribe(at(server), after=0)) == [1]


def test_a_hello_that_is_nested_too_deeply_harms_nobody(region: Callable[..., StreamServer]) -> None:
    """Goal: who may read closes the port to nobody else. Method: the proof is right, and behind it come 2,000 brackets."""
    server = region()
    publish(server, 1)
    with socket.create_connection(("127.0.0.1", server.port)) as reader:
        end = Connecting(secret_of(None, "test"), {}, server.port)
        end._hello = b"[" * 2_000
        reader.settimeout(10.0)
        while not end.out:
            end.feed(reader.recv(end.needs))
        reader.sendall(end.out)
        assert reader.recv(100) == b""
    assert some(subscribe(at(server), after=0), 1) == [1]


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"{}", b'{"ask":"run"}', b'{"ask":"follow","after":-1}', b'{"ask":"want","epoch":"1"}', b"[" * 5000]
)
def test_a_subscriber_that_talks_nonsense_is_let_go_and_no_other(region: Callable[..., StreamServer], body: bytes) -> None:
    server = region()
    publish(server, 1)
    with subscribe(at(server), after=0) as other:
        assert some(other, 1) == [1]
        with dial(("127.0.0.1", server.port), secret_of(None, "test"), {"as": "subscriber", "format": 1}) as connection:
            connection.hear()
            connection.send(CONTROL, [body])
            connection.settimeout(10.0)
            with pytest.raises(ConnectionError):
                connection.receive()
        publish(server, 2)
        assert some(other, 1) == [2]


def test_who_is_no_subscriber_is_refused_with_a_reason(region: Callable[..., StreamServer]) -> None:
    with dial(("127.0.0.1", region().port), secret_of(None, "test"), {"as": "site"}) as connection:
        assert connection.hear()["refused"] == "OperationRefused"


def test_more_subscribers_than_there_is_room_for_are_refused(region: Callable[..., StreamServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SUBSCRIBERS_MOST", 1)
    server = region()
    publish(server, 1, 2)
    with subscribe(at(server), after=0) as first:
        assert some(first, 1) == [1]
        with pytest.raises(OperationRefused, match="served already"):
            all_of(subscribe(at(server), after=0))
        assert some(first, 1) == [2]


def test_a_subscriber_that_never_reads_loses_its_place_and_holds_nobody_up(
    region: Callable[..., StreamServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UNDER_WAY_BYTES", 1 << 16)
    server = region(keep_mb=1)
    with dial(("127.0.0.1", server.port), secret_of(None, "test"), {"as": "subscriber", "format": 1}) as silent:
        silent.hear()
        silent.tell(ask="follow", brings="rows", after=0)
        with subscribe(at(server), after=0) as other:
            for epoch in range(1, 80):
                server.publish(epoch, rows(epoch, "z" * 1000, 300))
                assert some(other, 1) == [epoch]
        deadline = time.monotonic() + 10.0
        while not server.lost_places and time.monotonic() < deadline:
            threading.Event().wait(0.01)
    assert server.lost_places == 1 and server._kept.bytes <= 1 << 20


def test_who_asks_for_epochs_besides_and_takes_none_costs_no_more_than_who_follows(
    region: Callable[..., StreamServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UNDER_WAY_BYTES", 1 << 16)
    server, size = region(), 300 * 1000
    server.publish(1, rows(1, "z" * 1000, 300))
    with dial(("127.0.0.1", server.port), secret_of(None, "test"), {"as": "subscriber", "format": 1}) as greedy:
        greedy.hear()
        greedy.tell(ask="follow", brings="heads", after=1)
        for _ in range(200):
            greedy.tell(ask="want", epoch=1)
        deadline, waiting, most = time.monotonic() + 10.0, list[int](), 0
        while not (waiting and waiting[-1]) and time.monotonic() < deadline:
            places = list(server._places.values())
            waiting, most = [len(place.wanted) for place in places], max([most, *(place.channel.queued_bytes for place in places)])
        assert waiting[-1] > 0 and most < (1 << 16) + 2 * size, "they wait as numbers"
        greedy.settimeout(10.0)

        def ask_on() -> None:
            for _ in range(2 * serving.WANTED_MOST):
                greedy.tell(ask="want", epoch=1)
            while True:
                greedy.receive()

        with pytest.raises(ConnectionError):
            ask_on()
    with subscribe(at(server), after=0) as other:
        assert some(other, 1) == [1]


class Impostor:
    """A region that knows the secret, and says what it is told to say to whoever follows."""

    def __init__(self, messages: list[tuple[int, bytes]]) -> None:
        from evenflow.world.spark.net.channel import Channel
        from evenflow.world.spark.net.listener import Listener, open_port
        from evenflow.world.spark.net.reactor import Reactor

        self.reactor, self.stopped, self.met = Reactor(), threading.Event(), 0

        def heard(channel: Channel, kind: int, body: bytes | memoryview) -> None:
            for each in messages:
                channel.send(each[0], [each[1]])

        def welcome(connection: Any, hello: Any) -> None:
            self.met += 1
            channel = Channel(connection, self.reactor, heard, lambda *_: None)
            channel.send(CONTROL, [b'{"group":{"name":"traffic","width_us":50000},"sink":"out","last":0}'])

        self.listener = Listener(open_port("127.0.0.1"), self.reactor, secret_of(None, "test"), welcome)
        self.port = self.listener.port
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.is_set():
            self.reactor.poll(0.05)
        self.listener.close()
        self.reactor.close()

    def close(self) -> None:
        self.stopped.set()
        self.thread.join(5.0)


FIRST = Link(0, 1, set_of_rows(rows(1)))
TELL_COLUMNS = (CONTROL, b'{"schema":"' + schema_text(SCHEMA).encode() + b'"}')


@pytest.mark.parametrize(
    "messages",
    [
        [(ROWS, b"short")],
        [(ROWS, b"".join(bytes(p) for p in epoch_pieces(FIRST, b"no columns were told")))],
        [TELL_COLUMNS, (ROWS, b"".join(bytes(p) for p in epoch_pieces(FIRST, b"no message of Arrow's" * 9)))],
        [(CONTROL, b'{"schema":"AAAA"}')],
        [(CONTROL, b'{"schema":17}')],
        [(CONTROL, b'{"missing":-4}')],
        [(CONTROL, b'{"ended":true}')],
        [(CONTROL, b'{"sth":1}')],
        [(CONTROL, b"\xff\xff")],
    ],
)
def test_a_region_that_talks_nonsense_is_let_go_and_another_one_brings_the_rows(
    region: Callable[..., StreamServer], messages: list[tuple[int, bytes]]
) -> None:
    impostor, server = Impostor(messages), region()
    try:
        publish(server, 1, 2, ended=True)
        found = all_of(subscribe([f"127.0.0.1:{impostor.port}", *at(server)], "traffic", after=0))
    finally:
        impostor.close()
    assert found == [1, 2]


def test_an_epoch_reads_as_it_was_written() -> None:
    link = Link(3, 9, 2**64 - 1)
    assert epoch_in(b"".join(epoch_pieces(link, None))) == (link, None)
    back, body = epoch_in(b"".join(epoch_pieces(link, b"rows")))
    assert back == link and body is not None and bytes(body) == b"rows"


# ---------------------------------------------------------------- what may be given


@pytest.mark.parametrize("urls", [[], ["x"], ["host:"], ["http://a:1"], ["a:1/path"], ["a:99999"], ["127.0.0.1:1", "127.0.0.1:1"]])
def test_regions_that_are_none_are_refused_where_they_are_given(urls: list[str]) -> None:
    with pytest.raises(OptionError, match="region"):
        subscribe(urls, after=0)


@pytest.mark.parametrize("after", [-1, True, "7", 1.5])
def test_a_place_is_an_epoch(after: Any) -> None:
    with pytest.raises(OptionError, match="after"):
        subscribe("127.0.0.1:1", after=after)


def test_another_machine_needs_tls() -> None:
    with pytest.raises(OptionError, match="tls_ca"):
        subscribe("east.example:4001", after=0)
    with pytest.raises(OptionError, match="tls_certificate"):
        stream(4001, host="0.0.0.0")


def test_something_that_forwards_may_have_another_port() -> None:
    assert place_of("127.0.0.1:9001?listens=4001") == ("127.0.0.1", 9001, 4001)
    assert place_of("evenflow://east:4001") == ("east", 4001, 4001)


def test_a_secret_is_long_enough_and_not_in_any_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert secret_of(str(file), "x") == secret_of(None, "x")
    file.write_text("short")
    for given, text in ((str(file), "16"), (str(tmp_path / "none"), "cannot be read")):
        with pytest.raises(OptionError, match=text):
            secret_of(given, "x")
    monkeypatch.delenv(SECRET_VARIABLE)
    with pytest.raises(OptionError, match=SECRET_VARIABLE):
        secret_of(None, "x")


def test_a_port_that_is_taken_is_said_and_one_of_this_process_is_taken_over(region: Callable[..., StreamServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SinkError, match="cannot be opened"):
        StreamServer(stream(taken.getsockname()[1]), "out", {})
    first = Served(stream(0), "out", {}).open("run-1")
    first.write(1, rows(1))
    first.ended()
    first.close()
    assert all_of(subscribe(at(first.server), "run-1", after=0)) == [1], "who comes late reads what a run that is over has left"
    second = Served(stream(first.server.port), "out", {}).open("run-2")
    assert isinstance(second, StreamWriter)
    second.write(1, rows(1))
    second.ended()
    second.close()
    assert all_of(subscribe(at(second.server), "run-2", after=0)) == [1]
    second.server.close()
