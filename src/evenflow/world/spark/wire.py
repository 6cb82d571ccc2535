"""How messages look on a connection between two sites.

Every message has a header of eight bytes and a body of at most `MESSAGE_BYTES_MAX`:

    magic "EF" | version | kind | body length          <2sBBI

A `SECTIONS` body has, for each dataflow of this pair of sites, a head of packed integers; then, from the next multiple of eight bytes
on, the rows of all bundles in the order of the heads, each an Arrow IPC record batch message without its schema, which both ends
know from the layout. Reading rows copies nothing: the columns are slices of the body (protocol E4: CPU per message is the budget).

This file knows the meaning of `Section` and the layout of bytes. It knows no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from evenflow.errors import ProtocolError
from evenflow.exchange.section import Ack, Bundle, Mark, Resume, Section

MAGIC: Final = b"EF"
VERSION: Final = 1
HEADER: Final = struct.Struct("<2sBBI")
MESSAGE_BYTES_MAX: Final = 1 << 30

MESSAGE_BYTES_GOOD: Final = 128 << 20
"""About the most that is said in one message if it can be said in several."""

SECTIONS: Final = 1
"""Sections of any number of dataflows, between two sites."""
CONTROL: Final = 2
"""A pickled control message (`control.py`), between a site and its driver."""
RELEASE: Final = 3
"""A finished epoch, from a site to a sink in the driver."""
ROWS: Final = 4
"""A batch of rows that a Spark task pushes, or a Spark source fetches."""

KINDS: Final = frozenset((SECTIONS, CONTROL, RELEASE, ROWS))

HEAD: Final = struct.Struct("<IHHHH")
"""run, bundles, marks, resumes, 1 + streams in the ack's `received` (0: no ack)."""
RELEASE_HEAD: Final = struct.Struct("<IiqqqB7x")
"""run, segment, epoch, opened, rows, last."""

Piece: TypeAlias = Any
"""bytes, memoryview or pa.Buffer."""
Schemas: TypeAlias = Mapping[int, Sequence[pa.Schema]]


def body_length(header: bytes | memoryview, offset: int = 0) -> tuple[int, int]:
    """(kind, length of the body) of the header at `offset`. Raises ProtocolError if it is not one of ours or promises too much."""
    magic, version, kind, length = HEADER.unpack_from(header, offset)
    if magic != MAGIC or version != VERSION or kind not in KINDS:
        raise ProtocolError(f"not a message of this version: magic {magic!r}, version {version}, kind {kind}")
    if length > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of {length} bytes is larger than the {MESSAGE_BYTES_MAX} that are allowed")
    return kind, length


def framed(kind: int, pieces: list[Piece]) -> list[Piece]:
    """The pieces with their header in front. Raises ProtocolError if they are larger than a message may be."""
    length = 0
    for piece in pieces:
        length += len(piece)
    if length > MESSAGE_BYTES_MAX:
        raise ProtocolError(
            f"a message of {length} bytes is larger than the {MESSAGE_BYTES_MAX} that are allowed; use smaller epochs (epoch_rows)"
        )
    return [HEADER.pack(MAGIC, VERSION, kind, length), *pieces]


@lru_cache(maxsize=4096)
def layout(bundles: int, marks: int, resumes: int, acks: int) -> Callable[..., bytes]:
    """Packs a head with everything that follows it but the rows."""
    return struct.Struct("<IHHHH" + "iqiq" * bundles + "iqiqqq" * marks + "iq" * resumes + "q" * (acks + 2 if acks else 0)).pack


@lru_cache(maxsize=4096)
def layout_after_head(bundles: int, marks: int, resumes: int, acks: int) -> struct.Struct:
    return struct.Struct("<" + "iqiq" * bundles + "iqiqqq" * marks + "iq" * resumes + "q" * (acks + 2 if acks else 0))


def bytes_of(section: Section) -> int:
    """About how many bytes the rows of a section take."""
    return sum([bundle.size for bundle in section.bundles])


def in_parts(section: Section, most_bytes: int = MESSAGE_BYTES_GOOD) -> Iterator[Section]:
    """The section as several that mean the same when they come in this order, each of at most about `most_bytes` or of one bundle.

    Bundles keep their order; marks, which say that bundles have come, and all else are in the last one.
    """
    bundles: list[Bundle] = []
    held_bytes = 0
    for bundle in section.bundles:
        if bundles and held_bytes + bundle.size > most_bytes:
            yield Section(bundles)
            bundles, held_bytes = [], 0
        bundles.append(bundle)
        held_bytes += bundle.size
    yield Section(bundles, section.marks, section.resumes, section.ack)


def encode_sections(sections: Sequence[tuple[int, Section]]) -> list[Piece]:
    """The body of a SECTIONS message, in pieces that can be sent without joining them. sections: (run number, section) pairs."""
    heads: list[bytes] = []
    rows: list[Piece] = []
    for run, section in sections:
        heads.append(encode_head(run, section, rows))
    head = heads[0] if len(heads) == 1 else b"".join(heads)
    prefix = struct.pack("<I", len(sections)) + head
    if not rows:
        return [prefix]
    return [prefix + bytes(-len(prefix) % 8), *rows]


def encode_head(run: int, section: Section, rows: list[Piece]) -> bytes:
    """The packed integers of one section. Appends the rows of its bundles to `rows`."""
    numbers: list[int] = []
    add = numbers.extend
    for b in section.bundles:
        data = b.rows.serialize()
        if len(data) % 8:
            data = data.to_pybytes() + bytes(-len(data) % 8)
        rows.append(data)
        add((b.stream, b.epoch, b.plan, len(data)))
    for m in section.marks:
        add((m.stream, m.epoch, m.plan, m.watermark, m.stamp, m.opened))
    for r in section.resumes:
        add((r.stream, r.start))
    acks = 0
    ack = section.ack
    if ack is not None:
        acks = len(ack.received) + 1
        add(ack.received)
        add((ack.processed, ack.finished, ack.granted))
    counts = (len(section.bundles), len(section.marks), len(section.resumes), acks)
    return layout(*counts)(run, *counts, *numbers)


def decode_sections(body: bytes | memoryview, schemas: Schemas) -> list[tuple[int, Section]]:
    """Inverse of `encode_sections`. schemas[run][stream]: the wire schema of every arc of every dataflow that lives here.

    Sections of other dataflows are left out: a dataflow that has just been stopped here may still be spoken of by a peer.
    body: 8-byte aligned and never written again, because the rows refer to it. Raises ProtocolError.
    """
    try:
        return list(read_sections(body, schemas))
    except (struct.error, pa.ArrowException, IndexError) as error:
        raise ProtocolError(f"a message between sites cannot be read: {error}") from error


def read_sections(body: bytes | memoryview, schemas: Schemas) -> Iterator[tuple[int, Section]]:
    (count,) = struct.unpack_from("<I", body)
    at = 4
    heads: list[tuple[int, int, int, int, int, tuple[int, ...]]] = []
    any_rows = False
    for _ in range(count):
        run, bundles, marks, resumes, acks = HEAD.unpack_from(body, at)
        rest = layout_after_head(bundles, marks, resumes, acks)
        heads.append((run, bundles, marks, resumes, acks, rest.unpack_from(body, at + 12)))
        at += 12 + rest.size
        any_rows = any_rows or bundles > 0
    data = pa.py_buffer(body) if any_rows else None
    at += -at % 8
    for run, bundles, marks, resumes, acks, numbers in heads:
        known = schemas.get(run)
        section = Section()
        i = 0
        for _ in range(bundles):
            stream, epoch, plan, length = numbers[i : i + 4]
            if known is not None:
                section.bundles.append(Bundle(stream, epoch, plan, read_rows(data, at, length, known[stream]), length))
            at += length
            i += 4
        if known is None:
            continue
        fill_section(section, numbers, i, marks, resumes, acks)
        yield run, section


def read_rows(data: Any, at: int, length: int, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch in `length` bytes of the buffer from `at` on, without a copy."""
    if at + length > data.size:
        raise IndexError(f"rows at {at}..{at + length} of a body of {data.size} bytes")
    return pa.ipc.read_record_batch(data.slice(at, length), schema)


def fill_section(section: Section, numbers: tuple[int, ...], i: int, marks: int, resumes: int, acks: int) -> None:
    """Add the marks, resumes and acknowledgement found in `numbers` from index `i` on."""
    for _ in range(marks):
        section.marks.append(Mark(*numbers[i : i + 6]))
        i += 6
    for _ in range(resumes):
        section.resumes.append(Resume(numbers[i], numbers[i + 1]))
        i += 2
    if acks:
        last = i + acks - 1
        section.ack = Ack(numbers[i:last], numbers[last], numbers[last + 1], numbers[last + 2])


def encode_release(run: int, segment: int, epoch: int, opened: int, last: bool, batch: pa.RecordBatch) -> list[Piece]:
    """The body of a RELEASE message. The schema has been told before."""
    return [RELEASE_HEAD.pack(run, segment, epoch, opened, batch.num_rows, last), batch.serialize()]


def decode_release(body: bytes | memoryview) -> tuple[int, int, int, int, bool, pa.Buffer]:
    """(run, segment, epoch, opened, last, rows still encoded)."""
    run, segment, epoch, opened, _, last = RELEASE_HEAD.unpack_from(body)
    return run, segment, epoch, opened, bool(last), pa.py_buffer(body).slice(RELEASE_HEAD.size)
