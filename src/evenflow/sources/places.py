"""Where files of rows are: a path of this machine, or a URI of a store that pyarrow knows, such as s3://bucket/folder/*.parquet."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from evenflow.errors import SourceError


def is_remote(place: str) -> bool:
    """A URI, and not a path."""
    return "://" in place


def ending_of(place: str) -> str:
    """The ending of a file's name, in lower case, with its dot."""
    return os.path.splitext(urlsplit(place).path if is_remote(place) else place)[1].lower()


def shown(place: str) -> str:
    """The place as people may see it: without the user and what is asked besides."""
    if not is_remote(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _store_of(place: str) -> tuple[Any, str]:
    """A file system, and the path in it. Raises SourceError."""
    if "@" in urlsplit(place).netloc:
        raise SourceError(f"{shown(place)}: credentials in a URI would be saved; give them by the environment")
    try:
        store, path = arrow_fs.FileSystem.from_uri(place)
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        advice = "give a path, or a URI that pyarrow knows (s3://, gs://)"
        raise SourceError(f"cannot open {shown(place)}: {error}; {advice}") from error
    return store, path


def opened(place: str) -> Any:
    """What pyarrow's readers take: the path itself, or an open file of a store. Raises SourceError, OSError."""
    if not is_remote(place):
        return place
    store, path = _store_of(place)
    return store.open_input_file(path)


def size_of(place: str) -> int:
    """Bytes of a file. Raises SourceError, OSError."""
    if not is_remote(place):
        return os.path.getsize(place)
    with opened(place) as file:
        return int(file.size())


def listed(place: str) -> list[str]:
    """The files at a URI: of a folder (hidden ones left out), of a pattern in its last part, or the one. Raises SourceError."""
    parts = urlsplit(place)
    folder, _, name = parts.path.rpartition("/")
    pattern = unquote(name) if any(sign in unquote(name) for sign in "*[") else None
    asked = place if pattern is None else parts._replace(path=folder).geturl()
    store, root = _store_of(asked)
    try:
        here = store.get_file_info(root)
        if pattern is None and here.type == arrow_fs.FileType.File:
            return [place]
        if here.type != arrow_fs.FileType.Directory:
            return []
        found = [info.base_name for info in store.get_file_info(arrow_fs.FileSelector(root)) if info.type == arrow_fs.FileType.File]
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"cannot list {shown(place)}: {error}; check the address, the region and the credentials") from error
    wanted = [one for one in found if not one.startswith(("_", ".")) and (pattern is None or fnmatchcase(one, pattern))]
    base = (folder if pattern is not None else parts.path).rstrip("/")
    return [parts._replace(path=f"{base}/{quote(one)}").geturl() for one in wanted]


__all__ = ["ending_of", "is_remote", "listed", "opened", "shown", "size_of"]
