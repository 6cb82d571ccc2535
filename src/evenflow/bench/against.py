"""`evenflow bench cost --against REV`: the price of an epoch in the present tree over that in another commit, side by side.

The other commit gets a working tree and an environment of its own below `.against`, made by its own `make setup`. Both then run the same
command by turns, and every number in their JSON objects is compared by its median. Ratios of one such run are what counts: machines
differ by more than most changes do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evenflow.errors import OptionError

ROOT: Final = Path(__file__).resolve().parents[3]
PLACE: Final = ROOT / ".against"
PRICE: Final = ROOT / "tools" / "price.py"
"""Of this tree, run by the interpreter of either."""
SITES: Final = (1, 2, 4, 8)
SLOPE_FROM: Final = 2
"""One site has no peer, so what a peer costs shows from two on."""
ROUNDS: Final = 5
TOLD_MAX: Final = 4
"""Figures of a round that are said at once: what is interrupted has shown something."""

LINGERS_MS: Final = (5, 20)
"""Executors are killed with both."""
KILLS: Final = 40
"""With each, in either tree."""
PACKETS: Final = 5_000
"""A second, while they are."""

Figures = dict[str, float]
Say = Callable[[str], None]


def tree_of(revision: str) -> Path:
    """A working tree of that commit with its environment, made at the first time. Raises OptionError if there is no such commit."""
    if not (ROOT / ".git").exists():
        raise OptionError("another commit can only be measured from a working tree of Evenflow's repository")
    found = subprocess.run(["git", "rev-parse", "--short", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise OptionError(f"there is no commit {revision!r} here: {found.stderr.strip()}")
    tree = PLACE / found.stdout.strip()
    if not tree.exists():
        PLACE.mkdir(exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "checkout", "--quiet", found.stdout.strip()], cwd=tree, check=True)
    subprocess.run(["make", "--quiet", "setup"], cwd=tree, check=True)
    return tree


def measured(tree: Path, command: Sequence[str | Path]) -> Figures:
    """Every number of the object that the command prints, by its path. command: of that tree's environment."""
    asked = [tree / ".venv" / "bin" / command[0], *command[1:]]
    done = subprocess.run([str(each) for each in asked], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OptionError(f"{tree.name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return dict(numbers(json.loads(done.stdout)))


def numbers(value: Any, path: str = "") -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [each for key, inner in value.items() if key != "machine" for each in numbers(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [each for at, inner in enumerate(value) for each in numbers(inner, f"{path}[{at}]")]
    return [(path, float(value))] if isinstance(value, int | float) and not isinstance(value, bool) else []


def by_turns(other: Path, command: Sequence[str | Path], rounds: int, say: Say) -> tuple[list[Figures], list[Figures]]:
    """(of the present tree, of the other one), a round each. Who goes first changes, so that neither always has the warmer machine."""
    seen: dict[Path, list[Figures]] = {ROOT: [], other: []}
    for number in range(rounds):
        for tree in (ROOT, other)[:: 1 if number % 2 == 0 else -1]:
            figures = measured(tree, command)
            seen[tree].append(figures)
            name = "the present tree" if tree == ROOT else tree.name
            told = ", ".join(f"{path} {value:.4g}" for path, value in list(figures.items())[:TOLD_MAX])
            say(f"round {number + 1} of {rounds}: {name}: {told}")
    return seen[ROOT], seen[other]


def medians(seen: Sequence[Figures]) -> Figures:
    """By path, of those that every round has."""
    return {path: statistics.median(each[path] for each in seen) for path in seen[0] if all(path in each for each in seen)}


def ratios(now: Figures, then: Figures) -> dict[str, Any]:
    """What is reported of the prices of two trees, as `price` prints them: this tree's over the other's."""

    def ratio(path: str) -> float | None:
        return round(now[path] / then[path], 3) if then.get(path) and path in now else None

    epoch = "cpu_ms_per_epoch_and_site."
    sites = sorted(int(path.removeprefix(epoch)) for path in now if path.startswith(epoch) and path in then)
    mine, its = ({count: of[f"{epoch}{count}"] for count in sites} for of in (now, then))
    slopes = slope(mine), slope(its)
    return {
        "cpu_per_epoch_ratio": {str(count): ratio(f"{epoch}{count}") for count in sites},
        "peer_slope_ratio": None if None in slopes or not slopes[1] else round((slopes[0] or 0.0) / slopes[1], 3),
        "pairs_cpu_ratio": ratio("pairs_cpu_ms_per_epoch_and_site"),
        "p50_ratio": ratio("p50_ms"),
        "p99_ratio": ratio("p99_ms"),
        "pairs_p50_ratio": ratio("pairs_p50_ms"),
        "pairs_p99_ratio": ratio("pairs_p99_ms"),
        "idle_ratio": ratio("idle_cores"),
        "memory_ratio": ratio("site_pss_mb"),
    }


def slope(by_sites: Mapping[int, float]) -> float | None:
    """What one site more adds, by least squares, from SLOPE_FROM sites on. None if fewer than two numbers of sites are that many."""
    points = [(count, value) for count, value in by_sites.items() if count >= SLOPE_FROM]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def gaps(other: Path, linger_ms: int, kills: int, say: Say) -> tuple[Figures, Figures] | None:
    """What either tree's output shows of as many executors' deaths: `bench failover` of the demo's network in pairs. None if one of them
    did not live through all of them."""
    given = {"--rate": PACKETS, "--linger": linger_ms, "--kills": kills, "--spark-kills": 0}
    command = ["evenflow", "bench", "failover", *[str(each) for pair in given.items() for each in pair], "--json"]
    say(f"{kills} executors are killed in either tree, linger {linger_ms} ms")
    try:
        now, then = by_turns(other, command, 1, say)
    except OptionError as error:
        say(f"no figures of gaps with linger {linger_ms} ms: {error}")
        return None
    return now[0], then[0]


def gap_ratios(seen: Mapping[int, tuple[Figures, Figures]]) -> dict[str, Any]:
    """seen: by linger, what `gaps` has found. The one that counts is the worst."""
    each = {str(linger): round(now["gap_ms_p95"] / then["gap_ms_p95"], 3) for linger, (now, then) in seen.items()}
    copies = {str(linger): now.get("copies_over_first_second") for linger, (now, _) in seen.items()}
    return {"gap_p95_ratio": max(each.values(), default=None), "gap_p95_ratio_by_linger": each, "copies_over_first_second": copies}


def run(revision: str, *, quick: bool, say: Say) -> dict[str, Any]:
    """Measure both trees. quick: one round of the least, a smoke test only. Returns the object that --json prints."""
    from evenflow.bench.measuring import machine

    sites, rounds = ((1, 2), 1) if quick else (SITES, ROUNDS)
    other = tree_of(revision)
    seen = by_turns(other, ["python", "-P", "-W", "ignore", PRICE, *map(str, sites)], rounds, say)
    now, then = map(medians, seen)
    tried = {linger: gaps(other, linger, 3 if quick else KILLS, say) for linger in (LINGERS_MS[-1:] if quick else LINGERS_MS)}
    killed = {linger: found for linger, found in tried.items() if found is not None}
    return {
        "benchmark": "cost", "quick": quick, "against": other.name, "rounds": rounds, **ratios(now, then), **gap_ratios(killed),
        "now": now, "then": then,
        "gaps": {str(linger): {"now": of[0], "then": of[1]} for linger, of in killed.items()},
        "machine": machine(),
    }  # fmt: skip
