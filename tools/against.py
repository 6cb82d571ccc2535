"""Measure the present tree against another commit, side by side: what `make against REV=...` runs.

    python tools/against.py 851ccbd                          # CPU per epoch and site, five rounds
    python tools/against.py 851ccbd --rounds 7 -- bench latency --quick

The other commit gets a working tree and an environment of its own below `.against`, made by its own `make setup`. Both then run the same
command by turns, and every number in their JSON objects is compared by its median. Ratios of one such run are what counts: machines
differ by more than most changes do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / ".against"
EPOCHS: Final = ROOT / "tools" / "cpu_per_epoch.py"
"""What is run where no command is given: of this tree, by the interpreter of either."""
TOLD_MAX: Final = 4
"""Figures of a round that are said at once: what is interrupted has shown something."""


def tree_of(revision: str) -> Path:
    """A working tree of that commit with its environment, made at the first time."""
    found = subprocess.run(["git", "rev-parse", "--short", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise SystemExit(f"there is no commit {revision!r} here: {found.stderr.strip()}")
    tree = PLACE / found.stdout.strip()
    if not tree.exists():
        PLACE.mkdir(exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "checkout", "--quiet", found.stdout.strip()], cwd=tree, check=True)
    subprocess.run(["make", "--quiet", "setup"], cwd=tree, check=True)
    return tree


def measured(tree: Path, command: list[str]) -> dict[str, float]:
    """Every number of the object that the command prints, by its path. command: of evenflow; none: `cpu_per_epoch`."""
    binaries = tree / ".venv" / "bin"
    asked = [binaries / "evenflow", *command, "--json"] if command else [binaries / "python", "-W", "ignore", EPOCHS]
    done = subprocess.run([str(each) for each in asked], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{tree.name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return dict(numbers(json.loads(done.stdout)))


def numbers(value: Any, path: str = "") -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [each for key, inner in value.items() if key != "machine" for each in numbers(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [each for at, inner in enumerate(value) for each in numbers(inner, f"{path}[{at}]")]
    return [(path, float(value))] if isinstance(value, int | float) and not isinstance(value, bool) else []


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the present tree against another commit, by turns.")
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write what was seen into this file")
    parser.add_argument("command", nargs="*", help="of evenflow, after --; default: tools/cpu_per_epoch.py")
    given = parser.parse_args()
    command = list(given.command)
    other = tree_of(given.revision)
    seen: dict[str, list[dict[str, float]]] = {"now": [], "then": []}
    for number in range(given.rounds):
        # Who goes first changes, so that neither always has the warmer machine.
        for which, tree in (("now", ROOT), ("then", other))[:: 1 if number % 2 == 0 else -1]:
            figures = measured(tree, command)
            seen[which].append(figures)
            name = tree.name if which == "then" else "the present tree"
            said = ", ".join(f"{path} {value:.4g}" for path, value in list(figures.items())[:TOLD_MAX])
            print(f"round {number + 1} of {given.rounds}: {name}: {said}", file=sys.stderr, flush=True)
    rows = []
    for path in seen["now"][0]:
        if all(path in each for each in (*seen["now"], *seen["then"])):
            now, then = (statistics.median(each[path] for each in seen[which]) for which in ("now", "then"))
            rows.append({"figure": path, "now": now, "then": then, "ratio": round(now / then, 3) if then else None})
    for row in rows:
        print(f"{row['figure']:60} {row['now']:>12.4g} {row['then']:>12.4g}  {'-' if row['ratio'] is None else row['ratio']}")
    if given.out is not None:
        report = {
            "command": " ".join(["evenflow", *command] if command else [EPOCHS.name]),
            "against": other.name,
            "rounds": given.rounds,
            "figures": rows,
            "seen": seen,
        }
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
