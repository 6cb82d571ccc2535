"""How messages are framed and sealed on a connection between two ends that have proved themselves (`handshake`).

Every message has a header of 24 bytes and a body of at most `MESSAGE_BYTES_MAX`:

    magic "EF" | version | kind | body length | seal (16)          <2sBBI16s

The seal is the GMAC of the body (AES-256-GCM that encrypts nothing) under a key that only this direction of this
connection has, with the message's number and its kind as the nonce. So a message that was altered, left out, said
again, said by somebody else, on another connection or in the other direction does not bear the right one, and
nothing of it is read. The keys come from the engine's secret and both nonces of the handshake.

This file knows no socket, and not what bodies mean.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from evenflow.errors import MessageForged, ProtocolError

MAGIC: Final = b"EF"
VERSION: Final = 2
HEADER: Final = struct.Struct("<2sBBI16s")
SEAL_BYTES: Final = 16
NO_SEAL: Final = bytes(SEAL_BYTES)
MESSAGE_BYTES_MAX: Final = 1 << 30

SECTIONS: Final = 1
"""Sections of any number of dataflows, between two sites."""
CONTROL: Final = 2
"""A control message (`control.py`) between a site and its driver, or words in JSON."""
RELEASE: Final = 3
"""A finished epoch, from a site to a sink in the driver."""
ROWS: Final = 4
"""A batch of rows that a Spark task pushes, or a Spark source fetches."""

KINDS: Final = frozenset((SECTIONS, CONTROL, RELEASE, ROWS))

JOINED_BYTES_MAX: Final = 64 * 1024
"""A message up to this size is sealed and sent as one piece: that costs less than to go through its pieces."""

Piece: TypeAlias = Any
"""bytes, memoryview or pa.Buffer."""

_NONCE: Final = struct.Struct("<QI")
"""number, kind."""


def body_length(header: bytes | memoryview, offset: int = 0) -> tuple[int, int, bytes]:
    """(kind, length of the body, seal) of the header at `offset`. Raises MessageForged if it is not one of ours or promises too much."""
    magic, version, kind, length, seal = HEADER.unpack_from(header, offset)
    if magic != MAGIC or version != VERSION or kind not in KINDS:
        raise MessageForged(f"not a message of this version: magic {magic!r}, version {version}, kind {kind}")
    if length > MESSAGE_BYTES_MAX:
        raise MessageForged(f"a message of {length} bytes is larger than the {MESSAGE_BYTES_MAX} that are allowed")
    return kind, length, seal


def length_of(pieces: Sequence[Piece]) -> int:
    """Bytes of a body. Raises ProtocolError if they are more than a message may have."""
    length = 0
    for piece in pieces:
        length += len(piece)
    if length > MESSAGE_BYTES_MAX:
        raise ProtocolError(
            f"a message of {length} bytes is larger than the {MESSAGE_BYTES_MAX} that are allowed; use smaller epochs (epoch_rows)"
        )
    return length


class Seals:
    """The seals of one end of one connection: those that it puts on what it says, and those that it expects.

    Each key is used by one end for one connection only, and each number once.
    """

    def __init__(self, saying: bytes, hearing: bytes) -> None:
        self._aes, self._saying, self._hearing = AES(saying), AESGCM(saying), AESGCM(hearing)
        self._said = self._heard = 0

    def seal(self, kind: int, pieces: Sequence[Piece]) -> list[Piece]:
        """The next message, header first, in pieces. Raises ProtocolError if it is larger than a message may be."""
        length = length_of(pieces)
        self._said += 1
        nonce = _NONCE.pack(self._said, kind)
        if length <= JOINED_BYTES_MAX:
            body = b"".join(pieces)
            return [HEADER.pack(MAGIC, VERSION, kind, length, self._saying.encrypt(nonce, b"", body)) + body]
        sealing = Cipher(self._aes, GCM(nonce)).encryptor()
        for piece in pieces:
            sealing.authenticate_additional_data(memoryview(piece).cast("B"))  # Arrow's buffers are of signed bytes.
        sealing.finalize()
        return [HEADER.pack(MAGIC, VERSION, kind, length, sealing.tag), *pieces]

    def check(self, kind: int, seal: bytes, body: bytes | memoryview) -> None:
        """See that this is the next message of the other end. Raises MessageForged; then the connection is good for nothing more."""
        self._heard += 1
        try:
            self._hearing.decrypt(_NONCE.pack(self._heard, kind), seal, body)
        except InvalidTag:
            raise MessageForged(
                f"message {self._heard}, of kind {kind} and {len(body)} bytes, does not bear the seal of its connection: "
                "it was altered, repeated or put in on its way"
            ) from None


class Unsealed(Seals):
    """Of a connection on which TLS guards every record: messages are framed as ever, and bear no seal. See `tls`."""

    def __init__(self) -> None:
        """There are no keys."""

    def seal(self, kind: int, pieces: Sequence[Piece]) -> list[Piece]:
        length = length_of(pieces)
        header = HEADER.pack(MAGIC, VERSION, kind, length, NO_SEAL)
        return [b"".join((header, *pieces))] if length <= JOINED_BYTES_MAX else [header, *pieces]

    def check(self, kind: int, seal: bytes, body: bytes | memoryview) -> None:
        """TLS has: what it hands out has been said by the other end, in this order."""
