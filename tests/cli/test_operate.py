"""The commands for a running engine, against a control port with an engine behind it that only notes what it is asked."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.commands import object_of, run
from tests.cli.test_moves_view import MOVES
from tests.query.networks import session_monitor
from tests.statistics.numbers import progress

from evenflow.cli.output import Output
from evenflow.cli.running import _open_control
from evenflow.errors import ClusterError, EngineUnreachable, EvenflowError, LocationError, OperationRefused, VersionChanged
from evenflow.statistics.profile import Profile, Stack
from evenflow.statistics.progress import Progress
from evenflow.world.locations.savepoints import Savepoint
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.control_client import Address, ask, find
from evenflow.world.spark.driver.control_port import ControlPort
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.operations import Departure
from evenflow.world.spark.net.connection import Connection

SITE = {
    "site": 2, "executor": "7", "host": "a-host", "pid": 1, "role": "leaving", "leaving": True, "partitions": 1234, "coming": 5,
    "utilization": 0.25, "rss_bytes": 1 << 20, "pss_bytes": 0, "refused": 0,
}  # fmt: skip


class Run:
    id, is_active = "flow-1", True
    failure: EvenflowError | None = None

    def __init__(self, asked: list[Any]) -> None:
        self.asked = asked

    def numbers(self) -> Progress:
        return progress(dataflow="flow")

    def pin(self, box: str, sites: Any = None, partitions: Any = None) -> int:
        if box == "nowhere":
            raise OperationRefused("there is no such box")
        self.asked.append(("pin", box, sites, partitions))
        return 3

    def unpin(self, box: str, partitions: Any = None) -> None:
        self.asked.append(("unpin", box, partitions))

    def repartition(self, box: str, partitions: int, timeout_s: float) -> int:
        if box == "nowhere":
            raise OperationRefused("there is no such box")
        self.asked.append(("repartition", box, partitions, timeout_s))
        return 256

    def set_availability(self, box: str, mode: str, timeout_s: float) -> dict[str, Any]:
        if box == "nowhere":
            raise OperationRefused("there is no such box")
        self.asked.append(("availability", box, mode, timeout_s))
        return {"epoch": 7, "modes": {"sessions": mode}}

    def compare(self, flow: Any) -> dict[str, Any]:
        self.asked.append(("compare", flow.name, [box.name for box in flow.network]))
        refused = {"box": "out", "change": "refused", "keeps_state": False, "why": "the sink 'out' is another one"}
        other = {"box": "over5", "change": "other", "keeps_state": True, "why": ""}
        return {"version": 4, "possible": False, "changed": ["over5", "out"], "boxes": [other, refused]}

    def replace(self, flow: Any, timeout_s: float, *, version: int | None = None) -> dict[str, Any]:
        if version == 3:
            raise VersionChanged("version 4 runs by now, and version 3 was compared with")
        self.asked.append(("replace", flow.name, [box.name for box in flow.network], timeout_s, version))
        return {"version": 2, "epoch": 77, "boxes": ["small", "big"]}

    def checkpoint(self, timeout_s: float) -> dict[str, Any]:
        self.asked.append(("checkpoint", timeout_s))
        return {"number": 5, "generation": 2, "epoch": 77, "bytes": 1234}

    def savepoint(self, target: str, timeout_s: float, say: Any) -> Savepoint:
        self.asked.append(("savepoint", target, timeout_s))
        if target == "full":
            raise LocationError("full has thesis.txt already")
        return Savepoint(target, "flow", "flow-1", 5, 77, 3 << 20, 12, 12)

    def suspend(self, target: str | None, timeout_s: float, say: Any) -> dict[str, Any]:
        self.asked.append(("suspend", target, timeout_s))
        return self.checkpoint(timeout_s) | {"savepoint": target}

    def stop(self, drain: bool, timeout_s: float) -> bool:
        self.asked.append(("stop", drain, timeout_s))
        return self.failure is None and timeout_s > 1

    def exception(self) -> EvenflowError | None:
        return self.failure

    def refresh(self, table: str | None, timeout_s: float) -> dict[str, Any]:
        self.asked.append(("refresh", table, timeout_s))
        return {"table": table or "only", "changed": table is not None, "rows": 1234, "version": 2, "epoch": 77}


class Engine:
    """Answers at once; what it is asked is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.runs = [Run(self.asked)]
        self.spark = SimpleNamespace(sparkContext=SimpleNamespace(appName="an app"))

    def drain(self, site: int, timeout_s: float, say: Any) -> Departure:
        self.asked.append(("drain", site, timeout_s))
        if site == 9:
            raise OperationRefused("there is no site 9; there are 0, 1, 2")
        if site == 8:
            raise ClusterError("site 8 still hosts 3 replicas when the time was over")
        if site == 7:
            raise RuntimeError("a bug")
        say(f"site {site} still hosts 12 replicas")
        return Departure(site, "7", 4, 40, 3 << 20, 12.3, 1.5, lost=False)

    def remove_sites(self, count: int, timeout_s: float, say: Any) -> tuple[Departure, ...]:
        return tuple(self.drain(site, timeout_s, say) for site in range(count))

    def add_sites(self, count: int, timeout_s: float | None) -> tuple[int, ...]:
        self.asked.append(("add", count, timeout_s))
        return tuple(range(4, 4 + count))

    def rebalance(self, timeout_s: float) -> dict[str, int]:
        self.asked.append(("rebalance", timeout_s))
        return {"flow-1": 6, "flow-2": 0}

    def start(self, flow: Any, replicas: int | None, checkpoint_location: str | None, **more: Any) -> Any:
        more["earlier"] = [each.name for each in more["earlier"]]
        self.asked.append(("start", flow.name, replicas, checkpoint_location, *more.values()))
        return SimpleNamespace(id=f"{flow.name}-1")

    def profile(self, site: int, seconds: float) -> Profile:
        return Profile(site, seconds, 500, 1_100, 40, (Stack(("thread loop", "box \x1b[2J\nof; mine", "process"), 600, 700),))

    def describe(self) -> dict[str, Any]:
        from evenflow.statistics.moves import moves_of

        run = {"run": "flow-1", "dataflow": "flow", "replicas": 2, "redundancy": 2, "rows_in_per_s": 1e4, "rows_out_per_s": 1.0}
        runs = [run | {"p99_ms": 12.0, "moves": moves_of(MOVES), "state": "live", "error": None}]
        for number, error in ((3, "box 'a' [/b] raised: no"), (4, None)):
            ended = {"run": f"flow-{number}", "state": "over" if error is None else "failed", "error": error, "moves": []}
            runs.append(runs[0] | ended)
        return {
            "engine": "abc", "master": "local", "replicas": 2, "spares": 0, "under_way": "draining site 2", "sites": [SITE], "runs": runs,
            "standby": [{"dataflow": "other", "location": "/there", "generation": 3, "silent_s": 0.42}],
        }  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "control"
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(path))
    return path


@pytest.fixture
def engine(directory: Path) -> Iterator[Engine]:
    made = Engine()
    coordinator = DriverLoop("abc", 0, b"s" * 32, "127.0.0.1")
    port = ControlPort(made, coordinator)  # type: ignore[arg-type]
    yield made
    port.close()
    assert not port.file.exists()
    coordinator.close()


def test_sites_are_shown(engine: Engine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run("sites") == 0
    out = capfd.readouterr().out
    shown = (
        "engine abc",
        "draining site 2",
        "leaving",
        "1,234 (+5)",
        "25%",
        "flow-1",
        "it is the idlest",
        "12.3 ms",
        "flow-3: failed: box 'a' [/b] raised: no",
        "flow-4: over",
    )
    assert [text for text in shown if text not in out] == []
    assert run("sites", "--json", "--engine", "abc") == 0
    found = object_of(capfd.readouterr().out)
    assert found == json.loads(json.dumps(engine.describe()))


def test_a_folded_profile_has_a_line_a_stack_and_steers_no_terminal(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "2", "--folded") == 0
    assert capfd.readouterr().out == "thread loop;box \\x1b[2J of, mine;process 600\n"
    assert run("profile", "2", "--json") == 0
    assert "box \x1b[2J\nof; mine" in object_of(capfd.readouterr().out)["frames"]


def test_an_object_that_nobody_reads_is_no_bug(engine: Engine) -> None:
    """`evenflow sites --json | true` ended with a traceback."""
    command = [sys.executable, "-c", "import time; from evenflow.cli.app import main; time.sleep(0.5); main(['sites', '--json'])"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
        assert asking.stdout is not None and asking.stderr is not None
        asking.stdout.close()
        words = asking.stderr.read().decode()
        assert (asking.wait(60), "Traceback" in words) == (0, False), words


def test_a_site_is_drained(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("drain", "2", "--timeout", "9") == 0
    caught = capfd.readouterr()
    assert "site 2 (executor 7) has left after 1.5 s: 4 moves, 40 replicas, 3.0 MiB" in caught.out.replace("\n", " ")
    assert "site 2 still hosts 12 replicas" in caught.err
    assert engine.asked == [("drain", 2, 9.0)]
    assert run("drain", "2", "--json") == 0
    (left,) = object_of(capfd.readouterr().out)["left"]
    assert left == {
        "site": 2, "executor": "7", "moves": 4, "partitions": 40, "bytes": 3 << 20, "stall_ms": 12.3, "seconds": 1.5, "lost": False
    }  # fmt: skip


@pytest.mark.parametrize(
    ("site", "code", "kind", "said"),
    [("9", 2, "OperationRefused", "there are 0, 1, 2"), ("8", 3, "ClusterError", "time was over"), ("7", 1, "EvenflowError", "a bug")],
)
def test_what_the_engine_refuses_is_the_commands_error(
    engine: Engine, capfd: pytest.CaptureFixture[str], site: str, code: int, kind: str, said: str
) -> None:
    assert run("drain", site, "--json") == code
    error = object_of(capfd.readouterr().out)["error"]
    assert (error["type"], error["exit_code"]) == (kind, code) and said in error["message"]


def test_sites_are_added_and_removed_and_load_is_spread(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("add-sites", "2") == 0
    assert "new: site 4, site 5" in capfd.readouterr().out
    assert run("remove-sites", "2", "--json") == 0
    assert [left["site"] for left in object_of(capfd.readouterr().out)["left"]] == [0, 1]
    assert run("rebalance") == 0
    out = capfd.readouterr().out
    assert "flow-1: 6 moves" in out and "flow-2: nothing to move" in out
    assert engine.asked == [("add", 2, None), ("drain", 0, 300.0), ("drain", 1, 300.0), ("rebalance", 60.0)]


def test_a_box_is_pinned_and_let_go(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("pin", "sessions", "--site", "1", "--site", "3", "--partition", "5") == 0
    assert "box sessions of flow-1 is pinned, after 3 moves" in capfd.readouterr().out
    assert run("pin", "sessions", "--off", "--run", "flow", "--json") == 0
    assert object_of(capfd.readouterr().out) == {"run": "flow-1", "box": "sessions", "pinned": False, "moves": 0}
    assert engine.asked == [("pin", "sessions", [1, 3], [5]), ("unpin", "sessions", None)]
    assert run("pin", "nowhere") == 2
    assert run("pin", "sessions", "--run", "other", "--json") == 2
    assert "say which with --run. Active are: flow-1" in object_of(capfd.readouterr().out)["error"]["message"]


def test_a_box_is_divided_anew(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("repartition", "sessions", "512", "--timeout", "9") == 0
    assert "box sessions of flow-1 has 512 partitions; before, it had 256" in capfd.readouterr().out
    assert run("repartition", "sessions", "64", "--run", "flow", "--json") == 0
    assert object_of(capfd.readouterr().out) == {"run": "flow-1", "box": "sessions", "partitions": 64, "before": 256}
    assert engine.asked == [("repartition", "sessions", 512, 9.0), ("repartition", "sessions", 64, 300.0)]
    assert run("repartition", "nowhere", "2") == 2


def test_a_box_gets_another_mode(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("availability", "sessions", "amnesia", "--timeout", "9") == 0
    assert "from epoch 7 on, flow-1 has amnesia for sessions" in capfd.readouterr().out
    assert run("availability", "*", "pairs", "--json") == 0
    said = object_of(capfd.readouterr().out)
    assert said == {"run": "flow-1", "box": "*", "mode": "pairs", "epoch": 7, "modes": {"sessions": "pairs"}}
    assert engine.asked == [("availability", "sessions", "amnesia", 9.0), ("availability", "*", "pairs", 300.0)]
    assert run("availability", "nowhere", "pairs") == 2


FLOW = """
import pyarrow as pa

import evenflow as ef


def dataflow(*, least: int = 1) -> ef.Dataflow:
    flow = ef.Dataflow("flow")
    rows = flow.source(ef.sources.memory(pa.table({"v": [1]})), name="in")
    rows.where(f"v > {least}", name=f"over{least}").to(ef.sinks.discard(), name="out")
    return flow
"""


def test_a_run_is_replaced_by_what_a_file_builds(engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "newer.py"
    file.write_text(FLOW)
    assert run("replace", str(file), "--timeout", "9", "--least", "5") == 0
    assert "version 2 of flow-1 runs from epoch 77 on; its new boxes: small, big" in capfd.readouterr().out
    assert engine.asked == [("replace", "flow", ["in", "over5", "out"], 9.0, None)]
    assert run("replace", str(file), "--json") == 0
    assert object_of(capfd.readouterr().out) == {"run": "flow-1", "version": 2, "epoch": 77, "boxes": ["small", "big"]}
    assert run("replace", str(tmp_path / "none.py")) == 2
    assert "there is no file" in capfd.readouterr().err
    assert run("replace", str(file), "--version", "4") == 0 and engine.asked[-1][-1] == 4
    capfd.readouterr()
    assert run("replace", str(file), "--version", "3", "--json") == 2
    assert object_of(capfd.readouterr().out)["error"]["type"] == "VersionChanged"


def test_a_run_is_compared_before_it_is_replaced(engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, svg = tmp_path / "newer.py", tmp_path / "newer.svg"
    file.write_text(FLOW)
    assert run("compare", str(file), "--svg", str(svg), "--least", "5") == 2
    out = capfd.readouterr().out
    assert "~ over5: other code, keeps its state" in out and "! out: the sink 'out' is another one" in out
    assert "this is no version of what runs; version 4 runs" in out
    assert ">refused<" in svg.read_text() and ">other code<" in svg.read_text()
    assert engine.asked == [("compare", "flow", ["in", "over5", "out"])]
    assert run("compare", str(file), "--json") == 2
    assert object_of(capfd.readouterr().out)["boxes"][1]["change"] == "refused"


def test_a_dataflow_is_started_from_a_saved_file(engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "alerts.json"
    file.write_text(session_monitor().to_json())
    assert run("start", str(file), "--json") == 2
    assert object_of(capfd.readouterr().out)["error"]["type"] == "CodeNotAllowed" and engine.asked == []
    assert run("start", str(file), "--module", "tests.query.networks", "--replicas", "2") == 0
    assert "sessions-1 has started, of dataflow sessions" in capfd.readouterr().out
    assert engine.asked == [("start", "sessions", 2, None, False, None, (), [], False, None, None, None)]
    savepoint = ("--from-savepoint", "/saved", "--drop-state", "a", "--drop-state", "b")
    given = ("--checkpoint-location", "/at", *savepoint, "--take-over", "--durability", "no-loss")
    assert run("start", str(file), "--module", "tests.query.networks", *given) == 0
    assert engine.asked[1:] == [("start", "sessions", None, "/at", True, "/saved", ("a", "b"), [], False, None, "no-loss", None)]
    given = ("--checkpoint-location", "/at", "--earlier", str(file), "--allow-pickle")
    assert run("start", str(file), "--module", "tests.query.networks", *given) == 0
    assert engine.asked[2:] == [("start", "sessions", None, "/at", False, None, (), ["sessions"], True, None, None, None)]
    assert run("start", str(tmp_path / "none.json")) == 2


def test_a_table_is_refreshed(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("refresh", "shops", "--timeout", "9") == 0
    assert "table shops of flow-1 has 1,234 rows from epoch 77 on" in capfd.readouterr().out
    assert run("refresh") == 0
    assert "table only of flow-1 is as it was, 1,234 rows" in capfd.readouterr().out
    assert engine.asked == [("refresh", "shops", 9.0), ("refresh", None, 300.0)]
    assert run("refresh", "shops", "--json") == 0
    found = object_of(capfd.readouterr().out)
    assert found == {"run": "flow-1", "table": "shops", "changed": True, "rows": 1234, "version": 2, "epoch": 77}


@pytest.mark.parametrize(
    "command",
    [
        ["drain"],
        ["drain", "two"],
        ["add-sites", "0"],
        ["remove-sites", "-1"],
        ["pin", "x", "--off", "--site", "1"],
        ["repartition", "x", "0"],
    ],
)
def test_wrong_usage(engine: Engine, command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*command) == 2
    assert "error:" in capfd.readouterr().err and engine.asked == []


@pytest.mark.parametrize(
    "command", ["sites", "drain", "add-sites", "remove-sites", "rebalance", "pin", "repartition", "replace", "compare", "start"]
)
def test_every_command_explains_itself(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    out = capfd.readouterr().out
    assert "Usage" in out and "Example" in out and "--json" in out


# ---------------------------------------------------------------- who is not there, and who may not


def test_no_engine(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("sites", "--json") == 3
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "EngineUnreachable" and "evenflow run" in error["message"] and "open_control" in error["message"]
    assert run("drain", "1", "--engine", "gone") == 3
    assert "gone.json" in capfd.readouterr().err


def test_several_engines(engine: Engine, directory: Path) -> None:
    control_client.write(Address("other", "another app", os.getpid(), "127.0.0.1", 1, b"x" * 32))
    with pytest.raises(OperationRefused, match=r"say which with --engine.* abc \(an app.* other \(another app"):
        find()
    assert find("abc").engine == "abc" and find(str(directory / "abc.json")).name == "an app"


def test_the_file_of_an_engine_that_was_killed_is_removed(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    child = os.fork()
    if child == 0:
        control_client.write(Address("dead", "x", os.getpid(), "127.0.0.1", 1, b"x" * 32))
        os._exit(0)
    os.waitpid(child, 0)
    file = directory / "dead.json"
    assert file.exists()
    with pytest.raises(EngineUnreachable, match="no engine runs here"):
        find()
    assert not file.exists()


def test_a_port_where_nobody_answers(directory: Path) -> None:
    address = Address("x", "x", os.getpid(), "127.0.0.1", 1, b"x" * 32)
    with pytest.raises(EngineUnreachable, match="does not answer at 127.0.0.1:1"):
        ask(address, "sites")


def test_an_engine_that_ends_in_the_middle(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def serve(self: ControlPort, sock: Connection, hello: Any) -> None:
        begun.set()
        sock.close()

    monkeypatch.setattr(ControlPort, "_serve", serve)
    with pytest.raises(EngineUnreachable, match="ended before it was done"):
        ask(find(), "sites")
    assert begun.is_set()


def test_a_stranger_is_refused_and_the_engine_goes_on(engine: Engine) -> None:
    address = find()
    stranger = Address(address.engine, address.name, address.pid, address.host, address.port, b"y" * 32)
    with pytest.raises(EngineUnreachable, match="does not answer"):
        ask(stranger, "sites")
    assert ask(address, "sites")["engine"] == "abc"
    with pytest.raises(OperationRefused, match="can be asked for sites, drain.* not for 'explode'"):
        ask(address, "explode")
    with pytest.raises(OperationRefused, match="too much for one request"):
        ask(address, "pin", box="b", partitions=list(range(4096)))


def test_who_goes_away_does_not_stop_what_was_begun(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, done = threading.Event(), threading.Event()

    def drain(site: int, timeout_s: float, say: Any) -> Departure:
        assert gone.wait(10)
        for _ in range(100):
            say("still at it")
        done.set()
        return Departure(site, "7", 0, 0, 0, 0.0, 0.0, lost=False)

    monkeypatch.setattr(engine, "drain", drain)
    address = find()
    control_client.dial((address.host, address.port), address.secret, {"as": "operator", "ask": "drain", "site": 1}).close()
    gone.set()
    assert done.wait(10)


def test_only_its_owner_can_read_the_file(engine: Engine, directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert stat.S_IMODE((directory / "abc.json").stat().st_mode) == 0o600 and stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert find().secret.hex() not in repr(find())
    directory.chmod(0o755)
    with pytest.raises(EngineUnreachable, match="chmod 700"):
        find()
    directory.chmod(0o700)
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "file"))
    with pytest.raises(EngineUnreachable, match="EVENFLOW_CONTROL_DIR"):
        find()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"engine": 1, "secret": "zz"}'])
def test_a_file_that_is_none_of_ours(directory: Path, text: str) -> None:
    path = control_client.control_directory() / "odd.json"
    path.write_text(text)
    with pytest.raises(EngineUnreachable, match="is not the control file"):
        find("odd")
    with pytest.raises(EngineUnreachable, match="no engine runs here"):
        find()


def test_a_run_whose_control_port_has_no_place_goes_on(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    made = SimpleNamespace(open_control=control_client.control_directory)
    with Output(as_json=False) as output:
        _open_control(made, output)
        assert "nobody can operate this engine from outside" in capfd.readouterr().err
        directory.chmod(0o700)
        _open_control(SimpleNamespace(open_control=lambda: directory / "abc.json"), output)
    assert "evenflow sites --engine abc" in capfd.readouterr().err


def test_a_checkpoint_a_savepoint_and_an_end_behind_one_are_asked_for(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("checkpoints", "take", "--timeout", "9") == 0
    assert "checkpoint 2.5 of flow-1: epoch 77, 1,234 B" in capfd.readouterr().out
    assert run("savepoint", "/backup/one", "--run", "flow") == 0
    assert "savepoint /backup/one: epoch 77, 12 objects, 3.0 MiB" in capfd.readouterr().out.replace("\n", " ")
    assert run("savepoint", "full", "--json") == 1
    assert object_of(capfd.readouterr().out)["error"]["type"] == "LocationError"
    assert run("suspend") == 0
    assert "flow-1 is suspended behind epoch 77, checkpoint 2.5\n" in capfd.readouterr().out
    assert run("suspend", "/backup/two", "--json") == 0
    assert object_of(capfd.readouterr().out)["savepoint"] == "/backup/two"
    assert run("stop") == 0 and "flow-1 has ended behind epoch" in capfd.readouterr().out
    assert run("stop", "--drain", "--run", "flow", "--timeout", "5", "--json") == 0
    told = object_of(capfd.readouterr().out)
    assert (told["run"], told["drained"], told["error"]) == ("flow-1", True, None)
    assert engine.asked[-2:] == [("stop", False, 60.0), ("stop", True, 5.0)]
    assert engine.asked[0] == ("checkpoint", 9.0) and engine.asked[1] == ("savepoint", "/backup/one", 120.0)


def test_a_run_that_was_not_drained_in_time_or_had_failed_is_said_to_be_so(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """`evenflow stop --drain && deploy` went on as if all of it were in the sinks."""
    assert run("stop", "--drain", "--timeout", "1") == 1
    assert "is not drained: it had not finished in time" in capfd.readouterr().out
    assert run("stop", "--drain", "--timeout", "1", "--json") == 1
    assert object_of(capfd.readouterr().out)["drained"] is False
    engine.runs[0].failure = EvenflowError("a box raised")
    assert run("stop", "--drain", "--timeout", "5", "--json") == 1
    told = object_of(capfd.readouterr().out)
    assert (told["drained"], told["error"]) == (False, "a box raised")
    assert run("stop") == 1 and ": a box raised" in capfd.readouterr().out
