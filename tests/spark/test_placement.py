"""Clusters that cannot host the sites: the error says what to set. No cluster is started here."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.coordinator.detector import REPLICATED
from evenflow.coordinator.fleet import Fleet
from evenflow.errors import ClusterError
from evenflow.world.spark.cluster import placement
from evenflow.world.spark.cluster.located import Executor
from evenflow.world.spark.cluster.placement import Placement, check_replicas, check_session, check_slots
from evenflow.world.spark.driver.engine import Engine


class Conf(dict[str, str]):
    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)


class Scheduler:
    def __init__(self, slots: int) -> None:
        self.slots = slots

    def sc(self) -> Scheduler:
        return self

    def resourceProfileManager(self) -> Scheduler:
        return self

    def defaultResourceProfile(self) -> None:
        return None

    def maxNumConcurrentTasks(self, profile: None) -> int:
        return self.slots


class Context:
    def __init__(self, master: str, conf: dict[str, str], slots: int) -> None:
        self.master, self._conf, self._jsc = master, conf, Scheduler(slots)

    def getConf(self) -> Conf:
        return Conf(self._conf)


class Session:
    _jsparkSession = object()

    def __init__(self, master: str, conf: dict[str, str] | None = None, slots: int = 8) -> None:
        self.sparkContext = Context(master, conf or {}, slots)


def test_too_few_embedded_executors() -> None:
    with pytest.raises(ClusterError, match=r"local-cluster\[4,2,1024\]"):
        check_session(Session("local-cluster[2,2,1024]"), 4)


def test_a_local_master_has_room_for_one_site_only() -> None:
    check_session(Session("local[*]"), 1)
    with pytest.raises(ClusterError, match=r"local-cluster\[4,2,1024\].*sites=1"):
        check_session(Session("local[*]"), 4)


def test_spark_connect_is_refused() -> None:
    class Remote:
        pass

    Remote.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(ClusterError, match="not Spark Connect"):
        check_session(Remote(), 4)


def test_a_stopped_session_is_refused() -> None:
    session = Session("local-cluster[4,2,1024]")
    session.sparkContext._jsc = None  # type: ignore[assignment]
    with pytest.raises(ClusterError, match="stopped"):
        check_session(session, 4)


def test_speculation_of_endless_tasks_is_refused() -> None:
    conf = {"spark.speculation": "true"}
    check_session(Session("spark://host:7077", conf), 4)
    with pytest.raises(ClusterError, match="speculation"):
        check_session(Session("spark://host:7077", conf | {"spark.speculation.task.duration.threshold": "1min"}), 4)


def test_no_slot_beside_the_sites() -> None:
    check_slots(Session("spark://host:7077", slots=5).sparkContext, 4, "box 'x'")
    with pytest.raises(ClusterError, match="spark.executor.cores=2"):
        check_slots(Session("spark://host:7077", slots=4).sparkContext, 4, "box 'x'")


def test_spares_need_executors_too() -> None:
    check_session(Session("local-cluster[5,2,1024]"), 4, 1)
    with pytest.raises(ClusterError, match=r"4 sites and 2 spares need 6 executors.*local-cluster\[6,2,1024\]"):
        check_session(Session("local-cluster[5,2,1024]"), 4, 2)


@pytest.mark.parametrize(
    ("sites", "spares", "replicas", "scheme", "error", "said"),
    [
        (4, 0, 5, "mirrored", ClusterError, "replicas=5.*1 to 4 on 4 sites"),
        (4, 0, 0, "mirrored", ClusterError, "at least one replica"),
        (4, -1, 1, "mirrored", ClusterError, "-1 spares"),
        (0, 0, 1, "mirrored", ClusterError, "at least one site"),
        (4, 0, 2, "upside down", ClusterError, "mirrored, chained"),
        (4, 0, "2", "mirrored", TypeError, "replicas must be a whole number"),
        (4, True, 1, "mirrored", TypeError, "spares must be a whole number"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    sites: Any, spares: Any, replicas: Any, scheme: str, error: type[Exception], said: str
) -> None:
    check_replicas(4, 1, 2, "chained")
    with pytest.raises(error, match=said):
        check_replicas(sites, spares, replicas, scheme)


class Cluster:
    """Spark and the coordinator as the keeper sees them. Nothing starts by itself: the test says what becomes of every job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, executors: int, wanted: int) -> None:
        cluster = self
        self.executors = [Executor(str(i), "host") for i in range(executors)]
        self.jobs: list[Any] = []

        class Job:
            def __init__(self, spark: Any, group: str, number: int, executor: Executor | None, task: Any, on_end: Any) -> None:
                self.group, self.number, self.executor, self.ended, self.why, self.cancelled = group, number, executor, False, "", False
                self.on_end, self.again = on_end, False
                cluster.jobs.append(self)

            def join(self, timeout_s: float) -> bool:
                return True

            def cancel(self) -> None:
                self.cancelled = True

        monkeypatch.setattr(placement, "ship", lambda context: "evenflow.zip")
        monkeypatch.setattr(placement, "executors", lambda context: list(self.executors))
        monkeypatch.setattr(placement, "on_executor", lambda *bound: None)
        monkeypatch.setattr(placement, "SiteJob", Job)
        self.sites: dict[int, Any] = {}
        self.removed: list[str] = []
        self.coordinator: Any = SimpleNamespace(
            engine="e", port=1, fleet=Fleet(wanted, REPLICATED), sites=self.sites, changed=threading.Condition(), suspects=[],
            on_site=[], on_lost=[], known=lambda: list(self.sites.values()), enough=lambda n: len(self.sites) >= n,
            executor_removed=self.removed.append, dismiss=lambda why: None, preparations=SimpleNamespace(under_way=False, stuck=[]),
        )  # fmt: skip
        self.keeper = Placement(Session("spark://host:7077"), self.coordinator, "host", b"secret", 10.0, wait_s=-1.0, bind=None)  # type: ignore[arg-type]

    def look(self) -> list[Any]:
        """The jobs that one look of the keeper starts."""
        before = len(self.jobs)
        self.keeper._look()
        return self.jobs[before:]

    def hello(self, *jobs: Any) -> None:
        for job in jobs:
            self.sites[len(self.sites) + 100 * job.number] = SimpleNamespace(hello={"job": job.number}, executor=job.executor.id)

    def lose(self, job: Any) -> None:
        index = next(i for i, site in self.sites.items() if site.hello["job"] == job.number)
        del self.sites[index]
        self.coordinator.fleet.unwanted.add(job.number)


def test_the_keeper_waits_for_executors_and_gives_each_one_site(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=2, wanted=3)
    assert cluster.look() == [], "no site is started before there is a place for every one"
    cluster.executors.append(Executor("2", "host"))
    jobs = cluster.look()
    assert sorted(job.executor.id for job in jobs) == ["0", "1", "2"]
    assert cluster.look() == []
    cluster.hello(*jobs)
    assert cluster.look() == []


def test_a_lost_site_gets_a_successor_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SETTLE_S", 0.0)
    cluster = Cluster(monkeypatch, executors=3, wanted=2)
    jobs = cluster.look()
    cluster.hello(*jobs)
    cluster.lose(jobs[0])
    (successor,) = cluster.look()
    assert jobs[0].cancelled, "Spark would run its task again, and may still have its process"
    assert successor.executor.id != jobs[1].executor.id
    assert successor.number not in (jobs[0].number, jobs[1].number)


def test_a_site_that_left_as_planned_ends_by_itself_and_its_executor_gets_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SETTLE_S", 0.0)
    cluster = Cluster(monkeypatch, executors=2, wanted=2)
    jobs = cluster.look()
    cluster.hello(*jobs)
    cluster.coordinator.fleet.released.add(jobs[0].number)
    cluster.coordinator.fleet.shunned.add(jobs[0].executor.id)
    cluster.coordinator.fleet.wanted = 1
    cluster.lose(jobs[0])
    assert cluster.look() == [] and not jobs[0].cancelled
    cluster.coordinator.fleet.wanted = 2
    assert cluster.look() == [], "somebody may want to take the machine down"
    cluster.coordinator.fleet.shunned.clear()
    (again,) = cluster.look()
    assert again.executor.id == jobs[0].executor.id
    waited: list[float] = []
    jobs[0].join = waited.append
    cluster.keeper.await_ends({jobs[0].number})
    assert len(waited) == 1


def test_an_executor_that_may_be_dead_is_not_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=2, wanted=2)
    jobs = cluster.look()
    cluster.hello(*jobs)
    cluster.lose(jobs[0])
    assert cluster.look() == []
    cluster.executors = [executor for executor in cluster.executors if executor.id != jobs[0].executor.id]
    monkeypatch.setattr(cluster.keeper, "_avoid", {})
    assert cluster.look() == [], "it waits quietly for an executor"
    cluster.executors.append(Executor("7", "host"))
    (successor,) = cluster.look()
    assert successor.executor.id == "7"


def test_who_is_lost_while_the_keeper_looks_leaves_no_free_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """All executors die together: Spark would wait for a dead one for seconds, and then put two sites on one that lives."""
    cluster = Cluster(monkeypatch, executors=2, wanted=2)
    jobs = cluster.look()
    cluster.hello(*jobs)
    cluster.lose(jobs[0])

    def executors(context: Any) -> list[Executor]:
        cluster.lose(jobs[1])
        return list(cluster.executors)

    monkeypatch.setattr(placement, "executors", executors)
    assert cluster.look() == []


def test_a_site_that_was_sent_away_is_started_again_and_one_that_failed_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(monkeypatch, executors=2, wanted=1)
    (job,) = cluster.look()
    job.ended, job.again, job.why = True, True, "site 0 is on the same executor"
    (job,) = cluster.look()
    assert cluster.keeper._failure is None
    job.ended, job.why = True, "failed: Traceback\nModuleNotFoundError: No module named 'numba'"
    with caplog.at_level(logging.WARNING, "evenflow"):
        (job,) = cluster.look()
        job.ended, job.why = True, "failed: Traceback\nModuleNotFoundError: No module named 'numba'"
        cluster.look()
    assert len(caplog.records) == 1
    assert "No module named 'numba'" in str(cluster.keeper._failure)


def test_a_site_whose_job_spark_has_lost_sight_of_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executor's JVM hangs, so Spark runs the task elsewhere, where it is sent away; the site itself works on."""
    cluster = Cluster(monkeypatch, executors=2, wanted=1)
    (job,) = cluster.look()
    cluster.hello(job)
    job.ended, job.again, job.why = True, True, "there are 1 sites already"
    assert cluster.look() == []


def test_spark_is_asked_about_the_executors_of_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=2, wanted=2)
    cluster.hello(*cluster.look())
    cluster.coordinator.suspects = [SimpleNamespace(executor="0"), SimpleNamespace(executor="5"), SimpleNamespace(executor="?")]
    assert cluster.keeper._look() == placement.ASK_S
    assert cluster.removed == ["5"]


def test_nothing_that_goes_wrong_in_the_background_ends_the_keeper(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(monkeypatch, executors=2, wanted=2)
    looks: list[None] = []

    def look() -> float:
        looks.append(None)
        if len(looks) == 5:
            cluster.keeper._stopping.set()
        raise RuntimeError("the JVM is gone")

    monkeypatch.setattr(placement, "WATCH_S", 0.001)
    monkeypatch.setattr(cluster.keeper, "_look", look)
    with caplog.at_level(logging.WARNING, "evenflow"):
        cluster.keeper._keep()
    assert len(looks) == 5
    assert [record.getMessage() for record in caplog.records] == [
        "sites that are missing cannot be started now: the JVM is gone. This is tried again, and said once."
    ]


@pytest.mark.parametrize(
    ("executors", "sites", "said"),
    [
        (2, 0, r"4 sites need 4 executors.* there are 2: raise spark\.executor\.instances.*sites=2"),
        (4, 2, r"2 of 4 sites did not start.*free task slot.*spark\.executor\.cores"),
        (4, 4, "could not connect to each other.*ports must be open"),
    ],
    ids=["too few executors", "no free slot", "no way between executors"],
)
def test_a_cluster_that_gives_too_little_in_time(monkeypatch: pytest.MonkeyPatch, executors: int, sites: int, said: str) -> None:
    """What a cluster will give is known only by waiting for it, here not at all."""
    cluster = Cluster(monkeypatch, executors, wanted=4)
    cluster.sites |= dict.fromkeys(range(sites))
    cluster.coordinator.enough = lambda wanted: False
    monkeypatch.setattr(cluster.keeper, "_start_keeper", lambda: None)
    with pytest.raises(ClusterError, match=said):
        cluster.keeper.ensure()


def test_kernels_that_are_being_compiled_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=4, wanted=4)
    asked: list[int] = []

    def enough(wanted: int) -> bool:
        asked.append(wanted)
        cluster.coordinator.preparations.under_way = len(asked) < 4
        return False

    cluster.coordinator.enough = enough
    monkeypatch.setattr(cluster.keeper, "_start_keeper", lambda: None)
    with pytest.raises(ClusterError, match="4 of 4 sites did not start"):
        cluster.keeper.ensure()
    assert len(asked) == 4


def test_a_process_that_hangs_while_it_compiles_kernels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=4, wanted=4)
    cluster.coordinator.enough = lambda wanted: False
    cluster.coordinator.preparations.stuck = ["executor 1 on here", "executor 3 on there"]
    monkeypatch.setattr(cluster.keeper, "_start_keeper", lambda: None)
    with pytest.raises(
        ClusterError, match=r"compiled for more than 10 minutes at executor 1 on here, executor 3 on there: a process there"
    ):
        cluster.keeper.ensure()


@pytest.mark.parametrize("conf", [{"spark.driver.host": "192.0.2.1"}, {"spark.driver.host": "h", "spark.driver.bindAddress": "192.0.2.1"}])
def test_a_driver_listens_where_spark_s_does_or_says_why_not(conf: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=r"the driver cannot listen at 192\.0\.2\.1 .*spark\.driver\.bindAddress"):
        Engine(Session("spark://host:7077", conf), sites=1)._ensure_sites()


def test_who_waits_for_sites_of_an_engine_that_ends_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, executors=4, wanted=4)
    cluster.coordinator.enough = lambda wanted: False
    monkeypatch.setattr(cluster.keeper, "_start_keeper", cluster.keeper.give_up)
    with pytest.raises(ClusterError, match="the engine has been stopped"):
        cluster.keeper.ensure(wait_s=60.0)


def test_a_jvm_that_hangs_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a service that is asked to stop stops. Method: no job ends, and whoever has one cancelled gets no answer."""
    monkeypatch.setattr(placement, "JOIN_S", 0.05)
    monkeypatch.setattr(placement, "KILL_S", 0.05)
    cluster, answers, asked = Cluster(monkeypatch, executors=2, wanted=2), threading.Event(), list[int]()
    jobs = cluster.look()
    cluster.hello(jobs[0])
    for job in jobs:

        def cancel(number: int = job.number) -> None:
            asked.append(number)
            answers.wait(30)

        job.cancel, job.join = cancel, lambda timeout_s: False
    stops = threading.Thread(target=cluster.keeper.stop, daemon=True)
    stops.start()
    stops.join(10)
    try:
        assert not stops.is_alive()
        assert sorted(asked)[-1] == jobs[1].number and len(caplog.records) == 2
    finally:
        answers.set()
