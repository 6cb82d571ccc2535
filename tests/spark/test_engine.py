"""Dataflows on real executors: right answers, errors that say what is wrong, and a clean end in every way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, ClusterError, QueryError, SinkError
from evenflow.world.spark.driver import driver_loop
from evenflow.world.spark.executor.site_task import parent_of
from evenflow.world.spark.net.handshake import dial

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
Named = Callable[[str], str]
ROWS = 40_000


def numbers(rows: int = ROWS, keys: int = 100) -> pa.RecordBatch:
    at = np.arange(rows)
    return pa.record_batch({"k": at % keys, "v": at})


def counting(name: str, sink: Any, rows: int = ROWS, partitions: int = 4) -> ef.Dataflow:
    batch = numbers(rows)
    step = rows // partitions
    flow = ef.Dataflow(name)
    source = flow.source(ef.sources.memory([batch.slice(i * step, step) for i in range(partitions)], partitions=partitions))
    source.group_by("k").agg(n="count(*)", s="sum(v)").to(sink)
    return flow


def totals(table: pa.Table) -> dict[int, tuple[int, int]]:
    """The last row of each key: running totals."""
    return {row["k"]: (row["n"], row["s"]) for row in table.to_pylist()}


def expected(rows: int = ROWS, keys: int = 100) -> dict[int, tuple[int, int]]:
    at = np.arange(rows)
    return {k: (int((at % keys == k).sum()), int(at[at % keys == k].sum())) for k in range(keys)}


def endless(name: str, sink: Any, rate: int = 2000) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    flow.source(ef.sources.generator(rate=rate, keys=16)).group_by("key").agg(n="count(*)").to(sink)
    return flow


def test_a_keyed_count_is_right(engine: ef.Engine, named: Named) -> None:
    sink = ef.sinks.memory(named("count"))
    run = engine.start(counting("count", sink))
    assert run.await_termination(60)
    assert totals(sink.rows()) == expected()
    progress = run.progress()
    assert progress["rows_in"] == ROWS
    assert progress["rows_out"] == sink.rows().num_rows
    assert progress["p50_ms"] > 0 and progress["p99_ms"] >= progress["p50_ms"]
    assert len({site["executor"] for site in progress["sites"]}) == 4
    assert not run.is_active and run.exception() is None


def test_several_dataflows_side_by_side(engine: ef.Engine, named: Named) -> None:
    sinks = [ef.sinks.memory(named("side")) for _ in range(3)]
    runs = [engine.start(counting(f"side-{i}", sink)) for i, sink in enumerate(sinks)]
    for run, sink in zip(runs, sinks, strict=True):
        assert run.await_termination(60)
        assert totals(sink.rows()) == expected()


class Explodes(ef.Processor):
    output = "k bigint"

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        if key[0] == 7:
            raise RuntimeError("seven is not a nice key")
        return [(key[0],)]


def test_an_exception_in_user_code_names_box_epoch_and_place(engine: ef.Engine, named: Named) -> None:
    flow = ef.Dataflow("explodes")
    flow.source(ef.sources.memory([numbers()])).key_by("k").process(Explodes()).name("sevens").to(ef.sinks.memory(named("never")))
    other = ef.sinks.memory(named("other"))
    run, beside = engine.start(flow), engine.start(counting("beside", other))
    with pytest.raises(BoxFailed) as raised:
        run.await_termination(60)
    assert raised.value.box == "sevens"
    assert raised.value.epoch >= 1
    assert "seven is not a nice key" in raised.value.user_traceback
    assert "in process" in raised.value.user_traceback
    assert run.exception() is raised.value
    assert beside.await_termination(60)
    assert totals(other.rows()) == expected()


def test_a_source_that_cannot_be_opened_is_named(engine: ef.Engine, named: Named) -> None:
    flow = ef.Dataflow("broken-source")

    class Unreadable(ef.sources.source.Source):
        kind = "unreadable"
        schema = pa.schema([("k", pa.int64())])

        def partitions(self, sites: int) -> int:
            return sites

        def open(self, partition: int, of: int) -> Any:
            raise ef.errors.SourceError("the spring is dry")

    flow.source(Unreadable()).to(ef.sinks.memory(named("dry")))
    with pytest.raises(ef.errors.SourceError, match="the spring is dry"):
        engine.start(flow).await_termination(60)


def test_an_endless_run_is_stopped(engine: ef.Engine, named: Named) -> None:
    sink = ef.sinks.memory(named("endless"))
    first = threading.Event()
    flow = endless("endless", ef.sinks.callback(lambda epoch, batch: first.set()))
    run = engine.start(flow)
    assert first.wait(60)
    assert run.is_active
    assert not run.await_termination(0.01)
    run.stop()
    assert not run.is_active
    assert run.await_termination(1)
    assert sink.rows().num_rows == 0


def test_a_drained_run_finishes_what_it_has_taken_in(engine: ef.Engine) -> None:
    counts: Counter[int] = Counter()
    first = threading.Event()

    def write(epoch: int, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            counts[row["key"]] = max(counts[row["key"]], row["n"])
        first.set()

    run = engine.start(endless("drained", ef.sinks.callback(write), rate=20_000))
    assert first.wait(60)
    run.stop(drain=True)
    assert run.exception() is None
    assert sum(counts.values()) == run.progress()["rows_in"] > 0


def test_a_sink_that_fails_for_a_while_loses_nothing(engine: ef.Engine) -> None:
    attempts: Counter[int] = Counter()
    seen: list[tuple[int, int]] = []

    def write(epoch: int, batch: pa.RecordBatch) -> None:
        attempts[epoch] += 1
        if attempts[epoch] <= 2:
            raise OSError("not now")
        seen.append((epoch, batch.num_rows))

    run = engine.start(counting("flaky", ef.sinks.callback(write, retries=3, backoff_ms=1)))
    assert run.await_termination(60)
    epochs = [epoch for epoch, _ in seen]
    assert epochs == sorted(set(epochs))
    assert sum(rows for _, rows in seen) == run.progress()["rows_out"]


def test_a_sink_that_fails_for_good_ends_the_run(engine: ef.Engine) -> None:
    def write(epoch: int, batch: pa.RecordBatch) -> None:
        raise OSError("the disk is full")

    run = engine.start(counting("full", ef.sinks.callback(write, retries=1, backoff_ms=1)))
    with pytest.raises(SinkError, match="the disk is full"):
        run.await_termination(60)


def test_a_plan_that_changes_nothing_changes_nothing(engine: ef.Engine, named: Named) -> None:
    counts: Counter[int] = Counter()
    first = threading.Event()

    def write(epoch: int, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            assert row["n"] >= counts[row["key"]]
            counts[row["key"]] = row["n"]
        first.set()

    run = engine.start(endless("replanned", ef.sinks.callback(write), rate=20_000))
    assert first.wait(60)
    run.change_plan()
    deadline = threading.Event()
    for _ in range(200):
        if run.plan_number:  # Higher than 1 if a site was beyond the first proposal's epoch.
            break
        deadline.wait(0.05)
    assert run.plan_number >= 1
    run.stop(drain=True)
    assert run.exception() is None
    assert sum(counts.values()) == run.progress()["rows_in"]


def test_garbage_at_a_site_and_at_the_driver_disturbs_nobody(engine: ef.Engine, named: Named) -> None:
    coordinator = engine._coordinator
    assert coordinator is not None
    sink = ef.sinks.memory(named("undisturbed"))
    run = engine.start(counting("undisturbed", sink, rows=200_000))
    for address in [*(site.address for site in coordinator.sites.values()), ("127.0.0.1", coordinator.port)]:
        with socket.create_connection(address) as stranger:
            stranger.sendall(b"\xff" * 200)
        with pytest.raises((ef.errors.StrangerRefused, OSError)):
            dial(address, b"wrong" * 6, {"as": "site", "engine": coordinator.engine, "site": 0})
    assert run.await_termination(60)
    assert totals(sink.rows()) == expected(200_000)


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens on TCP, as the kernel writes them."""
    held = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            held.add(os.readlink(fd))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in held:
                addresses.add(local.partition(":")[0])
    return addresses


def test_sites_of_a_local_cluster_listen_on_this_machine_only(engine: ef.Engine, named: Named) -> None:
    assert engine.start(counting("here", ef.sinks.memory(named("here")), rows=10_000)).await_termination(60)
    sites = engine.describe()["sites"]
    assert sites and {address for site in sites for address in listening(site["pid"])} == {"0100007F"}


def test_options_are_checked(spark: Any) -> None:
    with pytest.raises(TypeError, match="linger"):
        ef.Engine(spark, lingering=3)
    with pytest.raises(ValueError, match="linger_ms"):
        ef.Engine(spark, linger_ms=0)


def test_an_unfinished_dataflow_is_refused_at_once(engine: ef.Engine) -> None:
    flow = ef.Dataflow("unfinished")
    flow.source(ef.sources.generator())
    with pytest.raises(QueryError):
        engine.start(flow)


def test_a_lost_site_ends_the_run_and_says_which(spark: Any, named: Named) -> None:
    first = threading.Event()
    with ef.Engine(spark, sites=2) as engine:
        run = engine.start(endless("lost", ef.sinks.callback(lambda epoch, batch: first.set())))
        assert first.wait(60)
        victim = run.progress()["sites"][1]
        os.kill(victim["pid"], signal.SIGKILL)
        with pytest.raises(ClusterError, match="site 1 is lost.*on executor"):
            run.await_termination(60)
        sink = ef.sinks.memory(named("again"))
        again = engine.start(counting("again", sink, partitions=2))
        assert again.await_termination(60)
        assert totals(sink.rows()) == expected()


# ---------------------------------------------------------------- sites come and go


def wait_for(engine: ef.Engine, condition: Callable[[], object], timeout_s: float = 90.0) -> None:
    coordinator = engine._coordinator
    assert coordinator is not None
    deadline = time.monotonic() + timeout_s
    with coordinator.changed:
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            coordinator.changed.wait(0.1)


def pid_of(engine: ef.Engine, site: int) -> int:
    assert engine._coordinator is not None
    return int(engine._coordinator.sites[site].hello["pid"])


def executor_of(process: int) -> int:
    """The executor's JVM above a site's process."""
    while b"--executor-id" not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = parent_of(process)
    return process


def replaced(engine: ef.Engine, lost: int, before: tuple[int, ...]) -> None:
    """Wait until a newcomer is there instead of the lost one, under an index that nobody had, and everybody is linked with it."""
    coordinator = engine._coordinator
    assert coordinator is not None
    wait_for(engine, lambda: lost not in coordinator.sites)
    wait_for(engine, lambda: coordinator.ready)
    now = engine.sites_now
    assert set(now) & set(before) == set(before) - {lost}
    assert set(now) - set(before) == {max(now)}
    assert max(now) > max(before)
    assert len({site.hello["identity"] for site in coordinator.known()}) == len(now), "two sites on one executor"


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_lost_site_gets_a_successor_without_help(spark: Any, how: str) -> None:
    with ef.Engine(spark, sites=2, spares=1, replicas=2) as engine:
        before = engine.sites_now
        assert before == (0, 1, 2)
        victim = pid_of(engine, 1)
        os.kill(victim, getattr(signal, how))
        replaced(engine, 1, before)
        again = engine.sites_now
        os.kill(pid_of(engine, again[-1]), signal.SIGKILL)
        replaced(engine, again[-1], again)
    if how == "SIGSTOP":
        with contextlib.suppress(ProcessLookupError):  # Spark ends the process of a task that it has cancelled.
            os.kill(victim, signal.SIGCONT)


@pytest.mark.conformance
def test_a_broken_control_connection_loses_and_repeats_nothing(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch reaches this sink over it, and every site dials again at once. On a busy machine it may not be back within the 250 ms
    after which it counts as dead. How long it is waited for is the subject of the detector's tests."""
    for name in ("REPLICATED", "IDLE"):
        patient = replace(getattr(driver_loop, name), grace_us=30_000_000, votes=False)
        monkeypatch.setattr(driver_loop, name, patient)
    counts: Counter[int] = Counter()
    first = threading.Event()

    def write(epoch: int, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            assert row["n"] > counts[row["key"]]
            counts[row["key"]] = row["n"]
        first.set()

    with ef.Engine(spark, sites=3, replicas=2) as engine:
        coordinator = engine._coordinator
        assert coordinator is not None
        lost: list[int] = []
        coordinator.on_lost.append(lambda index, why: lost.append(index))
        run = engine.start(endless("redialled", ef.sinks.callback(write), rate=20_000), replicas=1)
        assert first.wait(60)

        def cut() -> None:
            for site in coordinator.known():
                if site.line._channel is not None:
                    with suppress(OSError):  # The other end may have just broken it.
                        site.line._channel._sock.shutdown(socket.SHUT_RDWR)

        for _ in range(8):
            coordinator.call_soon(cut)
            threading.Event().wait(0.2)
        run.stop(drain=True)
        assert run.exception() is None
        assert lost == []
        assert sum(counts.values()) == run.progress()["rows_in"] > 0


@pytest.mark.slow
def test_a_stopped_executor_takes_nobody_with_it_and_a_killed_one_is_replaced(spark: Any, engine: ef.Engine, named: Named) -> None:
    """Only the site's own process matters while it lives. The shared engine, which loses a site too, heals beside this one."""
    with ef.Engine(spark, sites=3, replicas=2) as replicated:
        coordinator = replicated._coordinator
        assert coordinator is not None
        before = replicated.sites_now
        executor = executor_of(pid_of(replicated, 0))
        os.kill(executor, signal.SIGSTOP)
        try:
            threading.Event().wait(2.0)
            assert replicated.sites_now == before
        finally:
            os.kill(executor, signal.SIGCONT)
        os.kill(executor, signal.SIGKILL)
        replaced(replicated, 0, before)
    sink = ef.sinks.memory(named("healed"))
    assert engine.start(counting("healed", sink)).await_termination(120)
    assert totals(sink.rows()) == expected()


def test_more_replicas_than_the_engine_has_are_refused(spark: Any, engine: ef.Engine, named: Named) -> None:
    with pytest.raises(ClusterError, match="more than the engine's 1"):
        engine.start(counting("pairs", ef.sinks.memory(named("pairs"))), replicas=2)
    with pytest.raises(ClusterError, match="replicas=3"):
        ef.Engine(spark, sites=2, replicas=3)
