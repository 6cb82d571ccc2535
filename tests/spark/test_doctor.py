"""What `ef.doctor` says of facts, how it gets them, and who may be a site with what is installed there."""

from __future__ import annotations

import json
import socket
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.cli.app import main
from evenflow.errors import ClusterError
from evenflow.world.spark.cluster import diagnosis
from evenflow.world.spark.cluster import doctor as home
from evenflow.world.spark.cluster.diagnosis import Finding, Session
from evenflow.world.spark.cluster.doctor import Meeting, await_executors, doctor, megabytes, overhead_mb, store_found
from evenflow.world.spark.cluster.located import Executor
from evenflow.world.spark.driver.versions import Versions
from evenflow.world.spark.executor import requirements
from evenflow.world.spark.executor.entry import start_site
from evenflow.world.spark.executor.examined import examine
from evenflow.world.spark.executor.requirements import REQUIRED, demand, lacks, numbers, versions
from tests.ports import free_port

HERE = versions()


def seen(**facts: Any) -> dict[str, Any]:
    return {
        "executor": "1", "host": "a-host", "python": "/opt/python", "versions": HERE, "temporary": "/tmp", "temporary_wrong": "",
        "temporary_bytes": 1 << 40, "descriptors": 4096, "listens": "", "driver": "", "unreached": {}, **facts,
    }  # fmt: skip


def session(**facts: Any) -> Session:
    return Session(**{
        "wanted": 2, "executors": 2, "slots": 4, "allocates": False, "most": None, "overhead_mb": None, "site_memory_mb": 256, **facts,
    })  # fmt: skip


def one(findings: list[Finding], severity: str) -> str:
    """The only finding of this severity, as text. Each has a remedy."""
    [found] = [finding for finding in findings if finding.severity == severity]
    assert found.remedy
    return f"{found.subject}: {found.what}. {found.remedy}"


# ---------------------------------------------------------------- what facts mean


def test_a_good_cluster_has_nothing_but_fine_findings() -> None:
    found = [*diagnosis.of_session(session()), *diagnosis.of_executors([seen()], ["1"], HERE), *diagnosis.of_network([seen()])]
    found += diagnosis.of_clocks({"1": 0.01})
    assert {finding.severity for finding in found} == {"fine"} and len(found) == 4
    assert diagnosis.diagnosis(found).ok


def test_a_session_with_too_little_is_told_what_to_raise() -> None:
    of = diagnosis.of_session
    assert "spark.executor.instances" in one(of(session(executors=1)), "error")
    assert "spark.dynamicAllocation.maxExecutors" in one(of(session(executors=0, allocates=True, most=1)), "error")
    assert not [f for f in of(session(executors=0, allocates=True)) if f.severity != "fine"]
    assert "spark.executor.cores=2" in one(of(session(slots=2)), "warning")
    assert "spark.executor.memoryOverhead=756m" in one(of(session(overhead_mb=384)), "warning")


def test_what_an_executor_lacks_is_named_with_the_python_used() -> None:
    missing = one(diagnosis.of_executors([seen(versions={**HERE, "numba": ""})], ["1"], HERE), "error")
    assert "executor 1 (a-host): numba is missing, in /opt/python" in missing and "PYSPARK_PYTHON" in missing
    old = diagnosis.of_executors([seen(versions={**HERE, "pyarrow": "9.0.0"})], ["1"], HERE)
    assert f"pyarrow is 9.0.0, and {REQUIRED['pyarrow']} or newer" in one(old, "error")
    assert "the driver" in one(old, "warning")
    assert "evenflow 0.0.1" in one(diagnosis.of_executors([seen(versions={**HERE, "evenflow": "0.0.1"})], ["1"], HERE), "error")
    assert "ulimit" in one(diagnosis.of_executors([seen(descriptors=256)], ["1"], HERE), "warning")
    assert "TMPDIR" in one(diagnosis.of_executors([seen(temporary_wrong="no space")], ["1"], HERE), "error")
    assert "1 MB left" in one(diagnosis.of_executors([seen(temporary_bytes=1 << 20)], ["1"], HERE), "warning")
    assert "executors 2 could not be looked at" in one(diagnosis.of_executors([seen()], ["1", "2"], HERE), "warning")


def test_who_does_not_reach_whom_is_said() -> None:
    assert "spark.driver.host" in one(diagnosis.of_network([seen(driver="h:1 cannot be reached: timed out")]), "error")
    cut = one(diagnosis.of_network([seen(unreached={"2": "10.0.0.2:4000: timed out"})]), "error")
    assert "executor 1 (a-host) does not reach executor 2 at 10.0.0.2:4000" in cut
    assert "Widen" in one(diagnosis.of_network([seen(listens="no port of (1, 2) is free")]), "error")
    assert "7.0 s ahead" in one(diagnosis.of_clocks({"1": 7.0, "2": 0.0}), "warning")


def test_the_worst_comes_first_and_all_of_it_is_json() -> None:
    found = diagnosis.diagnosis([Finding("fine", "session", "a"), Finding("error", "store", "b", "c"), Finding("warning", "clocks", "d")])
    assert [finding.severity for finding in found.findings] == ["error", "warning", "fine"] and not found.ok
    assert json.loads(json.dumps(found.to_json()))["findings"][0] == {"severity": "error", "subject": "store", "what": "b", "remedy": "c"}
    assert str(found).startswith("error   store: b. c\n")


# ---------------------------------------------------------------- how facts come


def test_tasks_meet_at_the_driver_and_try_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the executors are threads; one of them listens where nobody can be."""
    from evenflow.world.spark.executor import examined

    names = iter(["1", "2"])
    monkeypatch.setattr(examined, "executor_id", lambda: next(names))
    meeting, found = Meeting("127.0.0.1", 2, 10.0), []
    tasks = [threading.Thread(target=lambda: found.append(examine("127.0.0.1", meeting.port, meeting.token, None, 10.0))) for _ in range(2)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(10.0)
    meeting.close()
    assert sorted(each["executor"] for each in found) == ["1", "2"]
    assert all(not each["driver"] and not each["unreached"] and not each["listens"] for each in found)
    assert {*meeting.offsets_s} == {"1", "2"} and all(abs(offset) < 1.0 for offset in meeting.offsets_s.values())


class Context:
    """A Spark context of which a test says how long it has been there."""

    def __init__(self, age_s: float) -> None:
        self.startTime = int((time.time() - age_s) * 1000)


@pytest.mark.parametrize(
    ("age_s", "allocated", "found"),
    [(0.0, False, 4), (60.0, False, 1), (0.0, True, 1)],
    ids=["they are on their way", "a session of a minute ago", "they come when they are asked for"],
)
def test_executors_of_a_session_that_has_just_begun_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, age_s: float, allocated: bool, found: int
) -> None:
    looks = iter(range(1, 9))
    monkeypatch.setattr(home, "executors", lambda context: [Executor(str(k), "a-host") for k in range(next(looks))])
    monkeypatch.setattr(home, "allocates", lambda context: allocated)
    monkeypatch.setattr(home, "LOOK_S", 0.0)
    assert len(await_executors(Context(age_s), 4, 30.0)) == found


def test_a_stranger_hears_nothing_and_a_driver_that_is_away_is_a_fact() -> None:
    meeting = Meeting("127.0.0.1", 1, 10.0)
    with socket.create_connection(("127.0.0.1", meeting.port)) as stranger:
        stranger.sendall(b'{"token": "guessed", "executor": "1", "where": null, "now_s": 0}\n')
        assert stranger.recv(100) == b""
    meeting.close()
    port = free_port()
    facts = examine("127.0.0.1", port, "token", None, 1.0)
    assert f"127.0.0.1:{port} cannot be reached" in facts["driver"]


def test_nothing_is_left_of_a_meeting_that_is_over() -> None:
    """Method: one who says nothing is still there when it is closed; then the port is tried again, and the threads are counted."""
    before = set(threading.enumerate())
    meeting = Meeting("127.0.0.1", 1, 30.0)
    with socket.create_connection(("127.0.0.1", meeting.port)) as silent:
        silent.settimeout(10)
        silent.sendall(b"{")
        while len(left := {thread for thread in threading.enumerate() if thread.is_alive()} - before) < 2:
            threading.Event().wait(0.01)  # Those that are about to begin are among them, and cannot be joined yet.
        meeting.close()
        assert silent.recv(1) == b""
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", meeting.port)).close()


def test_a_store_is_proven_and_left_as_it_was(tmp_path: Path) -> None:
    [good] = store_found(str(tmp_path / "location"))
    assert good.severity == "fine" and "only if there is none" in good.what
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (tmp_path / "file").write_text("no directory")
    [bad] = store_found(str(tmp_path / "file" / "location"))
    assert bad.severity == "error" and bad.remedy
    [odd] = store_found("ftp://nowhere/location")
    assert "ftp:// cannot be one" in odd.what


@pytest.mark.parametrize(("text", "mb"), [("2g", 2048), ("512m", 512), ("512mb", 512), ("700", 700), ("1048576k", 1024)])
def test_sizes_are_read_as_spark_reads_them(text: str, mb: int) -> None:
    assert megabytes(text) == mb


def test_memory_beside_the_heap_counts_where_containers_are_ended_for_it() -> None:
    assert overhead_mb("spark://h:1", {}) is None
    assert overhead_mb("yarn", {}) == 384
    assert overhead_mb("k8s://h", {"spark.executor.memory": "8g"}) == 819
    assert overhead_mb("yarn", {"spark.executor.memoryOverhead": "3g"}) == 3072


# ---------------------------------------------------------------- who may be a site


def test_required_versions_are_those_that_are_declared() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    floors = dict(each.split(",")[0].split(">=") for each in declared["dependencies"])
    assert {name: floors[name] for name in REQUIRED} == dict(REQUIRED)
    assert declared["requires-python"] == ">=" + ".".join(map(str, requirements.PYTHON))


def test_a_site_that_lacks_something_is_told_what_and_which_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacks(HERE) == []
    demand()
    monkeypatch.setattr(requirements, "versions", lambda: {**HERE, "numba": "", "numpy": "1.26.4"})
    with pytest.raises(
        ClusterError, match=r"python.* on .*: numpy is 1.26.4, and 2.0 or newer is needed; numba is missing.*PYSPARK_PYTHON"
    ):
        start_site(30, "never", "looked", "at")


@pytest.mark.parametrize(
    ("text", "found"), [("2.1.0", (2, 1, 0)), ("26.0.1rc2", (26, 0, 1)), ("3.11", (3, 11)), ("0.68.1+local", (0, 68, 1))]
)
def test_versions_are_compared_as_numbers(text: str, found: tuple[int, ...]) -> None:
    assert numbers(text) == found


def test_another_evenflow_is_refused_and_another_library_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    looks, hello = Versions(HERE), {"executor": "3", "host": "a-host"}
    assert looks.refusal({**hello, "versions": HERE}) is None and looks.refusal(hello) is None
    refused = looks.refusal({**hello, "versions": {**HERE, "evenflow": "0.0.1"}})
    assert refused is not None and "executor 3 (a-host) has Evenflow 0.0.1 installed" in refused and "install the same there" in refused
    for _ in range(2):
        assert looks.refusal({**hello, "versions": {**HERE, "pyarrow": "20.0.0"}}) is None
    [said] = caplog.records
    assert "has pyarrow 20.0.0, and the driver" in said.getMessage()


# ---------------------------------------------------------------- on executors


@pytest.mark.spark
def test_a_cluster_is_looked_at_and_left_as_it_was(spark: Any, tmp_path: Path) -> None:
    found = ef.doctor(spark, sites=4, checkpoint_location=str(tmp_path / "location"), tls=True)
    assert found.ok, str(found)
    assert {finding.subject for finding in found.findings} >= {"session", "executors", "network", "clocks", "store"}
    too_many = doctor(spark, sites=5)
    assert not too_many.ok and "needs" in str(too_many) or "need" in str(too_many)


def test_the_command_says_what_it_found_and_ends_with_3_if_something_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from evenflow.world.spark.cluster import session as sessions

    asked: list[Any] = []
    monkeypatch.setattr(sessions, "embedded_session", lambda master, name, conf: asked.append((master, dict(conf))))
    monkeypatch.setattr(sessions, "stop_session", lambda spark: asked.append("stopped"))
    bad = diagnosis.diagnosis([Finding("error", "network", "[no way]", "Make one")])
    monkeypatch.setattr(home, "doctor", lambda spark, sites, spares, location, **options: asked.append((sites, options)) or bad)
    words = ["doctor", "--sites", "2", "--option", "ports=4000-4001", "--conf", "spark.executor.memory=2g", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 3
    assert json.loads(capfd.readouterr().out) == bad.to_json()
    assert asked == [("local-cluster[2,2,1024]", {"spark.executor.memory": "2g"}), (2, {"ports": "4000-4001"}), "stopped"]
    with pytest.raises(SystemExit):
        main(words[:-1])
    assert "network: [no way]. Make one" in capfd.readouterr().out.replace("\n", "")
