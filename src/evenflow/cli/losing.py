"""`evenflow demo --lose-all`: everything is killed in the middle, and the next driver at the checkpoint location goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from evenflow.cli.output import FAILED, OK, Output

AT_LEAST_S: Final = 2.0


def lose_all(seconds: float, rate: int, sites: int, output: Output) -> int:
    """Run half of the time, kill executors, JVM and driver at once, start again, run the other half, finish and compare every row."""
    from evenflow.bench.restart import Setting, compare, strike
    from evenflow.bench.restarting import Generation, new_home

    half_s = max(AT_LEAST_S, seconds / 2)
    with new_home() as home:
        generation = Generation(home, rate=rate, sites=sites)
        output.say(f"{rate:,} rows/s on {sites} executors, with a checkpoint location at {generation.location}")
        output.say(f"in about {half_s:.0f} s after the first row: kill -9 of all executors, of Spark's JVM and of the driver")
        struck = strike(generation, Setting(kills=1, stale_drivers=0, calm_s=(half_s, half_s)), output.say)
        entries = len(list((Path(home) / "location" / "journal").iterdir()))
        compared = compare(generation)
    [restart_s] = struck.restarts_s
    rows, lost = compared["rows_compared"], compared["rows_lost"]
    repeated, wrong = compared["rows_repeated"], compared["rows_wrong"]
    found = {"rows": rows, "lost": lost, "repeated": repeated, "wrong": wrong}
    output.report({"lost": "all", "restart_s": round(restart_s, 2), "journal_entries": entries, "compared": found})
    if not output.as_json:
        output.out.print(
            f"Everything was killed. {restart_s:.1f} s later the first new row was there, Spark's own start included. "
            f"Compared were {rows:,} rows: {lost} lost, {repeated} repeated, {wrong} wrong.",
            highlight=False,
            soft_wrap=True,
        )
    return FAILED if lost + repeated + wrong else OK
