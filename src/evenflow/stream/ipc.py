"""A record batch as bytes and back: Arrow's IPC stream format, schema and rows."""

from __future__ import annotations

import pyarrow as pa


def batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    """Schema and rows as one Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def batch_from_bytes(data: bytes) -> pa.RecordBatch:
    """Inverse of `batch_to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
