"""`evenflow state BOX`: what a box of a running dataflow keeps, of one epoch, while it goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from evenflow.cli.checkpoints import print_state
from evenflow.cli.operate import Box, CheckpointTimeout, Engine, RunOption, asked
from evenflow.cli.options import Json
from evenflow.cli.output import OK, Output


def state(
    context: typer.Context,
    box: Box,
    key: Annotated[list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Rows that have this value; several times.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of which step of the box, where it has several with state.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="So many rows at most; 0: all.")] = 20,
    run: RunOption = None,
    timeout: CheckpointTimeout = 120.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Show the rows that a box of a running dataflow keeps, of one epoch, while it goes on. Its run needs a checkpoint location.

    Example: `evenflow state visits --key user=42`
    """
    output: Output = context.obj
    wanted = dict(_pair(each) for each in key or ())
    found = asked(output, engine, "state", box=box, key=wanted, kind=kind, limit=limit, run=run, timeout_s=timeout)
    if not output.as_json:
        print_state(output, found, limit)
    return OK


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip()):
        raise typer.BadParameter(f"{text!r} has no value; write column=value", param_hint="--key")
    return name.strip(), value
