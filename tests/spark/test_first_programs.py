"""Programs that a reader copies from the first pages run as they stand, in a directory of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.parametrize(("page", "column"), [("README.md", "max_dur"), ("docs/start.md", "bytes")])
def test_the_first_program_of_a_page_runs(tmp_path: Path, page: str, column: str) -> None:
    """Method: with the environment activated, as the page says; it prints rows and ends by itself."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "first.py").write_text(code, encoding="utf-8")
    activated = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    activated["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, env=activated, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert column in ran.stdout, ran.stdout[-2000:]
