"""Files in a directory of any file system that pyarrow knows, and which store a path or URI means."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.errors import SinkError
from evenflow.store.files import FileStore, check_size
from evenflow.store.local import LocalStore, name_beside

WHOLE_ON_CLOSE: Final = frozenset({"s3", "gcs", "abfs"})
"""Kinds of pyarrow file systems in which an object appears when it is closed, as a whole."""


class ArrowStore:
    """A directory of a pyarrow file system (object stores, HDFS, fsspec). None of them offers to create a file only if there is none, so
    that is looked up before; see the module for what follows.
    """

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str, *, whole_on_close: bool | None = None) -> None:
        """root: "" where paths are relative to the file system's own. whole_on_close: of a kind of file system that is not known here."""
        self._fs, self.root = filesystem, root.rstrip("/")
        self._whole_on_close = filesystem.type_name in WHOLE_ON_CLOSE if whole_on_close is None else whole_on_close

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path and self.root else path or self.root

    def _refuse_if_there(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._at(path))

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self._refuse_if_there(path)
        target = self._at(path)
        beside = target if self._whole_on_close else name_beside(target)
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

    def end(self, path: str, count: int) -> bytes:
        with self._fs.open_input_file(self._at(path)) as file:
            size = file.size()
            return bytes(file.read_at(min(count, size), max(0, size - count)))

    def put_joined(self, path: str, parts: Sequence[tuple[str, int]], end: bytes, folder: str) -> None:
        self._refuse_if_there(path)
        # All is read before the first byte is written: an object store would close the object at what there is if a read failed later.
        given = [self.get(part) for part, _ in parts]
        for data, (part, size) in zip(given, parts, strict=True):
            check_size(part, len(data), size)
        target = self._at(path)
        beside = target if self._whole_on_close else name_beside(self._at(f"{folder}/{os.path.basename(path)}"))
        with self._fs.open_output_stream(beside) as out:
            for data in [*given, end]:
                out.write(data)
        if beside != target:
            self._rename(beside, path)

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


def open_file_store(path: str) -> FileStore:
    """The store at a local path or URI. Raises SinkError for a URI whose file system pyarrow does not have."""
    scheme = urlsplit(path).scheme
    if scheme in ("", "file"):
        return LocalStore(unquote(urlsplit(path).path) if scheme else path)
    try:
        filesystem, root = arrow_fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        raise SinkError(f"cannot open {path}: {error}. Give a local path or a URI that pyarrow.fs.FileSystem.from_uri accepts") from error
    return ArrowStore(filesystem, root)
