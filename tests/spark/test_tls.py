"""TLS between processes of an engine: what is said arrives whole whatever its size, and what is wrong with a certificate is said in words.

Method: real sockets on this machine and certificates made here. Goal: through TLS a channel does what it does without; nobody whose
certificate has expired, bears another name or is of another authority is spoken to, nor who speaks no TLS; each with its own message.
"""

from __future__ import annotations

import datetime
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from evenflow.errors import OptionError, StrangerRefused, TlsRefused
from evenflow.world.spark.driver.network import new_trust
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.executor.site_task import SiteConfig, check_certificate
from evenflow.world.spark.net import tls
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, SECTIONS, Unsealed
from evenflow.world.spark.net.handshake import Accepting, Connecting, Hello, dial, new_secret
from evenflow.world.spark.net.listener import Dialer, Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Given, Trust, accepting, new_certificate
from tests.spark.test_sealing import End
from tests.world.polled import until

SIZES = [0, 5, 16_360, 16_384, 40_000, 65_536, 65_537, 3_000_000]
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
Make = Callable[..., Given]


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


class Authority:
    """Makes certificates and the files that name them."""

    def __init__(self, home: Path, name: str = "ca") -> None:
        self._home, self._key = home, ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = home / f"{name}.pem"
        made = self._builder(self._subject, self._key, NOW + DAY).add_extension(x509.BasicConstraints(True, 0), True).sign(
            self._key, hashes.SHA256()
        )  # fmt: skip
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: Any, until: datetime.datetime) -> x509.CertificateBuilder:
        serial = x509.random_serial_number()
        return x509.CertificateBuilder(self._subject, subject, key.public_key(), serial, NOW - 3 * DAY, until)

    def files(self, *, address: str = "127.0.0.1", until: datetime.datetime = NOW + DAY, name: str | None = None) -> Given:
        import ipaddress

        key, stem = ec.generate_private_key(ec.SECP256R1()), self._home / os.urandom(4).hex()
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address))] if name is None else [x509.DNSName(name)]
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site")])
        made = self._builder(subject, key, until).add_extension(x509.SubjectAlternativeName(names), False).sign(self._key, hashes.SHA256())
        stem.with_suffix(".crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        stem.with_suffix(".key").write_bytes(key.private_bytes(*shape))
        return Given(str(self.file), str(stem.with_suffix(".crt")), str(stem.with_suffix(".key")), name)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Pair:
    """Both ends of a connection, each served by the event loop."""

    def __init__(self, reactor: Reactor, here: Trust, there: Trust) -> None:
        self.ends: list[End] = []
        self.failed: list[str] = []
        self.made: list[Connection] = []
        self._reactor = reactor
        self.listener = Listener(open_port("127.0.0.1"), reactor, there, self._welcome)
        self.address = "127.0.0.1", self.listener.port
        Dialer(self.address, reactor, here, {"as": "test"}, self._take, self.failed.append)
        until(reactor, lambda: len(self.ends) == 2 or self.failed)

    def _take(self, connection: Connection) -> None:
        self.made.append(connection)
        self.ends.append(End(self._reactor, connection))

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        self._take(connection)

    def close(self) -> None:
        self.listener.close()
        for end in self.ends:
            end.channel.close()


def own() -> Trust:
    return Trust(new_secret(), new_certificate())


def given(files: Given, secret: bytes = b"s" * 32) -> Trust:
    return Trust(secret, files)


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize("many", [1, 40])
def test_messages_of_every_size_come_whole_and_in_order_both_ways(reactor: Reactor, many: int) -> None:
    trust = own()
    pair = Pair(reactor, trust, trust)
    bodies = [os.urandom(size) for size in SIZES] * (many if many == 1 else 1) + [os.urandom(100 * i) for i in range(many)]
    for end in pair.ends:
        for body in bodies:
            end.channel.send(SECTIONS, [body[: len(body) // 2], memoryview(body)[len(body) // 2 :]])
    until(reactor, lambda: all(len(end.heard) == len(bodies) for end in pair.ends), 20.0)
    assert all([body for _, body in end.heard] == bodies for end in pair.ends)
    assert all(isinstance(made.seals, Unsealed) and made.sock.version() == "TLSv1.3" for made in pair.made)  # type: ignore[attr-defined]
    pair.close()


def test_an_end_that_does_not_read_for_a_while_gets_all_of_it_once(reactor: Reactor) -> None:
    """What TLS has begun to write has to be said again with the same bytes, however the queue is cut up by then."""
    trust = own()
    pair = Pair(reactor, trust, trust)
    one, other = pair.ends
    reactor.unregister(other.channel._fd)
    bodies = [os.urandom(size) for size in (3_000_000, 7, 30_000, 3_000_000, 0, 100_000) * 2]
    for body in bodies:
        one.channel.send(SECTIONS, [body])
        reactor.poll(0.0)
    assert one.channel.queued_bytes > 0
    reactor.register(other.channel._fd, 1, other.channel._ready)
    until(reactor, lambda: len(other.heard) == len(bodies), 20.0)
    assert [body for _, body in other.heard] == bodies and one.channel.queued_bytes == 0
    pair.close()


def test_what_a_record_held_beyond_a_message_is_not_left_behind(reactor: Reactor) -> None:
    """Several messages in one record: those behind the first are in the process already, where no epoll sees them."""
    trust = own()
    pair = Pair(reactor, trust, trust)
    one, other = pair.ends
    pieces = [piece for n in range(50) for piece in Unsealed().seal(CONTROL, [bytes([n]) * n])]
    assert pair.made[0].sock.send(b"".join(pieces)) == sum(map(len, pieces))
    until(reactor, lambda: len(other.heard) + len(one.heard) == 50)
    pair.close()


def test_messages_that_have_come_together_are_read_together(reactor: Reactor) -> None:
    """Each is a record, and the system is asked for all of them at once."""
    trust = own()
    pair = Pair(reactor, trust, trust)
    one, other = pair.ends
    reactor.unregister(other.channel._fd)
    for n in range(100):
        one.channel.send(CONTROL, [bytes([n]) * n])
    before = other.channel.received
    reactor.register(other.channel._fd, 1, other.channel._ready)
    until(reactor, lambda: len(other.heard) == 100)
    assert [len(body) for _, body in other.heard] == list(range(100)) and other.channel.received - before <= 3
    pair.close()


def test_who_waits_for_the_descriptor_sees_what_a_blocking_end_has_not_heard_yet(reactor: Reactor) -> None:
    """A task of Spark waits so for its answer: no byte of the next message may be in the process already."""
    trust, waited, go_on = own(), list[bool](), threading.Event()
    ends: list[End] = []
    listener = Listener(open_port("127.0.0.1"), reactor, trust, lambda connection, hello: ends.append(End(reactor, connection)))

    def ask() -> None:
        with dial(("127.0.0.1", listener.port), trust, {"as": "test"}) as connection:
            go_on.wait(10.0)
            ready = select.poll()
            ready.register(connection, select.POLLIN)
            for _ in range(3):
                waited.append(bool(ready.poll(5000)))
                connection.hear()
            waited.append(bool(ready.poll(0)))

    thread = threading.Thread(target=ask)
    thread.start()
    until(reactor, lambda: ends)
    for _ in range(3):
        ends[0].channel.send(CONTROL, [b'{"one": 1}'])
    go_on.set()
    until(reactor, lambda: not thread.is_alive())
    assert waited == [True, True, True, False]
    until(reactor, lambda: ends[0].closed)
    listener.close()


def test_a_handshake_that_is_cut_short_is_an_error(reactor: Reactor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            sock, _ = server.accept()
            sock.recv(100)
            sock.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(OSError):
            dial(server.getsockname(), own(), {"as": "test"})
        thread.join()


def test_a_blocking_end_speaks_with_an_event_loop(reactor: Reactor) -> None:
    trust = own()
    ends: list[End] = []
    listener = Listener(open_port("127.0.0.1"), reactor, trust, lambda connection, hello: ends.append(End(reactor, connection)))
    heard: list[Any] = []

    def ask() -> None:
        with dial(("127.0.0.1", listener.port), trust, {"as": "test"}) as connection:
            connection.tell(question=1)
            heard.append(connection.hear())
            heard.append(connection.hear())

    thread = threading.Thread(target=ask)
    thread.start()
    until(reactor, lambda: ends and ends[0].heard)
    ends[0].channel.send(CONTROL, [b'{"first": 1}'])
    ends[0].channel.send(CONTROL, [b'{"second": 2}'])
    until(reactor, lambda: not thread.is_alive())
    assert heard == [{"first": 1}, {"second": 2}]
    until(reactor, lambda: ends[0].closed)
    listener.close()


def test_nothing_of_what_is_said_is_on_the_wire(reactor: Reactor) -> None:
    from tests.spark.test_sealing import Relay

    trust, ends = own(), []
    listener = Listener(open_port("127.0.0.1"), reactor, trust, lambda connection, hello: ends.append(End(reactor, connection)))
    relay = Relay(reactor, ("127.0.0.1", listener.port))
    done: list[Connection] = []
    failed: list[str] = []
    # The port is among what both ends prove; here the relay is let pass, to look at what it sees.
    hello = {"as": "a hello in clear"}
    Dialer(relay.address, reactor, trust, hello, done.append, failed.append, listens=listener.port)
    until(reactor, lambda: done or failed)
    assert done
    end = End(reactor, done[0])
    end.channel.send(CONTROL, [b"what nobody else may read"])
    until(reactor, lambda: ends and ends[0].heard)
    said = bytes(relay.said[0])
    assert len(said) > 300 and b"nobody else" not in said and b"a hello in clear" not in said and trust.secret not in said
    end.channel.close(), ends[0].channel.close(), relay.close(), listener.close()


# ---------------------------------------------------------------- who is let in


def test_given_certificates_are_looked_at_by_address_or_by_their_name(reactor: Reactor, authority: Authority) -> None:
    for files in (authority.files(), authority.files(name="evenflow.example.org")):
        pair = Pair(reactor, given(files), given(files))
        assert not pair.failed
        pair.close()


WRONG: dict[str, tuple[Callable[[Authority], Given], str]] = {
    "expired": (lambda ca: ca.files(until=NOW - DAY), "has expired"),
    "another address": (lambda ca: ca.files(address="192.0.2.7"), "is not for 127.0.0.1.*tls_name"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_certificate_that_is_no_good_is_refused_in_words(reactor: Reactor, authority: Authority, wrong: str) -> None:
    make, says = WRONG[wrong]
    files = make(authority)
    pair = Pair(reactor, given(authority.files()), given(files))
    assert len(pair.failed) == 1 and not pair.ends
    with pytest.raises(TlsRefused, match=says) as refused:
        raise TlsRefused(pair.failed[0])
    assert "127.0.0.1" in str(refused.value)
    with pytest.raises(TlsRefused, match=says):  # Who has it finds out before anybody connects.
        tls.check(files, "127.0.0.1")
    with open_port("127.0.0.1") as port, pytest.raises(TlsRefused, match=says):
        check_certificate(SiteConfig("engine", ("127.0.0.1", 4000), 1, 10.0, "127.0.0.1", given(files)), port)
    pair.close()


def test_another_authority_is_refused(reactor: Reactor, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    pair = Pair(reactor, given(authority.files()), given(other.files()))
    assert "not of an authority that tls_ca has" in pair.failed[0]
    pair.close()


def test_engines_do_not_believe_each_other_s_own_certificates(reactor: Reactor) -> None:
    secret = new_secret()
    pair = Pair(reactor, Trust(secret, new_certificate()), Trust(secret, new_certificate()))
    assert pair.failed and not pair.ends
    pair.close()


def test_a_certificate_without_the_secret_is_not_enough(reactor: Reactor) -> None:
    certificate = new_certificate()
    pair = Pair(reactor, Trust(b"x" * 32, certificate), Trust(b"y" * 32, certificate))
    assert pair.failed and not pair.ends and pair.listener.refused == 1
    pair.close()


def test_the_proof_is_bound_to_the_certificate() -> None:
    """Who is between two ends, with a certificate of the same authority, cannot pass their proofs on."""
    answers, asks = Accepting(b"s" * 32, 4000, b"one certificate"), Connecting(b"s" * 32, {"as": "test"}, 4000, b"another")
    asks.feed(answers.out)
    first = answers.needs
    answers.feed(asks.out[:first])
    with pytest.raises(StrangerRefused):
        answers.feed(asks.out[first:])


def test_who_speaks_no_tls_is_told_apart(reactor: Reactor, caplog: pytest.LogCaptureFixture) -> None:
    trust = own()
    pair = Pair(reactor, trust, Trust(trust.secret))  # Who listens speaks first without TLS.
    assert "127.0.0.1 does not speak TLS" in pair.failed[0]
    listener = Listener(open_port("127.0.0.1"), reactor, trust, lambda connection, hello: None)
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(reactor, lambda: listener.refused)
    assert "who connects does not speak TLS" in caplog.text
    listener.close(), pair.close()


def test_a_blocking_end_raises_the_typed_error(reactor: Reactor, authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        threading.Thread(target=lambda: port.accept()[0].sendall(b"EFH2" + bytes(32)), daemon=True).start()
        with pytest.raises(TlsRefused, match="does not speak TLS"):
            dial(port.getsockname(), given(authority.files()), {"as": "test"})


# ---------------------------------------------------------------- files and options


@pytest.mark.parametrize("which", ["tls_ca", "tls_certificate", "tls_key"])
def test_a_file_that_is_not_there_is_named_with_its_option(authority: Authority, which: str) -> None:
    files = authority.files()
    paths = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key, which: "/nowhere/at all.pem"}
    with pytest.raises(TlsRefused, match=f"/nowhere/at all.pem cannot be read on .*{which}"):
        new_trust(EngineOptions(tls=True, **paths))


def test_a_key_of_another_certificate_is_an_error(authority: Authority) -> None:
    one, other = authority.files(), authority.files()
    with pytest.raises(TlsRefused, match="no certificate and its key"):
        accepting(Given(one.ca, one.certificate, other.key))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tls_ca": "a"}, "tls is not"),
        ({"tls": True, "tls_ca": "a"}, "tls_certificate is not"),
        ({"tls": True, "tls_name": "a"}, "without tls_ca"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        EngineOptions(**options)


def test_keys_are_kept_out_of_every_text() -> None:
    trust = own()
    assert trust.tls is not None and isinstance(trust.tls.key, str) and "PRIVATE" in trust.tls.key  # type: ignore[union-attr]
    assert "PRIVATE" not in repr(trust) and repr(trust.secret) not in repr(trust)
    assert ssl.PEM_cert_to_DER_cert(trust.tls.certificate)
