"""TLS on a connection: who shakes hands how, what went wrong in words, and a socket that behaves as a plain one does.

TLS 1.3 by the standard library. The connecting end looks at the certificate of the accepting one; that the connecting end belongs to the
engine the handshake inside shows (`handshake`), which is bound to this very certificate. So the records' own seals are enough, and messages
bear none of their own (docs/decisions/0078).

What a socket has to do for `Channel` and `Connection`: `BlockingIOError` where it would have to wait, whatever TLS waits for; several
pieces at once; and `pending`, since what a record held beyond what was asked for is in this process already, where no epoll sees it.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final

from evenflow.errors import TlsRefused
from evenflow.world.spark.net.reactor import READABLE, WRITABLE
from evenflow.world.spark.net.trust import Given, Own, accepting, connecting

RECORD_BYTES: Final = 16_384
"""What one record of TLS has room for."""
TAKEN_BYTES: Final = 1 << 20
"""About as much as is encrypted at a time, so that nobody else waits for long."""
NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNEXPECTED_MESSAGE",
)
EXPIRED, NOT_YET, OTHER_NAME, OTHER_ADDRESS = 10, 9, 62, 64
"""X509_V_ERR_*, from OpenSSL's x509_vfy.h."""


class TlsSocket(ssl.SSLSocket):
    """As a plain socket, non-blocking or blocking. One thread at a time, but for `shutdown`."""

    _waiting: bytes | memoryview | None = None
    """What TLS has begun to write and has to be given again: the front of what its owner keeps in its queue."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        try:
            return super().recv_into(buffer, nbytes, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None

    def send(self, data: Any, flags: int = 0) -> int:
        """Send, or raise BlockingIOError; then the next call must begin with the same bytes, as a queue's does."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """As many bytes as are taken now, of pieces one after the other. Raises BlockingIOError if that is none."""
        if self._waiting is not None:  # It has been encrypted, and is in front of the queue, however that is cut up now.
            sent = self.send(self._waiting)
            self._waiting = None
            return sent
        total = 0
        for data in _in_records(buffers):
            try:
                sent = self.send(data)
            except BlockingIOError:
                self._waiting = data
                if total:
                    return total
                raise
            total += sent
            if sent < len(data) or total >= TAKEN_BYTES:
                break
        return total

    def shutdown(self, how: int) -> None:
        """In whatever thread: TLS itself is left to the one that reads."""
        socket.socket.shutdown(self, how)


def _in_records(pieces: Iterable[Any]) -> Iterable[bytes | memoryview]:
    """The same bytes in runs of at most a record: small ones joined, none of a large one copied."""
    small: list[Any] = []
    size = 0
    for piece in pieces:
        length = len(piece)
        if size + length > RECORD_BYTES and small:
            yield b"".join(small)
            small, size = [], 0
        if length <= RECORD_BYTES:
            small.append(piece)
            size += length
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, length, RECORD_BYTES):
            yield view[start : start + RECORD_BYTES]
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


class Encrypted:
    """The beginning of TLS on a connected socket. sock: the one to go on with. digest: of the accepting end's certificate, when done."""

    def __init__(self, sock: socket.socket, tls: Own | Given, host: str, *, accepts: bool) -> None:
        """host: that was dialled, or where the accepting end listens."""
        context = accepting(tls) if accepts else connecting(tls)
        context.sslsocket_class = TlsSocket
        name = tls.name or host
        self._tls, self._accepts, self._name, self._host = tls, accepts, name, host
        self.sock = context.wrap_socket(sock, server_side=accepts, server_hostname=None if accepts else name, do_handshake_on_connect=False)

    def shake(self) -> int:
        """A step of the handshake, or all of it where the socket blocks. Returns what to wait for, 0 when it is done. Raises TlsRefused,
        OSError."""
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            return READABLE
        except ssl.SSLWantWriteError:
            return WRITABLE
        except ssl.SSLError as error:
            raise refused(error, self._host, self._name, accepts=self._accepts) from error
        return 0

    def digest(self) -> bytes:
        if self._accepts:
            return own_digest(self._tls)
        shown = self.sock.getpeercert(binary_form=True)
        assert shown is not None, "a context that verifies has let nobody in without a certificate"
        return hashlib.sha256(shown).digest()


def own_digest(tls: Own | Given) -> bytes:
    """Of the certificate that this process shows."""
    if isinstance(tls, Own):
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(tls.certificate)).digest()
    with open(tls.certificate, encoding="utf-8") as file:
        text = file.read()
    first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index("-----END CERTIFICATE-----")]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first + "-----END CERTIFICATE-----\n")).digest()


def refused(error: ssl.SSLError, host: str, name: str, *, accepts: bool) -> TlsRefused:
    """What went wrong, in words. host: of the other end, or of this one where it accepts."""
    reason = str(getattr(error, "reason", "") or "")
    if isinstance(error, ssl.SSLCertVerificationError):
        code, said = error.verify_code, error.verify_message
        if code == EXPIRED:
            return TlsRefused(f"the certificate of {host} has expired: put a new one where tls_certificate says, and start again")
        if code == NOT_YET:
            return TlsRefused(f"the certificate of {host} is not valid yet: look at the clocks of both machines")
        if code in (OTHER_NAME, OTHER_ADDRESS):
            return TlsRefused(
                f"the certificate of {host} is not for {name}: have one made with that as its subject alternative name, or say with the "
                "engine's option tls_name which name it bears"
            )
        return TlsRefused(f"the certificate of {host} is not of an authority that tls_ca has: {said}")
    if reason in NOT_TLS:
        return TlsRefused(
            f"{'who connects' if accepts else host} does not speak TLS: the engine's option tls holds for all of its processes"
        )
    if "ALERT" in reason:
        return TlsRefused(f"{'who connects' if accepts else host} does not accept the certificate: {reason.lower().replace('_', ' ')}")
    return TlsRefused(f"TLS with {host} has failed: {reason or error}")


def check(tls: Own | Given, host: str) -> None:
    """See that this process's certificate is one that the others will take: expired, for another name, of another authority. Raises
    TlsRefused. host: by which they will know it. Nothing goes over a network."""
    here, there = (ssl.MemoryBIO(), ssl.MemoryBIO())
    answers = accepting(tls).wrap_bio(here, there, server_side=True)
    asks = connecting(tls).wrap_bio(there, here, server_hostname=tls.name or host)
    done: set[int] = set()
    for _ in range(6):
        for number, end in enumerate((asks, answers)):
            if number in done:
                continue
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise refused(error, host, tls.name or host, accepts=False) from error
        if len(done) == 2:
            return
    raise TlsRefused(f"TLS does not come to an end with the certificate of {host}")


__all__ = ["Encrypted", "TlsSocket", "check", "own_digest", "refused"]
