"""`evenflow bench throughput|latency|cost|failover|...`: beside Structured Streaming, on the same cluster and rows."""

from __future__ import annotations

import json as json_text
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.errors import OptionError

bench = typer.Typer(help="Measure Evenflow beside Spark Structured Streaming.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Fewer workloads and seconds: a smoke test, no figures to quote.")]
FirstCome = Annotated[bool, typer.Option("--unordered", help="Beside it the same rows, first come, first served (unordered=True).")]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON object into this file.", dir_okay=False)]


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
    return _finish(run(quick=quick, say=output.say), context, out, output)


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
    return _finish(run(quick=quick, say=output.say), context, out, output)


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
    return _finish(run(quick=quick, say=output.say, only=wanted, before=before), context, out, output)


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

        return _finish(run_against(against, quick=quick, say=context.obj.say), context, out, context.obj)
    if tls:
        from evenflow.bench.encrypted import run
    elif nested:
        from evenflow.bench.nested import run
    else:
        from evenflow.bench.cost import run

    output: Output = context.obj
    return _finish(run(quick=quick, say=output.say), context, out, output)


@bench.command()
def failover(
    context: typer.Context,
    kills: Annotated[int, typer.Option(help="How many executors are killed, one after the other.", min=0)] = 20,
    rate: Annotated[int, typer.Option(help="Packets per second.", min=1)] = 5_000,
    linger: Annotated[float, typer.Option(help="Milliseconds that an epoch waits for rows; less costs more CPU.", min=0.1)] = 20.0,
    seconds_between: Annotated[
        float, typer.Option(help="Seconds from being whole again to the next kill, on average; each is drawn.", min=0.1)
    ] = 2.0,
    hang: Annotated[bool, typer.Option("--hang", help="Stop executors for five seconds (SIGSTOP) instead of killing them.")] = False,
    no_spare: Annotated[bool, typer.Option("--no-spare", help="No warm spare: wait for Spark to start the executor again.")] = False,
    replicas: Annotated[int, typer.Option(help="Replicas of every partition.", min=1)] = 2,
    spark_kills: Annotated[int, typer.Option(help="Kills under Structured Streaming; 0 leaves it out.", min=0)] = 5,
    seed: Annotated[int, typer.Option(help="Of the moments and the sites.")] = 1,
    unordered: FirstCome = False,
    availability: Annotated[
        str | None, typer.Option(help="pairs, passive, upstream or amnesia for all boxes; what it costs over one replica is measured, too.")
    ] = None,
    tabs: Annotated[int, typer.Option(help="So many readers of the engine's page at every other kill: what they change.", min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Three kills and one under Structured Streaming: a smoke test.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """What the output of the demo's query shows of an executor's death: gaps, lost rows, repeated rows.

    By turns, kill -9 of an executor with all its processes, of its JVM alone, and of the site's Python process alone.

    Example: `evenflow bench failover --kills 200 --seconds-between 1 --out failover.json`
    """
    from evenflow.bench.failing import Setting
    from evenflow.bench.failover import run
    from evenflow.cli.demo import example_path
    from evenflow.world.flow_file import load_module

    output: Output = context.obj
    setting = Setting(
        kills=min(kills, 3) if quick else kills, rate=rate, linger_ms=linger, seconds_between=seconds_between, hang=hang,
        spares=0 if no_spare else 1, replicas=replicas, spark_kills=min(spark_kills, 1) if quick else spark_kills,
        calm_s=5.0 if quick else 20.0, seed=seed, unordered=unordered, tabs=tabs, availability=availability,
    )  # fmt: skip
    measured = run(setting=setting, example=load_module(example_path()), quick=quick, say=output.say)
    code = _finish({**measured, "seed": seed}, context, out, output)
    return FAILED if measured["failed"] is not None else code


@bench.command()
def restart(
    context: typer.Context,
    kills: Annotated[int, typer.Option(help="How often the driver is killed with its whole cluster.", min=0)] = 20,
    stale_drivers: Annotated[
        int, typer.Option(help="How many drivers are replaced instead, by turns while they hang and live.", min=0)
    ] = 4,
    on_spark: Annotated[
        int | None,
        typer.Option(
            help="So many generations run on a Spark cluster, the others on bare processes, which start sooner. All, if not given.", min=0
        ),
    ] = None,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 1_000,
    spark_kills: Annotated[int, typer.Option(help="Kills under Structured Streaming; 0 leaves it out.", min=0)] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments and their order.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Two kills, one driver that hangs, one kill of Spark's: a smoke test.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Restarts at a checkpoint location after the loss of driver and cluster: how long they take, and every row compared.

    Example: `evenflow bench restart --kills 20 --out restart.json`
    """
    from evenflow.bench.restart import Setting, run

    output: Output = context.obj
    setting = Setting(
        kills=min(kills, 2) if quick else kills,
        stale_drivers=min(stale_drivers, 1) if quick else stale_drivers,
        rate=rate,
        on_spark=on_spark,
        spark_kills=min(spark_kills, 1) if quick else spark_kills,
        seed=seed,
    )
    measured = run(setting=setting, quick=quick, say=output.say)
    code = _finish({**measured, "seed": seed}, context, out, output)
    bad = measured["rows_lost"] + measured["rows_repeated"] + measured["rows_wrong"]
    return FAILED if bad or measured["stale_drivers_fenced"] < measured["stale_drivers"] else code


@bench.command()
def tables(
    context: typer.Context,
    kills: Annotated[int, typer.Option(help="Executors, all executors, or driver and all, one after the other.", min=0)] = 30,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 1_000,
    commit: Annotated[float, typer.Option(help="Seconds from one commit of a table to the next.", min=0.1)] = 1.0,
    on_spark: Annotated[
        int, typer.Option(help="So many generations run on a Spark cluster, the others on bare processes, which start sooner.", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the moments and their order.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Five kills, one of each kind at least: a smoke test.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Parquet, Delta and Iceberg while executors and drivers are killed: every row and every commit compared.

    Example: `evenflow bench tables --kills 30 --json`
    """
    from evenflow.bench.tables import Setting, run

    output: Output = context.obj
    setting = Setting(kills=min(kills, 5) if quick else kills, rate=rate, on_spark=on_spark, commit_s=commit, seed=seed)
    measured = run(setting=setting, quick=quick, say=output.say)
    code = _finish({**measured, "seed": seed}, context, out, output)
    bad = sum(facts[name] for facts in measured["tables"].values() for name in ("rows_lost", "rows_repeated", "orphan_commits"))
    return FAILED if bad or measured["stale_drivers_fenced"] < measured["kills_by_manner"].get("stale", 0) else code


@bench.command()
def checkpoint(
    context: typer.Context,
    state_mb: Annotated[int, typer.Option(help="State of all keys, once, in millions of bytes.", min=1)] = 1_024,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 50_000,
    every: Annotated[float, typer.Option(help="Seconds from one checkpoint to the next.", min=0.1)] = 10.0,
    turns: Annotated[int, typer.Option(help="How often both are measured, by turns.", min=1)] = 5,
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
    return _finish(run(setting=setting, quick=quick, say=output.say), context, out, output)


@bench.command()
def restore(
    context: typer.Context,
    state_mb: Annotated[int, typer.Option(help="State of all keys, in millions of bytes.", min=1)] = 1_024,
    rate: Annotated[int, typer.Option(help="Rows per second.", min=1)] = 50_000,
    every: Annotated[float, typer.Option(help="Seconds from one checkpoint to the next.", min=0.1)] = 10.0,
    kills: Annotated[int, typer.Option(help="Losses of all executors, and as many of driver and cluster.", min=1)] = 3,
    sites: Annotated[int, typer.Option(help="Executors, or task managers, of each system.", min=1)] = 2,
    only: Annotated[str | None, typer.Option(help="Some of evenflow,flink,spark, with commas between them; all if it is left out.")] = None,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="20 MB, 10,000 rows/s, one loss of each kind: a smoke test.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Seconds until a query with a large state gives results again, beside Flink and Structured Streaming.

    Lost are all executors while the driver lives, and then everything. Flink is fetched when it is first needed.

    Example: `evenflow bench restore --state-mb 100 --kills 1`
    """
    from evenflow.bench.restore import QUICK as SHORT
    from evenflow.bench.restore import Setting, run, systems

    output: Output = context.obj
    whole = Setting(state_mb=state_mb, rate=rate, every_s=every, kills=kills, sites=sites)
    setting = replace(SHORT if quick else whole, only=systems(only), seed=seed)
    measured = run(setting=setting, quick=quick, say=output.say)
    code = _finish(measured, context, out, output)
    bad = sum(measured.get(name, 0) for name in ("rows_lost", "rows_repeated", "keys_wrong"))
    return FAILED if bad else code


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
    code = _finish(measured, context, out, output)
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
    return _finish(run(setting=setting, quick=quick, say=output.say), context, out, output)


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
    return _finish(run(setting=setting_of(queries, quick=quick), quick=quick, say=output.say), context, out, output)


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
    code = _finish(measured, context, out, output)
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
    return _finish(run(only, output.say), context, out, output)


@bench.command()
def overload(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """More comes than sites can do: what is delivered, how old it is, and what it is worth, with rows left out and without.

    Example: `evenflow bench overload --quick --json`
    """
    from evenflow.bench.overload import QUICK, Setting, run

    return _finish(run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say), context, out, context.obj)


@bench.command()
def scaling(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """Sites that come and go by themselves: three times the load and back, and a sine in which nothing is to change.

    Example: `evenflow bench scaling --quick --json`
    """
    from evenflow.bench.scaling import QUICK, Setting, run

    return _finish(run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say), context, out, context.obj)


@bench.command("wide-area")
def wide_area(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """Three clusters on this machine as regions behind 10, 40 and 90 ms: one is cut off and comes back, one dies.

    Example: `evenflow bench wide-area --quick --json`
    """
    from evenflow.bench.wide_area import QUICK, Setting, run

    return _finish(run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say), context, out, context.obj)


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
    code = _finish(measured, context, out, output)
    return code if measured["equal"] == len(measured["queries"]) else FAILED


@bench.command()
def regions(
    context: typer.Context,
    kills: Annotated[int, typer.Option(help="How often the driver that brings the rows is killed with its cluster.", min=0)] = 20,
    cuts: Annotated[int, typer.Option(help="How often the subscriber is cut off from the region that brings the rows.", min=0)] = 20,
    sink: Annotated[str, typer.Option(help="What both regions write to besides: table,parquet,kafka.")] = "table",
    bare: Annotated[bool, typer.Option("--bare", help="Site processes without Spark, which start sooner.")] = False,
    seed: Annotated[int, typer.Option(help="Of the order of events.")] = 1,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Two regions as one run: drivers are killed and cut off by turns; how long a subscriber waits, and every row compared.

    Example: `evenflow bench regions --quick --bare --json`
    """
    from evenflow.bench.regions import Setting, run

    output: Output = context.obj
    sinks = tuple(name.strip() for name in sink.split(",") if name.strip())
    setting = Setting(min(kills, 1) if quick else kills, min(cuts, 1) if quick else cuts, seed=seed, bare=bare, sinks=sinks)
    measured = run(setting, quick=quick, say=output.say)
    code = _finish(measured, context, out, output)
    return FAILED if measured["rows_lost"] + measured["rows_repeated"] + measured["rows_wrong"] else code


def _finish(measured: Mapping[str, Any], context: typer.Context, out: Path | None, output: Output) -> int:
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
