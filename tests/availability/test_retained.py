"""Which objects of checkpoints can go (K8): what no retained checkpoint names, of those before the oldest one, and nothing else."""

from __future__ import annotations

import pytest

from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.availability.retained import folder_of, garbage, place_of


def name(generation: int, number: int, file: str = "001-00-0000.parquet") -> str:
    return f"{folder_of(generation, number)}/{file}"


def completed(generation: int, number: int, *names: str) -> Completed:
    objects = tuple(StoredObject(each, 0, 1, 10, "d") for each in names)
    return Completed(number, 10 * number, (Piece(1, 0, (0,), {}, objects),), generation=generation)


def test_what_is_older_than_the_oldest_and_named_by_none_goes_oldest_first() -> None:
    retained = [completed(2, 1, name(2, 1), name(1, 7)), completed(2, 4, name(2, 4))]
    names = [name(1, 9), name(1, 7), name(1, 10), name(2, 1), name(2, 2), name(2, 4), name(2, 5), name(1, 7, "002-00-0001.parquet")]
    assert garbage(names, retained) == [name(1, 7, "002-00-0001.parquet"), name(1, 9), name(1, 10)]


def test_without_a_checkpoint_nothing_goes() -> None:
    assert garbage([name(1, 1)], []) == []


@pytest.mark.parametrize(
    "other", ["journal/000000000001.json", "checkpoints/x/1/o", "checkpoints/000001", "rows/000001/000001/o", "checkpoints/000001/o"]
)
def test_what_is_no_object_of_a_checkpoint_is_left_alone(other: str) -> None:
    assert place_of(other) is None
    assert garbage([other], [completed(5, 1)]) == []


def test_names_say_where_they_are_of() -> None:
    assert place_of(name(3, 12)) == (3, 12)
