"""Files that belong to a process, and can be told from those of a process that has died.

Whoever is killed leaves files behind. A process id in a name proves nothing: it may be another process's by now. So an
owner holds a lock on a file for as long as it lives, which the system takes away however it ends. What is locked is
somebody's; what is not, and says that it was, is nobody's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER: Final = ".owner"
"""The locked file of a directory. Its text is the owner's own affair."""


class Owner:
    """This process owns the file at `path`, until it says otherwise or ends."""

    def __init__(self, path: Path, text: str = "") -> None:
        """Raises OSError. The file is locked before it has its name, so nobody finds it without an owner."""
        self.path = path
        aside = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        self._fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(self._fd, text.encode())
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.rename(aside, path)
        except BaseException:
            os.close(self._fd)
            aside.unlink(missing_ok=True)
            raise

    def release(self) -> None:
        """Remove the file, and own it no longer. May be called again. A file that cannot be removed stays, as if its owner had died."""
        if self._fd >= 0:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def is_owned(path: Path) -> bool:
    """Whether an owner of this file lives. Raises OSError if it cannot be looked at."""
    found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(found)
    return False


class OwnedDirectory:
    """A new directory among the temporary files that only this user can read and that this process owns. path: it.

    prefix: by which `abandoned` finds it. text: what whoever finds it later must know.
    """

    def __init__(self, prefix: str, text: str = "") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        self._owner = Owner(self.path / OWNER, text)

    def remove(self) -> None:
        """With all that is in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._owner.release()


def abandoned(prefix: str) -> Iterator[tuple[Path, str]]:
    """This user's directories of that prefix among the temporary files whose owners are dead, and what their owners have written."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*-*")):
        try:
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not is_owned(path / OWNER):
                yield path, (path / OWNER).read_text(encoding="utf-8")
        except OSError:
            continue  # It has no owner's file, so nothing is proved; or it has gone meanwhile.
