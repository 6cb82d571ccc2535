"""`evenflow sites`, `drain`, `add-sites`, `remove-sites`, `rebalance`, `pin`, `repartition`, `refresh`, `savepoint`, `suspend`, `stop`:
what a person does with an engine that runs elsewhere on this machine, in an `evenflow run` or in a program that has opened its control
port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.monitor.summary import mebibytes, milliseconds, moves_table

Engine = Annotated[
    str | None, typer.Option(metavar="ID", help="Id of the engine, or its control file; may be left out if only one runs here.")
]
Box = Annotated[str, typer.Argument(metavar="BOX", help="Name of the box, as `evenflow plan` prints it.")]
RunOption = Annotated[str | None, typer.Option(metavar="ID", help="Run or dataflow; may be left out if only one is active.")]
CheckpointTimeout = Annotated[
    float, typer.Option(help="Seconds after which a checkpoint that is not whole is waited for no more.", min=0.1)
]
DrainTimeout = Annotated[float, typer.Option(help="Seconds after which the site stays, with what has not moved yet.", min=0.1)]

MOVES_SHOWN: Final = 10


def sites(context: typer.Context, engine: Engine = None, json: Json = False) -> int:
    """Show a running engine's sites, its runs, and what has moved.

    Example: `evenflow sites`
    """
    output: Output = context.obj
    found = asked(output, engine, "sites")
    if not output.as_json:
        _print_sites(output, found)
    return OK


def drain(
    context: typer.Context,
    site: Annotated[int, typer.Argument(metavar="SITE", help="Index of the site, as `evenflow sites` shows it.")],
    timeout: DrainTimeout = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Empty a site and let it go, while everything runs: planned downtime.

    Everything moves to the other sites, then the site ends and its task slot is free. Ctrl-C here does not stop what has begun.

    Example: `evenflow drain 2`
    """
    output: Output = context.obj
    _print_left(output, asked(output, engine, "drain", site=site, timeout_s=timeout))
    return OK


def add_sites(
    context: typer.Context,
    count: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1)],
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for executors and sites; default as the engine was started.")
    ] = None,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Start more sites. `evenflow rebalance` gives them load, unless the engine balances by itself.

    Example: `evenflow add-sites 2`
    """
    output: Output = context.obj
    found = asked(output, engine, "add-sites", count=count, timeout_s=timeout)
    if not output.as_json:
        output.out.print(f"new: {_numbered(found['added'])}", highlight=False)
    return OK


def remove_sites(
    context: typer.Context,
    count: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1)],
    timeout: DrainTimeout = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Drain the sites that host least, and let them go.

    Example: `evenflow remove-sites 1`
    """
    output: Output = context.obj
    _print_left(output, asked(output, engine, "remove-sites", count=count, timeout_s=timeout))
    return OK


def rebalance(
    context: typer.Context,
    timeout: Annotated[float, typer.Option(help="Seconds after which no round of moves begins.", min=0.1)] = 60.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Balance the load of every run now, in a few rounds. `evenflow sites` shows the moves.

    Example: `evenflow rebalance`
    """
    output: Output = context.obj
    found = asked(output, engine, "rebalance", timeout_s=timeout)
    if not output.as_json:
        for run, moves in found["moves"].items():
            output.out.print(f"{run}: {moves} moves" if moves else f"{run}: nothing to move", highlight=False)
        if not found["moves"]:
            output.out.print("no run is active", highlight=False)
    return OK


def pin(
    context: typer.Context,
    box: Box,
    site: Annotated[list[int] | None, typer.Option(help="Bring its replicas to this site first; may be given several times.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition; may be given several times. Without it, all.")] = None,
    run: RunOption = None,
    off: Annotated[bool, typer.Option("--off", help="Let policies move them again.")] = False,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Keep the partitions of a box where they are: no policy moves them.

    Example: `evenflow pin sessions --site 1 --site 3`
    """
    output: Output = context.obj
    if off and site:
        raise typer.BadParameter("says where to pin, and --off is the opposite", param_hint="--site")
    found = asked(output, engine, "pin", box=box, sites=site or None, partitions=partition or None, run=run, off=off)
    if not output.as_json:
        what = "pinned" if found["pinned"] else "no longer pinned"
        moves = f", after {found['moves']} moves" if found["moves"] else ""
        output.out.print(f"box {found['box']} of {found['run']} is {what}{moves}", highlight=False)
    return OK


def repartition(
    context: typer.Context,
    box: Box,
    partitions: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1)],
    run: RunOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which it is not wanted any more.", min=0.1)] = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Divide the state of a keyed box into more partitions, or fewer, while it runs.

    Example: `evenflow repartition sessions 512`
    """
    output: Output = context.obj
    found = asked(output, engine, "repartition", box=box, partitions=partitions, run=run, timeout_s=timeout)
    if not output.as_json:
        what = f"box {found['box']} of {found['run']} has {found['partitions']} partitions; before, it had {found['before']}"
        output.out.print(what, highlight=False)
    return OK


def availability(
    context: typer.Context,
    box: Annotated[str, typer.Argument(metavar="BOX", help="Name of the box; '*': all.", show_default=False)],
    mode: Annotated[str, typer.Argument(metavar="MODE", help="pairs, passive, upstream or amnesia.", show_default=False)],
    run: RunOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which it is not wanted any more.", min=0.1)] = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Give a box another mode of availability, while it runs: what it does so that a lost site costs little.

    Example: `evenflow availability sessions amnesia`
    """
    output: Output = context.obj
    found = asked(output, engine, "availability", box=box, mode=mode, run=run, timeout_s=timeout)
    if not output.as_json:
        changed = ", ".join(found["modes"]) or "nothing that was not so"
        output.out.print(f"from epoch {found['epoch']} on, {found['run']} has {found['mode']} for {changed}", highlight=False)
    return OK


def savepoint(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Empty directory or URL; relative to where the engine runs.")],
    run: RunOption = None,
    timeout: CheckpointTimeout = 120.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Make a savepoint of a running dataflow, which goes on: a checkpoint in a folder of its own, to start from at another location.

    Example: `evenflow savepoint /backup/sessions-before-upgrade`
    """
    output: Output = context.obj
    found = asked(output, engine, "savepoint", target=target, run=run, timeout_s=timeout)
    if not output.as_json:
        what = f"savepoint {found['location']}: epoch {found['epoch']}, {found['objects']} objects, {mebibytes(found['bytes'])}"
        output.out.print(what, highlight=False, soft_wrap=True)
    return OK


def suspend(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(metavar="[TARGET]", help="Also make a savepoint there.")] = None,
    run: RunOption = None,
    timeout: CheckpointTimeout = 120.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Make a last checkpoint and end the run. No window is closed; who goes on at its location goes on exactly where its sinks stand.

    Example: `evenflow suspend`
    """
    output: Output = context.obj
    found = asked(output, engine, "suspend", target=target, run=run, timeout_s=timeout)
    if not output.as_json:
        saved = "" if found["savepoint"] is None else f"; savepoint {found['savepoint']}"
        what = f"{found['run']} is suspended behind epoch {found['epoch']}, checkpoint {found['generation']}.{found['number']}{saved}"
        output.out.print(what, highlight=False, soft_wrap=True)
    return OK


def stop(
    context: typer.Context,
    drain: Annotated[bool, typer.Option("--drain", help="Take no more input, and finish what has been taken in.")] = False,
    run: RunOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds for which it may finish what has been taken in.", min=0.1)] = 60.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """End a run. Results under way are dropped; no sink gets part of an epoch. At a checkpoint location it can be started again.

    Exit code 1: it had failed, or was to be drained and had not finished in time.

    Example: `evenflow stop --run sessions --drain`
    """
    output: Output = context.obj
    found = asked(output, engine, "stop", drain=drain, run=run, timeout_s=timeout)
    if not output.as_json:
        why = "" if found["error"] is None else f": {found['error']}"
        if not why and drain and not found["drained"]:
            why = ", and is not drained: it had not finished in time, and what was under way is dropped"
        output.out.print(f"{found['run']} has ended behind epoch {found['epoch']}{why}", highlight=False, soft_wrap=True)
    return OK if found["error"] is None and found["drained"] == drain else FAILED


def refresh(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Name of the table; may be left out if there is only one.")] = None,
    run: RunOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for it.", min=0.1)] = 300.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Read a refreshed table now: streams are joined with what it has from one epoch on.

    Example: `evenflow refresh shops`
    """
    output: Output = context.obj
    found = asked(output, engine, "refresh", table=table, run=run, timeout_s=timeout)
    if not output.as_json:
        what = f"has {found['rows']:,} rows from epoch {found['epoch']} on" if found["changed"] else f"is as it was, {found['rows']:,} rows"
        output.out.print(f"table {found['table']} of {found['run']} {what}", highlight=False)
    return OK


def asked(output: Output, engine: str | None, what: str, **given: Any) -> Mapping[str, Any]:
    from evenflow.world.spark.driver.control_client import ask, find

    found = ask(find(engine), what, output.say, **given)
    output.report(found)
    return found


def _print_sites(output: Output, found: Mapping[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    now = f", {found['under_way']}" if found["under_way"] else ""
    output.out.print(f"engine {found['engine']} on {found['master']}{now}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("site", "role", "executor", "host", "partitions", "busy", "memory"):
        table.add_column(heading, justify="left" if heading in ("role", "host") else "right")
    for site in found["sites"]:
        partitions = f"{site['partitions']:,}" + (f" (+{site['coming']:,})" if site["coming"] else "")
        cells = (str(site["site"]), site["role"], str(site["executor"]), site["host"], partitions, f"{site['utilization']:.0%}")
        table.add_row(*cells, mebibytes(site["pss_bytes"] or site["rss_bytes"]))
    output.out.print(table)
    for waiting in found["standby"]:
        output.out.print(
            f"stands by for {waiting['dataflow']} at {waiting['location']}: generation {waiting['generation']}, last sign of life "
            f"{waiting['silent_s']:.1f} s ago",
            highlight=False,
            soft_wrap=True,
        )
    for run in found["runs"]:
        if run.get("state", "live") != "live":
            why = "" if run["error"] is None else f": {run['error']}"
            output.out.print(f"{run['run']}: {run['state']}{why}", highlight=False, soft_wrap=True)
            continue
        output.out.print(
            f"{run['run']}: redundancy {run['redundancy']} of {run['replicas']}, in {run['rows_in_per_s']:,.0f}/s, "
            f"p99 {milliseconds(run['p99_ms'])}, {len(run['moves'])} moves",
            highlight=False,
        )
        if run["moves"]:
            output.out.print(moves_table(run["moves"][-MOVES_SHOWN:]))


def _print_left(output: Output, found: Mapping[str, Any]) -> None:
    if output.as_json:
        return
    for left in found["left"]:
        how = "was lost before it was empty" if left["lost"] else "has left"
        output.out.print(
            f"site {left['site']} (executor {left['executor']}) {how} after {left['seconds']:.1f} s: {left['moves']} moves, "
            f"{left['partitions']} replicas, {mebibytes(left['bytes'])}, longest stall {milliseconds(left['stall_ms'])} at most",
            highlight=False,
        )


def _numbered(sites: Sequence[int]) -> str:
    return ", ".join(f"site {site}" for site in sites) or "none"
