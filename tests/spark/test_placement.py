"""Clusters that cannot host the sites: the error says what to set. No cluster is started here."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.errors import ClusterError
from evenflow.world.spark import placement
from evenflow.world.spark.placement import Executor, Placement, check_session, check_slots


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


@pytest.mark.parametrize(
    ("executors", "sites", "said"),
    [
        (2, {}, r"4 sites need 4 executors.* there are 2: raise spark\.executor\.instances.*sites=2"),
        (4, {0: None, 1: None}, r"sites \[2, 3\] did not start.*free task slot.*spark\.executor\.cores"),
        (4, dict.fromkeys(range(4)), "could not connect to each other.*ports must be open"),
    ],
    ids=["too few executors", "no free slot", "no way between executors"],
)
def test_a_cluster_that_gives_too_little_in_time(monkeypatch: pytest.MonkeyPatch, executors: int, sites: dict[int, Any], said: str) -> None:
    """What a cluster will give is known only by waiting for it, here not at all."""
    monkeypatch.setattr(placement, "ship", lambda context: "evenflow.zip")
    monkeypatch.setattr(placement, "executors", lambda context: [Executor(str(i), "host") for i in range(executors)])
    coordinator: Any = SimpleNamespace(ready=False, count=4, sites=sites, changed=threading.Condition())
    placed = Placement(Session("spark://host:7077"), coordinator, "host", b"secret", 10.0, wait_s=-1.0)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=said):
        placed.ensure()
