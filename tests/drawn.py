"""How many of many cases are tried: few in `make test`, and the same ones every time; all of them, and more, in `make conformance`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import pytest

MANY: Final = os.environ.get("EVENFLOW_MANY") == "1"
"""Whether laws are tried with many examples; `make conformance` does, and those that are marked `laws` then run there, too."""


def examples(few: int, many: int) -> int:
    """How many a law is tried with."""
    return many if MANY else few


def one_in(share: int, cases: Iterable[Any], *, spread: bool = False) -> list[Any]:
    """All cases as parameters of a test: one in `share` for `make test`, always the same ones; the others for conformance.

    spread: each case is a tuple, of one value for each of several arguments.
    """
    return [case if at % share == 0 else _dear(case, spread) for at, case in enumerate(cases)]


def but(dear: Collection[str], cases: Iterable[Any]) -> list[Any]:
    """All cases as parameters of a test: those of these names for conformance, as they take long; the others for `make test`, too.

    Raises ValueError if a name is no case's: what is renamed must not come back into `make test` unseen.
    """
    found = list(cases)
    named = [case if isinstance(case, str) else case.name for case in found]
    if unknown := sorted(set(dear) - set(named)):
        raise ValueError(f"no case has these names: {', '.join(unknown)}")
    return [_dear(case, False) if name in dear else case for case, name in zip(found, named)]


def _dear(case: Any, spread: bool) -> Any:
    if isinstance(case, type(pytest.param())):
        return case  # It is for conformance already.
    return pytest.param(*(case if spread else (case,)), marks=pytest.mark.conformance)


def for_conformance(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of each test whose module, class or function is marked `one_in(share)`: all of its cases but one in `share`, always the same ones."""
    seen, found = Counter[str](), []
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is not None and item.get_closest_marker("conformance") is None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % marker.args[0]:
                found.append(item)
            seen[test] += 1
    return found
