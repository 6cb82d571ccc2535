"""`evenflow bench failover`: kill executors under the demo's query, and see what its output shows of it.

The query is that of `evenflow.bench.monitored`. A kill comes at a random moment after everything is whole again: full redundancy, a
death that would cost nothing, all sites and spares there, results as young as before. A gap counts whole, from the last output before it
to the first one after it, and anywhere until everything is whole again, so also what an executor's JVM costs these cores while Spark
starts it anew.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np

from evenflow.availability.choosing import given_to, modes_of
from evenflow.availability.guarantee import Guarantee
from evenflow.availability.mode import Mode
from evenflow.bench import killing
from evenflow.bench.expected import Compared
from evenflow.bench.failing import HANG_S, PIECE_S, SITES, Setting
from evenflow.bench.gaps import FIRST_MOMENT_S, Gap, longest_gap, percentile_ms, usual_gaps, within
from evenflow.bench.killing import victim_of
from evenflow.bench.measuring import cpu_of, loopback_bytes, machine
from evenflow.bench.monitored import Monitored, Output
from evenflow.bench.readers import readers_apart
from evenflow.bench.spark_failover import micro_batch_failover
from evenflow.errors import ClusterError, EvenflowError
from evenflow.query.planner import layout
from evenflow.statistics.progress import SiteProgress

Say = Callable[[str], None]

LEAD_S: Final = 3.0
"""The first packet is due so long after the dataflow is made: parts are built and linked meanwhile."""
WARM_S: Final = 8.0
SETTLED_S: Final = 2.0
"""Results must have been young for this long before anybody is killed."""
SLACK_S: Final = 0.05
"""How much older than at the beginning results may be and still count as young."""
WHOLE_WITHIN_S: Final = 120.0
POLL_S: Final = 0.1
"""To ask how it goes costs the driver milliseconds, in which nothing comes out."""
TAIL_S: Final = 2.0


@dataclass(slots=True)
class Kill:
    """One kill. at_s: monotonic. redundant_s, whole_s: from then until redundancy was full, until everything was whole; None: not yet.
    tabs: readers of the page from `calm_from_s` until then."""

    site: int
    manner: str
    at_s: float
    redundant_s: float | None = None
    whole_s: float | None = None
    calm_from_s: float = 0.0
    tabs: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)


class Watched:
    """A run of the query under fire."""

    def __init__(self, run: Any, monitored: Monitored, setting: Setting, say: Say) -> None:
        self.run, self.monitored, self.setting, self.say = run, monitored, setting, say
        self.kills: list[Kill] = []
        self.calm: list[tuple[float, float]] = []
        """Spans in which nobody had been killed and everything was whole."""
        self.cores = self.bytes_per_s = 0.0
        self.died = False
        """The run ended while it was watched."""
        self._young_s = 0.0
        self._random = Random(setting.seed)

    def warm(self) -> None:
        """Wait for output and let it settle, then learn what is usual."""
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while self.monitored.traffic.last is None:
            self._pass(0.1)
            if time.monotonic() > deadline:
                raise ClusterError(f"no output within {WHOLE_WITHIN_S:.0f} s")
        self._pass(WARM_S)
        began_s, cpu_s, sent = time.monotonic(), cpu_of(self.run.numbers()), loopback_bytes()
        self._pass(self.setting.calm_s)
        ended_s = time.monotonic()
        self.cores = (cpu_of(self.run.numbers()) - cpu_s) / (ended_s - began_s)
        self.bytes_per_s = (loopback_bytes() - sent) / (ended_s - began_s)
        self.calm.append((began_s, ended_s))
        self._young_s = self._oldest_but_one_percent_s(began_s, ended_s)

    def strike(self, tabs: int = 0) -> None:
        """Kill one site's executor and wait until everything is whole again. tabs: so many readers of the page are there meanwhile.
        Raises what the run raises; ClusterError if it takes long."""
        calm_from_s = time.monotonic()
        self._pass(self._random.uniform(0.5, 1.5) * self.setting.seconds_between)
        self._await_spared()
        sites = self._working()
        site = self._random.choice(sites)
        manner = self.setting.manners[len(self.kills) % len(self.setting.manners)]
        victim = victim_of(site.site, site.pid)
        processes = victim.processes("machine" if self.setting.hang else manner)
        known = self._events_since()[1]
        if self.setting.hang:
            kill = Kill(victim.site, "hang", killing.stop(processes))
        else:
            kill = Kill(victim.site, manner, killing.kill(processes))
        kill.calm_from_s, kill.tabs = calm_from_s, tabs
        self.calm.append((calm_from_s, kill.at_s))
        self.kills.append(kill)
        try:
            self._await_whole(kill, known, processes)
        finally:
            if self.setting.hang:
                killing.resume(processes)
            kill.events = [dict(event) for event in self._events_since(known)[0]]

    def _await_spared(self) -> None:
        """What has been moved since it was whole may have no base for a while, and then a death costs what it is said to cost."""
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while (spared := self.run.numbers().protected) < self.setting.spared:
            if time.monotonic() > deadline:
                raise ClusterError(f"within {WHOLE_WITHIN_S:.0f} s no moment at which {self.setting.spared} deaths cost nothing: {spared}")
            self._pass(POLL_S)

    def _await_whole(self, kill: Kill, known: int, stopped: Sequence[int]) -> None:
        deadline = kill.at_s + WHOLE_WITHIN_S
        noticed = resumed = False
        while True:
            self._pass(POLL_S)
            now_s = time.monotonic()
            if self.setting.hang and not resumed and now_s - kill.at_s >= HANG_S:
                killing.resume(stopped)
                resumed = True
            progress = self.run.numbers()
            redundancy = progress.redundancy
            lost = any(event["kind"] == "site_lost" for event in self._events_since(known)[0])
            noticed = noticed or redundancy < self.setting.redundancy or lost
            full = noticed and redundancy >= self.setting.redundancy and progress.protected >= self.setting.spared
            if full and kill.redundant_s is None:
                kill.redundant_s = now_s - kill.at_s
            all_there = len(alive(progress.sites)) >= SITES + self.setting.spares
            if full and all_there and (resumed or not self.setting.hang) and self._settled(kill.at_s, now_s):
                kill.whole_s = now_s - kill.at_s
                return
            if now_s > deadline:
                raise ClusterError(
                    f"kill {len(self.kills)} (site {kill.site}, {kill.manner}): not whole again within {WHOLE_WITHIN_S:.0f} s: "
                    f"redundancy {redundancy} of {self.setting.redundancy}, deaths that would cost nothing {progress.protected} of "
                    f"{self.setting.spared}, {len(alive(progress.sites))} sites, noticed: {noticed}"
                )

    def _settled(self, since_s: float, now_s: float) -> bool:
        """Results have been as young as at the beginning for SETTLED_S."""
        if now_s - since_s < SETTLED_S:
            return False
        return self._oldest_but_one_percent_s(now_s - SETTLED_S, now_s) <= 1.5 * self._young_s + SLACK_S

    def _oldest_but_one_percent_s(self, begin_s: float, end_s: float) -> float:
        moments, ages = self.monitored.ages(begin_s)
        seen = within(moments, ages, [(begin_s, end_s)])
        return float(np.percentile(seen, 99, method="inverted_cdf")) if len(seen) else float("inf")

    def _working(self) -> list[SiteProgress]:
        """Sites that host something: to kill an idle spare would prove nothing."""
        sites = alive(self.run.numbers().sites)
        return [site for site in sites if site.state_bytes > 0] or sites

    def _events_since(self, seen: int = 0) -> tuple[list[dict[str, Any]], int]:
        """See `Run.events_since`; another engine has none."""
        since: Callable[[int], tuple[list[dict[str, Any]], int]] | None = getattr(self.run, "events_since", None)
        return ([], 0) if since is None else since(seen)

    def _pass(self, seconds: float) -> None:
        """Let time go by. Raises what the run raises, and ClusterError if it ends without a reason."""
        if self.run.await_termination(seconds):
            raise ClusterError("the run has ended before its time")


def alive(sites: Sequence[SiteProgress]) -> list[SiteProgress]:
    """Sites whose process runs: what the run says of a site may be older than its end."""
    return [site for site in sites if killing.runs(site.pid)]


def evenflow_failover(spark: Any, example: Any, setting: Setting, say: Say) -> dict[str, Any]:
    """Run the query, kill, and report. A run that fails is reported as far as it went: `failed` says why."""
    from evenflow.world.spark.driver.engine import Engine

    failed = None
    with Engine(spark, sites=SITES, **setting.engine_options) as engine:
        begin_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        monitored = Monitored(example, setting.rate, begin_us, unordered=setting.unordered, sessions=not setting.closes)
        run = engine.start(monitored.dataflow(), availability=setting.availability)
        watched = Watched(run, monitored, setting, say)
        try:
            say(f"Evenflow, {setting.rate:,} packets/s, nobody is killed")
            watched.warm()
            url, _, token = engine.open_ui(0).url().partition("#token=") if setting.tabs else ("", "", "")
            for number in range(setting.kills):
                tabs = setting.tabs if number % 2 else 0
                with readers_apart(url, token, tabs):
                    watched.strike(tabs)
                say(one_line(number + 1, watched))
            run.await_termination(TAIL_S)
        except EvenflowError as error:
            failed = f"{type(error).__name__}: {error}"
            watched.died = not run.is_active
            say(f"after {len(watched.kills)} kills: {failed}")
        if run.is_active:
            run.stop()
    say("comparing the output row by row")
    return report(watched, monitored.compare(), failed)


def protected(spark: Any, example: Any, setting: Setting, say: Say) -> dict[str, Any]:
    """As `evenflow_failover`, between two runs with one replica: what the way of being available costs, and what it promises for that.

    guarantee: the weakest that an output has. cpu_ratio: CPU of all sites over that with one replica, while nobody is killed. bytes_ratio:
    the same of what goes over the loopback interface.
    """
    say("one replica, before")
    before = evenflow_failover(spark, example, setting.plain, say)
    ours = evenflow_failover(spark, example, setting, say)
    say("one replica, after")
    after = evenflow_failover(spark, example, setting.plain, say)

    def ratio(name: str) -> float | None:
        plain = before[name] + after[name]
        return round(2 * ours[name] / plain, 3) if plain else None

    return {**ours, "guarantee": promised(example, setting), "cpu_ratio": ratio("cores"), "bytes_ratio": ratio("bytes_per_s")}


def promised(example: Any, setting: Setting) -> str:
    """What the outputs have through failures, at least."""
    planned = layout(Monitored(example, setting.rate, 0, sessions=not setting.closes).dataflow().network, sites=SITES)
    modes = modes_of(planned, setting.availability or Mode.PAIRS, SITES, setting.replicas)
    return str(min((given_to(planned, modes, sink) for sink in planned.sinks), key=list(Guarantee).index))


def broken(measured: Mapping[str, Any]) -> int:
    """Rows that are not what the outputs promise, of a report: lost, wrong, and repeated where a sink's are given once. None that are
    missing where some may be."""
    promise = measured.get("guarantee") or Guarantee.PRECISE
    if promise == Guarantee.GAP:
        return 0
    names = ("rows_lost", "rows_wrong") if promise == Guarantee.NO_LOSS else ("rows_lost", "rows_wrong", "rows_repeated")
    return sum(int(found.get(name, 0)) for found in (measured, measured.get("unordered") or {}) for name in names)


def one_line(number: int, watched: Watched) -> str:
    kill, gap = watched.kills[-1], gap_after(watched, watched.kills[-1])
    return (
        f"kill {number}: site {kill.site}, {kill.manner}: gap {gap.seconds * 1000:.0f} ms, "
        f"redundant after {kill.redundant_s or 0:.2f} s, whole after {kill.whole_s or 0:.1f} s"
    )


def gap_after(watched: Watched, kill: Kill, within_s: float = math.inf, output: Output | None = None) -> Gap:
    """The longest gap from a kill until everything was whole, or until `within_s` after it. Infinite for a kill that the run died of.
    output: in which; None: in the counts."""
    if watched.died and kill is watched.kills[-1]:
        return Gap(kill.at_s, math.inf)
    moments = (output or watched.monitored.traffic).moments
    whole_s = kill.whole_s if kill.whole_s is not None else float(moments[-1]) - kill.at_s
    return longest_gap(moments, kill.at_s, kill.at_s + min(whole_s, within_s))


def report(watched: Watched, compared: Compared, failed: str | None) -> dict[str, Any]:
    """Everything about Evenflow's run, as the keys of the JSON object."""
    setting, kills, monitored = watched.setting, watched.kills, watched.monitored
    whole = [kill for kill in kills if kill.whole_s is not None]
    longest = [gap_after(watched, kill) for kill in kills]
    early = [gap_after(watched, kill, FIRST_MOMENT_S) for kill in kills]
    gaps, first = [gap.seconds for gap in longest], [gap.seconds for gap in early]
    usual = usual_gaps(monitored.traffic.moments, watched.calm, min(PIECE_S, setting.calm_s))
    moments, ages = monitored.ages()
    during = [(kill.at_s, kill.at_s + max(kill.redundant_s or 0.0, FIRST_MOMENT_S)) for kill in kills]
    after = [(end_s, kill.at_s + kill.whole_s) for kill, (_, end_s) in zip(kills, during) if kill.whole_s is not None]
    by_manner: dict[str, list[float]] = defaultdict(list)
    for kill, gap in zip(kills, gaps):
        by_manner[kill.manner].append(gap)
    redundant = [kill.redundant_s for kill in kills if kill.redundant_s is not None]
    return {
        "kills": len(kills),
        "gap_ms_p50": percentile_ms(gaps, 50),
        "gap_ms_p95": percentile_ms(gaps, 95),
        "gap_ms_max": percentile_ms(gaps, 100),
        "first_second_gap_ms_p50": percentile_ms(first, 50),
        "first_second_gap_ms_p95": percentile_ms(first, 95),
        "first_second_gap_ms_max": percentile_ms(first, 100),
        "usual_gap_ms_p50": percentile_ms(usual, 50),
        "usual_gap_ms_max": percentile_ms(usual, 100),
        "p99_ms_before": percentile_ms(within(moments, ages, watched.calm), 99),
        "p99_ms_during": percentile_ms(within(moments, ages, during), 99),
        "p99_ms_after": percentile_ms(within(moments, ages, after), 99),
        "rows_compared": compared.expected,
        "rows_lost": compared.lost,
        "rows_repeated": compared.repeated,
        "rows_wrong": compared.wrong,
        "epochs_repeated": monitored.traffic.repeated_epochs + monitored.statistics.repeated_epochs,
        "redundancy_s": round(float(np.median(redundant)), 3) if redundant else None,
        "redundancy_s_max": round(max(redundant), 3) if redundant else None,
        "whole_s": round(float(np.median([kill.whole_s for kill in whole if kill.whole_s is not None])), 2) if whole else None,
        "cores": round(watched.cores, 3),
        "bytes_per_s": round(watched.bytes_per_s),
        "outputs_per_s": outputs_per_s(watched),
        "failed": failed,
        **in_the_first_second_and_later(watched, watched.monitored.traffic),
        "unordered": None if monitored.first_come is None else first_come(watched, monitored.first_come),
        "tabs": looked_at(watched) if setting.tabs else None,
        "gap_ms_by_manner": {manner: [percentile_ms(seen, p) for p in (50, 95, 100)] for manner, seen in sorted(by_manner.items())},
        "each": [
            {
                "site": kill.site,
                "manner": kill.manner,
                "gap_ms": percentile_ms([gap.seconds], 100),
                "first_second_gap_ms": percentile_ms([first_gap.seconds], 100),
                "gap_begins_ms": percentile_ms([gap.begin_s - kill.at_s], 100),
                "redundant_s": None if kill.redundant_s is None else round(kill.redundant_s, 3),
                "whole_s": None if kill.whole_s is None else round(kill.whole_s, 2),
                "events": kill.events,
            }
            for kill, gap, first_gap in zip(kills, longest, early)
        ],
    }


def in_the_first_second_and_later(watched: Watched, output: Output) -> dict[str, float | None]:
    """copies_over_first_second: the median over kills of the longest gap while copies run, from the first second after the kill until
    redundancy is full, over the longest within that second. None if copies never took longer."""
    ratios, moments = [], output.moments
    for kill in watched.kills:
        if kill.redundant_s is not None and kill.redundant_s > FIRST_MOMENT_S:
            later = longest_gap(moments, kill.at_s + FIRST_MOMENT_S, kill.at_s + kill.redundant_s)
            ratios.append(later.seconds / gap_after(watched, kill, FIRST_MOMENT_S, output).seconds)
    return {"copies_over_first_second": round(float(np.median(ratios)), 3) if ratios else None}


def first_come(watched: Watched, output: Output) -> dict[str, Any]:
    """What the output shows that is first come, first served."""
    compared = watched.monitored.compare_first_come()
    longest = [gap_after(watched, kill, output=output).seconds for kill in watched.kills]
    first = [gap_after(watched, kill, FIRST_MOMENT_S, output).seconds for kill in watched.kills]
    usual = usual_gaps(output.moments, watched.calm, min(PIECE_S, watched.setting.calm_s))
    return {
        **{f"gap_ms_{name}": percentile_ms(longest, p) for name, p in (("p50", 50), ("p95", 95), ("max", 100))},
        **{f"first_second_gap_ms_{name}": percentile_ms(first, p) for name, p in (("p50", 50), ("p95", 95), ("max", 100))},
        "usual_gap_ms_p50": percentile_ms(usual, 50),
        **in_the_first_second_and_later(watched, output),
        "rows_compared": compared.expected,
        "rows_lost": compared.lost,
        "rows_repeated": compared.repeated,
        "rows_wrong": compared.wrong,
    }


def looked_at(watched: Watched) -> dict[str, Any]:
    """What readers of the page change: the kills while they were there beside those, by turns, while nobody was."""
    moments, ages = watched.monitored.ages()

    def of(tabs: int) -> dict[str, Any]:
        kills = [kill for kill in watched.kills if kill.tabs == tabs]
        gaps = [gap_after(watched, kill).seconds for kill in kills]
        first = [gap_after(watched, kill, FIRST_MOMENT_S).seconds for kill in kills]
        calm = [(kill.calm_from_s, kill.at_s) for kill in kills]
        return {
            "readers": tabs,
            "kills": len(kills),
            **{f"gap_ms_{name}": percentile_ms(gaps, p) for name, p in (("p50", 50), ("max", 100))},
            **{f"first_second_gap_ms_{name}": percentile_ms(first, p) for name, p in (("p50", 50), ("max", 100))},
            "p99_ms_before": percentile_ms(within(moments, ages, calm), 99),
        }

    return {"with": of(watched.setting.tabs), "without": of(0)}


def outputs_per_s(watched: Watched) -> float | None:
    """How often the query put something out while nobody was killed."""
    moments = watched.monitored.traffic.moments
    seconds = sum(end_s - begin_s for begin_s, end_s in watched.calm)
    return round(len(within(moments, moments, watched.calm)) / seconds, 1) if seconds else None


def run(*, setting: Setting, example: Any, quick: bool, say: Say) -> dict[str, Any]:
    """Both systems, one after the other, each on a cluster of its own of the same kind. example: the module of the demo's query."""
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    spark = embedded_session(setting.master, sites_only=True)
    try:
        ours = evenflow_failover(spark, example, setting, say) if setting.availability is None else protected(spark, example, setting, say)
    finally:
        stop_session(spark)
    theirs: dict[str, Any] = {"spark_gap_ms_p50": None, "spark_gap_ms_max": None}
    if setting.spark_kills:
        spark = embedded_session(setting.master)
        try:
            theirs = micro_batch_failover(spark, setting, say)
        except Exception as error:  # Whatever happens to the rival, what was measured before is not thrown away.
            theirs["spark_failed"] = f"{type(error).__name__}: {error}"
            say(f"Structured Streaming: {theirs['spark_failed']}")
        finally:
            stop_session(spark)
    return {
        "benchmark": "failover",
        "quick": quick,
        "rate": setting.rate,
        "linger_ms": setting.linger_ms,
        "sites": SITES,
        "spares": setting.spares,
        "replicas": setting.replicas,
        "availability": setting.availability,
        "hang_s": HANG_S if setting.hang else None,
        **ours,
        **theirs,
        "machine": machine(),
        "master": setting.master,
    }
