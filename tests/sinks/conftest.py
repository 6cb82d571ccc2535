"""What tests of sinks have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenflow.sinks.table import OPEN


@pytest.fixture(autouse=True)
def nobody_writes() -> Iterator[None]:
    """A writer that another test has left open would be asked whether it is of the same database."""
    OPEN.clear()
    yield
    OPEN.clear()
