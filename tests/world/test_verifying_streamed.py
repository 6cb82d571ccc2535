"""`evenflow checkpoints verify` reads what Spark has written of streaming DataFrames, as far as a restart from a checkpoint would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from evenflow.availability.entries import Completed, Piece
from evenflow.sources.spooled import Spool
from evenflow.store.directory import DirectoryStore
from evenflow.world.locations.kept import Kept
from evenflow.world.locations.verifying import Verified, verified

SCHEMA = pa.schema([("k", pa.int64())])
PROGRAM = {
    "segments": [{"name": "in segment", "source": "orders", "steps": []}],
    "sources": {"orders": {"kind": "spooled", "folder": "orders-1"}},
}
BATCHES = 4


def spool_at(place: Path) -> Spool:
    """Batches of two objects with three rows each; the last one says that there are no more."""
    spool = Spool(DirectoryStore(str(place)), "orders-1")
    for number in range(BATCHES):
        pieces = [
            piece
            for task in range(2)
            for piece in spool.put(number, f"{task:06d}-00", [pa.record_batch([[number, task, 0]], schema=SCHEMA)])
        ]
        spool.name(number, pieces)
    spool.name(BATCHES, (), ended=True)
    return spool


def looked_at(place: Path, position: int) -> Verified:
    """From a checkpoint that has so many rows behind it."""
    logs = {"logs": {"0": [position, 0, 0, 0]}} if position else {}
    made = Completed(3, 9, (Piece(0, 0, (0,), logs, ()),), generation=1)
    return verified(DirectoryStore(str(place)), Kept(completed={made.place: made}), [made], PROGRAM)


def rows_of(spool: Spool, number: int, piece: int) -> str:
    batch = spool.batch(number)
    assert batch is not None
    return f"streamed/orders-1/rows/{batch.pieces[piece].name}"


@pytest.mark.parametrize("position", range(6 * BATCHES + 1))
def test_all_that_a_restart_reads_is_read(tmp_path: Path, position: int) -> None:
    spool_at(tmp_path)
    found = looked_at(tmp_path, position)
    assert found.whole and found.objects == 2 * BATCHES - position // 3


def altered(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "altered": altered,
    "torn": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "missing": lambda file: file.unlink(),
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("piece", [0, 1])
def test_an_object_with_rows_is_named(tmp_path: Path, how: str, piece: int) -> None:
    name = rows_of(spool_at(tmp_path), 2, piece)
    DAMAGE[how](tmp_path / name)
    found = looked_at(tmp_path, 13)
    [fault] = found.faults
    assert not found.whole and fault.object == name and fault.box == "orders" and fault.checkpoint == "1.3"
    assert fault.fault in ("missing", "altered") and f"{name}, with rows behind it of streaming DataFrame 'orders'" in fault.text
    assert looked_at(tmp_path, 18).whole, "nobody needs it behind its batch"
    assert looked_at(tmp_path, 15).whole is (piece == 0), "behind its first object only the second is read"


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("number", range(BATCHES))
def test_a_batch_is_named(tmp_path: Path, how: str, number: int) -> None:
    spool_at(tmp_path)
    name = f"streamed/orders-1/batches/{number:010d}.json"
    if how == "altered":
        said = json.loads((tmp_path / name).read_bytes())
        (tmp_path / name).write_text(json.dumps({**said, "pieces": [*said["pieces"][:1], 7]}))
    else:
        DAMAGE[how](tmp_path / name)
    for position in range(6 * number, 6 * number + 6):
        found = looked_at(tmp_path, position)
        assert name in {fault.object for fault in found.faults}, position


def test_rows_that_are_in_no_batch_are_missing(tmp_path: Path) -> None:
    """A batch lacks an object that it had, so those behind it begin elsewhere."""
    spool_at(tmp_path)
    file = tmp_path / "streamed/orders-1/batches/0000000001.json"
    said = json.loads(file.read_bytes())
    file.write_text(json.dumps({**said, "pieces": said["pieces"][:1]}))
    assert {fault.object for fault in looked_at(tmp_path, 0).faults} == {"streamed/orders-1/batches/0000000002.json"}


def test_what_is_gone_as_a_whole_is_missing(tmp_path: Path) -> None:
    """Nothing has been written is no fault of a run that has read nothing."""
    assert looked_at(tmp_path, 0).whole
    assert [fault.fault for fault in looked_at(tmp_path, 1).faults] == ["missing"]


def test_without_a_program_only_the_rest_is_looked_at(tmp_path: Path) -> None:
    spool_at(tmp_path)
    made = Completed(3, 9, (), generation=1)
    assert verified(DirectoryStore(str(tmp_path)), Kept(completed={made.place: made}), [made], cast(Any, None)).objects == 0
