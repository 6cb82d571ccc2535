"""Which store a location's URL means, and the proof that it can do what a journal needs.

Only stores are opened of which it is known that they create an object only if there is none, in one step; what is known is in
`docs/locations.md`. Knowing is not enough: a bucket may be behind a server that ignores the condition, a mount may have no hard links. So
`probe` tries it at every start, with two writers at once as well. It shows that a store refuses; that it never fails to is
what the list of stores is for.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from evenflow.errors import LocationError
from evenflow.store.directory import DirectoryStore
from evenflow.store.objects import Store

SUPPORTED: Final = (
    "a directory that all machines of the cluster share, file:///path, s3://bucket/path (extra `s3`) or webhdfs://host:port/path"
)
ROUNDS: Final = 3
"""So often two writers are let loose on one name."""


def open_store(url: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Store:
    """The store at a local path or URL; nothing is read or written yet.

    options: of the store's client; for S3 those of s3fs, for WebHDFS `user` or `token`. Raises LocationError for any other store.
    """
    url = os.fspath(url)
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else url
        if not path.strip() or "\0" in path:
            raise LocationError(f"checkpoint location {url!r} names no place; use {SUPPORTED}")
        if parts.scheme and parts.netloc not in ("", "localhost"):
            raise LocationError(f"checkpoint location {url}: a file URL names no machine; write file:///{parts.netloc}{parts.path}")
        if options:
            raise LocationError(f"checkpoint location {url}: a directory has no options")
        return DirectoryStore(os.path.expanduser(path) if not parts.scheme else path)
    if parts.scheme in ("s3", "s3a"):
        from evenflow.store.s3 import S3Store

        return S3Store(url, options or {})
    if parts.scheme in ("webhdfs", "swebhdfs"):
        from evenflow.store.webhdfs import WebHdfsStore

        return WebHdfsStore(url, options or {})
    raise LocationError(f"checkpoint location {url}: {parts.scheme}:// cannot be one; use {SUPPORTED}")


def probe(store: Store) -> None:
    """Prove that the store creates only if absent, gives back what it was given, lists and deletes. Raises LocationError otherwise.

    Cost: some 30 requests, below a folder `probe` that is empty afterwards.
    """
    names = [f"probe/{uuid.uuid4().hex[:16]}-{number}" for number in range(1 + ROUNDS)]
    try:
        _probe_alone(store, names[0])
        for name in names[1:]:
            _probe_two(store, name)
        for name in names:
            store.delete(name)
        if left := [name for name in store.names("probe/") if name in names]:
            _lies(store, f"{left[0]} is still listed after it was deleted")
    except OSError as error:
        raise LocationError(explain("prove that it can be used", store.url, error)) from error
    finally:
        for name in names:
            with suppress(OSError):
                store.delete(name)


def _probe_alone(store: Store, name: str) -> None:
    one, other = b"first " + os.urandom(16), b"second " + os.urandom(40)
    store.create(name, one)
    if not _refuses(store, name, other):
        _lies(store, "it has created an object that was there already")
    if store.get(name) != one:
        _lies(store, f"{name} has other bytes than were written")
    if store.sizes(name) != {name: len(one)}:
        _lies(store, f"its listing does not have {name} with its size")
    store.put(name, other)
    if store.get(name) != other:
        _lies(store, f"{name} has other bytes than took the place of the first ones")
    store.delete(name)
    store.delete(name)
    try:
        store.get(name)
    except FileNotFoundError:
        return
    _lies(store, f"{name} can be read after it was deleted")


def _probe_two(store: Store, name: str) -> None:
    """Two writers create the same name at the same moment: one is refused, and the other's bytes are there."""
    begin = threading.Barrier(2)
    data = [b"left " + os.urandom(16), b"right " + os.urandom(16)]
    refused: dict[int, bool | OSError] = {}

    def write(number: int) -> None:
        begin.wait()
        try:
            refused[number] = _refuses(store, name, data[number])
        except OSError as error:
            refused[number] = error

    writers = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for answer in refused.values():
        if isinstance(answer, OSError):
            raise answer
    winners = [number for number, answer in sorted(refused.items()) if not answer]
    if len(winners) != 1:
        _lies(store, f"of two that created an object at the same moment {len(winners)} were told that they have")
    if store.get(name) != data[winners[0]]:
        _lies(store, "who was told that he has created an object has not: it has another one's bytes")


def _refuses(store: Store, name: str, data: bytes) -> bool:
    try:
        store.create(name, data)
    except FileExistsError:
        return True
    return False


def _lies(store: Store, how: str) -> NoReturn:
    raise LocationError(
        f"checkpoint location {store.url} cannot be used: {how}. Two drivers could both believe that the location is theirs. "
        f"Use a store that makes an object only if there is none: {SUPPORTED}"
    )


def explain(what: str, url: str, error: OSError) -> str:
    """What could not be done at a location, and what to do about it."""
    return f"checkpoint location {url}: cannot {what}: {error}; {advice(error)}"


def advice(error: OSError) -> str:
    """What to do about a store's error."""
    for told, codes, is_kind in _ADVICE:
        if error.errno in codes or is_kind(error):
            return told
    return "check that the driver and all executors can reach and write it"


def _is(*kinds: type[OSError]) -> Callable[[OSError], bool]:
    return lambda error: isinstance(error, kinds)


_ADVICE: Final[tuple[tuple[str, frozenset[int], Callable[[OSError], bool]], ...]] = (
    ("the disk is full, or a quota or limit is: make room there or choose another location",
     frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}), _is()),
    ("it is not writable: give the user of the driver and of the executors the right to read, write and delete there",
     frozenset({errno.EROFS}), _is(PermissionError)),
    ("a part of the path is a file or a symbolic link: choose another location",
     frozenset({errno.ELOOP}), _is(NotADirectoryError, IsADirectoryError, FileExistsError)),
    (f"the store cannot create an object only if there is none: use {SUPPORTED}", frozenset({errno.ENOTSUP, errno.ENOSYS}), _is()),
    ("there is no such place: create the bucket or the directory above it", frozenset(), _is(FileNotFoundError)),
    ("nobody answers in time: check the address and the network", frozenset(), _is(TimeoutError, ConnectionError)),
)  # fmt: skip
