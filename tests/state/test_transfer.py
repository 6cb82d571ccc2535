"""State under way: what arrives is what was sent, or it is refused."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.aggregate_cases import ALL_CALLS, SCHEMA, call, make_batch, make_rows, tick
from tests.operator.law_cases import Previous

from evenflow.errors import TransferCorrupt
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.row_window import RowWindowAggregate
from evenflow.operator.user.process import Process
from evenflow.query.aggregates import RowWindow
from evenflow.state.transfer import CHUNK, FRONT, Assembly, Capture, chunks, open_capture


@dataclass
class Kept:
    state: bytes

    def to_bytes(self) -> bytes:
        return self.state


FACTS = {"epoch": 17, "watermark": -(2**63), "rows": [[0, 12], [3, 2**62]], "name": "é"}
STATES = st.dictionaries(
    st.tuples(st.integers(0, 4095), st.integers(-1, 12)), st.binary(max_size=300), max_size=6
)  # fmt: skip


def capture_of(states: dict[tuple[int, int], bytes]) -> Capture:
    return Capture(FACTS, [(p, s, Kept(state)) for (p, s), state in states.items()])


SAMPLE = capture_of({(0, 0): b"x" * 70, (1, 0): b"", (1, 2): bytes(range(256))}).to_bytes()


@given(STATES)
def test_what_is_opened_is_what_was_captured(states: dict[tuple[int, int], bytes]) -> None:
    assert open_capture(capture_of(states).to_bytes()) == (FACTS, states)


def test_every_flipped_bit_is_noticed() -> None:
    damaged = bytearray(SAMPLE)
    for bit in range(8 * len(SAMPLE)):
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TransferCorrupt):
            open_capture(damaged)
        damaged[bit // 8] ^= 1 << bit % 8
    assert open_capture(damaged)[0] == FACTS


def test_every_cut_is_noticed() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(TransferCorrupt):
            open_capture(SAMPLE[:length])
    with pytest.raises(TransferCorrupt):
        open_capture(SAMPLE + b"\0")


@given(STATES, st.data())
def test_overwritten_bytes_are_noticed(states: dict[tuple[int, int], bytes], data: st.DataObject) -> None:
    whole = capture_of(states).to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.binary(min_size=1, max_size=40))[: len(whole) - at]
    damaged = whole[:at] + other + whole[at + len(other) :]
    if damaged != whole:
        with pytest.raises(TransferCorrupt):
            open_capture(damaged)


def test_another_version_is_refused_whatever_else_it_says() -> None:
    front = bytearray(SAMPLE[: FRONT.size])
    struct.pack_into("<I", front, 4, 2)
    struct.pack_into("<I", front, FRONT.size - 4, zlib.crc32(front[:-4]))
    with pytest.raises(TransferCorrupt, match="version 2"):
        open_capture(bytes(front) + SAMPLE[FRONT.size :])


def test_garbage_is_refused() -> None:
    for garbage in (b"", b"EFT1", b"GET / HTTP/1.1\r\n\r\n", bytes(4000)):
        with pytest.raises(TransferCorrupt):
            open_capture(garbage)


# ---------------------------------------------------------------- chunks


def joined(pieces: list[bytes | memoryview]) -> bytes:
    return b"".join(pieces)


@given(st.binary(min_size=1, max_size=500), st.integers(1, 600))
def test_chunks_give_the_whole(data: bytes, size: int) -> None:
    assembly = Assembly(len(data))
    for chunk in chunks(data, size):
        assert not assembly.complete
        assembly.add(joined(chunk))
    assert assembly.complete
    assert assembly.take() == data


def received(sent: list[bytes], length: int) -> bytes:
    assembly = Assembly(length)
    for chunk in sent:
        assembly.add(chunk)
    return assembly.take()


@settings(deadline=None)
@given(st.binary(min_size=40, max_size=400), st.integers(1, 20), st.data())
def test_chunks_missing_twice_out_of_order_or_altered_are_noticed(data: bytes, size: int, draw: st.DataObject) -> None:
    sent = [joined(chunk) for chunk in chunks(data, size)]
    which = draw.draw(st.integers(0, len(sent) - 2))
    harm = draw.draw(st.sampled_from(["lost", "twice", "swapped", "altered", "cut"]))
    match harm:
        case "lost":
            sent.pop(which)
        case "twice":
            sent.insert(which, sent[which])
        case "swapped":
            sent[which], sent[which + 1] = sent[which + 1], sent[which]
        case "altered":
            bit = draw.draw(st.integers(0, 8 * len(sent[which]) - 1))
            altered = bytearray(sent[which])
            altered[bit // 8] ^= 1 << bit % 8
            sent[which] = bytes(altered)
        case "cut":
            sent[which] = sent[which][: draw.draw(st.integers(0, len(sent[which]) - 1))]
    with pytest.raises(TransferCorrupt):
        received(sent, len(data))


def test_nothing_is_taken_beyond_what_was_announced() -> None:
    assembly = Assembly(10)
    with pytest.raises(TransferCorrupt, match="after 0 of 10"):
        assembly.add(CHUNK.pack(0, zlib.crc32(b"x" * 11), 0) + b"x" * 11)
    with pytest.raises(TransferCorrupt, match="0 of 10"):
        assembly.take()


# ---------------------------------------------------------------- with operators


def operators() -> list[Aggregate | RowWindowAggregate | Process]:
    return [
        Aggregate(SCHEMA, ("k",), ALL_CALLS),
        RowWindowAggregate(SCHEMA, ("k",), [call("sum", "i"), call("last", "s")], window=RowWindow(4, 2)),
        Process(("k", "b"), Previous(), SCHEMA),
    ]


def test_partitions_of_several_operators_travel_together() -> None:
    rng = np.random.default_rng(3)
    here, there = operators(), operators()
    for epoch in range(1, 5):
        for operator in here:
            operator.process(make_rows(make_batch(rng, 300, 50), ("k",)), tick(epoch))
    taken = [(p, s, o.capture(p)) for p in range(8) for s, o in enumerate(here)]
    states = [(p, s, snapshot) for p, s, snapshot in taken if snapshot is not None]
    assert len(states) > 16
    capture = Capture({"epoch": 4}, states)
    before = {(p, s): snapshot.to_bytes() for p, s, snapshot in states}
    facts, opened = open_capture(capture.to_bytes())
    assert facts == {"epoch": 4}
    assert opened == before
    for (partition, step), state in opened.items():
        there[step].install(partition, state)
        again = there[step].capture(partition)
        assert again is not None
        assert again.to_bytes() == state


def test_snapshots_are_let_go_while_others_are_read() -> None:
    operator = Aggregate(SCHEMA, ("k",), ALL_CALLS)
    operator.process(make_rows(make_batch(np.random.default_rng(1), 300, 50), ("k",)), tick(1))
    snapshots = [(p, 0, operator.capture(p)) for p in range(8)]
    capture = Capture({}, [(p, s, snapshot) for p, s, snapshot in snapshots if snapshot is not None])
    del snapshots
    assert len(operator._table._open) > 4
    capture.to_bytes()
    operator._table.capture(0)
    assert len(operator._table._open) == 1
