"""Every block of Python in README.md and docs/*.md runs, or stands in a list with the reason why it does not run here."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.sources.kafka_topics import Bounds

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = {f"{page.name}-{number}": code for page in PAGES for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1)}
ELSEWHERE = {
    "README.md-1": "makes a session: tests/spark/test_first_programs.py runs it",
    "cli.md-1": "a function's head",
    "durability.md-1": "needs a session: tests/spark/test_restart.py does what it says",
    "durability.md-2": "needs a session: tests/spark/test_streamed.py does what it says",
    "durability.md-3": "needs an engine: tests/world/test_no_loss_killed.py does what it says",
    "durability.md-4": "needs a session: tests/spark/test_state_frame.py does what it says",
    "durability.md-5": "needs a session: tests/spark/test_state_frame.py does what it says",
    "overload.md-2": "needs a run that has left rows out: tests/sources/test_dropped.py reads such rows",
    "policies.md-1": "reads a file of examples: tests/cli/test_policy.py runs it",
    "porting.md-1": "needs a session and a broker: tests/oracle/test_from_streaming.py runs such queries",
    "regions.md-2": "needs a region: tests/world/test_subscribing.py does what it says",
    "regions.md-3": "needs two regions: tests/world/test_subscribing.py does what it says",
    "regions.md-4": "goes on from the first block: tests/world/test_grouping.py draws such a dataflow",
    "regions.md-5": "needs an engine: tests/spark/test_groups.py does what it says",
    "regions.md-6": "needs regions: tests/world/test_silent.py does what it says",
    "regions.md-7": "needs an engine: tests/world/test_silent.py does what it says",
    "start.md-1": "makes a session: tests/spark/test_first_programs.py runs it",
    **{name: "tests/cli/test_cookbook.py runs it" for name in BLOCKS if name.startswith("cookbook")},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_python(name: str) -> None:
    ast.parse(BLOCKS[name])


def test_the_list_has_no_block_that_is_gone() -> None:
    assert set(ELSEWHERE) <= set(BLOCKS)


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - set(ELSEWHERE)))
def test_a_block_draws_a_dataflow_that_can_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ef.sources, "bounds", lambda *_: Bounds(((0, 0),), (), (), "t"))  # Asking a broker is all that it cannot do here.
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[name], name, "exec"), names)
    flow = names["flow"]
    flow.network.check_complete()
    assert flow.to_svg().startswith("<svg")


def test_explain_says_what_there_is_before_there_is_a_sink(capsys: pytest.CaptureFixture[str]) -> None:
    flow = ef.Dataflow("half")
    stream = flow.source(ef.sources.packets(rows=10)).where("proto = 6")
    flow.explain()
    assert "Segments come when every box leads to a sink: 'filter' does not yet." in capsys.readouterr().out
    stream.to(ef.sinks.discard())
    flow.explain()
    assert "Segments come" not in capsys.readouterr().out
