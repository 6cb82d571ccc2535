"""Install the lowest versions that pyproject.toml declares, and run the unit tests with them: `make floors`.

The environment is one of its own, .venv-floors. The tools that run the tests are as new as they come; all that users install is as old as
it may be. Warnings of old libraries are no errors here. More arguments go to pytest, such as tests/query. With
--spark the tests are those that say most about another PySpark, on local clusters.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("FLOORS_VENV", ROOT / ".venv-floors"))
LINT = ("mypy", "ruff", "evenflow[")
"""What no test needs, or what names the extras once more."""
UNIT = "not spark and not oracle and not slow and not swarm and not conformance"
ON_SPARK = "(spark or oracle) and not conformance and not slow"
TELLING = (
    "tests/spark/test_engine.py",
    "tests/spark/test_state_frame.py",
    "tests/spark/test_ingest.py",
    "tests/spark/test_spark_sink.py",
    "tests/spark/test_doctor.py",
    "tests/oracle/test_spark_columns.py",
)
LOWEST = re.compile(r"^([\w-]+(?:\[[\w,-]+\])?)>=([\w.]+)")


def pinned(requirement: str) -> str:
    """`name==lowest` of `name>=lowest,<ceiling`."""
    found = LOWEST.match(requirement)
    if found is None:
        raise SystemExit(f"{requirement!r} in pyproject.toml has no lowest version; write name>=version")
    return f"{found[1]}=={found[2]}"


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(each for extra in extras if extra != "dev" for each in extras[extra])]
    return [pinned(each) for each in declared] + [each for each in extras["dev"] if not each.startswith(LINT)]


def main() -> int:
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    wanted = requirements()
    print("\n".join(wanted), flush=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_CACHE_DIR": str(VENV / "kernels")}
    on_spark = "--spark" in sys.argv
    given = [each for each in sys.argv[1:] if each != "--spark"] or (TELLING if on_spark else ["tests"])
    at_once = ["-n", "0"] if on_spark else ["-n", "auto"]
    tests = [
        python,
        "-m",
        "pytest",
        "-q",
        *at_once,
        "-m",
        ON_SPARK if on_spark else UNIT,
        "-W",
        "default",
        "-p",
        "no:cacheprovider",
        *given,
    ]
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
