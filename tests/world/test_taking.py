"""A driver takes a checkpoint location: what it believes, what it refuses, and that a refusal changes nothing there."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from tests.store.faulty import Around
from tests.store.s3_server import ACCESS, s3_server

import evenflow as ef
from evenflow.availability.alive import MOST_ALIVE_BYTES, Alive, alive_name
from evenflow.availability.alive import to_bytes as alive_bytes
from evenflow.availability.entries import JOURNAL, Completed, Cut, Ended, Entry, Logged, Piece, Stopped, StoredObject, entry_name, to_bytes
from evenflow.availability.retained import CHECKPOINTS
from evenflow.bench.bare import BareEngine
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.query.planner import layout
from evenflow.sources.pushed import SparkSource
from evenflow.store.journal import MOST_ENTRY_BYTES, collect, read_entry, read_journal
from evenflow.store.objects import MOST_BYTES
from evenflow.stream.digest import digest_of
from evenflow.stream.ids import SiteId
from evenflow.world.locations.silence import alive_at
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.driver.standing_by import Place, StandbyProgress, Standbys, StandingBy
from evenflow.world.spark.driver.taking import Found, Taken, await_silence, begin, look

PLANNING = {"sites": 2, "partitions": 16, "max_partitions": None, "writers": None}


def flow_of(condition: str = "key > 1", name: str = "taken", source: ef.sources.Source | None = None) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    rows = flow.source(source or ef.sources.generator(rate=100, keys=4), name="made").where(condition).name("kept")
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.memory("x"))
    return flow


def looked(at: Path, flow: ef.Dataflow | None = None, sites: int = 2) -> Found:
    flow = flow or flow_of()
    return look(str(at), flow.name, lambda planning: layout(flow.network, **planning), {**PLANNING, "sites": sites})  # type: ignore[arg-type]


def began(at: Path, flow: ef.Dataflow | None = None) -> Taken:
    return begin(looked(at, flow))


def log(taken: Taken, epoch: int, stamp_us: int) -> None:
    """Another entry of that driver: an epoch of every ingress partition."""
    standing = taken.standing
    cuts = {key: (Cut(epoch, stamp_us, stamp_us, 0, False, False),) for key in standing.cuts}
    append(taken, Logged(cuts))


def append(taken: Taken, matter: Logged | Ended | Completed | Stopped) -> None:
    standing = taken.standing
    entry = Entry(standing.last + 1, standing.generation, standing.nonce, matter)
    taken.location.store.create(entry_name(entry.number), to_bytes(entry))
    standing.add(entry)


def test_the_first_driver_begins_and_the_next_one_goes_on_as_the_same_run(tmp_path: Path) -> None:
    first = looked(tmp_path)
    assert not first.ended and first.standing.last == 0
    taken = begin(first)
    assert taken.standing.generation == 1 and taken.standing.begun is not None
    log(taken, 1, 1)
    second = looked(tmp_path)
    assert second.run_id == first.run_id and second.standing.durable == 1
    assert begin(second).standing.generation == 2


def test_an_engine_with_a_folder_has_a_location_for_each_dataflow(tmp_path: Path) -> None:
    """Unless it is given one. Method: what is there is another dataflow's, so all are refused before there is a site."""
    for name in ("a-b", "given"):
        began(tmp_path / name, flow_of(name="other"))
    with BareEngine(checkpoint_location=f"{tmp_path}/") as engine:
        for given, where in ((None, "a-b"), (tmp_path / "given", "given")):
            with pytest.raises(LocationError, match=rf"{tmp_path}/{where} is that of dataflow 'other', not of 'a b'"):
                engine.start(flow_of(name="a b"), checkpoint_location=given)
        with pytest.raises(LocationError, match="'' names no place"):
            engine.start(flow_of(name="a b"), checkpoint_location="")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a-b", "given"]


def test_it_is_planned_as_at_the_first_start_whatever_the_engine_has_now(tmp_path: Path) -> None:
    """So partitions of sources are what they were, and each has the rows that it had."""
    began(tmp_path)
    found = looked(tmp_path, sites=5)
    assert found.planning == PLANNING and found.layout.segments[0].partitions == 2


def test_times_of_a_paced_source_are_those_of_the_first_start(tmp_path: Path) -> None:
    first = looked(tmp_path)
    begin(first)
    begun_us = first.layout.sources["made"].begin_us
    assert abs(begun_us - time.time_ns() // 1000) < 60_000_000
    assert looked(tmp_path).layout.sources["made"].begin_us == begun_us


def test_another_program_is_told_by_box_and_field_and_changes_nothing(tmp_path: Path) -> None:
    began(tmp_path)
    before = files(tmp_path)
    with pytest.raises(LocationError, match="box 'kept', condition: was key > 1, is key > 2"):
        looked(tmp_path, flow_of("key > 2"))
    with pytest.raises(LocationError, match="of dataflow 'taken', not of 'other'"):
        looked(tmp_path, flow_of(name="other"))
    assert files(tmp_path) == before


def test_a_program_that_was_altered_is_not_believed(tmp_path: Path) -> None:
    began(tmp_path)
    [program] = (tmp_path / "programs").iterdir()
    program.write_text(program.read_text().replace("key > 1", "key > 9"))
    with pytest.raises(LocationError, match="says something else than when the dataflow was started"):
        looked(tmp_path)
    program.write_bytes(b"[" * 100_000)
    with pytest.raises(LocationError, match="says something else"):
        looked(tmp_path)
    program.unlink()
    with pytest.raises(LocationError, match="cannot read programs"):
        looked(tmp_path)


def test_an_entry_that_was_altered_is_not_believed(tmp_path: Path) -> None:
    began(tmp_path)
    entry = tmp_path / entry_name(1)
    entry.write_bytes(entry.read_bytes().replace(b'"partitions":16', b'"partitions":17'))
    with pytest.raises(JournalCorrupt, match="entry 1"):
        looked(tmp_path)


def test_rows_that_spark_pushes_are_refused_before_there_is_a_location(tmp_path: Path) -> None:
    flow = ef.Dataflow("once")
    flow.source(SparkSource(pa.schema([("a", pa.int64())]), True), name="in").to(ef.sinks.discard())
    with pytest.raises(LocationError, match="source 'in' cannot be used with a checkpoint location: Spark pushes its rows"):
        looked(tmp_path / "there", flow)
    assert not (tmp_path / "there").exists()


def test_a_run_that_has_ended_is_over(tmp_path: Path) -> None:
    append(began(tmp_path), Ended(0))
    assert looked(tmp_path).ended


def test_of_two_that_begin_at_once_one_is_told(tmp_path: Path) -> None:
    began(tmp_path)
    one, other = looked(tmp_path), looked(tmp_path)
    begin(one)
    with pytest.raises(LocationError, match="another driver has begun at .* at this very moment"):
        begin(other)
    assert read_journal(one.location.store).generation == 2


def test_a_driver_that_writes_is_not_replaced_unasked(tmp_path: Path) -> None:
    taken = began(tmp_path)
    found = looked(tmp_path)
    log(taken, 1, time.time_ns() // 1000)
    with pytest.raises(LocationError, match=r"another driver runs dataflow 'taken' at .*take_over=True, --take-over"):
        await_silence(found, 5.0)


def test_a_driver_that_has_been_silent_for_long_is_not_waited_for(tmp_path: Path) -> None:
    """Its newest epoch was closed a minute ago."""
    taken = began(tmp_path)
    log(taken, 1, time.time_ns() // 1000 - 60_000_000)
    began_s = time.monotonic()
    await_silence(looked(tmp_path), 20.0)
    assert time.monotonic() - began_s < 10.0


def says_that_it_lives(taken: Taken, count: int, lease_s: float, at_s: float, nonce: str | None = None) -> None:
    standing = taken.standing
    said = Alive(standing.generation, standing.nonce if nonce is None else nonce, count, lease_s, at_s)
    taken.location.store.put(alive_name(standing.generation), alive_bytes(said))


def test_a_driver_that_appends_nothing_and_says_that_it_lives_is_not_replaced_unasked(tmp_path: Path) -> None:
    """Its newest epoch was closed a minute ago, as a sink holds everything up; it has said a second ago that it lives, and does again."""
    taken = began(tmp_path)
    log(taken, 1, time.time_ns() // 1000 - 60_000_000)
    says_that_it_lives(taken, 1, 5.0, time.time() - 1.0)
    found = looked(tmp_path)
    later = Timer(0.3, says_that_it_lives, (taken, 2, 5.0, time.time()))
    later.start()
    with pytest.raises(LocationError, match=r"it has given a sign of life after entry 2 .*stand by until it is silent \(standby=True"):
        await_silence(found, 5.0)
    later.join()


def test_the_lease_of_the_driver_before_counts(tmp_path: Path) -> None:
    """Its sites may live for so long, whatever the next one's lease is."""
    taken = began(tmp_path)
    says_that_it_lives(taken, 1, 1.5, time.time() + 3_600.0)
    began_s = time.monotonic()
    await_silence(looked(tmp_path), 0.05)
    assert time.monotonic() - began_s >= 1.5


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"generation": 1}', b"\xff" * 10, b"[" * 100_000, alive_bytes(Alive(1, "another", 1, 60.0, 2e9))]
)
def test_what_is_no_sign_of_life_of_that_driver_says_nothing(tmp_path: Path, data: bytes) -> None:
    taken = began(tmp_path)
    taken.location.store.put(alive_name(1), data)
    await_silence(looked(tmp_path), 0.05)


@pytest.mark.parametrize("lease_s", [0.0, -1.0, 1e300, float("nan"), float("inf")])
def test_a_lease_that_nobody_can_have_is_not_believed(tmp_path: Path, lease_s: float) -> None:
    taken = began(tmp_path)
    says_that_it_lives(taken, 1, lease_s, time.time())
    assert alive_at(taken.location.store, taken.standing) is None
    await_silence(looked(tmp_path), 0.05)


def test_a_clock_that_was_put_back_makes_it_wait_the_lease_and_no_longer(tmp_path: Path) -> None:
    taken = began(tmp_path)
    log(taken, 1, time.time_ns() // 1000 + 3_600_000_000)
    await_silence(looked(tmp_path), 0.2)


def files(at: Path) -> dict[str, bytes]:
    return {str(path.relative_to(at)): path.read_bytes() for path in sorted(at.rglob("*")) if path.is_file()}


def test_what_it_writes_down_is_json_that_nobody_has_to_trust(tmp_path: Path) -> None:
    began(tmp_path)
    for name, content in files(tmp_path).items():
        assert name.endswith(".json")
        json.loads(content)


def test_planning_that_fails_leaves_no_location_behind(tmp_path: Path) -> None:
    found = replace(looked(tmp_path / "a"))
    assert found.standing.last == 0
    flow = ef.Dataflow("nowhere")
    flow.source(ef.sources.generator(rows=1)).where("key > 1")
    with pytest.raises(ef.errors.QueryError):
        looked(tmp_path / "b", flow)
    assert not (tmp_path / "b").exists()


def checkpoint(taken: Taken, number: int, epoch: int) -> str:
    """A checkpoint of one object. Returns the object's name."""
    name, data = f"checkpoints/{taken.standing.generation:06d}/{number:06d}/s0-0-0.parquet", b"state %d" % number
    taken.location.store.create(name, data)
    stored = StoredObject(name, 0, 1, len(data), digest_of(data))
    append(taken, Completed(number, epoch, (Piece(0, 0, (0,), {}, (stored,)),), generation=taken.standing.generation))
    return name


def with_checkpoints(at: Path) -> tuple[Taken, list[str]]:
    """A location with checkpoints of epochs 1 and 3, and epochs up to 4."""
    taken, names = began(at), []
    for epoch in range(1, 5):
        log(taken, epoch, epoch)
        if epoch in (1, 3):
            names.append(checkpoint(taken, len(names) + 1, epoch))
    return taken, names


def test_the_newest_checkpoint_that_is_whole_is_gone_on_from(tmp_path: Path) -> None:
    with_checkpoints(tmp_path)
    found = looked(tmp_path)
    assert (found.standing.base, found.standing.durable, found.passed_over) == (3, 4, ())


@pytest.mark.parametrize("how", ["missing", "cut off"])
def test_a_checkpoint_that_is_not_whole_is_passed_over_and_that_is_said(tmp_path: Path, how: str) -> None:
    _, names = with_checkpoints(tmp_path)
    (tmp_path / names[1]).unlink()
    if how == "cut off":
        (tmp_path / names[1]).write_bytes(b"sta")
    found = looked(tmp_path)
    assert (found.standing.base, found.standing.durable) == (1, 4)
    [said] = found.passed_over
    assert names[1] in said and "checkpoint 2 of generation 1 (epoch 3) is passed over" in said
    taken = begin(found)
    assert taken.standing.base == 1 and taken.passed_over == found.passed_over


def test_an_altered_checkpoint_ends_one_driver_and_no_second_one(tmp_path: Path) -> None:
    """Sites see it when they read it, and that costs a start; the next driver looks at every byte first."""
    _, names = with_checkpoints(tmp_path)
    (tmp_path / names[1]).write_bytes(b"stale 2")
    assert looked(tmp_path).standing.base == 3
    begin(looked(tmp_path))
    found = looked(tmp_path)
    assert found.standing.base == 1 and "has other bytes than were written" in found.passed_over[0]


def test_who_stands_by_does_not_take_over_what_is_stopped_while_it_passes_a_checkpoint_over(tmp_path: Path) -> None:
    """Then it reads the whole journal again, and that one may say more than the look which has shown the silence."""
    taken, names = with_checkpoints(tmp_path)
    (tmp_path / names[1]).unlink()

    class Stops(Around):
        """A person stops the run at the moment at which somebody looks at the checkpoints."""

        stops = True

        def sizes(self, prefix: str = "") -> dict[str, int]:
            if prefix.startswith(CHECKPOINTS) and self.stops:
                self.stops = False
                append(taken, Stopped(4))
            return super().sizes(prefix)

    def watch(progress: StandbyProgress) -> None:
        if stopped.stops is False and progress.said.endswith("waits until somebody starts it again"):
            raise KeyboardInterrupt

    location = replace(taken.location, store=(stopped := Stops(taken.location.store)))
    standing = read_journal(location.store)
    found = Found(location, standing, PLANNING, layout(flow_of().network, **PLANNING), {})  # type: ignore[arg-type]
    waiting = StandingBy(str(tmp_path), "taken", Place(lambda: 2, 2, 1, 0.0), 0.05, watch)
    with pytest.raises(KeyboardInterrupt):
        waiting.await_turn(found)


def test_who_stood_by_and_was_away_for_long_sees_what_was_done_since_and_takes_over_when_that_driver_is_silent(tmp_path: Path) -> None:
    """Goal: to be away costs who stands by time, and not its eyes. Method: meanwhile what comes next for it was collected behind a
    snapshot, with the checkpoint that it knows; then the driver ends."""
    taken, names = began(tmp_path), list[str]()
    store, found = taken.location.store, None
    for number, epoch in enumerate((2, 4, 6), 1):
        log(taken, epoch - 1, epoch)
        log(taken, epoch, epoch)
        names.append(checkpoint(taken, number, epoch))
        if found is None:
            found = looked(tmp_path)
        else:
            collect(store, taken.standing.checkpoints[-1])
    assert found is not None
    log(taken, 7, 7)
    store.delete(names[0])
    assert read_entry(store, found.standing.last + 1) is None, "what comes next has gone"

    def watch(progress: StandbyProgress) -> None:
        assert progress.waited_s < 20.0, f"blind: {progress}"

    turn = StandingBy(str(tmp_path), "taken", Place(lambda: 2, 2, 1, 0.0), 0.05, watch).await_turn(found)
    assert (turn.standing.last, turn.standing.durable, turn.standing.base) == (taken.standing.last, 7, 6)
    assert turn.passed_over == ()
    assert begin(turn).standing.generation == 2


def test_who_stands_by_waits_on_where_the_store_does_not_say_whether_it_has_begun(tmp_path: Path) -> None:
    """Goal: a store that hangs at the moment of taking over costs time, and not who stands by. Method: its entry is in, and no answer
    comes."""
    taken = began(tmp_path)
    log(taken, 1, 1)
    generations: list[int] = []

    class Deaf(Around):
        def create(self, name: str, data: bytes) -> None:
            super().create(name, data)
            if name.startswith(JOURNAL):
                raise TimeoutError(errno.ETIMEDOUT, "no answer")

        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            raise TimeoutError(errno.ETIMEDOUT, "no answer")

    def begins(found: Found, waiting: StandingBy) -> Any:
        generations.append(found.standing.generation)
        if len(generations) == 1:
            found = replace(found, location=replace(found.location, store=Deaf(found.location.store)))
        return begin(found)

    class Engine:
        sites, _stopped, options = 2, False, EngineOptions(lease_s=0.1)

        def _ensure_sites(self) -> Any:
            return None

        def _sites_to_use(self) -> tuple[SiteId, ...]:
            return (SiteId(0), SiteId(1))

    def watch(progress: StandbyProgress) -> None:
        assert progress.waited_s < 20.0, progress

    run: Any = Standbys(Engine()).stand_by(str(tmp_path), "taken", 1, watch, lambda: looked(tmp_path), begins)
    assert generations == [1, 2], "its own entry is a generation to wait for"
    assert run.standing.generation == 3 and run.standing.durable == 1


def test_without_any_checkpoint_that_can_be_read_everything_is_made_again(tmp_path: Path) -> None:
    _, names = with_checkpoints(tmp_path)
    for name in names:
        (tmp_path / name).unlink()
    found = looked(tmp_path)
    assert (found.standing.base, found.standing.durable, len(found.passed_over)) == (0, 4, 2)


def test_who_takes_over_from_a_driver_that_appends_all_the_time_reads_each_entry_once(tmp_path: Path) -> None:
    """Else it is later with each try: the journal of a run that lives is long."""

    class Busy(Around):
        """Twenty times the driver that is there is first."""

        left, read = 20, 0

        def create(self, name: str, data: bytes) -> None:
            if name.startswith("journal/") and self.left:
                self.left -= 1
                log(taken, taken.standing.durable + 1, 1)
            super().create(name, data)

        def get(self, name: str, most: int = 1 << 30) -> bytes:
            self.read += 1
            return super().get(name, most)

    taken = began(tmp_path)
    for epoch in range(1, 101):
        log(taken, epoch, epoch)
    found = looked(tmp_path)
    store = Busy(found.location.store)
    mine = begin(replace(found, location=replace(found.location, store=store)), tries=100)
    assert (mine.standing.generation, mine.standing.last, mine.standing.durable) == (2, 122, 120)
    assert store.read <= 20 * 3, "it reads what is in its way, the entry itself, and that there is no further one"


class Unreachable(Around):
    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "no answer")


def test_a_store_that_does_not_answer_is_no_silence(tmp_path: Path) -> None:
    """The driver before may live, and was to be left alone."""
    began(tmp_path)
    found = looked(tmp_path)
    found = replace(found, location=replace(found.location, store=Unreachable(found.location.store)))
    with pytest.raises(LocationError, match="see whether another driver appends.*nobody answers in time"):
        await_silence(found, 0.05)


def test_an_entry_that_is_larger_than_any_is_there_and_is_not_read(tmp_path: Path) -> None:
    began(tmp_path)
    found = looked(tmp_path)
    found.location.store.create(entry_name(2), b"")
    os.truncate(tmp_path / entry_name(2), MOST_ENTRY_BYTES + 1)
    asked: list[int] = []

    class Asked(Around):
        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            asked.append(most)
            return super().get(name, most)

    found = replace(found, location=replace(found.location, store=Asked(found.location.store)))
    with pytest.raises(LocationError, match="another driver runs"):
        await_silence(found, 10.0)
    assert asked == [MOST_ALIVE_BYTES, MOST_ENTRY_BYTES]


@pytest.mark.conformance
def test_a_server_of_s3_that_goes_away_is_a_location_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the libraries below the store raise: a person reads which location it was, and what to do."""
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS["secret"])
    flow = flow_of()

    def looked_there() -> Found:
        return look("s3://bucket/taken", flow.name, lambda planning: layout(flow.network, **planning), PLANNING)  # type: ignore[arg-type]

    with s3_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")
        begin(looked_there())
        found = looked_there()
    for use in (lambda: begin(found), lambda: await_silence(found, 0.05), looked_there):
        with pytest.raises(LocationError, match="checkpoint location s3://bucket/taken: cannot .*check"):
            use()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(LocationError, match="checkpoint location s3://bucket/taken: cannot .*check"):
        looked_there()
