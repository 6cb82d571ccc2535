"""Messages between sites survive the trip, whatever is in them, and nonsense is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenflow.errors import ProtocolError, UnreadableMessage
from evenflow.exchange.parts import in_parts
from evenflow.exchange.section import Ack, Bundle, Held, Mark, Record, Resume, RowsObject, Section, Settled, Share
from evenflow.world.spark.net.framing import HEADER, MAGIC, MESSAGE_BYTES_MAX, SECTIONS, VERSION, Seals, body_length
from evenflow.world.spark.net.wire import RunSchemas, bytes_of, decode_asking, decode_sections, encode_asking, encode_sections
from tests.spark.connections import KEYS

SCHEMAS = [
    pa.schema([("a", pa.int64()), ("_hash", pa.uint64())]),
    pa.schema([("s", pa.string()), ("b", pa.bool_()), ("_from", pa.int32())]),
    pa.schema([("l", pa.list_(pa.float64()))]),
]
KNOWN = RunSchemas(SCHEMAS, SCHEMAS)
"""Streams and ingress segments of the same number have the same columns here."""
INT64 = st.integers(-(2**63), 2**63 - 1)
EPOCH = st.integers(0, 2**62)
UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
STREAM = st.integers(0, len(SCHEMAS) - 1)
SMALL = st.integers(0, 9)
PARTITIONS = st.lists(st.integers(0, 4095), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn, stream: int) -> pa.RecordBatch:
    count = draw(st.integers(0, 20))
    columns = {
        0: lambda: [
            pa.array(draw(st.lists(INT64 | st.none(), min_size=count, max_size=count)), pa.int64()),
            pa.array(range(count), pa.uint64()),
        ],
        1: lambda: [
            pa.array(draw(st.lists(st.text(max_size=5) | st.none(), min_size=count, max_size=count)), pa.string()),
            pa.array([i % 3 == 0 for i in range(count)], pa.bool_()),
            pa.array(range(count), pa.int32()),
        ],
        2: lambda: [pa.array([[float(i)] * (i % 4) for i in range(count)], pa.list_(pa.float64()))],
    }[stream]()
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[stream])
    start = draw(st.integers(0, count))
    return batch.slice(start)


@st.composite
def records(draw: st.DrawFn) -> Record:
    segment = draw(STREAM)
    rows = draw(st.none() | batches(segment))
    shares = draw(st.lists(st.builds(Share, EPOCH, SMALL, EPOCH, st.booleans()), max_size=2).map(tuple))
    numbers = (draw(SMALL), draw(EPOCH), draw(SMALL), draw(SMALL), draw(INT64), draw(INT64), draw(EPOCH))
    digests = st.binary(min_size=16, max_size=16).map(bytes.hex)
    objects = draw(st.lists(st.builds(RowsObject, SMALL, SMALL, SMALL, EPOCH, SMALL, digests), max_size=2).map(tuple))
    keep = draw(st.lists(st.integers(0, 2**32), max_size=2).map(tuple))
    dropped = tuple(draw(EPOCH) for _ in keep)
    return Record(segment, *numbers, draw(st.booleans()), draw(st.booleans()), rows, shares, objects, keep, dropped)


@st.composite
def sections(draw: st.DrawFn) -> Section:
    streams = draw(st.lists(STREAM, max_size=4))
    return Section(
        bundles=[Bundle(draw(SMALL), s, draw(EPOCH), draw(SMALL), draw(batches(s))) for s in streams],
        marks=draw(st.lists(st.builds(Mark, SMALL, st.integers(0, 65_535), EPOCH, SMALL, *[INT64] * 6), max_size=4)),
        resumes=draw(st.lists(st.builds(Resume, STREAM, SMALL, SMALL, EPOCH, PARTITIONS, PARTITIONS), max_size=3)),
        records=draw(st.lists(records(), max_size=2)),
        held=draw(st.lists(st.builds(Held, SMALL, SMALL, SMALL, EPOCH, st.booleans()), max_size=2)),
        settled=draw(st.lists(st.builds(Settled, SMALL, SMALL, SMALL, EPOCH), max_size=2)),
        ack=draw(st.none() | st.builds(Ack, st.lists(EPOCH, max_size=4).map(tuple), EPOCH, EPOCH, EPOCH, EPOCH, EPOCH)),
    )


def sized(section: Section) -> Section:
    """The section as the other end sees it: a bundle's size is what its rows take on the wire, whatever the sender reckoned."""
    return replace(section, bundles=[b._replace(size=-(-len(b.rows.serialize()) // 8) * 8) for b in section.bundles])


def body_of(given_sections: list[tuple[int, Section]]) -> bytes:
    return b"".join(bytes(memoryview(piece)) for piece in encode_sections(given_sections))


@UNHURRIED
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), sections()), min_size=1, max_size=3))
def test_sections_survive(said: list[tuple[int, Section]]) -> None:
    heard = decode_sections(body_of(said), {run: KNOWN for run, _ in said})
    assert heard == [(run, sized(section)) for run, section in said]


@UNHURRIED
@given(sections(), sections())
def test_sections_of_a_stopped_dataflow_are_left_out(gone: Section, kept: Section) -> None:
    heard = decode_sections(body_of([(1, gone), (2, kept)]), {2: KNOWN})
    assert heard == [(2, sized(kept))]


@UNHURRIED
@given(sections(), st.integers(0, 40))
def test_a_cut_body_is_refused_or_read_as_nothing(section: Section, cut: int) -> None:
    body = body_of([(1, section)])
    with pytest.raises(ProtocolError):
        decode_sections(body[: min(cut, 15)], {1: KNOWN})


def test_rows_are_not_copied() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(1000)), pa.array(np.arange(1000), pa.uint64())], schema=SCHEMAS[0])
    body = body_of([(7, Section(bundles=[Bundle(3, 0, 1, 0, rows)]))])
    [(_, section)] = decode_sections(body, {7: KNOWN})
    buffer = section.bundles[0].rows.column(0).buffers()[1]
    whole = pa.py_buffer(body)
    assert whole.address <= buffer.address < whole.address + whole.size
    assert buffer.address % 8 == 0


@pytest.mark.parametrize(
    "header",
    [
        HEADER.pack(b"XX", VERSION, SECTIONS, 10, bytes(16)),
        HEADER.pack(MAGIC, VERSION + 1, SECTIONS, 10, bytes(16)),
        HEADER.pack(MAGIC, VERSION, 99, 10, bytes(16)),
        HEADER.pack(MAGIC, VERSION, SECTIONS, MESSAGE_BYTES_MAX + 1, bytes(16)),
    ],
)
def test_headers_that_are_not_ours_are_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        body_length(header)


@UNHURRIED
@given(sections(), st.integers(1, 2000))
def test_a_section_in_parts_says_the_same_and_no_part_is_large(section: Section, most_bytes: int) -> None:
    section = sized(section)
    parts = list(in_parts(section, most_bytes))
    assert [b for part in parts for b in part.bundles] == section.bundles
    assert [r for part in parts for r in part.records] == section.records
    assert all(bytes_of([(0, part)]) <= most_bytes or runs_of_rows(part) == 1 for part in parts)
    assert replace(parts[-1], bundles=section.bundles, records=section.records) == section
    assert all(part == Section(part.bundles, records=part.records, settled=part.settled) for part in parts[:-1])
    said: set[tuple[int, int]] = set()
    for part in parts:
        first = {(record.segment, record.partition) for record in part.records} - said
        expected = [word for word in section.settled if (word.segment, word.partition) in first]
        assert part is parts[-1] or sorted(part.settled) == sorted(expected), "with the first record of its partition"
        said |= first


def runs_of_rows(section: Section) -> int:
    return len([b for b in section.bundles if b.size]) + len([r for r in section.records if r.rows is not None and r.rows.nbytes])


def test_a_message_has_its_length_in_front() -> None:
    pieces = Seals(*KEYS).seal(SECTIONS, [b"abc", memoryview(b"defg")])
    assert body_length(pieces[0])[:2] == (SECTIONS, 7)


@pytest.mark.parametrize(("keep", "dropped"), [((-1,), (5,)), ((2**33,), (5,)), ((1, 1), (5,)), ((1,), (-5,)), ((1,) * 9, (1,) * 9)])
def test_what_nobody_can_have_left_out_is_refused(keep: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    record = Record(0, 0, 1, 1, 0, 5, 5, 10, False, False, None, keep=keep, dropped=dropped)
    with pytest.raises(UnreadableMessage, match="rows left out"):
        decode_sections(body_of([(1, Section(records=[record]))]), {1: KNOWN})


def test_who_leaves_nothing_out_says_nothing_of_it() -> None:
    resume = Resume(1, 2, 3, 4, (), ())
    assert len(encode_asking([resume], {}, {}, {})) == 8 * (1 + 6 + 2)
    assert decode_asking(encode_asking([resume], {}, {}, {})) == ([resume], {}, {}, {})


def test_what_is_said_of_a_record_that_is_not_there_is_refused() -> None:
    record = Record(0, 0, 1, 1, 0, 5, 5, 10, False, False, None, keep=(7,), dropped=(5,))
    body = body_of([(1, Section(records=[record]))])
    at = body.rindex(struct.pack("<5q", 0, 1, 7, 1, 5))
    with pytest.raises(UnreadableMessage, match="record -1"):
        decode_sections(body[:at] + struct.pack("<q", -1) + body[at + 8 :], {1: KNOWN})
