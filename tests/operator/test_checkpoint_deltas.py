"""Checkpoints that have only what has changed (K3): folded, they are the live state bit by bit, for every operator with a table, whatever
was written, removed, captured, dropped and moved before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.drawn import examples, one_in
from tests.operator.test_laws import OPERATORS, PARTITIONS, Case

from evenflow.errors import CheckpointCorrupt
from evenflow.operator.operator import Changes, Changing, Operator
from evenflow.state.folding import Named, states_of
from evenflow.state.objects import Origin
from evenflow.state.storing import Kind, Part, StateToStore

pytestmark = pytest.mark.one_in(2)

ALL = range(PARTITIONS)
SEEDS = examples(1, 5)
SHORT_LIVED: set[str] = set()
"""Cases whose state hardly outlives an epoch."""
CASES = [case for case in OPERATORS if isinstance(case.factory(), Changing)]


def live(operator: Operator) -> dict[int, bytes]:
    captured = {partition: operator.capture(partition) for partition in ALL}
    return {partition: snapshot.to_bytes() for partition, snapshot in captured.items() if snapshot is not None}


def changes_of(operator: Operator) -> Changes:
    assert isinstance(operator, Changing)
    return operator.changes


@dataclass
class Shelf:
    """A store, and what a site knows of it: the objects of the last whole checkpoint, oldest first, and those of the one under way."""

    objects: dict[str, bytes] = field(default_factory=dict)
    chain: list[Named] = field(default_factory=list)

    def write(self, epoch: int, parts: Sequence[Part]) -> list[Named]:
        """Returns what a checkpoint names that is made of these."""
        named = list(self.chain)
        for _, made in StateToStore(0, epoch, [Kind("box", ())], (), {0: parts}).objects():
            name = f"{epoch}-{len(self.objects)}"
            self.objects[name] = made.data
            named.append((name, made.digest))
        return named

    def fold(self, named: list[Named], epoch: int) -> dict[int, bytes]:
        return states_of(named, Origin(0, 0, "box", epoch), ALL, self.objects.__getitem__)


def test_every_operator_with_a_table_is_here() -> None:
    assert len(CASES) > 30


@pytest.mark.laws
@pytest.mark.parametrize("case", one_in(4, CASES), ids=lambda case: case.name)
def test_what_has_changed_adds_up_to_the_live_state(case: Case) -> None:
    deltas = sum(_play(case, seed) for seed in range(SEEDS))
    assert deltas > 0 or case.name in SHORT_LIVED


def _play(case: Case, seed: int) -> int:
    """How many captures had changes only."""
    random = Random(f"{case.name} {seed}")
    operator, shelf, deltas = case.factory(), Shelf(), 0
    open_: tuple[int, int, Sequence[Part], dict[int, bytes]] | None = None
    for number, (rows, tick) in enumerate(case.epochs(seed), 1):
        operator.process(rows, tick)
        if random.random() < 0.3:
            _move(operator, random.choice(ALL))
        if open_ is not None:  # It is read when more has been written, and partitions have gone.
            was, epoch, parts, expected = open_
            named = shelf.write(epoch, parts)
            assert shelf.fold(named, epoch) == expected
            if random.random() < 0.7:  # Else it is dropped, and the next one begins where this one did.
                changes_of(operator).lineages.complete(was)
                shelf.chain = named
                if random.random() < 0.3:
                    operator = _restored(case, epoch, shelf.fold(named, epoch))
                    operator.process(rows, tick)
        bases = {partition for partition in ALL if random.random() < 0.1}
        parts = changes_of(operator).capture_changes(number, tick.epoch, ALL, bases)
        deltas += any(point.epoch >= 0 for part in parts for point in part.since.values())
        open_ = number, tick.epoch, parts, live(operator)
        if random.random() < 0.3:
            _move(operator, random.choice(ALL))
    return deltas


def _restored(case: Case, epoch: int, states: dict[int, bytes]) -> Operator:
    """Everything was lost: another operator goes on with what the checkpoint has."""
    operator = case.factory()
    for partition, state in states.items():
        operator.install(partition, bytes(state))
    assert changes_of(operator).restored(epoch, ALL) == states.keys()
    return operator


def _move(operator: Operator, partition: int) -> None:
    """It goes, and comes back."""
    snapshot = operator.capture(partition)
    operator.drop(partition)
    if snapshot is not None:
        operator.install(partition, snapshot.to_bytes())


@pytest.mark.parametrize("lost", ["base", "delta", "last"])
def test_a_link_that_is_missing_is_noticed(lost: str) -> None:
    case = next(case for case in CASES if case.name == "running")
    operator, shelf = case.factory(), Shelf()
    for number, (rows, tick) in enumerate(case.epochs(5), 1):
        operator.process(rows, tick)
        shelf.chain = shelf.write(tick.epoch, changes_of(operator).capture_changes(number, tick.epoch, ALL, ()))
        changes_of(operator).lineages.complete(number)
    assert shelf.fold(shelf.chain, tick.epoch) == live(operator)
    gone = {"base": 0, "delta": 2, "last": len(shelf.chain) - 1}[lost]
    with pytest.raises(CheckpointCorrupt, match="object '.*' with the state of box 'box', partitions"):
        shelf.fold(shelf.chain[:gone] + shelf.chain[gone + 1 :], tick.epoch)
    name, _ = shelf.chain[gone]
    shelf.objects[name] = shelf.objects[name][:-1] + bytes([shelf.objects[name][-1] ^ 1])
    with pytest.raises(CheckpointCorrupt, match="are not those that were written"):
        shelf.fold(shelf.chain, tick.epoch)
