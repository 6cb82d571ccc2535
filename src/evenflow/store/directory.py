"""A location in a directory of this machine, or in one that all machines share.

An object is written under a name of its own beside the one that it will have, forced to the disk, and given its name by a hard link, which
the file system makes or refuses in one step. Where there are no hard links, `create` fails (ENOTSUP): a rename would replace, and
a file that is made exclusively and written afterwards is not whole at first.

Nothing that lies in the directory is followed: a symbolic link, a pipe or a device in the place of an object or of a folder is none.
Folders are made for their owner alone. One in which nothing is left may go at any moment, also while somebody has it open to write there:
then he finds nothing, or what is stale, and makes it again. From when on a file of his is in it, it stays.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from evenflow.store.local import NO_LINKS
from evenflow.store.objects import MOST_BYTES, TooLarge, beside_name, checked, is_name, meant_by, within

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe does not wait for somebody to write to it."""
WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})
"""There is nothing of that name; the folder that is open has gone, and it is a server of files that says so."""
STAYS: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY})
"""Something is in a folder that was to go, there is something else in its place, or the system uses it."""
TRIES: Final = 10
"""So often a folder is made that goes before anything is in it. Who sweeps comes by once in a checkpoint's time."""
FORCED_BYTES: Final = 1 << 19
"""A large object is forced to the disk piece by piece: whoever forces a small one meanwhile waits for a piece, and not for all of it."""


class DirectoryStore:
    """A `Store` in a directory. It is made when something is written; the directory above it must be there or may be made, too."""

    def __init__(self, root: str) -> None:
        self.url = os.path.abspath(root)

    def create(self, name: str, data: bytes) -> None:
        with self._beside(name, data) as (folder, leaf, beside):
            try:
                os.link(beside, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                # A server of files may have made the link and lost its answer: then both names are of one file, and the link is ours.
                if not _same(folder, beside, leaf):
                    os.fsync(folder)  # Who is refused relies on what is there.
                    raise
            except OSError as error:
                if error.errno in NO_LINKS:
                    raise OSError(errno.ENOTSUP, "the file system has no hard links", os.path.join(self.url, name)) from error
                raise
            os.fsync(folder)

    def put(self, name: str, data: bytes) -> None:
        with self._beside(name, data) as (folder, leaf, beside):
            os.rename(beside, leaf, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        with self._folder(name) as (folder, leaf), _opened(leaf, READ, folder) as file:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(errno.EINVAL, "this is no file", os.path.join(self.url, name))
            if facts.st_size > most:
                raise TooLarge(name, most)
            return within(_read(file, most + 1, facts.st_size), most, name)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        found = dict(self._walked(prefix, sized=True))
        return {name: found[name] for name in sorted(found)}

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name, _ in self._walked(prefix, sized=False))

    def _walked(self, prefix: str, *, sized: bool) -> list[tuple[str, int]]:
        above = prefix.rpartition("/")[0]
        if above and not is_name(above):
            return []
        try:
            with self._folder(f"{above}/x" if above else "x") as (folder, _):
                return [each for each in _walk(folder, f"{above}/" if above else "", sized=sized) if each[0].startswith(prefix)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self._folder(name) as (folder, leaf):
            os.unlink(leaf, dir_fd=folder)

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        try:
            with self._folder(f"{folder}x") as (opened, _):
                return _clear(opened, folder, is_over)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    @contextmanager
    def _beside(self, name: str, data: bytes) -> Iterator[tuple[int, str, str]]:
        """The open folder of an object, its name there, and one beside it, at which nobody looks, of a file with these bytes on the disk.
        It loses that in the end."""
        with ExitStack() as opened:
            folder, leaf, beside, file = self._begun(name, opened)
            opened.callback(_unlink, folder, beside)
            _fill(file, data)
            yield folder, leaf, beside

    def _begun(self, name: str, opened: ExitStack) -> tuple[int, str, str, int]:
        """The same with the file, which is open and empty. opened: closes the folder."""
        tried = 1
        while True:
            with ExitStack() as trying:
                try:
                    folder, leaf = trying.enter_context(self._folder(name, make=True))
                    beside = beside_name(leaf)
                    file = os.open(beside, WRITE, 0o600, dir_fd=folder)
                except OSError as error:
                    if error.errno not in GONE or tried == TRIES:
                        raise
                    tried += 1
                else:
                    opened.push(trying.pop_all())
                    return folder, leaf, beside, file

    @contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that the object is in, and its name there. make: folders that are missing are made."""
        *above, leaf = checked(name).split("/")
        if make:
            _make_root(self.url)
        folder = os.open(self.url, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in above:
                try:
                    inner = os.open(part, FOLDER, dir_fd=folder)
                except FileNotFoundError:
                    if not make:
                        raise
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=folder)
                    os.fsync(folder)
                    inner = os.open(part, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, leaf
        finally:
            os.close(folder)


def _make_root(root: str) -> None:
    """Make the location's directory for its owner alone, if there is none. One that is there already is left as it is."""
    if os.path.isdir(root):
        return
    above = os.path.dirname(root)
    os.makedirs(above, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(root, 0o700)
    with _opened(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as folder:
        os.fsync(folder)


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _unless_gone(folder: int, name: str) -> Iterator[None]:
    """Whoever looks at what has this name in an open folder finds nothing if it goes meanwhile. A server of files may call stale what is
    there, too: then nobody knows what is in it, and the error is raised."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in GONE or _is_there(folder, name):
            raise


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _fill(file: int, data: bytes) -> None:
    """Bring the bytes to the disk, and close the file."""
    try:
        unforced, rest = 0, memoryview(data)
        while rest:
            wrote = os.write(file, rest[: FORCED_BYTES - unforced])
            unforced, rest = unforced + wrote, rest[wrote:]
            if unforced == FORCED_BYTES:
                os.fdatasync(file)
                unforced = 0
        os.fsync(file)
    finally:
        os.close(file)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _same(folder: int, one: str, other: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(*(os.stat(name, dir_fd=folder, follow_symlinks=False) for name in (one, other)))
    return False


def _read(file: int, most: int, expected: int) -> bytes:
    """What is in a file, at most so much, even if it grows."""
    pieces, left = [], most
    while left and (piece := os.read(file, min(left, expected + 1, 1 << 24))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _walk(folder: int, above: str, *, sized: bool) -> Iterator[tuple[str, int]]:
    """Names of the files in an open folder and below it, with their sizes if these are wanted: each is asked for by itself, and a
    journal has thousands. What goes while it is looked at is not there."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_name(above + entry.name):
                continue
            with _unless_gone(folder, entry.name):
                if entry.is_dir(follow_symlinks=False):
                    with _opened(entry.name, FOLDER, folder) as inner:
                        yield from _walk(inner, f"{above}{entry.name}/", sized=sized)
                elif entry.is_file(follow_symlinks=False):
                    yield above + entry.name, entry.stat(follow_symlinks=False).st_size if sized else -1


def _clear(folder: int, above: str, is_over: Callable[[str], bool]) -> int:
    """See `Store.clear`. folder: open. above: what its objects' names begin with."""
    cleared = 0
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        meant = meant_by(entry.name)
        with _unless_gone(folder, entry.name):
            if meant is not None and entry.is_file(follow_symlinks=False) and is_over(above + meant):
                os.unlink(entry.name, dir_fd=folder)
                cleared += 1
            elif is_name(above + entry.name) and entry.is_dir(follow_symlinks=False):
                with _opened(entry.name, FOLDER, folder) as inner:
                    cleared += _clear(inner, f"{above}{entry.name}/", is_over)
                if is_over(f"{above}{entry.name}/"):
                    _remove(folder, entry.name)
    return cleared


def _remove(folder: int, name: str) -> None:
    """A folder in an open one, if nothing is in it: the system looks, and removes it, in one step."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in GONE | STAYS:
            raise
