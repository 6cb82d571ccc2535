"""`evenflow demo`: the network-session monitor on a packet generator, with a live view, and an executor killed in the middle of it."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from evenflow.cli.options import Json, Master, Plain, Replicas, Sites, Spares, Ui
from evenflow.cli.output import Output
from evenflow.cli.running import Request, check_picture, check_replicas, execute, master_for
from evenflow.errors import EvenflowError
from evenflow.monitor.live import Results

if TYPE_CHECKING:
    import pyarrow as pa

    from evenflow.sources.source import Source

EXAMPLE = "network_sessions.py"
LEAD_S: Final = 3.0
"""The first packet is due so long after the dataflow is made: parts are built and linked meanwhile."""
COMPARED_PACKETS_MAX: Final = 5_000_000
"""Output of more packets is not compared: the plain computation takes a second for some hundred thousand."""
KEPT_ROWS_MAX: Final = 1_000_000


def demo(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="How long it runs once it has started.", min=1)] = 20.0,
    rate: Annotated[int, typer.Option(help="Packets per second that the generator makes.", min=1)] = 10_000,
    sites: Sites = 4,
    replicas: Replicas = 2,
    spares: Spares = 1,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill an executor (kill -9) and show what comes of it.")] = True,
    kill_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When, from its first epoch on; default half-way.", min=0.1)
    ] = None,
    lose_all: Annotated[
        bool, typer.Option("--lose-all", help="Kill every executor and the driver instead, start again, and compare all rows at the end.")
    ] = False,
    regions: Annotated[
        int | None, typer.Option(help="So many drivers run it as one instead, one is killed, and a subscriber goes on.", min=2, max=4)
    ] = None,
    master: Master = None,
    picture: Annotated[
        Path | None, typer.Option(help="Save the view as SVG, when all is whole again or at the end.", dir_okay=False)
    ] = None,
    ui: Ui = None,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Run the network-session monitor on generated packets, kill an executor, and watch.

    Sessions are rebuilt from packets per pair of addresses; per application and source, the greatest and the average duration of the last
    100 sessions come out. It is `examples/network_sessions.py` with a view instead of a sink, and needs nothing but this package. Every
    partition has two replicas: when one dies the other goes on, and a spare takes its place.

    Example: `evenflow demo --seconds 60 --rate 20000`
    """
    from evenflow.cli.striking import Strike, kill_site, obstacle

    output: Output = context.obj
    if lose_all:
        from evenflow.cli.losing import lose_all as lose

        return lose(seconds, rate, sites, output)
    if regions is not None:
        from evenflow.cli.regional import regions as of_regions

        return of_regions(regions, seconds, rate, min(sites, 2), output)
    if kill_after is not None and kill_after >= seconds:
        raise typer.BadParameter(f"{kill_after:g} is not before the end, after {seconds:g} seconds", param_hint="--kill-after")
    check_picture(picture)
    check_replicas(sites, replicas)
    master = master_for(sites, spares) if master is None else master
    monitor = Monitor(rate)
    strike = Strike(master, seconds / 2 if kill_after is None else kill_after, replicas, monitor.moments, output.say) if kill else None
    if strike is not None and strike.said is not None:
        output.say(strike.said)
    request = Request(
        "evenflow demo", master, sites, lambda spark: monitor.dataflow(), seconds, plain, monitor.results, picture, patient=True,
        replicas=replicas, spares=spares, strike=strike, compare=monitor.compare, sites_only=True,
        ui=not output.as_json if ui is None else ui, kills=kill_site if obstacle(master, replicas) is None else None,
    )  # fmt: skip
    return execute(request, output)


class Monitor:
    """One run of the demo: its packets, what came out and when."""

    def __init__(self, rate: int) -> None:
        from evenflow.cli.striking import Moments

        self._rate = rate
        self.results = Results(keys=("app", "src"))
        self.moments = Moments()
        self._source: Any = None
        self._batches: list[pa.RecordBatch] = []
        self._kept = 0

    def dataflow(self) -> Any:
        """Its packets are due from now on, so that a reader that takes over from a dead one finds what was not read waiting."""
        from evenflow.bench.scheduled import ScheduledPackets

        self._source = ScheduledPackets(self._rate, time.time_ns() // 1000 + int(LEAD_S * 1e6))
        return session_monitor(self._rate, self.results, self._source, self._take)

    def _take(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Called in the sink's thread."""
        self.moments.note()
        if batch.num_rows:
            self.results.take(batch.to_pylist())
            self._kept += batch.num_rows
            if self._kept <= KEPT_ROWS_MAX:
                self._batches.append(batch)

    def compare(self, rows_in: float) -> dict[str, int] | None:
        """All output against what it must be up to the newest result; None if there is none, or too much for a demo."""
        if not self._batches or rows_in > COMPARED_PACKETS_MAX or self._kept > KEPT_ROWS_MAX:
            return None
        import pyarrow as pa

        from evenflow.bench.expected import compare, expected_statistics
        from evenflow.bench.monitored import micros
        from evenflow.world.flow_file import load_module

        table = pa.Table.from_batches(self._batches)
        app, src, longest, average = (table.column(name).to_pylist() for name in ("app", "src", "max_dur", "avg_dur"))
        times = micros(table, "ts").tolist()
        expected = expected_statistics(self._source, load_module(example_path()), max(times))
        found = compare(expected, zip(zip(app, src, times), zip(longest, average)))
        return {"rows": found.expected, "lost": found.lost, "repeated": found.repeated, "wrong": found.wrong}


def session_monitor(rate: int, results: Results, source: Source | None = None, take: Any = None) -> Any:
    """The dataflow of the example behind a generator of `rate` packets/s; what comes out goes to `results`.

    source: other packets. take(epoch, batch): gets what comes out instead.
    """
    import evenflow as ef
    from evenflow.world.flow_file import load_module

    example = load_module(example_path())
    flow = ef.Dataflow("network_sessions")
    packets = flow.source(source or ef.sources.packets(rate=rate), name="packets")
    sink = ef.sinks.callback(take or (lambda epoch, batch: results.take(batch.to_pylist())))
    # The generator's packets are hardly out of order; results wait for the watermark, so a short delay shows them soon.
    example.build(flow, packets, delay="1 second").to(sink, name="view")
    return flow


def example_path() -> Path:
    """Where the example lies: beside the sources, or where an installation puts shared data."""
    beside = Path(__file__).resolve().parents[3] / "examples" / EXAMPLE
    installed = Path(sysconfig.get_path("data")) / "share" / "evenflow" / "examples" / EXAMPLE
    for path in (beside, installed):
        if path.is_file():
            return path
    raise EvenflowError(f"the example {EXAMPLE} is missing from this installation: install Evenflow again")
