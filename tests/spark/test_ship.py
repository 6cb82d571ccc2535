"""Code on executors that have no Evenflow: what is sent finds, or brings, the package."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle

from evenflow.world.spark.cluster import ship

BARE = os.environ | {"PYTHONPATH": str(Path(pyspark.__file__).parents[1])}
"""With -S: the installed libraries, but nothing that is only linked into the environment, as this package is by `make setup`."""
PROGRAM = """
import pickle, sys
from pyspark import SparkFiles
SparkFiles._is_running_on_worker, SparkFiles._root_directory = True, sys.argv[2]
try:
    import evenflow
except ImportError:
    call = pickle.load(open(sys.argv[1], "rb"))
    print(call(8), sys.modules["evenflow"].__file__)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("planted", ["nothing", "unpacked", "beside the driver"])
def test_the_package_comes_along_where_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """planted: by another user of the executor's machine, in a place that one can foresee, to have it run."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name, path = ship.archive()
    monkeypatch.setattr(ship, "PACKAGE", tmp_path / "elsewhere" / "evenflow")
    if planted == "unpacked":
        path = path.rename(tmp_path / name)
        plant(tmp_path / f"evenflow-{os.getuid()}" / name.removesuffix(".zip"))
        (tmp_path / f"evenflow-{os.getuid()}").chmod(0o777)
    elif planted == "beside the driver":
        plant(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").chmod(0o777)
    task = tmp_path / "task"
    task.write_bytes(cloudpickle.dumps(ship.on_executor(name, "evenflow.statistics.histogram", "bucket_of")))
    done = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", PROGRAM, str(task), str(path.parent)],
        capture_output=True, text=True, env=BARE | {"TMPDIR": str(tmp_path)}, cwd=tmp_path, timeout=100, check=False,
    )  # fmt: skip
    if not done.stdout and not done.stderr:
        pytest.skip("evenflow is among the installed libraries, so it cannot be missing")
    assert done.stdout.startswith("24 "), done.stderr
    assert name.removesuffix(".zip") in done.stdout
    assert not (tmp_path / "robbed").exists()


LITTLE_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"


@pytest.mark.timeout(120)
def test_a_package_that_finds_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the disk is no fuller after each try to start a site. Method: no file may be larger than some are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name, path = ship.archive()
    monkeypatch.setattr(ship, "PACKAGE", tmp_path / "elsewhere" / "evenflow")
    task = tmp_path / "task"
    task.write_bytes(cloudpickle.dumps(ship.on_executor(name, "evenflow.statistics.histogram", "bucket_of")))
    before = sorted(path.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", f"{LITTLE_ROOM}\n{PROGRAM}", str(task), str(path.parent)],
        capture_output=True, text=True, env=BARE | {"TMPDIR": str(tmp_path)}, cwd=tmp_path, timeout=100, check=False,
    )  # fmt: skip
    if not done.stdout and not done.stderr:
        pytest.skip("evenflow is among the installed libraries, so it cannot be missing")
    assert "File too large" in done.stderr, done.stderr
    assert sorted(path.parent.iterdir()) == before


def test_an_archive_that_finds_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*what: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("zipfile.ZipFile.write", full)
        with pytest.raises(OSError, match="No space left"):
            ship.archive()
    [folder] = tmp_path.iterdir()
    assert not list(folder.iterdir())
    assert ship.archive()[1].is_file()


def plant(where: Path) -> None:
    """A package of the name that does as its author likes."""
    histogram = where / "evenflow" / "world" / "spark" / "histogram.py"
    histogram.parent.mkdir(parents=True)
    (histogram.parent / "ship.py").touch()
    told = where.parent / "robbed" if where.name == "elsewhere" else where.parent.parent / "robbed"
    (where / "evenflow" / "__init__.py").write_text(f"open({str(told)!r}, 'w')")
    histogram.write_text("def bucket_of(value): return 24")


def test_the_driver_s_copy_is_used_where_it_can_be_seen(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.write_bytes(cloudpickle.dumps(ship.on_executor("no-such.zip", "evenflow.statistics.histogram", "bucket_of")))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(8))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(task)],
        capture_output=True,
        text=True,
        env=BARE,
        cwd=tmp_path,
        timeout=100,
        check=False,
    )
    assert done.stdout.strip() == "24", done.stderr


@pytest.mark.parametrize("module", ["evenflow.world.spark.bridge.pushing", "evenflow.world.spark.bridge.stream_source"])
def test_a_task_that_hands_rows_over_imports_little(module: str) -> None:
    """Every Python worker of Spark pays for it, while its batch waits."""
    heavy = ("sqlglot", "pandas", "numba", "pyspark", "polars")
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
