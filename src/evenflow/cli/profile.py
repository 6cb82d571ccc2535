"""`evenflow profile SITE`: where the time of a running engine's site goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from evenflow.cli.operate import Engine, asked
from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.errors import OptionError

if TYPE_CHECKING:
    from evenflow.statistics.profile import Profile

SHOWN: Final = 15
"""Functions."""


def profile(
    context: typer.Context,
    site: Annotated[int, typer.Argument(metavar="SITE", help="Index of the site, as `evenflow sites` shows it.")],
    seconds: Annotated[float, typer.Option(help="For so long.", min=0.1, max=60.0)] = 5.0,
    svg: Annotated[Path | None, typer.Option(help="Draw the flame graph into this file.", dir_okay=False)] = None,
    folded: Annotated[bool, typer.Option("--folded", help="Print a line per stack, as flame graph tools read it.")] = False,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Sample a site's process while it goes on: which boxes and functions its CPU goes to.

    Example: `evenflow profile 2 --svg site2.svg`
    """
    from evenflow.statistics.profile import Profile

    output: Output = context.obj
    if folded and json:
        raise typer.BadParameter("prints one thing and --json another", param_hint="--folded")
    found = Profile.from_json(asked(output, engine, "profile", site=site, seconds=seconds))
    if svg is not None:
        try:
            svg.write_text(found.to_svg(), encoding="utf-8")
        except OSError as error:
            output.error(OptionError(f"cannot write {svg}: {error.strerror}; give --svg a file in a directory that can be written"))
            return FAILED
        output.say(f"drawn into {svg}")
    if folded:
        output.show(found.folded())
    elif not output.as_json:
        _print(output, found)
    return OK


def _print(output: Output, found: Profile) -> None:
    from rich import box
    from rich.table import Table

    cpu_us = max(1, found.cpu_us)
    output.out.print(
        f"site {found.site}: {found.cpu_us / 1e6:.2f} s of CPU in {found.seconds:.1f} s, {found.samples:,} samples, "
        f"which cost {found.own_us / 1e6 / max(found.seconds, 1e-3):.1%} of a core",
        highlight=False,
    )
    for title, rows in (
        ("box", [(name, cpu, None) for name, (cpu, _) in found.by_box().items()]),
        ("function", [(name, alone, whole) for name, (alone, whole) in found.by_function().items()][:SHOWN]),
    ):
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column(title)
        table.add_column("CPU" if title == "box" else "CPU by itself", justify="right")
        if title == "function":
            table.add_column("with what it calls", justify="right")
        for name, own, whole in rows:
            more = () if whole is None else (f"{whole / cpu_us:.1%}",)
            table.add_row(name, f"{own / cpu_us:.1%}", *more)
        if rows:
            output.out.print(table)
