"""Make the records of all experiments and benches again, one after the other: what `make records` runs.

    python tools/records.py                        # those that were not made at the present commit
    python tools/records.py --only latency,memory  # some of them, whatever commit they are of
    python tools/records.py --list                 # which there are, of which commit each is, and how long it took

A record is worth something only on a machine that does nothing else, so it waits until the machine is quiet, and one during which others
were at work is not entered; --busy makes it all the same. Those of the simulator go by virtual time: they come first, as many at once as
there are cores. One is entered only if the commit is the same before and after it.
`bench/results/records.json` says of each record its commit, how long it took, the load before it, and the most that others used meanwhile.
What is interrupted goes on where it was. At the end docs/measured.md and README.md say what the records say.
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
from secrets import token_hex
from threading import Event, Lock, Thread
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
LEDGER: Final = RESULTS / "records.json"
ENTERING: Final = Lock()
QUIET_LOAD: Final = 0.5
"""Of the last minute: processes that want to run. Above it somebody else is at work."""
OTHERS_MAX: Final = 0.5
"""Cores that others may use in any minute while a record is made."""
MINUTE_S: Final = 60.0
SAMPLE_S: Final = 10.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
MARK: Final = "EVENFLOW_RECORD"
"""Every process below a record has it in its environment, whoever becomes its parent."""
CLOCKED: Final = frozenset({"shedding"})
"""Experiments of the simulator that also measure processor time."""


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
            world == "sim" and each.name not in CLOCKED,
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
        bench("restart", "--kills", "100", "--stale-drivers", "20", "--on-spark", "30"),
        bench("checkpoint"),
        bench("restore"),
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


@dataclass(frozen=True, slots=True)
class Process:
    """One that runs. begun: ticks since boot, which tells it from another of its number. cpu_s: seconds that it has used. marked: it has
    the mark in its environment."""

    pid: int
    begun: int
    parent: int
    cpu_s: float
    marked: bool


def processes(mark: str) -> list[Process]:
    """All that run now, but for the kernel's own."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if not (folder / "cmdline").read_bytes():
                continue
        except OSError:
            continue  # It has ended meanwhile.
        try:
            marked = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            marked = False  # It is somebody else's.
        found.append(Process(int(folder.name), int(fields[19]), int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S, marked))
    return found


def used_by_others(before: Sequence[Process], after: Sequence[Process], own: int) -> float:
    """Processor seconds between two looks of those that are not marked, not `own` and not below one of these. What began and ended
    between them is in none."""
    earlier = {(each.pid, each.begun): each.cpu_s for each in before}
    ours = {each.pid for each in after if each.marked or each.pid == own}
    while more := {each.pid for each in after if each.parent in ours} - ours:
        ours |= more
    return sum(each.cpu_s - earlier.get((each.pid, each.begun), 0.0) for each in after if each.pid not in ours)


def most_in_a_minute(looks: Sequence[tuple[float, float]]) -> float:
    """The most cores that others used in a minute, or in all of the time where that is less. looks: (second, processor seconds of others
    since the look before)."""
    most, first = 0.0, 0
    for last, (at_s, _) in enumerate(looks):
        while first < last and at_s - looks[first + 1][0] >= MINUTE_S:
            first += 1
        seconds = at_s - looks[first][0]
        if seconds >= MINUTE_S or (last == len(looks) - 1 and seconds > 0 and first == 0):
            most = max(most, sum(cpu_s for _, cpu_s in looks[first + 1 : last + 1]) / seconds)
    return most


class Others:
    """Looks at what others use from `begin` to `end`, in a thread of its own."""

    def __init__(self, mark: str) -> None:
        self._mark, self._over, self._looks = mark, Event(), [(time.monotonic(), 0.0)]
        self._last = processes(mark)
        self._thread = Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> float:
        """The most cores in a minute."""
        self._over.set()
        self._thread.join()
        self._look()
        return most_in_a_minute(self._looks)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        now = processes(self._mark)
        self._looks.append((time.monotonic(), used_by_others(self._last, now, os.getpid())))
        self._last = now


def is_still(at: str) -> bool:
    try:
        return commit() == at
    except SystemExit as error:
        print(error, file=sys.stderr, flush=True)
        return False


def make(record: Record, at: str, load: float, *, busy: bool = False) -> bool:
    """Run one and enter it. Returns whether it was entered; what there was before stays if not. busy: whatever others do."""
    files = {RESULTS / name: (RESULTS / name).read_bytes() if (RESULTS / name).is_file() else None for name in record.files}
    began, mark = time.monotonic(), token_hex(8)
    others = Others(mark)
    others.begin()
    same = is_still(at)
    code = subprocess.run([sys.executable, *record.command], cwd=ROOT, check=False, env=os.environ | {MARK: mark}).returncode if same else 0
    took_s, most = time.monotonic() - began, others.end()
    why = ""
    if code != 0:
        why = f"exit code {code} after {took_s:.0f} s"
    elif not (same and is_still(at)):
        why = f"the sources are no longer those of {at}"
    elif most > OTHERS_MAX and not record.virtual and not busy:
        why = f"others used {most:.1f} cores meanwhile"
    if why:
        print(f"{record.name}: not entered: {why}", file=sys.stderr, flush=True)
        for path, before in files.items():
            if before is not None:
                path.write_bytes(before)
            else:
                path.unlink(missing_ok=True)
        return False
    with ENTERING:
        entry = {"commit": at, "seconds": round(took_s), "load_before": round(load, 2)}
        entries = ledger() | {record.name: entry if record.virtual else entry | {"others_cores_max": round(most, 2)}}
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
        made[name] = make(there[name], at, load, busy=given.busy)
    subprocess.run([sys.executable, "tools/gen_measured.py"], cwd=ROOT, check=True)
    failed = [name for name in wanted if not made[name]]
    if failed:
        print(f"not made: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
