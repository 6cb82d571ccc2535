"""`ef.doctor`: what is wrong with a session, its executors, the network between them and a store, before a run finds it out.

One task of Spark goes to each executor (`executor.examined`) and needs nothing there but Python: what is missing is to be found. All
of them stay until every one has tried to reach the others. What that means `diagnosis` says; here is what asks.
"""

from __future__ import annotations

import json
import secrets
import socket
import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from evenflow.errors import ClusterError, EvenflowError
from evenflow.world.spark.cluster.diagnosis import (
    Diagnosis,
    Finding,
    Session,
    diagnosis,
    of_clocks,
    of_executors,
    of_network,
    of_session,
    of_store,
)
from evenflow.world.spark.cluster.located import Executor, driver_host, driver_listens, located
from evenflow.world.spark.cluster.placement import allocates, check_session, executors, free_slots
from evenflow.world.spark.cluster.ship import on_executor, ship
from evenflow.world.spark.executor.requirements import versions
from evenflow.world.spark.net.listener import open_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.2
"""Between two looks at which executors have come."""
STRANGERS_MAX: Final = 32
"""Connections beside those of the tasks."""
TIMES: Final = 5
"""Objects that are created to see how long one takes."""
OVERHEAD_LEAST_MB: Final = 384
UNITS: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def doctor(
    spark: SparkSession,
    sites: int = 4,
    spares: int = 0,
    checkpoint_location: str | None = None,
    *,
    timeout_s: float = PATIENCE_S,
    **options: Any,
) -> Diagnosis:
    """Look at whether an engine of so many sites and spares, with these options, could run here. Nothing is left behind.

    checkpoint_location: a store to be proven, too. timeout_s: for how long tasks wait for each other. Returns what was found, the worst
    first; `ok` is whether nothing stands in the way. Raises OptionError for options that an engine does not have.
    """
    from evenflow.world.spark.driver.options import EngineOptions

    made = EngineOptions(**options)
    location = checkpoint_location or made.checkpoint_location
    found = [] if location is None else store_found(location)
    try:
        check_session(spark, sites, spares)
    except ClusterError as error:
        return diagnosis([*found, Finding("error", "session", str(error))])
    if made.tls:
        found += _tls_found(spark, made)
    return diagnosis([*found, *_cluster_found(spark, sites + spares, made, timeout_s)])


def store_found(location: str) -> list[Finding]:
    """Prove a store, and see how long an object takes. It is left as it was."""
    from evenflow.store.opening import open_store, probe

    try:
        store = open_store(location)
        probe(store)
        took_s, names = [], [f"probe/{uuid.uuid4().hex[:16]}" for _ in range(TIMES)]
        for name in names:
            began_s = time.monotonic()
            store.create(name, b"how long")
            took_s.append(time.monotonic() - began_s)
        for name in names:
            store.delete(name)
    except (EvenflowError, OSError) as error:
        return of_store(location, str(error), 0.0)
    return of_store(location, "", statistics.median(took_s) * 1000)


def _tls_found(spark: Any, options: Any) -> list[Finding]:
    from evenflow.world.spark.driver.network import new_trust
    from evenflow.world.spark.net.tls import check

    try:
        trust = new_trust(options)
        assert trust.tls is not None
        check(trust.tls, driver_host(spark.sparkContext))
    except EvenflowError as error:
        return [Finding("error", "network", str(error))]
    return [Finding("fine", "network", "the driver's certificate is one that sites will take")]


def _cluster_found(spark: Any, wanted: int, options: Any, timeout_s: float) -> list[Finding]:
    context = spark.sparkContext
    conf = context.getConf()
    there = await_executors(context, wanted, timeout_s)
    most = conf.get("spark.dynamicAllocation.maxExecutors", None)
    session = Session(
        wanted, len(there), free_slots(context, 0), allocates(context), int(most) if most and most.isdigit() else None,
        overhead_mb(context.master, conf), options.site_memory_mb,
    )  # fmt: skip
    found = of_session(session)
    if not there:
        return found
    meeting = Meeting(driver_listens(context), len(there), timeout_s)
    try:
        told = (driver_host(context), meeting.port, meeting.token, options.ports, timeout_s)
        task = on_executor(ship(context), "evenflow.world.spark.executor.examined", "examine", *told)
        rdd = located(context, [executor.location for executor in there])
        seen: list[dict[str, Any]] = rdd.mapPartitions(lambda rows: [task()]).collect()
    except Exception as error:  # Whatever Spark makes of a Python that cannot even begin.
        why = next(
            (line.strip() for line in reversed(str(error).splitlines()) if "Error" in line or "mismatch" in line.lower()), str(error)
        )
        remedy = "See that executors have the Python of the driver (PYSPARK_PYTHON, spark.pyspark.python)"
        return [*found, Finding("error", "executors", f"no task could be run there: {why[:300]}", remedy)]
    finally:
        meeting.close()
    own = [executor.id for executor in there]
    return [*found, *of_executors(seen, own, versions()), *of_network(seen), *of_clocks(meeting.offsets_s)]


def await_executors(context: Any, wanted: int, patience_s: float) -> list[Executor]:
    """The executors that are there, once there are so many, or the session is so old that no more will come by themselves.

    A session is there before its executors are. Where Spark allocates them as they are asked for, nobody is on the way.
    """
    while True:
        there = executors(context)
        age_s = time.time() - context.startTime / 1000
        if len(there) >= wanted or allocates(context) or not 0 <= age_s < patience_s:
            return there
        time.sleep(LOOK_S)


def overhead_mb(master: str, conf: Any) -> int | None:
    """Memory of an executor beside its heap, None where nobody limits it: on YARN and Kubernetes containers that take more are ended."""
    if not master.startswith(("yarn", "k8s")):
        return None
    given = conf.get("spark.executor.memoryOverhead", None)
    if given is not None:
        return megabytes(given)
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1"))
    return max(OVERHEAD_LEAST_MB, int(factor * megabytes(conf.get("spark.executor.memory", "1g"))))


def megabytes(text: str) -> int:
    """As Spark reads sizes of memory: 2g, 512m, and a number alone is MiB."""
    text = text.strip().lower().removesuffix("b")
    unit = UNITS.get(text[-1:], None)
    return int(text) if unit is None else int(text[:-1]) * unit // 2**20


class Meeting:
    """Where the tasks say that they are there, and hear of each other. offsets_s: of their clocks from this one, by executor."""

    def __init__(self, host: str, wanted: int, patience_s: float) -> None:
        self._wanted, self._patience_s, self.token = wanted, patience_s, secrets.token_hex(16)
        self._server = open_port(host)
        self.port = int(self._server.getsockname()[1])
        self.offsets_s: dict[str, float] = {}
        self._here: dict[str, list[Any]] = {}
        self._tried = 0
        self._closed, self._open = False, set[socket.socket]()
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, name="evenflow-doctor", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            with self._changed:
                if self._closed or len(self._open) >= self._wanted + STRANGERS_MAX:
                    sock.close()
                    continue
                self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with self._counted(sock), sock:
            try:
                sock.settimeout(self._patience_s)
                with sock.makefile("rb") as lines:
                    said = json.loads(lines.readline(65_536))
                    if not secrets.compare_digest(str(said["token"]), self.token):
                        return
                    name, where = str(said["executor"]), said["where"]
                    self.offsets_s[name] = float(said["now_s"]) - time.time()
                    with self._changed:
                        self._here[name] = where
                        self._changed.notify_all()
                        self._wait(lambda: len(self._here) >= self._wanted)
                        others = {each: at for each, at in self._here.items() if each != name and at is not None}
                    sock.sendall(json.dumps(others).encode() + b"\n")
                    lines.readline(65_536)
                    with self._changed:
                        self._tried += 1
                        self._changed.notify_all()
                        self._wait(lambda: self._tried >= len(self._here))
                    sock.sendall(b"{}\n")
            except (OSError, ValueError, KeyError, TypeError):
                pass  # What the task could not say, it returns by Spark.

    @contextmanager
    def _counted(self, sock: socket.socket) -> Iterator[None]:
        try:
            yield
        finally:
            with self._changed:
                self._open.discard(sock)

    def _wait(self, done: Any) -> None:
        self._changed.wait_for(lambda: done() or self._closed, self._patience_s / 3)

    def close(self) -> None:
        """Its port and its threads are gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for sock in (self._server, *self._open):
                with suppress(OSError):  # Whoever has gone is not connected.
                    sock.shutdown(socket.SHUT_RDWR)  # To close it would wake nobody who waits for it, and so would not close it.
        self._server.close()


__all__ = ["Meeting", "doctor", "megabytes", "overhead_mb", "store_found"]
