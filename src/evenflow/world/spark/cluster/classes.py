"""Spark's classes as a JVM lays them out in memory, kept in a file: whoever maps it does not read, check and link them again.

A JVM of Spark loads some ten thousand classes before it does anything, and an executor that starts beside sites at work takes the
processor from them. With the archive (class data sharing of the JVM, JEP 310) a driver and its executors take half of the processor time
until they are there, and share its pages. Every session that Evenflow starts uses it where it is; `make setup` makes it, in half a minute
and 180 MB, beside the packages of the environment. The JVM itself looks whether an archive is of this runtime and of these
jars, and goes on without it where it is not.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from evenflow.errors import ClusterError
from evenflow.private import only_ours
from evenflow.world.java import java_home

PLACE: Final = Path(sys.prefix) / "share" / "evenflow"
"""Beside the packages, so that it goes when they go."""
TIMEOUT_S: Final = 600.0
_NUMBER: Final = re.compile(r" id: \d+$")
"""Each JVM numbers the classes of its list. Only those of a user's own loaders, which have a source, need the numbers."""


def options_and_path() -> tuple[str, str] | None:
    """What a JVM is to be started with so that it uses the archive, and what must stand first in its class path; None: there is none."""
    try:
        archive = _found()
    except OSError:
        return None
    return None if archive is None else (f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off", f"{_jars()}/*")


def make() -> Path:
    """Make the archive if it is not there: a small session says which classes it loads. Raises ClusterError if that cannot be done."""
    try:
        if (found := _found()) is not None:
            return found
        PLACE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".classes-", dir=PLACE) as aside:
            made = _made(Path(aside))
            with open(made, "rb") as whole:
                os.fsync(whole.fileno())
            archive = PLACE / f"{_name()}-{made.stat().st_size}.jsa"
            os.replace(made, archive)
    except OSError as error:
        raise ClusterError(f"Spark's classes cannot be kept: {error}") from None
    return archive


def _found() -> Path | None:
    """An archive whose name says another size than it has was cut off: a JVM that maps it dies."""
    for archive in PLACE.glob(f"{_name()}-*.jsa"):
        if archive.stem.rpartition("-")[2] == str(archive.stat().st_size) and only_ours(PLACE):
            return archive
    return None


def _made(aside: Path) -> Path:
    """An archive among other files of its making."""
    made, listed = aside / "classes.jsa", aside / "all"
    # One line per class and JVM; %p makes a list of each JVM's own.
    told = {"JDK_JAVA_OPTIONS": f"-XX:DumpLoadedClassList={aside / 'listed.%p'}"}
    _run([sys.executable, "-m", "evenflow.world.spark.cluster.loading"], {**os.environ, **told})
    lines = [line for each in sorted(aside.glob("listed.*")) for line in each.read_text(encoding="utf-8").splitlines()]
    listed.write_text("\n".join(dict.fromkeys(_NUMBER.sub("", line) for line in lines if " source: " not in line)), encoding="utf-8")
    options = ["-Xshare:dump", "-Xmx1g", "-XX:+UseSerialGC", "-Xlog:disable", "-Xlog:all=error"]
    files = [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}"]
    _run([f"{java_home()}/bin/java", *options, *files, "-cp", f"{_jars()}/*"], dict(os.environ))
    return made


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{command[0]} did not lay Spark's classes out within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise ClusterError(f"{command[0]} cannot lay Spark's classes out: {(done.stderr or done.stdout).strip()[-400:]}")


def _jars() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()).resolve() / "jars"


def _name() -> str:
    """It says of which runtime and of which jars an archive is."""
    jars, java = _jars(), Path(java_home())
    held = sorted((entry.name, entry.stat().st_size) for entry in jars.glob("*.jar"))
    told = repr((str(java.resolve()), (java / "release").read_text(encoding="utf-8"), str(jars), held))
    return f"classes-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def main() -> int:
    print("laying Spark's classes out, once per machine", flush=True)
    try:
        make()
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
