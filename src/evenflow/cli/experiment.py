"""`evenflow experiment NAME`: the papers' experiments, their figures beside Evenflow's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.errors import QueryError

if TYPE_CHECKING:
    from evenflow.experiments.harness.experiment import Experiment

LIST = "list"
"""In the place of a name."""


def experiment(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one, or `list` for all that there are.")],
    world: Annotated[Literal["sim", "spark"], typer.Option(help="The simulator in virtual time, or real executors.")] = "sim",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the object, table and plot go.", file_okay=False)] = Path("experiments"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller and shorter: a smoke test, no figures to quote.")] = False,
    json: Json = False,
) -> int:
    """Repeat an experiment of the papers and put the paper's figures beside Evenflow's, as a table and a plot.

    Example: `evenflow experiment reliability --out results`
    """
    output: Output = context.obj
    if name == LIST:
        return _list(output)
    found = _find(name, world)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        output.error(QueryError(f"cannot write into {out}: {error.strerror}; give --out a directory that can be written"))
        return FAILED
    from evenflow.cli.demo import example_path
    from evenflow.experiments.harness.experiment import Setting, conduct
    from evenflow.experiments.result.report import result_table
    from evenflow.world.flow_file import load_module

    result = conduct(found, Setting(world, quick, output.say, lambda: load_module(example_path())), out)
    output.report(result.to_json())
    if not output.as_json:
        output.out.print(result_table(result))
        output.say(f"written to {out}/{found.name}-{world}.*")
    return OK


def _find(name: str, world: str) -> Experiment:
    from evenflow.experiments.registry import EXPERIMENTS

    if name not in EXPERIMENTS:
        raise typer.BadParameter(f"there is no experiment {name!r}: there are {', '.join(EXPERIMENTS)}", param_hint="NAME")
    found = EXPERIMENTS[name]
    if world not in found.worlds:
        raise typer.BadParameter(f"{name} runs in {' and '.join(found.worlds)} only", param_hint="--world")
    return found


def _list(output: Output) -> int:
    from rich.table import Table

    from evenflow.experiments.registry import EXPERIMENTS

    found = EXPERIMENTS.values()
    output.report({"experiments": [{"name": e.name, "title": e.title, "source": e.source, "worlds": list(e.worlds)} for e in found]})
    if not output.as_json:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("name", "worlds", "source", "what"):
            table.add_column(heading)
        for each in found:
            table.add_row(each.name, ", ".join(each.worlds), each.source, each.title)
        output.out.print(table)
    return OK
