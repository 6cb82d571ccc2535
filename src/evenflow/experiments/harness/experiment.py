"""An experiment: what the paper saw, how to see it here, and what becomes of what was seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenflow.experiments.result.drawing import HOW_TO_INSTALL, can_draw, draw
from evenflow.experiments.result.report import markdown
from evenflow.experiments.result.result import Figures, Measurement, Result, World

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a run was asked for. quick: a smoke test, no figures to quote. say: one line about what is under way.

    example: loads the module of the demo's query, for those who need it.
    """

    world: World
    quick: bool
    say: Say
    example: Callable[[], Any] | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """source: paper and figure, in the short names of the glossary (FT is the Flux thesis). worlds: where `measure` can run."""

    name: str
    title: str
    source: str
    worlds: tuple[World, ...]
    paper: Figures
    measure: Callable[[Setting], Measurement]


def conduct(experiment: Experiment, setting: Setting, out: Path) -> Result:
    """Measure, and leave NAME-WORLD.json, .md and .svg in the directory `out`, which must be there. Raises OSError."""
    found = experiment.measure(setting)
    stem = out / f"{experiment.name}-{setting.world}"
    plot = stem.with_suffix(".svg")
    drawn = can_draw()
    if drawn:
        draw(found.chart, plot)
    else:
        setting.say(f"no plot: Matplotlib is not installed; {HOW_TO_INSTALL}")
    result = Result(
        experiment.name,
        experiment.source,
        setting.world,
        {**experiment.paper, **found.paper},
        # A smoke test is no measurement, and whoever finds the file must see which it was.
        {**found.measured, "quick": setting.quick},
        found.target,
        str(plot) if drawn else None,
    )
    stem.with_suffix(".json").write_text(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(markdown(result, experiment.title, found.notes), encoding="utf-8")
    for note in found.notes:
        setting.say(note)
    return result
