"""What manifests say is what `read_committed` gives, in today's format and in that of former days; other things are refused."""

from __future__ import annotations

import json
import os
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow import sinks
from evenflow.errors import SinkError
from evenflow.sinks.closings import read_committed
from evenflow.sinks.manifests import value_from

OLD = Path(__file__).parent / "format_2"
"""Written by a version that published each part by itself. The commit at 2 is whole; that at 4 died between two publications; a part of the
one at 6 is staged."""


def keys(path: Path) -> list[int]:
    return sorted(read_committed(str(path))["key"].to_pylist())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def commit(path: Path, run: str, epoch: int, *values: int) -> None:
    schema = pa.schema([("key", pa.int64()), ("text", pa.string())])
    batch = pa.record_batch([pa.array(values, pa.int64()), pa.array([f"t{v}" for v in values], pa.string())], schema=schema)
    sinks.parquet(str(path)).open(run).write(epoch, batch)


def test_a_directory_of_format_2_is_read(old: Path) -> None:
    assert keys(old) == [1, 2, 3, 4, 5]
    assert sorted(pq.read_table(old)["key"].to_pylist()) == [1, 2, 3, 4]  # Its last commit, whose process died, is half published.


def test_a_directory_of_format_2_is_completed_and_continued(old: Path) -> None:
    commit(old, "new", 1, 10, 11)
    assert keys(old) == [1, 2, 3, 4, 5, 10, 11]
    assert sorted(pq.read_table(old)["key"].to_pylist()) == [1, 2, 3, 4, 5, 10, 11]
    assert os.listdir(old / "_staging") == ["part-old-000000000006-00000.parquet"]  # Nobody decided about it. It goes when it is old.


def test_a_run_of_format_2_commits_nothing_again(old: Path) -> None:
    commit(old, "old", 2, 1, 2, 3)
    commit(old, "old", 4, 77)
    assert keys(old) == [1, 2, 3, 4, 5]
    commit(old, "old", 5, 6)
    assert keys(old) == [1, 2, 3, 4, 5, 6]


def test_a_published_file_with_another_footer_is_named(tmp_path: Path) -> None:
    """The rows' bytes are what they were; what says where they are is not."""
    commit(tmp_path, "r", 1, 1, 2)
    commit(tmp_path, "r", 2, 3)
    one, other = sorted(tmp_path.glob("*.parquet"))
    size = json.loads((tmp_path / "_evenflow" / "manifest-r-000000000001.json").read_bytes())["parts"][0]["bytes"]
    one.write_bytes(one.read_bytes()[:size] + other.read_bytes()[-300:])
    with pytest.raises(SinkError, match=r"commit-r-000000000001.parquet is not what was committed: its footer"):
        read_committed(str(tmp_path))


PART = {"epoch": 1, "partition": 0, "file": "p", "rows": 1, "bytes": 1, "digest": "d", "detail": '{"place": "../x=1/"}'}
ELSEWHERE = json.dumps({"version": 4, "run": "r", "epoch": 1, "file": "c", "parts": [PART]}).encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is not a manifest"),
        (b"[]", "is not a manifest"),
        (b'{"version": 3, "run": "r", "epoch": 1, "file": "commit.parquet"}', "is not a manifest"),
        (b'{"version": 3, "run": "r", "epoch": 1, "file": "../elsewhere", "parts": []}', "is not a manifest"),
        (ELSEWHERE, "is not a manifest.*not a folder"),
        (b'{"version": 6}', "format 6.*reads 2 to 5"),
    ],
    ids=["empty", "list", "no parts", "leads away", "leads away by a folder", "of later days"],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    commit(tmp_path, "r", 1, 1)
    (tmp_path / "_evenflow" / "manifest-r-000000000001.json").write_bytes(text)
    with pytest.raises(SinkError, match=f"manifest-r-000000000001.json .*{why}|manifest-r-000000000001.json has {why}"):
        read_committed(str(tmp_path))


def test_a_decimal_that_arrow_must_not_be_given_is_an_error() -> None:
    type_ = pa.decimal128(10, 2)
    assert value_from("d", "1.50", type_).as_py() == Decimal("1.50") and value_from("d", None, type_).as_py() is None
    with pytest.raises(SinkError, match="'d' is '1e-999999999', which is no decimal"):
        value_from("d", "1e-999999999", type_)
