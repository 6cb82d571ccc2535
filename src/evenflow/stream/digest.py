"""Digests of bytes, by which who reads them knows that they are those that were written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa


def digest_of(data: bytes | memoryview | pa.Buffer) -> str:
    """128 bits, in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_json(said: Any) -> str:
    """Of plain values, whatever the order of their keys."""
    return digest_of(json.dumps(said, separators=(",", ":"), sort_keys=True).encode())
