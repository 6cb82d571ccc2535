"""Install the lowest versions that pyproject.toml declares, and run the unit tests with them: `make floors`.

The environment is one of its own, .venv-floors. The tools that run the tests are as new as they come; all that users install is as old as
it may be. Warnings of old libraries are no errors here. More arguments go to pytest, such as tests/query.
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
EXTRAS = ("local", "pandas", "polars", "experiments", "kafka", "postgres", "s3")
TOOLS = ("pytest", "hypothesis", "pixeltable", "moto", "flask")
UNIT = "not spark and not oracle and not slow and not swarm"
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
    declared = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    return [pinned(each) for each in declared] + [each for each in extras["dev"] if each.startswith(TOOLS)]


def main() -> int:
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    wanted = requirements()
    print("\n".join(wanted), flush=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_CACHE_DIR": str(VENV / "kernels")}
    given = sys.argv[1:] or ["tests"]
    tests = [python, "-m", "pytest", "-q", "-n", "auto", "-m", UNIT, "-W", "default", "-p", "no:cacheprovider", *given]
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
