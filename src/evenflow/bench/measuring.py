"""Measure a dataflow on the sites of an engine: rows per second, CPU seconds, memory."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow
    from evenflow.statistics.progress import Progress
    from evenflow.world.spark.driver.engine import Engine

MASTER: Final = "local-cluster[4,2,1024]"
SITES: Final = 4
SAMPLE_S: Final = 0.1
TICKS_PER_S: Final = 100
"""Clock ticks of /proc/PID/stat per second, the same on every Linux."""


@dataclass(frozen=True, slots=True)
class Flowed:
    """What a run did between two moments of its steady state.

    rows, seconds: taken in between them. cpu_s: CPU seconds of all sites' Python processes in that time. epochs: finished meanwhile.
    """

    rows: int
    seconds: float
    cpu_s: float
    epochs: int
    final: Progress

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_s_per_million_rows(self) -> float:
        return self.cpu_s / self.rows * 1e6

    @property
    def cpu_ms_per_epoch_and_site(self) -> float:
        return self.cpu_s / self.epochs / len(self.final.sites) * 1e3


def flow_steadily(engine: Engine, flow: Dataflow, *, skip: float = 0.25, timeout_s: float = 300.0) -> Flowed:
    """Run a dataflow over a bounded source to its end, and measure it from when `skip` of its rows are in until the last sample but one.

    The beginning is left out as it is for the rival: files are opened, state is empty, memory is touched for the first time.
    """
    _, samples, final, _ = _sampled(engine, flow, timeout_s)
    steady = [sample for sample in samples[1:] if sample.rows >= skip * final.rows_in]
    if len(steady) < 2:
        raise RuntimeError(f"{final.rows_in} rows went by in {len(samples)} samples: give it more rows")
    first, last = steady[0], steady[-1]
    return Flowed(last.rows - first.rows, last.at_s - first.at_s, last.cpu_s - first.cpu_s, last.epoch - first.epoch, final)


def flow_to_end(engine: Engine, flow: Dataflow, *, timeout_s: float = 300.0) -> Flowed:
    """Run a dataflow over a bounded source, and measure it from before its first row is in until its last result is out.

    Rows may go in long before they are processed, so a beginning cannot be left out by the count of rows. Processor time counts from
    before the start: sites say how many rows are in only now and then, and what they did until they first said so is of these rows.
    """
    begun, samples, final, ended_s = _sampled(engine, flow, timeout_s)
    first, last = samples[0], _sample(final)  # What was done since the last sample of the run counts, too.
    return Flowed(final.rows_in, ended_s - first.at_s, last.cpu_s - begun.cpu_s, final.epoch - first.epoch, final)


class Sample(NamedTuple):
    """at_s: when. rows: in so far. cpu_s: of all sites' Python processes so far. epoch: finished."""

    at_s: float
    rows: int
    cpu_s: float
    epoch: int


def _sampled(engine: Engine, flow: Dataflow, timeout_s: float) -> tuple[Sample, list[Sample], Progress, float]:
    """Run a dataflow to its end. Returns the first sample; the last one without rows, and one for each count of rows that was seen;
    the last progress; and when the run ended."""
    run = engine.start(flow)
    begun = _sample(run.numbers())
    samples = [begun]
    deadline = time.monotonic() + timeout_s
    while not run.await_termination(SAMPLE_S):
        sample = _sample(run.numbers())
        if sample.rows == 0:
            samples[0] = sample
        elif sample.rows != samples[-1].rows:
            samples.append(sample)
        if time.monotonic() > deadline:
            run.stop()
            raise TimeoutError(f"{flow!r} has not ended within {timeout_s} s: {run.progress()}")
    return begun, samples, run.numbers(), time.monotonic()


def _sample(progress: Progress) -> Sample:
    return Sample(time.monotonic(), progress.rows_in, cpu_of(progress), progress.epoch)


def flow_for(engine: Engine, flow: Dataflow, *, warm_s: float, seconds: float) -> Flowed:
    """Run a dataflow over an endless source, let it warm up, measure it for `seconds`, and stop it."""
    run = engine.start(flow)
    try:
        run.await_termination(warm_s)
        before, then = run.numbers(), time.monotonic()
        cpu = cpu_of(before)
        run.await_termination(seconds)
        after, now = run.numbers(), time.monotonic()
        cpu = cpu_of(after) - cpu
    finally:
        run.stop()
    return Flowed(after.rows_in - before.rows_in, now - then, cpu, after.epoch - before.epoch, after)


def cpu_of(progress: Progress) -> float:
    """CPU seconds that the sites' Python processes have used so far."""
    return sum(cpu_of_process(site.pid) for site in progress.sites)


def cpu_of_process(pid: int) -> float:
    """User and system CPU seconds of a process on this machine; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def loopback_bytes() -> int:
    """Bytes that have gone over this machine's loopback interface so far, whoever sent them; 0 where the system does not say."""
    try:
        lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(fields.split()[8]) for name, _, fields in (line.partition(":") for line in lines) if name.strip() == "lo"), 0)


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process: its private memory and its share of what it shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import numpy
    import pyarrow
    import pyspark

    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
    }
