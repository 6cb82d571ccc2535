"""Commands for a dataflow that is saved or written: `evenflow check`, `evenflow export`, `evenflow preview`. None of them starts Spark."""

from __future__ import annotations

import json as json_
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import OK, USAGE, Output
from evenflow.errors import QueryError

DOCUMENT = typer.Argument(metavar="FLOW.json", help="A dataflow that Dataflow.to_json() or the editor has saved.", show_default=False)
FLOW = typer.Argument(metavar="FLOW", help="A dataflow: a file that was saved as JSON, or a Python file.", show_default=False)
ALLOW = typer.Option(metavar="MODULE", help="A module whose functions and processors the file may name, which imports it; several times.")
Modules = Annotated[list[str] | None, ALLOW]


def check(
    context: typer.Context,
    file: Annotated[Path, DOCUMENT],
    module: Modules = None,
    json: Json = False,
) -> int:
    """Judge every box of a saved dataflow: what it gives, what is wrong with it and where, or whom it waits for. Nothing is imported.

    Example: `evenflow check sessions.json`
    """
    from evenflow.query.checking import Checker
    from evenflow.query.serial import Consent, document_of

    output: Output = context.obj
    checked = Checker(Consent(modules=tuple(module or ()))).check(document_of(read(file)))
    told = checked.to_json()
    output.report(told)
    if not output.as_json:
        for box in told["boxes"]:
            _print_box(output, box)
        if "error" in told:
            output.out.print(told["error"], style="red", highlight=False)
        for name in told["loose"]:
            output.out.print(f"{name} leads to no sink yet", style="yellow", highlight=False)
    return OK if checked.right else USAGE


def _print_box(output: Output, box: Mapping[str, Any]) -> None:
    match box["state"]:
        case "right":
            gives = " / ".join(f"({port['ddl']})" for port in box["ports"] if not port.get("aside")) or "sink"
            output.out.print(f"{box['name']}: {gives}", highlight=False, soft_wrap=True)
        case "waiting":
            output.out.print(f"{box['name']}: waits for {', '.join(box['waits_for'])}", style="dim", highlight=False)
        case "locked":
            output.out.print(f"{box['name']}: locked. {box['error']}", style="yellow", highlight=False, soft_wrap=True)
        case _:
            where = f" [{box['parameter']}]" if "parameter" in box else ""
            output.out.print(f"{box['name']}{where}: {box['error']}", style="red", highlight=False, soft_wrap=True)


def export(
    context: typer.Context,
    file: Annotated[Path, FLOW],
    to: Annotated[Path | None, typer.Option(help="Write it into this file instead.", dir_okay=False)] = None,
    module: Modules = None,
    json: Json = False,
) -> int:
    """Write a dataflow as a Python file that draws it, for `evenflow run`. Options of a Python file's dataflow() may follow.

    Example: `evenflow export sessions.json --to sessions.py`
    """
    from evenflow.query.export import to_python

    output: Output = context.obj
    text = to_python(network_of(file, module, context.args))
    output.report({"python": text, "file": None if to is None else str(to)})
    if to is not None:
        write(to, text)
        output.say(f"{to} is written")
    elif not output.as_json:
        print(text, end="")
    return OK


def preview(
    context: typer.Context,
    file: Annotated[Path, FLOW],
    rows: Annotated[int, typer.Option(help="Rows of each source, where none are given.", min=1, max=100_000)] = 200,
    sample: Annotated[
        Path | None, typer.Option(metavar="ROWS.json", help="Rows by source: an object of lists of objects.", dir_okay=False)
    ] = None,
    box: Annotated[list[str] | None, typer.Option(help="Look behind this box only; several times.")] = None,
    show: Annotated[int, typer.Option(help="Rows to show of each arrow.", min=0)] = 10,
    module: Modules = None,
    json: Json = False,
) -> int:
    """Try a dataflow over a few rows, in a process that has 10 s of CPU and 1 GiB, and show what passes each arrow.

    Example: `evenflow preview sessions.json --rows 50`
    """
    from evenflow.query.serial import network_to_json
    from evenflow.testing.preview import preview as previewed

    output: Output = context.obj
    if file.suffix == ".json":
        text, modules, pickles = read(file), list(module or ()), False
    else:
        text, modules, pickles = network_to_json(network_of(file, module, context.args)), [], True
    samples = None if sample is None else _samples(sample)
    taps = None if not box else [(name, 0) for name in box]
    told = previewed(text, samples, taps, rows=rows, shown=show, modules=modules, allow_pickle=pickles)
    output.report(told)
    if not output.as_json:
        _print_taps(output, told)
    return OK


def _samples(file: Path) -> Mapping[str, Any]:
    try:
        found = json_.loads(read(file))
    except ValueError as error:
        raise QueryError(f"{file} is not JSON: {error}; give an object of lists of rows, by source") from error
    if not isinstance(found, dict):
        raise QueryError(f"{file} has no rows by source; give an object such as {{'packets': [{{'src': 'a'}}]}}")
    return found


def _print_taps(output: Output, told: Mapping[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    for name, source in told["sources"].items():
        output.say(f"source {name}: {source['rows']} rows, {source['from']}")
    for tap in told["taps"]:
        port = f", {tap['name']}" if tap["name"] else ""
        table = Table(box=box.SIMPLE_HEAD, title=f"{tap['box']}{port}: {tap['count']} rows", title_justify="left")
        for column in tap["columns"]:
            table.add_column(column)
        for row in tap["rows"]:
            table.add_row(*("null" if value is None else str(value) for value in row))
        output.out.print(table)


# ---------------------------------------------------------------- files


def read(file: Path) -> str:
    """Raises QueryError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"cannot read {file}: {error}; give a text file") from error


def write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise QueryError(f"cannot write {file}: {error}") from error


def network_of(file: Path, modules: list[str] | None, arguments: list[str]) -> Any:
    """The network of a saved dataflow, or of a Python file with a function dataflow()."""
    from evenflow.query.serial import network_from_json
    from evenflow.world.flow_file import load

    if file.suffix == ".json":
        if arguments:
            raise QueryError(f"{file} takes no options: {' '.join(arguments)}")
        return network_from_json(read(file), modules=tuple(modules or ()))
    user_flow = load(file, arguments)
    if user_flow.needs_spark:
        raise QueryError(f"{file}: dataflow() needs a Spark session, and none is started; give its parameter `spark` a default (None)")
    return user_flow.build().network
