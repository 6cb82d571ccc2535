"""Where compiled kernels lie on a machine, and whether all of them are there.

To compile all of them takes some 25 s of CPU, to load all of them some hundredths of a second. They lie where Numba keeps them: in
NUMBA_CACHE_DIR, beside the sources, or in the user's cache; and, if none of these can be written, in a directory of the user's among the
temporary files.
A file beside them, whose name tells versions, sources and processor, says that they are complete, and has the machine code of all
(`packed`), which is what is loaded from then on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
from llvmlite import binding
from numba.core import caching as numbas_caching
from numba.core import config as numbas_config

from evenflow.private import private_directory, scratch_directory

caching: Any = numbas_caching
config: Any = numbas_config

HERE: Final = Path(__file__).resolve().parent
SHIPPED: Final = HERE / "__pycache__"
COMPILED: Final = ("*.nbi", "*.nbc")
_NUMBAS: Final[tuple[Any, ...]] = (caching.UserProvidedCacheLocator, caching.InTreeCacheLocator, caching.UserWideCacheLocator)


def directory() -> Path:
    """Where the compiled kernels of this process lie; it can be written."""
    return _place()[0]


@cache
def _place() -> tuple[Path, Path | None]:
    """The directory, and, where Numba would find none, what to tell it instead of NUMBA_CACHE_DIR."""
    for locator in _NUMBAS:
        found = locator.from_function(directory, __file__)
        if found is not None:
            return Path(found.get_cache_path()), None
    own = private_directory(scratch_directory() / "kernels")
    return own / caching.UserProvidedCacheLocator.get_suitable_cache_subpath(__file__), own


@contextlib.contextmanager
def placed() -> Iterator[None]:
    """Kernels that are decorated meanwhile lie in `directory`, also where Numba would find no place; the user's own functions do not."""
    before, own = config.CACHE_DIR, _place()[1]
    config.CACHE_DIR = before if own is None else str(own)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def by_all_sources(dispatcher: Any) -> None:
    """What is kept of this kernel is good for the present sources of all kernels. Numba compares the kernel's own file only, and so would
    go on with what it took from a helper's file before that was changed."""
    kept = dispatcher._cache
    kept._cache_file = caching.IndexDataCacheFile(kept.cache_path, kept._impl.filename_base, source_stamp=_sources())


def complete() -> bool:
    """Whether every kernel has been compiled here, for this processor and these sources."""
    return mark().exists()


def mark() -> Path:
    """The file that says so."""
    return directory() / _mark()


def prepare(compile_all: Callable[[], bytes], say: Callable[[], None]) -> None:
    """Have all kernels compiled; at once if they are. compile_all: returns their pack. say: is called before it takes long.

    Processes that do this at the same time on one machine wait for the first. Kernels that were compiled beside the sources, where this
    user cannot write, are taken from there.
    """
    if complete():
        return
    if directory() != SHIPPED and (SHIPPED / _mark()).exists():
        _take(SHIPPED, directory())
        return
    say()
    with _alone(directory() / "kernels.lock"):
        if not complete():
            pack = compile_all()
            for old in directory().glob(f"kernels-{_machine()}-*.complete"):
                old.unlink(missing_ok=True)
            _put(mark(), pack)


def _take(source: Path, target: Path) -> None:
    """The mark comes last. Files appear whole, as others may look for them already."""
    target.mkdir(parents=True, exist_ok=True)
    files = [path for pattern in COMPILED for path in source.glob(pattern)]
    for path in [*files, source / _mark()]:
        _put(target / path.name, path.read_bytes())


def _put(path: Path, content: bytes) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_bytes(content)
    aside.replace(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The system lets go of the lock when its holder ends, however it does. Where files cannot be locked each compiles for itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _mark() -> str:
    """What the compiled code depends on. Only one of the same machine's is kept."""
    return f"kernels-{_machine()}-{_sources()[:12]}.complete"


@cache
def _machine() -> str:
    """Versions and processor, by Numba's own ideas of them."""
    words = [platform.python_version(), numba.__version__, llvmlite.__version__, platform.machine(), binding.get_host_cpu_name()]
    words += [binding.get_host_cpu_features().flatten(), str(config.DISABLE_JIT)]
    return hashlib.sha256("|".join(words).encode()).hexdigest()[:12]


@cache
def _sources() -> str:
    """The digest of all sources of this room: of kernels, and of what is compiled into them."""
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()
