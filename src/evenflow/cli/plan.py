"""`evenflow plan FILE.py`: what a dataflow is and how it would be cut, without starting Spark."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.cli.run import FILE
from evenflow.errors import QueryError


def plan(
    context: typer.Context,
    file: Annotated[Path, FILE],
    svg: Annotated[Path | None, typer.Option(help="Also draw it, into this file.", dir_okay=False)] = None,
    sites: Annotated[int, typer.Option(help="Sites to plan for.", min=1)] = 4,
    json: Json = False,
) -> int:
    """Check a query network, print its boxes and segments, draw it. Nothing is started.

    Every other option is passed to the file's `dataflow()` function as a keyword argument.

    Example: `evenflow plan examples/network_sessions.py --svg network.svg`
    """
    from evenflow.query.planner import layout
    from evenflow.world.flow_file import load

    output: Output = context.obj
    user_flow = load(file, context.args)
    if user_flow.needs_spark:
        raise QueryError(f"{file}: dataflow() needs a Spark session, and plan starts none; give its parameter `spark` a default (None)")
    flow = user_flow.build()
    cut = layout(flow.network, sites=sites)
    output.report(described(flow, cut))
    if svg is not None:
        try:
            svg.write_text(flow.to_svg(), encoding="utf-8")
        except OSError as error:
            output.error(QueryError(f"cannot write {svg}: {error.strerror}; give --svg a file in a directory that can be written"))
            return FAILED
    if not output.as_json:
        from evenflow.query.lateness import never_late_text
        from evenflow.query.text import layout_text
        from evenflow.query.thinning import thins_text
        from evenflow.query.units import units_text

        output.show(f"{flow.to_text()}\n{layout_text(cut)}{units_text(flow.network)}")
        output.show(textwrap.indent(never_late_text(flow.network) + thins_text(cut), "  "))
        if svg is not None:
            output.say(f"drawn into {svg}")
    return OK


def described(flow: Any, cut: Any) -> dict[str, Any]:
    """The JSON object of `plan`; its keys are described in docs/cli.md."""
    from evenflow.query.lateness import never_late
    from evenflow.query.units import protected, units
    from evenflow.query.whole import moved_whole
    from evenflow.stream.schema import ddl_of

    boxes = [
        {
            "name": box.name,
            "kind": box.kind,
            "inputs": [{"box": up, "port": port} for up, port in box.inputs],
            "schema": ddl_of(box.schemas[0]) if box.schemas else None,
            "event_time": box.event_time,
        }
        for box in flow.network
    ]
    segments = [
        {
            "id": segment.id,
            "name": segment.name,
            "kind": segment.kind,
            "partitions": segment.partitions,
            "producers": [cut.arcs[arc].producer for arc in segment.inputs],
            "steps": [{"box": step.box, "kind": step.kind} for step in segment.steps],
            "user_code": segment.user_code,
        }
        for segment in cut.segments
    ]
    may_miss = [
        {"box": up, "port": port, "reader": reader, "unit": unit.unit, "columns": list(unit.columns), "because": unit.because or None}
        for ((up, port), reader), unit in units(flow.network).items()
    ]
    return {
        "dataflow": flow.name,
        "boxes": boxes,
        "segments": segments,
        "moved_whole": [found.to_json() for found in moved_whole(cut)],
        "units": may_miss,
        "protected": list(protected(flow.network)),
        "never_shed": list(never_late(flow.network)),
        "thins": [
            {"arc": arc, "from": segments_of[0], "to": segments_of[1], "outputs": list(thin.outputs), "column": thin.column}
            for arc, thin in cut.thins.items()
            for segments_of in [[cut.segments[end].name for end in (cut.arcs[arc].producer, cut.arcs[arc].consumer)]]
        ],
    }
