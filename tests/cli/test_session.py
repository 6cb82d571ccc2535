"""An embedded session starts in its own place, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from evenflow.errors import ClusterError
from evenflow.world.spark.cluster.leftovers import MARK
from evenflow.world.spark.cluster.processes import end_marked, marked
from evenflow.world.spark.cluster.session import embedded_session, probe_master, python_of_executors, settings

SESSION = """\
import sys
from evenflow.world.spark.cluster.session import embedded_session, stop_session
try:
    print("starting", flush=True)
    spark = embedded_session("local-cluster[2,1,1024]", "test")
    try:
        print(spark.sparkContext.parallelize(range(10), 2).map(lambda x: x + 1).sum(), flush=True)
        input()
    finally:
        stop_session(spark)
except KeyboardInterrupt:
    sys.exit(130)
"""
WITHOUT_ITS_JVM = """\
from pyspark import SparkContext
from evenflow.world.spark.cluster.session import embedded_session, stop_session
for death in (True, False):
    spark = embedded_session("local[1]", "test", sites_only=True)
    try:
        print(spark.sparkContext.defaultParallelism, flush=True)
        if death:
            SparkContext._gateway.proc.kill()
            SparkContext._gateway.proc.wait()
    finally:
        stop_session(spark)
"""


def test_a_spark_master_that_nobody_answers_for() -> None:
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1 .*local-cluster"):
        probe_master("spark://127.0.0.1:1")
    with pytest.raises(ClusterError, match="not a master URL"):
        probe_master("spark://somewhere")
    with pytest.raises(ClusterError, match="EXECUTORS,CORES,MIB"):
        probe_master("local-cluster[4,2]")
    with pytest.raises(ClusterError, match=r"'sc://host:15002' is Spark Connect, .*docs/deploy\.md"):
        probe_master("sc://host:15002")
    for master in ("local", "local[2]", "local[*]", "local[2,3]", "local-cluster[4, 2, 1024]", "yarn"):
        probe_master(master)


def test_a_setting_that_spark_refuses_is_told_in_its_words_and_not_its_stack() -> None:
    with pytest.raises(ClusterError) as told:
        embedded_session("local-cluster[1,1,1024]", conf={"spark.executor.cores": "x"})
    assert "Executor cores must be a positive number" in str(told.value) and "each --conf" in str(told.value)
    assert "at org.apache" not in str(told.value)


def test_executors_have_the_python_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster it may lie elsewhere than here; what a machine's PYSPARK_PYTHON says of others is nothing to a cluster on this one."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_of_executors("spark://host:7077", {}) == python_of_executors("local-cluster[2,2,1024]", {}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/there/python")
    assert python_of_executors("spark://host:7077", {}) == "/opt/there/python"
    assert python_of_executors("local-cluster[2,2,1024]", {}) == sys.executable
    for master in ("spark://host:7077", "local-cluster[2,2,1024]"):
        assert python_of_executors(master, {"spark.pyspark.python": "/opt/asked/python"}) == "/opt/asked/python"


def test_files_go_to_the_scratch_directory_and_executors_are_small(tmp_path: Path) -> None:
    chosen = settings("local-cluster[4,2,1024]", tmp_path)
    assert chosen["spark.executor.memory"] == "512m" and chosen["spark.ui.enabled"] == "false"
    assert all(chosen[key].startswith(str(tmp_path)) for key in ("spark.local.dir", "spark.sql.warehouse.dir"))
    small = settings("local-cluster[4,2,1024]", tmp_path, sites_only=True)
    for role in ("driver", "executor"):
        assert "TieredStopAtLevel" not in chosen[f"spark.{role}.extraJavaOptions"], "Spark's own work is compiled well"
        assert "TieredStopAtLevel=1" in small[f"spark.{role}.extraJavaOptions"]
    assert "spark.executor.memory" not in settings("spark://host:7077", tmp_path), "a cluster's own choice"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system shows no environments of processes")
def test_a_marked_process_is_found_and_ended_even_if_it_does_not_want_to() -> None:
    mark = uuid.uuid4().hex
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", stubborn], env={**os.environ, "EVENFLOW_TEST": mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    assert marked("EVENFLOW_TEST", mark) == [child.pid] and marked("EVENFLOW_TEST", mark + "x") == []
    assert end_marked("EVENFLOW_TEST", mark, grace_s=0.3) == [child.pid]
    assert child.wait(10) == -signal.SIGKILL
    child.communicate()


def session_process(mark: str, program: str = SESSION) -> subprocess.Popen[str]:
    environment = {**os.environ, "EVENFLOW_TEST": mark, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", *(pytest.param(moment, marks=pytest.mark.conformance) for moment in ("running", "end"))])
def test_nothing_is_left_of_a_session(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mark = uuid.uuid4().hex
    process = session_process(mark)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "starting\n"
    if moment != "starting":
        assert process.stdout.readline() == "55\n"
    if moment == "end":
        process.stdin.write("\n")
        process.stdin.flush()
    else:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == (0 if moment == "end" else 130)
    assert marked("EVENFLOW_TEST", mark) == [] and marked(MARK, mark) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("evenflow-")] == []
    assert tempfile.gettempdir()  # The directory of this process is another one.


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_whose_jvm_was_killed_leaves_nothing_and_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers at its end. The next session of the process has a JVM of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mark = uuid.uuid4().hex
    process = session_process(mark, WITHOUT_ITS_JVM)
    try:
        out, _ = process.communicate(timeout=240)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "1\n1\n")
    assert marked("EVENFLOW_TEST", mark) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("evenflow-")] == []
