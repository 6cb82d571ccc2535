"""Evenflow's own code on executors that do not have it, by Spark's means.

Every function that is sent to a Spark task goes through `on_executor`. It looks for the package there first, then at the path where the
driver has it; where there is none, it unpacks the archive that the driver has added to the application's files.
Its dependencies (pyarrow, numpy, numba, cryptography) must be in the Python environment of the executors; Spark's
documentation, "Python Package Management", says how they get there.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from evenflow import private

PACKAGE: Final = Path(__file__).resolve().parents[3]
THIS_FILE: Final = Path(__file__).resolve().relative_to(PACKAGE)


def archive() -> tuple[str, Path]:
    """(name, path) of a zip file of this package's sources, made once and named by its content."""
    files = sorted(path for path in PACKAGE.rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    name = f"evenflow-{digest.hexdigest()[:16]}.zip"
    target = private.scratch_directory() / name
    if not target.exists():
        aside = target.with_suffix(f".{os.getpid()}")
        try:
            with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as file:
                for path in files:
                    file.write(path, Path("evenflow") / path.relative_to(PACKAGE))
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    return name, target


def ship(context: Any) -> str:
    """Add the archive to the files of a Spark application, once. Returns its name. context: a SparkContext."""
    name, path = archive()
    if name not in {os.path.basename(file) for file in context.listFiles}:
        context.addFile(str(path))
    return name


def on_executor(name: str, module: str, function: str, *bound: Any) -> Callable[..., Any]:
    """A function for Spark tasks that calls `module.function(*bound, *arguments)`, with the package at hand.

    It refers to nothing of this package, so it is pickled by value and can be unpickled where the package is not. name: see `ship`.
    What is imported comes from a directory that nobody else can have written to.
    """
    packed = pickle.dumps(bound)
    beside, here = str(PACKAGE), str(THIS_FILE)
    privacy = Path(private.__file__).read_text(encoding="utf-8")

    def call(*arguments: Any) -> Any:
        import importlib
        import importlib.util
        import pickle

        if importlib.util.find_spec("evenflow") is None:
            import os
            import shutil
            import sys
            import tempfile
            import zipfile
            from pathlib import Path

            from pyspark import SparkFiles

            private: dict[str, Any] = {"__name__": "private"}
            exec(compile(privacy, "private.py", "exec"), private)
            if Path(beside, here).is_file() and private["only_ours"](Path(beside)):
                home = Path(beside).parent  # The driver's own machine, or a file system that both see.
            else:
                home = private["scratch_directory"]() / name.removesuffix(".zip")
                if not home.is_dir():
                    # Unpacked, not imported from the archive: compiled kernels are cached beside the sources.
                    aside = tempfile.mkdtemp(dir=home.parent)
                    try:
                        with zipfile.ZipFile(SparkFiles.get(name)) as file:
                            file.extractall(aside)
                        os.rename(aside, home)
                    except BaseException as error:  # Sites are tried again and again: on a full disk, too, nothing may stay of each.
                        shutil.rmtree(aside, ignore_errors=True)
                        if not (isinstance(error, OSError) and home.is_dir()):  # Else another task of this machine was faster.
                            raise
            sys.path.insert(1, str(home))
            importlib.invalidate_caches()
        return getattr(importlib.import_module(module), function)(*pickle.loads(packed), *arguments)

    return call
