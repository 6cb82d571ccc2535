"""The page's process as a child: it says where it is, ends with its parent's end of the pipe, and a page that cannot be says why."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from evenflow.errors import EngineUnreachable
from evenflow.world.spark.driver.control_client import Address
from evenflow.world.spark.driver.ui_process import UiProcess


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
