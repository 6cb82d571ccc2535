"""`evenflow run FILE.py`: the dataflow that a file defines, on Spark, until its sources end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenflow.cli.output import Output
from evenflow.cli.recording import Recording
from evenflow.cli.running import Request, check_balance, check_replicas, execute, master_for

FILE = typer.Argument(metavar="FILE.py", help="A Python file with a function dataflow() that returns an ef.Dataflow.", show_default=False)


def run(
    context: typer.Context,
    file: Annotated[Path, FILE],
    master: Annotated[
        str | None, typer.Option(help="Spark master; default a local-cluster with an executor for each site and spare.")
    ] = None,
    sites: Annotated[int, typer.Option(help="Sites; each takes a task slot on an executor of its own.", min=1)] = 4,
    replicas: Annotated[int, typer.Option(help="Replicas of every partition; 1: no lost executor is survived.", min=1)] = 1,
    spares: Annotated[int, typer.Option(help="Sites that wait for another one's death, each on an executor of its own.", min=0)] = 0,
    balance: Annotated[
        str, typer.Option(help="Policy by which load moves between sites meanwhile: none, evenflow, utilization, ...")
    ] = "none",
    timeout: Annotated[float | None, typer.Option(help="Stop after so many seconds even if the sources have not ended.", min=0.1)] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="Write what each site, partition and box did into this file, a line of JSON a second.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="One line a second and one per event instead of the live view.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")] = False,
) -> int:
    """Run the dataflow of a file until its sources end, or Ctrl-C.

    Every other option is passed to the file's `dataflow()` function as a keyword argument; after `--` all are.

    Example: `evenflow run examples/network_sessions.py --packets packets.parquet --replicas 2 --spares 1`
    """
    from evenflow.cli.module import load

    output: Output = context.obj
    check_replicas(sites, replicas)
    check_balance(balance)
    flow = load(file, context.args)
    if not flow.takes_spark:
        flow.build()  # Mistakes in the query show before Spark takes its time to start.
    master = master_for(sites, spares) if master is None else master
    recording = None if statistics is None else Recording(statistics)
    request = Request(
        file.stem,
        master,
        sites,
        flow.build,
        seconds=timeout,
        plain=plain,
        replicas=replicas,
        spares=spares,
        recording=recording,
        balance=balance,
    )
    return execute(request, output)
