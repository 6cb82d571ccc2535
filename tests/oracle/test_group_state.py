"""applyInPandasWithState, ported: its function is called with frames and states as Spark calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, NotPortable
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.bridge import analysed
from tests.oracle.test_from_streaming import AtOnce
from tests.oracle.test_from_streaming import frames as frames

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::UserWarning:pyspark", "ignore::FutureWarning:pyspark"),
]

F: Any = pytest.importorskip("pyspark.sql.functions")
OUT, STATE = "k string, n bigint, total double, last timestamp", "n bigint, total double, last timestamp"
Frames = Callable[[bool], list[Any]]


def so_far(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Count, sum and newest time of a key's rows, after each call."""
    n, total, last = state.getOption or (0, 0.0, pd.Timestamp(0))
    for frame in parts:
        assert list(frame.columns) == ["k", "n", "x", "ts"]
        n, total, last = n + len(frame), total + float(frame.n.sum()), max(last, frame.ts.max())
    state.update((n, total, last))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total], "last": [last]})


def until_quiet(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The same when no row has come for so long, and then anew."""
    if state.hasTimedOut:
        assert not list(parts)
        n, total, last = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total], "last": [last]})
        return
    list(so_far(key, parts, state))
    if state._timeout_conf == "EventTimeTimeout":
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 200)
    else:
        state.setTimeoutDuration(2000)


def given(frame: Any, function: Any, timeout: str = "NoTimeout") -> Any:
    """Rows come as they are, or in order of time where something goes by it."""
    timely = frame.withWatermark("ts", "5 seconds") if timeout == "EventTimeTimeout" else frame
    rows = timely.select("k", F.col("n").cast("bigint").alias("n"), "x", "ts")
    return rows.groupBy("k").applyInPandasWithState(function, OUT, STATE, "append", timeout)


def run(stream: Any) -> pd.DataFrame:
    stream.to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(stream.flow.network, sites=3, partitions=7), sites=3, options=FlowOptions(epoch_rows=40, linger_ms=1))
    world.run_until_quiet(600)
    return world.output("out").to_pandas()


def wanted(frame: Any) -> dict[Any, Any]:
    rows = frame.groupBy("k").agg(F.count("*").alias("n"), F.sum("n").cast("double").alias("t"), F.max("ts").alias("last")).collect()
    return {row.k: (row.n, row.t, pd.Timestamp(row.last)) for row in rows}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_the_states_of_keys(zone: str, spark: Any, frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysed, "_Session", AtOnce)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        got = run(ef.from_streaming(given(frames(True)[0], so_far)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    newest = got.sort_values("n").groupby("k", dropna=False).last()
    last = [moment.tz_localize(None) for moment in newest["last"]]
    found = {key: (n, t, at) for key, n, t, at in zip(newest.index, newest.n, newest.total, last, strict=True)}
    assert len(got) > len(found), "states go on from call to call"
    assert {None if pd.isna(k) else k: v for k, v in found.items()} == wanted(frames(False)[0])


@pytest.mark.parametrize("timeout", ["EventTimeTimeout", "ProcessingTimeTimeout"])
def test_what_has_timed_out(timeout: str, frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is counted once, in whichever of the states that have ended."""
    monkeypatch.setattr(analysed, "_Session", AtOnce)
    got = run(ef.from_streaming(given(frames(True)[0], until_quiet, timeout)))
    found = {None if pd.isna(k) else k: int(n) for k, n in got.groupby("k", dropna=False).n.sum().items()}
    assert found == {key: n for key, (n, _, _) in wanted(frames(False)[0]).items()}
    assert timeout != "EventTimeTimeout" or len(got) > len(found), "a state ends before the next one begins"


def test_what_follows_it(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysed, "_Session", AtOnce)
    asked = given(frames(True)[0], so_far).where("n > 1").select("k", (F.col("n") * 2).alias("twice"))
    stream = ef.from_streaming(asked)
    assert stream.columns == ["k", "twice"]
    assert set(run(stream).twice) >= {4}


def test_an_error_of_the_function_says_where(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysed, "_Session", AtOnce)

    def fails(key: Any, parts: Any, state: Any) -> Any:
        raise ValueError("no such key")

    def forgets(key: Any, parts: Any, state: Any) -> Any:
        yield pd.DataFrame({"k": key, "n": [1]})

    for function, says in ((fails, "no such key"), (forgets, r"columns \['k', 'n'\], and its schema has \['k', 'n', 'total', 'last'\]")):
        with pytest.raises(EvenflowError, match=says):
            run(ef.from_streaming(given(frames(True)[0], function)))
    with pytest.raises(NotPortable, match="running aggregate"):
        ef.from_streaming(
            frames(True)[0].groupBy("k").count().groupBy("k").applyInPandasWithState(fails, OUT, STATE, "update", "NoTimeout")
        )
