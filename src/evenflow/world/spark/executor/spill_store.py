"""State on the disk of a site's machine, in the directories that Spark has for what does not fit into memory (protocol M1).

A file is open for as long as somebody holds a state in it, and has no name: so the system takes its room back when nobody does, and when
the process ends, whatever ended it; there is nothing to clean up, ever. Room is taken before anything is written, since some file systems
find out that they are full long after. What is read must have the checksum of what was written.

One thread per dataflow writes and reads, beside the event loop.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from evenflow.errors import DiskError
from evenflow.site.events import Event, Kept, Load, Loaded, LoadFailed, Spill, Spilled, SpillFailed
from evenflow.world.spark.executor.beside import Beside
from evenflow.world.spark.net.priority import SWITCH_INTERVAL_S
from evenflow.world.spark.net.reactor import Reactor

log = logging.getLogger("evenflow")

PIECE: Final = 1 << 20
"""Bytes written or read at once."""


def spill_directories() -> list[Path]:
    """Where Spark lets a task write: its executor's local directories, or the system's own for temporary files."""
    named = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or tempfile.gettempdir()
    return [Path(each.strip()) for each in named.split(",") if each.strip()]


class FileKept:
    """A state in a file."""

    def __init__(self, file: OpenFile, start: int, size: int, checksum: int) -> None:
        self._file, self._start, self._size, self._checksum = file, start, size, checksum

    @property
    def size(self) -> int:
        return self._size

    def to_bytes(self) -> bytes:
        """Raises DiskError if it cannot be read, or is not what was written."""
        try:
            data = self._file.read(self._start, self._size)
        except OSError as error:
            raise DiskError(f"{self._size} bytes of state cannot be read from {self._file.directory}: {error}") from error
        if len(data) != self._size or zlib.crc32(data) != self._checksum:
            raise DiskError(f"{self._size} bytes of state on {self._file.directory} are not what was written there")
        return data


class OpenFile:
    """A file without a name in a directory, with room for `size` bytes. Raises OSError."""

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory
        self.fd = open_nameless(directory)
        weakref.finalize(self, os.close, self.fd).atexit = False
        if size:
            os.posix_fallocate(self.fd, 0, size)

    def write(self, start: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self.fd, view[:PIECE], start)
            start, view = start + written, view[written:]

    def read(self, start: int, size: int) -> bytes:
        """As many of the bytes as there are."""
        pieces: list[bytes] = []
        while size:
            piece = os.pread(self.fd, min(size, PIECE), start)
            if not piece:
                break
            pieces.append(piece)
            start, size = start + len(piece), size - len(piece)
        return b"".join(pieces)


def open_nameless(directory: Path) -> int:
    """A new file that only its descriptor leads to."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT) or not directory.is_dir():
            raise
    fd, name = tempfile.mkstemp(prefix="evenflow-", dir=directory)  # A file system that has no such files.
    os.unlink(name)
    return fd


def put_aside(data: bytes, directories: Sequence[Path]) -> bytes | memoryview:
    """The same bytes, of which the system keeps in memory what it has room for: in a file. As they are, if no directory takes them."""
    for directory in directories if data else ():
        try:
            file = OpenFile(directory, len(data))
            file.write(0, data)
            return memoryview(mmap.mmap(file.fd, len(data), prot=mmap.PROT_READ))
        except OSError as error:
            log.warning("%d bytes of a checkpoint stay in memory while they are read: %s: %r", len(data), directory, error)
    return data


def write_states(states: Sequence[tuple[int, int, bytes]], directories: Sequence[Path]) -> tuple[tuple[int, int, Kept], ...]:
    """Write them to one file, in the first directory that takes it. Raises DiskError if none does."""
    size, troubles = sum(len(data) for _, _, data in states), []
    for directory in directories:
        try:
            file, start, kept = OpenFile(directory, size), 0, list[tuple[int, int, Kept]]()
            for partition, step, data in states:
                file.write(start, data)
                kept.append((partition, step, FileKept(file, start, len(data), zlib.crc32(data))))
                start += len(data)
            return tuple(kept)
        except OSError as error:
            troubles.append(f"{directory}: {error.strerror or error}")
    raise DiskError(f"{size} bytes of state cannot be written ({'; '.join(troubles)}); make room in Spark's local directories")


class SpillStore(Beside[Spill | Load]):
    """See the module. answer: is called on the event loop. directories: in the order in which they are tried."""

    def __init__(self, name: str, reactor: Reactor, answer: Callable[[Event], None], directories: Sequence[Path] | None = None) -> None:
        self._directories = spill_directories() if directories is None else list(directories)
        if sys.getswitchinterval() > SWITCH_INTERVAL_S:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        super().__init__(name, reactor, answer)

    def _done(self, order: Spill | Load) -> Event:
        return self._spill(order) if isinstance(order, Spill) else self._load(order)

    def _spill(self, action: Spill) -> Event:
        try:
            states = [(partition, step, snapshot.to_bytes()) for partition, step, snapshot in action.states]
            return Spilled(action.ticket, write_states(states, self._directories))
        except Exception as error:  # Whatever it is: without an answer nobody asks the disk for anything any more.
            return SpillFailed(action.ticket, _why(error, "state was not written"))

    def _load(self, action: Load) -> Event:
        try:
            return Loaded(action.ticket, {(partition, step): kept.to_bytes() for partition, step, kept in action.kept})
        except Exception as error:
            return LoadFailed(action.ticket, _why(error, "state was not read"))


def _why(error: Exception, what: str) -> str:
    """What is said of it. Of what is no trouble of a disk the log has the place."""
    if isinstance(error, DiskError):
        return str(error)
    log.exception("%s", what)
    return f"{what}: {type(error).__name__}: {error}"
