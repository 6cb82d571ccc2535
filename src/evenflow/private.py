"""Directories among the temporary files that belong to this user alone.

What lies in them is run (the package at executors that do not have it, compiled kernels) or is secret
(control files), and the directory for temporary files is everybody's: another user of the machine may
have made a directory of the expected name first, or a symbolic link. So each is made for its owner
only, and looked at after it has been opened, not before.

This file imports nothing of the package: its text is also run where the package is not yet
(world/spark/cluster/ship.py).
"""

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path


class NotPrivate(OSError):
    """A directory cannot be trusted: it is not this user's, or others may write to it. The message says which one and why."""


def private_directory(path: Path) -> Path:
    """The directory at `path`, made with mode 0700 if it is not there. Its parent must be there.

    Raises NotPrivate if it is a symbolic link, another user's, open to others, or if others may put
    another one in its place; OSError if it cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    try:
        found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        raise NotPrivate(f"{path} belongs to somebody else") from None
    except OSError as error:
        raise NotPrivate(f"{path} is not a directory, or is a symbolic link ({error.strerror})") from None
    try:
        facts = os.fstat(found)
        above = os.stat("..", dir_fd=found)
    finally:
        os.close(found)
    if facts.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to the user with the number {facts.st_uid}")
    if facts.st_mode & 0o077:
        raise NotPrivate(
            f"{path} is open to others (mode {stat.S_IMODE(facts.st_mode):o}): `chmod 700` it if nobody else has written to it"
        )
    if _replaceable(above):
        raise NotPrivate(f"everybody may put something else in the place of {path}: its parent is writable by all, without the sticky bit")
    return path


def shared_directory() -> Path:
    """The directory that all processes of this user have in common among the temporary files. Raises NotPrivate, OSError."""
    return private_directory(Path(tempfile.gettempdir()) / f"evenflow-{os.geteuid()}")


_own: dict[str, Path] = {}


def scratch_directory() -> Path:
    """`shared_directory`, or, if somebody else has taken its name, one of this process alone.

    The latter is removed when the process ends.
    """
    try:
        return shared_directory()
    except OSError:
        temporary = tempfile.gettempdir()
        if temporary not in _own or not _own[temporary].is_dir():
            _own[temporary] = Path(tempfile.mkdtemp(prefix=f"evenflow-{os.geteuid()}-{os.getpid()}-"))
            atexit.register(shutil.rmtree, _own[temporary], ignore_errors=True)
        return _own[temporary]


def only_ours(path: Path) -> bool:
    """Whether nobody but this user and the system's administrator can have put something there.

    No directory on the way to it, itself included, belongs to somebody else or lets others replace
    what is in it, a group's members included: who they are nobody knows here.
    """
    try:
        real = path.resolve(strict=True)
        facts = [os.stat(each) for each in (real, *real.parents)]
    except OSError:
        return False
    if facts[0].st_mode & 0o022:
        return False
    return all(each.st_uid in (0, os.geteuid()) and not _replaceable(each, 0o022) for each in facts)


def _replaceable(directory: os.stat_result, who: int = 0o002) -> bool:
    """Everybody may rename and remove what others have put there. who: bits of those who count as everybody."""
    return bool(directory.st_mode & who) and not directory.st_mode & stat.S_ISVTX
