"""State as an object of a checkpoint, and back (K4): for every operator the very same bytes, and nothing that was altered is believed."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.drawn import one_in
from tests.operator.test_laws import OPERATORS, PARTITIONS, Case

from evenflow.errors import CheckpointCorrupt
from evenflow.operator.facts import Facts
from evenflow.operator.operator import Operator
from evenflow.state.folding import states_of as folded
from evenflow.state.objects import FORMAT, ROW_GROUP_STATES, Origin, to_file, to_object
from evenflow.stream.digest import digest_of

pytestmark = pytest.mark.one_in(2)

ORIGIN = Origin(2, 1, "totals", 7)


def states_of(operator: Operator) -> list[tuple[int, bytes]]:
    captured = [(partition, operator.capture(partition)) for partition in range(PARTITIONS)]
    return [(partition, snapshot.to_bytes()) for partition, snapshot in captured if snapshot is not None]


def some_states(case: Case) -> Iterator[tuple[list[tuple[int, bytes]], Operator]]:
    """The states after each of a few epochs, and the operator."""
    for seed in (78, 79):
        operator = case.factory()
        for rows, tick in case.epochs(seed)[:-1]:
            operator.process(rows, tick)
            if tick.epoch % 2 and (states := states_of(operator)):
                yield states, operator


def types_of(operator: Operator) -> tuple[pa.DataType, ...] | None:
    tabled = Facts.of([operator]).shares[0]
    return None if tabled is None else tuple(tabled.object_types)


def read(data: bytes, digest: str, wanted: Collection[int] = range(1000), name: str = "o") -> dict[int, bytes]:
    return folded([(name, digest)], ORIGIN, wanted, lambda _: data)


@pytest.mark.parametrize("case", one_in(4, OPERATORS), ids=lambda case: case.name)
def test_state_comes_back_bit_by_bit(case: Case) -> None:
    for states, operator in some_states(case):
        written = to_object(ORIGIN, states, types_of(operator))
        assert read(written.data, written.digest) == dict(states)
        assert to_object(ORIGIN, states, types_of(operator)) == written
        some = {partition for partition, _ in states[::2]}
        found = read(written.data, written.digest, some)
        assert found == {partition: state for partition, state in states if partition in some}


def test_the_state_of_a_table_is_columns_sorted_by_key_group() -> None:
    case = next(case for case in OPERATORS if case.name == "running, string key")
    *_, (states, operator) = some_states(case)
    table = pq.read_table(io.BytesIO(to_object(ORIGIN, states, types_of(operator)).data))
    assert table.column_names[:5] == ["key_group", "partition", "hash", "check", "window"]
    groups = table.column("key_group").to_numpy()
    assert (np.diff(groups) >= 0).all()
    assert groups.max() < 4096
    assert table.num_rows > 6
    assert sorted(set(table.column("partition").to_pylist())) == [partition for partition, _ in states]


def test_partitions_are_found_among_many_row_groups() -> None:
    states = [(partition, bytes([partition]) * (partition + 1)) for partition in range(5 * ROW_GROUP_STATES + 3)]
    written = to_object(ORIGIN, states, None)
    for wanted in ({0}, {15, 16}, {82}, {3, 40, 41, 80}, set()):
        assert read(written.data, written.digest, wanted) == {p: s for p, s in states if p in wanted}


@pytest.mark.parametrize("name", ["running", "inner join"])
def test_what_was_altered_is_not_believed(name: str) -> None:
    case = next(case for case in OPERATORS if case.name == name)
    states, operator = next(some_states(case))
    written = to_object(ORIGIN, states, types_of(operator))
    spoilt = bytearray(written.data)
    spoilt[len(spoilt) // 2] ^= 1
    for data in (bytes(spoilt), written.data[:-1], written.data[: len(written.data) // 2], b"", b"PAR1" * 9):
        with pytest.raises(CheckpointCorrupt, match=r"object 'checkpoints/1/2/o' with the state of box 'totals', partitions 0, 3"):
            read(data, written.digest, {3, 0}, "checkpoints/1/2/o")


def test_a_foreign_file_is_not_believed_even_if_its_digest_is_right() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"partition": [1], "state": [b"x"]}), out)
    other = to_object(Origin(2, 2, "other", 7), [(0, b"abc")], None)
    for data in (out.getvalue(), b"", b"no parquet at all", other.data, to_object(Origin(2, 1, "totals", 6), [(0, b"x")], None).data):
        with pytest.raises(CheckpointCorrupt, match="cannot be restored"):
            read(data, digest_of(data))


def test_an_object_of_a_newer_format_is_named_with_its_format() -> None:
    made = to_file(pa.table({"partition": [1], "state": [b"x"]}), {"format": FORMAT + 1, "form": "state"})
    with pytest.raises(CheckpointCorrupt, match=f"box 'totals'.*it is of format {FORMAT + 1}, and this version reads formats"):
        read(made.data, made.digest)
