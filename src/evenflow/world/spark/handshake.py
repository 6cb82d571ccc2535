"""Who may speak: both ends of a connection prove that they know the engine's secret before anything else is read.

    accepting end                                   connecting end
      "EFH1" nonce_a (32 bytes)            ->
                                           <-       "EFH1" nonce_c (32) mac_c (32) length (2) hello (JSON, <= 2,048 bytes)
      mac_a (32)                           ->

mac_c = HMAC-SHA256(secret, "connects" nonce_a nonce_c hello), mac_a the same with "accepts": neither can be replayed, nor reflected to
the other end. The hello says what the connection is for. Nothing is encrypted: run Spark's own network encryption or a private network
if rows are confidential. A stranger costs at most `HANDSHAKE_BYTES_MAX` bytes and `HANDSHAKE_TIMEOUT_S` seconds of one socket.

The two machines here are sans-IO: they say how many bytes they need, and are fed them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any, Final

from evenflow.errors import StrangerRefused

MAGIC: Final = b"EFH1"
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
HELLO_BYTES_MAX: Final = 2048
HANDSHAKE_BYTES_MAX: Final = 4 + NONCE_BYTES + MAC_BYTES + 2 + HELLO_BYTES_MAX
HANDSHAKE_TIMEOUT_S: Final = 5.0

Hello = dict[str, Any]


def new_secret() -> bytes:
    """A secret for one engine: 32 random bytes."""
    return secrets.token_bytes(32)


def mac(secret: bytes, role: bytes, first: bytes, second: bytes, hello: bytes) -> bytes:
    return hmac.new(secret, role + first + second + hello, hashlib.sha256).digest()


class Accepting:
    """The accepting end. `out` is to be sent, `needs` bytes are to be fed; when `hello` is not None the other end is known."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
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
        if not hmac.compare_digest(proof, mac(self._secret, b"connects", self._nonce, nonce, hello)):
            raise StrangerRefused("does not know the secret")
        self.out = mac(self._secret, b"accepts", nonce, self._nonce, hello)
        self.hello = json.loads(hello)


class Connecting:
    """The connecting end. When `done` the other end has proved itself too."""

    def __init__(self, secret: bytes, hello: Hello) -> None:
        self._secret = secret
        self._hello = json.dumps(hello).encode()
        if len(self._hello) > HELLO_BYTES_MAX:
            raise ValueError(f"a hello of {len(self._hello)} bytes is too long")
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._peer_nonce: bytes | None = None
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
        if self._peer_nonce is None:
            if self._got[:4] != MAGIC:
                raise StrangerRefused("does not speak the protocol")
            self._peer_nonce = self._got[4:]
            proof = mac(self._secret, b"connects", self._peer_nonce, self._nonce, self._hello)
            self.out = MAGIC + self._nonce + proof + struct.pack("<H", len(self._hello)) + self._hello
            self._got, self.needs = b"", MAC_BYTES
            return
        if not hmac.compare_digest(self._got, mac(self._secret, b"accepts", self._nonce, self._peer_nonce, self._hello)):
            raise StrangerRefused("does not know the secret")
        self.done = True


def dial(address: tuple[str, int], secret: bytes, hello: Hello, timeout_s: float = HANDSHAKE_TIMEOUT_S) -> socket.socket:
    """A connection on which both ends have proved themselves, in blocking mode. Raises OSError, StrangerRefused."""
    deadline = time.monotonic() + timeout_s
    sock = socket.create_connection(address, timeout_s)
    try:
        tune(sock)
        end = Connecting(secret, hello)
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
        return sock
    except BaseException:
        sock.close()
        raise


def tune(sock: socket.socket, dead_after_ms: int = 10_000) -> None:
    """No delay for small messages, and an end for a connection whose other end has vanished without a word."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_USER_TIMEOUT", dead_after_ms), ("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
