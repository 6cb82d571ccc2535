"""What the benchmarks of the command line share: their group, their options, and how what they have measured is given out."""

from __future__ import annotations

import json as json_text
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.output import OK, Output

bench = typer.Typer(help="Measure Evenflow beside Spark Structured Streaming.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Fewer workloads and seconds: a smoke test, no figures to quote.")]
FirstCome = Annotated[bool, typer.Option("--unordered", help="Beside it the same rows, first come, first served (unordered=True).")]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON object into this file.", dir_okay=False)]


def finish(measured: Mapping[str, Any], context: typer.Context, out: Path | None, output: Output) -> int:
    quick = " --quick" if measured["quick"] else ""
    result = {**measured, "command": f"evenflow bench {context.info_name}{_given(context)}{quick}"}
    output.report(result)
    if out is not None:
        out.write_text(json_text.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not output.as_json:
        from evenflow.monitor.benchmark import benchmark_table

        output.out.print(benchmark_table(result))
    return OK


def _given(context: typer.Context) -> str:
    """Options that change what is measured and are not at their defaults, as they are written."""
    text = ""
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in ("quick", "out", "json") or value == option.default:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            text += f" {option.opts[0]}" if each is True else f" {option.opts[0]} {shlex.quote(str(each))}"
    return text
