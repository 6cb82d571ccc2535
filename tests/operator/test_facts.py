"""What the engine may know of an operator is said by its class, and nowhere forgotten."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import evenflow.operator
from evenflow.operator.facts import Facts
from evenflow.operator.guarded import Guarded
from evenflow.operator.operator import End, Failing, Late, Partitioned, Stateless, Timed, Timeless, Unkeyed
from evenflow.operator.tabled import Tabled


def operators() -> Iterator[type]:
    """Every class below evenflow.operator that can process epochs."""
    for module in pkgutil.walk_packages(evenflow.operator.__path__, "evenflow.operator."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and (hasattr(found, "process") or hasattr(found, "process_sides")):
                yield found


@pytest.mark.parametrize("found", list(operators()), ids=lambda found: found.__qualname__)
def test_who_has_a_fact_is_of_its_class(found: type) -> None:
    """An attribute that nobody is told of would be ignored: late rows would go uncounted, a timer would never come."""
    source = "".join(inspect.getsource(each) for each in found.__mro__[:-1] if each.__module__.startswith("evenflow.operator"))
    for sign, fact in {"self.late_rows": Late, "self.failed =": Failing, "def next_us": Timed, "timeless =": Timeless}.items():
        assert sign not in source or issubclass(found, fact), f"{found.__qualname__} has {sign!r}: make it a {fact.__name__}"


class Waits(Unkeyed):
    """Nothing is known of it."""


class Stores(Stateless, End):
    """Rows end here."""


class Rings(Waits, Timed, Late):
    def next_us(self, stamp: int) -> int:
        return stamp + 10


class Sometimes(Stateless):
    def __init__(self, timeless: bool) -> None:
        self.timeless = timeless


def of(*given: object) -> Facts:
    made: list[Partitioned] = list(given)  # type: ignore[arg-type]
    return Facts.of(made)


def test_facts_are_found_by_step() -> None:
    stores, rings, guarded = Stores(), Rings(), Guarded.__new__(Guarded)
    facts = of(stores, rings, guarded)
    assert (facts.timed, facts.late, facts.ends) == ((rings,), ((1, rings),), (stores,))
    assert facts.failed == (None, None, guarded) and guarded.failed == ()
    assert facts.shares == (None, None, None) and not any(isinstance(each, Tabled) for each in (stores, rings, guarded))
    rings.late_rows += 3
    assert facts.late_rows == {1: 3}, "what grows is asked of the operator"
    assert [timed.next_us(5) for timed in facts.timed] == [15]


def test_a_segment_is_timeless_if_all_of_its_operators_are() -> None:
    assert of(Stores(), Sometimes(True)).timeless and of().timeless
    assert not of(Stores(), Sometimes(False)).timeless and not of(Stores(), Waits()).timeless
