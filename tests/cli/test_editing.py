"""The file of the editor: its mode, links, and what is left where it cannot be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from evenflow.cli.editing import FileShelf
from evenflow.errors import QueryError


def test_saving_keeps_the_mode_and_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "flow.json", tmp_path / "flow.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    FileShelf(link).write("new")
    assert link.is_symlink() and real.read_text() == "new" and stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) in (["real", "flow.json"], ["flow.json", "real"]) and os.listdir(tmp_path / "real") == ["flow.json"]


def test_a_new_file_is_as_the_system_makes_files(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    FileShelf(tmp_path / "new.json").write("{}")
    assert (tmp_path / "new.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = FileShelf(tmp_path / "flow.json")
    shelf.write("whole")
    with pytest.raises(QueryError, match="cannot write"):
        shelf.write("half \ud800")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(QueryError, match="No space left"):
        shelf.write("other")
    assert os.listdir(tmp_path) == ["flow.json"] and shelf.path.read_text() == "whole"
