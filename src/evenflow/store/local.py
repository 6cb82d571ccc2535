"""Files in a directory of this machine, or in one that is mounted on it."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

import pyarrow as pa

from evenflow.store.files import check_size

NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""What `link` says where the file system has no hard links."""

PIECE_BYTES: Final = 1 << 20
"""Files are copied in pieces of this size: none is in memory as a whole."""


class LocalStore:
    """A directory of the local machine, or one that is mounted on it."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._written(path, path) as out:
            out.write(memoryview(data))

    def get(self, path: str) -> bytes:
        with open(self._at(path), "rb") as file:
            return file.read()

    def end(self, path: str, count: int) -> bytes:
        with open(self._at(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - count))
            return file.read()

    def put_joined(self, path: str, parts: Sequence[tuple[str, int]], end: bytes, folder: str) -> None:
        with self._written(path, f"{folder}/{os.path.basename(path)}") as out:
            for part, size in parts:
                start = out.tell()
                with open(self._at(part), "rb") as file:
                    shutil.copyfileobj(file, out, PIECE_BYTES)
                check_size(part, out.tell() - start, size)
            out.write(end)

    @contextmanager
    def _written(self, path: str, near: str) -> Iterator[BinaryIO]:
        """A file that is at `path` at the end of the block, whole and durable; until then it has a name beside `near`."""
        beside = name_beside(self._at(near))
        try:
            with open(beside, "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            appear(beside, self._at(path))
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)

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
