"""What the editor's page asks: forms, checks, arrows that fit, order, SQL cells, Python, rows, and the file."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evenflow.cli.editing import FileShelf
from evenflow.query.serial import network_from_json
from tests.query.networks import session_monitor
from tests.query.test_checking import box, drawn
from tests.ui.editing import Edited, editing


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edited]:
    path = tmp_path_factory.mktemp("editor") / "drawn.json"
    path.write_text(json.dumps(drawn()))
    with editing(path) as found:
        yield found


def test_it_gives_the_file_and_the_forms(edited: Edited) -> None:
    status, told = edited.ask("document")
    assert status == 200 and told["file"] == "drawn.json" and told["document"] == json.loads(edited.path.read_text())
    status, told = edited.ask("forms")
    assert status == 200 and len(told["kinds"]) >= 23 and "generator" in [form["name"] for form in told["sources"]]


def test_it_checks_what_is_drawn(edited: Edited) -> None:
    document = drawn()
    box(document, "tcp")["params"]["condition"] = "prto = 6"
    status, told = edited.ask("check", {"document": document})
    assert status == 200 and not told["right"]
    assert next(each for each in told["boxes"] if each["name"] == "tcp")["end"] == 4
    assert edited.ask("fitting", {"document": drawn(), "box": "packets", "port": 0})[1]["boxes"] == []


def test_boxes_are_put_in_order(edited: Edited) -> None:
    document = drawn()
    document["boxes"].append({"name": "new", "kind": "filter"})
    at = edited.ask("tidy", {"document": document, "sizes": {"new": [400, 20]}})[1]["at"]
    assert at.keys() == {each["name"] for each in document["boxes"]}
    assert at["packets"][0] < at["watermark"][0] < at["tcp"][0] < at["select"][0]
    box(document, "tcp")["inputs"] = [["gone", 0]]
    assert edited.ask("tidy", {"document": document})[0] == 200
    assert "<svg" in edited.ask("picture", {"document": drawn()})[1]["svg"]


def test_sources_are_made_of_arguments(edited: Edited) -> None:
    status, told = edited.ask("made", {"end": "source", "kind": "generator", "arguments": {"rows": 9}})
    assert status == 200 and told["value"]["$source"]["rows"] == 9
    assert edited.ask("arguments", {"value": told["value"]})[1]["arguments"] == {"rows": 9}
    status, told = edited.ask("made", {"end": "source", "kind": "generator", "arguments": {"rows": "many"}})
    assert status == 422 and told["type"].endswith("OptionError")


def test_a_cell_of_sql_becomes_boxes_and_again(edited: Edited) -> None:
    text = "SELECT src, sum(length) AS bytes FROM tcp GROUP BY src"
    document = edited.ask("cell", {"document": drawn(), "cell": "by_src", "text": text})[1]["document"]
    mine = [each for each in document["boxes"] if each.get("cell") == "by_src"]
    assert mine[-1]["name"] == "by_src" and document["cells"] == {"by_src": text}
    sink = {"name": "out", "kind": "sink", "inputs": [["by_src", 0]], "params": {"sink": {"$sink": {"kind": "discard"}}}}
    document["boxes"].append(sink)
    assert edited.ask("check", {"document": document})[1]["right"]
    text = "SELECT src, max(length) AS most FROM tcp WHERE length > 10 GROUP BY src"
    document = edited.ask("cell", {"document": document, "cell": "by_src", "text": text})[1]["document"]
    told = edited.ask("check", {"document": document})[1]
    assert told["right"] and box(document, "out") == sink
    status, told = edited.ask("cell", {"document": document, "cell": "by_src", "text": "SELECT nothing FROM tcp"})
    assert status == 422 and "nothing" in told["detail"]
    assert edited.ask("cell", {"document": document, "cell": "tcp", "text": text})[0] == 422
    status, told = edited.ask("cell", {"document": document, "cell": "by_src", "text": "SELECT * FROM by_src"})
    assert status == 422


def test_it_is_written_as_python(edited: Edited) -> None:
    status, told = edited.ask("export", {"document": drawn()})
    assert status == 200
    names: dict[str, Any] = {}
    exec(told["python"], names)
    assert json.loads(names["dataflow"]().to_json()) == drawn()


def test_it_is_saved_with_places_and_schemas_unless_somebody_was_faster(edited: Edited) -> None:
    before = edited.ask("document")[1]
    document = {**drawn(), "name": "renamed"}
    box(document, "tcp")["at"] = [5, 6]
    del box(document, "tcp")["schemas"]
    status, told = edited.ask("save", {"document": document, "tag": before["tag"]})
    assert status == 200
    saved = json.loads(edited.path.read_text())
    assert (
        saved["name"] == "renamed"
        and box(saved, "tcp")["at"] == [5, 6]
        and len(network_from_json(edited.path.read_text())) == len(document["boxes"])
    )
    assert edited.ask("save", {"document": document, "tag": before["tag"]})[0] == 409
    assert edited.ask("save", {"document": document, "tag": told["tag"]})[0] == 200


def test_who_may_only_look_changes_nothing(edited: Edited) -> None:
    assert edited.ask("check", {"document": drawn()}, token="look")[0] == 200
    for name in ("save", "preview", "made", "cell", "export", "replace", "start", "compare"):
        assert edited.ask(name, {"document": drawn()}, token="look")[0] == 403
    assert edited.ask("document", token="wrong")[0] == 401


def test_garbage_is_answered_with_what_is_wrong(edited: Edited) -> None:
    for name in ("check", "fitting", "tidy", "picture", "made", "arguments", "cell", "export", "preview", "save"):
        for body in (
            {},
            {"document": 3},
            {"document": {"evenflow": 1, "boxes": [3, {}, {"name": []}]}, "box": [], "sizes": 3},
            {"document": []},
        ):
            status, _ = edited.ask(name, body)
            assert status in (200, 409, 422), (name, body)


def test_a_file_that_names_code_imports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    path.write_text(session_monitor().to_json().replace("tests.query.networks:Tracker", "antigravity:Tracker"))
    with editing(path) as edited:
        told = edited.ask("check", {"document": edited.ask("document")[1]["document"]})[1]
        assert next(each for each in told["boxes"] if each["name"] == "track")["state"] == "locked"
        status, told = edited.ask("preview", {"document": json.loads(path.read_text())})
        assert status == 422 and told["type"].endswith("CodeNotAllowed")


def test_a_file_that_is_not_there_is_an_empty_dataflow(tmp_path: Path) -> None:
    with editing(tmp_path / "alerts.json") as edited:
        told = edited.ask("document")[1]
        assert told["document"]["name"] == "alerts" and told["document"]["boxes"] == []
        assert edited.ask("save", {"document": told["document"], "tag": told["tag"]})[0] == 200
        assert edited.path.exists()


class Hanging(FileShelf):
    """An engine that does not answer before it is told to."""

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ASKED.append((operation, dict(arguments)))
        if operation != "compare":
            GO_ON.wait(60)
        return {"asked": operation, "given": dict(arguments)}


ASKED: list[tuple[str, dict[str, Any]]] = []
GO_ON = threading.Event()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Edited]:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    ASKED.clear()
    GO_ON.clear()
    with editing(path, make=Hanging) as found:
        yield found
        began = time.monotonic()
    assert time.monotonic() - began < 3
    GO_ON.set()


def test_the_editor_answers_while_an_engine_does_not_and_ends(hanging: Edited) -> None:
    def ask() -> None:
        with contextlib.suppress(OSError):
            answers.append(hanging.ask("replace", {})[0])

    answers = list[int]()
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    assert hanging.ask("check", {"document": drawn()})[0] == 200
    until = time.monotonic() + 20
    while len(answers) < 24 and time.monotonic() < until:
        threading.Event().wait(0.02)
    assert answers.count(429) == 24 and len(ASKED) == 16
    assert hanging.ask("check", {"document": drawn()})[0] == 200
    status, told = hanging.ask("save", {"document": drawn(), "tag": hanging.ask("document")[1]["tag"]})
    assert status == 200 and told["tag"]


def test_an_operation_is_of_the_file_that_was_seen_and_has_the_arguments_of_the_table(hanging: Edited) -> None:
    tag = hanging.ask("document")[1]["tag"]
    status, told = hanging.ask("compare", {"tag": tag, "run": "r"})
    assert status == 200 and told["given"] == {"run": "r"}
    for wrong in ({"run": 3}, {"run": ""}, {"strange": 1}, {"file": "/etc/passwd"}, {"modules": ["os"]}):
        status, told = hanging.ask("compare", {"tag": tag, **wrong})
        assert status == 422 and told["type"].endswith("OperationRefused"), wrong
    assert hanging.ask("replace", {"version": "new"})[0] == 422 and hanging.ask("start", {"replicas": {}})[0] == 422
    hanging.path.write_text(json.dumps({**drawn(), "name": "other"}))
    for name in ("compare", "replace", "start"):
        status, told = hanging.ask(name, {"tag": tag})
        assert status == 409 and told["type"].endswith("VersionChanged"), name
    assert hanging.ask("compare", {"tag": []})[0] == 409


def test_of_two_that_save_at_once_one_is_told(edited: Edited) -> None:
    tag, answers = edited.ask("document")[1]["tag"], list[int]()
    together = threading.Barrier(6)

    def save(number: int) -> None:
        together.wait(20)
        answers.append(edited.ask("save", {"document": {**drawn(), "name": f"n{number}"}, "tag": tag})[0])

    threads = [threading.Thread(target=save, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answers) == [200, 409, 409, 409, 409, 409]
