"""`evenflow swarm`: seeded schedules of faults in the simulator, checked at every step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output

if TYPE_CHECKING:
    from evenflow.swarm.run import Verdict

STORIES_MAX: Final = 3
"""Failing seeds whose story is printed; each can be run again by itself."""


def swarm(
    context: typer.Context,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Seeds from A up to but not including B.")] = "0..1000",
    jobs: Annotated[int, typer.Option(min=1, help="Processes to share them.")] = 1,
    mutations: Annotated[bool, typer.Option("--mutations", help="Plant known bugs and demand that a seed finds each.")] = False,
    story: Annotated[bool, typer.Option("--story", help="Print the story of every seed, of those that pass too.")] = False,
    json: Json = False,
) -> int:
    """Search for faults that the protocol does not survive: each seed draws a dataflow, a topology, a load and what goes wrong.

    A failing seed prints its story, one line per event, and fails in the same way whenever it is run again.

    Example: `evenflow swarm --seeds 0..10000 --jobs 2`
    """
    output: Output = context.obj
    wanted = _range(seeds)
    return _plant(output, wanted, jobs) if mutations else _search(output, wanted, jobs, every_story=story)


def _range(seeds: str) -> range:
    match = re.fullmatch(r"(\d+)\.\.(\d+)", seeds)
    if match is None or int(match[1]) >= int(match[2]):
        raise typer.BadParameter(f"{seeds!r} is no range of seeds such as 0..1000", param_hint="--seeds")
    return range(int(match[1]), int(match[2]))


def _search(output: Output, seeds: range, jobs: int, *, every_story: bool) -> int:
    from evenflow.swarm.search import search

    ran = 0

    def seen(verdict: Verdict) -> None:
        nonlocal ran
        ran += 1
        if verdict.failure is not None:
            output.err.print(f"seed {verdict.seed} fails: {verdict.failure}", soft_wrap=True)
        if ran % 500 == 0:
            output.say(f"{ran} of {len(seeds)} seeds")

    findings = search(seeds, jobs, seen)
    failing = [verdict.seed for verdict in findings.failed]
    for seed in seeds if every_story else failing[:STORIES_MAX]:
        _tell(output, seed)
    report = findings.to_json()
    output.report(report)
    if not output.as_json:
        output.out.print(f"{findings.seeds} seeds, {len(failing)} failed{': ' + ', '.join(map(str, failing)) if failing else ''}")
        output.out.print(f"rules that never fired: {', '.join(report['rules_never_fired']) or 'none'}", soft_wrap=True)
    return FAILED if failing else OK


def _tell(output: Output, seed: int) -> None:
    from evenflow.swarm.run import run_seed

    verdict = run_seed(seed, tell=True)
    for line in [f"seed {seed}: {verdict.about}", *verdict.story, verdict.trace, f"seed {seed}: {verdict.failure or 'all is well'}"]:
        output.out.print(line, highlight=False, soft_wrap=True)


def _plant(output: Output, seeds: range, jobs: int) -> int:
    from evenflow.swarm.search import plant_all
    from evenflow.swarm.showing import able

    found: dict[str, int | None] = {}
    for mutation, killed in plant_all(seeds, jobs):
        found[mutation.name] = None if killed is None else killed[0]
        if killed is None:
            said = f"NO SEED FINDS IT, of {sum(1 for _ in able(mutation, seeds))} that can show it"
        else:
            said = f"seed {killed[0]}: {killed[1]:.120}"
        output.out.print(f"{mutation.name}: {said}", highlight=False, soft_wrap=True)
    survivors = [name for name, seed in found.items() if seed is None]
    output.report({"seeds": len(seeds), "mutations": found, "survivors": survivors})
    if not output.as_json:
        output.out.print(f"{len(found)} planted bugs, {len(survivors)} of which no seed finds")
    return FAILED if survivors else OK
