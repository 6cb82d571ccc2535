"""`evenflow run FILE.py`: the dataflow that a file defines, on Spark, until its sources end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenflow.cli.output import Output
from evenflow.cli.running import MASTER, Request, execute

FILE = typer.Argument(metavar="FILE.py", help="A Python file with a function dataflow() that returns an ef.Dataflow.", show_default=False)


def run(
    context: typer.Context,
    file: Annotated[Path, FILE],
    master: Annotated[str, typer.Option(help="Spark master. local-cluster[executors,cores,MiB] is started for the run.")] = MASTER,
    sites: Annotated[int, typer.Option(help="Sites; each takes a task slot on an executor of its own.", min=1)] = 4,
    timeout: Annotated[float | None, typer.Option(help="Stop after so many seconds even if the sources have not ended.", min=0.1)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="One line a second instead of the live view.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")] = False,
) -> int:
    """Run the dataflow of a file until its sources end, or Ctrl-C.

    Every other option is passed to the file's `dataflow()` function as a keyword argument; after `--` all are.

    Example: `evenflow run examples/network_sessions.py --packets packets.parquet --sites 4`
    """
    from evenflow.cli.module import load

    output: Output = context.obj
    flow = load(file, context.args)
    if not flow.takes_spark:
        flow.build()  # Mistakes in the query show before Spark takes its time to start.
    return execute(Request(file.stem, master, sites, flow.build, seconds=timeout, plain=plain), output)
