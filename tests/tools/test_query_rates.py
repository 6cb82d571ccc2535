"""What is compared of two trees: every Nexmark query has a rate, and one that has become slower is named."""

from __future__ import annotations

from evenflow import nexmark
from tools import against, query_rates


def test_a_query_has_a_rate() -> None:
    for name in ("q1", "q13"):
        assert query_rates.rows_per_cpu_s(name, 500) > 0
    assert set(nexmark.NAMES) >= {"q0", "q22"}


def test_what_is_slower_than_it_may_be_is_named() -> None:
    rows = [
        {"figure": "rows_per_cpu_s.q0", "ratio": 0.96},
        {"figure": "rows_per_cpu_s.q1", "ratio": 0.97},
        {"figure": "none", "ratio": None},
    ]
    assert against.below(rows, 0.97) == ["rows_per_cpu_s.q0 0.96"]
    assert against.below(rows, None) == []
