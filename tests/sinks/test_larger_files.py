"""Commits that become one file together: nothing of what waits is lost or shown twice, whoever dies, sleeps or comes late, and when.

Planted bugs show that these tests find what they are there for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow import sinks
from evenflow.errors import OptionError, SinkError
from evenflow.exchange.section import NEVER_US
from evenflow.operator.operator import Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.sinks import committed
from evenflow.sinks.closings import read_committed
from evenflow.sinks.committed import RECORD_SCHEMA, TABLE_RECORD_SCHEMA, CommittedFiles
from evenflow.store.local import LocalStore
from evenflow.store.patience import Patience
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from evenflow.swarm.mutations import Mutation, planted
from tests.drawn import one_in
from tests.sinks.test_replicas import EPOCHS, INTERVAL_MS, KINDS, PARTITIONS, SCHEMA, Scene, content

FILE_MS = 2 * INTERVAL_MS
KEYS = sorted(key for epoch in range(1, EPOCHS + 1) for p in range(PARTITIONS) for key in content(epoch, p))


class Joining(Scene):
    """As `Scene`, and the commits of two intervals are one file."""

    def __init__(self, seed: int, kind: str, path: Path) -> None:
        super().__init__(seed, kind, path, file_interval_ms=FILE_MS)

    def check_now(self) -> None:
        """What is decided is staged until it is in a file; files never change, share no commit, and appear in order."""
        commits, files = {}, {}
        for path, data in sorted(self.files.items()):
            folder, _, name = path.rpartition("/")
            if folder == "_evenflow":
                form = json.loads(data)
                (files if name.startswith("joined-") else commits)[path] = form
        decided = {form["epoch"]: form for form in commits.values()}
        within = [epoch for form in files.values() for epoch in form["epochs"]]
        assert within == sorted(decided)[: len(within)], "a commit is in two files, or in none though a later one is"
        published = {form["file"] for form in files.values() if form["file"] in self.files}
        for form in files.values():
            assert len({decided[epoch]["slot"] for epoch in form["epochs"]}) == 1, "commits of two intervals are one file"
        shown = {epoch for form in files.values() if form["file"] in published for epoch in form["epochs"]}
        assert shown == set(within[: len(shown)]), "a file was published before an earlier one"
        for epoch in decided.keys() - shown:
            for part in decided[epoch]["parts"]:
                assert f"_staging/{part['file']}" in self.files, f"{part['file']} is decided about, in no file, and gone"
        for path, data in self.files.items():
            if "/" not in path:
                assert path in published
                assert self.seen.setdefault(path, data) == data


def played(seed: int, kind: str, path: Path, *, kills: int, sleeps: int, joins: int) -> None:
    """Run a scene to its end. Raises AssertionError if something is wrong at any moment or then."""
    scene = Joining(seed, kind, path)
    scene.run(kills=kills, sleeps=sleeps, joins=joins)
    assert [(replica.name, replica.error) for replica in scene.replicas if replica.error is not None] == []
    if kills:
        scene.recover()
    assert [name for name in scene.left_in_staging() if not name.startswith("_probe")] == []
    assert scene.rows() == (KEYS, KEYS)
    assert 1 < len(list(path.glob("*.parquet"))) < len(list((path / "_evenflow").glob("manifest-*")))


@pytest.mark.parametrize("case", one_in(7, [(kind, seed) for seed in range(16) for kind in (*KINDS, "disk")]))
def test_any_interleaving_with_crashes_and_sleepers_gives_every_row_once(case: tuple[str, int], tmp_path: Path) -> None:
    kind, seed = case
    played(seed, kind, tmp_path, kills=2, sleeps=4, joins=2)


@pytest.mark.parametrize("case", one_in(8, [(kind, seed) for seed in range(10) for kind in KINDS]))
def test_sleepers_that_wake_when_all_is_over_leave_nothing(case: tuple[str, int], tmp_path: Path) -> None:
    kind, seed = case
    played(seed, kind, tmp_path, kills=0, sleeps=8, joins=1)


SINK, STEP = "sinks.committed:CommittedFiles", "operator.parquet:ParquetCommit"
BUGS = (
    Mutation("a successor forgets what waits", f"{SINK}._learn", "if epoch > self._closed]", "if epoch < 0]"),
    Mutation("the last interval is never closed", f"{STEP}._join", "if tick.last and", "if False and"),
    Mutation("what is of the next interval is closed too", f"{STEP}._join", "files.close(slot)", "files.close(slot + 1)"),
    Mutation(
        "files are published without a decision",
        f"{SINK}._decide_file",
        "self._store.put(mine.path, mine.to_bytes())\n        return read_closing(self._store, mine.run, mine.epochs[0])",
        "pass\n        return mine",
    ),
    Mutation(
        "a commit is published, and once more with others",
        f"{SINK}.commit",
        "self._waiting |= Waits.of([manifest])\n    else:",
        "self._waiting |= Waits.of([manifest])\n    if True:",
    ),
    Mutation("who was overtaken closes once more", f"{SINK}.commit", "if epoch > self._closed:", "if True:"),
    Mutation("who comes late does not see what was published", f"{SINK}._is_published", "closing.file", "'elsewhere'"),
)


@pytest.mark.parametrize("bug", one_in(3, BUGS), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Mutation, tmp_path: Path) -> None:
    with planted(bug):
        for seed in range(160):
            path = tmp_path / str(seed)
            path.mkdir()
            try:
                played(seed, KINDS[seed % 3], path, kills=2 * (seed % 2), sleeps=8, joins=2)
            except (AssertionError, SinkError, OSError):
                return
    pytest.fail(f"nobody found it: {bug.name}")


# ---------------------------------------------------------------- by itself


def steps(path: Path, run: str = "r1", schema: pa.Schema = SCHEMA, **more: Any) -> tuple[ParquetStage, ParquetCommit]:
    params: dict[str, Any] = {"path": str(path), "run": run, "retries": 0, "commit_interval_ms": 1, "file_interval_ms": 4, **more}
    return ParquetStage(schema, **params), ParquetCommit(TABLE_RECORD_SCHEMA if "partition_by" in more else RECORD_SCHEMA, **params)


def given(stage: ParquetStage, commit: ParquetCommit, epoch: int, *keys: int, last: bool = False) -> None:
    at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if last else NO_WATERMARK)
    rows = Rows(pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA), np.zeros(len(keys), np.int32))
    (records,) = stage.process(rows, at)
    commit.process(records, at)


def plain(path: Path) -> list[int]:
    return sorted(key for file in path.glob("*.parquet") for key in pq.read_table(file)["key"].to_pylist())


def every(path: Path) -> list[int]:
    return sorted(read_committed(str(path)).to_pydict().get("key", []))


def test_what_waits_is_read_at_once_and_shown_with_its_interval(tmp_path: Path) -> None:
    stage, commit = steps(tmp_path)
    for epoch in range(1, 5):
        given(stage, commit, epoch, epoch)
    assert (plain(tmp_path), every(tmp_path)) == ([], [1, 2, 3])
    assert commit.next_us(4_000) == 5_000
    given(stage, commit, 5)  # No row comes: the time that has gone by is enough.
    assert (plain(tmp_path), every(tmp_path)) == ([1, 2, 3], [1, 2, 3, 4])
    given(stage, commit, 7, 7, last=True)
    assert plain(tmp_path) == every(tmp_path) == [1, 2, 3, 4, 7]
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_a_successor_by_its_state_closes_what_waits(tmp_path: Path) -> None:
    stage, commit = steps(tmp_path)
    for epoch in range(1, 4):
        given(stage, commit, epoch, epoch)
    state, held = commit.capture(0), stage.capture(0)
    assert state is not None and held is not None
    stage, commit = steps(tmp_path)
    stage.install(0, held.to_bytes()), commit.install(0, state.to_bytes())
    assert commit.next_us(3_000) == 5_000
    given(stage, commit, 9)
    assert plain(tmp_path) == [1, 2] and every(tmp_path) == [1, 2, 3]


def test_what_waits_is_published_when_files_are_of_one_commit_again(tmp_path: Path) -> None:
    stage, commit = steps(tmp_path)
    for epoch in range(1, 4):
        given(stage, commit, epoch, epoch)
    state, held = commit.capture(0), stage.capture(0)
    assert state is not None and held is not None
    stage, commit = steps(tmp_path, file_interval_ms=0)
    stage.install(0, held.to_bytes()), commit.install(0, state.to_bytes())
    given(stage, commit, 4, 4)
    assert plain(tmp_path) == every(tmp_path) == [1, 2, 3]
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert commit.next_us(4_000) == NEVER_US


def test_folders_of_columns_are_closed_too(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("odd", pa.int64())])
    stage, commit = steps(tmp_path, schema=schema, partition_by=("odd",))
    for epoch in range(1, 5):
        at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if epoch == 4 else NO_WATERMARK)
        batch = pa.record_batch([pa.array([epoch, 10 * epoch], pa.int64()), pa.array([epoch % 2, 0], pa.int64())], schema=schema)
        commit.process(stage.process(Rows(batch, np.zeros(2, np.int32)), at)[0], at)
        assert (list(tmp_path.glob("odd=*")) != []) == (epoch == 4)
    assert sorted(len(list(folder.glob("*.parquet"))) for folder in tmp_path.glob("odd=*")) == [1, 1]
    assert every(tmp_path) == [1, 2, 3, 4, 10, 20, 30, 40]


def test_who_would_close_otherwise_takes_what_was_decided(tmp_path: Path) -> None:
    """Two that have other commits in mind, whatever the reason: nothing is in two files."""
    stage, commit = steps(tmp_path)
    for epoch in range(1, 5):
        given(stage, commit, epoch, epoch)
    one, other = (CommittedFiles(LocalStore(str(tmp_path)), "r1", Patience("x", 0), joins=True) for _ in range(2))
    for files in (one, other):
        files.prepare()
        files.recover()
    one._waiting.pop(4)
    one.close(1 << 40)
    other.close(1 << 40)
    assert plain(tmp_path) == [1, 2, 3] == every(tmp_path)
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_what_a_run_of_yesterday_left_waiting_is_published_by_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch, (stage, commit) in enumerate([steps(tmp_path)] * 3, 1):
        given(stage, commit, epoch, epoch)
    assert (plain(tmp_path), every(tmp_path)) == ([], [1, 2])
    late, files = steps(tmp_path, "r2")[0], CommittedFiles(LocalStore(str(tmp_path)), "r2", Patience("x", 0))
    assert late is not None
    files.prepare()
    files.recover()
    assert plain(tmp_path) == []  # It may go on.
    monkeypatch.setattr(committed, "ABANDONED_S", -1)
    files.recover()
    assert plain(tmp_path) == every(tmp_path) == [1, 2]


def test_what_a_generation_left_waiting_is_published_by_the_next_one(tmp_path: Path) -> None:
    """Where each generation is another run to sinks, nobody goes on with the one before: it need not have been there for a day."""
    for epoch, (stage, commit) in enumerate([steps(tmp_path, "r1.g1")] * 3, 1):
        given(stage, commit, epoch, epoch)
    assert (plain(tmp_path), every(tmp_path)) == ([], [1, 2])
    for run, there in (("r2.g2", []), ("r1.g2", [1, 2])):
        files = CommittedFiles(LocalStore(str(tmp_path)), run, Patience("x", 0), joins=True)
        files.prepare()
        files.recover()
        assert plain(tmp_path) == there


def waiting(path: Path, *, commits: int, store: LocalStore | None = None) -> CommittedFiles:
    """Files of one interval, with a commit at each of so many epochs, of two parts each."""
    files = CommittedFiles(store or LocalStore(str(path)), "r1", Patience("x", 0), joins=True)
    files.prepare()
    files.recover()
    for epoch in range(1, commits + 1):
        files.commit(epoch, [files.stage(epoch, p, pa.table({"key": [10 * epoch + p]})) for p in (0, 1)], 0)
    return files


def test_a_part_that_vanished_while_it_waited_is_an_error(tmp_path: Path) -> None:
    files = waiting(tmp_path, commits=2)
    part = sorted((tmp_path / "_staging").glob("part-*"))[-1]
    part.unlink()
    for _ in range(2):
        with pytest.raises(SinkError, match=part.name):
            files.close(1)
    assert list((tmp_path / "_evenflow").glob("joined-*.json")) == [] == list(tmp_path.glob("*.parquet"))
    assert len(list((tmp_path / "_staging").glob("part-*"))) == 3


def test_a_part_that_vanished_of_another_run_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(tmp_path, commits=2)
    sorted((tmp_path / "_staging").glob("part-*"))[-1].unlink()
    monkeypatch.setattr(committed, "ABANDONED_S", -1)
    files = CommittedFiles(LocalStore(str(tmp_path)), "r2", Patience("x", 0))
    files.prepare()
    files.recover()
    assert list((tmp_path / "_evenflow").glob("joined-*.json")) == []
    assert len(list((tmp_path / "_staging").glob("part-*"))) == 3


class Weighing(LocalStore):
    """weights: bytes of the parts of each file that was joined."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.weights = list[int]()

    def put_joined(self, path: str, parts: Sequence[tuple[str, int]], end: bytes, folder: str) -> None:
        self.weights.append(sum(size for _, size in parts))
        super().put_joined(path, parts, end, folder)


def test_an_interval_of_many_bytes_is_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Weighing(str(tmp_path))
    files = waiting(tmp_path, commits=7, store=store)
    of_one = sum(path.stat().st_size for path in (tmp_path / "_staging").glob("part-*-000000000001-*"))
    monkeypatch.setattr(committed, "JOINED_BYTES", 3 * of_one)
    files.close(1)
    assert store.weights == [3 * of_one, 3 * of_one, of_one]
    assert plain(tmp_path) == every(tmp_path) == sorted(10 * epoch + p for epoch in range(1, 8) for p in (0, 1))
    monkeypatch.setattr(committed, "JOINED_BYTES", 1)
    files.commit(8, [files.stage(8, 0, pa.table({"key": [80]}))], 1)
    files.commit(9, [files.stage(9, 0, pa.table({"key": [90]}))], 1)
    files.close(2)
    assert len(store.weights) == 5, "a commit is one file at least"


def test_a_file_is_not_of_less_than_a_commit(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="let files be of more than commits"):
        sinks.parquet(str(tmp_path), commit_s=10, file_s=5)
    assert sinks.parquet(str(tmp_path), commit_s=1, file_s=60).file_interval_ms == 60_000


class Counting(LocalStore):
    """Counts what a store is asked, and ends the process that removes a part after so many others, if it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.asked: Counter[str] = Counter()
        self.removals = 1 << 40

    def get(self, path: str) -> bytes:
        self.asked["get"] += 1
        return super().get(path)

    def end(self, path: str, size: int) -> bytes:
        self.asked["end"] += 1
        return super().end(path, size)

    def exists(self, path: str) -> bool:
        self.asked["exists"] += 1
        return super().exists(path)

    def modified_s(self, path: str) -> float | None:
        self.asked["modified"] += 1
        return super().modified_s(path)

    def remove(self, path: str) -> None:
        self.asked["remove"] += 1
        self.removals -= path.startswith("_staging/part")
        if self.removals < 0:
            raise KeyboardInterrupt
        super().remove(path)


@pytest.mark.parametrize("removals", [0, 30])
def test_what_a_crash_in_a_large_file_left_is_cleared_up_with_a_request_a_part(tmp_path: Path, removals: int) -> None:
    """Goal: recovery is no work of the square of the parts. Method: a file of 60 commits; its closer dies before it has removed a part, or
    in the middle of them; then requests are counted."""
    store = Counting(tmp_path)
    files = waiting(tmp_path, commits=60, store=store)
    store.removals = removals
    with pytest.raises(KeyboardInterrupt):
        files.close(1 << 40)
    again = Counting(tmp_path)
    CommittedFiles(again, "r1", Patience("x", 0), joins=True).recover()
    left = 2 * 60 - removals
    assert len([name for name in again.names("_staging") if name.startswith("part")]) == 0
    assert again.asked["remove"] <= 2 * 60 and again.asked["exists"] <= 2 and again.asked["modified"] <= 2
    assert again.asked["get"] <= 60 + 2, f"{again.asked} for {left} parts"
    assert len(plain(tmp_path)) == 120
