"""`evenflow run FILE.py`: the dataflow that a file defines, on Spark, until its sources end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenflow.cli.options import (
    AllowPickle,
    Availability,
    Balance,
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
    Json,
    Master,
    Mirrored,
    Plain,
    Record,
    Replicas,
    Sites,
    Spares,
    Standby,
    Statistics,
    TakeOver,
    Timeout,
    Ui,
    WidthMs,
    WidthRows,
)
from evenflow.cli.output import Output
from evenflow.cli.recording import Recorder, Recording
from evenflow.cli.running import (
    Cutting,
    Request,
    check_availability,
    check_balance,
    check_durability,
    check_file,
    check_replicas,
    check_savepoint,
    check_standby,
    execute,
    master_for,
    region_of,
)
from evenflow.cli.settings import Conf, Config, Option, settings_of

FILE = typer.Argument(metavar="FILE.py", help="A Python file with a function dataflow() that returns an ef.Dataflow.", show_default=False)


def run(
    context: typer.Context,
    file: Annotated[Path, FILE],
    master: Master = None,
    sites: Sites = 4,
    replicas: Replicas = 1,
    spares: Spares = 0,
    balance: Balance = "none",
    availability: Availability = "pairs",
    timeout: Timeout = None,
    checkpoint_location: CheckpointLocation = None,
    durability: Durability = None,
    take_over: TakeOver = False,
    standby: Standby = False,
    from_savepoint: FromSavepoint = None,
    drop_state: DropState = None,
    earlier: Earlier = None,
    allow_pickle: AllowPickle = False,
    cut: Cut = None,
    width_ms: WidthMs = None,
    cut_by: CutBy = None,
    width_rows: WidthRows = None,
    cut_ahead_ms: CutAheadMs = None,
    mirrored: Mirrored = False,
    group: Group = None,
    group_begin: GroupBegin = None,
    group_place: GroupPlace = 0,
    group_peers: GroupPeers = None,
    group_ca: GroupCa = None,
    statistics: Statistics = None,
    record: Record = None,
    config: Config = None,
    option: Option = None,
    conf: Conf = None,
    ui: Ui = None,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Run the dataflow of a file until its sources end, or Ctrl-C. With a checkpoint location, start it again after whatever ended it,
    and it goes on.

    Every other option is passed to the file's `dataflow()` function as a keyword argument; after `--` all are.

    Example: `evenflow run examples/network_sessions.py --packets packets.parquet --replicas 2 --spares 1`
    """
    output: Output = context.obj
    settings = settings_of(context, conf, option)
    check_replicas(sites, replicas)
    check_balance(balance)
    check_availability(availability)
    check_durability(checkpoint_location, durability)
    check_standby(checkpoint_location, standby=standby, take_over=take_over)
    check_savepoint(checkpoint_location, from_savepoint, drop_state)
    region = region_of(group, group_begin, group_place, group_peers, group_ca)
    cutting = Cutting(cut, width_ms, cut_by, width_rows, cut_ahead_ms, mirrored)
    check_file(file, "the path of a Python file that defines dataflow()")
    from evenflow.world.flow_file import load

    flow = load(file, [*settings.dataflow, *context.args])
    were = [load(each, [*settings.dataflow, *context.args]) for each in earlier or ()]
    if not flow.takes_spark:
        cutting.apply(flow.build())  # Mistakes in the query show before Spark takes its time to start.
    master = master_for(sites, spares, settings) if master is None else master
    recording = None if statistics is None else Recording(statistics, output.say)
    recorder = None if record is None else Recorder(record, output.say)
    request = Request(
        file.stem,
        master,
        sites,
        lambda spark: cutting.apply(flow.build(spark)),
        seconds=timeout,
        plain=plain,
        group=region,
        replicas=replicas,
        spares=spares,
        recording=recording,
        recorder=recorder,
        balance=balance,
        availability=availability,
        checkpoint_location=checkpoint_location,
        durability=durability,
        take_over=take_over,
        from_savepoint=from_savepoint,
        drop_state=tuple(drop_state or ()),
        earlier=lambda spark: tuple(cutting.apply(each.build(spark)) for each in were),
        allow_pickle=allow_pickle,
        standby=standby,
        settings=settings,
        ui=ui,
    )
    return execute(request, output)
