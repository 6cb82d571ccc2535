"""What a layout learns when it becomes a run: steps that write files are told the run's id and how to wait between two tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from evenflow.plan.layout import Layout, Step
from evenflow.sources.cut import CutSource

WRITING: Final = frozenset(("stage", "commit"))


def bind_run(layout: Layout, run_id: str, wait: Callable[[int], None]) -> Layout:
    """The layout as run `run_id` runs it. wait: sleeps for so many milliseconds, at a site; must be picklable.

    Writing steps run beside the event loop, like user code: they wait for disks.
    """

    def bound(step: Step) -> Step:
        if step.kind not in WRITING:
            return step
        return replace(step, params={**step.params, "run": run_id, "wait": wait}, user_code=True)

    segments = tuple(replace(s, steps=tuple(bound(step) for step in s.steps)) for s in layout.segments)
    return replace(layout, segments=segments)


def begun(layout: Layout, now_us: int) -> Layout:
    """The layout of a run that begins now. Sources that are cut by content learn where their epochs begin, all the same, unless a location
    has said it. now_us: wall clock, microseconds since 1970."""
    waiting = {name for name, source in layout.sources.items() if isinstance(source, CutSource) and source.begin_us is None}
    if not waiting:
        return layout
    sources = {name: source.begun(now_us) if name in waiting else source for name, source in layout.sources.items()}
    return replace(layout, sources=sources)
