"""Who may speak: both ends of a connection prove that they know the engine's secret before anything else is read.

    accepting end                                   connecting end
      "EFH2" nonce_a (32 bytes)            ->
                                           <-       "EFH2" nonce_c (32) mac_c (32) length (2) hello (JSON, <= 2,048 bytes)
      mac_a (32)                           ->

mac_c = HMAC-SHA256(secret, "connects" nonce_a nonce_c port hello), mac_a the same with "accepts": neither can be
replayed, nor reflected to the other end. port (2 bytes) is the one that was dialled, as each end knows it, so that
nobody on the way brings a connection to another listener of the same secret. The hello says what the connection is for.

That alone would only show that both ends were there at the beginning: whoever passes a handshake on could speak
afterwards. So both ends derive a key for each direction, in the same way ("connecting says", "accepting says"), and
every message bears its seal (`framing`).

Nothing is encrypted, unless the engine's option `tls` says so: then TLS comes first, the digest of the accepting end's
certificate is among the facts, so that nobody with another certificate is in between, and messages need no seals of
their own. A stranger costs at most `HANDSHAKE_BYTES_MAX` bytes and `HANDSHAKE_TIMEOUT_S` seconds of one socket.

The two machines here are sans-IO: they say how many bytes they need, and are fed them.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.errors import StrangerRefused
from evenflow.world.spark.net import names
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import Seals, Unsealed
from evenflow.world.spark.net.tls import Encrypted
from evenflow.world.spark.net.trust import Trusted, trust_in

MAGIC: Final = b"EFH2"
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
HELLO_BYTES_MAX: Final = 2048
HANDSHAKE_BYTES_MAX: Final = 4 + NONCE_BYTES + MAC_BYTES + 2 + HELLO_BYTES_MAX
HANDSHAKE_TIMEOUT_S: Final = 5.0
DEAD_AFTER_MS: Final = 10_000
"""What was sent and not acknowledged for so long ends a connection."""

Hello = dict[str, Any]


def new_secret() -> bytes:
    """A secret for one engine: 32 random bytes."""
    return secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What both ends know of their connection when all is said."""

    secret: bytes = field(repr=False)
    accepting: bytes
    connecting: bytes
    port: int
    hello: bytes
    certificate: bytes

    def derive(self, purpose: bytes) -> bytes:
        """32 bytes that only these two ends can know, different ones for each purpose."""
        facts = self.accepting + self.connecting + struct.pack("<H", self.port) + self.certificate + self.hello
        return hmac.digest(self.secret, purpose + facts, "sha256")

    def seals(self, *, accepts: bool) -> Seals:
        if self.certificate:
            return Unsealed()
        connecting, accepting = self.derive(b"connecting says"), self.derive(b"accepting says")
        return Seals(accepting, connecting) if accepts else Seals(connecting, accepting)


class Accepting:
    """The accepting end. `out` is to be sent, `needs` bytes are to be fed; when `hello` is not None the other end is known.

    port: at which it listens. certificate: the digest of that with which TLS has begun, b"" without.
    """

    def __init__(self, secret: bytes, port: int, certificate: bytes = b"") -> None:
        self._secret, self._port, self._certificate = secret, port, certificate
        self._agreed: Agreed | None = None
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._got = b""
        self.hello: Hello | None = None
        self.needs = 4 + NONCE_BYTES + MAC_BYTES + 2
        self.out = MAGIC + self._nonce

    def feed(self, data: bytes) -> None:
        """Take at most `needs` bytes. Raises StrangerRefused."""
        self._got += data
        self.needs -= len(data)
        if not MAGIC.startswith(self._got[:4]):
            raise StrangerRefused("does not speak the protocol")
        if self.needs:
            return
        fixed = 4 + NONCE_BYTES + MAC_BYTES
        (length,) = struct.unpack_from("<H", self._got, fixed)
        hello = self._got[fixed + 2 :]
        if length > HELLO_BYTES_MAX:
            raise StrangerRefused("announces too long a hello")
        if len(hello) < length:
            self.needs = length - len(hello)
            return
        nonce, proof = self._got[4 : 4 + NONCE_BYTES], self._got[4 + NONCE_BYTES : fixed]
        agreed = Agreed(self._secret, self._nonce, nonce, self._port, hello, self._certificate)
        if not hmac.compare_digest(proof, agreed.derive(b"connects")):
            raise StrangerRefused("does not know the secret, or means another port")
        try:
            said = json.loads(hello)
        except RecursionError:
            said = None
        if not isinstance(said, dict):
            raise StrangerRefused("does not say what it wants")
        self.out, self.hello, self._agreed = agreed.derive(b"accepts"), said, agreed

    def connection(self, sock: socket.socket) -> Connection:
        """The connection over this socket, once the other end is known."""
        assert self._agreed is not None
        return Connection(sock, self._agreed.seals(accepts=True))


class Connecting:
    """The connecting end. When `done` the other end has proved itself too. port: that it has dialled. certificate: as for `Accepting`."""

    def __init__(self, secret: bytes, hello: Hello, port: int, certificate: bytes = b"") -> None:
        self._secret, self._port, self._certificate = secret, port, certificate
        self._agreed: Agreed | None = None
        self._hello = json.dumps(hello).encode()
        if len(self._hello) > HELLO_BYTES_MAX:
            raise ValueError(f"a hello of {len(self._hello)} bytes is too long")
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._got = b""
        self.needs = 4 + NONCE_BYTES
        self.out = b""
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take at most `needs` bytes. Raises StrangerRefused."""
        self._got += data
        self.needs -= len(data)
        if self.needs:
            return
        if self._agreed is None:
            if self._got[:4] != MAGIC:
                raise StrangerRefused("does not speak the protocol")
            self._agreed = Agreed(self._secret, self._got[4:], self._nonce, self._port, self._hello, self._certificate)
            proof = self._agreed.derive(b"connects")
            self.out = MAGIC + self._nonce + proof + struct.pack("<H", len(self._hello)) + self._hello
            self._got, self.needs = b"", MAC_BYTES
            return
        if not hmac.compare_digest(self._got, self._agreed.derive(b"accepts")):
            raise StrangerRefused("does not know the secret")
        self.done = True

    def connection(self, sock: socket.socket) -> Connection:
        """The connection over this socket, when all is done."""
        assert self._agreed is not None and self.done
        return Connection(sock, self._agreed.seals(accepts=False))


def dial(address: tuple[str, int], secret: Trusted, hello: Hello, timeout_s: float = HANDSHAKE_TIMEOUT_S) -> Connection:
    """A connection on which both ends have proved themselves, in blocking mode. Raises OSError, StrangerRefused."""
    deadline = time.monotonic() + timeout_s
    trust, certificate = trust_in(secret), b""
    sock = socket.create_connection(address, timeout_s)
    try:
        tune(sock)
        if trust.tls is not None:
            encrypted = Encrypted(sock, trust.tls, address[0], accepts=False)
            sock = encrypted.sock
            encrypted.shake()
            certificate = encrypted.digest()
        end = Connecting(trust.secret, hello, address[1], certificate)
        while not end.done:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(end.needs)
            if not data:
                raise StrangerRefused(f"{address[0]}:{address[1]} ended the handshake")
            end.feed(data)
            if end.out:
                sock.sendall(end.out)
                end.out = b""
        sock.settimeout(None)
        names.NAMES.remember(address[0], str(sock.getpeername()[0]))  # Who dials again, in a loop, knows where this led.
        return end.connection(sock)
    except BaseException:
        sock.close()
        raise


def tune(sock: socket.socket) -> None:
    """No delay for small messages, and an end for a connection whose other end has vanished without a word."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_USER_TIMEOUT", DEAD_AFTER_MS), ("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
