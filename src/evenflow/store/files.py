"""Files below one directory: what every store of them offers.

A file appears whole or not at all, and no file is ever replaced: several replicas, one of them perhaps given up for dead long ago,
may write and publish the same file at the same time, and the first one wins. How strictly a store keeps that:

    store                                     whole or not at all    the first one wins
    a local or mounted directory              yes                    yes: a hard link is made or refused in one step
    the same without hard links               yes                    two at the very same moment: the last one wins
    S3, GCS, Azure                            yes: on close          as above
    others (HDFS, fsspec)                     yes: on rename         as above, unless the rename refuses

Where the last one wins, nothing is lost or repeated either, because equal names mean equal contents (protocol E3); only replicas that
break that promise may be noticed later than where the first one wins: by the manifest's digests instead of at the write.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


def check_size(path: str, found: int, expected: int) -> None:
    """Raise OSError if a part of a joined file is not as large as it was."""
    if found != expected:
        raise OSError(errno.EIO, f"it has {found} bytes instead of {expected}: somebody else has written it", path)


class FileStore(Protocol):
    """Files below one directory; every path is relative to it. All methods raise OSError."""

    root: str

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file so that it appears whole or not at all. FileExistsError if there is one already."""

    def get(self, path: str) -> bytes:
        """A file's content. FileNotFoundError if there is none."""

    def end(self, path: str, count: int) -> bytes:
        """The last `count` bytes of a file, or all of them if it is smaller. FileNotFoundError if there is none."""

    def put_joined(self, path: str, parts: Sequence[tuple[str, int]], end: bytes, folder: str) -> None:
        """Write a file that consists of others, one after another, and of `end`, so that it appears whole or not at all.

        parts: path and size in bytes of each. folder: what is not whole yet lies there, where the store needs a place for it, and not
        beside `path`. FileExistsError if there is one already, FileNotFoundError if a part is not there, OSError if one has another size.
        """

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
