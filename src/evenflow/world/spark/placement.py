"""Sites on executors: one single-task Spark job for each, every one on an executor of its own.

Spark places by preference only, so every hello is checked by the coordinator; a site that came to an executor that has one already is told
to leave and is started again with another preference. A job's task that fails (its worker was killed) is run again by Spark itself.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenflow.errors import ClusterError
from evenflow.world.spark.coordinator import Coordinator
from evenflow.world.spark.ship import on_executor, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES_MAX: Final = 12
"""Starts of one site before its placement is given up."""
JOIN_S: Final = 5.0
KILL_S: Final = 8.0

_LOCAL: Final = re.compile(r"local(\[.*\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")

log = logging.getLogger("evenflow")


@dataclass(frozen=True, slots=True)
class Executor:
    """id: Spark's. host: the name by which the other executors reach it."""

    id: str
    host: str

    @property
    def location(self) -> str:
        """How Spark's scheduler calls it in location preferences."""
        return f"executor_{self.host}_{self.id}"


def check_session(spark: Any, sites: int) -> None:
    """Raise ClusterError for a session that can never host `sites` sites: Spark Connect, a stopped one, a master with too few executors."""
    if type(spark).__module__.startswith("pyspark.sql.connect") or not hasattr(spark, "_jsparkSession"):
        raise ClusterError(
            "Evenflow needs a classic Spark session, not Spark Connect, which cannot run long tasks of its own: "
            'start one with SparkSession.builder.master("local-cluster[4,2,1024]") or a spark://, yarn or k8s:// master'
        )
    context = spark.sparkContext
    if context._jsc is None:
        raise ClusterError("the Spark session has been stopped: start a new one")
    if sites < 1:
        raise ClusterError(f"an engine needs at least one site, not {sites}")
    master = context.master
    if _LOCAL.fullmatch(master) and sites > 1:
        raise ClusterError(
            f"{sites} sites need {sites} executors, and the master {master!r} has none but the driver itself: "
            f'use master "local-cluster[{sites},2,1024]" (or a real cluster), or sites=1'
        )
    found = _LOCAL_CLUSTER.fullmatch(master)
    if found and int(found[1]) < sites:
        raise ClusterError(
            f"{sites} sites need {sites} executors, and the master {master!r} has {found[1]}: "
            f'use "local-cluster[{sites},{found[2]},{found[3]}]"'
        )
    conf = context.getConf()
    if conf.get("spark.speculation", "false") == "true" and conf.get("spark.speculation.task.duration.threshold", None):
        raise ClusterError(
            "spark.speculation.task.duration.threshold would start copies of the sites, which never end: "
            "unset it, or set spark.speculation to false"
        )


def executors(context: Any) -> list[Executor]:
    """The executors that are there now, in order of their ids; the driver itself where the master is local."""
    jvm, jsc = context._jvm, context._jsc.sc()
    summaries = jvm.scala.jdk.javaapi.CollectionConverters.asJava(jsc.statusStore().executorList(True))
    found = [Executor(summary.id(), summary.hostPort().rpartition(":")[0]) for summary in summaries]
    if not _LOCAL.fullmatch(str(context.master)):
        found = [executor for executor in found if executor.id != "driver"]
    return sorted(found, key=lambda executor: (len(executor.id), executor.id))


def free_slots(context: Any, sites: int) -> int:
    """Task slots of the whole application that are left beside the sites."""
    jsc = context._jsc.sc()
    return int(jsc.maxNumConcurrentTasks(jsc.resourceProfileManager().defaultResourceProfile())) - sites


def check_slots(context: Any, sites: int, what: str, needed: int = 1) -> None:
    """Raise ClusterError if fewer than `needed` tasks can run beside the sites. what: who needs the slots."""
    free = free_slots(context, sites)
    if free < needed:
        conf = context.getConf()
        cores = conf.get("spark.executor.cores", "1")
        slots, found = ("a task slot", "there is none") if needed == 1 else (f"{needed} task slots", f"there are {max(free, 0)}")
        raise ClusterError(
            f"{what} needs {slots} beside the {sites} sites, and {found}: give every executor two, "
            f'with spark.executor.cores=2 (it is {cores}) or the master "local-cluster[{sites},2,1024]"'
        )


class SiteJob:
    """The Spark job of one site, in a thread of its own. ended: it is over. why: what the site said, or the error's text."""

    def __init__(self, spark: SparkSession, group: str, site: int, location: str | None, task: Any) -> None:
        from pyspark import InheritableThread

        self.group, self.site, self.ended, self.why = group, site, False, ""
        self._context, self._location, self._task = spark.sparkContext, location, task
        self._over = threading.Event()
        self._thread = InheritableThread(target=self._run, session=spark)
        self._thread.daemon = True
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        return self._over.wait(timeout_s)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self.group)

    def _run(self) -> None:
        context = self._context
        try:
            context.setJobGroup(self.group, f"Evenflow site {self.site}", interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", f"evenflow-site-{self.site}")
            rdd = preferring(context, self._location) if self._location else context.parallelize([0], 1)
            task = self._task

            def body(rows: Any) -> list[str]:
                # An exception would make Spark try again, up to spark.task.maxFailures, and nobody would see why.
                import traceback

                try:
                    return [task()]
                except Exception:
                    return ["failed: " + traceback.format_exc()]

            self.why = str(rdd.mapPartitions(body).collect()[0])
        except Exception as error:
            self.why = str(error)
        finally:
            self.ended = True
            self._over.set()


def preferring(context: Any, location: str) -> Any:
    """An RDD of one partition that Spark would rather compute at `location`."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    jvm, jsc = context._jvm, context._jsc.sc()
    converters = jvm.scala.jdk.javaapi.CollectionConverters

    def seq(*items: Any) -> Any:
        array = jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return converters.asScala(array).toSeq()

    any_tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    pair = jvm.scala.Tuple2(bytearray(b"site"), seq(location))
    return RDD(jsc.makeRDD(seq(pair), any_tag).toJavaRDD(), context, NoOpSerializer())


class Placement:
    """Keeps one job running for each site. engine: its id; wait_s: how long to wait for executors and for sites to say hello."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, host: str, secret: bytes, lease_s: float, wait_s: float) -> None:
        self._spark, self._coordinator, self._wait_s = spark, coordinator, wait_s
        self._host, self._secret, self._lease_s = host, secret, lease_s
        self._jobs: dict[int, SiteJob] = {}
        self._tries: dict[int, int] = {}
        self._archive = ship(spark.sparkContext)
        self._serial = 0

    def ensure(self) -> None:
        """Return when every site is there and has reached its peers. Raises ClusterError."""
        coordinator = self._coordinator
        deadline = time.monotonic() + self._wait_s
        self._tries.clear()
        started = False
        while not coordinator.ready:
            if time.monotonic() > deadline:
                raise self._too_late()
            started = started or self._enough_executors()
            if started:
                self._start_missing()
            with coordinator.changed:
                coordinator.changed.wait(0.05)

    def _enough_executors(self) -> bool:
        return len(executors(self._spark.sparkContext)) >= self._coordinator.count

    def _start_missing(self) -> None:
        for site in range(self._coordinator.count):
            job = self._jobs.get(site)
            if site in self._coordinator.sites or (job is not None and not job.ended):
                continue
            if job is not None and job.why and not job.why.startswith("again:") and self._tries.get(site, 0):
                raise ClusterError(f"site {site} could not be started:\n{_reason(job.why)}")
            if self._tries.get(site, 0) >= TRIES_MAX:
                raise ClusterError(
                    f"Spark did not give site {site} an executor of its own in {TRIES_MAX} tries; last: {job.why if job else ''}"
                )
            self._start(site)

    def _start(self, site: int) -> None:
        context = self._spark.sparkContext
        taken = {str(known.hello["executor"]) for known in self._coordinator.known()}
        free = [executor for executor in executors(context) if executor.id not in taken]
        location = None
        if free and not _LOCAL.fullmatch(context.master or ""):
            location = free[(site + self._tries.get(site, 0)) % len(free)].location
        self._tries[site] = self._tries.get(site, 0) + 1
        self._serial += 1
        engine, port = self._coordinator.engine, self._coordinator.port
        task = on_executor(
            self._archive, "evenflow.world.spark.site_task", "start_site", engine, self._host, port, site, self._lease_s, self._secret
        )
        self._jobs[site] = SiteJob(self._spark, f"evenflow-{engine}-site-{site}-{self._serial}", site, location, task)

    def _too_late(self) -> ClusterError:
        found, wanted = len(executors(self._spark.sparkContext)), self._coordinator.count
        if found < wanted:
            return ClusterError(
                f"{wanted} sites need {wanted} executors, and after {self._wait_s:.0f} s there are {found}: raise spark.executor.instances "
                f"(or spark.cores.max, or the number of workers), or start the engine with sites={max(found, 1)}"
            )
        missing = [site for site in range(wanted) if site not in self._coordinator.sites]
        if missing:
            return ClusterError(
                f"sites {missing} did not start within {self._wait_s:.0f} s though there are {found} executors: "
                "every one needs a free task slot (spark.executor.cores), and a way to connect to the driver (spark.driver.host)"
            )
        return ClusterError(
            f"the sites could not connect to each other within {self._wait_s:.0f} s: their ports must be open between executors"
        )

    def stop(self) -> None:
        """End every site's job, politely first. Returns when they are over, at most after some 13 s."""
        for site, job in self._jobs.items():
            if site not in self._coordinator.sites and not job.ended:
                with _suppressed():
                    job.cancel()  # It is still starting: there is nobody to be polite to.
        self._coordinator.dismiss("the engine stops")
        deadline = time.monotonic() + JOIN_S
        left = [job for job in self._jobs.values() if not job.join(max(0.0, deadline - time.monotonic()))]
        for job in left:
            with _suppressed():
                job.cancel()
        deadline = time.monotonic() + KILL_S
        for job in left:
            if not job.join(max(0.0, deadline - time.monotonic())):
                log.warning("the Spark job of site %d has not ended yet; Spark ends it with the application", job.site)
        self._jobs.clear()


@contextmanager
def _suppressed() -> Iterator[None]:
    """The JVM may be gone already; then so are its jobs."""
    try:
        yield
    except Exception as error:
        log.debug("while stopping: %r", error)


def _reason(text: str) -> str:
    """What a Python task raised, out of all that Spark says about it."""
    lines = [line for line in text.splitlines() if line.strip()]
    for i in range(len(lines) - 1, -1, -1):
        if re.match(r"^\s*(\w+\.)*\w*(Error|Exception|Refused|Lost)\b", lines[i]) and "PythonException" not in lines[i]:
            return lines[i].strip()
    return text
