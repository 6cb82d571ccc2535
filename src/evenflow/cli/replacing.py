"""`evenflow start`, `compare` and `replace`: a running engine gets another dataflow, or another version of one that it runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from evenflow.cli.operate import Engine, RunOption, asked
from evenflow.cli.options import (
    AllowPickle,
    CheckpointLocation,
    Cut,
    CutAheadMs,
    CutBy,
    DropState,
    Durability,
    Earlier,
    FromSavepoint,
    Group,
    GroupBegin,
    GroupCa,
    GroupPeers,
    GroupPlace,
    GroupSites,
    Json,
    Mirrored,
    TakeOver,
    WidthMs,
    WidthRows,
)
from evenflow.cli.output import OK, USAGE, Output
from evenflow.cli.running import Cutting

FLOW = typer.Argument(metavar="FILE", help="Python file with a function dataflow(), or a dataflow saved as JSON.", show_default=False)
ALLOW = typer.Option(metavar="MODULE", help="A module whose functions and processors a saved file may name; several times.")


def start(
    context: typer.Context,
    file: Annotated[Path, FLOW],
    replicas: Annotated[int | None, typer.Option(help="Replicas of every partition; default the engine's.", min=1)] = None,
    checkpoint_location: CheckpointLocation = None,
    durability: Durability = None,
    take_over: TakeOver = False,
    from_savepoint: FromSavepoint = None,
    drop_state: DropState = None,
    earlier: Earlier = None,
    allow_pickle: AllowPickle = False,
    availability: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="What boxes that do not say do so that a lost site costs little; default the engine's."),
    ] = None,
    cut: Cut = None,
    width_ms: WidthMs = None,
    cut_by: CutBy = None,
    width_rows: WidthRows = None,
    cut_ahead_ms: CutAheadMs = None,
    mirrored: Mirrored = False,
    group: Group = None,
    group_begin: GroupBegin = None,
    group_sites: GroupSites = None,
    group_place: GroupPlace = 0,
    group_peers: GroupPeers = None,
    group_ca: GroupCa = None,
    module: Annotated[list[str] | None, ALLOW] = None,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Start another dataflow in a running engine, beside those that it has.

    The engine's process reads the file. Other options are those of dataflow(), as of `evenflow run`.

    Example: `evenflow start alerts.json`
    """
    output: Output = context.obj
    what = {"file": str(file.resolve()), "arguments": context.args, "modules": module}
    where = {"checkpoint_location": checkpoint_location, "from_savepoint": from_savepoint, "drop_state": drop_state}
    were = {"earlier": [str(each.resolve()) for each in earlier or ()], "allow_pickle": allow_pickle}
    cuts = asdict(Cutting(cut, width_ms, cut_by, width_rows, cut_ahead_ms, mirrored))
    region = {
        "group": group, "group_begin": group_begin, "group_sites": group_sites, "group_place": group_place, "group_peers": group_peers,
        "group_ca": None if group_ca is None else str(group_ca.resolve()),
    }  # fmt: skip
    how = {"replicas": replicas, "take_over": take_over, "availability": availability, "durability": durability}
    found = asked(output, engine, "start", **what, **where, **were, **cuts, **region, **how)
    if not output.as_json:
        output.out.print(f"{found['run']} has started, of dataflow {found['dataflow']}", highlight=False)
    return OK


MARKS: Final = {"same": ("  ", ""), "other": ("~ ", "yellow"), "new": ("+ ", "red"), "gone": ("- ", "red"), "refused": ("! ", "red")}


def compare(
    context: typer.Context,
    file: Annotated[Path, FLOW],
    svg: Annotated[Path | None, typer.Option(help="Also draw it, into this file.", dir_okay=False)] = None,
    run: RunOption = None,
    module: Annotated[list[str] | None, ALLOW] = None,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Say what `evenflow replace` would do with a running dataflow, box by box. Nothing changes.

    The engine's process reads the file, and with --svg this one does. Other options are those of dataflow(), as of `evenflow run`.

    Example: `evenflow compare sessions.py`
    """
    from evenflow.cli.document import network_of, write
    from evenflow.query.draw import to_svg

    output: Output = context.obj
    what = {"file": str(file.resolve()), "arguments": context.args, "modules": module}
    found = asked(output, engine, "compare", **what, run=run)
    if svg is not None:
        marks = {each["box"]: (each["change"], each["why"]) for each in found["boxes"]}
        write(svg, to_svg(network_of(file, module, context.args), marks=marks))
    if not output.as_json:
        for each in found["boxes"]:
            mark, style = MARKS[each["change"]]
            what_ = each["why"] or {"same": "same", "other": "other code"}[each["change"]]
            keeps = ", keeps its state" if each["keeps_state"] and each["change"] == "other" else ""
            output.out.print(f"{mark}{each['box']}: {what_}{keeps}", style=style, highlight=False, soft_wrap=True)
        can = "evenflow replace can do that" if found["possible"] else "this is no version of what runs"
        output.out.print(f"{can}; version {found['version']} runs", highlight=False)
    return OK if found["possible"] else USAGE


def replace(
    context: typer.Context,
    file: Annotated[Path, FLOW],
    version: Annotated[
        int | None, typer.Option(help="Only if this one runs, as `evenflow compare` has told it; 0: as it was started.", min=0)
    ] = None,
    module: Annotated[list[str] | None, ALLOW] = None,
    run: RunOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which it is not wanted any more.", min=0.1)] = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Let a running dataflow go on as another version of itself: the same boxes, of which some do something else, with their state.

    The engine's process reads the file. Other options are those of dataflow(), as of `evenflow run`.

    Example: `evenflow replace sessions.py --packets data/packets`
    """
    output: Output = context.obj
    what_ = {"file": str(file.resolve()), "arguments": context.args, "modules": module, "version": version}
    found = asked(output, engine, "replace", **what_, run=run, timeout_s=timeout)
    if not output.as_json:
        what = (
            f"version {found['version']} of {found['run']} runs from epoch {found['epoch']} on; its new boxes: {', '.join(found['boxes'])}"
        )
        output.out.print(what, highlight=False)
    return OK
