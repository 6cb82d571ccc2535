"""A standalone Spark cluster on this machine: a master and workers that look like machines of their own, and no process left of it.

For benches with clusters of their own, and for tests; an engine knows nothing of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evenflow.bench.killing import below, gone, kill, parents
from evenflow.errors import ClusterError
from evenflow.world.java import java_home
from evenflow.world.spark.cluster.processes import end_marked, marked

MARK = "EVENFLOW_STANDALONE"
START_S = 90.0
LOOK_S = 0.05


class Standalone:
    """url: of the master. Workers are numbered from 1 and have an address of their own, 127.0.0.K."""

    def __init__(self, workers: int, home: Path, cores: int = 2, memory: str = "1g") -> None:
        from pyspark.find_spark_home import _find_spark_home

        self._mark, self._home, self._each = uuid.uuid4().hex, home, ("--cores", str(cores), "--memory", memory)
        java_home()
        self._program = str(Path(_find_spark_home()) / "bin" / "spark-class")
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._start_master()
            for worker in range(1, workers + 1):
                self._start_worker(worker)
            logs = [self._log(f"worker-{worker}") for worker in range(1, workers + 1)]
            _await(lambda: all("Successfully registered" in log.read_text() for log in logs), "its workers have registered")
        except BaseException:
            self.stop()
            raise

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"

    def _spawn(self, name: str, kind: str, *arguments: str) -> None:
        environment = os.environ | {
            MARK: self._mark,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(self._home / "work"),
            "SPARK_LOCAL_DIRS": str(self._home / "local"),
        }
        with open(self._log(name), "wb") as log:
            command = [self._program, f"org.apache.spark.deploy.{kind}", *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _start_master(self) -> str:
        self._spawn("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found: list[str] = []

        def told() -> bool:
            found[:] = re.findall(r"spark://127\.0\.0\.1:\d+", self._log("master").read_text())
            return bool(found)

        _await(told, "its master has started")
        return found[0]

    def _start_worker(self, worker: int) -> None:
        address = ("--host", f"127.0.0.{worker + 1}", "--port", "0", "--webui-port", "0")
        self._spawn(f"worker-{worker}", "worker.Worker", *address, *self._each, self.url)

    def worker_of(self, process: int) -> int:
        """The number of the worker above a site's process."""
        parent_of = parents()
        for worker, popen in enumerate(self._processes[1:], start=1):
            if process in below(popen.pid, parent_of):
                return worker
        raise ClusterError(f"process {process} is below no worker of this cluster")

    def kill_worker(self, worker: int) -> None:
        """kill -9 of the worker and of all processes below it, as when its machine is lost."""
        popen = self._processes[worker]
        victims = [popen.pid, *below(popen.pid, parents())]
        kill(victims)
        popen.wait()
        if not gone(victims):
            raise ClusterError("a process of a killed worker is still there")

    @property
    def processes(self) -> list[int]:
        """Of the master, the workers and everything below them."""
        parent_of = parents()
        return [each for popen in self._processes for each in (popen.pid, *below(popen.pid, parent_of))]

    @property
    def left(self) -> list[int]:
        """Processes of the cluster that run."""
        return marked(MARK, self._mark)

    def stop(self) -> None:
        for popen in self._processes:
            popen.terminate()
        for popen in self._processes:
            try:
                popen.wait(10.0)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()
        end_marked(MARK, self._mark)


def _await(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not reached():
        if time.monotonic() > deadline:
            raise ClusterError(f"a standalone cluster on this machine: waited {START_S:g} s until {what}; look at the machine's load")
        time.sleep(LOOK_S)


@contextmanager
def standalone_cluster(workers: int, home: Path) -> Iterator[Standalone]:
    """home: an empty directory for logs and work."""
    cluster = Standalone(workers, home)
    try:
        yield cluster
    finally:
        cluster.stop()
