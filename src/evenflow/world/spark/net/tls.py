"""TLS on a connection: who shakes hands how, what went wrong in words, and a socket that behaves as a plain one does.

TLS 1.3 by the standard library. The connecting end looks at the certificate of the accepting one; that the connecting end belongs to the
engine the handshake inside shows (`handshake`), which is bound to this very certificate. So the records' own seals are enough, and messages
bear none of their own (docs/decisions/0078).

What a socket has to do for `Channel` and `Connection`: `BlockingIOError` where it would have to wait, whatever TLS waits for; several
pieces at once; and `pending`, since what a record held beyond what was asked for is in this process already, where no epoll sees it.

TLS itself has no socket here, only memory on both sides: so one call of the system brings all records that have come, and one takes away
all that were made, where the library's own socket asks for each record's header by itself (docs/decisions/0163).
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from evenflow.errors import TlsRefused
from evenflow.world.spark.net.reactor import READABLE, WRITABLE
from evenflow.world.spark.net.trust import Given, Own, accepting, connecting

RUN_BYTES: Final = 65_536
"""About as much is encrypted, or read, for one call of the system: four records."""
HEADER_BYTES: Final = 5
"""Of a record. The last two say how many bytes follow."""
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


class TlsSocket(socket.socket):
    """As a plain socket, non-blocking or blocking. One thread at a time, but for `shutdown`.

    reads_ahead: whatever has come is taken out of the system, so that only `pending` tells whether there is more. Without it no byte of a
    further record is: who waits for the descriptor sees it.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None) -> None:
        """Goes on with the descriptor of a connected socket, which is closed to others."""
        timeout_s = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(timeout_s)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side, server_hostname)
        self.reads_ahead = False
        self._raw = memoryview(bytearray(RUN_BYTES))
        self._header = b""
        self._wanted = HEADER_BYTES
        self._more = False
        self._unsent: memoryview | None = None
        self._owed = 0

    def version(self) -> str | None:
        """Of the protocol, when the handshake is done."""
        return self.tls.version()

    def pending(self) -> bool:
        """Whether something is here that no epoll tells of."""
        return self._more

    # ------------------------------------------------------------ in

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """What has been said, of as many records as are here and have room in the buffer. Raises BlockingIOError, OSError."""
        view, size, got = memoryview(buffer), nbytes or len(buffer), 0
        while True:
            if not self._more and not self._fill():
                return got
            try:
                got += int(self.tls.read(size - got, view[got:]))
            except ssl.SSLWantReadError:  # A record of which some is still to come.
                self._more = False
                if not got:
                    continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return got
            else:
                self._more = self._in.pending > 0 or self.tls.pending() > 0
            if got == size or not self._more:
                return got

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        data = bytearray(buflen)
        return bytes(data[: self.recv_into(data)])

    def _fill(self) -> bool:
        """Bring from the system what has come. False if nothing will any more. Raises BlockingIOError, OSError."""
        raw = self._raw if self.reads_ahead else self._raw[: self._wanted]
        count = super().recv_into(raw)
        if not count:
            return False
        if not self.reads_ahead:
            self._note(bytes(raw[:count]))
        self._in.write(raw[:count])
        self._more = True
        return True

    def _note(self, data: bytes) -> None:
        """How much is wanted next: the rest of a header, or of the record behind it."""
        self._wanted -= len(data)
        if len(self._header) < HEADER_BYTES:
            self._header += data
            if not self._wanted:
                self._wanted = int.from_bytes(self._header[-2:], "big")
        if not self._wanted:
            self._header, self._wanted = b"", HEADER_BYTES

    # ------------------------------------------------------------ out

    def send(self, data: Any, flags: int = 0) -> int:
        """Send, or raise BlockingIOError; then the next call must begin with the same bytes, as a queue's does."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        """As many bytes as are taken now, of pieces one after the other. Raises BlockingIOError if that is none."""
        if self._unsent is not None:  # It has been encrypted, and is in front of the queue, however that is cut up now.
            self._push(self._unsent)
            return self._owed
        total = 0
        for data in _in_runs(buffers):
            try:
                self._encrypt(data)
            except BlockingIOError:
                self._owed = len(data)
                if total:
                    return total
                raise
            total += len(data)
            if total >= TAKEN_BYTES:
                break
        return total

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view) :]

    def _encrypt(self, data: bytes | memoryview) -> None:
        """Encrypt a run and send it, behind what TLS itself had to say."""
        done = self.tls.write(data)
        if done < len(data):
            view = memoryview(data)
            while done < len(data):  # A record at a time.
                done += self.tls.write(view[done:])
        self._push(memoryview(self._out.read()))

    def _push(self, sealed: memoryview) -> None:
        """Give encrypted bytes to the system; what it does not take waits."""
        try:
            while sealed:
                sealed = sealed[super().send(sealed) :]
        finally:
            self._unsent = sealed if sealed else None

    # ------------------------------------------------------------ the beginning

    def shake(self) -> int:
        """A step of the handshake, or all of it where the socket blocks. Returns what to wait for, 0 when it is done. Raises ssl.SSLError,
        OSError."""
        try:
            if self._unsent is not None:
                self._push(self._unsent)
            while not self._shaken():
                if not self._fill():
                    self._in.write_eof()  # TLS says what it was about.
        except BlockingIOError:
            return READABLE if self._unsent is None else WRITABLE
        return 0

    def _shaken(self) -> bool:
        """Whether the handshake is done with what has come. What TLS has to say is sent in any case: an alert is the other end's error."""
        done = True
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            done = False
        except ssl.SSLError:
            with suppress(OSError):
                self._push(memoryview(self._out.read()))
            raise
        self._more = done and self._in.pending > 0
        self._push(memoryview(self._out.read()))
        return done


def _in_runs(pieces: Iterable[Any]) -> Iterable[bytes | memoryview]:
    """The same bytes in runs of about as much as one call of the system is worth: small ones joined, none of a large one copied."""
    small: list[Any] = []
    size = 0
    for piece in pieces:
        length = len(piece)
        if size + length > RUN_BYTES and small:
            yield b"".join(small)
            small, size = [], 0
        if length <= RUN_BYTES:
            small.append(piece)
            size += length
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, length, RUN_BYTES):
            yield view[start : start + RUN_BYTES]
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


class Encrypted:
    """The beginning of TLS on a connected socket. sock: the one to go on with. digest: of the accepting end's certificate, when done."""

    def __init__(self, sock: socket.socket, tls: Own | Given, host: str, *, accepts: bool) -> None:
        """host: that was dialled, or where the accepting end listens."""
        context = accepting(tls) if accepts else connecting(tls)
        name = tls.name or host
        self._tls, self._accepts, self._name, self._host = tls, accepts, name, host
        self.sock = TlsSocket(sock, context, server_side=accepts, server_hostname=None if accepts else name)

    def shake(self) -> int:
        """A step of the handshake, or all of it where the socket blocks. Returns what to wait for, 0 when it is done. Raises TlsRefused,
        OSError."""
        try:
            return self.sock.shake()
        except ssl.SSLError as error:
            raise refused(error, self._host, self._name, accepts=self._accepts) from error

    def digest(self) -> bytes:
        if self._accepts:
            return own_digest(self._tls)
        shown = self.sock.tls.getpeercert(binary_form=True)
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
