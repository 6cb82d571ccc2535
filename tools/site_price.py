"""What an epoch costs a site, in seconds and without Spark: sites as processes of their own, over loopback, and a stand-in for the driver.

    python tools/site_price.py                        # four sites, a grouped aggregation with a few rows in each epoch
    python tools/site_price.py --flow pairs           # the demo's network, two replicas
    python tools/site_price.py --flow empty --calls   # what site 0 calls, for each epoch: counts do not lie on a busy machine
    python tools/site_price.py --tree ../other        # that tree's sites, by turns with this one's; medians and their ratio
    python tools/site_price.py --tls                  # with TLS, by turns with none

The sites are the real ones, with their sockets and threads. The stand-in starts one run, listens to nothing, and ends it. Another tree has
to have the modules that are named here; older ones, and figures that are published, are for `make against`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

WARM_S: Final = 1.5
SECRET: Final = bytes(32)
FLOWS: Final = ("grouped", "empty", "pairs", "idle")
SHOWN: Final = 150
CALLERS: Final = 8
"""Of a function that is called more often than `OFTEN` for each epoch: so many callers are named."""
OFTEN: Final = 4.0
SAMPLE_S: Final = 0.001


def flow_of(name: str, sites: int, rate: int) -> tuple[Any, dict[str, Any], int]:
    """(dataflow, its options, replicas)."""
    import evenflow as ef

    if name == "pairs":
        from evenflow.cli.demo import session_monitor

        return session_monitor(rate, None, None, lambda epoch, batch: None), {"linger_ms": 20.0}, 2  # type: ignore[arg-type]
    flow = ef.Dataflow(name)
    if name == "grouped":
        totals = flow.source(ef.sources.generator(rate=rate, keys=16_384)).group_by("key")
        totals.agg(n="count(*)", total="sum(value)", mean="avg(price)", combine=False).to(ef.sinks.discard())
        return flow, {}, 1
    counts = flow.source(ef.sources.generator(rate=1, keys=16_384)).group_by("key").agg(n="count(*)", combine=False)
    counts.group_by("n").agg(keys="count(*)", combine=False).to(ef.sinks.discard())
    return flow, {"heartbeat_ms": 5.0} if name == "empty" else {}, 1


def trusted(encrypted: bool) -> Any:
    """What sites and their driver know of each other."""
    if not encrypted:
        return SECRET
    from evenflow.world.spark.net.trust import Trust, new_certificate

    return Trust(SECRET, new_certificate())


def serve(index: int, driver: tuple[str, int], secret: Any, replicated: bool, calls: str, told: Any) -> None:
    """Be a site, and put (CPU seconds, finished epochs) of the time between two words of the parent's."""
    from evenflow.world.spark.executor.site import Site
    from evenflow.world.spark.net import control
    from evenflow.world.spark.net.handshake import dial
    from evenflow.world.spark.net.listener import open_port

    port = open_port("127.0.0.1")
    hello = {"as": "site", "site": index, "incarnation": f"life-{index}", "port": port.getsockname()[1]}
    connection = dial(driver, secret, hello)
    site = Site(control.You(index, 0, 0.05 if replicated else 0.0), hello, secret, driver, connection, port, 60.0)
    seen: dict[str, Any] = {}
    profile: Any = None

    def epochs() -> int:
        return sum(part.part.finished for part in site.parts.values())

    def mark(name: str) -> None:
        nonlocal profile
        usage = time.process_time()
        seen[name] = usage, epochs(), site.reactor.working.total_us(), os.times()[1]
        if calls == "samples":
            signal.signal(signal.SIGPROF, take)
            signal.setitimer(signal.ITIMER_PROF, *((SAMPLE_S, SAMPLE_S) if name == "begin" else (0.0, 0.0)))
        elif calls and index == 0:  # One of all is enough: what is counted is the same everywhere.
            import cProfile

            if profile is None:
                profile = cProfile.Profile(time.thread_time_ns, 1e-9)  # Of the processor: waiting and other processes do not count.
                profile.enable()
            else:
                profile.disable()

    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()

    def take(number: int, frame: Any) -> None:
        seen_here = set()
        own[f"{place(frame)}:{frame.f_lineno}"] += 1
        while frame is not None:
            seen_here.add(place(frame))
            frame = frame.f_back
        whole.update(seen_here)

    def listen() -> None:
        for name in ("begin", "end"):
            told.recv()
            site.reactor.call_soon(lambda name=name: mark(name))  # type: ignore[misc]
            while name not in seen:
                time.sleep(0.01)
        (cpu0, first, busy0, system0), (cpu1, last, busy1, system1) = seen["begin"], seen["end"]
        found: dict[str, Any] = {
            "cpu_s": cpu1 - cpu0,
            "epochs": last - first,
            "loop_s": (busy1 - busy0) / 1e6,
            "system_s": system1 - system0,
        }
        if profile is not None:
            profile.create_stats()
            found["calls"] = [
                (named(*key), primitive, own, whole, Counter({named(*by): told[0] for by, told in callers.items()}))
                for key, (primitive, _, own, whole, callers) in profile.stats.items()
            ]
        found["samples"] = own, whole
        found["pss"] = Path("/proc/self/smaps_rollup").read_text().split("Pss:")[1].split()[0]
        told.send(found)

    threading.Thread(target=listen, daemon=True).start()
    site.serve()


def named(file: str, line: int, name: str) -> str:
    return f"{Path(file).parent.name}/{Path(file).name}:{line} {name}"


def place(frame: Any) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name} {frame.f_code.co_name}"


class StandIn:
    """What the driver is to sites: it welcomes them, tells them of each other, and says that an epoch is stored when it hears of it."""

    def __init__(self, secret: Any) -> None:
        from evenflow.world.spark.net.listener import Listener, open_port
        from evenflow.world.spark.net.reactor import Reactor

        self.reactor = Reactor()
        self.listener = Listener(open_port("127.0.0.1"), self.reactor, secret, self.welcome)
        self.channels: dict[int, Any] = {}
        self.addresses: dict[int, tuple[str, int, str]] = {}
        self.linked: set[int] = set()
        self.ready: set[int] = set()
        self.failures: list[str] = []

    def welcome(self, sock: Any, hello: dict[str, Any]) -> None:
        from evenflow.world.spark.net.channel import Channel

        index = int(hello["site"])
        self.addresses[index] = ("127.0.0.1", int(hello["port"]), str(hello["incarnation"]))
        self.channels[index] = Channel(sock, self.reactor, lambda _, kind, body: self.heard(index, kind, body), lambda *_: None)

    def heard(self, index: int, kind: int, body: Any) -> None:
        from evenflow.site.events import SinkCommitted
        from evenflow.world.spark.net import control
        from evenflow.world.spark.net.framing import CONTROL
        from evenflow.world.spark.net.wire import decode_release

        if kind != CONTROL:  # A finished epoch: its sink has stored it.
            _, segment, epoch, *_ = decode_release(body)
            self.say(control.Deliver(1, SinkCommitted(segment, epoch)))
            return
        message = control.from_site(body)
        if isinstance(message, control.PartReady):
            self.ready.add(index)
        elif isinstance(message, control.Linked):
            self.linked.add(index)
        elif isinstance(message, control.PartBroken | control.SiteBroken) or "Failed" in repr(message)[:200]:
            self.failures.append(repr(message))

    def say(self, message: Any) -> None:
        from evenflow.world.spark.net import control
        from evenflow.world.spark.net.framing import CONTROL

        for channel in self.channels.values():
            channel.send(CONTROL, control.encode(message))

    def start(self, sites: int, program: bytes, plan: Any, membership: Any) -> None:
        """Once so many sites are there, until the first epoch may begin."""
        from evenflow.site.events import Started
        from evenflow.world.spark.net import control

        self.until(lambda: len(self.channels) == sites)
        self.say(control.Roster(1, self.addresses))
        self.until(lambda: len(self.linked) == sites)
        self.say(control.StartPart(1, "price", program, plan, membership))
        self.until(lambda: len(self.ready) == sites)
        self.say(control.Deliver(1, Started(0)))

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + 60
        while not done():
            self.reactor.poll(0.05)
            if self.failures or time.monotonic() > deadline:
                raise SystemExit(f"the sites do not start: {self.failures}, linked {self.linked}, ready {self.ready}")

    def listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.reactor.poll(left)
            if self.failures:
                raise SystemExit(f"a site has failed: {self.failures[0][:3000]}")


def run(flow_name: str, sites: int, seconds: float, rate: int, *, calls: str, encrypted: bool = False) -> dict[str, Any]:
    """One run: the figures of all sites together, and what site 0 calls."""
    from evenflow.kernels import warm
    from evenflow.plan.placement import first_membership, first_plan
    from evenflow.query.planner import layout
    from evenflow.site.options import FlowOptions
    from evenflow.world.binding import bind_run
    from evenflow.world.spark.driver.program import pack

    warm()
    flow, options, replicas = flow_of(flow_name, sites, rate)
    planned = bind_run(layout(flow.network, sites=sites), "price", lambda wait_ms: None)
    plan = first_plan(planned, sites, replicas)
    secret = trusted(encrypted)
    driver = StandIn(secret)
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for index in range(sites):
        mine, its = context.Pipe()
        where = ("127.0.0.1", driver.listener.port)
        process = context.Process(target=serve, args=(index, where, secret, replicas > 1, calls, its), daemon=True)
        process.start()
        pipes.append(mine)
        processes.append(process)
    try:
        program = pack(planned, replace(FlowOptions(), **options))
        driver.start(sites, program, plan, first_membership(planned, plan, range(sites)))
        driver.listen(WARM_S)
        for word, then_s in (("begin", seconds), ("end", 0.3)):
            for pipe in pipes:
                pipe.send(word)
            driver.listen(then_s)
        found = [pipe.recv() for pipe in pipes]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if calls == "samples":
        own, whole = Counter[str](), Counter[str]()
        for each in found:
            own.update(each["samples"][0])
            whole.update(each["samples"][1])
        show_samples(own, whole)
    elif calls:
        show_calls(found[0]["calls"], max(1, found[0]["epochs"]))
    return figures(found, seconds)


def figures(found: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    epochs = sum(each["epochs"] for each in found)
    return {
        "cpu_ms_per_epoch_and_site": round(sum(each["cpu_s"] for each in found) / max(1, epochs) * 1e3, 4),
        "system_ms_per_epoch_and_site": round(sum(each["system_s"] for each in found) / max(1, epochs) * 1e3, 4),
        "epochs_per_s": round(epochs / len(found) / seconds, 1),
        "cores": round(sum(each["cpu_s"] for each in found) / seconds, 3),
        "pss_kb": max(int(each["pss"]) for each in found),
    }


def show_samples(own: Counter[str], whole: Counter[str]) -> None:
    """Where the loops of all sites were, in percent of its CPU: functions with all that they call, then single lines."""
    total = max(1, sum(own.values()))
    for found in (whole, own):
        print(f"{total} samples")
        for name, count in found.most_common(SHOWN):
            print(f"{100 * count / total:6.1f}%  {name}")


def show_calls(calls: list[tuple[str, int, float, float, Counter[str]]], epochs: int) -> None:
    """What site 0 called, for each epoch."""
    total = sum(primitive for _, primitive, *_ in calls)
    print(f"{total / epochs:.1f} calls per epoch, in {epochs} epochs")
    rooms: Counter[str] = Counter()
    for name, primitive, *_ in calls:
        rooms[name.split("/")[0]] += primitive
    print({room: round(count / epochs, 1) for room, count in rooms.most_common(25)})
    for name, primitive, _, _, callers in sorted(calls, key=lambda each: -each[1]):
        if primitive > OFTEN * epochs:
            print(f"{primitive / epochs:9.2f}  {name}")
            for caller, count in callers.most_common(CALLERS):
                print(f"{count / epochs:19.2f}  {caller}")
    for by, key in (("own", 2), ("whole", 3)):
        print(f"by {by} time of the processor")
        for name, primitive, own, whole, _ in sorted(calls, key=lambda each: -each[key])[:SHOWN]:  # type: ignore[index]
            print(f"{primitive / epochs:9.2f} {own / epochs * 1e6:8.1f} us own {whole / epochs * 1e6:8.1f} us  {name}")


def by_turns(variants: list[tuple[str, Path, list[str]]], rounds: int) -> dict[str, Any]:
    """Medians of two variants (name, tree, arguments), and their ratios, the first one's over the other's."""
    here = Path(__file__).resolve()
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name, *_ in variants}
    for number in range(rounds):
        for name, root, arguments in variants[:: 1 if number % 2 == 0 else -1]:
            environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
            told = subprocess.run(
                [sys.executable, str(here), *arguments], env=environment, cwd=root, capture_output=True, text=True, check=False
            )
            if told.returncode:
                raise SystemExit(f"{root}: {told.stderr[-3000:]}")
            seen[name].append(json.loads(told.stdout))
            print(name, seen[name][-1], file=sys.stderr, flush=True)
    now, then = ({key: statistics.median(each[key] for each in rows) for key in rows[0]} for rows in seen.values())
    by_round = [round(a["cpu_ms_per_epoch_and_site"] / b["cpu_ms_per_epoch_and_site"], 3) for a, b in zip(*seen.values(), strict=True)]
    ratios = {key: round(now[key] / then[key], 3) for key in now if then[key]}
    return {**dict(zip(seen, (now, then), strict=True)), "ratio": ratios, "cpu_ratio_by_round": sorted(by_round)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What an epoch costs a site, without Spark.")
    parser.add_argument("--flow", choices=FLOWS, default="grouped")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=4_000, help="rows a second of all sites together")
    parser.add_argument("--rounds", type=int, default=3, help="with --tree")
    parser.add_argument(
        "--calls", nargs="?", const="all", default="", choices=("all", "samples"), help="count what site 0 calls, or sample it"
    )
    parser.add_argument("--tree", type=Path, help="another tree, to be run by turns")
    parser.add_argument("--tls", action="store_true", help="with TLS, by turns with none")
    parser.add_argument("--encrypted", action="store_true", help="with TLS, and nothing else")
    given = parser.parse_args()
    if given.tree is not None or given.tls:
        arguments = ["--flow", given.flow, "--sites", str(given.sites), "--seconds", str(given.seconds), "--rate", str(given.rate)]
        here, secure = Path(__file__).resolve().parents[1], ["--encrypted"] if given.encrypted else []
        variants = [("now", here, [*arguments, *secure]), ("then", given.tree and given.tree.resolve(), [*arguments, *secure])]
        if given.tls:
            variants = [("tls", here, [*arguments, "--encrypted"]), ("plain", here, arguments)]
        print(json.dumps(by_turns(variants, given.rounds), indent=1))
        return
    result = run(given.flow, given.sites, given.seconds, given.rate, calls=given.calls, encrypted=given.encrypted)
    print(json.dumps(result))


if __name__ == "__main__":
    _ = socket  # Loaded before the fork.
    main()
