"""Of which objects a table's state is made, and which partitions are to have a new base (K3, K7)."""

from __future__ import annotations

from evenflow.availability.entries import StoredObject
from evenflow.site.chains import DELTAS_MAX, Link, due, extended, newest


def link(name: str, epoch: int, *, base: dict[int, int] | None = None, changes: dict[int, int] | None = None, since: int = 0) -> Link:
    base, changes = base or {}, changes or {}
    stored = StoredObject(name, 0, sum(base.values()) + sum(changes.values()), 100, "digest")
    return Link(stored, epoch, base | changes, dict.fromkeys(base, -1) | dict.fromkeys(changes, since))


def names(chain: list[Link]) -> list[str]:
    return [each.stored.name for each in chain]


def test_an_object_is_named_as_long_as_a_partition_needs_it() -> None:
    first = extended([], [link("a", 1, base={0: 10, 1: 10})])
    second = extended(first, [link("b", 2, changes={0: 1, 1: 1}, since=1)])
    assert names(second) == ["a", "b"] and newest(second) == {0: 2, 1: 2}
    third = extended(second, [link("c", 3, base={0: 10}), link("d", 3, changes={1: 2}, since=2)])
    assert names(third) == ["a", "b", "c", "d"], "partition 1 needs them"
    assert [sorted(each.rows) for each in third] == [[1], [1], [0], [1]]
    fourth = extended(third, [link("e", 4, changes={0: 1}, since=3), link("f", 4, base={1: 9})])
    assert names(fourth) == ["c", "e", "f"] and newest(fourth) == {0: 4, 1: 4}
    assert names(extended(fourth, [link("g", 5, changes={0: 1}, since=4)])) == ["c", "e", "g"], "partition 1 has gone"


def test_a_base_is_due_when_its_changes_outweigh_it_or_are_many() -> None:
    partitions, held = range(16), dict.fromkeys(range(16), 100)
    chain = [link("a", 0, base=dict.fromkeys(partitions, 100))]
    assert due(chain, held, partitions) == set()
    chain.append(link("b", 1, changes={3: 101, 5: 100, 6: 300, 7: 200}))
    assert due(chain, held, partitions) == {6, 7}, "those with most, an eighth of all rows"
    assert due(chain, held | {6: 1_000_000}, partitions) == {6}
    assert due(chain, held | {6: 99_999_999, 7: 99_999_999}, [6, 7]) == {6}, "one always"
    many = [link("a", 0, base={0: 1000, 1: 1000}), *(link(str(n), n, changes={0: 1}, since=n - 1) for n in range(1, DELTAS_MAX + 1))]
    assert due(many, {0: 1000, 1: 1000}, [0, 1]) == {0}
    assert due(many[:-1], {0: 1000, 1: 1000}, [0, 1]) == set()
