"""All replicas of something are lost, and the run goes on by itself: real site processes and kills, without Spark."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.restarting import wait_until
from tests.spark.test_deadly_rows import deadly

import evenflow as ef
from evenflow.availability.entries import JOURNAL, Begun, from_bytes
from evenflow.bench import killing
from evenflow.bench.bare import BareEngine
from evenflow.bench.restart import taken_of
from evenflow.errors import Fenced, PartitionsLost, SinkError, UserCodeCrashed
from evenflow.query.planner import layout
from evenflow.sources.generator import GeneratorSource
from evenflow.store.directory import DirectoryStore
from evenflow.store.journal import LOOKS, read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.taking import begin, look

pytestmark = [pytest.mark.timeout(300)]


class Given:
    """What a callback in the driver was given, and the dataflow that ends there."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.epochs: list[int] = []
        self.rows: Counter[tuple[int, int]] = Counter()
        self.flow = ef.Dataflow("in place")
        made = self.flow.source(ef.sources.generator(rate=1_000, keys=16, partitions=2), name="made")
        made.select("key", "value").to(ef.sinks.callback(self.take), name="rows")
        made.group_by("key").agg(n="count(*)").to(ef.sinks.memory("counts"), name="counts")

    def take(self, epoch: int, batch: Any) -> None:
        self.epochs.append(epoch)
        self.rows.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist()))

    def expected(self) -> Counter[tuple[int, int]]:
        """Rows of the source that are in durable epochs."""
        standing = read_journal(open_store(str(self.location)))
        [program] = (self.location / "programs").iterdir()
        made = self.flow.network.box("made").params["source"]
        assert isinstance(made, GeneratorSource)
        source = replace(made, begin_us=json.loads(program.read_text())["sources"]["made"]["begin_us"])
        rows: Counter[tuple[int, int]] = Counter()
        for partition in range(2):
            reader, left = source.open(partition, 2), taken_of(standing, (0, partition))
            while left:
                batch = reader.read(2**60, left)
                assert batch is not None
                left -= batch.num_rows
                rows.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist()))
        return rows


def kill_sites(run: Run, sites: int | None = None) -> None:
    """kill -9 of all site processes, or of so many."""
    victims = [site["pid"] for site in run.progress()["sites"]][:sites]
    killing.kill(victims)
    assert killing.gone(victims, 30.0)


def kinds(run: Run) -> list[str]:
    return [event["kind"] for event in run.events()]


@pytest.fixture
def engine() -> Iterator[Callable[..., BareEngine]]:
    engines: list[BareEngine] = []

    def make(**options: Any) -> BareEngine:
        engines.append(BareEngine(**({"partitions": 8, "lease_s": 10.0} | options)))
        return engines[-1]

    yield make
    for each in engines:
        each.stop()


def test_all_sites_are_killed_twice_and_the_run_goes_on_by_itself(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: one run object, one driver; a callback in it is given every row once. Method: kill -9 of all sites, twice."""
    given = Given(tmp_path / "location")
    run = engine(checkpoint_s=0.5).start(given.flow, checkpoint_location=str(given.location))
    for generation in (1, 2):
        there = given.rows.total()
        wait_until(lambda there=there: given.rows.total() > there + 1_000, 90, "1,000 rows more")  # type: ignore[misc]
        kill_sites(run)
        wait_until(lambda of=generation: kinds(run).count("recovered_in_place") == of, 90, "the run goes on")  # type: ignore[misc]
        assert run.is_active and run.progress()["journal"]["generation"] == generation + 1
    there = given.rows.total()
    wait_until(lambda: given.rows.total() > there + 1_000, 90, "1,000 rows more")
    run.stop(drain=True)
    assert run.exception() is None
    assert kinds(run).count("lost") == 2
    assert sorted(set(given.epochs)) == given.epochs, "an epoch came twice, or out of order"
    assert given.rows == given.expected()


def test_a_generation_that_ends_before_anybody_watches_it_ends_the_run(
    engine: Callable[..., BareEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever waits for the run hears how it ended, and nobody begins again behind it. Method: a sink of the next generation fails as
    soon as that is made, which is before the run knows it."""
    given, made = Given(tmp_path / "location"), list[RunLoop]()
    again = BareEngine._begin_again

    def begin_again(self: BareEngine, *told: Any) -> RunLoop | None:
        after = again(self, *told)
        assert after is not None
        made.append(after)
        after.abandon(SinkError("the sink is gone"))
        return after

    monkeypatch.setattr(BareEngine, "_begin_again", begin_again)
    run = begun(engine(), given)
    kill_sites(run)
    with pytest.raises(SinkError, match="the sink is gone"):
        run.await_termination(60.0)
    assert not run.is_active and len(made) == 1


def begun(engine: BareEngine, given: Given) -> Run:
    """A run that has put out some rows."""
    run = engine.start(given.flow, checkpoint_location=str(given.location))
    wait_until(lambda: given.rows.total() > 500, 90, "500 rows")
    return run


def forsaken(engine: BareEngine, given: Given) -> Run:
    """A run that has lost its sites, and gets none any more."""
    run = begun(engine, given)
    engine.forsake()
    kill_sites(run)
    return run


@pytest.mark.conformance
def test_without_any_site_it_gives_up_with_what_lost_it(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: a typed error and no loop, and a sink that has got nothing twice. Method: no site process is started any more."""
    given, made = Given(tmp_path / "location"), engine(sites=1, place_timeout_s=1.0)
    run = forsaken(made, given)
    with pytest.raises(PartitionsLost):
        run.await_termination(60)
    assert kinds(run)[-2:] == ["lost", "failed"] and not run.is_active
    assert sorted(set(given.epochs)) == given.epochs


def test_it_can_be_stopped_while_it_waits_for_sites(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    given, made = Given(tmp_path / "location"), engine(sites=1)
    run = forsaken(made, given)
    wait_until(lambda: "lost" in kinds(run), 60, "it is lost")
    run.stop()
    assert not run.is_active and run.exception() is None
    assert read_journal(open_store(str(given.location))).stopped, "who stands by is to leave it alone"


@pytest.mark.parametrize("silent", ["create", "names"])
@pytest.mark.conformance
def test_a_driver_is_not_fenced_by_its_own_beginning(
    engine: Callable[..., BareEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """Goal: a store that does not say whether the next generation has begun costs a generation, and not the run. Method: its entry is in,
    and no answer comes, to that or to the looks behind it."""
    given, made = Given(tmp_path / "location"), engine(sites=1, checkpoint_s=0.5)
    create, names, second = DirectoryStore.create, DirectoryStore.names, list[str]()

    def creates(store: DirectoryStore, name: str, data: bytes) -> None:
        begins = name.startswith(JOURNAL) and isinstance(from_bytes(data, json.loads(data)["number"]).matter, Begun)
        try:
            create(store, name, data)
        finally:
            if begins and json.loads(data)["generation"] == 2:
                second.append(name)
                if silent == "create":
                    raise TimeoutError(errno.ETIMEDOUT, "no answer")

    def lists(store: DirectoryStore, prefix: str = "") -> list[str]:
        if silent == "names" and prefix == JOURNAL and 0 < len(second) <= LOOKS:
            second.append(prefix)
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        return names(store, prefix)

    monkeypatch.setattr(DirectoryStore, "create", creates)
    monkeypatch.setattr(DirectoryStore, "names", lists)
    run = begun(made, given)
    kill_sites(run)
    wait_until(lambda: kinds(run).count("recovered_in_place") == 1 or not run.is_active, 90, "the run goes on")
    assert run.exception() is None and run.progress()["journal"]["generation"] == 3
    there = given.rows.total()
    wait_until(lambda: given.rows.total() > there + 500, 90, "500 rows more")
    run.stop(drain=True)
    assert sorted(set(given.epochs)) == given.epochs and given.rows == given.expected()


@pytest.mark.conformance
def test_who_was_replaced_while_it_was_lost_ends(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: Fenced, and nothing is appended. Method: another driver begins at the location while there is no site."""
    given, made = Given(tmp_path / "location"), engine(sites=1)
    run = forsaken(made, given)
    wait_until(lambda: "lost" in kinds(run), 60, "it is lost")
    planning = made._planning()
    other = begin(look(str(given.location), given.flow.name, lambda told: layout(given.flow.network, **told), planning))  # type: ignore[arg-type]
    made.forsake(False)
    with pytest.raises(Fenced, match="another driver has begun generation 2"):
        run.await_termination(120)
    assert read_journal(open_store(str(given.location))).nonce == other.standing.nonce


@pytest.mark.conformance
def test_sites_that_are_lost_again_while_it_goes_on_are_survived_too(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: every row once. Method: kill -9 of all sites, and of the new ones as soon as there is a new generation, before it has put
    anything out; with replicas, and one site of three more."""
    given = Given(tmp_path / "location")
    run = begun(engine(sites=3, replicas=2, checkpoint_s=0.5), given)
    for generation in (2, 3, 4):
        kill_sites(run, 2 if generation == 3 else None)
        wait_until(lambda of=generation: run.progress()["journal"]["generation"] >= of, 120, "the next generation")  # type: ignore[misc]
    there = given.rows.total()
    wait_until(lambda: given.rows.total() > there + 1_000, 120, "1,000 rows more")
    run.stop(drain=True)
    assert run.exception() is None
    assert sorted(set(given.epochs)) == given.epochs
    assert given.rows == given.expected()


@pytest.mark.conformance
def test_a_row_that_ends_its_process_ends_the_run_the_second_time(engine: Callable[..., BareEngine], tmp_path: Path) -> None:
    """Goal: no loop: the same row is made again by every generation, and the error names its box."""
    run = engine(sites=1).start(deadly("deadly", ef.sinks.discard()), checkpoint_location=str(tmp_path / "location"))
    with pytest.raises(UserCodeCrashed, match="deadly"):
        run.await_termination(200)
    assert kinds(run).count("recovered_in_place") == 1
