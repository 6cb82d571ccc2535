"""AES of bytes, as Spark has it. What is encrypted with a start vector of chance is another thing each time, so it has to be given."""

from __future__ import annotations

from functools import partial
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB
from cryptography.hazmat.primitives.padding import PKCS7

from evenflow.errors import ExpressionError
from evenflow.query.sql.arguments import a_string_or_bytes
from evenflow.query.sql.node import InvalidValue, Node, attempt, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BINARY

_START: Final = {"GCM": 12, "CBC": 16, "ECB": 0}
"""Bytes of the start vector that stand before what is encrypted."""
_BLOCK_BITS: Final = 128


def _mode(given: tuple[Node, ...], what: str) -> str:
    """The mode of a call. Its padding is the one that goes with it."""
    mode = "GCM" if not given else str(constant_of(given[0], f"the mode of {what}")).upper()
    padding = "DEFAULT" if len(given) < 2 else str(constant_of(given[1], f"the padding of {what}")).upper()
    if mode not in _START or padding not in ("DEFAULT", "NONE" if mode == "GCM" else "PKCS"):
        raise ExpressionError(f"{what}: the mode {mode!r} with the padding {padding!r} is none of GCM, CBC and ECB with DEFAULT")
    return mode


def _encrypt(value: Node, key: Node, *given: Node) -> Node:
    mode = _mode(given, "aes_encrypt")
    if mode != "ECB" and len(given) < 3:
        raise ExpressionError(
            f"aes_encrypt with {mode} begins with a vector of chance, and a replayed row must give the same result; give the vector, "
            f"aes_encrypt(value, key, '{mode}', 'DEFAULT', vector), or use ECB"
        )
    nodes = [a_string_or_bytes(each, "aes_encrypt") for each in (value, key, *given[2:])]
    return rowwise(partial(_encrypted, mode), BINARY, *nodes, raises=True)


def _encrypted(mode: str, value: bytes, key: bytes, start: bytes = b"", known: bytes = b"") -> bytes:
    if len(key) not in (16, 24, 32) or len(start) != _START[mode] or (known and mode != "GCM"):
        raise InvalidValue(
            f"AES in {mode} needs a key of 16, 24 or 32 bytes and a start vector of {_START[mode]}, and only GCM has other data"
        )
    if mode == "GCM":
        return start + AESGCM(key).encrypt(start, value, known or None)
    padder = PKCS7(_BLOCK_BITS).padder()
    sealer = (Cipher(AES(key), CBC(start)) if mode == "CBC" else Cipher(AES(key), ECB())).encryptor()
    return start + sealer.update(padder.update(value) + padder.finalize()) + sealer.finalize()


def _decrypt(tried: bool, value: Node, key: Node, *given: Node) -> Node:
    mode = _mode(given, "aes_decrypt")
    nodes = [a_string_or_bytes(each, "aes_decrypt") for each in (value, key, *given[2:])]

    def one(sealed: bytes, secret: bytes, known: bytes = b"") -> bytes | None:
        try:
            return _decrypted(mode, sealed, secret, known)
        except (ValueError, InvalidTag):
            if tried:
                return None
            raise InvalidValue("aes_decrypt: the key does not fit, or the bytes are not what was encrypted") from None

    found = rowwise(one, BINARY, *nodes, raises=not tried)
    return attempt(found) if tried else found  # In Spark the arguments are tried, too.


def _decrypted(mode: str, sealed: bytes, key: bytes, known: bytes) -> bytes:
    start, rest = sealed[: _START[mode]], sealed[_START[mode] :]
    if mode == "GCM":
        return AESGCM(key).decrypt(start, rest, known or None)
    bare = PKCS7(_BLOCK_BITS).unpadder()
    if len(start) == _START[mode] and not rest and len(key) in (16, 24, 32):
        return b""  # No block at all is read as nothing, as on the JVM.
    opener = (Cipher(AES(key), CBC(start)) if mode == "CBC" else Cipher(AES(key), ECB())).decryptor()
    return bare.update(opener.update(rest) + opener.finalize()) + bare.finalize()


FUNCTIONS: Final = {
    "aes_encrypt": Signature(_encrypt, 2, 6),
    "aes_decrypt": Signature(partial(_decrypt, False), 2, 5),
    "try_aes_decrypt": Signature(partial(_decrypt, True), 2, 5),
}
