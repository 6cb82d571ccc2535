"""`evenflow subscribe REGION...`: the rows of a stream sink, from whichever of the regions is there."""

from __future__ import annotations

import json as text_of_json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import INTERRUPTED, OK, Output, error_object, exit_code_of
from evenflow.cli.running import until_interrupted
from evenflow.errors import EvenflowError

LOOK_S: Final = 0.5


def subscribe(
    context: typer.Context,
    regions: Annotated[list[str], typer.Argument(metavar="HOST:PORT...", help="Ports of the stream sinks, the nearest region first.")],
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The group that the regions must be of; default any, all the same.")
    ] = None,
    sink: Annotated[str | None, typer.Option(metavar="NAME", help="The sink that must be at the ports.")] = None,
    after: Annotated[
        int | None, typer.Option(metavar="EPOCH", help="The last epoch that was taken; 0: all; default what comes now.", min=0)
    ] = None,
    race: Annotated[bool, typer.Option("--race", help="Rows from all regions at once, the first copy counts.")] = False,
    secret_file: Annotated[Path | None, typer.Option(help="File with the secret; default EVENFLOW_STREAM_SECRET.", dir_okay=False)] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="The authority of the regions' certificates, in PEM.", dir_okay=False)] = None,
    patience: Annotated[float, typer.Option(help="Seconds for which no region may be there.", min=0.1)] = 60.0,
    epochs: Annotated[int | None, typer.Option(help="End after so many epochs with rows.", min=1)] = None,
    timeout: Annotated[float | None, typer.Option(help="End after so many seconds.", min=0.1)] = None,
    limit: Annotated[int, typer.Option(help="Rows shown of each epoch.", min=1)] = 20,
    lines: Annotated[bool, typer.Option("--lines", help="A line of JSON for each row on standard output, with its _epoch.")] = False,
    json: Json = False,
) -> int:
    """Read what regions finish, each epoch once and in order. Needs neither Spark nor Java. With --json all rows are in one object.

    Exit code 130: Ctrl-C has ended it. The object has what had come by then, and so it has if it ends with an error.

    Example: `evenflow subscribe localhost:4001 localhost:4002 --after 0`
    """
    from evenflow.sinks.callback import table_text
    from evenflow.world.locations.looking import said as plain
    from evenflow.world.spark.regions.subscriber import subscribe as subscribed

    output: Output = context.obj
    if lines and json:
        raise typer.BadParameter("prints one thing and --json another", param_hint="--lines")
    secret, authority = (None if path is None else str(path) for path in (secret_file, tls_ca))
    until_s = None if timeout is None else time.monotonic() + timeout
    kept: list[dict[str, Any]] = []
    count = rows = 0
    failure: EvenflowError | None = None
    asking = subscribed(regions, group, sink, after=after, race=race, secret_file=secret, tls_ca=authority, patience_s=patience)
    # Between two epochs, so that what is told as delivered has been printed, or is in the object.
    with asking as subscriber, until_interrupted() as interrupt:
        while not (subscriber.ended or interrupt.is_set()) and (epochs is None or count < epochs):
            left_s = LOOK_S if until_s is None else min(LOOK_S, until_s - time.monotonic())
            if left_s <= 0:
                break
            try:
                taken = subscriber.take(left_s)
            except EvenflowError as error:
                failure = error
                break
            if taken is None:
                continue
            epoch, batch = taken
            count, rows = count + 1, rows + batch.num_rows
            if not (lines or output.as_json):
                print(table_text(epoch, batch, limit), flush=True)
                continue
            told = [{"_epoch": epoch, **plain(row)} for row in batch.to_pylist()]
            if output.as_json:
                kept += told
            else:
                sys.stdout.writelines(text_of_json.dumps(row) + "\n" for row in told)
                sys.stdout.flush()
        interrupted = interrupt.is_set()
        said = {"epochs": count, "rows": rows, "ended": subscriber.ended, "interrupted": interrupted, **subscriber.progress()}
    output.say(f"{count:,} epochs, {rows:,} rows, behind epoch {said['delivered']}")
    if failure is not None:
        output.error(failure)
        output.report({"error": error_object(failure), **said, "output": kept})
        return exit_code_of(failure)
    output.report({**said, "output": kept})
    return INTERRUPTED if interrupted else OK
