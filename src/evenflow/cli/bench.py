"""`evenflow bench throughput|latency`: measured beside Structured Streaming, on the same cluster and the same rows."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.output import OK, Output

bench = typer.Typer(help="Measure Evenflow beside Spark Structured Streaming.", no_args_is_help=True)

QUICK = typer.Option("--quick", help="Fewer workloads and seconds: a smoke test, no figures to quote.")
OUT = typer.Option(help="Also write the JSON object into this file.", dir_okay=False)
JSON = typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")


@bench.command()
def throughput(
    context: typer.Context,
    quick: Annotated[bool, QUICK] = False,
    out: Annotated[Path | None, OUT] = None,
    json: Annotated[bool, JSON] = False,
) -> int:
    """Rows per second: grouped aggregation, row windows, and the exchange alone.

    Example: `evenflow bench throughput --quick --json`
    """
    from evenflow.bench.throughput import run

    output: Output = context.obj
    return _finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def latency(
    context: typer.Context,
    quick: Annotated[bool, QUICK] = False,
    out: Annotated[Path | None, OUT] = None,
    json: Annotated[bool, JSON] = False,
) -> int:
    """Milliseconds from source to sink at a set rate.

    Example: `evenflow bench latency --out latency.json`
    """
    from evenflow.bench.latency import run

    output: Output = context.obj
    return _finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def cost(
    context: typer.Context,
    quick: Annotated[bool, QUICK] = False,
    out: Annotated[Path | None, OUT] = None,
    json: Annotated[bool, JSON] = False,
) -> int:
    """What Evenflow itself costs: CPU per epoch and per row, idle, memory, time to the first result.

    Example: `evenflow bench cost --json`
    """
    from evenflow.bench.cost import run

    output: Output = context.obj
    return _finish(run(quick=quick, say=output.say), context, out, output)


def _finish(measured: Mapping[str, Any], context: typer.Context, out: Path | None, output: Output) -> int:
    quick = " --quick" if measured["quick"] else ""
    result = {**measured, "command": f"evenflow bench {context.info_name}{quick}"}
    output.report(result)
    if out is not None:
        out.write_text(json_text.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not output.as_json:
        from evenflow.monitor.benchmark import benchmark_table

        output.out.print(benchmark_table(result))
    return OK
