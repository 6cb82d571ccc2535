"""The demo's dataflow for a long time at a set rate: does memory stay flat?

    python bench/soak.py --minutes 20 --rate 20000 --out bench/results/soak.json

Prints a line per sample and writes all samples, the machine, and a picture of the curve beside the JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from evenflow.bench.measuring import MASTER, SITES, machine, pss_bytes
from evenflow.cli.demo import session_monitor
from evenflow.monitor.live import Results
from evenflow.world.spark.cluster.session import embedded_session, stop_session
from evenflow.world.spark.driver.engine import Engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument("--out", type=Path, default=Path("bench/results/soak.json"))
    args = parser.parse_args()
    flow = session_monitor(args.rate, Results(keys=("app", "src")))
    spark = embedded_session(MASTER)
    samples: list[dict[str, Any]] = []
    try:
        with Engine(spark, sites=SITES) as engine:
            run = engine.start(flow)
            began = time.monotonic()
            while time.monotonic() - began < args.minutes * 60:
                run.await_termination(args.every)
                samples.append(sample(run.progress(), time.monotonic() - began))
                print(samples[-1], flush=True)
            run.stop()
    finally:
        stop_session(spark)
    result = {
        "benchmark": "soak", "minutes": args.minutes, "rate": args.rate, "command": "python bench/soak.py " + " ".join(sys.argv[1:]),
        "machine": machine(), "samples": samples,
    }  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".svg").write_text(picture(samples), encoding="utf-8")


def sample(progress: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Memory of every site's Python process and of this driver, megabytes, and how the dataflow does."""
    return {
        "seconds": round(seconds),
        "rows_in": progress["rows_in"],
        "rows_out": progress["rows_out"],
        "p50_ms": progress["p50_ms"],
        "p99_ms": progress["p99_ms"],
        "late_rows": progress["late_rows"],
        "state_mb": round(sum(site["state_bytes"] for site in progress["sites"]) / 2**20, 1),
        "site_pss_mb": [round(pss_bytes(site["pid"]) / 2**20, 1) for site in progress["sites"]],
        "driver_pss_mb": round(pss_bytes(os.getpid()) / 2**20, 1),
    }


def picture(samples: list[dict[str, Any]]) -> str:
    """Memory over time as an SVG: one line per site, and the driver."""
    width, height, left, bottom = 760, 300, 60, 40
    lines = {f"site {i}": [s["site_pss_mb"][i] for s in samples] for i in range(len(samples[0]["site_pss_mb"]))}
    lines["driver"] = [s["driver_pss_mb"] for s in samples]
    top = 1.15 * max(max(values) for values in lines.values())
    end = max(s["seconds"] for s in samples)

    def x(seconds: float) -> float:
        return left + (width - left - 90) * seconds / end

    def y(megabytes: float) -> float:
        return (height - bottom) * (1 - megabytes / top) + 8

    colours = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#97bbf5")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for step in range(5):
        level = top * step / 4
        parts.append(f'<line x1="{left}" x2="{width - 90}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.0f} MB</text>')
    for minute in range(0, int(end / 60) + 1, max(1, int(end / 60) // 10)):
        parts.append(f'<text x="{x(minute * 60):.1f}" y="{height - 18}" text-anchor="middle">{minute} min</text>')
    for (name, values), colour in zip(lines.items(), colours, strict=False):
        points = " ".join(f"{x(s['seconds']):.1f},{y(v):.1f}" for s, v in zip(samples, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(f'<text x="{width - 84}" y="{20 + 16 * list(lines).index(name)}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
