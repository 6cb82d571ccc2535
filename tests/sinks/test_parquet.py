"""Parquet with epoch commits (protocol O2): exactly once, whatever is repeated, and errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from evenflow import sinks
from evenflow.errors import SinkError
from evenflow.operator.operator import NEVER_US, Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.sinks.closings import read_committed
from evenflow.sinks.committed import ABANDONED_S
from evenflow.store import local as local_module
from evenflow.store.arrow import open_file_store
from evenflow.store.local import LocalStore
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK

from .failing import FailingStore, after

SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


def rows(*pairs: tuple[int, int]) -> Rows:
    """(partition, key) pairs as rows."""
    batch = pa.record_batch([pa.array([k for _, k in pairs], pa.int64()), pa.array([f"t{k}" for _, k in pairs])], schema=SCHEMA)
    return Rows(batch, np.array([p for p, _ in pairs], np.int32))


def tick(epoch: int, stamp_s: float, last: bool = False) -> Tick:
    return Tick(epoch, int(stamp_s * 1_000_000), NO_WATERMARK, END_OF_STREAM if last else NO_WATERMARK)


class Pair:
    """A stage and a commit step on one directory."""

    def __init__(self, path: Path, run: str = "r1", store: Any = None, **options: Any) -> None:
        params = sinks.parquet(str(path), **options).step_params(run)
        self.stage = ParquetStage(SCHEMA, **params, store=store)
        self.commit = ParquetCommit(**params, store=store)

    def epoch(self, epoch: int, stamp_s: float, *pairs: tuple[int, int], last: bool = False) -> list[dict[str, Any]]:
        at = tick(epoch, stamp_s, last)
        (records,) = self.stage.process(rows(*pairs), at)
        (done,) = self.commit.process(records, at)
        return done.batch.to_pylist()


class Growing:
    """A held batch during whose measurement another thread holds rows of one more partition."""

    def __init__(self, stage: ParquetStage) -> None:
        self._stage = stage

    @property
    def nbytes(self) -> int:
        self._stage.process(rows((9, 9)), tick(2, 0.1))
        return 5


def test_the_size_of_what_is_held_can_be_asked_for_at_any_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.epoch(1, 0.0, (0, 1))
    pair.stage._held[0].batches = (Growing(pair.stage),)  # type: ignore[assignment]
    assert pair.stage.state_bytes() == 5


def keys(path: Path) -> list[int]:
    table = read_committed(str(path))
    return sorted(table["key"].to_pylist()) if table.num_columns else []


def test_rows_become_visible_when_the_stamp_crosses_a_commit_interval(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "out")
    assert pair.epoch(1, 10.2, (0, 1), (1, 2), (0, 3)) == []
    assert pair.epoch(2, 10.9, (1, 4)) == []
    assert keys(tmp_path / "out") == []
    records = pair.epoch(3, 11.0, (0, 5))
    assert [(r["epoch"], r["partition"], r["rows"]) for r in records] == [(3, 0, 2), (3, 1, 2)]
    assert keys(tmp_path / "out") == [1, 2, 3, 4]
    assert pair.epoch(4, 11.5, (0, 6)) == []
    pair.epoch(5, 11.6, (0, 7), last=True)
    assert keys(tmp_path / "out") == [1, 2, 3, 4, 5, 6, 7]
    assert pair.stage.state_bytes() == 0


def test_a_commit_has_whole_epochs_also_of_partitions_that_had_no_rows_before(tmp_path: Path) -> None:
    """Partition 1 has its first rows in the epoch that cuts: a commit with those of partition 0 alone would be a part of that epoch."""
    pair = Pair(tmp_path)
    pair.epoch(1, 10.2, (0, 1))
    pair.epoch(2, 11.0, (0, 2), (1, 3))
    assert keys(tmp_path) == [1]
    pair.epoch(3, 11.9, (1, 4))
    pair.epoch(4, 12.0)
    assert keys(tmp_path) == [1, 2, 3, 4]


def test_what_is_held_asks_for_an_epoch_when_its_interval_ends(tmp_path: Path) -> None:
    """No row may come for hours; those that have come become visible all the same."""
    pair = Pair(tmp_path)
    assert pair.stage.next_us(0) == NEVER_US
    pair.epoch(1, 10.2, (0, 1))
    assert pair.stage.next_us(10_200_000) == 11_000_000
    pair.epoch(2, 11.0)
    assert keys(tmp_path) == [1]
    assert pair.stage.next_us(11_000_000) == NEVER_US


def test_plain_readers_see_exactly_the_committed_files(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.epoch(1, 1.0, (0, 1), (1, 2))
    pair.epoch(2, 2.0)
    pair.epoch(3, 2.1, (0, 9))
    pair.stage.process(rows(), tick(4, 3.0))  # Staged, never committed.
    assert [name.endswith("-00000.staged") for name in os.listdir(tmp_path / "_staging")].count(True) == 1
    for seen in (pq.read_table(tmp_path).to_pandas(), pd.read_parquet(tmp_path)):
        assert sorted(seen["key"]) == [1, 2]
    assert keys(tmp_path) == [1, 2]


def test_spark_skips_what_begins_with_an_underscore(tmp_path: Path) -> None:
    """Spark's rule for hidden paths is a prefix of `_` or `.`; every folder of ours that is not output obeys it."""
    Pair(tmp_path).epoch(1, 1.0, (0, 1), last=True)
    visible = [name for name in os.listdir(tmp_path) if not name.startswith(("_", "."))]
    assert visible == ["commit-r1-000000000001.parquet"]


def test_an_epoch_that_is_committed_again_changes_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    (records,) = pair.stage.process(rows((0, 1)), tick(5, 1.0, last=True))
    pair.commit.process(records, tick(5, 1.0))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")}
    pair.commit.process(records, tick(5, 1.0))
    pair.commit.process(records, tick(4, 1.0))
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")} == before
    again = Pair(tmp_path)  # A new site repeats the epoch from the same input.
    again.epoch(5, 1.0, (0, 1), last=True)
    assert keys(tmp_path) == [1]
    assert os.listdir(tmp_path / "_staging") == []


@pytest.mark.parametrize(("method", "done"), [("end", 0), ("end", 3), ("put_joined", 0), ("remove", 2), ("remove", 4)])
def test_a_crash_during_publication_is_repaired_from_the_manifest(tmp_path: Path, method: str, done: int) -> None:
    """The manifest decides: readers of manifests see the commit at once, plain ones the whole or nothing, and recovery does the rest.

    The first two removals are those of probes, the others are those of the parts.
    """
    store = after(method, LocalStore(str(tmp_path)), done)
    pair = Pair(tmp_path, store=store, retries=0)
    with pytest.raises(SinkError, match="publish"):
        pair.epoch(1, 1.0, (0, 1), (1, 2), (2, 3), last=True)
    assert store.calls == done + 1
    assert keys(tmp_path) == [1, 2, 3]
    seen = [pq.read_table(file)["key"].to_pylist() for file in tmp_path.glob("*.parquet")]
    assert seen == ([[1, 2, 3]] if method == "remove" else [])
    Pair(tmp_path, run="r2").epoch(1, 1.0)  # Any later run repairs what it finds.
    assert pq.read_table(tmp_path)["key"].to_pylist() == [1, 2, 3]
    assert os.listdir(tmp_path / "_staging") == []


def test_a_crash_before_the_manifest_leaves_nothing_visible_and_can_be_repeated(tmp_path: Path) -> None:
    broken = FailingStore(LocalStore(str(tmp_path)), "put", errno.EIO, 99, where="manifest")
    with pytest.raises(SinkError, match="manifest"):
        Pair(tmp_path, store=broken, retries=0).epoch(1, 1.0, (0, 1), last=True)
    assert keys(tmp_path) == []
    assert not list(tmp_path.glob("*.parquet"))
    Pair(tmp_path).epoch(1, 1.0, (0, 1), last=True)
    assert keys(tmp_path) == [1]


def test_files_that_nobody_has_decided_about_for_a_day_are_removed(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.stage.process(rows((0, 1)), tick(1, 1.0, last=True))
    (tmp_path / "_staging" / ".part-x.tmp").write_bytes(b"half of")
    Pair(tmp_path, run="r2").epoch(1, 1.0, (0, 2), last=True)
    assert len(list((tmp_path / "_staging").iterdir())) == 2  # They may belong to a run that is active.
    for left in (tmp_path / "_staging").iterdir():
        os.utime(left, (0, left.stat().st_mtime - ABANDONED_S - 60))
    Pair(tmp_path, run="r3").epoch(1, 1.0, (0, 3), last=True)
    assert list((tmp_path / "_staging").iterdir()) == []
    assert keys(tmp_path) == [2, 3]


def test_a_directory_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)

    monkeypatch.setattr(os, "link", link)
    (one, other) = Pair(tmp_path), Pair(tmp_path)
    for pair in (one, other):
        pair.epoch(1, 1.0, (0, 1), (1, 2), last=True)
    assert keys(tmp_path) == [1, 2]
    assert os.listdir(tmp_path / "_staging") == []


def test_a_file_that_is_not_what_was_committed_is_named(tmp_path: Path) -> None:
    Pair(tmp_path).epoch(1, 1.0, (0, 1), last=True)
    file = next(tmp_path.glob("*.parquet"))
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    with pytest.raises(SinkError, match="is not what was committed"):
        read_committed(str(tmp_path))


def test_a_staged_file_that_vanishes_before_anybody_decided_is_an_error(tmp_path: Path) -> None:
    pair = Pair(tmp_path, retries=0)
    (records,) = pair.stage.process(rows((0, 1)), tick(1, 1.0, last=True))
    next((tmp_path / "_staging").glob("*.staged")).unlink()
    with pytest.raises(SinkError, match=r"part-r1-000000000001-00000.* has vanished"):
        pair.commit.process(records, tick(1, 1.0, last=True))


def test_who_takes_published_files_away_does_not_disturb_a_replica_that_is_behind(tmp_path: Path) -> None:
    ahead, behind = Pair(tmp_path), Pair(tmp_path)
    behind.epoch(1, 0.0)
    ahead.epoch(2, 1.0, (0, 1), last=True)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    behind.epoch(2, 1.0, (0, 1), last=True)
    assert list(tmp_path.glob("*.parquet")) == []


def test_runs_add_to_a_directory(tmp_path: Path) -> None:
    Pair(tmp_path, run="a").epoch(1, 1.0, (0, 1), last=True)
    Pair(tmp_path, run="b").epoch(1, 1.0, (0, 2), last=True)
    assert keys(tmp_path) == [1, 2]


def test_moving_a_partition_between_two_epochs_changes_no_byte(tmp_path: Path) -> None:
    script = [(1, 1.0, (0, 1), (1, 2)), (2, 1.5, (1, 3)), (3, 2.0, (0, 4), (1, 5)), (4, 2.1, (1, 6))]
    whole = Pair(tmp_path / "whole")
    for step in script:
        whole.epoch(*step)
    whole.epoch(5, 2.2, last=True)
    for cut in range(1, 5):
        first, second = Pair(tmp_path / f"cut{cut}"), Pair(tmp_path / f"cut{cut}")
        for epoch, stamp, *pairs in script:
            if epoch == cut:
                snapshot = first.stage.capture(1)
                if snapshot is not None:
                    second.stage.install(1, snapshot.to_bytes())
                first.stage.drop(1)
            here = [p for p in pairs if p[0] == 0 or epoch < cut]
            there = [p for p in pairs if p[0] == 1 and epoch >= cut]
            at = tick(epoch, stamp)
            outputs = [first.stage.process(rows(*here), at)[0], second.stage.process(rows(*there), at)[0]]
            joined = pa.concat_batches([o.batch for o in outputs])
            first.commit.process(Rows(joined, np.concatenate([o.partition for o in outputs])), at)
        at = tick(5, 2.2, last=True)
        outputs = [first.stage.process(rows(), at)[0], second.stage.process(rows(), at)[0]]
        joined = pa.concat_batches([o.batch for o in outputs])
        first.commit.process(Rows(joined, np.concatenate([o.partition for o in outputs])), at)
        names = sorted(p.name for p in (tmp_path / "whole").glob("*.parquet"))
        assert sorted(p.name for p in (tmp_path / f"cut{cut}").glob("*.parquet")) == names
        assert len(names) == 2
        for name in names:
            assert (tmp_path / f"cut{cut}" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_snapshot_does_not_see_later_rows(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.epoch(1, 1.0, (0, 1))
    snapshot = pair.stage.capture(0)
    assert snapshot is not None
    frozen = snapshot.to_bytes()
    pair.epoch(2, 1.1, (0, 2))
    assert snapshot.to_bytes() == frozen
    assert pair.stage.capture(1) is None


def unwritable(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file" / "out"


@pytest.mark.parametrize("place", [unwritable, lambda _: Path("/proc/evenflow-out")], ids=["below-a-file", "proc"])
def test_an_unwritable_directory_is_an_error_before_any_row(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    path = place(tmp_path)
    with pytest.raises(SinkError, match=f"(?s){path}.*(another path|every executor)"):
        sinks.parquet(str(path)).open("r1")
    pair = Pair(path, retries=1)
    with pytest.raises(SinkError, match=str(path)):
        pair.epoch(1, 1.0, (0, 1))
    assert pair.stage.state_bytes() == 0


def test_no_right_to_write_says_so(tmp_path: Path) -> None:
    store = FailingStore(LocalStore(str(tmp_path)), "put", errno.EACCES, 1)
    with pytest.raises(SinkError, match="not writable: give the user of the executors the right"):
        Pair(tmp_path, store=store).epoch(1, 1.0, (0, 1))
    assert store.calls == 1  # Hopeless, so not tried again.


def test_a_directory_without_the_right_to_write(tmp_path: Path) -> None:
    """The same with the kernel's own refusal, by a process that is not root."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if os.stat(folder).st_uid == os.getuid() and "pytest" in str(folder):
            os.chmod(folder, 0o755)
    if os.getuid() != 0:
        with pytest.raises(SinkError, match="not writable"):
            sinks.parquet(str(locked)).open("r")
        return
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            sinks.parquet(str(locked)).open("r")
        except SinkError as error:
            os._exit(0 if "not writable" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_failure_that_passes_is_waited_for_and_loses_nothing(tmp_path: Path) -> None:
    waits: list[int] = []
    store = FailingStore(LocalStore(str(tmp_path)), "put", errno.EIO, 3, where="part-")
    params = sinks.parquet(str(tmp_path)).step_params("r1", waits.append)
    stage, commit = ParquetStage(SCHEMA, **params, store=store), ParquetCommit(**params)
    (records,) = stage.process(rows((0, 1)), tick(1, 1.0, last=True))
    commit.process(records, tick(1, 1.0, last=True))
    assert waits == [100, 200, 400]
    assert keys(tmp_path) == [1]


def test_when_patience_ends_the_state_is_as_before_and_the_epoch_can_come_again(tmp_path: Path) -> None:
    store = FailingStore(LocalStore(str(tmp_path)), "put", errno.EIO, 3, where="part-")
    pair = Pair(tmp_path, store=store, retries=2)
    pair.epoch(1, 1.0, (0, 1))
    with pytest.raises(SinkError, match=r"3 tries"):
        pair.epoch(2, 2.0, (0, 2), (1, 3))
    assert keys(tmp_path) == []
    pair.epoch(2, 2.0, (0, 2), (1, 3))
    pair.epoch(3, 2.0, last=True)
    assert keys(tmp_path) == [1, 2, 3]


def test_a_full_disk_says_so_with_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file is led to /dev/full, on which every write ends with ENOSPC."""
    pair = Pair(tmp_path, retries=0)
    pair.epoch(1, 1.0, (0, 1))
    beside = tmp_path / "_staging" / ".beside.tmp"
    beside.symlink_to("/dev/full")
    with monkeypatch.context() as patch:
        patch.setattr(local_module, "name_beside", lambda path: str(beside))
        with pytest.raises(SinkError, match="the disk is full"):
            pair.epoch(2, 2.0)
    assert not beside.is_symlink()  # What was half written is gone.
    pair.epoch(2, 2.0)
    assert keys(tmp_path) == [1]


def test_a_uri_goes_through_pyarrow_file_systems(tmp_path: Path) -> None:
    assert isinstance(open_file_store(f"file://{tmp_path}"), LocalStore)
    with pytest.raises(SinkError, match="nosuch"):
        open_file_store("nosuch://bucket/path")
    store = open_file_store("mock:///out")
    params = sinks.parquet("mock:///out").step_params("r1")
    stage, commit = ParquetStage(SCHEMA, **params, store=store), ParquetCommit(**params, store=store)
    (records,) = stage.process(rows((0, 1), (1, 2)), tick(1, 1.0, last=True))
    commit.process(records, tick(1, 1.0, last=True))
    assert store.names("") == ["commit-r1-000000000001.parquet"]
    assert store.names("_staging") == []
    assert store.names("_evenflow") == ["manifest-r1-000000000001.json"]
    assert store.names("_nowhere") == []
    table = pq.read_table(pa.BufferReader(store.get("commit-r1-000000000001.parquet")))
    assert table["key"].to_pylist() == [1, 2]


def test_a_file_that_somebody_deleted_is_named(tmp_path: Path) -> None:
    Pair(tmp_path).epoch(1, 1.0, (0, 1), last=True)
    next(tmp_path.glob("*.parquet")).unlink()
    with pytest.raises(SinkError, match=r"commit-r1-000000000001.parquet .* deleted by somebody else"):
        read_committed(str(tmp_path))


def test_a_step_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="run"):
        Pair(tmp_path, run="").epoch(1, 1.0)
    with pytest.raises(SinkError, match="file name"):
        Pair(tmp_path, run="a/b").epoch(1, 1.0)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_of_a_zone_are_partition_columns_as_others(tmp_path: Path, zone: str | None) -> None:
    """Goal: `read_committed` has the values that the folders stand for, of every type that is let in."""
    sink = sinks.parquet(str(tmp_path), partition_by="at")
    batch = pa.record_batch({"at": pa.array([1_500_000, -1, None], pa.timestamp("us", zone)), "v": [1, 2, 3]})
    sink.prepare("r1", batch.schema)
    sink.open("r1").write(1, batch)
    assert sink.read().sort_by("v").select(["at", "v"]).equals(pa.Table.from_batches([batch]))


def test_partition_columns_are_folders_and_a_commit_is_whole_after_a_death_between_them(tmp_path: Path) -> None:
    """Goal: all rows once, in the folders that other readers know. Method: the store dies when the first of two folders has its file; then
    another replica does the same again."""
    sink = sinks.parquet(str(tmp_path), partition_by="key, text", commit_s=0.001, retries=0)
    schema = pa.schema([*SCHEMA, ("v", pa.float64())])
    batch = pa.record_batch([pa.array([1, 2, 1, None]), pa.array(["a/b", "..", "a/b", ""]), pa.array([0.5, 1.5, 2.5, 3.5])], schema=schema)
    given = Rows(batch, np.array([0, 0, 1, 1], np.int32))
    sink.prepare("r1", schema)
    for store in (after("put_joined", LocalStore(str(tmp_path)), 1), None, None):
        stage = ParquetStage(schema, **sink.step_params("r1"))
        commit = ParquetCommit(sink.record_schema, **sink.step_params("r1"), store=store)
        (records,) = stage.process(given, tick(1, 1.0, last=True))
        if store is not None:
            with pytest.raises(SinkError, match="publish"):
                commit.process(records, tick(1, 1.0, last=True))
            assert len(list(tmp_path.glob("key=*/text=*/*.parquet"))) == 1
            assert sink.read().num_rows == 4, "it was decided"
        else:
            commit.process(records, tick(1, 1.0, last=True))
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.glob("*/*/*.parquet"))
    name = "commit-r1-000000000001.parquet"
    nothing = "__HIVE_DEFAULT_PARTITION__"
    assert files == [f"key=1/text=a%2Fb/{name}", f"key=2/text=../{name}", f"key={nothing}/text={nothing}/{name}"]
    assert pq.read_table(tmp_path / files[0], partitioning=None)["v"].to_pylist() == [0.5, 2.5]
    expected = [(0.5, 1, "a/b"), (2.5, 1, "a/b"), (1.5, 2, ".."), (3.5, None, None)]
    found = sink.read()
    assert [tuple(row.values()) for row in found.to_pylist()] == expected and found.schema.field("key").type == pa.int64()
    plain = ds.dataset(tmp_path, partitioning="hive", format="parquet").to_table().to_pylist()
    assert sorted((row["v"], row["key"], row["text"]) for row in plain) == sorted(expected)
    assert not any(Path(tmp_path, "_staging").iterdir())
    with pytest.raises(SinkError, match="no such column"):
        sinks.parquet(str(tmp_path), partition_by="day").prepare("r1", schema)
