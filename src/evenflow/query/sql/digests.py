"""Digests of texts and bytes, which are those of the bytes of a text."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BINARY, LONG, STRING, name_of, stringy

_SHA2: Final = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512}


def _sha2(a: Node, bits: Node) -> Node:
    size = constant_of(bits, "the bit length of sha2")
    if not isinstance(size, int) or isinstance(size, bool) or size not in _SHA2:
        raise ExpressionError(f"sha2: the bit length must be one of {', '.join(map(str, _SHA2))}")
    make = _SHA2[size]
    return rowwise(lambda v: make(_bytes(v)).hexdigest(), STRING, _hashed(a, "sha2"))


def _hashed(a: Node, what: str) -> Node:
    if not stringy(a.type) and a.type not in (BINARY, pa.null()):
        raise TypeMismatch(f"{what} needs a string or bytes, but {a.text} is {name_of(a.type)}; cast it to string")
    return a if a.type == BINARY else cast(a, STRING)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _digest(name: str, function: Callable[[bytes], Any], type: pa.DataType) -> Signature:
    return Signature(lambda a: rowwise(lambda v: function(_bytes(v)), type, _hashed(a, name)), 1, 1)


FUNCTIONS: Final = {
    "md5": _digest("md5", lambda v: hashlib.md5(v, usedforsecurity=False).hexdigest(), STRING),
    "sha": _digest("sha", lambda v: hashlib.sha1(v, usedforsecurity=False).hexdigest(), STRING),
    "sha1": _digest("sha1", lambda v: hashlib.sha1(v, usedforsecurity=False).hexdigest(), STRING),
    "sha2": Signature(_sha2, 2, 2),
    "crc32": _digest("crc32", zlib.crc32, LONG),
}
