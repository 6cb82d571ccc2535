"""docs/protocol.md says what the rule tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_committed_rules_are_current() -> None:
    spec = importlib.util.spec_from_file_location("gen_protocol_docs", ROOT / "tools" / "gen_protocol_docs.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    committed = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert committed == generator.document(), "run python tools/gen_protocol_docs.py"
