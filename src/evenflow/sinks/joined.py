"""One Parquet file of several: the files as they are, one after another, and behind them a footer for all.

    part 0: PAR1 pages footer PAR1 | part 1: PAR1 pages footer PAR1 | ... | footer of all, its length, PAR1

A reader goes by the last footer, which says where each column of each row group lies; what lies between, here the parts' own footers,
is nobody's business. So no value is decoded, a joined file costs what copying bytes costs, and because the parts are in it unchanged,
it can be taken apart and compared with what was joined.

A footer is a struct of Thrift's compact protocol (https://github.com/apache/parquet-format, parquet.thrift). It is read into structs
by the numbers of their fields, with no knowledge of what the fields mean but of those below, and written again. This file knows no
store and no epochs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, cast

MAGIC: Final = b"PAR1"
END_BYTES: Final = 8
"""What is behind a footer: its length as 4 bytes, and the magic."""

Struct = dict[int, tuple[int, Any]]
"""The type and value of each field, by its number, in ascending order."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""Types of Thrift's compact protocol."""

SCHEMA, ROWS, ROW_GROUPS = 2, 3, 4  # FileMetaData
COLUMNS, GROUP_OFFSET, ORDINAL = 1, 5, 7  # RowGroup
CHUNK_OFFSET, CHUNK_META, OFFSET_INDEX, COLUMN_INDEX = 2, 3, 4, 6  # ColumnChunk
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER = 9, 10, 11, 14  # ColumnMetaData


class NotJoinable(ValueError):
    """These are not Parquet files, or not of one schema, or have what cannot be moved within a file."""


class Reader:
    """Goes through the bytes of one struct."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _number(self) -> int:
        """An unsigned number in groups of seven bits, the lowest first."""
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        value = byte & 0x7F
        shift = 7
        while byte & 0x80:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self._at = at
        return value

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        if len(taken) != count:
            raise NotJoinable("a footer ends in the middle of a value")
        return taken

    def struct(self) -> Struct:
        """The struct that begins here."""
        fields: Struct = {}
        number = 0
        data = self._data
        while head := data[self._at]:
            self._at += 1
            if head >> 4:
                number += head >> 4
            else:
                number = signed(self._number())
            kind = head & 0x0F
            fields[number] = (kind, self._value(kind))
        self._at += 1
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return signed(self._number())
        if kind == BINARY:
            return self._take(self._number())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            head = self._take(1)[0]
            count = head >> 4 if head >> 4 != 15 else self._number()
            element = head & 0x0F
            return element, [self._take(1) if element in (TRUE, FALSE) else self._value(element) for _ in range(count)]
        if kind in (TRUE, FALSE):
            return b""
        if kind in (BYTE, DOUBLE):
            return self._take(1 if kind == BYTE else 8)
        raise NotJoinable(f"a footer has a value of type {kind}, which Parquet does not use")


def signed(number: int) -> int:
    """Zigzag: 0, 1, 2, 3 stand for 0, -1, 1, -2."""
    return (number >> 1) ^ -(number & 1)


def put_number(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_struct(out: bytearray, fields: Struct) -> None:
    """Write what `Reader.struct` reads."""
    last = 0
    for number, (kind, value) in fields.items():
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            put_value(out, I16, number)
        put_value(out, kind, value)
        last = number
    out.append(0)


def put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        put_number(out, value << 1 if value >= 0 else ~(value << 1))
    elif kind == BINARY:
        put_number(out, len(value))
        out += value
    elif kind == STRUCT:
        put_struct(out, value)
    elif kind in (LIST, SET):
        element, values = value
        out.append(min(len(values), 15) << 4 | element)
        if len(values) >= 15:
            put_number(out, len(values))
        for each in values:
            if element in (TRUE, FALSE):
                out += each
            else:
                put_value(out, element, each)
    else:
        out += value


def footer_bytes(end: bytes) -> int:
    """Size of the footer and of what is behind it, of a file that ends with `end`, which is at least END_BYTES long."""
    if len(end) < END_BYTES or end[-4:] != MAGIC:
        raise NotJoinable("a part is no Parquet file: its last bytes are not PAR1")
    return int(struct.unpack("<I", end[-8:-4])[0]) + END_BYTES


def joined_end(ends: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    """What stands behind the parts: a footer for all of them, its length, and the magic.

    ends: of each part, its footer and what is behind it, `footer_bytes` long; sizes: of each whole part, in bytes. At least one part.
    The same for the same arguments. Cost: some microseconds per column of each row group. Raises NotJoinable.
    """
    try:
        footers = [Reader(end[:-END_BYTES]).struct() for end in ends]
        groups: list[Struct] = []
        whole, rows, start = footers[0], 0, 0
        for footer, size in zip(footers, sizes, strict=True):
            if footer[SCHEMA] != whole[SCHEMA]:
                raise NotJoinable("the parts have different columns, or were written by different versions of pyarrow")
            for group in footer[ROW_GROUPS][1][1]:
                move_group(group, start)
                if ORDINAL in group:
                    group[ORDINAL] = (I16, len(groups))
                groups.append(group)
            rows += footer[ROWS][1]
            start += size
    except (IndexError, KeyError, TypeError) as error:
        raise NotJoinable(f"a part has no readable footer: {error!r}") from error
    out = bytearray()
    put_struct(out, whole | {ROWS: (I64, rows), ROW_GROUPS: (LIST, (STRUCT, groups))})
    return bytes(out) + struct.pack("<I", len(out)) + MAGIC


def move_group(group: Struct, by: int) -> None:
    """Say that a row group lies `by` bytes further behind the beginning of the file."""
    move(group, by, GROUP_OFFSET)
    for chunk in group[COLUMNS][1][1]:
        # An index of pages has offsets of its own, outside the footer.
        if OFFSET_INDEX in chunk or COLUMN_INDEX in chunk:
            raise NotJoinable("a part has an index of its pages, which cannot be moved")
        move(chunk, by, CHUNK_OFFSET)
        move(cast(Struct, chunk[CHUNK_META][1]), by, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER)


def move(fields: Struct, by: int, *numbers: int) -> None:
    """Add `by` to the fields that are there; 0 stands for no offset (and for what is no longer in use)."""
    for number in numbers:
        if number in fields and fields[number][1]:
            kind, value = fields[number]
            fields[number] = (kind, value + by)
