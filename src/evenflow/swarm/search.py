"""Many seeds, over several processes, and what came of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final, cast

from evenflow.swarm.mutations import MUTATIONS, Mutation, find
from evenflow.swarm.reach import UNREACHABLE, rows
from evenflow.swarm.run import Verdict, run_seed

AT_ONCE: Final = 20
"""Seeds that a process is given at a time."""
_APART: Final = get_context("forkserver")  # Threads start these processes.
_APART.set_forkserver_preload(["evenflow.swarm.run"])


@dataclass
class Findings:
    """seeds: how many ran. failed: verdicts of those that failed, by seed. fired, faults, happened: how many of each kind."""

    seeds: int = 0
    failed: list[Verdict] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.fired.update(verdict.fired)
        self.faults.update(verdict.faults)
        self.happened.update(verdict.happened)
        if verdict.failure is not None:
            self.failed.append(verdict)
            self.failed.sort(key=lambda found: found.seed)

    def to_json(self) -> dict[str, Any]:
        """`seeds`, `failed`, and by rows of the rules' tables (`reach.rows`): `rules_fired` (how often), `rules_never_fired`,
        `rules_unreachable` (why no seed can fire them); how many faults of each kind there were, and what happened how often."""
        known = rows()
        return {
            "seeds": self.seeds,
            "failed": [verdict.seed for verdict in self.failed],
            "rules_fired": {row: self.fired[row] for row in known if self.fired[row]},
            "rules_never_fired": [row for row in known if not self.fired[row] and row not in UNREACHABLE],
            "rules_unreachable": dict(UNREACHABLE),
            "faults": dict(sorted(self.faults.items())),
            "happened": dict(sorted(self.happened.items())),
        }


def search(seeds: range, jobs: int = 1, seen: Callable[[Verdict], None] = lambda verdict: None) -> Findings:
    """Run them all. seen: is told of each verdict as it comes, in any order."""
    findings = Findings()
    for verdict in _verdicts(seeds, jobs):
        findings.add(verdict)
        seen(verdict)
    return findings


def _verdicts(seeds: range, jobs: int) -> Iterator[Verdict]:
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for verdicts in pool.map(_run_all, [seeds[at : at + AT_ONCE] for at in range(0, len(seeds), AT_ONCE)]):
            yield from verdicts


def _run_all(seeds: Iterable[int]) -> list[Verdict]:
    return [run_seed(seed) for seed in seeds]


Killed = tuple[int, str] | None


def plant_all(seeds: range, jobs: int = 1, mutations: Sequence[Mutation] = MUTATIONS) -> Iterator[tuple[Mutation, Killed]]:
    """Every planted bug with the first of the seeds that finds it, and what it said. Each is run in a process of its own, which it may
    end: compiled code writes wherever a bug says."""
    pool = ThreadPoolExecutor(jobs)
    running: list[ForkServerProcess] = []
    try:
        yield from zip(mutations, pool.map(lambda mutation: _find_apart(mutation, seeds, running), mutations), strict=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()


def _find_apart(mutation: Mutation, seeds: range, running: list[ForkServerProcess]) -> Killed:
    heard, said = _APART.Pipe(duplex=False)
    process = _APART.Process(target=_say, args=(mutation, seeds, said), daemon=True)
    process.start()
    running.append(process)
    said.close()
    last = seeds.start
    while True:
        try:
            number = heard.recv()
        except EOFError:
            process.join()
            return last, f"its process ended with exit code {process.exitcode}"
        if not isinstance(number, int):
            process.join()
            return cast(Killed, number)
        last = number


def _say(mutation: Mutation, seeds: range, to: Connection) -> None:
    """Tell of each seed that begins, and at last of what was found."""
    to.send(find(mutation, seeds, to.send))
