"""Tests that share a cluster are dealt to one worker: real workers of xdist say who has run what."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.dealing import CALM, CLUSTERS_OF_THEIR_OWN, DEAR, FOLDERS, ON_A_CALM_CLUSTER, UNITS, unit_of

ROOT = Path(__file__).resolve().parents[1]
TEST = "import pytest\n\n@pytest.mark.parametrize('case', range(4))\ndef test_something(case):\n    pass\n"
PLUGIN = """
from tests.dealing import Dealer, in_order

def pytest_collection_modifyitems(items):
    items[:] = in_order(items)

def pytest_xdist_make_scheduler(config, log):
    return Dealer(config, log)
"""


def test_what_shares_a_session_is_one_unit() -> None:
    one = "tests/spark/test_engine.py::test_a_keyed_count_is_right"
    assert unit_of(one, spark=True) == "tests/spark" == unit_of("tests/spark/test_then.py::test_a[b/c::d]", spark=True)
    assert unit_of("tests/spark/test_restart.py::test_x", spark=True) == "tests/spark/test_restart.py"
    assert unit_of("tests/spark/test_doctor.py::test_x", spark=True) == ON_A_CALM_CLUSTER in UNITS
    assert unit_of(one, spark=False) == "tests/spark/test_engine.py", "those that need no Spark share nothing"
    assert unit_of("tests/oracle/test_joins.py::test_x", spark=False) == "tests/oracle"
    assert [path for path in (*FOLDERS, *CALM, *CLUSTERS_OF_THEIR_OWN, *DEAR) if not (ROOT / path).exists()] == []


@pytest.mark.conformance
def test_workers_get_whole_units_and_the_dearest_first(tmp_path: Path) -> None:
    for name in ("aaa/test_a.py", "oracle/test_a.py", "oracle/test_b.py", "ui/test_a.py", "ui/test_b.py", "zzz/test_a.py"):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEST)
    (tmp_path / "dealt.py").write_text(PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p dealt --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "tests"]
    paths = f"{tmp_path}:{ROOT / 'src'}:{ROOT}"
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers: dict[str, set[str]] = defaultdict(set)
    for worker, nodeid in re.findall(r"\[(gw\d)\].*PASSED (\S+)", done.stdout):
        workers[unit_of(nodeid, spark=True)].add(worker)
    assert set(workers) == {"tests/oracle", "tests/ui", "tests/aaa/test_a.py", "tests/zzz/test_a.py"}
    assert all(len(who) == 1 for who in workers.values()), workers
    assert workers["tests/oracle"] != workers["tests/ui"], "the dearest are begun first, by two"
