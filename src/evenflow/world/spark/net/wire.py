"""What bodies of messages look like between two sites, and those of finished epochs on their way to the driver.

A `SECTIONS` body has, for each dataflow of this pair of sites, a head of packed integers; then, from the next multiple of eight bytes
on, the rows of all bundles and records in the order of the heads, each an Arrow IPC record batch message without its schema, which both
ends know from the layout, and, where feeds are asked for, or records have shares or leave rows out, those, as integers.
Reading rows copies nothing: the columns are slices of the body (protocol E4: CPU per message is the budget).

This file knows the meaning of `Section` and the layout of bytes. It knows no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from evenflow.errors import UnreadableMessage
from evenflow.exchange.parts import bytes_of_record
from evenflow.exchange.portion import Portion
from evenflow.exchange.section import Ack, Bundle, Held, Mark, Record, Resume, RowsObject, Section, Settled, Share, new_tuple
from evenflow.exchange.shedding import checked
from evenflow.site.events import Release
from evenflow.stream.ids import SiteId
from evenflow.world.spark.net.framing import Piece

COUNT: Final = struct.Struct("<I")
"""of sections."""
HEAD: Final = struct.Struct("<IHHHHHHI")
"""run, bundles, marks, records, held, settled, 1 + streams in the ack's `received` (0: no ack), bytes of the resumes and shares
(0: none)."""
RELEASE_HEAD: Final = struct.Struct("<IiqqqB3xi")
"""run, segment, epoch, opened, rows, last, how many numbers say of whom they are: a stream and producer partitions (0: of all)."""


class RunSchemas(NamedTuple):
    """What both ends know of a dataflow's rows: the wire schema of every stream, and of every segment's source rows."""

    streams: Sequence[pa.Schema]
    segments: Sequence[pa.Schema]


Schemas: TypeAlias = Mapping[int, RunSchemas]
LeftOut: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""`keep` and `dropped` of a record."""


_BUNDLE, _MARK, _RECORD, _HELD, _SETTLED = "qiqiq", "qiqiqqqqqq", "iiqqqqqqqq", "iiqqq", "iiqq"


@lru_cache(maxsize=4096)
def after_head(bundles: int, marks: int, records: int, held: int, settled: int, acks: int) -> struct.Struct:
    """What follows a head with these counts."""
    acked = "q" * (acks + 4 if acks else 0)
    return struct.Struct("<" + _BUNDLE * bundles + _MARK * marks + _RECORD * records + _HELD * held + _SETTLED * settled + acked)


def bytes_of(sections: Sequence[tuple[int, Section]]) -> int:
    """About how many bytes the rows of (run number, section) pairs take."""
    size = 0
    for _, section in sections:
        for bundle in section.bundles:
            size += bundle.size
        for record in section.records:
            size += bytes_of_record(record)
    return size


def encode_sections(sections: Sequence[tuple[int, Section]]) -> list[Piece]:
    """The body of a SECTIONS message, in pieces that can be sent without joining them. sections: (run number, section) pairs."""
    heads: list[bytes] = []
    rows: list[Piece] = []
    for run, section in sections:
        heads.append(encode_head(run, section, rows))
    head = heads[0] if len(heads) == 1 else b"".join(heads)
    prefix = COUNT.pack(len(sections)) + head
    if not rows:
        return [prefix]
    return [prefix + bytes(-len(prefix) % 8), *rows]


def encode_head(run: int, section: Section, rows: list[Piece]) -> bytes:
    """The packed integers of one section. Appends the rows of its bundles and records, its resumes and shares, to `rows`."""
    numbers: list[int] = []
    for feed, stream, epoch, plan, batch, _ in section.bundles:
        numbers += (feed, stream, epoch, plan, append_rows(batch, rows))
    for mark in section.marks:
        numbers += mark
    asking = 0
    if section.records or section.held or section.settled or section.resumes:
        asking = add_words(section, numbers, rows)
    acks = 0
    if section.ack is not None:
        received, *rest = section.ack
        acks = len(received) + 1
        numbers += received
        numbers += rest
    counts = (len(section.bundles), len(section.marks), len(section.records), len(section.held), len(section.settled), acks)
    return HEAD.pack(run, *counts, asking) + after_head(*counts).pack(*numbers)


def add_words(section: Section, numbers: list[int], rows: list[Piece]) -> int:
    """What most sections do not have: records and the words about them, and resumes. Returns the bytes of resumes and shares."""
    shares: dict[int, Sequence[Share]] = {}
    objects: dict[int, Sequence[RowsObject]] = {}
    left_out: dict[int, LeftOut] = {}
    for i, r in enumerate(section.records):
        if r.shares:
            shares[i] = r.shares
        if r.objects:
            objects[i] = r.objects
        if r.keep:
            left_out[i] = r.keep, r.dropped
        length = 0 if r.rows is None else append_rows(r.rows, rows)
        flags = r.batch_done | r.ended << 1
        numbers += (r.segment, r.partition, r.epoch, r.term, r.origin, r.stamp, r.opened, r.taken, flags, length)
    for held in section.held:
        numbers += held
    for settled in section.settled:
        numbers += settled
    if not (section.resumes or shares or objects or left_out):
        return 0
    data = encode_asking(section.resumes, shares, objects, left_out)
    rows.append(data)
    return len(data)


def encode_asking(
    resumes: Sequence[Resume],
    shares: Mapping[int, Sequence[Share]],
    objects: Mapping[int, Sequence[RowsObject]],
    left_out: Mapping[int, LeftOut],
) -> bytes:
    """Resumes, and the shares and objects of records and what they leave out, by their place among them, as int64: each list with its
    length in front. The last one only where something is left out."""
    numbers = [len(resumes)]
    for stream, cohort, feed, start, producers, consumers in resumes:
        numbers += (stream, cohort, feed, start, len(producers), *producers, len(consumers), *consumers)
    numbers.append(len(shares))
    for record, of_record in shares.items():
        numbers += (record, len(of_record))
        for share in of_record:
            numbers += share
    numbers.append(len(objects))
    for record, those in objects.items():
        numbers += (record, len(those))
        for *fields, digest in those:
            numbers += (*fields, *struct.unpack("<2q", bytes.fromhex(digest)))
    if left_out:
        numbers.append(len(left_out))
    for record, (keep, dropped) in left_out.items():
        numbers += (record, len(keep), *keep, len(dropped), *dropped)
    return struct.pack(f"<{len(numbers)}q", *numbers)


def decode_asking(
    data: bytes | memoryview,
) -> tuple[list[Resume], dict[int, tuple[Share, ...]], dict[int, tuple[RowsObject, ...]], dict[int, LeftOut]]:
    """Inverse of `encode_asking`. Raises struct.error, StopIteration or IndexError for bytes that it did not make."""
    numbers = iter(struct.unpack(f"<{len(data) // 8}q", data))

    def some() -> tuple[int, ...]:
        return tuple([next(numbers) for _ in range(next(numbers))])

    resumes = []
    for _ in range(next(numbers)):
        stream, cohort, feed, start = next(numbers), next(numbers), next(numbers), next(numbers)
        resumes.append(Resume(stream, cohort, feed, start, some(), some()))
    shares = {}
    for _ in range(next(numbers)):
        record, count = next(numbers), next(numbers)
        shares[record] = tuple([Share(next(numbers), next(numbers), next(numbers), bool(next(numbers))) for _ in range(count)])
    objects = {}
    for _ in range(next(numbers)):
        record, count = next(numbers), next(numbers)
        objects[record] = tuple([_rows_object([next(numbers) for _ in range(7)]) for _ in range(count)])
    left_out = {}
    for _ in range(next(numbers, 0)):
        record = next(numbers)
        left_out[record] = checked(some(), some())
    if next(numbers, None) is not None:
        raise IndexError("there is more than was announced")
    return resumes, shares, objects, left_out


def _rows_object(numbers: Sequence[int]) -> RowsObject:
    generation, site, number, first, rows, *digest = numbers
    return RowsObject(generation, SiteId(site), number, first, rows, struct.pack("<2q", *digest).hex())


def append_rows(batch: pa.RecordBatch, rows: list[Piece]) -> int:
    """Append a batch, encoded and padded to eight bytes, and return its length without the padding."""
    data = batch.serialize()
    length = len(data)
    rows.append(data if length % 8 == 0 else data.to_pybytes() + bytes(-length % 8))
    return length


def decode_sections(body: bytes | memoryview, schemas: Schemas) -> list[tuple[int, Section]]:
    """Inverse of `encode_sections`. schemas[run]: of every dataflow that lives here.

    Sections of other dataflows are left out: a dataflow that has just been stopped here may still be spoken of by a peer.
    body: 8-byte aligned and never written again, because the rows refer to it. Raises UnreadableMessage, whatever is wrong with it.
    """
    try:
        return read_sections(body, schemas)
    except Exception as error:  # Arrow, struct and indices have many words for it.
        raise UnreadableMessage(f"a message between sites cannot be read: {type(error).__name__}: {error}") from error


def read_sections(body: bytes | memoryview, schemas: Schemas) -> list[tuple[int, Section]]:
    found: list[tuple[int, Section]] = []
    (count,) = COUNT.unpack_from(body)
    at = COUNT.size
    heads: list[tuple[tuple[int, ...], tuple[Any, ...]]] = []  # Integers, of the kinds that the messages say.
    any_rows = False
    for _ in range(count):
        head = HEAD.unpack_from(body, at)
        rest = after_head(*head[1:7])
        heads.append((head, rest.unpack_from(body, at + HEAD.size)))
        at += HEAD.size + rest.size
        any_rows = any_rows or head[1] > 0 or head[3] > 0
    data = pa.py_buffer(body) if any_rows else None
    at += -at % 8
    for head, numbers in heads:
        run, bundles, marks, records, held, settled, acks, asking = head
        known = schemas.get(run)
        section = Section([], [], [], [], [], [], None)  # Said one by one: the factories of defaults are calls, too.
        i = 0
        for _ in range(bundles):
            feed, stream, epoch, plan, length = numbers[i : i + 5]
            if known is not None:
                section.bundles.append(Bundle(feed, stream, epoch, plan, read_rows(data, at, length, known.streams[stream]), length))
            at += length + -length % 8
            i += 5
        for _ in range(marks):
            section.marks.append(new_tuple(Mark, numbers[i : i + 10]))
            i += 10
        for _ in range(records):
            length = numbers[i + 9]
            if known is not None:
                rows = read_rows(data, at, length, known.segments[numbers[i]]) if length else None
                flags = numbers[i + 8]
                segment, partition, epoch, term, origin, stamp, opened, taken = numbers[i : i + 8]
                once, over = bool(flags & 1), bool(flags & 2)
                section.records.append(Record(segment, partition, epoch, term, origin, stamp, opened, taken, once, over, rows))
            at += length + -length % 8
            i += 10
        for _ in range(held):
            segment, partition, term, epoch, asks = numbers[i : i + 5]
            section.held.append(Held(segment, partition, term, epoch, bool(asks)))
            i += 5
        for _ in range(settled):
            section.settled.append(Settled(*numbers[i : i + 4]))
            i += 4
        if acks:
            last = i + acks - 1
            section.ack = Ack(numbers[i:last], *numbers[last : last + 5])
        if asking:
            section.resumes, shares, objects, left_out = decode_asking(body[at : at + asking])
            if known is not None:
                for i in (*left_out, *objects, *shares):
                    if not 0 <= i < records:
                        raise IndexError(f"something is said of record {i} of {records}")
                for i, (keep, dropped) in left_out.items():
                    section.records[i] = section.records[i]._replace(keep=keep, dropped=dropped)
                for i, those in objects.items():
                    section.records[i] = section.records[i]._replace(objects=those)
                for i, of_record in shares.items():
                    section.records[i] = section.records[i]._replace(shares=of_record)
            at += asking
        if known is not None:
            found.append((run, section))
    return found


def read_rows(data: Any, at: int, length: int, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch in `length` bytes of the buffer from `at` on, without a copy."""
    if at + length > data.size:
        raise IndexError(f"rows at {at}..{at + length} of a body of {data.size} bytes")
    return pa.ipc.read_record_batch(data.slice(at, length), schema)


def encode_release(run: int, release: Release) -> list[Piece]:
    """The body of a RELEASE message. The schema has been told before."""
    portion, rows = release.portion, release.batch
    named = () if portion is None else (portion.stream, *portion.producers)
    head = RELEASE_HEAD.pack(run, release.segment, release.epoch, release.opened, rows.num_rows, release.last, len(named))
    return [head + struct.pack(f"<{len(named)}i{4 * (len(named) % 2)}x", *named), rows.serialize()]


def run_released(body: bytes | memoryview) -> int:
    """The run that a RELEASE message is of. Raises UnreadableMessage."""
    if len(body) < RELEASE_HEAD.size:
        raise UnreadableMessage(f"a result of {len(body)} bytes has no head")
    return int(RELEASE_HEAD.unpack_from(body)[0])


class Released(NamedTuple):
    """What a RELEASE message says. portion: see `Release`. rows: still encoded."""

    run: int
    segment: int
    epoch: int
    opened: int
    last: bool
    portion: Portion | None
    rows: pa.Buffer


def decode_release(body: bytes | memoryview) -> Released:
    """Raises struct.error if the body is too short for what it says of itself."""
    run, segment, epoch, opened, _, last, named = RELEASE_HEAD.unpack_from(body)
    stream, *producers = struct.unpack_from(f"<{named}i", body, RELEASE_HEAD.size) if named else (0,)
    rows = pa.py_buffer(body).slice(RELEASE_HEAD.size + 4 * (named + named % 2))
    return Released(run, segment, epoch, opened, bool(last), Portion(stream, tuple(producers)) if named else None, rows)
