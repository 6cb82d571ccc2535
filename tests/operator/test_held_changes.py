"""Rows that are in no table (joins, order, top) and a checkpoint: what it writes is what has changed, and not what is held."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.operator.join_cases import OneInput
from tests.operator.law_cases import Whole
from tests.operator.test_checkpoint_deltas import Shelf, changes_of, live
from tests.operator.test_laws import OPERATORS as LAWS

from evenflow.availability.entries import StoredObject
from evenflow.errors import CheckpointCorrupt
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.operator.operator import Operator
from evenflow.operator.order import Order
from evenflow.operator.top import Top
from evenflow.plan.layout import KEY_GROUPS
from evenflow.query.aggregates import TimeWindow
from evenflow.query.join import Join
from evenflow.site.capturing import write
from evenflow.site.chains import Link, due, extended
from evenflow.site.events import StoreState, Written
from evenflow.state.folding import states_of
from evenflow.state.objects import METADATA, Origin, to_file
from evenflow.state.storing import Kind, StateToStore
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.ids import SiteId
from evenflow.stream.rows import Rows

SECOND_US = 1_000_000
PARTITIONS = 4
SCHEMA = pa.schema([("k", pa.int64()), ("small", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("ts", pa.timestamp("us"))])
TIMES = 40
"""How many times the rows that change the state has."""
MOST = 1.3
"""Bytes of a checkpoint, for each byte of the rows that have changed."""


def join(how: str) -> Operator:
    made = Join(how, ("k",), ("r_k",), low_us=-3600 * SECOND_US, high_us=3600 * SECOND_US)  # type: ignore[arg-type]
    return OneInput(made, SCHEMA)


def order() -> Operator:
    return Order("ts", ("v",), SCHEMA)


def top() -> Operator:
    return Top(SCHEMA, ("k",), TimeWindow("ts", 3600 * SECOND_US, 3600 * SECOND_US), 3, [("v", True)])


OPERATORS: dict[str, Callable[[], Operator]] = {
    "inner join": lambda: join("inner"), "full join": lambda: join("full"), "order": order, "top": top,
}  # fmt: skip


@dataclass
class Stream:
    """Rows whose event time goes on: by default so that those of ten minutes are held."""

    seed: int = 1
    epoch: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def rows(self, count: int, *, keys: int = 50_000) -> tuple[Rows, Tick]:
        self.epoch += 1
        now = self.epoch * SECOND_US
        columns = [
            pa.array(self.random.integers(0, keys, count)),
            pa.array(self.random.integers(0, 100, count)),
            pa.array(self.random.random(count)),
            pa.array([f"text {n}" for n in self.random.integers(0, 10**9, count)]),
            pa.array(now + np.sort(self.random.integers(0, SECOND_US, count))).cast(pa.timestamp("us")),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        hashes = hash_columns(batch, ["k"])
        owners = partition_of(hashes, table_of_ranges(PARTITIONS, KEY_GROUPS))
        return Rows(batch, owners, hashes), Tick(self.epoch, now, NO_WATERMARK, now - 600 * SECOND_US)


def checkpoint(operator: Operator, shelf: Shelf, number: int, epoch: int, bases: Sequence[int] = ()) -> list[int]:
    """One that becomes whole: the bytes of its objects."""
    had = set(shelf.objects)
    shelf.chain = shelf.write(epoch, changes_of(operator).capture_changes(number, epoch, range(PARTITIONS), bases))
    changes_of(operator).lineages.complete(number)
    return [len(data) for name, data in shelf.objects.items() if name not in had]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_checkpoint_has_the_bytes_of_what_has_changed(name: str) -> None:
    """Goal: at most 1.3 times them, where the state has 40 times as many rows. Method: count what Arrow says of both."""
    operator, shelf, stream, some = OPERATORS[name](), Shelf(), Stream(), 1000
    for _ in range(TIMES):
        rows, tick = stream.rows(some)
        operator.process(rows, tick)
    [base] = checkpoint(operator, shelf, 1, tick.epoch)
    ratios = []
    for number in range(2, 5):
        rows, tick = stream.rows(some)
        operator.process(rows, tick)
        [written] = checkpoint(operator, shelf, number, tick.epoch)
        ratios.append(written / rows.batch.nbytes)
    print(name, ratios, base / rows.batch.nbytes)
    assert max(ratios) <= MOST
    assert base > 10 * written
    assert shelf.fold(shelf.chain, tick.epoch) == live(operator)


@pytest.mark.parametrize("name", OPERATORS)
def test_whoever_is_restored_goes_on_with_changes(name: str) -> None:
    operator, shelf, stream = OPERATORS[name](), Shelf(), Stream(2)
    for number in range(1, 9):
        rows, tick = stream.rows(500, keys=200)
        operator.process(rows, tick)
        written = checkpoint(operator, shelf, number, tick.epoch)
        if number in (3, 6):
            states = shelf.fold(shelf.chain, tick.epoch)
            operator = OPERATORS[name]()
            for partition, state in states.items():
                operator.install(partition, bytes(state))
            assert changes_of(operator).restored(tick.epoch, range(PARTITIONS)) == states.keys()
            assert live(operator) == states
    assert all(bytes_ < len(shelf.objects[shelf.chain[0][0]]) * 4 for bytes_ in written)
    assert len(shelf.chain) == 8 and shelf.fold(shelf.chain, tick.epoch) == live(operator)


def test_a_partition_that_went_and_came_has_a_base() -> None:
    operator, shelf, stream = order(), Shelf(), Stream(3)
    rows, tick = stream.rows(100)
    operator.process(rows, tick)
    checkpoint(operator, shelf, 1, tick.epoch)
    state = live(operator)[1]
    operator.drop(1)
    operator.install(1, state)
    [part] = [p for p in changes_of(operator).capture_changes(2, tick.epoch + 1, range(PARTITIONS), ()) if 1 in p.since]
    assert part.since[1].epoch == -1


def test_a_complete_result_of_format_2_is_taken_over() -> None:
    """Goal: its changes wait as they did. Method: its rows, and before them the interval, as that format had them."""
    case = next(case for case in LAWS if case.name == "complete")
    operator, stripped, found = Whole(), Whole(), 0
    for rows, tick in case.epochs(3):
        operator.process(rows, Tick(tick.epoch, 5000, NO_WATERMARK, NO_WATERMARK))
        for partition, state in live(operator).items():
            stripped.install(partition, state)
            stripped._wait_no_more([partition], tick.epoch)
            taken = Whole()
            taken.install(partition, (2).to_bytes(8, "little", signed=True) + live(stripped)[partition])
            assert live(taken) == {partition: state}
            taken.drop(partition)
            taken.install(partition, (-1).to_bytes(8, "little", signed=True) + live(stripped)[partition])
            assert live(taken) == live(stripped)
            stripped.drop(partition)
            found += 1
    assert found


@pytest.mark.parametrize("field", ["rows", "counts", "sides", "since"])
def test_what_does_not_fit_is_corrupt_and_never_a_little_wrong(field: str) -> None:
    """Goal: no state is made of an object that says something else than it has. Method: it is written anew, with its digest."""
    operator, stream = join("left"), Stream(4)
    objects: dict[str, bytes] = {}
    chain = []
    for number in (1, 2):
        rows, tick = stream.rows(100, keys=20)
        operator.process(rows, tick)
        parts = changes_of(operator).capture_changes(number, tick.epoch, range(PARTITIONS), ())
        for _, made in StateToStore(0, tick.epoch, [Kind("box", ())], (), {0: parts}).objects():
            objects[str(number)] = made.data
            chain.append((str(number), made.digest))
        changes_of(operator).lineages.complete(number)
    objects["2"], digest = spoilt(objects["2"], field)
    with pytest.raises(CheckpointCorrupt, match="'2' with the state of box 'box', partitions"):
        states_of([chain[0], ("2", digest)], Origin(0, 0, "box", tick.epoch), range(PARTITIONS), objects.__getitem__)


def spoilt(data: bytes, field: str) -> tuple[bytes, str]:
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    said = json.loads(table.schema.metadata[METADATA])
    match field:
        case "rows":
            said["rows"] = [n + 1 for n in said["rows"]]
        case "counts":
            said["counts"] = [[a + 1, b] for a, b in said["counts"]]
        case "sides":
            said["sides"], said["counts"] = 1, [[a + b] for a, b in said["counts"]]
        case "since":
            said["since"] = [0 for _ in said["since"]]
    made = to_file(table, said)
    return made.data, made.digest


def test_state_that_turns_over_between_checkpoints_is_not_named_by_many_objects() -> None:
    """Goal: a restore reads at most twice what is held. Method: the rows of each checkpoint are new, as in short joins and order."""
    operator, chain, stream = order(), list[Link](), Stream(5)
    for number in range(1, 31):
        rows, tick = stream.rows(400)
        operator.process(rows, Tick(tick.epoch, tick.before, NO_WATERMARK, stream.epoch * SECOND_US))
        changes = changes_of(operator)
        held = {partition: changes.count_of(partition) for partition in range(PARTITIONS)}
        parts = changes.capture_changes(number, tick.epoch, range(PARTITIONS), due(chain, held, range(PARTITIONS)) if chain else ())
        new = [
            Link(StoredObject(f"{number}-{at}", 0, made.rows, len(made.data), made.digest), tick.epoch, made.of, made.since)
            for at, (_, made) in enumerate(StateToStore(0, tick.epoch, [Kind("box", ())], (), {0: parts}).objects())
        ]
        changes.lineages.complete(number)
        chain = extended(chain, new)
    written = sum(link.stored.bytes for link in new)
    assert sum(held.values()) > 300
    assert sum(link.stored.bytes for link in chain) <= 2 * written


def test_the_bytes_of_all_partitions_do_not_cost_all_rows_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what is put together of the runs is put together once. Method: count the numbers that numpy does so with."""
    operator, stream, many, handled = order(), Stream(6), 64, 0
    for _ in range(3):
        rows, tick = stream.rows(1000)
        owners = (np.arange(1000) % many).astype(np.int32)
        operator.process(Rows(rows.batch, owners, rows.hash), tick)
    concatenate = np.concatenate

    def counted(arrays: Sequence[np.ndarray], *args: int, **options: int) -> np.ndarray:
        nonlocal handled
        found = concatenate(arrays, *args, **options)
        handled += found.size
        return found

    monkeypatch.setattr(np, "concatenate", counted)
    captured = [operator.capture(partition) for partition in range(many)]
    assert all(len(snapshot.to_bytes()) for snapshot in captured if snapshot is not None) and None not in captured
    assert 0 < handled <= 6 * 3000


@pytest.mark.parametrize("name", OPERATORS)
def test_a_copy_leaves_no_imprints_where_nothing_is_checkpointed(name: str) -> None:
    """Goal: memory follows the rows held. Method: a partition comes, and the end of the stream releases all of it."""
    operator, other, stream = OPERATORS[name](), OPERATORS[name](), Stream(7)
    rows, tick = stream.rows(500)
    operator.process(rows, tick)
    for partition, state in live(operator).items():
        other.install(partition, state)
    none = Rows.empty(SCHEMA, keyed=True)
    other.process(none, Tick(tick.epoch + 1, tick.before, NO_WATERMARK, END_OF_STREAM))
    assert other.state_bytes() == 0


def test_imprints_are_counted_as_state() -> None:
    operator, shelf, stream = order(), Shelf(), Stream(8)
    rows, tick = stream.rows(500)
    operator.process(rows, tick)
    before = operator.state_bytes()
    checkpoint(operator, shelf, 1, tick.epoch)
    assert operator.state_bytes() == before + 8 * 500


def test_who_no_longer_writes_checkpoints_keeps_no_imprints() -> None:
    """Method: another site has written the checkpoint that became whole; the rows are here still."""
    operator, shelf, stream = order(), Shelf(), Stream(9)
    for number in (1, 2):
        rows, tick = stream.rows(200)
        operator.process(rows, tick)
        checkpoint(operator, shelf, number, tick.epoch)
    changes_of(operator).lineages.complete(3)
    before = operator.state_bytes()
    operator.process(Rows.empty(SCHEMA, keyed=True), Tick(tick.epoch + 1, 0, NO_WATERMARK, NO_WATERMARK))
    assert operator.state_bytes() == before - 8 * (200 + 400)
    checkpoint(operator, shelf, 4, tick.epoch + 1)
    assert shelf.fold(shelf.chain, tick.epoch + 1) == live(operator)


@pytest.mark.parametrize("name", OPERATORS)
def test_who_reads_the_rows_says_how_many_there_are(name: str) -> None:
    """Goal: the truth, also of `top`, which knows until then only how many may be among the first."""
    operator, stream = OPERATORS[name](), Stream(5)
    for number in (1, 2):
        for _ in range(3):
            rows, tick = stream.rows(400, keys=20)
            operator.process(rows, tick)
        changes = changes_of(operator)
        most = sum(map(changes.count_of, range(PARTITIONS)))
        parts = changes.capture_changes(number, tick.epoch, range(PARTITIONS), ())
        state = StateToStore(0, tick.epoch, [Kind("box")], (), {0: parts})
        order = StoreState(number, f"checkpoints/{number}", state)
        written = write(order, SiteId(0), lambda name, data: None)
        changes.lineages.complete(number)
        shown = sum(operator.show(p).num_rows for p in range(PARTITIONS))  # type: ignore[attr-defined]
        assert isinstance(written, Written) and written.rows == {0: shown}
        assert most > 2 * shown if name == "top" else most == shown
