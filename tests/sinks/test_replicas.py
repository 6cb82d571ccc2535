"""Replicas of the Parquet steps on one directory, in any interleaving of their single touches of the store (protocol E3, O2).

Every replica is a thread that a scheduler lets do one touch after the other. Some are killed, some are stopped for long and go on
when everything is over, some join late with another replica's state. What readers see is checked after every touch.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow.errors import SinkError
from evenflow.operator.operator import Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.sinks.closings import read_committed
from evenflow.sinks.committed import CommittedFiles
from evenflow.store.local import LocalStore
from evenflow.store.patience import Patience
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from tests.drawn import one_in

pytestmark = pytest.mark.one_in(2)

SCHEMA = pa.schema([("key", pa.int64())])
EPOCHS, PARTITIONS = 7, 2
KINDS = ("link", "rename", "object")
INTERVAL_MS = 2


class Killed(BaseException):
    """The process of this replica is gone."""


def refuse(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class SteppedStore:
    """Files in a dict, touched piece by piece. kind: what is one piece, as in `evenflow.store.files`.

    link: a second name is made or refused in one piece, the first one removed in another. rename: the target is looked up, then the file
    renamed or written. object: the same, but a rename is a copy and a removal.
    """

    def __init__(self, files: dict[str, bytes], kind: str, step: Callable[[], None]) -> None:
        self.root, self._files, self._kind, self._step = "memory", files, kind, step

    def put(self, path: str, data: Any) -> None:
        self._step()
        if path in self._files:
            raise refuse(errno.EEXIST, path)
        if self._kind != "link":
            self._step()
        self._files[path] = bytes(data)

    def get(self, path: str) -> bytes:
        self._step()
        if path not in self._files:
            raise refuse(errno.ENOENT, path)
        return self._files[path]

    def end(self, path: str, count: int) -> bytes:
        return self.get(path)[-count:]

    def put_joined(self, path: str, parts: Any, end: bytes, folder: str) -> None:
        self.put(path, b"".join([self.get(part) for part, _ in parts]) + end)

    def move(self, source: str, target: str) -> None:
        self._step()
        if self._kind != "link":
            if target in self._files:
                raise refuse(errno.EEXIST, target)
            self._step()
        if source not in self._files:
            raise refuse(errno.ENOENT, source)
        if self._kind == "link" and target in self._files:
            raise refuse(errno.EEXIST, target)
        self._files[target] = self._files[source]
        if self._kind != "rename":
            self._step()
        self._files.pop(source, None)

    def remove(self, path: str) -> None:
        self._step()
        if self._files.pop(path, None) is None:
            raise refuse(errno.ENOENT, path)

    def exists(self, path: str) -> bool:
        self._step()
        return path in self._files

    def modified_s(self, path: str) -> float | None:
        return 0.0

    def names(self, folder: str) -> list[str]:
        self._step()
        return sorted(name for place, _, name in (path.rpartition("/") for path in self._files) if place == folder)

    def make_folder(self, folder: str) -> None:
        self._step()


class SteppedDisk:
    """A real directory, touched call by call."""

    def __init__(self, store: LocalStore, step: Callable[[], None]) -> None:
        self._store, self._step, self.root = store, step, store.root

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self._step()
            return getattr(self._store, name)(*arguments)

        return call


class Replica(threading.Thread):
    """Runs `work(replica)`, one piece whenever the scheduler says so. ready: whether it could go on now."""

    def __init__(self, name: str, work: Callable[[Replica], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.over = self.killed = False
        self.asleep_until = 0
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] = lambda: True
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self.killed:
                self._work(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self._back.release()

    def step(self) -> None:
        """Called in the thread: wait until it may do the next piece."""
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def wait_for(self, ready: Callable[[], bool]) -> None:
        self.ready = ready
        self.step()
        self.ready = lambda: True

    def advance(self) -> None:
        """Called by the scheduler: let it do one piece."""
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        self.killed = True
        while not self.over:
            self.advance()


def content(epoch: int, partition: int) -> list[int]:
    """Keys that come in an epoch. Some epochs have none, one partition is idle for a while."""
    if epoch % 3 == 2 or (partition == 1 and epoch in (3, 4)):
        return []
    return [epoch * 100 + partition * 10 + i for i in range(3)]


class Scene:
    """Stage and commit replicas on one directory. odd: (replica, epoch, partition) whose rows differ. more: parameters of the steps."""

    def __init__(self, seed: int, kind: str, path: Path, odd: tuple[int, int, int] | None = None, **more: Any) -> None:
        self.random, self.kind, self.path, self.odd, self.more = random.Random(seed), kind, path, odd, more
        self.files: dict[str, bytes] = {}
        self.records: dict[int, Rows] = {}
        self.states: dict[int, bytes | None] = {0: None}
        self.seen: dict[str, bytes] = {}
        self.touches = 0
        self.replicas: list[Replica] = []

    def store(self, step: Callable[[], None]) -> Any:
        return SteppedDisk(LocalStore(str(self.path)), step) if self.kind == "disk" else SteppedStore(self.files, self.kind, step)

    def tick(self, epoch: int) -> Tick:
        return Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if epoch == EPOCHS else NO_WATERMARK)

    def add_stage(self, number: int) -> Replica:
        def work(me: Replica) -> None:
            params: dict[str, Any] = {"commit_interval_ms": INTERVAL_MS, "retries": 0, "store": self.store(me.step), **self.more}
            stage = ParquetStage(SCHEMA, path="x", run="r1", **params)
            for epoch in range(1, EPOCHS + 1):
                pairs = [(p, key) for p in range(PARTITIONS) for key in content(epoch, p)]
                if self.odd is not None and self.odd[0] == number:
                    pairs = [(p, -key if (epoch, p) == self.odd[1:] else key) for p, key in pairs]
                batch = pa.record_batch([pa.array([key for _, key in pairs], pa.int64())], schema=SCHEMA)
                (records,) = stage.process(Rows(batch, np.array([p for p, _ in pairs], np.int32)), self.tick(epoch))
                self.records.setdefault(epoch, records)

        return self._add(Replica(f"stage {number}", work))

    def add_commit(self, number: int, after: int = 0) -> Replica:
        """after: epoch at whose end the state was captured that this replica begins with."""

        def work(me: Replica) -> None:
            params: dict[str, Any] = {"commit_interval_ms": INTERVAL_MS, "retries": 0, "store": self.store(me.step), **self.more}
            commit = ParquetCommit(path="x", run="r1", **params)
            if (state := self.states[after]) is not None:
                commit.install(0, state)
            for epoch in range(after + 1, EPOCHS + 1):
                me.wait_for(lambda epoch=epoch: epoch in self.records)  # type: ignore[misc]
                commit.process(self.records[epoch], self.tick(epoch))
                snapshot = commit.capture(0)
                self.states.setdefault(epoch, snapshot.to_bytes() if snapshot is not None else None)

        return self._add(Replica(f"commit {number}", work))

    def _add(self, replica: Replica) -> Replica:
        self.replicas.append(replica)
        return replica

    def run(self, kills: int, sleeps: int, joins: int) -> None:
        """Until nobody has anything to do. The first stage and the first commit replica are spared."""
        for number in range(self.random.choice([2, 2, 3])):
            self.add_stage(number)
            self.add_commit(number)
        weights = {replica: self.random.choice([1, 1, 5]) for replica in self.replicas}
        while alive := [replica for replica in self.replicas if not replica.over]:
            chance = self.random.random()
            victim = self.random.choice(alive)
            if chance < 0.01 and joins:
                joins -= 1
                weights[self.add_commit(10 + joins, self.random.choice(sorted(self.states)))] = 5
                continue
            if chance < 0.02 and sleeps:
                sleeps -= 1
                victim.asleep_until = self.touches + self.random.choice([20, 100, 10**9])
            elif chance < 0.03 and kills and not victim.name.endswith(" 0"):
                kills -= 1
                victim.kill()
                continue
            able = [replica for replica in alive if replica.ready() and replica.asleep_until <= self.touches]
            if not able:  # Everybody else is done: now those wake that had been given up.
                for replica in alive:
                    replica.asleep_until = 0
                assert any(replica.ready() for replica in alive)
                continue
            self.random.choices(able, [weights[replica] for replica in able])[0].advance()
            self.touches += 1
            if self.odd is None and self.kind != "disk":
                self.check_now()

    def check_now(self) -> None:
        """Published files never change, belong to decided commits and appear in their order; what is decided can be read at any time."""
        decided = set()
        for path in sorted(path for path in self.files if path.startswith("_evenflow/")):
            manifest = json.loads(self.files[path])
            decided.add(manifest["file"])
            staged = [f"_staging/{part['file']}" in self.files for part in manifest["parts"]]
            assert manifest["file"] in self.files or all(staged), manifest["file"]
        published = [name in self.files for name in sorted(decided)]
        assert published == sorted(published, reverse=True), "a commit was published before an earlier one"
        for path, data in self.files.items():
            if "/" not in path:
                assert path in decided
                assert self.seen.setdefault(path, data) == data

    def recover(self) -> None:
        """What the next run does first."""
        files = CommittedFiles(self.store(lambda: None), "r2", Patience("x", 0))
        files.prepare()
        files.recover()

    def rows(self) -> tuple[list[int], list[int]]:
        """(of a plain reader, of read_committed)"""
        if self.kind != "disk":
            for path, data in self.files.items():
                (self.path / path).parent.mkdir(exist_ok=True)
                (self.path / path).write_bytes(data)
        plain = [key for file in sorted(self.path.glob("*.parquet")) for key in pq.read_table(file)["key"].to_pylist()]
        return sorted(plain), sorted(read_committed(str(self.path))["key"].to_pylist())

    def left_in_staging(self) -> list[str]:
        names: list[str] = self.store(lambda: None).names("_staging")
        return names


def seeds(count: int) -> list[tuple[str, int]]:
    return [(kind, seed) for kind in KINDS for seed in range(count)] + [("disk", seed) for seed in range(count // 3)]


@pytest.mark.parametrize(("kind", "seed"), one_in(2, seeds(30), spread=True))
def test_any_interleaving_with_crashes_and_sleepers_gives_every_row_once(kind: str, seed: int, tmp_path: Path) -> None:
    scene = Scene(seed, kind, tmp_path)
    scene.run(kills=2, sleeps=4, joins=2)
    assert [(replica.name, replica.error) for replica in scene.replicas if replica.error is not None] == []
    scene.recover()
    assert [name for name in scene.left_in_staging() if not name.startswith("_probe")] == []
    expected = sorted(key for epoch in range(1, EPOCHS + 1) for p in range(PARTITIONS) for key in content(epoch, p))
    assert scene.rows() == (expected, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", one_in(2, range(15)))
def test_sleepers_that_wake_when_all_is_over_leave_nothing(kind: str, seed: int, tmp_path: Path) -> None:
    """Not even for the next run's recovery."""
    scene = Scene(seed, kind, tmp_path)
    scene.run(kills=0, sleeps=8, joins=1)
    assert [replica.error for replica in scene.replicas if replica.error is not None] == []
    assert scene.left_in_staging() == []


@pytest.mark.parametrize("seed", range(20))
def test_replicas_that_differ_are_caught_and_named(seed: int, tmp_path: Path) -> None:
    """Rows of epoch 4, partition 0 differ in one replica; they become a part of the commit at epoch 6."""
    scene = Scene(seed, "link", tmp_path, odd=(1, 4, 0))
    scene.add_stage(0)
    scene.add_stage(1)
    while alive := [replica for replica in scene.replicas if not replica.over]:
        scene.random.choice(alive).advance()
    errors = [str(replica.error) for replica in scene.replicas if replica.error is not None]
    assert len(errors) == 1
    assert isinstance(scene.replicas[0].error or scene.replicas[1].error, SinkError)
    assert "epoch 6 of run r1, partition 0, this replica has other rows" in errors[0]


def test_a_commit_replica_whose_records_differ_says_where(tmp_path: Path) -> None:
    params: dict[str, Any] = {"path": str(tmp_path), "run": "r1", "retries": 0}
    stage = ParquetStage(SCHEMA, **params)
    batch = pa.record_batch([pa.array([1, 2], pa.int64())], schema=SCHEMA)
    at = Tick(1, 0, NO_WATERMARK, END_OF_STREAM)
    (records,) = stage.process(Rows(batch, np.array([0, 1], np.int32)), at)
    late = ParquetCommit(**params)
    late.process(Rows(records.batch.slice(0, 0), records.partition[:0]), Tick(0, 0, NO_WATERMARK, NO_WATERMARK))
    ParquetCommit(**params).process(records, at)
    with pytest.raises(SinkError, match="epoch 1 of run r1, partition 1, this replica has other rows"):
        late.process(Rows(records.batch.slice(0, 1), records.partition[:1]), at)


def test_a_replica_that_stages_when_the_epoch_is_published_writes_nothing(tmp_path: Path) -> None:
    params: dict[str, Any] = {"path": str(tmp_path), "run": "r1", "retries": 0}
    batch = pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA)
    at = Tick(1, 0, NO_WATERMARK, END_OF_STREAM)
    rows = Rows(batch, np.array([0], np.int32))
    (records,) = ParquetStage(SCHEMA, **params).process(rows, at)
    ParquetCommit(**params).process(records, at)
    (again,) = ParquetStage(SCHEMA, **params).process(rows, at)
    assert again.batch.equals(records.batch)
    assert list((tmp_path / "_staging").iterdir()) == []


WORK = """
import sys
from tests.sinks.test_replicas import work_alone
work_alone(sys.argv[1], float(sys.argv[2]))
"""
MANY_EPOCHS = 60


def work_alone(path: str, linger_s: float) -> None:
    """Both steps for many epochs, at some pace. Runs in a process of its own."""
    params: dict[str, Any] = {"path": path, "run": "r1", "commit_interval_ms": INTERVAL_MS, "retries": 0}
    stage, commit = ParquetStage(SCHEMA, **params), ParquetCommit(**params)
    for epoch in range(1, MANY_EPOCHS + 1):
        batch = pa.record_batch([pa.array([epoch * 10, epoch * 10 + 1], pa.int64())], schema=SCHEMA)
        at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if epoch == MANY_EPOCHS else NO_WATERMARK)
        (records,) = stage.process(Rows(batch, np.array([0, 1], np.int32)), at)
        commit.process(records, at)
        threading.Event().wait(linger_s)


@pytest.mark.conformance
def test_processes_that_are_stopped_and_killed_at_random_moments(tmp_path: Path) -> None:
    """The real thing: four replicas on a real directory; one is stopped until all is over, one now and then, one is killed."""
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'src'}"}
    rng = random.Random(tmp_path.name)
    replicas = [
        subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path), pace], env=environment, cwd=root, stderr=subprocess.PIPE)
        for pace in ("0.004", "0", "0.002", "0.001")
    ]
    spared, zombie, drowsy, doomed = replicas
    try:
        wait = threading.Event()
        while not list(tmp_path.glob("*.parquet")):
            assert all(replica.poll() in (None, 0) for replica in replicas)
            wait.wait(0.005)
        wait.wait(rng.random() / 20)
        zombie.send_signal(signal.SIGSTOP)
        wait.wait(rng.random() / 20)
        doomed.kill()
        while spared.poll() is None:
            drowsy.send_signal(signal.SIGSTOP)
            wait.wait(rng.random() / 20)
            drowsy.send_signal(signal.SIGCONT)
            wait.wait(rng.random() / 50)
        zombie.send_signal(signal.SIGCONT)
        said = {replica.pid: replica.communicate(timeout=60)[1].decode() for replica in (spared, zombie, drowsy)}
        assert [said[replica.pid] for replica in (spared, zombie, drowsy)] == ["", "", ""]
        assert [replica.returncode for replica in (spared, zombie, drowsy)] == [0, 0, 0]
    finally:
        for replica in replicas:
            replica.kill()
            replica.communicate()
    expected = sorted(epoch * 10 + i for epoch in range(1, MANY_EPOCHS + 1) for i in range(2))
    scene = Scene(0, "disk", tmp_path)
    scene.recover()
    assert scene.rows() == (expected, expected)
    # The killed one may leave a file that was not whole yet; it has a name of its own, and goes when it is a day old.
    assert [name for name in scene.left_in_staging() if not name.startswith(".")] == []
