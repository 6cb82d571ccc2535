"""The files of the page, read once, packed once: a page of 200 boxes is there in a second over a slow line, too."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).resolve().parent / "static"
TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json",
}


@dataclass(frozen=True, slots=True)
class File:
    """plain, packed: its content, and the same as gzip. tag: changes with the content."""

    media: str
    plain: bytes
    packed: bytes
    tag: str


def files(folder: Path = STATIC) -> dict[str, File]:
    """All of them by their path below `folder`, with slashes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            plain = path.read_bytes()
            tag = f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
            found[path.relative_to(folder).as_posix()] = File(TYPES[path.suffix], plain, gzip.compress(plain, 6, mtime=0), tag)
    return found
