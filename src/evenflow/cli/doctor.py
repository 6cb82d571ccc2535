"""`evenflow doctor`: what is wrong with a cluster and a store, before a run finds it out."""

from __future__ import annotations

import typer

from evenflow.cli.options import CheckpointLocation, Json, Master, Sites, Spares
from evenflow.cli.output import CLUSTER, OK, Output
from evenflow.cli.running import master_for
from evenflow.cli.settings import PLACEMENT, Conf, Config, Option, settings_of

COLORS = {"error": "red", "warning": "yellow", "fine": "green"}


def doctor(
    context: typer.Context,
    master: Master = None,
    sites: Sites = 4,
    spares: Spares = 0,
    checkpoint_location: CheckpointLocation = None,
    config: Config = None,
    option: Option = None,
    conf: Conf = None,
    json: Json = False,
) -> int:
    """Look at a session, its executors, the network between them, and a store. Each finding has its remedy.

    Exit code 0: nothing stands in the way of a run; 3: something does.

    Example: `evenflow doctor --master spark://host:7077 --sites 4`
    """
    from evenflow.world.spark.cluster.doctor import doctor as look
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    output: Output = context.obj
    settings = settings_of(context, conf, option)
    options = {name: value for name, value in settings.engine.items() if name != PLACEMENT}  # Of what is placed there is nothing yet.
    spark = embedded_session(master_for(sites, spares) if master is None else master, "evenflow doctor", settings.conf)
    try:
        found = look(spark, sites, spares, checkpoint_location, **options)
    finally:
        stop_session(spark)
    output.report(found.to_json())
    if not output.as_json:
        for finding in found.findings:
            remedy = f". {finding.remedy}" if finding.remedy else ""
            output.out.print(f"[{COLORS[finding.severity]}]{finding.severity:8}[/]", end="", markup=True)
            output.out.print(f"{finding.subject}: {finding.what}{remedy}", highlight=False)
    return OK if found.ok else CLUSTER
