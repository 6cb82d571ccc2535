"""The port at which a running engine takes requests from other processes of its user: `evenflow sites`, `evenflow drain` and so on.

It is open on this machine only, and for those who know its own secret, which is not that of the sites. Each request is a connection with a
thread of its own (see `control_client` for what is said on it). Who goes away does not stop what was begun.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from evenflow.errors import EngineUnreachable, EvenflowError, OperationRefused, OptionError, QueryError
from evenflow.query.builder import Dataflow
from evenflow.statistics.profile import Profile
from evenflow.world.flow_file import load
from evenflow.world.grouping import InGroup, asked
from evenflow.world.locations.looking import shown
from evenflow.world.spark.cluster.interrupts import heed
from evenflow.world.spark.driver.control_client import Address, write
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.operations import DRAIN_S, Departure, Say
from evenflow.world.spark.driver.ui_process import UiProcess
from evenflow.world.spark.driver.watching import Watcher
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL
from evenflow.world.spark.net.handshake import Hello, new_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.world.spark.driver.run import Run

HOST: Final = "127.0.0.1"
CUT: Final = ("cut", "width_ms", "cut_by", "width_rows", "cut_ahead_ms", "mirrored")
"""How all sources of a dataflow are cut, where a request says it."""
log = logging.getLogger("evenflow")

Given = Mapping[str, Any]


class Controlled(Protocol):
    """What can be asked of an engine by other processes; the engine says what each does."""

    spark: SparkSession

    @property
    def runs(self) -> tuple[Run, ...]: ...

    def describe(self) -> dict[str, Any]: ...

    def drain(self, site: int, timeout_s: float = ..., say: Say | None = ...) -> Departure: ...

    def remove_sites(self, count: int, timeout_s: float = ..., say: Say | None = ...) -> tuple[Departure, ...]: ...

    def add_sites(self, count: int, timeout_s: float | None = ...) -> tuple[int, ...]: ...

    def rebalance(self, timeout_s: float = ...) -> dict[str, int]: ...

    def profile(self, site: int, seconds: float = ...) -> Profile: ...

    def start(
        self, flow: Dataflow, replicas: int | None = ..., checkpoint_location: str | None = ..., *,
        take_over: bool = ..., from_savepoint: str | None = ..., drop_state: Collection[str] = ...,
        earlier: Sequence[Dataflow] = ..., allow_pickle: bool = ..., availability: str | None = ..., group: InGroup | None = ...,
        durability: str | None = ...,
    ) -> Run: ...  # fmt: skip


def _sites(engine: Controlled, given: Given, say: Say) -> Given:
    return engine.describe()


def _drain(engine: Controlled, given: Given, say: Say) -> Given:
    return {"left": [dataclasses.asdict(engine.drain(int(given["site"]), float(given.get("timeout_s", DRAIN_S)), say))]}


def _remove(engine: Controlled, given: Given, say: Say) -> Given:
    left = engine.remove_sites(int(given["count"]), float(given.get("timeout_s", DRAIN_S)), say)
    return {"left": [dataclasses.asdict(each) for each in left]}


def _add(engine: Controlled, given: Given, say: Say) -> Given:
    timeout_s = given.get("timeout_s")
    return {"added": list(engine.add_sites(int(given["count"]), None if timeout_s is None else float(timeout_s)))}


def _rebalance(engine: Controlled, given: Given, say: Say) -> Given:
    return {"moves": engine.rebalance(float(given["timeout_s"]))}


def _pin(engine: Controlled, given: Given, say: Say) -> Given:
    run = _run_of(engine, given.get("run"))
    if given.get("off"):
        run.unpin(given["box"], given.get("partitions"))
        return {"run": run.id, "box": given["box"], "pinned": False, "moves": 0}
    moves = run.pin(given["box"], given.get("sites"), given.get("partitions"))
    return {"run": run.id, "box": given["box"], "pinned": True, "moves": moves}


def _repartition(engine: Controlled, given: Given, say: Say) -> Given:
    run, partitions = _run_of(engine, given.get("run")), int(given["partitions"])
    before = run.repartition(given["box"], partitions, float(given["timeout_s"]))
    return {"run": run.id, "box": given["box"], "partitions": partitions, "before": before}


def _availability(engine: Controlled, given: Given, say: Say) -> Given:
    run = _run_of(engine, given.get("run"))
    return {
        "run": run.id,
        "box": given["box"],
        "mode": given["mode"],
        **run.set_availability(given["box"], given["mode"], given["timeout_s"]),
    }


def _replace(engine: Controlled, given: Given, say: Say) -> Given:
    run, version = _run_of(engine, given.get("run")), given.get("version")
    expected = None if version is None else int(version)
    return {"run": run.id, **run.replace(_flow_of(engine, given), float(given["timeout_s"]), version=expected)}


def _compare(engine: Controlled, given: Given, say: Say) -> Given:
    run = _run_of(engine, given.get("run"))
    return {"run": run.id, **run.compare(_flow_of(engine, given))}


def _start(engine: Controlled, given: Given, say: Say) -> Given:
    flow, replicas = _cut(_flow_of(engine, given), given), given.get("replicas")
    location, savepoint = given.get("checkpoint_location"), given.get("from_savepoint")
    run = engine.start(
        flow,
        None if replicas is None else int(replicas),
        None if location is None else str(location),
        take_over=bool(given.get("take_over")),
        from_savepoint=None if savepoint is None else str(savepoint),
        drop_state=tuple(given.get("drop_state") or ()),
        earlier=[_cut(_flow_of(engine, {**given, "file": file}), given) for file in given.get("earlier") or ()],
        allow_pickle=bool(given.get("allow_pickle")),
        availability=given.get("availability"),
        durability=given.get("durability"),
        group=asked(given),
    )
    return {"run": run.id, "dataflow": flow.name}


def _cut(flow: Dataflow, given: Given) -> Dataflow:
    """With its sources cut as the request says, if it does. Raises OptionError, QueryError."""
    said = {name: given[name] for name in CUT if given.get(name) is not None and given[name] is not False}
    if not said:
        return flow
    if "cut" not in said:
        raise OptionError(f"{', '.join(sorted(said))}: these are about cuts by content; give cut='content', too")
    return flow.cut(**said)


def _flow_of(engine: Controlled, given: Given) -> Dataflow:
    """The dataflow of a request: a file of Python or JSON where the engine runs. modules: that a saved one may name."""
    file = Path(given["file"])
    if file.suffix == ".json":
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QueryError(f"cannot read {file}: {error}; give a file where the engine runs") from error
        return Dataflow.from_json(text, modules=[str(module) for module in given.get("modules") or ()])
    flow: Dataflow = load(file, given.get("arguments") or ()).build(engine.spark)
    return flow


def _refresh(engine: Controlled, given: Given, say: Say) -> Given:
    run = _run_of(engine, given.get("run"))
    return {"run": run.id, **run.refresh(given.get("table"), float(given["timeout_s"]))}


def _checkpoint(engine: Controlled, given: Given, say: Say) -> Given:
    run = _run_of(engine, given.get("run"))
    return {"run": run.id, **run.checkpoint(float(given["timeout_s"]))}


def _savepoint(engine: Controlled, given: Given, say: Say) -> Given:
    return _run_of(engine, given.get("run")).savepoint(str(given["target"]), float(given["timeout_s"]), say).to_json()


def _state(engine: Controlled, given: Given, say: Say) -> Given:
    run, limit = _run_of(engine, given.get("run")), int(given["limit"])
    table = run.state(
        str(given["box"]), given.get("key"), kind=given.get("kind"), limit=limit + 1 if limit else None, timeout_s=float(given["timeout_s"])
    )
    return {"run": run.id, **shown(str(given["box"]), table, limit)}


def _profile(engine: Controlled, given: Given, say: Say) -> Given:
    site, seconds = int(given["site"]), float(given["seconds"])
    return engine.profile(site, seconds).to_json()


def _suspend(engine: Controlled, given: Given, say: Say) -> Given:
    run, target = _run_of(engine, given.get("run")), given.get("target")
    return {"run": run.id, **run.suspend(None if target is None else str(target), float(given["timeout_s"]), say)}


def _stop(engine: Controlled, given: Given, say: Say) -> Given:
    run, drain = _run_of(engine, given.get("run")), bool(given.get("drain"))
    as_asked = run.stop(drain, float(given["timeout_s"]))
    error = run.exception()
    return {"run": run.id, "drained": drain and as_asked, "epoch": run.numbers().epoch, "error": None if error is None else str(error)}


def _run_of(engine: Controlled, name: str | None) -> Run:
    """The active run with this id or of this dataflow; None: the only one."""
    active = [run for run in engine.runs if run.is_active]
    found = [run for run in active if name is None or name in (run.id, run.numbers().dataflow)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(run.id for run in active) or "none"
    what = "no run is meant" if not found else "several runs could be meant"
    raise OperationRefused(f"{what}: say which with --run. Active are: {there}")


ASKED: Final[Mapping[str, Callable[[Controlled, Given, Say], Given]]] = {
    "sites": _sites,
    "drain": _drain,
    "remove-sites": _remove,
    "add-sites": _add,
    "rebalance": _rebalance,
    "pin": _pin,
    "repartition": _repartition,
    "availability": _availability,
    "start": _start,
    "compare": _compare,
    "replace": _replace,
    "refresh": _refresh,
    "checkpoint": _checkpoint,
    "savepoint": _savepoint,
    "suspend": _suspend,
    "stop": _stop,
    "state": _state,
    "profile": _profile,
}


WATCH: Final = "watch"
WATCHERS_MAX: Final = 16
WAIT_SLICE_S: Final = 0.2
READ_S: Final = 30.0
"""Who has not read for this long is gone."""
ANSWERS_S: Final = 5.0
"""How long the end of an engine waits for answers that are still to be given."""
COPIES: Final = ("savepoint", "suspend")
"""What is asked for and copies a checkpoint, which may take longer than the run lives, and needs nothing of it."""


class ControlPort:
    """file: says where it is. Opened in the coordinator's thread; closed with the coordinator, or before. Raises EngineUnreachable if the
    file cannot be written."""

    def __init__(self, engine: Controlled, coordinator: DriverLoop) -> None:
        self._engine = engine
        secret = new_secret()
        port = coordinator.ask(lambda: coordinator.listen(HOST, secret, self._welcome))
        name = str(engine.spark.sparkContext.appName)
        self._watcher = Watcher(engine, coordinator, coordinator.engine, name)
        self._watchers, self._closed = 0, threading.Event()
        self._answering, self._answered = list[str](), threading.Condition()
        self._late_s: float | None = None
        self._ui: UiProcess | None = None
        self._opening = threading.Lock()
        self._besides: dict[str, Callable[[Controlled, Given, Say], Given]] = {}
        try:
            self._owned = write(Address(coordinator.engine, name, os.getpid(), HOST, port, secret))
        except EngineUnreachable:
            coordinator.ask(lambda: coordinator.listen_no_more(port))
            raise

    @property
    def file(self) -> Path:
        return self._owned.path

    def allow(self, name: str, carry_out: Callable[[Controlled, Given, Say], Given]) -> None:
        """From now on this can be asked, too. Pages that are opened have a button for it."""
        self._besides[name] = carry_out

    def open_ui(self, port: int | None, frame: str | None = None) -> UiProcess:
        """The engine's page; one for all who ask. Another port, others who may have it in a frame, or a page that has died: a new one."""
        with self._opening:
            if self._ui is None or port is not None or not self._ui.lives or frame not in (None, self._ui.frame):
                if self._ui is not None:
                    self._ui.close()
                self._ui = UiProcess(self.file, port, frame=frame, besides=tuple(self._besides))
            return self._ui

    def close(self) -> None:
        """Nobody finds it any more."""
        self._closed.set()
        with self._opening:
            if self._ui is not None:
                self._ui.close()
        self._owned.release()

    def settle(self) -> None:
        """It is closed: let those who have asked have their answers, for ANSWERS_S in all. A program may end behind this, and with it the
        threads that give them."""
        self._late_s = time.monotonic() + ANSWERS_S if self._late_s is None else self._late_s
        while time.monotonic() < self._late_s and not self._await(WAIT_SLICE_S, lambda what: what != WATCH):
            heed()

    def await_copies(self, timeout_s: float) -> bool:
        """Until no savepoint is being made that somebody has asked for: True, or False if one still is then."""
        return self._await(timeout_s, lambda what: what in COPIES)

    def _await(self, timeout_s: float, counts: Callable[[str], bool]) -> bool:
        with self._answered:
            return self._answered.wait_for(lambda: not any(map(counts, self._answering)), timeout_s)

    @contextmanager
    def _answers(self, what: str) -> Iterator[None]:
        with self._answered:
            self._answering.append(what)
        try:
            yield
        finally:
            with self._answered:
                self._answering.remove(what)
                self._answered.notify_all()

    def _watch(self, connection: Connection) -> None:
        """Tell scenes and readings until the reader goes, or the engine ends: then once more, since why may have happened just now."""
        if self._watchers >= WATCHERS_MAX:
            raise OperationRefused(f"{WATCHERS_MAX} processes watch this engine already: `evenflow ui` shows it to any number of people")
        self._watchers += 1
        try:
            connection.settimeout(READ_S)
            scene = reading = 0
            closed = False
            while not closed:
                closed = self._closed.wait(self._watcher.due_s())
                scene, reading, told = self._watcher.news(scene, reading, now=closed)
                for text in told:
                    connection.send(CONTROL, [b'{"told":', text, b"}"])
        except OSError:
            pass  # Who watched has gone away.
        finally:
            self._watchers -= 1

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        threading.Thread(target=self._serve, args=(connection, hello), name="evenflow-control", daemon=True).start()

    def _serve(self, connection: Connection, hello: Hello) -> None:
        connection.settimeout(None)
        with connection, self._answers(str(hello.get("ask"))):

            def tell(answer: Given) -> None:
                try:
                    connection.tell(**answer)
                except OSError:
                    pass  # Who asked has gone away. It goes on.

            try:
                if hello.get("as") == "operator" and hello.get("ask") == WATCH:
                    self._watch(connection)
                    return
                asked = {**ASKED, **self._besides}.get(str(hello.get("ask")))
                if hello.get("as") != "operator" or asked is None:
                    raise OperationRefused(f"an engine can be asked for {', '.join(ASKED)}, not for {hello.get('ask')!r}")
                tell({"done": asked(self._engine, hello, lambda text: tell({"said": text}))})
            except EvenflowError as error:
                tell({"error": {"type": type(error).__name__, "message": str(error)}})
            except Exception as error:
                log.exception("a request at the control port failed: %s", hello.get("ask"))  # What goes with it may be a password.
                tell({"error": {"type": type(error).__name__, "message": str(error)}})
