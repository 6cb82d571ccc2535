"""A site's process loads pandas when somebody uses it, and Arrow knows a Series then as ever. In processes of their own: modules stay."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

LATE = "from evenflow.world.spark.executor.late_pandas import load_when_used; load_when_used()"
SERIES = "import pandas as pd, pyarrow as pa; assert pa.array(pd.Series([1.0, float('nan')])).to_pylist() == [1.0, None]"


def run(*lines: str) -> None:
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_sites_code_needs_no_pandas() -> None:
    run(
        LATE,
        "import sys, evenflow.world.spark.executor.site_task, evenflow.world.spark.executor.site",
        "assert 'pandas' not in sys.modules",
    )


def test_a_series_is_known_by_whoever_has_one() -> None:
    """Goal: a NaN in it is null, as before. Method: somebody asks first whether pandas is there, and imports it twice."""
    asked = "from importlib.util import find_spec; assert find_spec('pandas').name == 'pandas'"
    module = "import pandas, inspect; assert inspect.getsource(pandas) and type(pandas.__spec__.loader).__name__ == 'SourceFileLoader'"
    run(
        LATE,
        "import sys",
        asked,
        "assert 'pandas' not in sys.modules",
        SERIES,
        SERIES,
        module,
        "assert len(sys.meta_path) < 6, sys.meta_path",
    )


def test_arrow_loads_it_where_it_makes_a_series() -> None:
    run(LATE, "import pyarrow as pa", "assert list(pa.array([1, None]).to_pandas().isna()) == [False, True]", SERIES)


def test_where_it_is_loaded_already_nothing_is_done() -> None:
    run("import sys, pandas; before = list(sys.meta_path)", LATE, "assert sys.meta_path == before", SERIES)


def test_another_finder_may_have_it() -> None:
    """Goal: Arrow hears of a pandas that an import hook gives, as of any other. Method: the path has none, and a finder behind it does."""
    run(
        LATE,
        "import sys; from importlib.machinery import PathFinder; find = PathFinder.find_spec",
        "PathFinder.find_spec = classmethod(lambda cls, name, *more: None if name == 'pandas' else find(name, *more))",
        "Hook = type('Hook', (), {'find_spec': staticmethod(lambda name, *more: find(name, *more) if name == 'pandas' else None)})",
        "sys.meta_path.append(Hook)",
        SERIES,
    )
