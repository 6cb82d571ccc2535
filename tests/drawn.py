"""How many of many cases are tried: few in `make test`, and not the same ones every day; all of them, and more, in `make conformance`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import pytest

MANY: Final = os.environ.get("EVENFLOW_MANY") == "1"
"""Whether laws are tried with many examples; `make conformance` does, and those that are marked `laws` then run there, too."""


def examples(few: int, many: int) -> int:
    """How many a law is tried with."""
    return many if MANY else few


def by_the_day(cases: Iterable[Any], share: int, day: int | None = None) -> list[Any]:
    """All cases as parameters of a test. One in `share` is today's, in turn; the others are for conformance.

    day: number of the day; None for today, which begins at midnight UTC.
    """
    today = datetime.now(UTC).date().toordinal() if day is None else day
    return [case if (at + today) % share == 0 else pytest.param(case, marks=pytest.mark.conformance) for at, case in enumerate(cases)]
