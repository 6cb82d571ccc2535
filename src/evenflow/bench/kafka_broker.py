"""A real single-node Kafka broker (KRaft) for the rivals that can only read from one, and its jars from Maven Central.

The jars are found with the Ivy that PySpark brings, so nothing but a Java runtime and the network is needed the first time; they are
kept in the user's cache directory. The broker lives inside a `with`; a shell that waits at a pipe ends it also when this process dies.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np

from evenflow.bench.background import end, free_ports, start, tail
from evenflow.errors import ClusterError
from evenflow.world.java import java_home
from evenflow.world.spark.cluster.session import QUICK_START

KAFKA_VERSION: Final = "4.2.1"
CENTRAL: Final = "https://repo.maven.apache.org/maven2/"
START_TIMEOUT_S: Final = 60.0
RESOLVE_TIMEOUT_S: Final = 300.0
PAYLOAD_LINES: Final = 1 << 16

_IVY_SETTINGS: Final = f"""<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" root="{CENTRAL}"/></resolvers></ivysettings>"""
_IVY_MODULE: Final = """<ivy-module version="2.0"><info organisation="evenflow" module="bench"/>
<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>"""
_PROPERTIES: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """Coordinates in Maven Central. alone: without what it depends on."""

    group: str
    artifact: str
    version: str
    alone: bool = False

    def ivy(self) -> str:
        configuration = "default->master" if self.alone else "default->default(runtime)"
        transitive = "false" if self.alone else "true"
        return (
            f'<dependency org="{self.group}" name="{self.artifact}" rev="{self.version}" conf="{configuration}" transitive="{transitive}"/>'
        )


BROKER: Final = (
    Jar("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Jar("org.apache.kafka", "kafka-tools", KAFKA_VERSION, alone=True),
)


def resolve(name: str, jars: Sequence[Jar]) -> list[Path]:
    """Paths of the jars, downloaded once into the cache directory `name`. Raises ClusterError if Maven Central does not have them."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenflow" / "jars"
    kept = home / name
    if not kept.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="resolving-", dir=home) as scratch:
            fetched = _fetch(name, jars, Path(scratch), home / "ivy")
            # Moved when whole, so that an interrupted download is not taken for a complete one.
            shutil.move(fetched, kept)
    return sorted(kept.glob("*.jar"))


def _fetch(name: str, jars: Sequence[Jar], scratch: Path, cache: Path) -> Path:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    (scratch / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    (scratch / "ivy.xml").write_text(_IVY_MODULE.format(dependencies="".join(jar.ivy() for jar in jars)), encoding="utf-8")
    command = [f"{java_home()}/bin/java", "-cp", str(ivy), "org.apache.ivy.Main", "-warn", "-confs", "default"]
    command += ["-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml"), "-cache", str(cache)]
    command += ["-types", "jar", "bundle", "-retrieve", f"{scratch}/jars/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"Maven Central did not deliver the jars within {RESOLVE_TIMEOUT_S:.0f} s: check the network") from error
    if done.returncode != 0 or not (scratch / "jars").is_dir():
        missing = [line.strip(": \t") for line in done.stdout.splitlines() if "not found" in line]
        raise ClusterError(f"Maven Central does not have what {name} needs: {', '.join(sorted(set(missing))) or 'no answer'}")
    return scratch / "jars"


class KafkaBroker:
    """A broker on free ports of this machine, for the length of a `with`. Takes some 5 s to start and one to stop."""

    def __init__(self, heap_mb: int = 512, *, quick: bool = False) -> None:
        """quick: it is to be there soon and carries little, as in tests: by a third less of the processor."""
        self._heap_mb, self._quick = heap_mb, quick
        self._scratch = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def __enter__(self) -> KafkaBroker:
        self._jars = resolve(f"kafka-{KAFKA_VERSION}", BROKER)
        self._scratch = Path(tempfile.mkdtemp(prefix="evenflow-kafka-"))
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        settings = self._scratch / "server.properties"
        settings.write_text(_PROPERTIES.format(port=port, controller=controller, logs=self._scratch / "logs"), encoding="utf-8")
        self._tool("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings))
        broker = self._background("kafka.Kafka", str(settings), heap_mb=self._heap_mb, quick=self._quick)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(port):
            if broker.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"the Kafka broker did not start within {START_TIMEOUT_S:.0f} s:\n{self._said()}")
            time.sleep(0.1)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Make an empty topic."""
        arguments = ["--create", "--topic", topic, "--partitions", str(partitions), "--bootstrap-server", self.address]
        self._tool("org.apache.kafka.tools.TopicCommand", *arguments)

    def produce(self, topic: str, rate: int, seconds: int, keys: int) -> None:
        """Start writing `rate` records per second for `seconds`, evenly; returns at once.

        A record's value is 80 characters, the first eight the key: decimal, uniform over 0..keys-1. Its time is that of its creation.
        """
        payload = self._scratch / f"payload-{keys}"
        if not payload.exists():
            drawn = np.random.default_rng(0).integers(0, keys, PAYLOAD_LINES)
            payload.write_text("".join(f"{key:08d}{key % 1000:08d}{'x' * 64}\n" for key in drawn), encoding="ascii")
        arguments = ["--topic", topic, "--num-records", str(rate * seconds), "--throughput", str(rate)]
        arguments += ["--payload-file", str(payload), "--bootstrap-server", self.address]
        arguments += ["--command-property", "linger.ms=1", "acks=1", "batch.size=65536"]
        self._background("org.apache.kafka.tools.ProducerPerformance", *arguments, heap_mb=256)

    def stop_producing(self) -> None:
        """End what `produce` started."""
        while len(self._processes) > 1:
            end(self._processes.pop())

    def close(self) -> None:
        """End the broker and remove its files. May be called again."""
        while self._processes:
            end(self._processes.pop())
        if self._scratch != Path():
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _java(self, heap_mb: int, *, quick: bool) -> list[str]:
        classpath = os.pathsep.join(str(jar) for jar in self._jars)
        return [f"{java_home()}/bin/java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", *([QUICK_START] if quick else []), "-cp", classpath]

    def _tool(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._java(128, quick=True), *arguments], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")

    def _background(self, *arguments: str, heap_mb: int, quick: bool = False) -> subprocess.Popen[bytes]:
        process = start([*self._java(heap_mb, quick=quick), *arguments], self._scratch / "log")
        self._processes.append(process)
        return process

    def _said(self) -> str:
        return tail(self._scratch / "log")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True
