"""A driver collects the journal of its location: real processes, files and kills; and what those see who look at such a location."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.availability.journals import checkpoints_of, lived, said
from tests.restarting import Setting, Start, compare, wait_until
from tests.store.faulty import Fails
from tests.world.test_restart import standing

import evenflow as ef
from evenflow.availability.alive import alive_name
from evenflow.availability.entries import JOURNAL, Begun, Entry, entry_name, snapshot_name, to_bytes
from evenflow.availability.retained import RETAINED, program_named, removed_name, version_name
from evenflow.availability.standing import standing as folded
from evenflow.coordinator.events import Sweep
from evenflow.errors import CheckpointCorrupt, JournalCorrupt, OperationRefused
from evenflow.store.journal import collect, read_entry
from evenflow.store.objects import Store, beside_name
from evenflow.store.opening import open_store
from evenflow.world.locations.kept import kept_at
from evenflow.world.locations.removing import remove
from evenflow.world.spark.driver.appending import Appender, cleared
from evenflow.world.spark.driver.readable import readable

ENTRIES = lived(2, 5)
MADE = checkpoints_of(ENTRIES)


@pytest.mark.conformance
@pytest.mark.timeout(480)
def test_a_run_that_is_killed_and_replaced_has_a_short_journal(start: Start, tmp_path: Path) -> None:
    """Goal: every row once, from a journal that does not grow. Method: checkpoints all the time; kill -9 of everything; the next driver is
    stopped, and comes back when what its successor wrote first is collected."""
    setting = Setting(str(tmp_path), endless=True, checkpoint_s=0.3, sites=1)
    store = open_store(setting.location)

    def collected(behind: int) -> bool:
        """Entries behind that one have gone."""
        return standing(setting).last > behind and read_entry(store, behind + 1) is None

    first = start(setting)
    assert first.line() == "running 1"
    wait_until(lambda: collected(1), 60, "entries of the first driver to go")
    first.kill()
    second = start(setting)
    assert second.line() == "running 2"
    last = standing(setting).begins[-1]
    wait_until(lambda: collected(last), 60, "entries of the second driver to go")
    second.stop(setting)
    third = start(replace(setting, take_over=True))
    assert third.line() == "running 3"
    begun = standing(setting).begins[-1]
    wait_until(lambda: collected(begun), 60, "entries of the third driver to go")
    entry = read_entry(store, begun)
    assert entry is not None and isinstance(entry.matter, Begun) and read_entry(store, begun - 1) is None
    second.go_on()
    assert second.last().startswith("Fenced: another driver has begun generation 3")
    there = ef.checkpoints(setting.location)
    assert third.drain() == "ended"
    compare(setting)
    found = standing(setting)
    assert found.begins == [1, last, begun] and found.ended is not None
    entries = [name for name in store.names("journal/") if "snapshot" not in name]
    assert len(entries) < found.last / 2, (len(entries), found.last)
    assert there.verify().whole


# ------------------------------------------------ who looks at it


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A journal of ten checkpoints, of which three are retained."""
    found = open_store(str(tmp_path / "location"))
    for entry in ENTRIES:
        found.create(entry_name(entry.number), to_bytes(entry))
    for made in (MADE[4], MADE[6], MADE[-RETAINED]):
        collect(found, made)
    return found


def test_who_looks_sees_what_is_retained_and_of_what_it_was_made(store: Store) -> None:
    kept = kept_at(store)
    assert [(made.generation, made.number) for made in kept.completed.values()] == [(2, 3), (2, 4), (2, 5)]
    assert [each.name for each in kept.checkpoints()] == ["2.3", "2.4", "2.5"] and kept.find(None).name == "2.5"
    whole = folded(ENTRIES[: ENTRIES.index(next(e for e in ENTRIES if e.matter == MADE[-RETAINED])) + 1])
    assert kept.origins[2, 3].content == whole.contents[0]


def test_an_object_of_a_collected_checkpoint_that_a_later_one_names_is_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    from tests.availability.test_retained import completed, name

    store, base = open_store(str(tmp_path)), name(1, 1)
    made = [completed(1, number, base, name(1, number)) for number in range(1, 7)]
    entries: list[Entry] = []
    at = iter(made)
    for entry in lived(1, 6, each=10):
        matter = replace(next(at), epoch=entry.matter.epoch) if entry.matter in checkpoints_of([entry]) else entry.matter  # type: ignore[union-attr]
        entries.append(replace(entry, matter=matter))
    for entry in entries:
        store.create(entry_name(entry.number), to_bytes(entry))
    for stored in (base, *[name(1, number) for number in (4, 5, 6)]):
        store.create(stored, b"0123456789")
    found = checkpoints_of(entries)
    collect(store, found[1])
    collect(store, found[3])
    assert [each.name for each in kept_at(store).checkpoints()] == ["1.4", "1.5", "1.6"]


@pytest.mark.parametrize("count", range(RETAINED + 1))
def test_a_driver_goes_on_from_an_older_checkpoint_or_is_told_that_there_is_none(store: Store, count: int) -> None:
    for made in MADE[len(MADE) - count :]:
        store.create(removed_name(made.generation, made.number), b"{}")
    if count == RETAINED:
        with pytest.raises(CheckpointCorrupt, match=r"nothing is left to go on from: .*removed by hand.*start from a savepoint"):
            readable(store)
        return
    found, texts = readable(store)
    passed = {(made.generation, made.number) for made in MADE[len(MADE) - count :]}
    assert said(found) == said(folded(ENTRIES, passed), found) and len(texts) == count


def test_a_snapshot_that_is_torn_is_said_and_the_one_before_taken(store: Store) -> None:
    newest = [name for name in store.names("journal/") if "snapshot" in name][-1]
    store.put(newest, store.get(newest)[:-20])
    found, [text] = readable(store)
    assert said(found) == said(folded(ENTRIES), found)
    assert text.startswith(f"{newest}, which stands for the entries before it, is passed over")


def test_without_snapshots_the_location_is_refused_by_name(store: Store) -> None:
    for name in store.names("journal/"):
        if "snapshot" in name:
            store.put(name, b"{}")
    with pytest.raises(JournalCorrupt, match=r"entry 2 of the journal is missing.*snapshot\.json.*give one of them back"):
        readable(store)


def test_the_last_checkpoint_behind_collected_entries_is_not_removed_without_a_warning(store: Store) -> None:
    for made in MADE[-RETAINED:-1]:
        store.create(removed_name(made.generation, made.number), b"{}")
    kept = kept_at(store)
    with pytest.raises(OperationRefused, match="nobody can go on here at all"):
        remove(store, kept, kept.find(None), force=False)


# ------------------------------------------------ what drivers that were killed have left


def test_half_an_entry_goes_when_its_number_is_behind(store: Store, tmp_path: Path) -> None:
    """Method: of entries and snapshots around that of the oldest checkpoint that is kept. It is looked for once, since no driver that
    lives was killed; and not before that one knows how far the journal is."""
    journal, made = tmp_path / "location" / "journal", MADE[-RETAINED]
    at = next(entry.number for entry in ENTRIES if entry.matter == made)
    snapshot = folded(ENTRIES[:at]).snapshot()
    files = [journal / beside_name(name(number)[len(JOURNAL) :]) for name in (entry_name, snapshot_name) for number in (1, at, at + 1)]
    others = [journal / name for name in (beside_name("other.json"), ".000000000001.json.tmp")]
    for file in (*files, *others):
        file.write_bytes(b"{")
    appender = Appender("run", store, 2, lambda answer: None)

    def sweep(known: Entry | None) -> list[bool]:
        appender.sweep(Sweep((made,), 2, snapshot=known))
        for thread in threading.enumerate():
            if thread.name == "evenflow-journal-run-sweep":
                thread.join(10.0)
        return [file.exists() for file in files]

    assert sweep(None) == [True] * 6
    assert sweep(snapshot) == 2 * [False, False, True] and all(file.exists() for file in others)
    files[0].write_bytes(b"{")
    assert sweep(snapshot) == [True, False, True, False, False, True]
    appender.close()
    assert appender.join(10.0)


def test_a_store_that_fails_is_looked_through_again(tmp_path: Path) -> None:
    entries = lived(1, 3)
    fails = Fails(open_store(str(tmp_path)), "clear", OSError("no answer"))
    (tmp_path / "journal").mkdir()
    file = tmp_path / "journal" / beside_name("000000000001.json")
    file.write_bytes(b"{")
    assert not cleared(fails, entries[-1], 1) and file.exists()
    assert cleared(fails, entries[-1], 1) and not file.exists()


def test_what_killed_drivers_of_older_generations_have_left_of_versions_and_signs_of_life_goes(tmp_path: Path) -> None:
    """Not what this one may be writing, or a later one, nor what it was when it was begun, of which nobody knows whose it is."""
    entries = lived(1, 3)
    store = open_store(str(tmp_path))
    names = [name for n in (1, 2, 3) for name in (alive_name(n), version_name(program_named(n, 1, "ab" * 32, "cd" * 32)))]
    others = [version_name(""), "programs/ab.json"]
    beside = []
    for name in (*names, *others):
        store.put(name, b"{}")
        beside.append(tmp_path / Path(name).parent / beside_name(Path(name).name))
        beside[-1].write_bytes(b"{")
    assert cleared(store, entries[-1], 2)
    assert [file.exists() for file in beside] == [False, False, True, True, True, True, True, True]
    assert {*store.names()} == {*names, *others}
