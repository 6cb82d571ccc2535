"""Objects of the newest checkpoint are not what they were: the run goes on from an older one and says so. Real sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.restarting import wait_until

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.driver.run import Run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

ROWS, KEYS = 8_000, 100


def altered(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])


def of_another(path: Path) -> None:
    """As if somebody had copied the wrong file: it is whole, and can be read."""
    other = next(each for each in path.parent.parent.rglob("*.parquet") if each.read_bytes() != path.read_bytes())
    path.write_bytes(other.read_bytes())


WAYS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "altered": altered,
    "garbage of the same size": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another object": of_another,
}


def checkpoints_of(run: Run) -> int:
    return sum(event["kind"] == "checkpoint_completed" for event in run.events())


@pytest.fixture(scope="module")
def engine() -> Iterator[ef.Engine]:
    with BareEngine(sites=2, partitions=4, checkpoint_s=0.1) as found:
        yield found


@pytest.mark.parametrize("way", WAYS)
def test_the_run_goes_on_from_an_older_checkpoint_and_says_so(engine: ef.Engine, way: str, tmp_path: Path) -> None:
    """Goal: no row is lost or counted twice, and a person is told what was damaged. Method: the run is stopped behind three checkpoints,
    and every object that only the newest one names is damaged."""
    flow, sink, location = ef.Dataflow("counted"), ef.sinks.memory("counts"), str(tmp_path / "location")
    made = flow.source(ef.sources.generator(rate=2_000, keys=KEYS, rows=ROWS, partitions=2), name="made")
    made.group_by("key").agg(n="count(*)").to(sink, name="counts")
    run = engine.start(flow, checkpoint_location=location)
    wait_until(lambda: checkpoints_of(run) >= 3, 60, "three checkpoints")
    run.stop()

    newest, *older = reversed(read_journal(open_store(location)).checkpoints)
    shared = {each.name for checkpoint in older for each in checkpoint.objects}
    names = [each.name for each in newest.objects if each.name not in shared]
    assert names
    for name in names:
        WAYS[way](Path(location) / name)

    run = engine.start(flow, checkpoint_location=location, take_over=True)
    assert run.await_termination(120)
    said = [event["text"] for event in run.events() if event["kind"] == "checkpoint_passed_over"]
    assert len(said) == 1 and f"checkpoint {newest.number} of generation {newest.generation}" in said[0]
    assert any(name in said[0] for name in names)
    counts = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
    assert len(counts) == KEYS and sum(counts.values()) == ROWS
