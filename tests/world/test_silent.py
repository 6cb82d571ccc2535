"""A region that begins near the present is silent until it is as a live one; one with a location goes on as the region that it was. Site
processes and ports are real."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.world.test_in_place import kinds, wait_until

import evenflow as ef
from evenflow.bench.background import free_ports
from evenflow.bench.bare import BareEngine
from evenflow.errors import EpochsGone, LocationError, OptionError, QueryError
from evenflow.sinks.stream import SECRET_VARIABLE

pytestmark = pytest.mark.timeout(180)
WIDTH_MS, RATE = 5.0, 2_000


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of sixteen or more")


@pytest.fixture
def engine() -> Iterator[Callable[..., BareEngine]]:
    engines: list[BareEngine] = []

    def make(**options: Any) -> BareEngine:
        engines.append(BareEngine(**({"sites": 1, "partitions": 4} | options)))
        return engines[-1]

    yield make
    for each in engines:
        each.stop()


def windows(port: int, into: Callable[[int, Any], None] = lambda epoch, rows: None) -> ef.Dataflow:
    """Its state reaches back for 10 ms."""
    flow = ef.Dataflow("traffic")
    rows = flow.source(ef.sources.generator(rate=RATE, keys=5, partitions=1), cut="content", width_ms=WIDTH_MS)
    rows = rows.with_watermark("ts", "0 seconds")
    counts = rows.group_by("key").window("10 milliseconds").agg(n="count(*)")
    counts.to(ef.sinks.stream(port), name="out")
    counts.to(ef.sinks.callback(into), name="called")
    return flow


def totals(port: int) -> ef.Dataflow:
    flow = ef.Dataflow("traffic")
    rows = flow.source(ef.sources.generator(rate=RATE, keys=5, partitions=1), cut="content", width_ms=WIDTH_MS)
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.stream(port), name="out")
    return flow


def read(port: int, group: str, after: int | None, count: int) -> list[tuple[int, Any]]:
    with ef.subscribe(f"127.0.0.1:{port}", group, "out", after=after, patience_s=60.0) as subscriber:
        found = [next(subscriber) for _ in range(count)]
    return [(epoch, sorted(map(repr, rows.to_pylist()))) for epoch, rows in found]


@pytest.mark.conformance
def test_a_region_that_comes_late_reads_from_its_horizon_and_is_silent_until_it_is_as_a_live_one(engine: Callable[..., BareEngine]) -> None:
    """Goal: it reads a part only, and gives out nothing but what a live region has. Method: the source's readers are asked what they have
    given; every epoch of both is compared."""
    live, late = free_ports(2)
    begin_s, called = time.time() - 4.0, list[int]()
    first = engine().start(windows(live), group=ef.group("traffic", begin_s, sites=1))
    read(live, "traffic", int(3_900 / WIDTH_MS), 1)  # It has caught up.
    of = ef.group("traffic", begin_s, sites=1, place=1, peers=[f"127.0.0.1:{live}"])
    run = engine().start(windows(late, lambda epoch, rows: called.append(epoch)), group=of)
    wait_until(lambda: "believed" in kinds(run), 60, "it is believed")
    silent, believed = (next(event for event in run.events() if event["kind"] == kind) for kind in ("silent", "believed"))
    assert silent["epoch"] > 3_500 / WIDTH_MS
    got = read(late, "traffic", None, 5)
    assert got[0][0] > believed["epoch"] >= silent["epoch"]
    assert got == read(live, "traffic", got[0][0] - 1, 5)
    assert min(called) > believed["epoch"]
    with pytest.raises(EpochsGone):  # What came before, it does not have as live regions do.
        read(late, "traffic", silent["epoch"], 1)
    first.stop()
    run.stop()
    assert run.exception() is None


@pytest.mark.conformance
def test_where_nobody_is_there_to_agree_with_everything_is_read(engine: Callable[..., BareEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.world.spark.regions.beginning.ASK_S", 0.2)
    port, nobody = free_ports(2)
    run = engine().start(windows(port), group=ef.group("traffic", time.time() - 1.0, sites=1, peers=[f"127.0.0.1:{nobody}"]))
    assert read(port, "traffic", 0, 3)[0][0] > 0
    assert kinds(run) == []
    run.stop()


@pytest.mark.conformance
def test_a_region_at_a_location_goes_on_with_its_state_and_its_chain(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: who read from it before reads on without a gap, and every epoch is as in a region that was never lost. Method: totals for
    ever, so that everything depends on all that came; the driver of one region ends in the middle, and another one begins."""
    port, other = free_ports(2)
    location, of = str(tmp_path / "location"), ef.group("traffic", time.time(), sites=1)
    unharmed = engine().start(totals(other), group=of)
    doomed = engine(checkpoint_s=0.2, lease_s=1.0)
    before = doomed.start(totals(port), group=of, checkpoint_location=location)
    wait_until(lambda: kinds(before).count("checkpoint_completed") > 2, 60, "some checkpoints")
    last = read(port, "traffic", None, 3)[-1][0]
    doomed.stop()
    with pytest.raises(LocationError, match="of no group"):
        engine().start(totals(port), checkpoint_location=location)
    with pytest.raises(LocationError, match="said to begin"):
        engine().start(totals(port), group=ef.group("traffic", 1_795_420_800, sites=1), checkpoint_location=location)
    run = engine(lease_s=1.0).start(totals(port), group=of, checkpoint_location=location, take_over=True)
    assert run.id == "traffic" and "restarted" in kinds(run)
    again = read(port, "traffic", last, 30)
    assert again[0][0] == last + 1 and again == read(other, "traffic", last, 30)
    with ef.subscribe([f"127.0.0.1:{port}", f"127.0.0.1:{other}"], "traffic", after=again[-1][0]) as subscriber:
        assert len([next(subscriber) for _ in range(20)]) == 20  # Each shows the other's heads: another chain would be a contradiction.
    run.stop()
    unharmed.stop()
    assert run.exception() is None and unharmed.exception() is None


@pytest.mark.parametrize(
    ("flow", "given", "error", "why"),
    [
        (totals, {"peers": ["localhost:4002"]}, QueryError, "reaches back for ever"),
        (windows, {"peers": {"other": ["localhost:4002"]}}, OptionError, "stream sinks are out"),
    ],
)  # fmt: skip
def test_what_has_no_horizon_or_nobody_to_ask_is_refused(
    engine: Callable[..., BareEngine], flow: Any, given: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        engine().start(flow(4001), group=ef.group("traffic", time.time(), sites=1, **given))


@pytest.mark.parametrize("peers", [["far.example:4001"], {"out": []}, [3], {3: ["localhost:1"]}])
def test_peers_are_checked(peers: Any) -> None:
    with pytest.raises(OptionError):
        ef.group("traffic", 0, peers=peers)


def test_a_region_with_peers_has_no_location(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    of = ef.group("traffic", time.time(), sites=1, peers=["localhost:4002"])
    with pytest.raises(OptionError, match="needs nobody to agree with"):
        engine().start(windows(4001), group=of, checkpoint_location=str(tmp_path))
