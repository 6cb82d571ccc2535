"""How many of many cases are tried: few in `make test`, and the same ones every time; all of them, and more, in `make conformance`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

MANY: Final = os.environ.get("EVENFLOW_MANY") == "1"
"""Whether laws are tried with many examples; `make conformance` does, and those that are marked `laws` then run there, too."""


def examples(few: int, many: int) -> int:
    """How many a law is tried with."""
    return many if MANY else few


def one_in(share: int, cases: Iterable[Any]) -> list[Any]:
    """All cases as parameters of a test: one in `share` for `make test`, always the same ones; the others for conformance."""
    return [case if at % share == 0 else pytest.param(case, marks=pytest.mark.conformance) for at, case in enumerate(cases)]
