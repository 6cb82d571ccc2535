"""What `evenflow ui FILE.json` opens: the editor of a dataflow, and not of a control file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenflow.cli import editing
from evenflow.cli.editing import FileShelf, is_document, open_editor
from evenflow.cli.output import Output
from evenflow.errors import OptionError, QueryError
from tests.query.test_checking import drawn
from tests.ui.editing import editing as served


def test_a_dataflow_is_told_from_an_engine(tmp_path: Path) -> None:
    flow, control, garbage = (tmp_path / name for name in ("flow.json", "engine.json", "garbage.json"))
    flow.write_text(json.dumps(drawn()))
    control.write_text(json.dumps({"engine": "abc", "port": 1, "secret": "x"}))
    garbage.write_text("{")
    assert is_document(str(flow)) and is_document(str(tmp_path / "new.json"))
    assert not any(map(is_document, (str(control), str(garbage), "abc", None, str(tmp_path))))


def test_it_says_where_the_page_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(editing, "edit", lambda *given: begun.append(given))
    with Output(as_json=False) as output:
        output.as_json = True
        assert open_editor(output, FileShelf(tmp_path / "new.json"), port=0, host="127.0.0.1", read_only=True) == 0
        told = output._object
        assert isinstance(told, dict) and told["view"] == told["operate"] and told["url"].startswith("http://127.0.0.1:")
        output.as_json = False
    assert begun[0][2].operate is None


def test_a_file_that_is_no_dataflow_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text('{"boxes": 3}')
    with pytest.raises(QueryError, match="not a dataflow"):
        open_editor(Output(as_json=False), FileShelf(path), port=0, host="127.0.0.1")
    with served(tmp_path / "new.json") as edited:
        taken = int(edited.at.rsplit(":", 1)[1].strip("/"))
        with pytest.raises(OptionError, match="cannot be listened at"):
            open_editor(Output(as_json=False), FileShelf(tmp_path / "new.json"), port=taken, host="127.0.0.1")
