"""The store of spilled state: files without names, checksums, directories that are full, are not there, or lose what they have."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from evenflow.errors import DiskError
from evenflow.site.events import Event, Load, Loaded, LoadFailed, Spill, Spilled, SpillFailed
from evenflow.world.spark.executor import spill_store
from evenflow.world.spark.executor.spill_store import FileKept, OpenFile, SpillStore, put_aside, spill_directories, write_states
from evenflow.world.spark.net.reactor import Reactor


class State:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def to_bytes(self) -> bytes:
        return self._data


STATES = [(3, 0, b"abc" * 1000), (3, 1, b""), (7, 0, bytes(range(256)) * 9000)]


def ask(directories: list[Path], *actions: Spill | Load) -> list[Event]:
    """The answers to these actions."""
    reactor, answers = Reactor(), list[Event]()
    store = SpillStore("test", reactor, answers.append, directories)
    for action in actions:
        store.ask(action)
    while len(answers) < len(actions):
        reactor.poll(5.0)
    store.close()
    assert store.join(5.0)
    reactor.close()
    return answers


def test_what_is_written_is_read_and_no_file_has_a_name(tmp_path: Path) -> None:
    (written,) = ask([tmp_path], Spill(1, tuple((p, s, State(data)) for p, s, data in STATES)))
    assert isinstance(written, Spilled) and written.ticket == 1
    assert [(p, s, kept.size) for p, s, kept in written.kept] == [(p, s, len(data)) for p, s, data in STATES]
    assert list(tmp_path.iterdir()) == []
    (read,) = ask([tmp_path], Load(2, written.kept))
    assert read == Loaded(2, {(p, s): data for p, s, data in STATES})


class Unwritable(State):
    """State of which no bytes can be made. error: why."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def to_bytes(self) -> bytes:
        raise self._error


@pytest.mark.parametrize("error", [MemoryError("no room"), UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogates not allowed")])
def test_whatever_goes_wrong_is_an_answer_and_the_next_order_is_carried_out(tmp_path: Path, error: Exception) -> None:
    """Without one the site would ask its disk for nothing any more, and what waits for it would wait for ever."""
    bad = ((3, 0, Unwritable(error)),)
    failed, written = ask([tmp_path], Spill(1, bad), Spill(2, ((3, 0, State(b"abc")),)))
    assert isinstance(failed, SpillFailed) and failed.ticket == 1 and type(error).__name__ in failed.why
    assert isinstance(written, Spilled) and written.ticket == 2
    unread, read = ask([tmp_path], Load(3, bad), Load(4, written.kept))  # type: ignore[arg-type]
    assert isinstance(unread, LoadFailed) and unread.ticket == 3 and type(error).__name__ in unread.why
    assert read == Loaded(4, {(3, 0): b"abc"})


def test_what_is_put_aside_is_a_file_until_nobody_looks_at_it(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    aside = put_aside(data, [tmp_path / "nowhere", tmp_path])
    assert isinstance(aside, memoryview) and aside == data
    assert list(tmp_path.iterdir()) == [] and str(tmp_path) in Path("/proc/self/maps").read_text()
    del aside
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_what_no_disk_takes_stays_as_it_is(tmp_path: Path) -> None:
    data = b"abc"
    assert put_aside(data, [tmp_path / "nowhere"]) is data and put_aside(b"", [tmp_path]) == b""


def test_the_file_is_closed_with_the_last_state_in_it(tmp_path: Path) -> None:
    kept = list(write_states(STATES, [tmp_path]))
    fd = kept[0][2]._file.fd  # type: ignore[attr-defined]
    last = kept.pop()
    kept.clear()
    os.fstat(fd)
    assert last[2].to_bytes() == STATES[-1][2]
    del last
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_file_system_without_nameless_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: object, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(path, flags, mode)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(spill_store.os, "open", refuse)
    kept = write_states(STATES, [tmp_path])
    assert list(tmp_path.iterdir()) == [] and kept[2][2].to_bytes() == STATES[2][2]


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill_store.os, "posix_fallocate", full)
    (answer,) = ask([tmp_path], Spill(1, ((0, 0, State(b"x")),)))
    assert isinstance(answer, SpillFailed) and "No space left" in answer.why and str(tmp_path) in answer.why


def test_a_bad_directory_is_passed_over_for_the_next(tmp_path: Path) -> None:
    kept = write_states(STATES, [tmp_path / "missing", tmp_path])
    assert kept[0][2].to_bytes() == STATES[0][2]
    with pytest.raises(DiskError, match="missing.*make room"):
        write_states(STATES, [tmp_path / "missing"])


def test_what_was_altered_or_cut_on_disk_is_not_given_out(tmp_path: Path) -> None:
    kept = write_states(STATES, [tmp_path])
    file = kept[0][2]._file  # type: ignore[attr-defined]
    file.write(5, b"?")
    (answer,) = ask([tmp_path], Load(4, kept))
    assert isinstance(answer, LoadFailed) and "not what was written" in answer.why
    os.ftruncate(file.fd, 100)
    with pytest.raises(DiskError, match="not what was written"):
        kept[2][2].to_bytes()


def test_a_failing_read_is_an_error_that_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FileKept(OpenFile(tmp_path, 3), 0, 3, 0)

    def fail(fd: int, size: int, start: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(spill_store.os, "pread", fail)
    with pytest.raises(DiskError, match=f"{tmp_path}.*Input/output"):
        kept.to_bytes()


def test_directories_are_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/a, /b")
    assert spill_directories() == [Path("/a"), Path("/b")]
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    assert len(spill_directories()) == 1
