"""The checkpoints of a location from outside: listed, inspected, proven, removed, exported; in directories and in a real bucket."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from tests.golden import copied, golden
from tests.store.conftest import hdfs_url, s3_bucket, s3_endpoint, s3_store, webhdfs_store  # noqa: F401
from tests.store.faulty import Fails
from tests.world.test_taking import append, began, checkpoint, looked

import evenflow as ef
from evenflow.availability.alive import alive_name
from evenflow.availability.alive import to_bytes as alive_bytes
from evenflow.availability.entries import Completed, Cut, Ended, Entry, Logged, entry_name, to_bytes
from evenflow.availability.retained import CHECKPOINTS, folder_of, removed_name
from evenflow.cli.app import main
from evenflow.errors import CheckpointCorrupt, JournalCorrupt, LocationError, OperationRefused
from evenflow.exchange.section import RowsObject
from evenflow.store.journal import read_entry, read_journal
from evenflow.store.location import Head, Location
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.stream.digest import digest_of
from evenflow.world.locations import removing
from evenflow.world.locations.checkpoints import Checkpoints
from evenflow.world.locations.kept import kept_at
from evenflow.world.locations.removing import remove
from evenflow.world.locations.silence import alive_at
from evenflow.world.spark.driver.readable import readable
from evenflow.world.spark.driver.taking import begin

NEWEST = 3


def object_of(location: str, box: str, which: str | None = None) -> Path:
    """A file with state of the box."""
    found = next(each for each in ef.checkpoints(location).inspect(which).boxes if each.box == box)
    return Path(location) / found.objects[0]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["checkpoints", *arguments])
    return int(end.value.code or 0)


def test_those_that_a_restart_may_begin_with_are_listed() -> None:
    there = ef.checkpoints(str(golden(1))).list()
    assert [each.name for each in there] == ["1.1", "1.2", "1.3"]
    assert all(each.complete and each.bytes and each.rows and each.objects == 10 for each in there)
    assert [each.epoch for each in there] == sorted(each.epoch or 0 for each in there)


def test_a_checkpoint_is_inspected_by_box_and_source_without_its_objects(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    found = ef.checkpoints(location).inspect()
    for file in (Path(location) / folder_of(1, NEWEST)).iterdir():
        file.write_bytes(bytes(file.stat().st_size))  # Their sizes are listed, and that is all.
    assert ef.checkpoints(location).inspect() == found
    boxes = {each.box: each for each in found.boxes}
    assert boxes.keys() == {"watermark", "totals", "hours", "visits", "firsts"}
    assert boxes["totals"].rows == 16 and boxes["totals"].partitions == 8 and boxes["totals"].kind == "aggregate"
    assert boxes["totals"].watermark_us is not None and sum(each.bytes for each in found.boxes) == found.checkpoint.bytes
    assert [(each.source, each.partition) for each in found.sources] == [("made", 0), ("made", 1)]
    assert all(0 < each.position < 3_000 and not each.ended for each in found.sources)


def test_any_reader_of_parquet_reads_the_objects() -> None:
    """Spark does, too: tests/spark/test_state_frame.py."""
    for stored in (Path(golden()) / CHECKPOINTS).rglob("*.parquet"):
        rows = pq.read_table(stored)
        frame = pd.read_parquet(stored)
        assert list(frame.columns) == rows.column_names and len(frame) == rows.num_rows > 0
        assert pl.read_parquet(stored).shape == rows.shape
        if find_spec("duckdb") is not None:
            import duckdb  # type: ignore[import-not-found, unused-ignore]

            assert len(duckdb.sql(f"SELECT * FROM read_parquet('{stored}')").df()) == rows.num_rows


def test_whole_ones_are_whole() -> None:
    said: list[str] = []
    found = ef.checkpoints(str(golden(1))).verify(say=said.append)
    assert found.whole and found.checkpoints == ("1.1", "1.2", "1.3") and found.objects == 30
    assert len(said) == 10 and said[-1] == f"30 of 30 objects, {found.bytes} bytes"


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda file: file.unlink(), "missing"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "size"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), "size"),
        (lambda file: file.write_bytes(b""), "size"),
        (lambda file: file.write_bytes(b"\x80\x04K\x01." * (file.stat().st_size // 5) + b"." * (file.stat().st_size % 5)), "altered"),
        (lambda file: (file.unlink(), file.mkdir()), "unreadable"),
    ],
    ids=["missing", "cut off", "longer", "empty", "garbage", "a folder"],
)
def test_an_object_that_is_not_as_it_was_is_told_by_name_box_and_partitions(
    damage: Callable[[Path], object], fault: str, tmp_path: Path
) -> None:
    location = copied(tmp_path, 1)
    victim = object_of(location, "visits", "2")
    damage(victim)
    found = ef.checkpoints(location).verify()
    [told] = found.faults
    assert not found.whole and (told.checkpoint, told.box, told.fault) == ("1.2", "visits", fault)
    assert told.object == str(victim.relative_to(location)) and told.partitions == (0, 1, 2, 3)
    assert "box 'visits', partitions 0, 1, 2, 3" in told.text and told.object in told.text
    assert run("verify", location) == 1 and run("verify", location, "3") == 0


def test_a_listing_shows_what_is_missing_and_what_was_never_whole(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    object_of(location, "totals", "3").unlink()
    loose = Path(location) / folder_of(1, 9) / "001-00-0000.parquet"
    loose.parent.mkdir()
    loose.write_bytes(b"12345")
    there = {each.name: each for each in ef.checkpoints(location)}
    assert not there["1.3"].complete and "is missing" in (there["1.3"].wrong or "")
    assert not there["1.9"].complete and there["1.9"].bytes == 5 and there["1.9"].epoch is None
    assert ef.checkpoints(location).inspect().checkpoint.name == "1.2", "the newest that is whole"
    with pytest.raises(LocationError, match=r"checkpoint 1\.9 is not whole: no entry"):
        ef.checkpoints(location).inspect(9)


def test_a_torn_entry_ends_it_by_name_and_a_program_that_is_lost_only_names(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    [program] = (Path(location) / "programs").iterdir()
    program.write_bytes(b"{}")
    with pytest.raises(LocationError, match=f"programs/{program.name} says something else"):
        ef.checkpoints(location).inspect()
    object_of_three = next((Path(location) / folder_of(1, NEWEST)).iterdir())
    object_of_three.unlink()
    assert [fault.box[:4] for fault in ef.checkpoints(location).verify().faults] == ["step"]
    entry = Path(location) / entry_name(5)
    entry.write_bytes(entry.read_bytes()[:-9])
    for act in (Checkpoints.list, Checkpoints.inspect, Checkpoints.verify):
        with pytest.raises(JournalCorrupt, match="entry 5 of the journal"):
            act(ef.checkpoints(location))
    assert run("list", location) == 1


def test_another_format_and_no_location_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="is no checkpoint location"):
        ef.checkpoints(str(tmp_path / "nothing"))
    location = copied(tmp_path, 1)
    head = Path(location) / "evenflow.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | {"format": 99}))
    with pytest.raises(LocationError, match="is of format 99"):
        ef.checkpoints(location)
    assert run("list", location, "--json") == 1
    assert run("list", "gopher://somewhere") == 1


@pytest.mark.parametrize("facts", [{}, {"watermark": "soon"}, {"watermark": 1, "logs": {"0": 7}}, {"watermark": 1, "logs": []}])
def test_what_a_checkpoint_says_that_does_not_fit_is_a_typed_error(facts: dict[str, object], tmp_path: Path) -> None:
    """Its digest proves that nothing tore it, not that no fool wrote it."""
    location = copied(tmp_path, 1)
    store = open_store(location)
    found = [read_entry(store, number) for number in range(1, read_journal(store).last + 1)]
    [entry] = [each for each in found if each is not None and isinstance(each.matter, Completed) and each.matter.number == NEWEST]
    assert isinstance(entry.matter, Completed)
    pieces = tuple(replace(piece, facts=facts) for piece in entry.matter.pieces)
    store.put(entry_name(entry.number), to_bytes(replace(entry, matter=replace(entry.matter, pieces=pieces))))
    with pytest.raises(JournalCorrupt, match=r"checkpoint 1\.3 says of its pieces"):
        ef.checkpoints(location).inspect()


def test_where_there_is_no_checkpoint_nothing_is_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`verify L && echo whole` is about what a restart can begin with."""
    location = str(tmp_path)
    append(began(tmp_path), Logged({}))
    assert not ef.checkpoints(location).verify().whole
    assert run("verify", location, "--json") == 1
    found = json.loads(capfd.readouterr().out)
    assert (found["whole"], found["checkpoints"], found["objects"], found["faults"]) == (False, [], 0, [])
    assert run("verify", location) == 1 and "there is no checkpoint" in capfd.readouterr().out


# ---------------------------------------------------------------- rows that nobody gives again


def with_rows(at: Path) -> list[str]:
    """A location with checkpoints of epochs 1, 3, 5 and 7, and rows of every epoch up to 8 of one partition, as a driver leaves it that
    keeps the last three: without the first checkpoint's object and the rows of epochs 1 to 3. Returns names of the rows by epoch."""
    taken, names = began(at), [""]
    store = taken.location.store
    for epoch in range(1, 9):
        data = b"rows of epoch %d" % epoch
        stored = RowsObject(1, 0, epoch, 10 * epoch, 10, digest_of(data))
        store.create(stored.name, data)
        names.append(stored.name)
        cuts = {key: (Cut(epoch, epoch, epoch, 0, False, False, objects=(stored,) * (key[1] == 1)),) for key in taken.standing.cuts}
        append(taken, Logged(cuts))
        if epoch % 2:
            checkpoint(taken, (epoch + 1) // 2, epoch)
    for name in (*names[1:4], taken.standing.checkpoints[0].objects[0].name):
        store.delete(name)
    return names


def test_rows_that_a_restart_replays_are_read_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names, location = with_rows(tmp_path), str(tmp_path)
    found = ef.checkpoints(location).verify()
    assert found.whole and found.checkpoints == ("1.2", "1.3", "1.4") and found.objects == 3 + 5, "each once"
    assert ef.checkpoints(location).verify(4).objects == 1 + 1
    (tmp_path / names[6]).write_bytes(b"rows of epoch 0")
    [third, second] = sorted(ef.checkpoints(location).verify().faults, key=lambda fault: fault.checkpoint, reverse=True)
    assert (second.checkpoint, third.checkpoint) == ("1.2", "1.3"), "the newest one needs none of them"
    assert (third.object, third.segment, third.box, third.partitions, third.fault) == (names[6], "made", "made", (1,), "altered")
    assert "with rows behind it of source 'made', partition 1, that nobody gives again, has other bytes" in third.text
    capfd.readouterr()
    assert run("verify", location) == 1 and "8 objects, 96 B: 1 object is wrong" in " ".join(capfd.readouterr().out.split())
    (tmp_path / names[8]).unlink()
    assert [fault.fault for fault in ef.checkpoints(location).verify(4).faults] == ["missing"]
    assert run("verify", location) == 1 and "2 objects are wrong" in " ".join(capfd.readouterr().out.split())
    assert all(each.complete for each in ef.checkpoints(location)), "their state is whole, and can be exported"


def test_what_a_live_driver_sweeps_meanwhile_is_no_fault(tmp_path: Path) -> None:
    """Goal: only what a restart would miss is wrong. Method: while objects are read, newer checkpoints become whole, and the oldest go."""
    taken = began(tmp_path)
    store, numbers = taken.location.store, iter(range(4, 100))

    def log(epoch: int) -> None:
        append(taken, Logged({key: (Cut(epoch, epoch, epoch, 0, False, False),) for key in taken.standing.cuts}))

    def complete(number: int) -> None:
        log(number)
        checkpoint(taken, number, number)

    def sweep(_: str) -> None:
        complete(next(numbers))
        for made in taken.standing.checkpoints[:-3]:
            for stored in made.objects:
                store.delete(stored.name)

    for number in (1, 2, 3):
        complete(number)
    there = ef.checkpoints(str(tmp_path))
    said = iter([sweep])
    store.delete(taken.standing.checkpoints[0].objects[0].name)  # As if that had been first.
    found = there.verify(say=lambda text: next(said, lambda _: None)(text))
    assert found.whole and found.checkpoints == ("1.2", "1.3"), "the third is read still, and the first is nobody's any more"
    said = iter([sweep] * 3)
    store.delete(taken.standing.checkpoints[1].objects[0].name)
    with pytest.raises(OperationRefused, match="newer checkpoints have taken the place of checkpoint 2"):
        there.verify(2, say=lambda text: next(said, lambda _: None)(text))
    newest = taken.standing.checkpoints[-1]
    store.delete(newest.objects[0].name)
    assert [fault.checkpoint for fault in there.verify().faults] == [newest.name]


def test_rows_of_cuts_that_were_made_anew_are_not_asked_for(tmp_path: Path) -> None:
    """What was logged for some partitions only is cut anew by the next driver, and its rows are deleted."""
    with_rows(tmp_path)
    taken = begin(looked(tmp_path))
    stored = RowsObject(2, 0, 1, 90, 10, digest_of(b"never there any more"))
    append(taken, Logged({(0, 1): (Cut(9, 9, 9, 0, False, False, objects=(stored,)),)}))
    assert [fault.object for fault in ef.checkpoints(str(tmp_path)).verify().faults] == [stored.name] * 3
    begin(looked(tmp_path))
    assert ef.checkpoints(str(tmp_path)).verify().whole


def test_rows_of_a_run_that_is_over_are_nobodys(tmp_path: Path) -> None:
    names, taken = with_rows(tmp_path), begin(looked(tmp_path))
    append(taken, Ended(8))
    (tmp_path / names[8]).unlink()
    assert ef.checkpoints(str(tmp_path)).verify().objects == 3


def test_a_checkpoint_that_is_removed_takes_no_rows_along(tmp_path: Path) -> None:
    """A restart from the one before it replays more of them."""
    names, location = with_rows(tmp_path), str(tmp_path)
    ef.checkpoints(location).remove(4, force=True, silent_s=0)
    assert open_store(location).names("rows/") == names[4:]
    standing, _ = readable(open_store(location))
    assert standing.base == 5 and {stored.name for cut in standing.cuts[0, 1] for stored in cut.objects} == set(names[6:])
    assert ef.checkpoints(location).verify().whole


@pytest.mark.parametrize("command", [["inspect"], ["export", "TARGET"], ["state", "visits"]], ids=lambda command: command[0])
def test_who_asks_for_the_newest_hears_which_one_was_passed_over(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    location = copied(tmp_path, 1)
    lost = object_of(location, "totals", "3")
    lost.unlink()
    name, *more = [str(tmp_path / "to") if each == "TARGET" else each for each in command]
    assert run(name, location, *more, "--json") == 0
    shown = capfd.readouterr()
    assert f"checkpoint 1.3 is passed over: {lost.relative_to(location)} is missing" in shown.err and json.loads(shown.out)


# ---------------------------------------------------------------- removing


def test_one_that_nobody_needs_goes_and_stays_away(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    freed = ef.checkpoints(location).list()[1].bytes
    assert ef.checkpoints(location).remove(2) == freed
    assert [each.name for each in ef.checkpoints(location)] == ["1.1", "1.3"] and ef.checkpoints(location).verify().whole
    with pytest.raises(OperationRefused, match=r"no checkpoint 2 here; there are 1\.1, 1\.3"):
        ef.checkpoints(location).remove(2)
    assert run("rm", location, "1") == 0 and run("rm", location, "7") == 2


def test_the_newest_goes_only_by_force_and_a_restart_begins_with_the_one_before(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    epoch = ef.checkpoints(location).list()[1].epoch
    with pytest.raises(OperationRefused, match=rf"1\.3 is the newest one: .* after epoch {epoch} again"):
        ef.checkpoints(location).remove(3)
    assert len(ef.checkpoints(location).list()) == 3
    ef.checkpoints(location).remove(3, force=True, silent_s=0)
    standing, passed = readable(open_store(location))
    assert standing.base == epoch and "it was removed by hand" in passed[0]
    ef.checkpoints(location).remove(1)
    with pytest.raises(OperationRefused, match="is the last one: .* after the start again"):
        ef.checkpoints(location).remove("1.2")


def test_force_does_not_take_from_a_live_driver_what_it_needs(tmp_path: Path) -> None:
    """Method: its driver appends the next entry after the journal was read."""
    location = copied(tmp_path, 1)
    store = open_store(location)
    before = kept_at(store)
    standing = before.standing
    store.create(entry_name(standing.last + 1), to_bytes(Entry(standing.last + 1, standing.generation, standing.nonce, Logged({}))))
    with pytest.raises(OperationRefused, match=r"1\.3 is needed: a driver runs here"):
        remove(store, before, before.find(3), force=True)
    assert len(ef.checkpoints(location).list()) == 3


def test_what_a_dead_driver_has_said_last_is_no_sign_of_life(tmp_path: Path) -> None:
    """It stays beside the journal. A driver that says so anew meanwhile lives, though it appends nothing."""
    location = copied(tmp_path, 4)
    store = open_store(location)
    kept = kept_at(store)
    said = alive_at(store, kept.standing)
    newest = [each for each in kept.checkpoints() if each.complete][-1]
    assert said is not None

    again = Timer(0.2, lambda: store.put(alive_name(said.generation), alive_bytes(replace(said, count=said.count + 1))))
    again.start()
    with pytest.raises(OperationRefused, match="is needed: a driver runs here"):
        remove(store, kept, newest, force=True, silent_s=30.0)
    again.join()
    assert ef.checkpoints(location).remove(newest.name, force=True, silent_s=0.3) > 0


def test_a_driver_with_a_long_lease_may_be_silent_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only checkpoints are journalled, it says several times in its lease that it lives, and nothing else."""
    monkeypatch.setattr(removing, "SILENT_S", 0.1)
    store = open_store(copied(tmp_path, 4))
    kept = kept_at(store)
    said = alive_at(store, kept.standing)
    assert said is not None
    store.put(alive_name(said.generation), alive_bytes(replace(said, lease_s=30.0)))
    again = Timer(0.6, lambda: store.put(alive_name(said.generation), alive_bytes(replace(said, count=said.count + 1, lease_s=30.0))))
    again.start()
    newest = [each for each in kept.checkpoints() if each.complete][-1]
    with pytest.raises(OperationRefused, match="is needed: a driver runs here"):
        remove(store, kept, newest, force=True)
    again.join()


def test_what_another_checkpoint_names_stays(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    store = open_store(location)
    kept = kept_at(store)
    first, third = kept.completed[1, 1], kept.completed[1, 3]
    shared = next(piece for piece in first.pieces if piece.objects)
    kept.completed[1, 3] = replace(third, pieces=(shared, *third.pieces))
    remove(store, kept, kept.find(1), force=False)
    there = store.sizes(folder_of(1, 1))
    assert set(there) == {removed_name(1, 1), *(stored.name for stored in shared.objects)}


def test_a_removal_that_a_store_breaks_off_can_be_asked_for_again(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    store = open_store(location)
    kept = kept_at(store)
    with pytest.raises(LocationError, match=r"cannot remove checkpoint 1\.1: .*full"):
        remove(Fails(store, "delete", OSError(errno.ENOSPC, "full"), 1), kept, kept.find(1), force=False)
    assert [each.name for each in ef.checkpoints(location)] == ["1.2", "1.3"], "it is passed over already"
    remove(store, kept, kept.find(1), force=False)
    assert list(store.sizes(folder_of(1, 1))) == [removed_name(1, 1)]


def test_of_several_with_one_number_one_must_be_named(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    loose = Path(location) / folder_of(2, 1) / "001-00-0000.parquet"
    loose.parent.mkdir(parents=True)
    loose.write_bytes(b"12345")
    with pytest.raises(OperationRefused, match=r"several checkpoints have the number 1: .* There are 1\.1, 1\.2, 1\.3, 2\.1"):
        ef.checkpoints(location).remove(1)
    assert ef.checkpoints(location).remove("2.1") == 5


# ---------------------------------------------------------------- exporting


def test_an_export_has_everything_and_is_moved_like_any_folder(tmp_path: Path) -> None:
    made = ef.checkpoints(str(golden(1))).export(str(tmp_path / "saved"), 2)
    moved = (tmp_path / "saved").rename(tmp_path / "elsewhere")
    found = ef.checkpoints(str(moved))
    [checkpoint] = found.list()
    of = ef.checkpoints(str(golden(1))).list()[1]
    assert (checkpoint.generation, checkpoint.number, checkpoint.epoch, checkpoint.bytes) == (0, 2, of.epoch, of.bytes)
    assert checkpoint.complete and found.verify().whole and made.objects == made.copied == 10
    assert found.inspect().sources == ef.checkpoints(str(golden(1))).inspect(2).sources
    with pytest.raises(OperationRefused, match="is a savepoint: delete the whole folder"):
        found.remove(2, force=True)


def test_an_export_that_was_broken_off_goes_on_and_is_none_before_it_is_whole(tmp_path: Path) -> None:
    saved, whole = tmp_path / "saved", ef.checkpoints(str(golden(1)))
    whole.export(str(saved))
    for gone in [saved / "evenflow.json", *sorted((saved / "checkpoints").rglob("*.parquet"))[:3]]:
        gone.unlink()
    with pytest.raises(LocationError, match="is no checkpoint location"):
        ef.checkpoints(str(saved))
    assert whole.export(str(saved)).copied == 3 and ef.checkpoints(str(saved)).verify().whole
    assert whole.export(str(saved)).copied == 0, "and once more does no harm"


def test_an_export_into_a_folder_that_has_something_else_is_refused(tmp_path: Path) -> None:
    other = copied(tmp_path, 1)
    whole = ef.checkpoints(str(golden(1)))
    with pytest.raises(LocationError, match="is the checkpoint location of run golden-"):
        whole.export(other)
    whole.export(str(tmp_path / "saved"), 1)
    with pytest.raises(LocationError, match="already: give the savepoint a folder of its own"):
        whole.export(str(tmp_path / "saved"), 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(LocationError, match=r"has thesis\.txt already"):
        whole.export(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_an_export_of_a_damaged_checkpoint_names_the_object_and_is_none(tmp_path: Path) -> None:
    location = copied(tmp_path, 1)
    victim = object_of(location, "firsts")
    victim.write_bytes(b"." * victim.stat().st_size)
    with pytest.raises(CheckpointCorrupt, match=f"object '{victim.relative_to(location)}' has other bytes"):
        ef.checkpoints(location).export(str(tmp_path / "saved"))
    assert not (tmp_path / "saved" / "evenflow.json").exists()
    assert run("export", location, str(tmp_path / "other")) == 1


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["s3", "webhdfs"])
def test_it_is_the_same_in_other_stores(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    there: Store = request.getfixturevalue(f"{kind}_store")
    for name in open_store(str(golden(1))).names():
        there.create(name, open_store(str(golden(1))).get(name))
    found = Checkpoints(Location(there, Head(1, "golden", "golden", "0")))
    assert [each.name for each in found] == ["1.1", "1.2", "1.3"] and found.verify().whole
    found.remove(1)
    found.export(str(tmp_path / "saved"))
    assert [each.name for each in found] == ["1.2", "1.3"] and ef.checkpoints(str(tmp_path / "saved")).verify().whole


# ---------------------------------------------------------------- what people and programs see


def test_the_list_is_a_list_and_the_rest_are_objects(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    location = str(golden(1))
    assert run("list", location, "--json") == 0
    listed = json.loads(capfd.readouterr().out)
    assert [each["number"] for each in listed] == [1, 2, 3] and {"epoch", "bytes", "complete", "generation"} <= set(listed[0])
    for arguments in (("inspect", location), ("verify", location), ("export", location, str(tmp_path / "saved"))):
        assert run(*arguments, "--json") == 0
        assert isinstance(json.loads(capfd.readouterr().out), dict)
    assert run("rm", location, "3", "--json") == 2
    assert json.loads(capfd.readouterr().out)["error"]["type"] == "OperationRefused"


def test_people_see_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    for command, words in (("list", ("golden", "1.3", "35,059 B")), ("inspect", ("totals", "aggregate", "made")), ("verify", ("whole",))):
        assert run(command, str(golden(1))) == 0
        out = capfd.readouterr().out
        assert all(word in out for word in words), out


def test_who_only_looks_waits_for_no_kernel(tmp_path: Path) -> None:
    """Goal: on a fresh machine the answer does not take the half minute of CPU in which kernels are compiled. Method: the
    commands do all that they do, in a process of their own, which says what it has imported by then."""
    location, elsewhere = copied(tmp_path), str(tmp_path / "elsewhere")
    looks = [["list", location], ["inspect", location], ["verify", location], ["export", location, elsewhere], ["rm", location, "1"]]
    program = f"""
import sys
from evenflow.cli.app import main
for command in {looks}:
    try:
        main(["checkpoints", *command, "--json"])
    except SystemExit as ended:
        assert ended.code == 0, command
    assert not [name for name in sys.modules if name == "numba" or name.startswith("evenflow.kernels.")], command
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["list", "inspect", "verify", "rm", "export"])
def test_each_command_says_how_it_is_used(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    assert f"evenflow checkpoints {command}" in capfd.readouterr().out


def test_why_a_checkpoint_cannot_be_gone_on_from_is_said_however_narrow_the_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    location = copied(tmp_path, 1)
    gone = next((Path(location) / folder_of(1, NEWEST)).iterdir())
    gone.unlink()
    for arguments in (("list", location), ("inspect", location, "1.3")):
        assert run(*arguments) == 0
        told = capfd.readouterr().out
        assert f"1.3: {folder_of(1, NEWEST)}/{gone.name} is missing\n" in told and "1.2: " not in told
