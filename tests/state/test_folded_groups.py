"""Partitions whose rows are in several row groups, of objects with changes in between: what is read of them is the state, bit by bit."""

from __future__ import annotations

import numpy as np

from evenflow.state.folding import states_of
from evenflow.state.objects import ROW_GROUP_ROWS, Origin
from evenflow.state.pages import PagedTable
from evenflow.state.storing import Kind, StateToStore

ROWS, PARTITIONS, WORDS = 5 * ROW_GROUP_ROWS // 2, 2, 9


def test_rows_of_many_row_groups_and_changes_are_put_together() -> None:
    random = np.random.default_rng(3)
    hashes = np.unique(random.integers(0, 2**64, ROWS, dtype=np.uint64))
    owners = (hashes >> np.uint64(63)).astype(np.int32)
    table = PagedTable(np.zeros(WORDS, np.int64))
    objects: dict[str, bytes] = {}
    named: list[tuple[str, str]] = []
    rows = random.permutation(hashes.size)
    for epoch, written in ((1, rows), (2, rows[: rows.size // 50]), (3, rows[rows.size // 50 :][:777])):
        touched = table.fold(owners[written], hashes[written], hashes[written], epoch=epoch)
        table.words[touched.slots, 4:] = random.integers(-(2**62), 2**62, (touched.slots.size, table.width - 4))
        if epoch == 3:
            table.remove(table.slots_of(0)[::100], epoch=epoch)
        parts = table.capture_changes(epoch, epoch, range(PARTITIONS), ())
        table.lineages.complete(epoch)
        for _, made in StateToStore(0, epoch, [Kind("box", ())], (), {0: parts}).objects():
            name = str(len(objects))
            objects[name] = made.data
            named.append((name, made.digest))
    found = states_of(named, Origin(0, 0, "box", 3), range(PARTITIONS), objects.__getitem__)
    for partition in range(PARTITIONS):
        snapshot = table.capture(partition)
        assert snapshot is not None
        assert bytes(found[partition]) == snapshot.to_bytes()
