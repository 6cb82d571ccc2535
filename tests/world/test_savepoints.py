"""A dataflow starts from a savepoint at a location of its own, the same or a changed one: what it takes over, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden import SITES, copied, dataflow, expected, golden, results, source
from tests.restarting import wait_until

import evenflow as ef
from evenflow.bench import killing
from evenflow.bench.bare import BareEngine
from evenflow.cli.app import main
from evenflow.errors import CheckpointCorrupt, ClusterError, LocationError
from evenflow.query.planner import layout
from evenflow.query.structure import as_written
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.locations.carrying import Carried, carried
from evenflow.world.locations.savepoints import Savepoint
from evenflow.world.locations.starting import layout_from, saved_at
from evenflow.world.spark.driver.keeping import Keeping
from evenflow.world.spark.driver.readable import readable
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.taking import begin, look

pytestmark = [pytest.mark.timeout(240)]
PLANNING = {"sites": 2, "partitions": 8, "max_partitions": None, "writers": None}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint of the golden location, of a checkpoint that is not the newest."""
    checkpoints = ef.checkpoints(str(golden()))
    older = [each.number for each in checkpoints.list() if each.complete][-2]
    return checkpoints.export(str(tmp_path_factory.mktemp("saved") / "one"), older).location


def changed(
    *, named: bool = True, window: str = "1 hour", visits: bool = True, firsts: bool = True, source_name: str = "made", least: bool = True
) -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    """The golden dataflow with boxes before others, behind others and between them, so that no segment has its number."""
    flow, sinks = ef.Dataflow("golden"), {name: ef.sinks.memory(name) for name in ("totals", "hours", "visits", "firsts", "fresh")}
    other = flow.source(ef.sources.generator(rate=500, keys=4, rows=500, partitions=2), name="another").with_watermark("ts", "1 second")
    other.group_by("key").agg(n="count(*)").name("fresh").to(sinks["fresh"])
    made = flow.source(source(), name=source_name).with_watermark("ts", "2 hours")
    if visits:
        made.group_by("key").session(window).agg(n="count(*)").name("visits").to(sinks["visits"])
    if firsts:
        made.select("ts", bucket="value % 40000").drop_duplicates(["bucket"]).name("firsts").to(sinks["firsts"])
    texts = made.where("key >= 0").name("all").select("key", "ts", name="cast(value as string)").name("texts")
    aggregates = {"n": "count(*)", "least": "min(name)", "greatest": "max(name)"} if least else {"n": "count(*)"}
    texts.group_by("key").window("30 days").agg(**aggregates).name("hours").to(sinks["hours"])
    totals = made.group_by("key").agg(n="count(*)", total="sum(value)")
    (totals.name("totals") if named else totals).to(sinks["totals"])
    return flow, sinks


def take_over(saved: str, flow: ef.Dataflow, *drop: str) -> Carried:
    found = saved_at(saved)
    now = as_written(layout_from(found, layout(flow.network, **PLANNING)))  # type: ignore[arg-type]
    return carried(found.made, found.content, found.program, now, drop)


def run_at(location: str, saved: str, made: tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]], drop: tuple[str, ...] = ()) -> str:
    flow, _ = made
    with BareEngine(**{**SITES, "sites": 3}, checkpoint_s=0.5) as engine:
        run = engine.start(flow, checkpoint_location=location, from_savepoint=saved, drop_state=drop)
        assert run.await_termination(120)
    return run.id


def test_the_same_dataflow_goes_on_with_all_of_its_state_at_another_location(saved: str, tmp_path: Path) -> None:
    """Goal: results are those of the whole input, on other sites, and the savepoint may go the moment after it has begun."""
    location, moved = str(tmp_path / "location"), tmp_path / "moved"
    ef.checkpoints(saved).export(str(moved))
    made = dataflow()
    run_id = run_at(location, str(moved), made)
    wanted, found = expected(), results(made[1])
    assert all(found[name] == wanted[name] for name in ("totals", "hours", "visits"))
    assert run_id != ef.checkpoints(saved).run and ef.checkpoints(saved).verify().whole
    assert ef.checkpoints(location).run == run_id and read_journal(open_store(location)).restored is not None


@pytest.mark.conformance
def test_a_changed_dataflow_takes_over_what_has_its_names(saved: str, tmp_path: Path) -> None:
    """Goal: state that is kept is whole, what is new begins with the first row of its source, and what was dropped is gone."""
    made = changed(visits=False)
    with pytest.raises(LocationError, match=r"box 'visits' \(aggregate\): no box of kind aggregate has that name"):
        run_at(str(tmp_path / "location"), saved, made)
    assert not (tmp_path / "location").exists(), "nothing was changed"
    run_at(str(tmp_path / "location"), saved, made, ("visits",))
    wanted, sinks = expected(), made[1]
    columns = {"totals": ("key", "n", "total"), "hours": ("key", "n", "least", "greatest")}
    for name, wide in columns.items():
        rows = zip(*(sinks[name].rows().column(column).to_pylist() for column in wide))
        assert {row[0]: row[1:] for row in rows} == wanted[name], name
    rows = sinks["fresh"].rows()
    assert sum(dict(zip(rows.column("key").to_pylist(), rows.column("n").to_pylist())).values()) == 500


def test_the_picture_says_of_each_box_what_becomes_of_its_state(saved: str) -> None:
    found = take_over(saved, changed(visits=False)[0], "visits")
    fates = {(each.box, each.kind): each.fate for each in found.boxes}
    assert found.whole
    assert {fates[box, kind] for box, kind in (("totals", "aggregate"), ("hours", "aggregate"), ("firsts", "dedup"))} == {"kept"}
    assert fates["visits", "aggregate"] == "dropped" and fates["another", "source"] == "new" and fates["fresh", "aggregate"] == "new"
    assert fates["watermark", "watermark"] == "kept" and found.whole, "it goes with its source, and has another name now"
    kept = next(each for each in found.boxes if each.box == "totals" and each.kind == "aggregate")
    assert kept.rows == 16 and kept.bytes > 0, "each once, though there is a base and what has changed since"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: changed(named=False), r"box 'totals' \(aggregate\): no box of kind aggregate has that name"),
        (lambda: changed(window="2 hours"), r"box 'visits' \(aggregate\): window.*: was 3600000000, is 7200000000"),
        (lambda: changed(least=False), r"box 'hours' \(aggregate\): calls: was "),
        (lambda: changed(firsts=False), r"box 'firsts' \(dedup\): no box of kind dedup has that name.*drop_state=\['firsts'\]"),
        (lambda: changed(source_name="renamed"), r"box 'made' \(source\): no source has that name"),
    ],
    ids=["unnamed", "another window", "an aggregate less", "gone", "another source"],
)
def test_what_cannot_be_taken_over_is_refused_with_box_and_field(
    made: Callable[[], tuple[ef.Dataflow, object]], why: str, saved: str
) -> None:
    found = take_over(saved, made()[0])
    assert not found.whole
    with pytest.raises(LocationError, match=why):
        found.demand(saved)


class Visits(ef.Processor):
    """Counts the rows of a key. wide: in a wider field, and in one more since there is this version."""

    output = "key bigint, n bigint, since bigint"

    def __init__(self, *, wide: bool = False, count: str = "n") -> None:
        self.wide, self.count = wide, count

    def open(self, store: Any) -> None:
        if self.wide:
            store.value("since", "bigint", default=0)
        store.value(self.count, "bigint" if self.wide else "int", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        setattr(state, self.count, getattr(state, self.count) + rows.num_rows)
        if self.wide:
            state.since += rows.num_rows
        return [(key[0], getattr(state, self.count), state.since if self.wide else None)]


def visiting(processor: ef.Processor) -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    flow, out = ef.Dataflow("visiting"), ef.sinks.memory("out")
    made = flow.source(ef.sources.generator(rate=1_500, keys=8, rows=6_000, partitions=2), name="made").with_watermark("ts", "1 second")
    made.where("key >= 0").name("all").key_by("key").process(processor, order="arrival", name="visits").to(out, name="out")
    return flow, {"out": out}


@pytest.mark.conformance
def test_a_processor_goes_on_with_other_code_and_more_fields(tmp_path: Path) -> None:
    """Goal: who changes a processor keeps its state. Method: suspended in the middle; the next version has a wider field and a new one."""
    saved, flow = str(tmp_path / "saved"), visiting(Visits())[0]
    with BareEngine(**SITES, checkpoint_s=0.3) as engine:
        run = engine.start(flow, checkpoint_location=str(tmp_path / "one"))
        while run.numbers().rows_in < 1_000:
            assert not run.await_termination(0.05), "it ended before it could be suspended"
        run.suspend(saved)
    with pytest.raises(LocationError, match=r"box 'visits' \(process\): its state field 'n' is gone; fields may be added"):
        run_at(str(tmp_path / "two"), saved, visiting(Visits(wide=True, count="visits")))
    made = visiting(Visits(wide=True))
    run_at(str(tmp_path / "two"), saved, made)
    rows = made[1]["out"].rows()
    last = dict(zip(rows.column("key").to_pylist(), zip(rows.column("n").to_pylist(), rows.column("since").to_pylist())))
    assert sum(n for n, _ in last.values()) == 6_000 and 0 < sum(since for _, since in last.values()) <= 5_000
    kept = ef.checkpoints(str(tmp_path / "two"))
    assert set(kept.state("visits").column_names) >= {"since", "n"} and kept.verify().whole


def counted(epochs: list[int]) -> ef.Dataflow:
    """A dataflow without an end, and the epochs of which its sink is given rows."""
    flow = ef.Dataflow("counted")
    made = flow.source(ef.sources.generator(rate=2_000, keys=4, partitions=2), name="made")
    made.group_by("key").agg(n="count(*)").name("counts").to(ef.sinks.callback(lambda epoch, batch: epochs.append(epoch)), name="out")
    return flow


def goes_on(run: Run, epochs: list[int]) -> None:
    """It gives out more."""
    there = len(epochs)
    wait_until(lambda: len(epochs) > there + 2 or not run.is_active, 60, "it gives out more")
    assert run.is_active


def test_a_run_is_suspended_when_its_savepoint_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a program that ends with its run takes no savepoint with it, what cannot be written stops nothing, and what is written is
    where the sink stands. Method: one copy fails, and another is looked at from inside."""
    location, saved, epochs, export = str(tmp_path / "location"), str(tmp_path / "saved"), list[int](), Keeping.export
    with BareEngine(**SITES, checkpoint_s=None) as engine:
        run = engine.start(counted(epochs), checkpoint_location=location)

        def fails(keeping: Keeping, name: str, target: str, say: Any = None) -> Savepoint:
            raise LocationError("the disk is full")

        def looks(keeping: Keeping, name: str, target: str, say: Any = None) -> Savepoint:
            made = export(keeping, name, target, say)
            assert run.is_active, "who ends with the run would have ended"
            return made

        goes_on(run, epochs)
        monkeypatch.setattr(Keeping, "export", fails)
        with pytest.raises(LocationError, match="the disk is full"):
            run.suspend(saved)
        goes_on(run, epochs)
        monkeypatch.setattr(Keeping, "export", looks)
        last = run.suspend(saved)
        assert not run.is_active and run.exception() is None
    standing, made = read_journal(open_store(location)), ef.checkpoints(saved)
    assert standing.stopped and standing.durable == last["epoch"] and max(epochs) <= last["epoch"]
    assert made.verify().whole and [each.epoch for each in made.list()] == [last["epoch"]] and last["savepoint"] == saved


@pytest.mark.conformance
def test_a_savepoint_behind_which_the_run_went_on_suspends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nobody goes on from a savepoint behind which a sink was given something. Method: all sites are lost while it is copied."""
    saved, epochs, export = str(tmp_path / "saved"), list[int](), Keeping.export
    with BareEngine(**SITES, checkpoint_s=None) as engine:
        run = engine.start(counted(epochs), checkpoint_location=str(tmp_path / "location"))

        def loses(keeping: Keeping, name: str, target: str, say: Any = None) -> Savepoint:
            victims = [site["pid"] for site in run.progress()["sites"]]
            killing.kill(victims)
            assert killing.gone(victims, 30.0)
            wait_until(lambda: run.progress()["journal"]["generation"] == 2, 90, "the next generation")
            return export(keeping, name, target, say)

        goes_on(run, epochs)
        monkeypatch.setattr(Keeping, "export", loses)
        with pytest.raises(ClusterError, match="goes on behind the savepoint"):
            run.suspend(saved)
        goes_on(run, epochs)


def test_names_that_were_made_up_by_counting_mean_nothing(saved: str) -> None:
    """Goal: never by position. Method: the savepoint's boxes had such names themselves."""
    before = saved_at(saved)
    text = json.dumps(before.program).replace('"box": "totals"', '"box": "aggregate"')
    now = as_written(layout_from(before, layout(changed(named=False)[0].network, **PLANNING)))  # type: ignore[arg-type]
    found = carried(before.made, before.content, json.loads(text), now)
    assert any(each.box == "aggregate" and "made up by counting" in each.why for each in found.boxes)


def test_state_that_is_taken_over_or_is_not_there_cannot_be_dropped(saved: str) -> None:
    for name in ("totals", "nothing"):
        with pytest.raises(LocationError, match=f"drop_state: there is no state of '{name}'"):
            take_over(saved, dataflow()[0], name)


def test_a_location_is_begun_from_a_savepoint_once_and_gone_on_with(saved: str, tmp_path: Path) -> None:
    flow = dataflow()[0]

    def looked(at: str, of: str | None = saved) -> object:
        return look(at, flow.name, lambda planning: layout(flow.network, **planning), PLANNING, of)  # type: ignore[arg-type]

    location = str(tmp_path / "location")
    found = looked(location)
    taken = begin(found)  # type: ignore[arg-type]
    epoch = ef.checkpoints(saved).list()[0].epoch
    assert taken.standing.base == taken.standing.durable == epoch and taken.standing.generation == 1
    again = looked(location, str(tmp_path / "long gone"))
    assert begin(again).standing.base == epoch  # type: ignore[arg-type]
    with pytest.raises(LocationError, match="is a savepoint, which stays as it is"):
        looked(saved, None)
    with pytest.raises(LocationError, match="is a checkpoint location, and no savepoint"):
        looked(str(tmp_path / "other"), location)
    with pytest.raises(LocationError, match="was begun without a savepoint"):
        looked(copied(tmp_path))
    assert not (tmp_path / "other").exists()


def test_a_savepoint_that_is_damaged_is_not_begun_with(saved: str, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    ef.checkpoints(saved).export(str(damaged))
    victim = next((damaged / "checkpoints").rglob("*.parquet"))
    data, flow = victim.read_bytes(), dataflow()[0]

    def started(at: str) -> object:
        found = look(at, flow.name, lambda planning: layout(flow.network, **planning), PLANNING, str(damaged))  # type: ignore[arg-type]
        return begin(found)

    victim.write_bytes(b"." * len(data))
    with pytest.raises(CheckpointCorrupt, match=f"{victim.name}' has other bytes"):
        started(str(tmp_path / "one"))
    victim.unlink()
    with pytest.raises(CheckpointCorrupt, match=f"cannot be started from: .*{victim.name} is missing"):
        started(str(tmp_path / "two"))
    victim.write_bytes(data)
    started(str(tmp_path / "one")), "what was broken off is begun anew"


def test_a_location_whose_savepoint_state_is_lost_says_so_and_begins_with_nothing_else(saved: str, tmp_path: Path) -> None:
    flow, location = dataflow()[0], str(tmp_path / "location")
    begin(look(location, flow.name, lambda planning: layout(flow.network, **planning), PLANNING, saved))  # type: ignore[arg-type]
    next(Path(location, "checkpoints").rglob("*.parquet")).unlink()
    with pytest.raises(CheckpointCorrupt, match="the savepoint that the location was begun with cannot be read"):
        readable(open_store(location))


def test_a_savepoint_needs_a_location_to_start_at(saved: str) -> None:
    with BareEngine(sites=1) as engine, pytest.raises(LocationError, match="from_savepoint needs a checkpoint location"):
        engine.start(dataflow()[0], from_savepoint=saved)


FILE = """\
import evenflow as ef

def dataflow(*, window="1 hour"):
    flow = ef.Dataflow("golden")
    made = flow.source(ef.sources.generator(rate=600, keys=16, rows=6000, partitions=2), name="made").with_watermark("ts", "2 hours")
    made.group_by("key").agg(n="count(*)", total="sum(value)").name("totals").to(ef.sinks.discard())
    made.group_by("key").session(window).agg(n="count(*)").name("visits").to(ef.sinks.discard())
    return flow
"""


def test_people_and_programs_see_what_keeps_its_state(saved: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.py"
    file.write_text(FILE)

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as end:
            main(["checkpoints", "compare", saved, str(file), *arguments])
        return int(end.value.code or 0)

    assert run() == 1
    out = capfd.readouterr().out
    assert "kept" in out and "without a box" in out and "it cannot start from there" in out
    assert run("--drop-state", "hours", "--drop-state", "firsts", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["whole"] and {each["box"] for each in told["boxes"] if each["fate"] == "dropped"} == {"hours", "firsts"}
    assert run("--drop-state", "hours", "--drop-state", "firsts", "--window", "3 hours") == 1
    assert "changed" in capfd.readouterr().out
