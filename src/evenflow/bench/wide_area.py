"""Three regions of a group, each a standalone cluster of its own, behind ways of 10, 40 and 90 ms: one is cut off and comes back, one dies.

A subscriber reads all three through proxies on loopback and never waits for the one that is away. What is cut off, and what dies, is the
region that brings the rows just then. All rows are compared with what the dataflow must put out.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import Any, Final

from evenflow.bench import killing
from evenflow.bench.background import free_ports
from evenflow.bench.delaying_proxy import DelayingProxy
from evenflow.bench.measuring import machine
from evenflow.bench.region import SINK, Region, Row, compared, expected, gap_ms
from evenflow.bench.standalone import Standalone
from evenflow.errors import ClusterError
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.world.spark.regions.subscriber import Subscriber, subscribe

DELAYS_MS: Final = (10.0, 40.0, 90.0)
"""One way."""
HEDGE_MS: Final = 50.0
"""Most that a subscriber waits before it asks another region (A7)."""
SLACK_MS: Final = 50.0
SPAN_S: Final = 5.0
"""After something has happened, in which the longest gap counts."""
TAKE_S: Final = 0.02
BEGINS_IN_S: Final = 3.0
COMES_S: Final = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """calm_s: before, between and after what happens. cut_s: for how long a region is cut off."""

    rate: int = 2_000
    width_ms: float = 50.0
    calm_s: float = 20.0
    cut_s: float = 60.0


QUICK: Final = Setting(calm_s=6.0, cut_s=10.0)


@dataclass(slots=True)
class Taken:
    """What the subscriber was given: rows, and when each epoch came, monotonic seconds. late_s: behind the end of the epoch."""

    begin_s: float
    width_s: float
    rows: Counter[Row] = field(default_factory=Counter)
    times_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    last: int = 0

    def take(self, subscriber: Subscriber, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            found = subscriber.take(min(TAKE_S, left_s))
            if found is not None:
                epoch, batch = found
                self.times_s.append(time.monotonic())
                self.late_s.append(time.time() - (self.begin_s + epoch * self.width_s))
                self.last = epoch
                self.rows.update((epoch, row["key"], row["n"]) for row in batch.to_pylist())


class Driver:
    """The process of a region and the cluster below it."""

    def __init__(self, region: Region, cluster: Standalone, home: Path, secret: str) -> None:
        self.region, self._cluster, self._log = region, cluster, home / "driver.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                region.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True,
                env=os.environ | {SECRET_VARIABLE: secret},
            )  # fmt: skip

    def await_word(self, word: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != word:
            raise ClusterError(f"a region did not come to say {word!r}: {said or self._log.read_text(errors='replace')[-600:]}")

    def begin(self, at_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{at_s!r}\n")
        self._process.stdin.flush()

    def kill(self) -> float:
        """kill -9 of the driver, its executors and its cluster, as if the region were lost. Returns when, monotonic seconds."""
        parent_of = killing.parents()
        return killing.kill([self._process.pid, *killing.below(self._process.pid, parent_of), *self._cluster.processes])

    def stop(self) -> None:
        for channel in (self._process.stdin, self._process.stdout):
            if channel is not None:
                try:
                    channel.close()
                except OSError:
                    pass  # It is gone, and has not read what was said last.
        try:
            self._process.wait(40.0)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


@contextmanager
def regions(setting: Setting, ports: Sequence[int], group: str, secret: str, say: Say) -> Iterator[list[Driver]]:
    """As many regions as ports, with their sites placed, one after the other: to start is what costs most."""
    with ExitStack() as stack:
        found = []
        for number, port in enumerate(ports, 1):
            say(f"region {number} of {len(ports)}: a standalone cluster and a driver start")
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evenflow-region-")))
            cluster = Standalone(1, home, cores=1, memory="600m")
            stack.callback(cluster.stop)
            driver = Driver(Region(cluster.url, port, group, setting.width_ms, setting.rate), cluster, home, secret)
            stack.callback(driver.stop)
            driver.await_word("placed")
            found.append(driver)
        yield found


def run(*, setting: Setting, quick: bool, say: Say) -> dict[str, Any]:
    secret, group = token_hex(16), f"bench-{token_hex(4)}"
    os.environ[SECRET_VARIABLE] = secret
    ports = free_ports(len(DELAYS_MS))
    with regions(setting, ports, group, secret, say) as drivers, ExitStack() as stack:
        ways = [stack.enter_context(DelayingProxy(("127.0.0.1", port), ms)) for port, ms in zip(ports, DELAYS_MS)]
        begin_s = float(int(time.time() + BEGINS_IN_S))
        for driver in drivers:
            driver.begin(begin_s)
        for driver in drivers:
            driver.await_word("running")
        return measured(setting, quick, say, drivers, ways, group, begin_s)


def measured(
    setting: Setting, quick: bool, say: Say, drivers: Sequence[Driver], ways: Sequence[DelayingProxy], group: str, begin_s: float
) -> dict[str, Any]:
    urls = [f"{way.address[0]}:{way.address[1]}?listens={way.target[1]}" for way in ways]
    taken = Taken(begin_s, setting.width_ms / 1000)
    with subscribe(urls, group, SINK, after=0, patience_s=COMES_S) as subscriber:

        def brought(seconds: float) -> list[int]:
            before = [way.brought_bytes for way in ways]
            taken.take(subscriber, time.monotonic() + seconds)
            return [way.brought_bytes - earlier for way, earlier in zip(ways, before)]

        deadline = time.monotonic() + COMES_S
        while not taken.times_s and time.monotonic() < deadline:
            taken.take(subscriber, time.monotonic() + 1.0)
        taken.take(subscriber, time.monotonic() + setting.calm_s / 2)

        def bringing() -> tuple[int, list[int]]:
            """The region that brings the rows, and what each has brought in the last SPAN_S: when both say the same one."""
            deadline = time.monotonic() + COMES_S
            while time.monotonic() < deadline:
                just, leg = brought(SPAN_S), subscriber.leg
                if leg is not None and brings(leg, just):
                    return leg, just
            raise ClusterError(f"for {COMES_S:g} s no region brought most bytes and was the one that brings the rows")

        say("all three regions are there")
        first = len(taken.late_s)
        calm = brought(setting.calm_s)
        usual = sorted(taken.late_s[first:])
        cut, just = bringing()
        struck = [Struck("cut", cut, time.monotonic(), just)]
        ways[cut].cut()
        say(f"region {cut + 1}, which brings the rows, is cut off for {setting.cut_s:g} s")
        taken.take(subscriber, time.monotonic() + setting.cut_s)
        ways[cut].heal()
        back = brought(setting.calm_s)
        killed, just = bringing()
        struck.append(Struck("killed", killed, drivers[killed].kill(), just))
        say(f"region {killed + 1}, which brings the rows, dies")
        taken.take(subscriber, time.monotonic() + setting.calm_s)
        progress = subscriber.progress()
    gaps = [gap_ms(taken.times_s, each.at_s, each.at_s + SPAN_S) for each in struck]
    return {
        "driver_kills": 1,
        "cuts": 1,
        "gap_ms_p50": median(gaps),
        "gap_ms_max": max(gaps),
        "gap_ms_must": setting.width_ms + HEDGE_MS + max(DELAYS_MS) - min(DELAYS_MS) + SLACK_MS,
        "usual_gap_ms": gap_ms(taken.times_s, taken.times_s[first], taken.times_s[first] + setting.calm_s - 1),
        **compared(taken.rows, expected(drivers[0].region, round(begin_s * 1e6), taken.last)),
        "bytes_ratio": sum(calm) / max(calm),
        "came_back_bytes": back[cut],
        "latency_ms_p50": 1000 * usual[len(usual) // 2],
        "latency_ms_p99": 1000 * usual[int(len(usual) * 0.99)],
        "epochs": len(taken.times_s),
        "hedged": progress["hedged"],
        "swapped": progress["swapped"],
        "each": by_region(DELAYS_MS, calm, struck, gaps),
        "quick": quick,
        "machine": machine(),
    }


@dataclass(frozen=True, slots=True)
class Struck:
    """what: "cut" or "killed". region: the one that it happened to. at_s: monotonic. brought: bytes of each region in the SPAN_S before."""

    what: str
    region: int
    at_s: float
    brought: Sequence[int]


def by_region(delays_ms: Sequence[float], calm: Sequence[int], struck: Sequence[Struck], gaps: Sequence[float]) -> list[dict[str, Any]]:
    """What happened to each. One may have been struck twice: when it is back it brings the rows again."""
    found = []
    for number, delay_ms in enumerate(delays_ms):
        mine = [(each, gap) for each, gap in zip(struck, gaps, strict=True) if each.region == number]
        told = [{"what": each.what, "gap_ms": gap, "brought_bytes": list(each.brought)} for each, gap in mine]
        fate, longest = " and ".join(each.what for each, _ in mine) or "none", max((gap for _, gap in mine), default=None)
        found.append({"delay_ms": delay_ms, "fate": fate, "gap_ms": longest, "calm_bytes": calm[number], "struck": told})
    return found


def brings(leg: int, brought: Sequence[int]) -> bool:
    """Whether this region, which the subscriber says brings the rows, has brought more bytes than any other."""
    return all(other < brought[leg] for number, other in enumerate(brought) if number != leg)
