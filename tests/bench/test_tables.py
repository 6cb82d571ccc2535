"""What `evenflow bench tables` does to executors and drivers, on bare processes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evenflow.bench.tables import Setting, compare, strike
from evenflow.bench.tabling import TABLES, TableGeneration


def test_all_manners_come_about_as_often_as_they_should() -> None:
    assert Counter(Setting(kills=30).manners()) == {"executor": 10, "everything": 10, "executors": 5, "stale": 5}
    assert Setting(seed=1).manners() == Setting(seed=1).manners() != Setting(seed=2).manners()


@pytest.mark.conformance
@pytest.mark.timeout(600)
def test_whatever_is_killed_tables_have_each_row_once(tmp_path: Path) -> None:
    generation, said = TableGeneration(str(tmp_path), lease_s=3.0), list[str]()
    struck = strike(generation, Setting(kills=5, seed=3), said.append)
    assert struck.kills.total() == 5 and struck.fenced == struck.kills["stale"], said
    for name, facts in compare(generation).items():
        assert name in TABLES and facts["rows_compared"] > 1_000 and facts["commits"] > 5
        assert (facts["rows_lost"], facts["rows_repeated"], facts["orphan_commits"]) == (0, 0, 0), facts
