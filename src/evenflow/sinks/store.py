"""Files in a directory, locally or in any file system that pyarrow knows, with atomic writes and patience.

A file appears whole or not at all, and no file is ever replaced: several replicas, one of them perhaps given up for dead long ago,
may write and publish the same file at the same time, and the first one wins. How strictly a store keeps that:

    store                                     whole or not at all    the first one wins
    a local or mounted directory              yes                    yes: a hard link is made or refused in one step
    the same without hard links               yes                    two at the very same moment: the last one wins
    S3, GCS, Azure                            yes: on close          as above
    others (HDFS, fsspec)                     yes: on rename         as above, unless the rename refuses

Where the last one wins, nothing is lost or repeated either, because equal names mean equal contents (protocol E3); only replicas that
break that promise may be noticed later than where the first one wins: by the manifest's digests instead of at the write.

What a failure means is decided here, once: `Patience` tries again what may pass and turns everything else into a SinkError that says
what to do.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.errors import SinkError

T = TypeVar("T")

HOPELESS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG})
"""Errors that waiting does not mend. A full disk is not among them: somebody may make room."""


NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""What `link` says where the file system has no hard links."""

WHOLE_ON_CLOSE: Final = frozenset({"s3", "gcs", "abfs"})
"""Kinds of pyarrow file systems in which an object appears when it is closed, as a whole."""


class FileStore(Protocol):
    """Files below one directory; every path is relative to it. All methods raise OSError."""

    root: str

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file so that it appears whole or not at all. FileExistsError if there is one already."""

    def get(self, path: str) -> bytes:
        """A file's content. FileNotFoundError if there is none."""

    def move(self, source: str, target: str) -> None:
        """Rename a file. FileExistsError if there is a target already, FileNotFoundError if there is no source.

        A crash in the middle may leave both; then it can be repeated.
        """

    def remove(self, path: str) -> None:
        """Delete a file."""

    def exists(self, path: str) -> bool:
        """Is there such a file?"""

    def modified_s(self, path: str) -> float | None:
        """When a file was written, by the clock of the store; None where the store does not say, or there is no such file."""

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
        target = self._at(path)
        beside = name_beside(target)
        try:
            with open(beside, "wb") as out:
                out.write(memoryview(data))
                out.flush()
                os.fsync(out.fileno())
            appear(beside, target)
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)

    def get(self, path: str) -> bytes:
        with open(self._at(path), "rb") as file:
            return file.read()

    def move(self, source: str, target: str) -> None:
        appear(self._at(source), self._at(target))
        with suppress(FileNotFoundError):  # Another replica moves it, too, and was faster.
            os.unlink(self._at(source))

    def remove(self, path: str) -> None:
        os.unlink(self._at(path))

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._at(path))

    def modified_s(self, path: str) -> float | None:
        try:
            return os.stat(self._at(path)).st_mtime
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        if not os.path.isdir(self._at(folder)):
            return []
        return sorted(entry.name for entry in os.scandir(self._at(folder)) if entry.is_file())

    def make_folder(self, folder: str) -> None:
        os.makedirs(self._at(folder), exist_ok=True)


def name_beside(path: str) -> str:
    """A name for what is not whole yet. Replicas write the same file at the same time, on different hosts even with equal process ids."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{uuid.uuid4().hex[:12]}.tmp"


def appear(source: str, target: str) -> None:
    """Give a local file its second name, durably, unless there is such a file. Without hard links the first name is lost by that."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        os.rename(source, target)
    force_folder(os.path.dirname(target))


def force_folder(folder: str) -> None:
    """Make a rename durable: a directory's entries are forced to the disk like a file's content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ArrowStore:
    """A directory of a pyarrow file system (object stores, HDFS, fsspec). None of them offers to create a file only if there is none, so
    that is looked up before; see the module for what follows.
    """

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str) -> None:
        self._fs, self.root = filesystem, root.rstrip("/")

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _refuse_if_there(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._at(path))

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self._refuse_if_there(path)
        target = self._at(path)
        beside = target if self._fs.type_name in WHOLE_ON_CLOSE else name_beside(target)
        with self._fs.open_output_stream(beside) as out:
            out.write(data)
        if beside != target:
            self._rename(beside, path)

    def _rename(self, source: str, target: str) -> None:
        """Some file systems replace what is there and some refuse, with whatever error they like."""
        try:
            self._fs.move(source, self._at(target))
        except OSError:
            if self.exists(target) and self._fs.get_file_info(source).type == arrow_fs.FileType.File:
                self._fs.delete_file(source)
                self._refuse_if_there(target)
            raise

    def get(self, path: str) -> bytes:
        with self._fs.open_input_stream(self._at(path)) as file:
            return bytes(file.read())

    def move(self, source: str, target: str) -> None:
        self._refuse_if_there(target)
        self._fs.move(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        self._fs.delete_file(self._at(path))

    def exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(self._at(path)).type == arrow_fs.FileType.File)

    def modified_s(self, path: str) -> float | None:
        written_ns = self._fs.get_file_info(self._at(path)).mtime_ns
        return None if written_ns is None else written_ns / 1e9

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
