"""Options that several commands have, each declared once; a default stands where a command takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]

Master = Annotated[str | None, typer.Option(help="Spark master; default a local-cluster with an executor for each site and spare.")]
Sites = Annotated[int, typer.Option(help="Sites; each takes a task slot on an executor of its own.", min=1)]
Replicas = Annotated[int, typer.Option(help="Replicas of every partition; 1: no lost executor is survived.", min=1)]
Spares = Annotated[int, typer.Option(help="Sites that wait for another one's death, each on an executor of its own.", min=0)]
Availability = Annotated[
    str,
    typer.Option(metavar="MODE", help="What boxes that do not say do so that a lost site costs little: pairs, passive, upstream, amnesia."),
]
Balance = Annotated[str, typer.Option(help="Policy by which load moves between sites meanwhile: none, evenflow, utilization, ...")]
Timeout = Annotated[float | None, typer.Option(help="Stop after so many seconds even if the sources have not ended.", min=0.1)]
Plain = Annotated[bool, typer.Option("--plain", help="One line a second and one per event instead of the live view.")]
CheckpointLocation = Annotated[
    str | None,
    typer.Option(metavar="LOCATION", help="Directory or URL for what a restart needs; what was begun there is gone on with."),
]
Durability = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="With a location: precise, or no-loss: outputs wait for nothing, and what came after a checkpoint comes again after a loss.",
    ),
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Replace a driver that still writes at the location, at once.")]
Standby = Annotated[
    bool, typer.Option("--standby", help="Another driver runs it at the location: wait, ready, until that one is silent, and go on then.")
]
Ui = Annotated[
    bool | None,
    typer.Option("--ui/--no-ui", help="Serve the page of the engine, see `evenflow ui`; default in a terminal."),
]
FromSavepoint = Annotated[
    str | None, typer.Option(metavar="SAVEPOINT", help="What the first start at the location begins with; FILE may have changed.")
]
DropState = Annotated[
    list[str] | None, typer.Option(metavar="BOX", help="State of the savepoint that no box takes over may go; several times.")
]
Earlier = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE.py", help="What the run at the location was before it was replaced; several times.", show_default=False),
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Run the code of what it was from the location: only if you trust who can write there.")
]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="Run it as one region of that group; its sources are cut by content.")]
GroupBegin = Annotated[str | None, typer.Option(metavar="TIME", help="When the group's first epoch begins, such as 2026-11-23T08:00:00Z.")]
GroupSites = Annotated[int | None, typer.Option(help="For how many sites the group's layouts are made; default the engine's.", min=1)]
GroupPlace = Annotated[
    int, typer.Option(help="Of this region in the group's list, from 0; the first writes to shared sinks.", min=0, max=99)
]
GroupPeers = Annotated[
    list[str] | None,
    typer.Option(
        "--group-peer",
        metavar="HOST:PORT",
        help="Stream sink of another region (SINK=HOST:PORT if there are several): begin near the present, silent until results agree.",
    ),
]
GroupCa = Annotated[Path | None, typer.Option(help="Who has signed the peers' certificates, in PEM.", dir_okay=False)]
Cut = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="What decides which rows form an epoch, of all sources: content, or leader; default the file's."),
]
WidthMs = Annotated[float | None, typer.Option(metavar="MS", help="Width of an epoch, with --cut content.")]
CutBy = Annotated[str | None, typer.Option(metavar="WHAT", help="Log times (time) or places of rows (place), with --cut content.")]
WidthRows = Annotated[int | None, typer.Option(metavar="N", help="Rows of an epoch that is cut by place, with --cut content.")]
CutAheadMs = Annotated[
    float | None, typer.Option(metavar="MS", help="Most that a log time may be ahead, where producers set it, with --cut content.")
]
Mirrored = Annotated[bool, typer.Option("--mirrored", help="A mirrored topic keeps the origin's times and places, with --cut content.")]
Statistics = Annotated[
    Path | None, typer.Option(help="Write what each site, partition and box did into this file, a line of JSON a second.")
]
Record = Annotated[
    Path | None, typer.Option(help="Record what those who watch the engine are told into this file, twice a second, to look at later.")
]
