"""Make the records of all experiments and benches again, one after the other: what `make records` runs.

    python tools/records.py                        # those that were not made at the present commit
    python tools/records.py --only latency,memory  # some of them, whatever commit they are of
    python tools/records.py --list                 # which there are, of which commit each is, and how long it took

A record is worth something only on a machine that does nothing else, so it waits until the machine is quiet; --busy makes it all the same
and says so. Those of the simulator go by virtual time: they come first, as many at once as there are cores.
`bench/results/records.json` says of each record its commit, how long it took and the load before it. What is interrupted goes on where it
was. At the end docs/measured.md and README.md say what the records say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
LEDGER: Final = RESULTS / "records.json"
ENTERING: Final = Lock()
QUIET_LOAD: Final = 0.5
"""Of the last minute: processes that want to run. Above it somebody else is at work."""


@dataclass(frozen=True, slots=True)
class Record:
    """name: for --only. command: what makes it, after the interpreter. files: that it writes, below `bench/results`. virtual: it says
    the same on any machine, however busy."""

    name: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    virtual: bool = False


def experiments() -> list[Record]:
    """Every experiment in every world that it has."""
    from evenflow.experiments.registry import EXPERIMENTS

    into = str((RESULTS / "experiments").relative_to(ROOT))
    return [
        Record(
            f"{each.name}-{world}",
            ("-m", "evenflow", "experiment", each.name, "--world", world, "--out", into),
            tuple(f"experiments/{each.name}-{world}.{kind}" for kind in ("json", "md", "svg")),
            world == "sim",
        )
        for world in ("sim", "spark")
        for each in EXPERIMENTS.values()
        if world in each.worlds
    ]


def bench(name: str, *options: str, record: str | None = None, also: Sequence[str] = ()) -> Record:
    file = f"{record or name}.json"
    out = str((RESULTS / file).relative_to(ROOT))
    return Record(record or name, ("-m", "evenflow", "bench", name, *options, "--out", out), (file, *also))


def script(name: str, *options: str, also: Sequence[str] = ()) -> Record:
    return Record(name, (f"bench/{name}.py", *options), (f"{name}.json", *also))


def records() -> list[Record]:
    """All of them: what takes minutes first."""
    failover = ("--rate", "1000")
    return [
        script("kernels"),
        script("hot_keys"),
        script("statistics_cost"),
        bench("cost"),
        bench("cost", "--tls", record="cost_tls"),
        bench("cost", "--nested", record="cost_nested"),
        bench("cost", "--against", "851ccbd", record="against-851ccbd"),
        bench("latency"),
        bench("throughput"),
        bench("moves"),
        bench("restart", "--kills", "100", "--stale-drivers", "20", "--on-spark", "30", "--spark-kills", "1"),
        bench("checkpoint"),
        bench("restore", "--kills", "1"),
        bench("failover", *failover),
        bench("failover", "--kills", "4", "--rate", "2000", "--linger", "25", "--hang", "--spark-kills", "0", record="failover_hang"),
        bench("failover", "--kills", "20", "--tabs", "10", "--spark-kills", "0", record="failover_tabs"),
        bench("skew", also=("skew.svg",)),
        bench("nexmark"),
        bench("functions"),
        bench("corpus"),
        bench("dashboard"),
        bench("overload"),
        bench("scaling"),
        bench("tables"),
        bench("regions"),
        bench("wide-area", record="wide_area"),
        bench("tpch"),
        *experiments(),
        bench(
            "failover", "--kills", "200", *failover, "--linger", "25", "--seconds-between", "0.5", "--spark-kills", "0", "--seed", "200",
            record="failover_200",
        ),
        script("soak", "--minutes", "20", "--rate", "20000", also=("soak.svg",)),
    ]  # fmt: skip


def commit() -> str:
    """The commit that is measured. Raises SystemExit where the sources are none."""
    answer = subprocess.run(
        ["git", "status", "--porcelain", "--", "src", "bench/*.py", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if answer.stdout.strip():
        raise SystemExit(f"these are not committed, so a record would be of no commit:\n{answer.stdout}Commit or stash them")
    answer = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "src", "bench/*.py", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def ledger() -> dict[str, Any]:
    return json.loads(LEDGER.read_text(encoding="utf-8")) if LEDGER.is_file() else {}


def wait_until_quiet(patience_s: float) -> float:
    """The load of the last minute, once it is low. Raises SystemExit if it does not become so."""
    until = time.monotonic() + patience_s
    while (load := os.getloadavg()[0]) > QUIET_LOAD:
        if time.monotonic() > until:
            raise SystemExit(f"the machine is at work (load {load:.1f}); end what runs on it, or give --busy")
        time.sleep(5)
    return load


def make(record: Record, at: str, load: float) -> bool:
    """Run one and enter it. Returns whether it could be made; what there was before stays if it could not."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, *record.command], cwd=ROOT, check=False)
    took_s = time.monotonic() - began
    if done.returncode != 0:
        print(f"{record.name}: exit code {done.returncode} after {took_s:.0f} s", file=sys.stderr, flush=True)
        return False
    with ENTERING:
        entries = ledger() | {record.name: {"commit": at, "seconds": round(took_s), "load_before": round(load, 2)}}
        LEDGER.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")
    print(f"{record.name}: made in {took_s:.0f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the records of all experiments and benches again.")
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--list", action="store_true", help="which there are, and of which commit")
    parser.add_argument("--busy", action="store_true", help="also on a machine that does something else: no figures to quote")
    given = parser.parse_args()
    there = {record.name: record for record in records()}
    entered = ledger()
    if given.list:
        for name, record in there.items():
            made = entered.get(name)
            of, took = ("-", "-") if made is None else (made["commit"], made["seconds"])
            print(f"{name:22} {of:9} {took:>6} s  {' '.join(record.command)}")
        return 0
    if unknown := set((given.only or "").split(",")) - {"", *there}:
        parser.error(f"no such record: {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    at = commit()
    wanted = given.only.split(",") if given.only else [name for name in there if entered.get(name, {}).get("commit") != at]
    virtual, real = [name for name in wanted if there[name].virtual], [name for name in wanted if not there[name].virtual]
    print(f"{len(virtual)} records of the simulator, {len(real)} of this machine", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as hands:
        made = dict(zip(virtual, hands.map(lambda name: make(there[name], at, os.getloadavg()[0]), virtual), strict=True))
    for number, name in enumerate(real, 1):
        load = os.getloadavg()[0] if given.busy else wait_until_quiet(300.0)
        print(f"record {number} of {len(real)}: {name}", flush=True)
        made[name] = make(there[name], at, load)
    subprocess.run([sys.executable, "tools/gen_measured.py"], cwd=ROOT, check=True)
    failed = [name for name in wanted if not made[name]]
    if failed:
        print(f"not made: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
