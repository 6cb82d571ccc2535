"""In all tests of parts: what a judge says of an event is what the guards of its rows would."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from evenflow.exchange.rules import Story
from evenflow.site.rules import JUDGES, RULES


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each guard was named in this test."""
    met: Counter[str] = Counter()
    apply = RULES.apply

    def compare(machine: Any, event: Any, story: Story) -> None:
        if type(event) in JUDGES:
            assert RULES.judged_well(machine, event, story), f"{event!r:.300}"
            met[JUDGES[type(event)](machine, event).__name__] += 1
        apply(machine, event, story)

    monkeypatch.setattr(RULES, "apply", compare)
    return met
