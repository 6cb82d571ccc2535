"""`evenflow checkpoints list|inspect|state|verify|rm|export LOCATION`: what a checkpoint location has, without Spark and the program; and
`take`, which asks a running engine for one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from evenflow.cli.operate import CheckpointTimeout, Engine, RunOption, asked
from evenflow.cli.options import Json
from evenflow.cli.output import FAILED, OK, Output
from evenflow.cli.run import FILE
from evenflow.errors import QueryError
from evenflow.monitor.summary import DASH, grouped, mebibytes

if TYPE_CHECKING:
    from evenflow.world.locations.checkpoints import Checkpoints
    from evenflow.world.locations.inspecting import Inspected
    from evenflow.world.locations.kept import Checkpoint

SAID_EVERY_S: Final = 1.0
STYLES: Final = {"new": "dim", "stateless": "dim", "dropped": "yellow", "without a box": "red", "changed": "red"}
checkpoints = typer.Typer(help="Look at the checkpoints of a location, prove them, remove or export one.", no_args_is_help=True)

LOCATION = typer.Argument(metavar="LOCATION", help="Directory or URL of a checkpoint location or a savepoint.", show_default=False)
Where = Annotated[str, LOCATION]
NAMED: Final = "Number of the checkpoint, or GENERATION.NUMBER"
Which = Annotated[str | None, typer.Argument(metavar="[NUMBER]", help=f"{NAMED}; without it the newest that is whole.")]


@checkpoints.command("list")
def list_(context: typer.Context, location: Where, json: Json = False) -> int:
    """Show which checkpoints there are, and which of them are whole. Reads the journal and a listing.

    Example: `evenflow checkpoints list /shared/locations/sessions`
    """
    output: Output = context.obj
    found = _at(location)
    there = found.list()
    output.report([each.to_json() for each in there])
    if not output.as_json:
        output.out.print(f"{found.dataflow}, run {found.run}", highlight=False, soft_wrap=True)
        output.out.print(_table(there) if there else "no checkpoints")
        _print_wrong(output, there)
    return OK


@checkpoints.command()
def inspect(context: typer.Context, location: Where, number: Which = None, json: Json = False) -> int:
    """Show what a checkpoint has: partitions, rows, bytes and watermark by box, and positions of the sources.

    Example: `evenflow checkpoints inspect s3://bucket/sessions 12`
    """
    output: Output = context.obj
    found = _chosen(output, location, number).inspect(number)
    output.report(found.to_json())
    if not output.as_json:
        _print_inspected(output, found)
    return OK


@checkpoints.command()
def verify(
    context: typer.Context,
    location: Where,
    number: Annotated[str | None, typer.Argument(metavar="[NUMBER]", help=f"{NAMED}; without it all.")] = None,
    json: Json = False,
) -> int:
    """Read every object, and rows that a restart replays where no source gives them again or Spark has written them, and compare them
    with what was written.
    Exit code 0: all of them are whole; 1: something is missing or altered, or there is no checkpoint.

    Example: `evenflow checkpoints verify /shared/locations/sessions && echo whole`
    """
    output: Output = context.obj
    found = _at(location).verify(number, _slowly(output))
    output.report(found.to_json())
    if not output.as_json:
        for fault in found.faults:
            output.out.print(fault.text, highlight=False, soft_wrap=True)
        wrong = len({fault.object for fault in found.faults})
        verdict = "whole" if found.whole else f"{_count(wrong)} {'is' if wrong == 1 else 'are'} wrong"
        text = f"checkpoints {', '.join(found.checkpoints)}: {_count(found.objects)}, {_size(found.bytes)}: {verdict}"
        output.out.print(text if found.checkpoints else "there is no checkpoint to begin with", highlight=False, soft_wrap=True)
    return OK if found.whole else FAILED


@checkpoints.command()
def rm(
    context: typer.Context,
    location: Where,
    number: Annotated[str, typer.Argument(metavar="NUMBER", help=f"{NAMED}.")],
    force: Annotated[bool, typer.Option("--force", help="Also the newest one, with which a restart would begin.")] = False,
    json: Json = False,
) -> int:
    """Delete a checkpoint. What other checkpoints name stays; what a restart or a driver needs is refused.

    Example: `evenflow checkpoints rm /shared/locations/sessions 11`
    """
    output: Output = context.obj
    freed = _at(location).remove(number, force=force)
    output.report({"number": number, "freed_bytes": freed})
    if not output.as_json:
        output.out.print(f"checkpoint {number} is removed: {_size(freed)} are free", highlight=False)
    return OK


@checkpoints.command()
def take(
    context: typer.Context,
    run: RunOption = None,
    timeout: CheckpointTimeout = 120.0,
    engine: Engine = None,
    json: Json = False,
) -> int:
    """Let a running dataflow make a checkpoint now, and wait until it is whole.

    Example: `evenflow checkpoints take --run sessions`
    """
    output: Output = context.obj
    found = asked(output, engine, "checkpoint", run=run, timeout_s=timeout)
    if not output.as_json:
        what = f"checkpoint {found['generation']}.{found['number']} of {found['run']}: epoch {found['epoch']}, {_size(found['bytes'])}"
        output.out.print(what, highlight=False, soft_wrap=True)
    return OK


@checkpoints.command()
def export(
    context: typer.Context,
    location: Where,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Empty directory or URL for the savepoint.")],
    number: Which = None,
    json: Json = False,
) -> int:
    """Copy one checkpoint to a folder of its own, as a savepoint: with all that is needed to start from it at another location.

    What was broken off goes on when it is asked for again.

    Example: `evenflow checkpoints export /shared/locations/sessions s3://bucket/before-upgrade`
    """
    output: Output = context.obj
    made = _chosen(output, location, number).export(target, number, say=_slowly(output))
    output.report(made.to_json())
    if not output.as_json:
        what = f"savepoint {made.location}: epoch {made.epoch}, {_count(made.objects)}, {_size(made.bytes)}"
        output.out.print(what, highlight=False, soft_wrap=True)
    return OK


@checkpoints.command()
def state(
    context: typer.Context,
    location: Where,
    box: Annotated[str, typer.Argument(metavar="BOX", help="Name of the box, as inspect shows it.", show_default=False)],
    checkpoint: Annotated[str | None, typer.Option(help=f"{NAMED}; without it the newest that is whole.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of which step of the box, where inspect shows several.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Parquet with the key columns, where the state has not kept them.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="So many rows at most; 0: all.")] = 20,
    json: Json = False,
) -> int:
    """Show the rows that a box keeps in a checkpoint. They are read into memory; `ef.read_state` gives a DataFrame of any state.

    Example: `evenflow checkpoints state /shared/locations/sessions visits --limit 5`
    """
    from evenflow.world.locations.looking import shown

    output: Output = context.obj
    found = _chosen(output, location, checkpoint)
    given = None if keys is None else _parquet(keys)
    # One row more than is shown says whether there are more.
    table = found.state(box, checkpoint, kind=kind, limit=limit + 1 if limit else None, keys=given)
    made = shown(box, table, limit)
    output.report(made)
    if not output.as_json:
        print_state(output, made, limit)
    return OK


@checkpoints.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def compare(
    context: typer.Context,
    location: Where,
    file: Annotated[Path, FILE],
    number: Annotated[str | None, typer.Option(help=f"{NAMED}; without it the newest that is whole.")] = None,
    drop_state: Annotated[list[str] | None, typer.Option(metavar="BOX", help="As of evenflow run; several times.")] = None,
    json: Json = False,
) -> int:
    """Show what keeps its state if a changed program starts from a savepoint. Exit code 0: it can start; 1: something is in the way.

    Every other option is passed to the file's `dataflow()` function as a keyword argument, as by `evenflow run`.

    Example: `evenflow checkpoints compare /backup/sessions-1 sessions.py`
    """
    from evenflow.query.planner import layout
    from evenflow.query.structure import as_written
    from evenflow.world.flow_file import load
    from evenflow.world.locations.carrying import carried
    from evenflow.world.locations.starting import fields_in, layout_from, saved_at

    output: Output = context.obj
    flow = load(file, context.args)
    if flow.needs_spark:
        raise QueryError(f"{file}: dataflow() needs a Spark session, and compare starts none; give its parameter `spark` a default (None)")
    saved = saved_at(location, number, savepoint=False)
    planning: dict[str, Any] = dict(saved.begun.planning)
    planned = layout_from(saved, layout(flow.build().network, **planning))
    found = carried(saved.made, saved.content, saved.program, as_written(planned), drop_state or (), fields_in(planned))
    output.report(found.to_json())
    if not output.as_json:
        table = _columns("box", "kind", "state", "rows", "size", "")
        for each in found.boxes:
            of = (grouped(each.rows), _size(each.bytes)) if each.bytes else (DASH, DASH)
            table.add_row(each.box, each.kind, each.fate, *of, each.why, style=STYLES.get(each.fate, ""))
        output.out.print(table)
        verdict = "it can start from there" if found.whole else "it cannot start from there: name boxes as they were, or say --drop-state"
        output.out.print(verdict, highlight=False)
    return OK if found.whole else FAILED


# ---------------------------------------------------------------- what people see


def _at(location: str) -> Checkpoints:
    from evenflow.world.locations.checkpoints import checkpoints as found_at

    return found_at(location)


def _chosen(output: Output, location: str, number: str | None) -> Checkpoints:
    """The location, whose newest whole checkpoint is meant if no number was given: then newer ones that are not whole are named."""
    found = _at(location)
    if number is None:
        passed: list[Checkpoint] = []
        for each in found.list():
            passed = [] if each.complete else [*passed, each]
        for each in passed:
            if each.epoch is not None:
                output.say(f"checkpoint {each.name} is passed over: {each.wrong}")
    return found


def _parquet(path: Path) -> Any:
    """A file or a folder of them, as a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"--keys {path} cannot be read as Parquet: {error}") from error


def print_state(output: Output, made: Mapping[str, Any], limit: int) -> None:
    """As a table. made: see `looking.shown`."""
    printed = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in made["columns"]:
        printed.add_column(Text(column["name"]))
    for row in made["rows"]:
        printed.add_row(*(Text(DASH if value is None else str(value)) for value in row.values()))
    output.out.print(printed)
    if made["more"]:
        output.out.print(f"and more: these are {limit} rows; --limit 0 shows all", highlight=False)


def _slowly(output: Output) -> Callable[[str], None]:
    """Progress, at most once a second."""
    next_s = time.monotonic() + SAID_EVERY_S

    def say(text: str) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + SAID_EVERY_S
            output.say(text)

    return say


def _table(there: Sequence[Checkpoint]) -> Table:
    table = _columns("checkpoint", "epoch", "size", "objects", "rows", "whole since", "took")
    for each in there:
        took = DASH if each.seconds is None else f"{each.seconds:.1f} s"
        table.add_row(
            each.name, grouped(each.epoch), _size(each.bytes), grouped(each.objects), grouped(each.rows), each.ended_at or DASH, took,
            style="" if each.complete else "yellow",
        )  # fmt: skip
    return table


def _print_wrong(output: Output, there: Sequence[Checkpoint]) -> None:
    """Why those that cannot be gone on from cannot: in lines of their own, since a narrow table would leave out just that."""
    for each in there:
        if each.wrong:
            output.out.print(f"{each.name}: {each.wrong}", style="yellow", highlight=False, soft_wrap=True)


def _print_inspected(output: Output, found: Inspected) -> None:
    checkpoint = found.checkpoint
    what = f"checkpoint {checkpoint.name}: epoch {grouped(checkpoint.epoch)}, {_size(checkpoint.bytes)}"
    output.out.print(f"{found.dataflow}, run {found.run}, {what}", highlight=False, soft_wrap=True)
    _print_wrong(output, [checkpoint])
    boxes = _columns("box", "kind", "segment", "partitions", "rows", "size", "watermark")
    for box in found.boxes:
        boxes.add_row(
            box.box, box.kind, box.segment, grouped(box.partitions), grouped(box.rows), _size(box.bytes), _time(box.watermark_us),
        )  # fmt: skip
    sources = _columns("source", "partition", "rows read", "", "closed")
    for source in found.sources:
        ended = "has ended" if source.ended else ""
        sources.add_row(source.source, str(source.partition), _position(source.position), ended, _time(source.closed_at_us))
    output.out.print(boxes)
    output.out.print(sources)


def _position(position: int) -> str:
    """Of a source that comes after another one, where in that it is."""
    from evenflow.sources.then import SECOND

    return f"{grouped(position - SECOND)} of the second" if position > SECOND else grouped(position)


def _columns(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    words = ("box", "kind", "state", "segment", "source", "checkpoint", "")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=heading != "")
    return table


def _count(objects: int) -> str:
    return "1 object" if objects == 1 else f"{objects} objects"


def _size(count: int) -> str:
    return f"{count:,} B" if count < 100_000 else mebibytes(count)


def _time(micros: int | None) -> str:
    if micros is None or not 0 <= micros < 4e15:
        return DASH
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
