"""`evenflow bench throughput|latency|cost|...`: beside Structured Streaming, on the same cluster and rows."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from typing import Annotated

import typer

from evenflow.cli import bench_losses
from evenflow.cli.benching import FirstCome, Out, Quick, bench, finish
from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, Output
from evenflow.errors import OptionError


@bench.command()
def throughput(
    context: typer.Context,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Rows per second: grouped aggregation, row windows, and the exchange alone.

    Example: `evenflow bench throughput --quick --json`
    """
    from evenflow.bench.throughput import run

    output: Output = context.obj
    return finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def latency(
    context: typer.Context,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Milliseconds from source to sink at a set rate.

    Example: `evenflow bench latency --out latency.json`
    """
    from evenflow.bench.latency import run

    output: Output = context.obj
    return finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def dashboard(
    context: typer.Context,
    only: Annotated[
        str | None,
        typer.Option(help="Some of driver,progress,check,ui,browser, with commas between them; a file of --out keeps the others."),
    ] = None,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """What it costs to be looked at: driver, server with fifty readers, browser; 200 boxes, 1,000 partitions, 100 sites.

    Example: `evenflow bench dashboard --json`
    """
    from evenflow.bench.dashboard import PARTS, run

    output: Output = context.obj
    wanted = PARTS if only is None else tuple(part.strip() for part in only.split(","))
    if not wanted or not set(wanted) <= set(PARTS):
        raise typer.BadParameter(f"the parts are {', '.join(PARTS)}", param_hint="--only")
    before = None
    if only is not None and out is not None and out.exists():
        try:
            before = json_text.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise typer.BadParameter(f"{out} has no JSON to which a part could be added", param_hint="--out") from None
    return finish(run(quick=quick, say=output.say, only=wanted, before=before), context, out, output)


@bench.command()
def cost(
    context: typer.Context,
    tls: Annotated[bool, typer.Option("--tls", help="What TLS between sites and driver adds, by turns with none.")] = False,
    nested: Annotated[bool, typer.Option("--nested", help="What structures and lists cost beside flat columns of the same bytes.")] = False,
    against: Annotated[
        str | None, typer.Option(metavar="REV", help="The price of an epoch in this working tree over that in another commit, by turns.")
    ] = None,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """What Evenflow itself costs: CPU per epoch and per row, idle, memory, time to the first result.

    Example: `evenflow bench cost --json`
    """
    if sum((tls, nested, against is not None)) > 1:
        raise OptionError("--tls, --nested and --against are measurements of their own; ask for one at a time")
    if against is not None:
        from evenflow.bench.against import run as run_against

        return finish(run_against(against, quick=quick, say=context.obj.say), context, out, context.obj)
    if tls:
        from evenflow.bench.encrypted import run
    elif nested:
        from evenflow.bench.nested import run
    else:
        from evenflow.bench.cost import run

    output: Output = context.obj
    return finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def checkpoint(
    context: typer.Context,
    state_mb: Annotated[int, typer.Option(help="State of all keys, once, in millions of bytes.", min=1)] = 1_024,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 50_000,
    every: Annotated[float, typer.Option(help="Seconds from one checkpoint to the next.", min=0.1)] = 10.0,
    turns: Annotated[int, typer.Option(help="How often both are measured, by turns.", min=1)] = 6,
    quick: Annotated[bool, typer.Option("--quick", help="50 MB, 10,000 rows/s, one turn: a smoke test, no figures to quote.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """What checkpoints cost while rows keep coming, by turns with none: latency, gaps in the output, CPU, bytes.

    Example: `evenflow bench checkpoint --state-mb 100 --out checkpoint.json`
    """
    from evenflow.bench.checkpoint import QUICK as SHORT
    from evenflow.bench.checkpoint import Setting, run

    output: Output = context.obj
    setting = SHORT if quick else replace(Setting(), state_mb=state_mb, rate=rate, every_s=every, turns=turns, turn_s=3 * every)
    return finish(run(setting=setting, quick=quick, say=output.say), context, out, output)


@bench.command()
def skew(
    context: typer.Context,
    ramp: Annotated[bool, typer.Option("--ramp", help="Also search at set rates what each system sustains; takes minutes more.")] = False,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Keys of drifting popularity and one slow executor: without balancing, with it, and under Structured Streaming.

    With --out, a plot over time is written beside the object.

    Example: `evenflow bench skew --out skew.json`
    """
    from evenflow.bench.skew import QUICK as SHORT
    from evenflow.bench.skew import Setting, run
    from evenflow.experiments.result.drawing import HOW_TO_INSTALL, can_draw, draw
    from evenflow.experiments.result.skew_chart import chart_of

    output: Output = context.obj
    measured = run(setting=replace(SHORT if quick else Setting(), ramped=ramp), quick=quick, say=output.say)
    code = finish(measured, context, out, output)
    if out is not None and can_draw():
        draw(chart_of(measured), out.with_suffix(".svg"))
    elif out is not None:
        output.say(f"no plot was drawn: {HOW_TO_INSTALL}")
    return code


@bench.command()
def moves(
    context: typer.Context,
    moves: Annotated[int, typer.Option(help="How many partitions change their site, one after the other.", min=1)] = 24,
    keys: Annotated[int, typer.Option(help="Keys of each partition, each with 64 bytes of state.", min=1)] = 160_000,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 8_000,
    unordered: FirstCome = False,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """What the output shows of moves of some 10 MB: gaps of the partition that moves, and of the others.

    Example: `evenflow bench moves --out moves.json`
    """
    from evenflow.bench.moves import QUICK as SHORT
    from evenflow.bench.moves import Moving, run

    output: Output = context.obj
    setting = replace(SHORT if quick else replace(Moving(), moves=moves, keys=keys, rate=rate), unordered=unordered)
    return finish(run(setting=setting, quick=quick, say=output.say), context, out, output)


@bench.command()
def nexmark(
    context: typer.Context,
    queries: Annotated[str | None, typer.Option(help="Some of q0 .. q22, such as q3,q7; all if it is left out.")] = None,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """The 23 Nexmark queries: rows per second, latency, and whether the answers are those of batch Spark SQL.

    Example: `evenflow bench nexmark --queries q5,q20 --json`
    """
    from evenflow.bench.nexmark import run, setting_of

    output: Output = context.obj
    return finish(run(setting=setting_of(queries, quick=quick), quick=quick, say=output.say), context, out, output)


@bench.command()
def corpus(
    context: typer.Context,
    only: Annotated[str | None, typer.Option(help="Only queries whose name has this text, such as 'dates'.")] = None,
    out: Out = None,
    json: Json = False,
) -> int:
    """How many of a list of ordinary queries port by their last line, and equal batch Spark.

    Example: `evenflow bench corpus --only sessions --json`
    """
    from evenflow.bench.corpus import named
    from evenflow.bench.corpus.running import run

    output: Output = context.obj
    measured = run(named(only), output.say)
    code = finish(measured, context, out, output)
    return FAILED if measured["different"] else code


@bench.command()
def functions(
    context: typer.Context,
    only: Annotated[str | None, typer.Option(help="Only of functions, or groups of them, whose name has this text, such as 'url'.")] = None,
    out: Out = None,
    json: Json = False,
) -> int:
    """How many of Spark's own documented examples of scalar functions give here what batch Spark gives.

    Example: `evenflow bench functions --only datetime --json`
    """
    from evenflow.bench.functions import run

    output: Output = context.obj
    return finish(run(only, output.say), context, out, output)


@bench.command()
def overload(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """More comes than sites can do: what is delivered, how old it is, and what it is worth, with rows left out and without.

    Example: `evenflow bench overload --quick --json`
    """
    from evenflow.bench.overload import QUICK, Setting, run

    return finish(run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say), context, out, context.obj)


@bench.command()
def tpch(
    context: typer.Context,
    scale: Annotated[float, typer.Option(help="Of the tables: 1 is a gigabyte, 6 million lines.")] = 0.1,
    only: Annotated[list[str] | None, typer.Option(help="Only this query, such as q18; several times.")] = None,
    out: Out = None,
    json: Json = False,
) -> int:
    """TPC-H's 22 queries as maintained views over inserts, updates and deletes, compared with batch Spark after every tenth.

    Example: `evenflow bench tpch --scale 0.01 --only q18 --json`
    """
    from evenflow.bench.tpch.running import run

    output: Output = context.obj
    measured = run(tuple(only or ()), scale, output.say)
    code = finish(measured, context, out, output)
    return code if measured["equal"] == len(measured["queries"]) else FAILED


__all__ = ["bench", "bench_losses"]
