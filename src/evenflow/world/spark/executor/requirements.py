"""What an executor's Python has to have, looked at before anything of it is imported: this file needs nothing but the standard library.

A site that lacks something would end with an error about a module deep inside, and nobody would see which Python of which machine it was.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Mapping
from typing import Final

REQUIRED: Final = {"pyarrow": "26.0", "numpy": "2.0", "numba": "0.62", "sqlglot": "30.30", "cryptography": "43.0"}
"""The lowest versions, as pyproject.toml has them; a test compares them."""
PYTHON: Final = (3, 11)


def versions() -> dict[str, str]:
    """What is installed here of what is required, and of Python and Evenflow; "" for what is missing."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in REQUIRED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return {**found, "evenflow": _evenflow()}


def _evenflow() -> str:
    import evenflow

    return evenflow.__version__


def lacks(found: Mapping[str, str]) -> list[str]:
    """What is missing or too old, in words. found: as `versions` has it."""
    wrong = []
    if numbers(found["python"])[:2] < PYTHON:
        wrong.append(f"Python {found['python']}, and {PYTHON[0]}.{PYTHON[1]} or newer is needed")
    for name, lowest in REQUIRED.items():
        version = found.get(name, "")
        if not version:
            wrong.append(f"{name} is missing")
        elif numbers(version) < numbers(lowest):
            wrong.append(f"{name} is {version}, and {lowest} or newer is needed")
    return wrong


def numbers(version: str) -> tuple[int, ...]:
    """Of a version, as far as it is numbers: 2.1.0rc1 as (2, 1, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


def demand() -> None:
    """Raises ClusterError that names all that is missing, and the Python that was used."""
    wrong = lacks(versions())
    if wrong:
        from evenflow.errors import ClusterError

        raise ClusterError(
            f"the Python of an executor ({sys.executable} on {os.uname().nodename}) cannot host a site: {'; '.join(wrong)}. Install that "
            "there, or say which Python executors use: spark.pyspark.python, PYSPARK_PYTHON, or --archives with a packed environment"
        )


__all__ = ["PYTHON", "REQUIRED", "demand", "lacks", "numbers", "versions"]
