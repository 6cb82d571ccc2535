"""The examples of docs/sql.md can be built, all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evenflow as ef

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "sql"], ids=lambda text: text[:40])
def test_a_query_of_the_document_can_be_built(text: str) -> None:
    flow = ef.Dataflow("document")
    packets = flow.source(ef.sources.packets(rows=10), name="packets_rows").with_watermark("ts", "1 second")
    given = {"packets": packets} if "packets" in text else {}
    ef.sql(text, given).to(ef.sinks.discard()).flow.network.check_complete()


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "python"], ids=lambda text: text[:40])
def test_a_program_of_the_document_can_be_built(text: str) -> None:
    names: dict[str, object] = {}
    exec(compile(text, "docs/sql.md", "exec"), names)
    flow = names["flow"]
    assert isinstance(flow, ef.Dataflow)
    flow.network.check_complete()


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 9
