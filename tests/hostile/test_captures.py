"""Capture files that somebody else made: rows come out, or a SourceError with the file and the byte, in bounded time."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenflow import sources
from evenflow.errors import SourceError

FUZZ = settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
IPV4 = bytes.fromhex("4500002800010000400600000a0000010a000002") + struct.pack(">HHIIHHHH", 80, 443, 1, 2, 0x5010, 1, 0, 0)
FRAME = bytes(12) + b"\x08\x00" + IPV4
SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)


def block(kind: int, body: bytes, length: int | None = None) -> bytes:
    body += bytes(-len(body) % 4)
    told = 12 + len(body) if length is None else length
    return struct.pack("<II", kind, told) + body + struct.pack("<I", told)


def interface(link: int = 1, options: bytes = b"") -> bytes:
    return block(1, struct.pack("<HHI", link, 0, 0) + options)


def packet(number: int = 0, stamp: int = 0, captured: int | None = None, data: bytes = FRAME) -> bytes:
    told = len(data) if captured is None else captured
    return block(6, struct.pack("<IIIII", number, stamp >> 32, stamp & 0xFFFFFFFF, told, told) + data)


def option(code: int, value: bytes, told: int | None = None) -> bytes:
    return struct.pack("<HH", code, len(value) if told is None else told) + value + bytes(-len(value) % 4)


def rows_of(path: Path, content: bytes) -> int:
    path.write_bytes(content)
    reader = sources.pcap(str(path)).open(0, 1)
    rows = 0
    while not reader.ended:
        batch = reader.read(0, 1 << 16)
        rows += 0 if batch is None else batch.num_rows
    return rows


def test_a_whole_capture_is_read(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.pcapng", SECTION + interface() + packet() * 3) == 3


@pytest.mark.parametrize(
    "content",
    [
        SECTION + interface(options=option(9, b"", told=1)) + packet(number=1),
        SECTION + interface(options=option(9, b"\x06", told=60000)) + packet(number=9),
        SECTION + interface(options=option(14, struct.pack("<q", 2**62))) + packet(),
        SECTION + interface(options=option(14, struct.pack("<q", -(2**62)))) + packet(),
        SECTION + interface(options=option(9, b"\x00")) + packet(stamp=2**64 - 1),
        SECTION + interface() + packet(captured=2**32 - 1),
        SECTION + interface() + block(6, b"", 12),
        SECTION + interface() + block(3, b"", 12),
        SECTION + block(3, struct.pack("<I", 4)),
        SECTION + block(1, b"", 12),
        SECTION + interface(link=999),
        SECTION + struct.pack("<II", 6, 0),
        SECTION + struct.pack("<II", 6, 2**32 - 4),
        SECTION[:12] + struct.pack(">I", 0x1A2B3C4D) + SECTION[12:],
        struct.pack("<II", 0x0A0D0D0A, 12) + bytes(4),
        b"\x0a\x0d\x0d\x0a",
        b"\xd4\xc3\xb2\xa1",
        b"",
    ],
    ids=iter(range(100)),
)
def test_a_hostile_block_is_a_source_error_with_its_place(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pcapng"
    with pytest.raises(SourceError, match=r"a\.pcapng"):
        rows_of(path, content)


OPTIONS = st.builds(option, st.integers(0, 20), st.binary(max_size=12), st.none() | st.integers(0, 2**16 - 1))
TOLD = st.none() | st.integers(0, 2**32 - 1)
DATA = st.just(FRAME) | st.binary(max_size=80)
BLOCKS = st.one_of(
    st.builds(interface, st.sampled_from([0, 1, 101, 113, 276, 7]), OPTIONS),
    st.builds(packet, st.integers(0, 3), st.integers(0, 2**64 - 1), TOLD, DATA),
    st.builds(block, st.integers(0, 8), st.binary(max_size=40), TOLD),
    st.just(SECTION),
    st.binary(max_size=30),
)


def read_or_refused(path: Path, content: bytes) -> None:
    """Anything else that is raised fails the test."""
    with contextlib.suppress(SourceError):
        rows_of(path, content)


@FUZZ
@given(blocks=st.lists(BLOCKS, max_size=8), flipped=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4))
def test_any_bytes_give_rows_or_a_source_error(tmp_path: Path, blocks: list[bytes], flipped: list[tuple[int, int]]) -> None:
    content = bytearray(SECTION + interface() + b"".join(blocks))
    for at, value in flipped:
        content[at % len(content)] = value
    read_or_refused(tmp_path / "a.pcapng", bytes(content))


CLASSIC = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
RECORDS = st.lists(st.tuples(st.integers(0, 2**32 - 1), TOLD, DATA), max_size=6)


@FUZZ
@given(records=RECORDS, tail=st.binary(max_size=20))
def test_any_classic_capture(tmp_path: Path, records: list[tuple[int, int | None, bytes]], tail: bytes) -> None:
    content = CLASSIC
    for seconds, told, data in records:
        content += struct.pack("<IIII", seconds, seconds, len(data) if told is None else told, len(data)) + data
    read_or_refused(tmp_path / "a.pcap", content + tail)
