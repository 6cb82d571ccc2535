"""A record batch as bytes and back: Arrow's IPC stream format, schema and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

COPIED_BYTES: Final = 1 << 18
"""At most so many are copied while the interpreter is held: memory that has never been touched may have to come from a host."""


def batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    """Schema and rows as one Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes_of(out.getvalue())


def batch_from_bytes(data: bytes) -> pa.RecordBatch:
    """Inverse of `batch_to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def bytes_of(buffer: pa.Buffer, rest: Callable[[], object] = lambda: None) -> bytes:
    """A copy. Joining bytes, and nothing else of the kind, lets go of the interpreter. rest: is called between two pieces."""
    if buffer.size <= COPIED_BYTES:
        return bytes(buffer)
    pieces, view = [], memoryview(buffer)
    for start in range(0, buffer.size, COPIED_BYTES):
        pieces.append(bytes(view[start : start + COPIED_BYTES]))
        rest()
    return b"".join(pieces)
