"""Sites on executors: one single-task Spark job for each, every one on an executor of its own, and as many as the engine wants.

Spark places by preference only, so every hello is checked by the coordinator; a site that came to an executor that has one already is told
to leave and is started again with another preference. A site that is lost gets a successor, in a job of its own, on an executor that has
no site; the old job is cancelled, since Spark would run its task again wherever it likes, and may still have its process, if that hangs.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from evenflow.errors import ClusterError, EvenflowError, TlsRefused
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.cluster.located import Executor
from evenflow.world.spark.cluster.ship import on_executor, ship
from evenflow.world.spark.cluster.site_job import SiteJob
from evenflow.world.spark.driver.driver_loop import STOPPED, DriverLoop
from evenflow.world.spark.executor.preparing import PREPARES_MAX_S
from evenflow.world.spark.net.trust import Trusted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES_MAX: Final = 12
"""Starts of one site before the start of an engine is given up."""
PLACEMENTS: Final = ("mirrored", "chained")
WATCH_S: Final = 1.0
"""The keeper looks this often, should nobody wake it."""
SETTLE_S: Final = 0.3
"""Spark needs this long to know that an executor is gone; a successor on a dead one would wait for it for seconds."""
ASK_S: Final = 0.1
"""How often Spark is asked about executors while a site is suspected."""
HURRY_S: Final = 20.0
"""After a loss a new executor is looked for this often for so long: what runs may wait for its site."""
BACKOFF_FIRST_S: Final = 0.05
BACKOFF_LAST_S: Final = 5.0
JOIN_S: Final = 5.0
KILL_S: Final = 8.0

_LOCAL: Final = re.compile(r"local(\[.*\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")

log = logging.getLogger("evenflow")


def check_session(spark: Any, sites: int, spares: int = 0) -> None:
    """Raise ClusterError for a session that can never host so many sites: Spark Connect, a stopped one, a master with too few executors."""
    if type(spark).__module__.startswith("pyspark.sql.connect") or not hasattr(spark, "_jsparkSession"):
        raise ClusterError(
            "Evenflow needs a classic Spark session, not Spark Connect, which cannot run long tasks of its own: "
            'start one with SparkSession.builder.master("local-cluster[4,2,1024]") or a spark://, yarn or k8s:// master; '
            "docs/deploy.md says what else can be done"
        )
    context = spark.sparkContext
    if context._jsc is None:
        raise ClusterError("the Spark session has been stopped: start a new one")
    if sites < 1:
        raise ClusterError(f"an engine needs at least one site, not {sites}")
    master, wanted = context.master, sites + spares
    if _LOCAL.fullmatch(master) and wanted > 1:
        raise ClusterError(
            f"{_need(sites, spares)}, and the master {master!r} has none but the driver itself: "
            f'use master "local-cluster[{wanted},2,1024]" (or a real cluster), or sites=1'
        )
    found = _LOCAL_CLUSTER.fullmatch(master)
    if found and int(found[1]) < wanted:
        raise ClusterError(
            f'{_need(sites, spares)}, and the master {master!r} has {found[1]}: use "local-cluster[{wanted},{found[2]},{found[3]}]"'
        )
    conf = context.getConf()
    if conf.get("spark.speculation", "false") == "true" and conf.get("spark.speculation.task.duration.threshold", None):
        raise ClusterError(
            "spark.speculation.task.duration.threshold would start copies of the sites, which never end: "
            "unset it, or set spark.speculation to false"
        )


def check_replicas(sites: int, spares: int, replicas: int, placement: str) -> None:
    """Raise TypeError or ClusterError for numbers that make no sense together."""
    for name, value in (("sites", sites), ("spares", spares), ("replicas", replicas)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
    if sites < 1:
        raise ClusterError(f"an engine needs at least one site, not {sites}")
    if spares < 0:
        raise ClusterError(f"an engine cannot have {spares} spares")
    if not 1 <= replicas <= sites:
        raise ClusterError(
            f"replicas={replicas}: every partition has at least one replica, and never two on one site, so there can be 1 to {sites} "
            f"on {sites} sites"
        )
    if placement not in PLACEMENTS:
        raise ClusterError(f"there is no placement {placement!r}: use one of {', '.join(PLACEMENTS)}")


def _need(sites: int, spares: int) -> str:
    return f"{sites} sites and {spares} spares need {sites + spares} executors" if spares else f"{sites} sites need {sites} executors"


def executors(context: Any) -> list[Executor]:
    """The executors that are there now, in order of their ids; the driver itself where the master is local."""
    jvm, jsc = context._jvm, context._jsc.sc()
    plain = jvm.scala.jdk.javaapi.CollectionConverters.asJava
    found = [Executor(summary.id(), summary.hostPort().rpartition(":")[0]) for summary in plain(jsc.statusStore().executorList(True))]
    if not _LOCAL.fullmatch(str(context.master)):
        # The status is told later than the scheduler, which knows of a death as soon as a connection breaks.
        alive = set(plain(jsc.getExecutorIds()))
        found = [executor for executor in found if executor.id in alive]
    return sorted(found, key=lambda executor: (len(executor.id), executor.id))


def allocates(context: Any) -> bool:
    """Spark starts executors when they are asked for, and ends idle ones."""
    return bool(context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true")


def find_room(context: Any, wanted: int, *, ask: bool = False) -> None:
    """See to it that so many executors are there or on their way. Raises ClusterError if they are not, and cannot be asked for.

    Where Spark's dynamic allocation is on, it is asked for those that are missing; elsewhere there are as many as the user has started.
    ask: the cluster manager is asked there, too.
    """
    found = len(executors(context))
    if found >= wanted:
        return
    if not (ask or allocates(context)):
        raise ClusterError(
            f"{_too_few(wanted, found)}: start more (spark.executor.instances, spark.cores.max, or workers), or let Spark start them when "
            "they are asked for (spark.dynamicAllocation.enabled)"
        )
    request_executors(context, wanted, found)


def request_executors(context: Any, wanted: int, found: int) -> None:
    """Ask Spark's dynamic allocation for so many executors in all. Raises ClusterError if it cannot give them.

    It counts tasks, several to an executor, and would start too few for sites, which never share one. May be asked again, and must
    be: Spark goes back to its own number whenever that changes, and does not take away what hosts a site.
    """
    need = _too_few(wanted, found)
    most = context.getConf().get("spark.dynamicAllocation.maxExecutors", None)
    if most is not None and most.isdigit() and int(most) < wanted:
        raise ClusterError(f"{need}, and spark.dynamicAllocation.maxExecutors={most} allows no more: raise it")
    nowhere = context._jvm.PythonUtils.toScalaMap({})
    if not context._jsc.sc().requestTotalExecutors(wanted, 0, nowhere):
        raise ClusterError(
            f"{need}: the cluster manager of {context.master!r} does not take requests for more, so start them by its own means"
        )


def give_back(context: Any, executor: str) -> bool:
    """End an executor that was asked for, if nothing runs there, and ask for one less. Where Spark's dynamic allocation is on, that is its
    business: it ends idle ones itself. Returns whether it was done."""
    jsc = context._jsc.sc()
    if allocates(context):
        return False
    plain = context._jvm.scala.jdk.javaapi.CollectionConverters.asJava
    idle = [summary for summary in plain(jsc.statusStore().executorList(True)) if summary.id() == executor and not summary.activeTasks()]
    return bool(idle) and bool(jsc.killExecutor(executor))


def _too_few(wanted: int, found: int) -> str:
    return f"{wanted} sites need {wanted} executors, and there are {found}"


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


class Placement:
    """Keeps as many sites as the engine wants, from the first `ensure` on.

    host, secret, lease_s, bind, ports: what sites are told. wait_s: how long to wait for executors and for sites to say hello.

    All starting is done by one thread, the keeper. Nothing that goes wrong there is raised there: `ensure` raises it, if anybody waits for
    sites, and the log has it once.
    """

    def __init__(
        self,
        spark: SparkSession,
        coordinator: DriverLoop,
        host: str,
        secret: Trusted,
        lease_s: float,
        wait_s: float,
        bind: str | None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self._spark, self._coordinator, self._wait_s = spark, coordinator, wait_s
        self._host, self._secret, self._lease_s, self._bind = host, secret, lease_s, bind
        self._ports = ports
        self._jobs: dict[int, SiteJob] = {}
        self._old: list[SiteJob] = []
        self._archive = ship(spark.sparkContext)
        self._serial = self._tries = 0
        self._begun = False
        self._failure: EvenflowError | None = None
        self._complained = False
        self._backoff_s = BACKOFF_FIRST_S
        self._ask_next_s = 0.0
        self._avoid: dict[str, float] = {}
        self._hurry_until_s = 0.0
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread: Any = None
        coordinator.on_site.append(lambda index: self._wake.set())
        coordinator.on_lost.append(lambda index, why: self._wake.set())

    def ensure(self, sites: int | None = None, wait_s: float | None = None) -> None:
        """Return when so many sites (default: all that are wanted) are there and have reached their peers. Raises ClusterError, also
        when the engine is stopped.

        wait_s: for how long to wait; kernels that are being compiled on a machine do not count, for some minutes.
        """
        coordinator = self._coordinator
        wanted = coordinator.fleet.wanted if sites is None else sites
        patience_s = self._wait_s if wait_s is None else wait_s
        deadline = time.monotonic() + patience_s
        self._failure, self._tries, self._backoff_s = None, 0, BACKOFF_FIRST_S
        if allocates(self._spark.sparkContext):
            find_room(self._spark.sparkContext, coordinator.fleet.wanted)
        self._start_keeper()
        while not coordinator.enough(wanted):
            heed()
            if self._stopping.is_set():
                raise ClusterError(STOPPED)
            if self._failure is not None:
                raise self._failure
            if coordinator.preparations.under_way:
                deadline = time.monotonic() + patience_s
            elif time.monotonic() > deadline:
                raise self._too_late(wanted)
            with coordinator.changed:
                coordinator.changed.wait(0.05)

    def await_ends(self, numbers: set[int]) -> None:
        """Wait a few seconds for the end of jobs whose sites have left."""
        deadline = time.monotonic() + JOIN_S
        for job in [*list(self._jobs.values()), *self._old]:
            if job.number in numbers:
                job.join(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------ the keeper

    def _start_keeper(self) -> None:
        from pyspark import InheritableThread

        self._wake.set()
        if self._thread is None:
            self._thread = InheritableThread(target=self._keep, session=self._spark)  # The user's job properties are the sites' too.
            self._thread.daemon = True
            self._thread.start()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                wait_s = self._look()
            except Exception as error:
                wait_s = WATCH_S
                if not self._complained and not self._stopping.is_set():
                    self._complained = True
                    log.warning("sites that are missing cannot be started now: %s. This is tried again, and said once.", error)
            self._wake.wait(wait_s)

    def _look(self) -> float:
        """Do what is due, and return when to look again."""
        coordinator = self._coordinator
        known = coordinator.known()
        hosting = {each.hello["job"] for each in known}
        for job in list(self._jobs.values()):
            if job.number in coordinator.fleet.unwanted:
                self._give_up(job)
            elif job.ended and job.number not in hosting:
                del self._jobs[job.number]
                self._note_end(job)
        wait_s = self._ask_spark() if coordinator.suspects else WATCH_S
        pending = [job for job in self._jobs.values() if job.number not in hosting]
        missing = coordinator.fleet.wanted - len(hosting) - len(pending)
        if missing <= 0:
            return wait_s
        there = executors(self._spark.sparkContext)
        self._begun = self._begun or len(there) >= coordinator.fleet.wanted
        if len(there) < coordinator.fleet.wanted:
            self._ask_for_more(len(there))
        if not self._begun:
            return BACKOFF_FIRST_S
        # Who is lost meanwhile has been on his executor until now: it is not free, and may be dead.
        free = self._free(there, pending, {each.executor for each in known})
        for _ in range(min(missing, len(free))):
            self._start(free.pop(self._tries % len(free)))
        if missing and (self._avoid or time.monotonic() < self._hurry_until_s):
            return ASK_S
        self._backoff_s = min(BACKOFF_LAST_S, 2 * self._backoff_s)
        return min(wait_s, self._backoff_s)

    def _ask_for_more(self, there: int) -> None:
        """Executors are missing: dynamic allocation is asked for them now and then, since it may have forgotten."""
        context, now_s = self._spark.sparkContext, time.monotonic()
        if now_s >= self._ask_next_s and allocates(context):
            self._ask_next_s = now_s + WATCH_S
            request_executors(context, self._coordinator.fleet.wanted, there)

    def _free(self, there: list[Executor], pending: list[SiteJob], hosting: set[str]) -> list[Executor]:
        """Executors without a site. One that has just lost its own comes last, and only when Spark would know if it were dead. hosting: who
        had one when this look began."""
        now_s = time.monotonic()
        self._avoid = {executor: until_s for executor, until_s in self._avoid.items() if until_s > now_s}
        taken = hosting | {known.executor for known in self._coordinator.known()} | {job.executor.id for job in pending if job.executor}
        taken |= self._coordinator.fleet.shunned
        return [executor for executor in there if executor.id not in taken and executor.id not in self._avoid]

    def _start(self, executor: Executor) -> None:
        context = self._spark.sparkContext
        where = None if _LOCAL.fullmatch(context.master or "") else executor
        self._serial += 1
        self._tries += 1
        number, engine, port = self._serial, self._coordinator.engine, self._coordinator.port
        told = (engine, self._host, port, number, self._lease_s, self._bind, self._secret, self._ports)
        task = on_executor(self._archive, "evenflow.world.spark.executor.entry", "start_site", log.getEffectiveLevel(), *told)
        group = f"evenflow-{engine}-site-{number}"
        self._jobs[number] = SiteJob(self._spark, group, number, where, task, self._wake.set)

    def _give_up(self, job: SiteJob) -> None:
        """Its site is dead. Its process may not be, and Spark may be about to start it again."""
        del self._jobs[job.number]
        self._old = [old for old in self._old if not old.ended]
        self._tries, self._backoff_s = 0, BACKOFF_FIRST_S
        if job.executor is not None:
            self._avoid[job.executor.id] = time.monotonic() + SETTLE_S
        self._hurry_until_s = time.monotonic() + HURRY_S
        if not job.ended:
            self._old.append(job)
            if job.number not in self._coordinator.fleet.released:  # Who leaves as planned ends by itself.
                job.cancel()

    def _note_end(self, job: SiteJob) -> None:
        log.info("start %d of a site has ended: %s", job.number, job.why)
        if self._stopping.is_set() or (job.again and self._tries < TRIES_MAX * self._coordinator.fleet.wanted):
            return
        if job.again:
            self._failure = ClusterError(f"Spark did not give every site an executor of its own in {self._tries} tries; last: {job.why}")
        else:
            self._failure = _error_of(_reason(job.why))
        if not self._complained:
            self._complained = True
            log.warning("%s", self._failure)

    def _ask_spark(self) -> float:
        """Whether the executors of suspected sites are gone."""
        there = {executor.id for executor in executors(self._spark.sparkContext)}
        for site in self._coordinator.suspects:
            if site.executor not in there and site.executor not in ("?", "driver"):
                self._coordinator.executor_removed(site.executor)
        return ASK_S

    # ------------------------------------------------------------ the end

    def _too_late(self, wanted: int) -> ClusterError:
        found, there = len(executors(self._spark.sparkContext)), len(self._coordinator.sites)
        if found < wanted:
            return ClusterError(
                f"{wanted} sites need {wanted} executors, and after {self._wait_s:.0f} s there are {found}: raise spark.executor.instances "
                f"(or spark.cores.max, or the number of workers), or start the engine with sites={max(found, 1)}"
            )
        if there < wanted and (stuck := self._coordinator.preparations.stuck):
            return ClusterError(
                f"{wanted - there} of {wanted} sites did not start: kernels have been compiled for more than {PREPARES_MAX_S / 60:.0f} "
                f"minutes at {', '.join(stuck)}: a process there hangs, or another one that compiles them and for which it waits"
            )
        if there < wanted:
            return ClusterError(
                f"{wanted - there} of {wanted} sites did not start within {self._wait_s:.0f} s though there are {found} executors: "
                "every one needs a free task slot (spark.executor.cores), and a way to connect to the driver (spark.driver.host)"
            )
        return ClusterError(
            f"the sites could not connect to each other within {self._wait_s:.0f} s: their ports must be open between executors"
        )

    def give_up(self) -> None:
        """No site is started any more, and nobody waits for any. From any thread."""
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """End every site's job, politely first. Returns when they are over, at most after some 18 s, whether or not the
        JVM answers."""
        self.give_up()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        hosting = {known.hello["job"] for known in self._coordinator.known()}
        jobs = [*self._jobs.values(), *self._old]
        _cancel([job for job in jobs if job.number not in hosting and not job.ended])  # Still starting: there is nobody to be polite to.
        self._coordinator.dismiss("the engine stops")
        deadline = time.monotonic() + JOIN_S
        left = [job for job in jobs if not job.join(max(0.0, deadline - time.monotonic()))]
        _cancel(left)
        deadline = time.monotonic() + KILL_S
        for job in left:
            if not job.join(max(0.0, deadline - time.monotonic())):
                log.warning("the Spark job %s has not ended yet; Spark ends it with the application", job.group)
        self._jobs.clear()


def _cancel(jobs: Sequence[SiteJob]) -> None:
    """Beside the caller: a JVM that hangs never answers. It may be gone already; then so are its jobs."""

    def cancel() -> None:
        for job in jobs:
            try:
                job.cancel()
            except Exception as error:
                log.debug("while stopping: %r", error)

    if jobs:
        threading.Thread(target=cancel, name="evenflow-cancel", daemon=True).start()


def _reason(text: str) -> str:
    """What a Python task raised, out of all that Spark says about it."""
    lines = [line for line in text.splitlines() if line.strip()]
    for i in range(len(lines) - 1, -1, -1):
        if re.match(r"^\s*(\w+\.)*\w*(Error|Exception|Refused|Lost)\b", lines[i]) and "PythonException" not in lines[i]:
            return lines[i].strip()
    return text


def _error_of(reason: str) -> EvenflowError:
    """What ended a site before it was one: TlsRefused as itself, since it is mended in the options, and all else as ClusterError."""
    kind = TlsRefused if f"{TlsRefused.__module__}.{TlsRefused.__name__}:" in reason else ClusterError
    return kind(f"a site could not be started:\n{reason}")
