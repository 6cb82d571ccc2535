"""Whose a location is: made, found again, and refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evenflow.availability.entries import FORMAT
from evenflow.errors import LocationError
from evenflow.store import location as module
from evenflow.store.directory import DirectoryStore
from evenflow.store.location import HEAD, Location, find_location, open_location
from evenflow.store.objects import Store
from tests.store.faulty import Around, Fails


def opened(store: Store, monkeypatch: pytest.MonkeyPatch, dataflow: str = "flow") -> Location:
    monkeypatch.setattr(module, "open_store", lambda url, options=None: store)
    return open_location(store.url, dataflow, "1.2.3")


def test_a_location_is_made_once_and_keeps_its_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(store, monkeypatch), opened(store, monkeypatch)
    assert first.fresh and not second.fresh
    assert first.head == second.head and first.head.run.startswith("flow-") and first.head.made_with == "1.2.3"
    assert store.names() == [HEAD]
    assert json.loads(store.get(HEAD)) == {"format": FORMAT, "run": first.head.run, "dataflow": "flow", "made_with": "1.2.3"}
    assert find_location(store.url).head == first.head


def test_a_dataflow_of_any_name_has_a_run_that_can_be_part_of_a_file_name(tmp_path: Path) -> None:
    for number, name in enumerate(("a b/c", "flüsse", "x" * 500, "")):
        assert module.RUN.fullmatch(open_location(str(tmp_path / str(number)), name, "1").head.run)


def test_another_dataflows_location_is_refused_before_anything_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(store, monkeypatch)
    before, untouched = store.get(HEAD), Fails(store, "create", AssertionError("written"), 99)  # type: ignore[arg-type]
    with pytest.raises(LocationError, match="is that of dataflow 'flow', not of 'other'"):
        opened(untouched, monkeypatch, "other")
    assert store.get(HEAD) == before and store.names() == [HEAD]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "is no JSON"),
        (b"\x80\x04K\x01.", "is no JSON"),
        (b"[" * 60_000, "is no JSON"),
        (b"[]", "says no format"),
        (b"{}", "says no format"),
        (b'{"format": true}', "says no format"),
        (b'{"format": "1"}', "says no format"),
        (b'{"format": 1}', "lacks run"),
        (b'{"format": 1, "run": "a/b", "dataflow": "flow", "made_with": "1"}', "lacks run"),
        (b'{"format": 1, "run": "../b", "dataflow": "flow", "made_with": "1"}', "lacks run"),
        (b'{"format": 1, "run": "b", "dataflow": 7, "made_with": "1"}', "lacks run"),
        (b'{"format": 0, "run": "b", "dataflow": "flow", "made_with": "1"}', "a version in between"),
        (b'{"format": 99, "run": "b", "dataflow": "flow", "made_with": "9.9"}', "made with Evenflow 9.9; this version"),
        (b'{"format": 99, "made_with": {"new": "shape"}}', "Run the version that made it"),
        (b" " * 70_000, "cannot read"),
    ],
)
def test_what_is_no_head_of_a_location_is_refused(tmp_path: Path, said: bytes, why: str) -> None:
    store = DirectoryStore(str(tmp_path))
    store.create(HEAD, said)
    for act in (lambda: open_location(str(tmp_path), "flow", "1"), lambda: find_location(str(tmp_path))):
        with pytest.raises(LocationError, match=why):
            act()
    assert os.listdir(tmp_path) == [HEAD], "nothing was written"


def test_a_journal_without_a_head_is_refused(tmp_path: Path) -> None:
    DirectoryStore(str(tmp_path)).create("journal/000000000001.json", b"{}")
    with pytest.raises(LocationError, match="somebody has removed it"):
        open_location(str(tmp_path), "flow", "1")
    assert DirectoryStore(str(tmp_path)).names() == ["journal/000000000001.json"]


def test_what_else_lies_in_a_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert open_location(str(tmp_path), "flow", "1").fresh
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_where_there_is_no_location_none_is_found_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="is no checkpoint location"):
        find_location(str(tmp_path / "none"))
    assert os.listdir(tmp_path) == []


def test_a_head_that_another_driver_makes_at_the_same_moment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one makes it after this one has looked, and before it writes."""
    store = DirectoryStore(str(tmp_path))

    class Outrun(Around):
        def create(self, name: str, data: bytes) -> None:
            if name == HEAD:
                monkeypatch.undo()
                self.other = open_location(str(tmp_path), "flow", "other").head
            store.create(name, data)

    outrun = Outrun(store)
    mine = opened(outrun, monkeypatch)
    assert not mine.fresh and mine.head == outrun.other and mine.head.made_with == "other"


def test_a_store_that_fails_is_said_to_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("get", "create", "names"):
        with pytest.raises(LocationError, match="nobody answers in time"):
            opened(Fails(DirectoryStore(str(tmp_path / method)), method, TimeoutError(110, "slow"), 99), monkeypatch)
