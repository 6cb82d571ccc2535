"""Tables within a saved dataflow: Arrow's stream format, of a limited size.

Whoever has written one may have packed very much into very little. How much it is unpacked is said before each piece that is compressed,
so that is read first, and nothing is unpacked if it is too much.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError

MOST_BYTES: Final = 64 << 20
_PADDING: Final = 1 << 20
"""More than Arrow's format aligns with the buffers of so many bytes."""

_RECORDS, _DICTIONARY = 3, 2
"""Of what a message's header is, by Arrow's Message.fbs."""


def table_to_text(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def table_from_text(text: Any) -> pa.Table:
    """Raises QueryError for what is no table, or has more than 64 MB when it is unpacked."""
    try:
        packed = base64.b64decode(text)
        held = sum(map(_unpacked, pa.ipc.MessageReader.open_stream(packed)))
        if held > MOST_BYTES + _PADDING:
            raise QueryError(
                f"a table in a saved dataflow has {MOST_BYTES:,} bytes at most, and this one has {held:,}: read it from a file"
            )
        with pa.ipc.open_stream(packed) as reader:
            table = reader.read_all()
    except (pa.ArrowException, struct.error, binascii.Error, TypeError, OSError) as error:
        raise QueryError(f"this is no table ({error}); give it as Arrow's stream format in base64") from None
    if table.num_rows > MOST_BYTES or table.nbytes > MOST_BYTES:
        raise QueryError(f"a table in a saved dataflow has {MOST_BYTES:,} bytes at most, and this one is larger: read it from a file")
    return table


def _unpacked(message: pa.ipc.Message) -> int:
    """Bytes of a message's buffers when they are unpacked."""
    body, at = message.body, _Flat(message.metadata.to_pybytes())
    kind, header = at.number(1, "<B"), at.table(2)
    if kind == _DICTIONARY and header is not None:
        header = header.table(1)
    if kind not in (_RECORDS, _DICTIONARY) or header is None:
        return 0
    packed = header.table(3) is not None
    return sum(_of_buffer(body, offset, length, packed) for offset, length in header.pairs(2))


def _of_buffer(body: pa.Buffer, offset: int, length: int, packed: bool) -> int:
    if not packed or length < 8:
        return length
    (told,) = struct.unpack("<q", body[offset : offset + 8].to_pybytes())
    return length if told < 0 else int(told)


class _Flat:
    """A table of a flatbuffer, as much of it as is needed here: fields by their places."""

    def __init__(self, data: bytes, place: int | None = None) -> None:
        self._data = data
        self._place = struct.unpack_from("<I", data)[0] if place is None else place
        self._fields = self._place - struct.unpack_from("<i", data, self._place)[0]
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= self._size:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0]
        return self._place + offset if offset else None

    def number(self, field: int, form: str) -> int:
        at = self._at(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, field: int) -> _Flat | None:
        at = self._at(field)
        return None if at is None else _Flat(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of two long numbers each."""
        at = self._at(field)
        if at is None:
            return
        at += struct.unpack_from("<I", self._data, at)[0]
        (count,) = struct.unpack_from("<I", self._data, at)
        for each in range(count):
            yield struct.unpack_from("<qq", self._data, at + 4 + 16 * each)


__all__ = ["MOST_BYTES", "table_from_text", "table_to_text"]
