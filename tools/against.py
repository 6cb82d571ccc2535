"""Measure the present tree against another commit, side by side: what `make against REV=...` runs.

    python tools/against.py 851ccbd                          # CPU per epoch and site, five rounds
    python tools/against.py 851ccbd --rounds 7 -- bench latency --quick
    python tools/against.py 9da0577 --queries --least 0.97   # rows per second of CPU of each Nexmark query; fails if one is slower

How that is done `evenflow.bench.against` says, which has other figures for `evenflow bench cost --against 851ccbd`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evenflow.bench.against import ROUNDS, by_turns, medians, numbers, tree_of
from evenflow.errors import EvenflowError

__all__ = ["numbers"]

EPOCHS: Final = Path(__file__).with_name("cpu_per_epoch.py").resolve()
"""What is run where no command is given: of this tree, by the interpreter of either."""


QUERIES: Final = EPOCHS.with_name("query_rates.py")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the present tree against another commit, by turns.")
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="also write what was seen into this file")
    parser.add_argument("--queries", action="store_true", help="rows per second of CPU of each Nexmark query: tools/query_rates.py")
    parser.add_argument("--least", type=float, help="fail if a figure of this tree is below so many times the other's: for rates")
    parser.add_argument("command", nargs="*", help="of evenflow, after --; default: tools/cpu_per_epoch.py")
    given = parser.parse_args()
    file = QUERIES if given.queries else EPOCHS
    command = ["evenflow", *given.command, "--json"] if given.command else ["python", "-W", "ignore", file]
    try:
        other = tree_of(given.revision)
        seen = by_turns(other, command, given.rounds, lambda text: print(text, file=sys.stderr, flush=True))
    except EvenflowError as error:
        raise SystemExit(str(error)) from error
    now, then = map(medians, seen)
    rows = [
        {"figure": path, "now": now[path], "then": then[path], "ratio": round(now[path] / then[path], 3) if then[path] else None}
        for path in now
        if path in then
    ]
    for row in rows:
        print(f"{row['figure']:60} {row['now']:>12.4g} {row['then']:>12.4g}  {'-' if row['ratio'] is None else row['ratio']}")
    if given.out is not None:
        report = {
            "command": " ".join(["evenflow", *given.command] if given.command else [file.name]),
            "against": other.name,
            "rounds": given.rounds,
            "figures": rows,
            "seen": {"now": seen[0], "then": seen[1]},
        }
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    slower = below(rows, given.least)
    if slower:
        print(f"below {given.least} times {other.name}: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


def below(rows: Sequence[Mapping[str, Any]], least: float | None) -> list[str]:
    """Figures whose ratio is less than the least that is wanted."""
    return [] if least is None else [f"{row['figure']} {row['ratio']}" for row in rows if row["ratio"] is not None and row["ratio"] < least]


if __name__ == "__main__":
    sys.exit(main())
