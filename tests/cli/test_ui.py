"""`evenflow ui` as a command: its address, its tokens in a private file, its end with its parent's, and what it says where it cannot be."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.monitor.simulated import stream
from typer import BadParameter

from evenflow.cli.editing import shelf_of_code
from evenflow.cli.output import Output
from evenflow.cli.ui import FAULTS, Glances, _document, _exposition, _unready, _watch, ui
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
    assert b"evenflow_rows_in_total" in (_exposition(Glances(address, teller)) or b"") and opened == [1, 1]
    teller.feed.came()
    assert went_on.wait(20) and teller.feed._scenes == scenes, "the same scene is told to readers once"
    owned.release()
    over.set()
    watching.join(20)
    assert teller.feed.ended is not None


def fresh_stream() -> list[Scene | Reading]:
    """What an engine says just now, for a minute: however slow this machine is, it is not old."""
    at_us = time.time_ns() // 1000 + 60_000_000
    return [replace(each, at_us=at_us) if isinstance(each, Reading) else each for each in stream(1.0)]


def test_an_engine_that_has_ended_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nobody is told the last numbers of an engine for ever. Method: the newest reading is new, and then the engine has ended, or
    does not answer."""
    asked: list[Address] = []

    def watch(at: Address) -> Iterator[Scene | Reading]:
        asked.append(at)
        raise EngineUnreachable("it does not answer")
        yield

    monkeypatch.setattr(control_client, "watch", watch)
    teller, address = Teller(Feed("n", CURVES)), Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret")
    glances = Glances(address, teller)
    assert _exposition(glances) is None and len(asked) == 1, "it has said nothing yet"
    for each in fresh_stream():
        teller.take(each)
    assert b"evenflow_run_info" in (_exposition(glances) or b"") and _unready(glances) is None
    teller.feed.end("engine e1 has ended")
    assert _exposition(glances) is None and _unready(glances) == "engine e1 has ended" and len(asked) == 1
    silent = Teller(Feed("n", CURVES))
    for each in stream(1.0):
        silent.take(each)
    assert _exposition(Glances(address, silent)) is None and len(asked) == 2, "what it has said is old"
    assert "s old" in (_unready(Glances(address, silent)) or "")


def test_a_reading_is_told_with_its_own_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: there is a scene with fewer sites whose first reading has not come; the engine is asked for that."""
    told = fresh_stream()
    scene, reading = next(each for each in told if isinstance(each, Scene)), next(each for each in told if isinstance(each, Reading))
    without = replace(scene, number=scene.number + 1, sites=scene.sites[1:])
    after = replace(reading, number=reading.number + 1, scene=without.number)

    def watch(at: Address) -> Iterator[Scene | Reading]:
        yield from (without, after)

    monkeypatch.setattr(control_client, "watch", watch)
    teller = Teller(Feed("n", CURVES))
    for each in (scene, reading, without):
        teller.take(each)
    glances = Glances(Address("e1", "test", os.getpid(), "127.0.0.1", 1, b"secret"), teller)
    assert glances.newest() == (without, after)


def test_the_port_is_free_when_nobody_looks_at_an_engine_that_has_ended(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the page of the next engine has the address of the one before. Method: somebody reads when the engine ends, and then goes."""
    monkeypatch.setattr("evenflow.cli.ui.RETRY_S", 0.01)
    monkeypatch.setattr("evenflow.monitor.web.feed.LINGER_S", 0.0)
    over, feeds = threading.Event(), list[Feed]()

    def watch(at: Address) -> Iterator[Scene | Reading]:
        yield from stream(1.0)
        over.wait(20)

    class Looked(Feed):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.came()
            feeds.append(self)

    monkeypatch.setattr(control_client, "watch", watch)
    monkeypatch.setattr("evenflow.monitor.web.feed.Feed", Looked)
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(ui(SimpleNamespace(obj=Output(as_json=False)), port=0)), daemon=True)  # type: ignore[arg-type]
    thread.start()
    pause = threading.Event()
    while not list(control.glob("*.ui")):
        pause.wait(0.02)
    (file,) = control.glob("*.ui")
    url = json.loads(file.read_text())["url"]
    assert urllib.request.urlopen(f"{url}healthz", timeout=20).status == 200
    over.set()
    while feeds[0].ended is None:
        pause.wait(0.02)
    for path in ("metrics", "readyz"):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url + path, timeout=20)
    assert thread.is_alive(), "somebody still looks at it"
    feeds[0].went()
    thread.join(20)
    assert ended == [0] and "has ended" in capsys.readouterr().err and not list(control.glob("*.ui"))


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


@pytest.mark.parametrize("frame", ["https://例え.jp", "https://bücher.example", "https://a;script-src *", "https://a\r\nX: y"])
def test_what_is_no_origin_in_ascii_may_have_no_frame(control: Path, frame: str) -> None:
    """A header takes nothing else: the page was there, and each request for it ended with 500."""
    context: Any = SimpleNamespace(obj=Output(as_json=False))
    with pytest.raises(BadParameter, match="an origin in ASCII"):
        ui(context, frame=frame)
