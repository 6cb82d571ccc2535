"""`evenflow bench failover|restart|tables|restore|scaling|wide-area|regions`: something dies or changes, and every row is compared.

One that finds a row lost or repeated fails, whatever else it has measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from evenflow.cli.benching import FirstCome, Out, Quick, bench, finish
from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, Output


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
    from evenflow.bench.failover import broken, run
    from evenflow.cli.demo import example_path
    from evenflow.world.flow_file import load_module

    output: Output = context.obj
    setting = Setting(
        kills=min(kills, 3) if quick else kills, rate=rate, linger_ms=linger, seconds_between=seconds_between, hang=hang,
        spares=0 if no_spare else 1, replicas=replicas, spark_kills=min(spark_kills, 1) if quick else spark_kills,
        calm_s=5.0 if quick else 20.0, seed=seed, unordered=unordered, tabs=tabs, availability=availability,
    )  # fmt: skip
    measured = run(setting=setting, example=load_module(example_path()), quick=quick, say=output.say)
    code = finish({**measured, "seed": seed}, context, out, output)
    return FAILED if measured["failed"] is not None or broken(measured) else code


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
    code = finish({**measured, "seed": seed}, context, out, output)
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
    code = finish({**measured, "seed": seed}, context, out, output)
    bad = sum(facts[name] for facts in measured["tables"].values() for name in ("rows_lost", "rows_repeated", "orphan_commits"))
    return FAILED if bad or measured["stale_drivers_fenced"] < measured["kills_by_manner"].get("stale", 0) else code


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
    code = finish(measured, context, out, output)
    bad = sum(measured.get(name, 0) for name in ("rows_lost", "rows_repeated", "keys_wrong"))
    return FAILED if bad else code


@bench.command()
def scaling(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """Sites that come and go by themselves: three times the load and back, and a sine in which nothing is to change.

    Example: `evenflow bench scaling --quick --json`
    """
    from evenflow.bench.scaling import QUICK, Setting, run

    measured = run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say)
    code = finish(measured, context, out, context.obj)
    bad = [each[name] for each in (measured, measured["sine"]) for name in ("rows_lost", "rows_repeated")]
    return FAILED if any(bad) else code


@bench.command("wide-area")
def wide_area(context: typer.Context, quick: Quick = False, out: Out = None, json: Json = False) -> int:
    """Three clusters on this machine as regions behind 10, 40 and 90 ms: one is cut off and comes back, one dies.

    Example: `evenflow bench wide-area --quick --json`
    """
    from evenflow.bench.wide_area import QUICK, Setting, run

    measured = run(setting=QUICK if quick else Setting(), quick=quick, say=context.obj.say)
    code = finish(measured, context, out, context.obj)
    return FAILED if measured["rows_lost"] + measured["rows_repeated"] else code


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
    code = finish(measured, context, out, output)
    return FAILED if measured["rows_lost"] + measured["rows_repeated"] + measured["rows_wrong"] else code
