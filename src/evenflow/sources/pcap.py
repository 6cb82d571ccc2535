"""Capture files, classic pcap and pcapng, as rows of packet headers.

Both formats are chains of length-prefixed records. The chain has to be walked, one step per packet; everything behind a packet's
offset is then decoded for thousands of packets at once. A library that builds an object per packet (dpkt, scapy) is ten times
slower and would be one more thing to ship, for two formats that will not change.

Rows are IPv4 packets of TCP and UDP, first fragments only; others are skipped. See RFC 791, 793; draft-ietf-opsawg-pcap, -pcapng.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import SourceError
from evenflow.sources.packets import SCHEMA
from evenflow.stream.arrays import arrow_of

MAGICS: Final = {
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
"""First four bytes of a classic file: byte order, and nanoseconds per unit of the time's fraction."""
PCAPNG: Final = b"\x0a\x0d\x0d\x0a"
SECTION, INTERFACE, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 3, 6
BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D
MAX_PACKET_BYTES: Final = 1 << 26
LATEST_US: Final = 1 << 62
"""Times beyond are no timestamps."""
MOST_INTERFACES: Final = 1 << 16
NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, SLL, RAW_IPV4, SLL2 = 0, 1, 12, 14, 101, 113, 228, 276
IPV4_TYPE, VLAN_TYPE, QINQ_TYPE = 0x0800, 0x8100, 0x88A8
LINKS: Final = {
    ETHERNET: (12, 14),
    SLL: (14, 16),
    SLL2: (0, 20),
    NULL: (None, 4),
    RAW: (None, 0),
    RAW_BSD: (None, 0),
    RAW_OPENBSD: (None, 0),
    RAW_IPV4: (None, 0),
}
"""Link type: where the protocol's type is (None: IP alone), and where the network header begins."""


class Packet(NamedTuple):
    """Where a packet is in the file. ts_us: microseconds since 1970. size: bytes captured."""

    ts_us: int
    offset: int
    size: int
    link: int


def truncated(file: str, offset: int, what: str) -> SourceError:
    return SourceError(f"{file}: {what} at byte {offset}; the file is truncated or damaged: capture it again, or cut it there")


def check_link(file: str, offset: int, link: int) -> int:
    """The link type, if packets of it can be decoded. Raises SourceError."""
    if link not in LINKS:
        raise SourceError(f"{file}: link type {link} at byte {offset} is not known; known are {', '.join(map(str, sorted(LINKS)))}")
    return link


def classic_packets(file: str, data: mmap.mmap) -> Iterator[Packet]:
    """The packets of a classic pcap file. Raises SourceError with the byte where the chain breaks."""
    order, unit_ns = MAGICS[data[:4]]
    size = len(data)
    if size < 24:
        raise truncated(file, 0, f"a header of 24 bytes is needed and {size} are there")
    link = check_link(file, 20, struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF)
    record, at = struct.Struct(order + "IIII"), 24
    while at < size:
        if at + 16 > size:
            raise truncated(file, at, "a packet's header is cut off")
        seconds, fraction, captured, _ = record.unpack_from(data, at)
        if captured > MAX_PACKET_BYTES or at + 16 + captured > size:
            raise truncated(file, at, f"a packet of {captured} bytes is cut off")
        yield Packet(seconds * 1_000_000 + fraction * unit_ns // 1000, at + 16, captured, link)
        at += 16 + captured


@dataclass(slots=True)
class Section:
    """What a pcapng section has told so far. interfaces: link type, units per second and offset in seconds of each."""

    order: str = "<"
    interfaces: list[tuple[int, int, int]] = field(default_factory=list)
    last_us: int = 0


def pcapng_packets(file: str, data: mmap.mmap) -> Iterator[Packet]:
    """The packets of a pcapng file. Raises SourceError with the byte where the chain breaks."""
    size, at, section = len(data), 0, Section()
    while at < size:
        if at + 12 > size:
            raise truncated(file, at, "a block's header is cut off")
        if data[at : at + 4] == PCAPNG:
            order = "<" if struct.unpack_from("<I", data, at + 8)[0] == BYTE_ORDER_MAGIC else ">"
            section = Section(order)
        kind, length = struct.unpack_from(section.order + "II", data, at)
        if length < 12 or length % 4 or at + length > size:
            raise truncated(file, at, f"a block of {length} bytes is cut off")
        try:
            if kind == INTERFACE:
                if len(section.interfaces) == MOST_INTERFACES:
                    raise truncated(file, at, f"a section has more than {MOST_INTERFACES} interfaces")
                section.interfaces.append(interface(file, data, section.order, at, length))
            elif kind in (ENHANCED, SIMPLE):
                yield block_packet(file, data, section, at, length, kind == ENHANCED)
        except (struct.error, IndexError) as error:
            raise truncated(file, at, f"a block of type {kind} is too short ({error})") from error
        at += length


def interface(file: str, data: mmap.mmap, order: str, at: int, length: int) -> tuple[int, int, int]:
    """Link type, units per second (option 9) and offset in seconds (option 14) of an interface block."""
    if length < 20:
        raise truncated(file, at, f"an interface block of {length} bytes is too short")
    link = check_link(file, at, struct.unpack_from(order + "H", data, at + 8)[0])
    units, offset_s, option, end = 1_000_000, 0, at + 16, at + length - 4
    while option + 4 <= end:
        code, bytes_ = struct.unpack_from(order + "HH", data, option)
        if code == 0 or option + 4 + bytes_ > end:
            break
        if code == 9 and bytes_ >= 1:
            power = data[option + 4]
            units = 1 << (power & 127) if power & 128 else 10**power
        elif code == 14 and bytes_ == 8:
            offset_s = struct.unpack_from(order + "q", data, option + 4)[0]
        option += 4 + (bytes_ + 3) // 4 * 4
    return link, units, offset_s


def block_packet(file: str, data: mmap.mmap, section: Section, at: int, length: int, enhanced: bool) -> Packet:
    """The packet of an enhanced or simple packet block. A simple one has no time: it takes that of the packet before."""
    if enhanced:
        number, high, low, captured, _ = struct.unpack_from(section.order + "IIIII", data, at + 8)
        start = at + 28
    else:
        number, high, low, start = 0, 0, 0, at + 12
        captured = min(struct.unpack_from(section.order + "I", data, at + 8)[0], length - 16)
    if captured < 0 or number >= len(section.interfaces) or start + captured > at + length - 4:
        raise truncated(file, at, f"a packet of {captured} bytes on interface {number} does not fit its block")
    link, units, offset_s = section.interfaces[number]
    if enhanced:
        section.last_us = ((high << 32) | low) * 1_000_000 // units + offset_s * 1_000_000
        if not -LATEST_US < section.last_us < LATEST_US:
            raise truncated(file, at, f"a packet's time is {section.last_us} us, which is no timestamp,")
    return Packet(section.last_us, start, captured, link)


def decode(data: npt.NDArray[np.uint8], packets: list[Packet]) -> pa.RecordBatch:
    """The TCP and UDP packets over IPv4 among `packets`, in their order. data: the whole file, uint8."""
    table = np.array(packets, np.int64).reshape(-1, 4)
    ts, at, end = table[:, 0], table[:, 1].copy(), table[:, 1] + table[:, 2]

    def byte(where: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Bytes of the file, 0 beyond the packet's end: a caller's length checks come later."""
        return np.where(where < end, data[np.minimum(where, len(data) - 1)], 0).astype(np.int32)

    def word(where: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        return byte(where) << 8 | byte(where + 1)

    good = np.ones(len(ts), np.bool_)
    for link in np.unique(table[:, 3]).tolist():
        mine = table[:, 3] == link
        type_at, skip = LINKS[link]
        if type_at is not None:
            kind = word(at + type_at)
            if link == ETHERNET:
                for _ in range(2):  # Up to two VLAN tags stand before the type.
                    tagged = mine & ((kind == VLAN_TYPE) | (kind == QINQ_TYPE))
                    at[tagged] += 4
                    kind = np.where(tagged, word(at + type_at), kind)
            good &= ~mine | (kind == IPV4_TYPE)
        at[mine] += skip
    first = byte(at)
    proto = byte(at + 9)
    transport = at + (first & 15) * 4
    needed = np.where(proto == 6, 14, 4)
    good &= (first >> 4 == 4) & (first & 15 >= 5) & ((proto == 6) | (proto == 17))
    good &= ((word(at + 6) & 0x1FFF) == 0) & (transport + needed <= end)
    flags = np.where(proto == 6, word(transport + 12) & 0x1FF, 0)
    total = word(at + 2)
    length = np.where(total == 0, end - at, total)  # Segmentation offload leaves the total length zero.
    kept = np.flatnonzero(good)
    source, target = texts(addresses(at[kept] + 12, data)), texts(addresses(at[kept] + 16, data))
    numbers: dict[str, npt.NDArray[np.signedinteger]] = {
        "ts": ts, "sport": word(transport), "dport": word(transport + 2), "proto": proto, "length": length, "tcp_flags": flags,
    }  # fmt: skip
    columns = {"src": source, "dst": target}
    for name, values in numbers.items():
        type_ = SCHEMA.field(name).type
        columns[name] = arrow_of(values[kept].astype(f"i{type_.bit_width // 8}"), type_)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def addresses(where: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """IPv4 addresses as numbers."""
    parts = [data[where + i].astype(np.int64) for i in range(4)]
    return parts[0] << 24 | parts[1] << 16 | parts[2] << 8 | parts[3]


def texts(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """IPv4 addresses as dotted quads: each different one is written once."""
    coded = pa.array(numbers).dictionary_encode()
    names = [f"{n >> 24}.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)


def batches(file: str, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a capture file, decoded `rows` packets at a time. Raises SourceError with the file and the byte, after the
    good rows.
    """
    with open(file, "rb") as source:
        start = source.read(4)
        if start not in MAGICS and start != PCAPNG:
            raise truncated(file, 0, f"neither a pcap nor a pcapng file (it begins with {start.hex() or 'nothing'})")
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            packets = pcapng_packets(file, data) if start == PCAPNG else classic_packets(file, data)
            yield from decoded(data, packets, rows)


def decoded(data: mmap.mmap, packets: Iterator[Packet], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of `rows` packets. When the chain breaks, the packets before it come first, then the error."""
    broken: SourceError | None = None
    while broken is None:
        chunk: list[Packet] = []
        try:
            for packet in packets:
                chunk.append(packet)
                if len(chunk) == rows:
                    break
            else:
                if not chunk:
                    return
        except SourceError as error:
            broken = error
        if chunk:
            view = np.frombuffer(data, np.uint8)
            batch = decode(view, chunk)
            del view  # The map can only be closed when nothing looks at it.
            yield batch
    raise broken
