"""Files in a directory, locally or in any file system that pyarrow knows, with atomic writes and patience.

A file appears whole or not at all: locally it is written beside its place, forced to the disk and renamed. What a failure means
is decided here, once: `Patience` tries again what may pass and turns everything else into a SinkError that says what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.errors import SinkError

T = TypeVar("T")

HOPELESS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG})
"""Errors that waiting does not mend. A full disk is not among them: somebody may make room."""


class FileStore(Protocol):
    """Files below one directory; every path is relative to it. All methods raise OSError."""

    root: str

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file so that it appears whole or not at all; replaces one that is there."""

    def get(self, path: str) -> bytes:
        """A file's content. FileNotFoundError if there is none."""

    def move(self, source: str, target: str) -> None:
        """Rename a file; replaces one that is there."""

    def remove(self, path: str) -> None:
        """Delete a file."""

    def exists(self, path: str) -> bool:
        """Is there such a file?"""

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if there is no such folder."""

    def make_folder(self, folder: str) -> None:
        """Create a folder and what is above it, if they are not there."""


class LocalStore:
    """A directory of the local machine, or one that is mounted on it."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        folder, name = os.path.split(self._at(path))
        # Replicas may write the same file at the same time: each has its own temporary name, and the last rename wins with equal content.
        beside = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
        try:
            with open(beside, "wb") as out:
                out.write(memoryview(data))
                out.flush()
                os.fsync(out.fileno())
            os.replace(beside, os.path.join(folder, name))
        except OSError:
            if os.path.lexists(beside):
                os.unlink(beside)
            raise
        force_folder(folder)

    def get(self, path: str) -> bytes:
        with open(self._at(path), "rb") as file:
            return file.read()

    def move(self, source: str, target: str) -> None:
        os.replace(self._at(source), self._at(target))
        force_folder(os.path.dirname(self._at(target)))

    def remove(self, path: str) -> None:
        os.unlink(self._at(path))

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._at(path))

    def names(self, folder: str) -> list[str]:
        if not os.path.isdir(self._at(folder)):
            return []
        return sorted(entry.name for entry in os.scandir(self._at(folder)) if entry.is_file())

    def make_folder(self, folder: str) -> None:
        os.makedirs(self._at(folder), exist_ok=True)


def force_folder(folder: str) -> None:
    """Make a rename durable: a directory's entries are forced to the disk like a file's content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ArrowStore:
    """A directory of a pyarrow file system (object stores, HDFS, fsspec). A close publishes an object whole, so `put` needs no
    second name.
    """

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str) -> None:
        self._fs, self.root = filesystem, root.rstrip("/")

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._fs.open_output_stream(self._at(path)) as out:
            out.write(data)

    def get(self, path: str) -> bytes:
        with self._fs.open_input_stream(self._at(path)) as file:
            return bytes(file.read())

    def move(self, source: str, target: str) -> None:
        self._fs.move(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        self._fs.delete_file(self._at(path))

    def exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(self._at(path)).type == arrow_fs.FileType.File)

    def names(self, folder: str) -> list[str]:
        infos = self._fs.get_file_info(arrow_fs.FileSelector(self._at(folder), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == arrow_fs.FileType.File)

    def make_folder(self, folder: str) -> None:
        self._fs.create_dir(self._at(folder), recursive=True)


def open_store(path: str) -> FileStore:
    """The store at a local path or URI. Raises SinkError for a URI whose file system pyarrow does not have."""
    scheme = urlsplit(path).scheme
    if scheme in ("", "file"):
        return LocalStore(unquote(urlsplit(path).path) if scheme else path)
    try:
        filesystem, root = arrow_fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        raise SinkError(f"cannot open {path}: {error}. Give a local path or a URI that pyarrow.fs.FileSystem.from_uri accepts") from error
    return ArrowStore(filesystem, root)


def no_wait(delay_ms: int) -> None:
    """Try again at once: for callers that have no clock to wait with."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a failing action is repeated: `retries` times more, waiting `backoff_ms`, then twice that, and so on, by `wait(ms)`."""

    root: str
    retries: int = 5
    backoff_ms: int = 100
    wait: Callable[[int], None] = no_wait

    def attempt(self, what: str, action: Callable[[], T]) -> T:
        """The action's result. Raises SinkError, naming `what` and the directory, when it is hopeless or patience has ended."""
        for tries in range(self.retries + 1):
            try:
                return action()
            except OSError as error:
                if error.errno in HOPELESS or tries == self.retries:
                    raise SinkError(explain(what, self.root, error, tries + 1)) from error
                self.wait(self.backoff_ms << tries)
        raise AssertionError("unreachable: the last try returns or raises")


def explain(what: str, root: str, error: OSError, tries: int) -> str:
    """What failed, where, and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "the disk is full: make room there or choose another path"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "the directory is not writable: give the user of the executors the right to write there or choose another path"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        advice = "a part of the path is a file: choose another path"
    else:
        advice = "check that every executor can reach and write it"
    return f"parquet sink cannot {what} in {root} ({tries} tries): {error}; {advice}. No row of this commit has been acknowledged"
