"""Capture files, written here byte by byte: both formats, both byte orders, every link type, and broken chains."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from evenflow import sources
from evenflow.errors import SourceError
from evenflow.sources.pcap import BYTE_ORDER_MAGIC, ENHANCED, ETHERNET, INTERFACE, NULL, RAW, RAW_IPV4, SECTION, SIMPLE, SLL, SLL2

from .reading import arrivals, read_all


def ipv4(proto: int, body: bytes, *, fragment: int = 0, options: bytes = b"", total: int | None = None) -> bytes:
    length = 20 + len(options) + len(body) if total is None else total
    head = struct.pack(
        ">BBHHHBBH4B4B", 0x40 | (5 + len(options) // 4), 0, length, 1, fragment, 64, proto, 0, 10, 0, 0, 1, 192, 168, 255, 254
    )
    return head + options + body


TCP = struct.pack(">HHIIHHHH", 443, 51000, 1, 2, 0x5000 | 0x112, 100, 0, 0)
UDP = struct.pack(">HHHH", 53, 40000, 8, 0)
TCP_ROW = {"src": "10.0.0.1", "dst": "192.168.255.254", "sport": 443, "dport": 51000, "proto": 6, "length": 40, "tcp_flags": 0x112}
UDP_ROW = {"src": "10.0.0.1", "dst": "192.168.255.254", "sport": 53, "dport": 40000, "proto": 17, "length": 28, "tcp_flags": 0}
FRAMES = {
    ETHERNET: b"\xaa" * 12 + b"\x08\x00",
    SLL: b"\x00" * 14 + b"\x08\x00",
    SLL2: b"\x08\x00" + b"\x00" * 18,
    NULL: b"\x02\x00\x00\x00",
    RAW: b"",
    RAW_IPV4: b"",
}


def classic(packets: list[tuple[int, int, bytes]], order: str = "<", nano: bool = False, link: int = RAW) -> bytes:
    out = struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for seconds, fraction, data in packets:
        out += struct.pack(order + "IIII", seconds, fraction, len(data), len(data)) + data
    return out


def block(order: str, kind: int, body: bytes) -> bytes:
    body += b"\0" * (-len(body) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order: str) -> bytes:
    return block(order, SECTION, struct.pack(order + "IHHq", BYTE_ORDER_MAGIC, 1, 0, -1))


def interface(order: str, link: int, options: bytes = b"") -> bytes:
    return block(order, INTERFACE, struct.pack(order + "HHI", link, 0, 65535) + options)


def enhanced(order: str, number: int, ticks: int, data: bytes) -> bytes:
    return block(order, ENHANCED, struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data)) + data)


def read(tmp_path: Path, data: bytes, max_rows: int = 1000) -> list[dict[str, object]]:
    (tmp_path / "x.pcap").write_bytes(data)
    table = read_all(sources.pcap(str(tmp_path / "x.pcap")), max_rows=max_rows)
    return table.set_column(0, "ts", table["ts"].cast(pa.int64())).to_pylist()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_classic_files_of_both_byte_orders_and_units(tmp_path: Path, order: str, nano: bool) -> None:
    unit = 1000 if nano else 1
    rows = read(tmp_path, classic([(3, 250_000 * unit, ipv4(6, TCP)), (4, 7 * unit, ipv4(17, UDP))], order, nano))
    assert rows == [{"ts": 3_250_000, **TCP_ROW}, {"ts": 4_000_007, **UDP_ROW}]


@pytest.mark.parametrize("link", FRAMES)
def test_every_link_type(tmp_path: Path, link: int) -> None:
    rows = read(tmp_path, classic([(1, 0, FRAMES[link] + ipv4(6, TCP)), (2, 0, FRAMES[link] + ipv4(17, UDP))], link=link))
    assert rows == [{"ts": 1_000_000, **TCP_ROW}, {"ts": 2_000_000, **UDP_ROW}]


def test_vlan_tags_and_ip_options_are_skipped(tmp_path: Path) -> None:
    once = b"\xaa" * 12 + b"\x81\x00\x00\x05\x08\x00"
    twice = b"\xaa" * 12 + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00"
    with_options = ipv4(6, TCP, options=b"\x01" * 8)
    rows = read(tmp_path, classic([(1, 0, once + ipv4(6, TCP)), (2, 0, twice + with_options)], link=ETHERNET))
    assert rows == [{"ts": 1_000_000, **TCP_ROW}, {"ts": 2_000_000, **TCP_ROW, "length": 48}]


def test_what_is_not_tcp_or_udp_over_ipv4_is_left_out(tmp_path: Path) -> None:
    eth = FRAMES[ETHERNET]
    others = [
        b"\xaa" * 12 + b"\x86\xdd" + b"\x60" + b"\0" * 59,  # IPv6
        b"\xaa" * 12 + b"\x08\x06" + b"\0" * 28,  # ARP
        eth + ipv4(1, b"\x08\0\0\0"),  # ICMP
        eth + ipv4(6, TCP, fragment=100),  # A later fragment has no ports.
        eth + ipv4(6, TCP)[:30],  # The snapshot length cut the TCP header off.
        eth + ipv4(6, TCP)[:10],
        eth[:5],
        b"",
    ]
    good = eth + ipv4(6, TCP, total=0)
    rows = read(tmp_path, classic([(i, 0, data) for i, data in enumerate([*others, good])], link=ETHERNET))
    assert rows == [{"ts": 8_000_000, **TCP_ROW}]
    assert read(tmp_path, classic([(1, 0, others[0])], link=ETHERNET)) == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_with_several_interfaces_and_units(tmp_path: Path, order: str) -> None:
    nanos = struct.pack(order + "HHB3x", 9, 1, 9) + struct.pack(order + "HHq", 14, 8, 100) + struct.pack(order + "HH", 0, 0)
    halves = struct.pack(order + "HHB3x", 9, 1, 0x80 | 1)
    data = (
        section(order) + interface(order, RAW) + interface(order, ETHERNET, nanos) + interface(order, RAW, halves)
        + enhanced(order, 0, 5_000_000_000_123, ipv4(6, TCP)) + block(order, 5, b"statistics..")
        + enhanced(order, 1, 1_500_000_999, FRAMES[ETHERNET] + ipv4(17, UDP)) + enhanced(order, 2, 3, ipv4(6, TCP))
        + block(order, SIMPLE, struct.pack(order + "I", 28) + ipv4(17, UDP))
    )  # fmt: skip
    other = ">" if order == "<" else "<"
    data += section(other) + interface(other, RAW) + enhanced(other, 0, 9, ipv4(6, TCP))
    assert read(tmp_path, data) == [
        {"ts": 5_000_000_000_123, **TCP_ROW}, {"ts": 101_500_000, **UDP_ROW}, {"ts": 1_500_000, **TCP_ROW},
        {"ts": 1_500_000, **UDP_ROW}, {"ts": 9, **TCP_ROW},
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [1, 16, 30, 55])
def test_a_truncated_file_gives_its_whole_packets_and_then_the_place(tmp_path: Path, cut: int) -> None:
    data = classic([(1, 0, ipv4(6, TCP)), (2, 0, ipv4(6, TCP))])
    (tmp_path / "x.pcap").write_bytes(data[:-cut])
    reader = sources.pcap(str(tmp_path / "x.pcap")).open(0, 1)
    with pytest.raises(SourceError, match=r"x\.pcap: .* at byte 80; the file is truncated"):
        assert reader.read(0, 10).num_rows == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "neither a pcap nor a pcapng"),
        (b"hello world, this is text", "neither a pcap nor a pcapng"),
        (classic([])[:10], "24 bytes"),
        (classic([(1, 0, b"x")], link=147), "link type 147"),
        (section("<") + enhanced("<", 0, 1, b"x"), "interface 0 does not fit"),
        (section("<") + interface("<", RAW)[:-6], "at byte 28"),
        (section("<") + struct.pack("<II", 6, 3) + b"\0" * 8, "block of 3 bytes"),
        (section("<") + interface("<", RAW) + block("<", ENHANCED, b""), "at byte 48"),
        (classic([])[:24] + struct.pack("<IIII", 1, 1, 1 << 31, 1), "at byte 24"),
    ],
)
def test_damaged_files_are_named_with_the_place(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        read(tmp_path, data)
    assert "x.pcap" in str(caught.value)


def test_a_capture_can_be_replayed_at_its_pace(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(classic([(10, 0, ipv4(6, TCP)), (12, 0, ipv4(6, TCP))]))
    assert arrivals(sources.pcap(str(tmp_path / "x.pcap"), speed=2.0).open(0, 1)) == [(0, 1), (1_000_000, 1)]


def test_many_packets_cross_the_decoders_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.sources.files.BATCH_ROWS", 7)
    rows = read(tmp_path, classic([(i, 0, ipv4(6 if i % 3 else 17, TCP)) for i in range(50)]))
    assert [r["ts"] for r in rows] == [i * 1_000_000 for i in range(50)]
    assert [r["proto"] for r in rows] == [6 if i % 3 else 17 for i in range(50)]
