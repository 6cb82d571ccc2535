"""docs/protocol.md says what the rule tables say, and every rule of the protocol is somewhere in the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from evenflow.swarm.mutations import MUTATIONS
from evenflow.swarm.reach import TABLES
from evenflow.swarm.within import WITHIN, Within

ROOT = Path(__file__).resolve().parents[2]


LATER = re.compile("[JK]")
"""Rules of what is being built: not all of them have their rows yet."""


@pytest.fixture(scope="module")
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("gen_protocol_docs", ROOT / "tools" / "gen_protocol_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_rules_are_current(generator: Any) -> None:
    committed = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert committed == generator.document(), "run python tools/gen_protocol_docs.py"


def test_every_rule_of_the_protocol_has_a_row_or_a_function(generator: Any) -> None:
    written = {rule.id for table in TABLES.values() for rule in table.rules} | {rule.id for rule in WITHIN}
    assert written <= set(generator.ids()), "every id stands in the table of subjects"
    assert {id for id in generator.ids() if id not in written and not LATER.match(id)} == set()


@pytest.mark.parametrize("rule", WITHIN, ids=lambda rule: f"{rule.id} {rule.where}")
def test_a_function_that_is_a_rule_is_there(rule: Within) -> None:
    assert rule.find().__qualname__ == rule.where.split(":")[1]


@pytest.mark.parametrize("id", ["A1", "A4", "A5", "C1", "C2", "C5", "I1"])
def test_a_planted_bug_stands_in_the_module_of_a_rule_without_a_row(id: str) -> None:
    """The swarm's list of rows that fire says nothing of these: what it finds does."""
    modules = {rule.where.split(":")[0] for rule in WITHIN if rule.id == id}
    assert modules & {mutation.where.split(":")[0] for mutation in MUTATIONS}
