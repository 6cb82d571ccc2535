"""What an engine does about the number of sites that is wanted, where executors cannot be had, or are given back."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.coordinator.scaling import OVER_LOOKS, UNDER_LOOKS
from evenflow.errors import ClusterError, OperationRefused
from evenflow.policy.scaling import Bounds, Times, Wanted
from evenflow.world.spark.driver import scaling
from evenflow.world.spark.driver.scaling import AGAIN_S, Autoscaler


@dataclass
class Cluster:
    """room: executors that can be had, `there` of which have come. told: events of the run. away: the cluster manager answers nobody.
    full: who is to be emptied is not, as long as nobody calls that off; set when it has begun."""

    room: int
    there: int
    given_back: list[str] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)
    now_s: float = 1000.0
    refuses: bool = False
    away: bool = False
    full: threading.Event | None = None

    def executors(self, context: Any) -> list[Any]:
        return [SimpleNamespace(id=str(number)) for number in range(self.there)]

    def find_room(self, context: Any, wanted: int, *, ask: bool) -> None:
        assert ask
        if self.away:
            raise RuntimeError("An error occurred while calling o42.requestTotalExecutors")
        self.there = min(wanted, self.room)
        if wanted > self.room:
            raise ClusterError(f"{wanted} sites need {wanted} executors, and there are {self.room}")

    def add(self, count: int, timeout_s: float, *, ask: bool) -> None:
        if self.refuses:
            raise OperationRefused("the engine is draining site 1: wait until that is over")
        self.added.append(count)

    def drain(self, sites: Any, timeout_s: float, *, stays: threading.Event) -> list[Any]:
        if self.full is not None:
            self.full.set()
            assert stays.wait(20)
            raise OperationRefused("site 1 still hosts 3 replicas, and it is needed")
        return self.gone

    def record(self, kind: Any, text: str, **details: Any) -> None:
        self.told.append((str(kind), text))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(room=4, there=2)
    monkeypatch.setattr(scaling, "executors", found.executors)
    monkeypatch.setattr(scaling, "find_room", found.find_room)
    monkeypatch.setattr(scaling, "give_back", lambda context, executor: found.given_back.append(executor))
    monkeypatch.setattr(scaling.time, "monotonic", lambda: found.now_s)
    return found


def scaler(cluster: Cluster, kind: type[Autoscaler] = Autoscaler) -> Any:
    over = SimpleNamespace(is_set=lambda: False)
    run = SimpleNamespace(over=over, record=cluster.record)
    coordinator = SimpleNamespace(fleet=SimpleNamespace(sites={0: 1, 1: 1}), runs={1: run})
    engine = SimpleNamespace(spark=SimpleNamespace(sparkContext=None), spares=0, sites_now=(0, 1))
    operations = SimpleNamespace(add=cluster.add, drain=cluster.drain, least=lambda count: (1,))
    return kind(engine, operations, coordinator, Bounds(1, 8), Times(), 60.0)  # type: ignore[arg-type]


def test_as_many_come_as_there_is_room_for_and_the_rest_is_said_once(cluster: Cluster) -> None:
    autoscaler = scaler(cluster)
    autoscaler._more(Wanted(6), 2)
    assert cluster.added == [2]
    assert [kind for kind, _ in cluster.told] == ["scaling_waits"] and "6 sites are wanted" in cluster.told[0][1]
    autoscaler._more(Wanted(6), 4)
    assert cluster.added == [2], "nobody asks again at once"
    cluster.now_s += AGAIN_S + 1
    autoscaler._more(Wanted(6), 4)
    assert cluster.added == [2] and len(cluster.told) == 1, "it is said once"
    cluster.now_s, cluster.room = cluster.now_s + AGAIN_S + 1, 8
    autoscaler._more(Wanted(6), 4)
    assert cluster.added == [2, 2] and len(cluster.told) == 1
    cluster.room = 4
    autoscaler._more(Wanted(8), 6)
    assert len(cluster.told) == 2, "it is said again after there was room"


def test_an_overload_is_told_each_time_that_it_begins(cluster: Cluster) -> None:
    """Goal: one event for an overload, however long it lasts and however it goes up and down. Method: looks at whether the most sites that
    there may be are enough; one that cannot tell says nothing."""
    autoscaler = scaler(cluster)
    calm, wave, over = [0.9] * UNDER_LOOKS, [1.2, 1.2, 1.2, 0.9] * 5, [1.2] * OVER_LOOKS
    told = []
    for looks in (calm, wave, over, [0.9, None, 1.5] * 20, [0.9] * (UNDER_LOOKS - 1), [1.1], calm, over):
        for most_busy in looks:
            autoscaler._scaling._judge(most_busy)
            autoscaler._tell_overload(Wanted(8, most_busy=most_busy))
        told.append(len(cluster.told))
    assert told == [0, 0, 1, 1, 1, 1, 1, 2]
    assert cluster.told[0][0] == "overloaded" and "8 sites, the most that there may be, would be 120% busy" in cluster.told[0][1]


def test_who_is_refused_asks_again_at_the_next_look(cluster: Cluster) -> None:
    autoscaler, cluster.refuses = scaler(cluster), True
    with pytest.raises(OperationRefused):
        autoscaler._more(Wanted(4), 2)
    cluster.refuses = False
    autoscaler._more(Wanted(4), 2)
    assert cluster.added == [2] and cluster.told == []


def test_only_what_was_asked_for_is_given_back(cluster: Cluster) -> None:
    """Executors that were there when the engine began are the user's."""
    autoscaler = scaler(cluster)
    autoscaler._more(Wanted(8), 2)
    assert [kind for kind, _ in cluster.told] == ["scaling_waits"], "who waits for executors may give some back"
    cluster.gone = [SimpleNamespace(executor="1"), SimpleNamespace(executor="7")]
    autoscaler._fewer()
    assert autoscaler._emptying is not None
    autoscaler._emptying.join(20)
    assert cluster.given_back == ["7"]


class Looking(Autoscaler):
    """Each look wants four sites, whatever the runs have shown. left: looks until the engine ends."""

    left = 0

    def _look(self) -> None:
        if self.left == 0:
            self._closing.set()
            return
        self.left -= 1
        self._more(Wanted(4), 2)

    def looks(self, count: int) -> None:
        self.left = count
        self._closing.clear()
        self._watch()


def test_a_cluster_manager_that_is_away_does_not_end_the_looks(cluster: Cluster, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one look that fails is one warning, and autoscaling goes on. Method: Spark raises what is no error of ours, at looks of half a
    minute and at one after that; then it answers."""
    monkeypatch.setattr(scaling, "LOOK_S", 0.0)
    autoscaler, cluster.away = scaler(cluster, Looking), True
    with caplog.at_level(logging.WARNING, "evenflow"):
        autoscaler.looks(3)
        assert autoscaler.left == 0 and len(caplog.records) == 1 and caplog.records[0].exc_info
        cluster.now_s += AGAIN_S + 1
        autoscaler.looks(1)
        assert len(caplog.records) == 2
    cluster.now_s, cluster.away = cluster.now_s + AGAIN_S + 1, False
    autoscaler.looks(1)
    assert cluster.added == [2] and cluster.told == []


def test_looks_go_on_while_a_site_is_emptied_and_may_call_it_off(cluster: Cluster) -> None:
    """Goal: a load that rises while a site leaves does not wait for it. Method: a site that does not get empty, and an engine that ends,
    which calls it off as a look does."""
    autoscaler, cluster.full = scaler(cluster), threading.Event()
    autoscaler._fewer()
    assert cluster.full.wait(20) and autoscaler._emptying is not None and autoscaler._emptying.is_alive()
    autoscaler.close()
    assert not autoscaler._emptying.is_alive() and cluster.given_back == []
