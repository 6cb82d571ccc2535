"""`evenflow ui` as a command: its address, its tokens in a private file, its end with its parent's, and what it says where it cannot be."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.monitor.simulated import stream
from typer import BadParameter

from evenflow.cli.editing import shelf_of_code
from evenflow.cli.output import Output
from evenflow.cli.ui import FAULTS, Glances, _document, _exposition, _watch, ui
from evenflow.errors import EngineUnreachable, OptionError, QueryError, StatisticsError
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.web.feed import Feed
from evenflow.monitor.web.teller import CURVES, Teller
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.control_client import Address


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an engine that says what a simulated run did, and then nothing."""
    directory = tmp_path / "control"
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(directory))
    over = threading.Event()

    def watch(address: Address) -> Iterator[Scene | Reading]:
        yield from stream()
        over.wait(60)

    monkeypatch.setattr(control_client, "find", lambda engine=None: Address("e1", "test", os.getpid(), "127.0.0.1", 1, b""))
    monkeypatch.setattr(control_client, "watch", watch)
    monkeypatch.setattr(control_client, "ask", lambda address, name, say, **given: {"asked": name, "given": given})
    return directory


def get(url: str, path: str, body: bytes | None = None) -> Any:
    at, _, token = url.partition("#token=")
    return json.loads(
        urllib.request.urlopen(urllib.request.Request(at + path, body, {"Authorization": f"Bearer {token}"}), timeout=20).read()
    )


@pytest.mark.parametrize("read_only", [False, True])
def test_a_child_says_where_it_is_and_ends_with_its_parent(
    control: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], read_only: bool
) -> None:
    read, write = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(read))
    control.mkdir(mode=0o700)
    (control / "dead.4141.ui").write_text("{}")
    context: Any = SimpleNamespace(obj=Output(as_json=False))
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(ui(context, port=0, read_only=read_only, child=True)), daemon=True)
    thread.start()
    printed = ""
    pause = threading.Event()
    for _ in range(400):
        printed += capfd.readouterr().out
        if "\n" in printed:
            break
        pause.wait(0.05)
    said = json.loads(printed)
    assert said["engine"] == "e1" and (said["view"] == said["operate"]) is read_only
    (file,) = control.glob("*.ui")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and json.loads(file.read_text()) == said
    assert get(said["view"], "api/v1/openapi.json")["openapi"]
    if not read_only:
        asked = get(said["operate"], "api/v1/drain", b'{"site": 2}')
        assert asked == {"asked": "drain", "given": {"site": 2, "timeout_s": 300.0}}
    os.close(write)
    thread.join(20)
    assert ended == [0] and not list(control.glob("*.ui"))


def test_no_engine_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    context: Any = SimpleNamespace(obj=Output(as_json=False))
    with pytest.raises(EngineUnreachable, match="no engine runs here"):
        ui(context)


def test_a_port_that_is_taken_is_said(control: Path) -> None:
    from evenflow.monitor.web.serve import bound

    taken = bound("127.0.0.1", 0)
    context: Any = SimpleNamespace(obj=Output(as_json=False))
    with taken, pytest.raises(OptionError, match="give another --port"):
        ui(context, port=taken.getsockname()[1])


def test_a_saved_dataflow_is_edited_and_a_control_file_is_an_engine(tmp_path: Path) -> None:
    saved, control_file, garbage = tmp_path / "flow.json", tmp_path / "e1.json", tmp_path / "wrong.json"
    saved.write_text('{"evenflow": 1, "boxes": []}')
    control_file.write_text(Address("e1", "test", 1, "127.0.0.1", 1, b"x").to_json())
    garbage.write_text("{")
    assert _document(str(saved)) == saved and _document(str(garbage)) == garbage
    assert _document(str(tmp_path / "new.json")) == tmp_path / "new.json"
    assert _document(str(control_file)) is None and _document("5d3f1c") is None


def in_file(path: Path, pid: int = 0) -> Address:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    address = Address("e1", "test", pid or os.getpid(), "127.0.0.1", 1, b"secret")
    path.write_text(address.to_json())
    return address


def test_an_engine_has_ended_if_nobody_owns_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "control"
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(directory))
    file = directory / "e1.json"
    address = in_file(file)
    assert "gone" in (control_client.ended(address) or "")
    assert "gone" in (control_client.ended(address, str(file)) or "")
    file.unlink()
    owned = control_client.write(address)
    assert control_client.ended(address) is None and control_client.ended(address, str(file)) is None
    copy = tmp_path / "copy.json"
    copy.write_text(address.to_json())
    assert control_client.ended(address, str(copy)) is None
    owned.release()
    assert control_client.ended(address, str(copy)) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(20)
    assert "gone" in (control_client.ended(in_file(copy, process.pid), str(copy)) or "")
    assert "has ended" in (control_client.ended(address) or "")


def test_one_broken_connection_is_no_end_and_the_end_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr("evenflow.cli.ui.RETRY_S", 0.001)
    address = Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret")
    owned, calls = control_client.write(address), list[int]()

    def watch(at: Address) -> Iterator[Scene | Reading]:
        calls.append(1)
        if len(calls) == 3:
            owned.release()
        raise EngineUnreachable("the wire is cut")
        yield

    monkeypatch.setattr(control_client, "watch", watch)
    teller = Teller(Feed("n", CURVES))
    _watch(address, teller, str(owned.path))
    assert len(calls) == 3 and "has ended" in (teller.feed.ended or "") and "the wire is cut" in capsys.readouterr().err


def test_no_thread_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr("evenflow.cli.ui.RETRY_S", 0.001)
    address, calls = Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret"), list[int]()
    owned = control_client.write(address)

    def watch(at: Address) -> Iterator[Scene | Reading]:
        calls.append(1)
        raise KeyError("of another version")
        yield

    monkeypatch.setattr(control_client, "watch", watch)
    teller = Teller(Feed("n", CURVES))
    _watch(address, teller)
    assert len(calls) == FAULTS and "of another version" in (teller.feed.ended or "")
    owned.release()


def test_nothing_is_watched_while_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: who is not looked at closes the stream after its first reading, until somebody comes; metrics take a reading of their own."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr("evenflow.cli.ui.RETRY_S", 0.001)
    address = Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret")
    told, owned = stream(2.0), control_client.write(address)
    opened, went_on, over = list[int](), threading.Event(), threading.Event()

    def watch(at: Address) -> Iterator[Scene | Reading]:
        opened.append(0)
        for each in told:
            if isinstance(each, Reading):
                opened[-1] += 1
            yield each
            if opened[-1] > 1:
                went_on.set()
        over.wait(20)
        raise EngineUnreachable("it has ended")

    monkeypatch.setattr(control_client, "watch", watch)
    teller = Teller(Feed("n", CURVES))
    watching = threading.Thread(target=_watch, args=(address, teller), daemon=True)
    watching.start()
    assert not went_on.wait(0.3) and opened == [1] and teller.newest is not None
    scenes = teller.feed._scenes
    assert b"evenflow_rows_in_total" in _exposition(Glances(address, teller)) and opened == [1, 1]
    teller.feed.came()
    assert went_on.wait(20) and teller.feed._scenes == scenes, "the same scene is told to readers once"
    owned.release()
    over.set()
    watching.join(20)
    assert teller.feed.ended is not None


FLOW = """
import evenflow as ef

def doubled(value: int) -> int:
    return value * 2

def dataflow():
    flow = ef.Dataflow("drawn")
    rows = flow.source(ef.sources.generator(rate=1), name="events")
    rows.where("value > 1", name="some").to(ef.sinks.discard(), name="out")
    return flow
"""


def test_a_python_file_is_drawn_by_who_allows_it_and_never_written(tmp_path: Path) -> None:
    path, context = tmp_path / "drawn_by_code.py", SimpleNamespace(obj=Output(as_json=False))
    path.write_text(FLOW)
    with pytest.raises(BadParameter, match="to open it is to run it: give --allow-code"):
        ui(context, engine=str(path))  # type: ignore[arg-type]
    shelf = shelf_of_code(path)
    assert [box["name"] for box in json.loads(shelf.read())["boxes"]] == ["events", "some", "out"] and shelf.modules == (path.stem,)
    shelf.write("{}")
    assert path.read_text() == FLOW and path.with_suffix(".json").read_text() == "{}"
    with pytest.raises(QueryError, match="is saved as .* already"):
        shelf_of_code(path)


def test_a_recording_asks_no_engine(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(obj=Output(as_json=False))
    with pytest.raises(BadParameter, match="asks no engine"):
        ui(context, engine=str(tmp_path / "a.jsonl"), of="e1")
    (tmp_path / "a.jsonl").write_text("garbage\n")
    with pytest.raises(StatisticsError, match=r"a\.jsonl is no recording: line 1"):
        ui(context, engine=str(tmp_path / "a.jsonl"))
