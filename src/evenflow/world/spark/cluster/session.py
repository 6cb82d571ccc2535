"""A Spark session that Evenflow starts itself, and how to be rid of it: the driver's JVM, its executors, their Python workers, their files.

A user who has a session needs none of this. The command line has none: it starts one here, usually on `local-cluster[4,2,1024]` (real
executors on one machine). Everything that belongs to such a session carries a mark in its environment, so that `stop_session` finds
whatever is left of it, and nothing else. It takes up to 15 s to start and a few to stop.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenflow.errors import ClusterError
from evenflow.world.java import java_home
from evenflow.world.owned import OwnedDirectory
from evenflow.world.spark.cluster.classes import options_and_path
from evenflow.world.spark.cluster.interrupts import ENDING, heed, heeded
from evenflow.world.spark.cluster.leftovers import MARK, SESSION, clear
from evenflow.world.spark.cluster.processes import end_marked

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger("evenflow")
PROBE_TIMEOUT_S: Final = 3.0
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 15.0
QUICK_START: Final = "-XX:TieredStopAtLevel=1"
"""The JVM's quick compiler only: 2.5 s of CPU until an executor is there, not 4.8, and 12 until a driver has its sites, not 16."""

_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_LOCAL: Final = re.compile(rf"local|local\[(\d+|\*)(\s*,\s*\d+)?\]|{_LOCAL_CLUSTER.pattern}")
_QUIET_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What belongs to a session started here. mark: value of MARK in the environment of its processes. owned: its files."""

    mark: str
    owned: OwnedDirectory

    @property
    def scratch(self) -> Path:
        return self.owned.path

    @property
    def log(self) -> Path:
        """What the driver's JVM printed."""
        return self.scratch / "driver.log"

    def discard(self) -> None:
        """End every process of the session and remove its files. May be called at any time, and again."""
        end_marked(MARK, self.mark)
        self.owned.remove()


_started: dict[SparkContext, Embedded] = {}
"""What belongs to which. The context itself is asked nothing: its JVM may be dead."""


def embedded_session(
    master: str, app_name: str = "evenflow", conf: Mapping[str, str] | None = None, *, sites_only: bool = False
) -> SparkSession:
    """Start a Spark session on `master`, quiet and with its files in a temporary directory. End it with `stop_session`.

    master: any classic Spark master URL. conf: Spark settings that go before the ones chosen here. sites_only: executors of a local
    cluster do nothing but host sites, so all JVMs compile quickly rather than well: one that starts anew takes half of the CPU from
    the sites beside it. Raises ClusterError, within seconds if nobody listens at a `spark://` address and within START_TIMEOUT_S
    whatever happens, if there is no Java, another session is active in this process, or the master cannot be used. Whatever it raises,
    KeyboardInterrupt included, nothing is left running.
    """
    demand_pyspark()
    _refuse_second_session()
    probe_master(master)
    java_home()
    clear()
    mark = uuid.uuid4().hex
    embedded = Embedded(mark, OwnedDirectory(SESSION, mark))
    handler = _signal_handler()
    try:
        with heeded():
            spark = _start(app_name, {**settings(master, embedded.scratch, sites_only), **(conf or {})}, master, embedded)
    except BaseException as error:
        told = _cluster_error(master, error, _tail(embedded.log))  # Before the JVM is gone, which has the words of its errors.
        with _undisturbed():
            _forget_gateway()
            embedded.discard()
        if isinstance(error, Exception):
            raise told from None
        raise
    finally:
        # PySpark replaces the handler of Ctrl-C by one that cancels all jobs, which would tear the sites away under their engine.
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    _started[spark.sparkContext] = embedded
    return spark


def stop_session(spark: SparkSession) -> None:
    """Stop the session and the JVM behind it. Returns when no process and no file of it is left, at most after some 20 s, whether or not
    the JVM answers or lives.

    Ctrl-C is ignored meanwhile, and so is whoever asks politely for the end. A session that `embedded_session` did not
    start is only stopped.
    """
    embedded = _started.pop(spark.sparkContext, None)
    with _undisturbed():
        # In a thread of its own, since an interrupt may have left this thread's connection to the JVM in the middle of an answer.
        if embedded is None:
            _within(STOP_TIMEOUT_S, spark.stop)
            return
        try:
            for step, timeout_s in ((spark.stop, STOP_TIMEOUT_S), (_shut_gateway, STOP_TIMEOUT_S / 3)):
                try:
                    _within(timeout_s, step)
                except Exception as error:  # Nobody is there to be asked. It has ended, or is made to.
                    log.info("Spark's JVM has not stopped in order: %s", error)
        finally:
            _forget_gateway()
            embedded.discard()


def probe_master(master: str) -> None:
    """Raise ClusterError if `master` is a `spark://` URL none of whose addresses accepts a connection, a local one that is misspelt, or
    Spark Connect's."""
    if master.startswith("sc://"):
        raise ClusterError(
            f"{master!r} is Spark Connect, which cannot run long tasks of its own: run the program where a classic session is, with a "
            "spark://, yarn or k8s:// master or with spark-submit; docs/deploy.md says what else can be done"
        )
    if master.startswith("local") and not _LOCAL.fullmatch(master):
        raise ClusterError(f"{master!r} is not a master URL: write local-cluster[EXECUTORS,CORES,MIB], such as local-cluster[4,2,1024]")
    if not master.startswith("spark://"):
        return
    refusals = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ClusterError(f"{master!r} is not a master URL: write spark://HOST:PORT, usually with the port 7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
        except OSError as error:
            refusals.append(f"{address} ({error.strerror or error})")
        else:
            return
    raise ClusterError(
        f"no Spark master answers at {', '.join(refusals)}: check the address and that the master runs, "
        'or use an embedded cluster with --master "local-cluster[4,2,1024]"'
    )


def settings(master: str, scratch: Path, sites_only: bool = False) -> dict[str, str]:
    """Spark settings of an embedded session, before the user's own."""
    log = scratch / "log4j2.properties"
    java_options = f"-XX:+UseSerialGC -Djava.io.tmpdir={scratch / 'java'} -Dlog4j2.configurationFile=file:{log}"
    if sites_only:
        java_options = f"{java_options} {QUICK_START}"
    shared = options_and_path()
    if shared is not None:
        java_options = f"{java_options} {shared[0]}"
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": "1000",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java_options} -Dderby.system.home={scratch}",
    }
    if master.startswith("local"):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if found := _LOCAL_CLUSTER.fullmatch(master):
        chosen |= {
            # Half of a worker's memory for the heap: what Evenflow keeps lives in the Python worker beside it.
            "spark.executor.memory": f"{max(int(found[3]) // 2, 450)}m",
            "spark.executor.extraJavaOptions": java_options,
        }
    if shared is not None:
        chosen |= {
            f"spark.{role}.extraClassPath": shared[1] for role in ("driver", "executor") if f"spark.{role}.extraJavaOptions" in chosen
        }
    return chosen


# ---------------------------------------------------------------- start


def demand_pyspark() -> None:
    """Raises ClusterError if there is none: the package comes without, so that a platform's own is never overwritten."""
    if importlib.util.find_spec("pyspark") is None:
        raise ClusterError(
            f"{sys.executable} has no PySpark: pip install 'evenflow[local]' brings it, with a Java runtime; on a cluster use the Python "
            "that has the platform's own"
        )


def _refuse_second_session() -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise ClusterError("a Spark session is active in this process already: use it, or stop it before another one is started")


def _start(app_name: str, conf: Mapping[str, str], master: str, embedded: Embedded) -> SparkSession:
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    for name in ("local", "warehouse", "java"):
        (embedded.scratch / name).mkdir()
    (embedded.scratch / "log4j2.properties").write_text(_QUIET_LOG, encoding="utf-8")
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items())).setMaster(master).setAppName(app_name)
    context: list[SparkContext] = []
    launch: Any = java_gateway.launch_gateway

    def connect() -> None:
        context.append(SparkContext(conf=spark_conf, gateway=gateway))
        context[0].pythonExec = python  # Read from the environment, which is the user's own again by now.

    python = python_of_executors(master, conf)
    with _environment({**_launch_environment(master, embedded), "PYSPARK_PYTHON": python}), open(embedded.log, "wb") as log:
        gateway = launch(spark_conf, {"stdout": log, "stderr": log, "start_new_session": True})
    # A master that accepts connections and says nothing would hold the constructor for minutes.
    if not _within(START_TIMEOUT_S, connect):
        raise ClusterError(
            f"Spark did not start on {master!r} within {START_TIMEOUT_S:.0f} s: check that a Spark master of this version runs there"
        )
    return SparkSession(context[0])


def python_of_executors(master: str, conf: Mapping[str, str]) -> str:
    """The setting `spark.pyspark.python`; else on a cluster of other machines the variable PYSPARK_PYTHON; else this very Python."""
    own = sys.executable if master.startswith("local") else os.environ.get("PYSPARK_PYTHON") or sys.executable
    return conf.get("spark.pyspark.python") or own


def _launch_environment(master: str, embedded: Embedded) -> dict[str, str]:
    """Environment of the driver's JVM, and so of the executors that it starts on this machine."""
    chosen = {MARK: embedded.mark, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if master.startswith("local"):
        chosen["SPARK_LOCAL_IP"] = "127.0.0.1"
    if _LOCAL_CLUSTER.fullmatch(master):
        chosen["SPARK_HOME"] = str(_home_with_own_work(embedded.scratch))
    return chosen


def _home_with_own_work(scratch: Path) -> Path:
    """A Spark home of links to the installed one: workers of a local cluster put their files into `work` of their home, nowhere else."""
    from pyspark.find_spark_home import _find_spark_home

    home = scratch / "home"
    home.mkdir()
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def _cluster_error(master: str, error: BaseException, log: str) -> ClusterError:
    if isinstance(error, ClusterError):
        return error
    text = str(error).strip().splitlines() if isinstance(error, Exception) else []
    reasons = [line.strip() for line in text if "Exception:" in line and not line.startswith("py4j.")]
    reason = reasons[0].removeprefix(":").strip() if reasons else text[0] if text else type(error).__name__
    said = f"\nSpark said:\n{log}" if log and not reasons else ""
    return ClusterError(
        f"Spark could not start on {master!r}: {reason}{said}\n"
        'Check --master, for example "local-cluster[4,2,1024]" or spark://HOST:7077, and each --conf'
    )


def _tail(path: Path, lines: int = 12) -> str:
    """The last lines that a JVM printed, without the places in its code."""
    try:
        printed = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join([line for line in printed if not line.lstrip().startswith("at ")][-lines:])


# ---------------------------------------------------------------- stop


def _shut_gateway() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()  # The JVM ends itself when this pipe breaks.
            process.wait(STOP_TIMEOUT_S / 3)


def _forget_gateway() -> None:
    """Let the next session of this process start its own JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _within(timeout_s: float, step: Callable[[], None]) -> bool:
    """Run `step` in a thread. False if it is not done in time; raises what it raised."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            step()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True, name="evenflow-session")
    thread.start()
    deadline = time.monotonic() + timeout_s
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.1)  # In slices, so that Ctrl-C is noticed.
        heed()
    if raised:
        raise raised[0]
    return not thread.is_alive()


# ---------------------------------------------------------------- environment and signals


@contextlib.contextmanager
def _environment(chosen: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _signal_handler() -> Any:
    return signal.getsignal(signal.SIGINT) if _in_main_thread() else None


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C, a polite kill and a terminal that is closed wait for nothing here: cleaning up is bounded in time and must be whole."""
    if not _in_main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
