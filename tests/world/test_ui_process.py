"""The page's process as a child: it says where it is, ends with its parent's end of the pipe, and a page that cannot be says why."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.world.test_watching import watched_engine

from evenflow.errors import EngineUnreachable
from evenflow.world.spark.driver.control_client import Address
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.ui_process import UiProcess

__all__ = ["watched_engine"]  # The fixture.


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an engine that nobody answers for."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    file = tmp_path / "e1.json"
    file.write_text(Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret").to_json())
    return file


def test_it_listens_before_the_engine_answers_and_ends_with_its_parent(control: Path) -> None:
    page = UiProcess(control, 0)
    try:
        url, _, token = page.url().partition("#token=")
        assert token and page.lives
        assert urllib.request.urlopen(f"{url}healthz", timeout=20).read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{url}readyz", timeout=20)
        assert list((control.parent / "control").glob("e1.*.ui"))
        for path, body in (("scene", None), ("reading", None), ("sites", b"{}"), ("drain", b'{"site": 1}'), ("checkpoint", b"{}")):
            request = urllib.request.Request(f"{url}api/v1/{path}", body, {"Authorization": f"Bearer {token}"})
            with pytest.raises(urllib.error.HTTPError, match="503") as refused:
                urllib.request.urlopen(request, timeout=20)
            told = json.loads(refused.value.read())
            assert told["exit_code"] == 3 and told["detail"], "as the command that finds no engine"
    finally:
        page.close()
    assert not page.lives and not list((control.parent / "control").glob("*.ui"))
    page.close()


def test_a_page_that_cannot_be_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    page = UiProcess(tmp_path / "gone")
    with pytest.raises(EngineUnreachable, match="there is no control file"):
        page.url()
    page.close()


def told(page: UiProcess, path: str) -> str:
    url, _, token = page.url().partition("#token=")
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
    return str(urllib.request.urlopen(request, timeout=20).read().decode())


def once_there(page: UiProcess, path: str) -> str:
    """Its answer, as soon as the first reading has come."""
    pause = threading.Event()
    for _ in range(200):
        try:
            return told(page, path)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        pause.wait(0.05)
    pytest.fail("no reading has come")


def test_the_page_of_a_control_port_tells_its_run_dies_alone_and_comes_again(watched_engine: ControlPort) -> None:
    page = watched_engine.open_ui(0)
    assert watched_engine.open_ui(None) is page
    reading = json.loads(once_there(page, "api/v1/reading"))
    assert [run["run"] for run in reading["runs"]] == ["run-1"]
    assert told(page, "readyz") == "ready\n"
    families = {family.name for family in text_string_to_metric_families(told(page, "metrics"))}
    assert {"evenflow_rows_in", "evenflow_redundancy"} <= families
    os.kill(page.pid, signal.SIGKILL)
    ended = threading.Event()
    while page.lives:
        ended.wait(0.02)
    again = watched_engine.open_ui(None)
    assert again is not page and json.loads(once_there(again, "api/v1/scene"))["engine"] == "e1"
    watched_engine.close()
    assert not again.lives
