"""States that are written whole come into memory a few at a time: some are on disk since all of them would not fit."""

from __future__ import annotations

import pytest

from evenflow.state import storing
from evenflow.state.folding import states_of
from evenflow.state.objects import Origin
from evenflow.state.storing import Kind, StateToStore


class OnDisk:
    """A state that is in memory once it was asked for. read: of which partitions that was."""

    def __init__(self, partition: int, read: list[int]) -> None:
        self._partition, self._read = partition, read

    def to_bytes(self) -> bytes:
        self._read.append(self._partition)
        return bytes([self._partition]) * 100


def test_no_more_of_them_than_an_object_has_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "WHOLE_BYTES", 250)
    read: list[int] = []
    state = StateToStore(3, 9, [Kind("box")], [(partition, 0, OnDisk(partition, read)) for partition in range(8)])
    objects: dict[str, bytes] = {}
    named = []
    for number, (step, made) in enumerate(state.objects()):
        assert step == 0 and made.rows <= 3
        assert len(read) == min(8, 3 * number + 3), "the next ones are read when this one is stored"
        objects[str(number)] = made.data
        named.append((str(number), made.digest))
    found = states_of(named, Origin(3, 0, "box", 9), range(8), objects.__getitem__)
    assert len(objects) == 3 and found == {partition: bytes([partition]) * 100 for partition in range(8)}
