"""What `bench/statistics_cost.py` compares still runs as a site does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "statistics_cost.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("statistics_cost", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["with", "without", "again"])
def test_an_epoch_runs_counted_and_uncounted(script: Any, name: str) -> None:
    site = script.OneSite(script.planned())
    keys, values = np.arange(100) % 7, np.arange(100)
    site.epoch(pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=script.SCHEMA), name)
    counted = [sum(hosted.tally.rows_in) for hosted in site.hosted[name]]
    assert all(counted) if name == "with" else not any(counted)


def test_what_counting_adds_is_found(script: Any) -> None:
    assert script.added(script.planned(), 100)["added_us"] > 0
