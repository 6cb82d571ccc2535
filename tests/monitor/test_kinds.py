"""Whatever can happen to a run has its words and its colour, the same on the page and in the terminal, and stands in the manual."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from evenflow.coordinator.events import Kind
from evenflow.monitor.timeline import STYLES, TONES
from evenflow.monitor.web.files import STATIC
from evenflow.world.spark.driver.run import Run

MANUAL: Final = Path(__file__).parents[2] / "docs" / "cli.md"
MERGED: Final = {Kind.COPY_BEGUN, Kind.COPY_LIVE, Kind.MOVE_BEGUN, Kind.MOVE_DONE}
"""Each is shown in a line with its like, which is of another kind: `copies`, `move`."""
OTHERS: Final = {"copies", "move", "kill"}
"""Kinds of lines that the engine does not tell: the two above, and what `evenflow demo` does."""
ROW: Final = re.compile(r'^  (\w+): \{ tone: (?:"(\w+)"|null), name: "([^"]+)"', re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    found = ROW.findall((STATIC / "kinds.js").read_text(encoding="utf-8"))
    assert len(found) == len({kind for kind, _, _ in found}), "a kind stands there twice"
    return {kind: (tone, name) for kind, tone, name in found}


def test_the_page_has_words_for_every_kind_and_for_no_other() -> None:
    assert rows().keys() == {*map(str, set(Kind) - MERGED), *OTHERS}
    names = [name for _, name in rows().values()]
    assert len(names) == len(set(names)), "two kinds have the same words"


def test_the_terminal_has_the_colours_of_the_page() -> None:
    assert {kind: tone for kind, (tone, _) in rows().items() if tone} == TONES
    assert STYLES.keys() == TONES.keys()


@pytest.mark.parametrize("kind", Kind)
def test_the_manual_has_every_kind(kind: Kind) -> None:
    (events,) = [line for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.startswith("| `events` | what happened")]
    assert f"`{kind}`" in events


def test_the_docstring_of_events_has_every_kind() -> None:
    said = {*re.findall(r"\w+", (Run.events.__doc__ or "").partition("kind:")[2].partition("Events of a move")[0])}
    assert [str(kind) for kind in Kind if kind not in said] == []
