"""`evenflow sql FILE.sql`: the dataflow that a script says, on Spark, until its sources end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from evenflow.cli.options import (
    Availability,
    Balance,
    CheckpointLocation,
    Cut,
    CutAheadMs,
    CutBy,
    DropState,
    Durability,
    FromSavepoint,
    Group,
    GroupBegin,
    GroupCa,
    GroupPeers,
    GroupPlace,
    Json,
    Master,
    Mirrored,
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
from evenflow.cli.output import OK, Output
from evenflow.cli.plan import described
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
from evenflow.errors import QueryError

FILE = typer.Argument(metavar="FILE.sql", help="Statements in Spark's SQL; sources and sinks by CREATE ... USING.", show_default=False)


FUNCTIONS = typer.Option(
    metavar="FILE.py", help="Python file whose functions the statements may call: ef.udf, ef.pandas_udf, ef.Aggregator(), or PySpark's."
)


def sql(
    context: typer.Context,
    file: Annotated[Path, FILE],
    on_error: Annotated[str, typer.Option(help="Rows on which an expression raises: fail ends the run, skip leaves them out.")] = "fail",
    output_mode: Annotated[str, typer.Option(help="When results come: append, update, changelog or complete.")] = "append",
    every: Annotated[str, typer.Option(help="How often the whole result comes in complete mode.")] = "1 second",
    functions: Annotated[Path | None, FUNCTIONS] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Check it, print its boxes and segments, and start nothing.")] = False,
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
    json: Json = False,
) -> int:
    """Run the statements of a file until its sources end, or Ctrl-C.

    A query at the end that goes into no sink is printed, with --json on standard error.

    Example: `evenflow sql examples/hot_items.sql`
    """
    output: Output = context.obj
    check_replicas(sites, replicas)
    check_balance(balance)
    check_availability(availability)
    check_durability(checkpoint_location, durability)
    check_standby(checkpoint_location, standby=standby, take_over=take_over)
    check_savepoint(checkpoint_location, from_savepoint, drop_state)
    cutting = Cutting(cut, width_ms, cut_by, width_rows, cut_ahead_ms, mirrored)
    check_file(file, "a text file with SQL statements")
    from evenflow.query.planner import layout
    from evenflow.query.text import layout_text

    settings = settings_of(context, conf, option)
    flow = flow_of(file, on_error=on_error, output_mode=output_mode, every=every, as_json=json, functions=functions)
    flow = cutting.apply(flow)
    if plan:
        planned = layout(flow.network, sites=sites)
        output.report(described(flow, planned))
        if not output.as_json:
            output.show(f"{flow.to_text()}\n{layout_text(planned)}")
        return OK
    master = master_for(sites, spares, settings) if master is None else master
    request = Request(
        file.stem,
        master,
        sites,
        lambda spark: flow,
        seconds=timeout,
        plain=True,
        replicas=replicas,
        spares=spares,
        balance=balance,
        availability=availability,
        checkpoint_location=checkpoint_location,
        durability=durability,
        take_over=take_over,
        from_savepoint=from_savepoint,
        drop_state=tuple(drop_state or ()),
        group=region_of(group, group_begin, group_place, group_peers, group_ca),
        recording=None if statistics is None else Recording(statistics, output.say),
        recorder=None if record is None else Recorder(record, output.say),
        standby=standby,
        settings=settings,
        ui=ui,
    )
    return execute(request, output)


def flow_of(file: Path, *, on_error: str, output_mode: str, every: str, as_json: bool, functions: Path | None = None) -> Any:
    """The dataflow of a file's statements; rows that go nowhere are printed. functions: a Python file that has those that they call.
    QueryError if it cannot be read, or run."""
    from evenflow.query.script import sql as dataflow_of
    from evenflow.query.user.function import functions_in
    from evenflow.sinks import console
    from evenflow.world.flow_file import load_module

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"cannot read {file}: {error}; give a text file with SQL statements") from error
    if functions is not None and not functions.is_file():
        raise QueryError(f"there is no file {functions}: give a Python file with the functions that the statements call")
    known = None if functions is None else functions_in(load_module(functions))
    try:
        last = dataflow_of(
            text, functions=known, name=file.stem, on_error=cast(Any, on_error), output_mode=cast(Any, output_mode), every=every
        )
    except QueryError as error:
        raise type(error)(f"{file}, {error}") from error
    if last.box in last.flow.network.dangling():
        last.to(console(stream="stderr" if as_json else "stdout"), name="printed")
    return last.flow
