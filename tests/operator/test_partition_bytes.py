"""What a partition's state takes is known at any time, for every operator: it is what the load and memory policies decide by."""

from __future__ import annotations

import numpy as np
import pytest
from tests.operator.test_laws import OPERATORS, PARTITIONS, Case

from evenflow.operator.operator import Operator
from evenflow.operator.parquet import ParquetCommit

pytestmark = pytest.mark.one_in(3)

ALL = np.arange(PARTITIONS + 3)  # Some that the operator has never heard of.


def fed(case: Case) -> Operator:
    """The operator half way through its input, where windows are open."""
    operator = case.factory()
    for rows, tick in case.epochs(5)[:3]:
        operator.process(rows, tick)
    return operator


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_a_partition_has_bytes_exactly_if_it_has_state(case: Case) -> None:
    operator = fed(case)
    held = operator.partition_bytes(ALL)
    assert held.dtype == np.int64
    assert [count > 0 for count in held.tolist()] == [operator.capture(p) is not None for p in range(PARTITIONS)] + [False] * 3


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_a_partition_takes_its_bytes_along(case: Case) -> None:
    operator = fed(case)
    snapshots = {p: snapshot for p in range(PARTITIONS) if (snapshot := operator.capture(p)) is not None}
    if not snapshots:
        pytest.skip("it has no state")
    moved, snapshot = next(iter(snapshots.items()))
    before = operator.partition_bytes(ALL)
    other = case.factory()
    other.install(moved, snapshot.to_bytes())
    operator.drop(moved)
    after = operator.partition_bytes(ALL)
    assert after[moved] == 0
    assert np.array_equal(np.delete(after, moved), np.delete(before, moved))
    assert np.flatnonzero(other.partition_bytes(ALL)).tolist() == [moved]
    # Buffered rows are counted by their average length, which another mixture of partitions changes.
    assert 0.3 < other.partition_bytes(ALL)[moved] / before[moved] < 3


def test_no_partitions_have_no_bytes() -> None:
    for case in OPERATORS:
        assert fed(case).partition_bytes(np.empty(0, np.int64)).size == 0


def test_the_commit_step_has_state_in_its_first_partition_once_it_has_committed(tmp_path: object) -> None:
    commit = ParquetCommit(path=f"file://{tmp_path}", run="r")
    assert commit.partition_bytes(np.arange(2)).tolist() == [0, 0]
    commit.install(0, (7).to_bytes(8, "little") + (3).to_bytes(8, "little"))
    assert commit.partition_bytes(np.arange(2)).tolist() == [16, 0]
