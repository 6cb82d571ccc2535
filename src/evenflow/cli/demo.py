"""`evenflow demo`: the network-session monitor on a packet generator, with a live view."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Annotated, Any

import typer

from evenflow.cli.output import Output
from evenflow.cli.running import MASTER, Request, execute
from evenflow.errors import EvenflowError
from evenflow.monitor.live import Results

EXAMPLE = "network_sessions.py"


def demo(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="How long it runs once it has started.", min=1)] = 15.0,
    rate: Annotated[int, typer.Option(help="Packets per second that the generator makes.", min=1)] = 20_000,
    sites: Annotated[int, typer.Option(help="Sites; each takes a task slot on an executor of its own.", min=1)] = 4,
    master: Annotated[str, typer.Option(help="Spark master. local-cluster[executors,cores,MiB] is started for the demo.")] = MASTER,
    picture: Annotated[Path | None, typer.Option(help="Save the view as it was at the end, as SVG.", dir_okay=False)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="One line a second instead of the live view.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")] = False,
) -> int:
    """Run the network-session monitor on generated packets and watch it.

    Sessions are rebuilt from packets per pair of addresses; per application and source, the greatest and the average duration of the last
    100 sessions come out. It is `examples/network_sessions.py` with a view instead of a sink, and needs nothing but this package.

    Example: `evenflow demo --seconds 60 --rate 50000`
    """
    output: Output = context.obj
    results = Results(keys=("app", "src"))

    def build(spark: Any) -> Any:
        return session_monitor(rate, results)

    return execute(Request("evenflow demo", master, sites, build, seconds, plain, results, picture, patient=True), output)


def session_monitor(rate: int, results: Results) -> Any:
    """The dataflow of the example behind a generator of `rate` packets/s; what comes out goes to `results`."""
    import evenflow as ef
    from evenflow.cli.module import load_module

    example = load_module(example_path())
    flow = ef.Dataflow("network_sessions")
    packets = flow.source(ef.sources.packets(rate=rate), name="packets")
    # The generator's packets are hardly out of order; results wait for the watermark, so a short delay shows them soon.
    example.build(flow, packets, delay="1 second").to(ef.sinks.callback(lambda epoch, batch: results.take(batch.to_pylist())), name="view")
    return flow


def example_path() -> Path:
    """Where the example lies: beside the sources, or where an installation puts shared data."""
    beside = Path(__file__).resolve().parents[3] / "examples" / EXAMPLE
    installed = Path(sysconfig.get_path("data")) / "share" / "evenflow" / "examples" / EXAMPLE
    for path in (beside, installed):
        if path.is_file():
            return path
    raise EvenflowError(f"the example {EXAMPLE} is missing from this installation: install Evenflow again")
