"""`evenflow demo --regions N`: several drivers run a dataflow as one run, one of them is killed, and who reads does not notice."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

import typer

from evenflow.cli.output import FAILED, OK, Output

RATE_MOST: Final = 20_000
"""Rows/s: what must come out is computed row by row at the end."""
LEAD_S: Final = 1.0


def regions(count: int, seconds: float, rate: int, sites: int, output: Output, *, bare: bool = False) -> int:
    """Start the regions, subscribe to all, kill the driver that brings rows with everything below it, and compare every row."""
    from evenflow.bench.background import free_ports
    from evenflow.bench.regional import Region, Started, compare, new_log_folder
    from evenflow.sinks.stream import SECRET_VARIABLE
    from evenflow.world.spark.regions.subscriber import subscribe

    if rate > RATE_MOST:
        raise typer.BadParameter(f"with --regions it is at most {RATE_MOST:,}", param_hint="--rate")
    secret, name, begin_s = secrets.token_hex(32), f"demo-{secrets.token_hex(4)}", time.time() + LEAD_S
    # Rows wait for regions that start slowly: they are read from the group's begin, and caught up with.
    made = [Region(port, name, begin_s, rate, None, sites=sites, shape=sites, bare=bare) for port in free_ports(count)]
    before = os.environ.get(SECRET_VARIABLE)
    os.environ[SECRET_VARIABLE] = secret
    started: list[Started] = []
    got: list[tuple[int, dict[str, Any]]] = []
    with new_log_folder() as folder:
        try:
            output.say(f"{count} regions, each a driver with {sites} executors of its own; {rate:,} rows/s, the same for all")
            started += [Started(region, secret, Path(folder) / f"region{at}.log") for at, region in enumerate(made)]
            for each in started:
                each.await_running()
            moments: list[float] = []
            killed_s = gap_s = 0.0
            with subscribe([region.url for region in made], name, after=0) as subscriber:
                until_s = None
                while until_s is None or time.monotonic() < until_s:
                    taken = subscriber.take(0.2)
                    now_s = time.monotonic()
                    if taken is not None:
                        got += ((taken[0], row) for row in taken[1].to_pylist())
                        if moments and killed_s:
                            gap_s = max(gap_s, now_s - moments[-1])
                        moments.append(now_s)
                        if until_s is None and time.time() - begin_s - taken[0] * made[0].width_ms / 1000 < 1.0:
                            until_s = now_s + max(4.0, seconds)  # It has caught up with the present.
                            output.say(f"all regions run; in {max(2.0, seconds / 2):.0f} s the driver that brings the rows is killed")
                    if until_s is not None and not killed_s and now_s > until_s - max(2.0, seconds / 2):
                        victim = subscriber.leg or 0
                        output.say(f"kill -9 of the driver of region {victim} and of everything below it")
                        started[victim].kill()
                        killed_s = now_s
                progress = subscriber.progress()
        finally:
            for each in started:
                each.end()
            if before is None:
                os.environ.pop(SECRET_VARIABLE, None)
            else:
                os.environ[SECRET_VARIABLE] = before
    through = got[-1][0] if got else 0
    wanted = Region(0, name, begin_s, rate, int(rate * (through + 1) * made[0].width_ms / 1000) + rate).expected()
    compared = compare(wanted, got, through)
    report = {
        "regions": count,
        "killed": "driver",
        "gap_ms": round(1000 * gap_s, 1),
        "epochs": len(moments),
        **progress,
        "compared": compared,
    }
    output.report(report)
    if not output.as_json:
        output.out.print(
            f"The longest wait for an epoch of {made[0].width_ms:g} ms from the kill on was {1000 * gap_s:.0f} ms. Compared were "
            f"{compared['rows']:,} rows up to epoch {through}: {compared['lost']} lost, {compared['repeated']} repeated, "
            f"{compared['wrong']} wrong. {progress['hedged']} epochs were asked for twice.",
            highlight=False,
            soft_wrap=True,
        )
    return FAILED if compared["lost"] + compared["repeated"] + compared["wrong"] or not compared["rows"] else OK
