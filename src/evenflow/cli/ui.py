"""`evenflow ui`: the page of a running engine, in a process of its own. It may die and come again; no run notices."""

from __future__ import annotations

import json as json_
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import OK, Output
from evenflow.errors import EvenflowError, OperationRefused, OptionError, StatisticsError

if TYPE_CHECKING:
    from evenflow.monitor.otel import Exporter
    from evenflow.monitor.reading import Reading
    from evenflow.monitor.scene import Scene
    from evenflow.monitor.web.feed import Feed
    from evenflow.monitor.web.guard import Tokens
    from evenflow.monitor.web.serve import Server
    from evenflow.monitor.web.teller import Teller
    from evenflow.world.spark.driver.control_client import Address

SUFFIX: Final = ".jsonl"
CODE: Final = ".py"
RETRY_S = 1.0
IDLE_S = 10.0
"""Between two readings while nobody looks."""
FRESH_US = 1_000_000
FAULTS = 5
"""So often in a row, and it is given up."""


def ui(
    context: typer.Context,
    engine: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENGINE|FILE.jsonl|FLOW.json|FLOW.py]",
            help="Id of the engine, or its control file; may be left out if only one runs here. A recording is replayed, a flow edited.",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; default the first free one from 4141 on.", min=0, max=65535)] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; others than this machine's own open it to the network.")] = "127.0.0.1",
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which a proxy asks for it; may be given several times.")
    ] = None,
    frame: Annotated[
        str, typer.Option(metavar="ORIGIN", help="Who may show it in a frame, as in frame-ancestors of a Content-Security-Policy.")
    ] = "'none'",
    read_only: Annotated[bool, typer.Option("--read-only", help="No token may change anything.")] = False,
    module: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="A module that the saved dataflow may name; several times. It is imported.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--engine", metavar="ENGINE", help="The engine that a saved dataflow is started in or compared with.")
    ] = None,
    allow_code: Annotated[
        bool,
        typer.Option("--allow-code", help="FLOW.py may run, which is how it is drawn; it is saved as FLOW.json."),
    ] = False,
    besides: Annotated[list[str] | None, typer.Option("--besides", hidden=True, help="What else this engine can be asked for.")] = None,
    child: Annotated[
        bool, typer.Option("--child", hidden=True, help="End with the standard input; the address is one line of JSON.")
    ] = False,
    json: Json = False,
) -> int:
    """Serve the page of a running engine: what holds it back, what happened, who hosts what; metrics, REST and operations besides.

    A recording of `evenflow run --record` is replayed on the same page. A dataflow is drawn, checked and tried in an editor.

    The address that it prints has a token behind the #, which may change things; a second one may only look.

    Example: `evenflow ui`
    """
    output: Output = context.obj
    _check_installed()
    from evenflow.monitor.web.guard import Tokens
    from evenflow.monitor.web.serve import bound
    from evenflow.world.owned import Owner
    from evenflow.world.spark.driver.control_client import control_directory, find

    if not all(c.isascii() and c.isprintable() and c not in ";,\\" for c in frame):
        raise typer.BadParameter(
            "it is an origin in ASCII, such as https://example.org or https://xn--r8jz45g.jp, or 'self'", param_hint="--frame"
        )
    document = None if engine is None else _document(engine)
    recording = None if engine is None or not engine.endswith(SUFFIX) else Path(engine)
    if document is not None and document.suffix == CODE and not allow_code:
        raise typer.BadParameter(f"{document} is code, and to open it is to run it: give --allow-code if you trust it")
    if recording is not None and of is not None:
        raise typer.BadParameter("a recording has its engine's past, and asks no engine", param_hint="--engine")
    if document is None and of is not None:
        if engine is not None:
            raise typer.BadParameter("the engine is named already; --engine is for a saved dataflow", param_hint="--engine")
        engine = of
    opened = document or recording
    address = None if opened is not None else find(engine)
    serve = (
        _shower(address, engine, tuple(besides or ()))
        if address is not None
        else _replayer(recording)
        if recording is not None
        else _drawer(cast(Path, document), tuple(module or ()), of)
    )
    tokens = Tokens(operate=None) if read_only or recording is not None else Tokens()
    try:
        listening = bound(host, port)
    except OSError as error:
        raise OptionError(f"{host}, port {port or 'any'}, cannot be listened at ({error.strerror}): give another --port") from None
    number = listening.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{number}/"
    said = {"engine": None if address is None else address.engine, "url": url, "view": f"{url}#token={tokens.view}"}
    said["operate"] = said["view"] if tokens.operate is None else f"{url}#token={tokens.operate}"
    _clear(control_directory())
    owned = Owner(control_directory() / f"{'file' if address is None else address.engine}.{number}.ui", json_.dumps(said))
    try:
        if child:
            print(json_.dumps(said), flush=True)
        else:
            output.report(said)
            output.say(f"{opened or 'engine ' + str(said['engine'])} at {said['operate']}")
            if tokens.operate is not None:
                output.say(f"to look only: {said['view']}")
        reached = Reached(listening, tokens, host, tuple(host_name or ()), frame, _end_with_parent if child else None)
        serve(reached)
    finally:
        owned.release()
        listening.close()
    return OK


@dataclass(frozen=True, slots=True)
class Reached:
    """How a server is reached, and who is told of it: see `Site`. parent: ends it, None: it ends with what it shows."""

    listening: socket.socket
    tokens: Tokens
    host: str
    hosts: tuple[str, ...]
    frame: str
    parent: Callable[[Server], None] | None

    def begun(self, server: Server) -> None:
        if self.parent is not None:
            self.parent(server)


Serve = Callable[[Reached], None]
"""Until the server is told to end."""


def _shower(address: Address, given: str | None = None, besides: tuple[str, ...] = ()) -> Serve:
    """The page of an engine; to a collector goes what it tells, where the environment names one."""
    from evenflow.monitor.otel import Exporter, interval_s, wanted

    metrics, events = wanted(os.environ)
    exporter = Exporter(metrics, events, interval_s(os.environ)) if metrics or events else None

    def show(reached: Reached) -> None:
        from evenflow.monitor.web.feed import Feed
        from evenflow.monitor.web.serve import serve
        from evenflow.monitor.web.server import Site
        from evenflow.monitor.web.teller import CURVES, Teller

        teller = Teller(Feed(secrets.token_hex(4), CURVES))
        glances = Glances(address, teller)
        site = Site(
            teller.feed, _asking(address), lambda: _exposition(glances), lambda: _unready(glances), reached.tokens, reached.host,
            reached.hosts, reached.frame, besides,
        )  # fmt: skip

        def begun(server: Server) -> None:
            reached.begun(server)
            threading.Thread(target=watch, args=(server,), name="evenflow-ui-watch", daemon=True).start()

        def watch(server: Server) -> None:
            if _watch(address, teller, given, exporter) and reached.parent is None:
                _leave(server, teller.feed)

        try:
            serve(site, reached.listening, begun)
        finally:
            if exporter is not None:
                exporter.close()

    return show


def _replayer(path: Path) -> Serve:
    """The page of a recording. Raises StatisticsError if it has nothing that can be shown."""
    from evenflow.monitor.web.tape import Tape

    tape = Tape(path)
    threading.Thread(target=tape.fill, name="evenflow-ui-tape", daemon=True).start()
    tape.begun.wait()
    if not tape.length:
        raise StatisticsError(f"{path} is no recording: {tape.ends or 'it has no reading'}")

    def replay(reached: Reached) -> None:
        from evenflow.monitor.web.feed import Feed
        from evenflow.monitor.web.replay import make_replay
        from evenflow.monitor.web.serve import serve_app
        from evenflow.monitor.web.server import Site

        site = Site(Feed("tape", ()), _nobody, lambda: b"", lambda: None, reached.tokens, reached.host, reached.hosts, reached.frame)
        serve_app(make_replay(site, tape), reached.listening, reached.begun)

    return replay


def _nobody(name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
    raise OperationRefused("this is a recording, and no engine")


def _drawer(document: Path, modules: tuple[str, ...], engine: str | None) -> Serve:
    """The editor of a dataflow. A Python file is run for it; see `shelf_of_code`."""
    from evenflow.cli.editing import FileShelf, edit, shelf_of_code

    if modules or document.suffix == CODE:
        sys.path.append(str(document.resolve().parent))  # Where the modules that it names are, as a rule.
    shelf = shelf_of_code(document, modules, engine) if document.suffix == CODE else FileShelf(document, modules, engine)

    def draw(reached: Reached) -> None:
        edit(shelf, reached.listening, reached.tokens, reached.host, reached.hosts, reached.frame, reached.begun)

    return draw


def _document(given: str) -> Path | None:
    """The file of a dataflow, which need not be there yet if it is a saved one; None: an engine is meant, its control file or a
    recording."""
    path = Path(given)
    if path.suffix == CODE:
        return path
    if path.suffix != ".json":
        return None
    try:
        told = json_.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return path
    except (OSError, ValueError):
        return path  # Who opens it says what is wrong.
    return None if isinstance(told, dict) and "secret" in told else path


def _clear(directory: Path) -> None:
    """Remove the tokens of pages that have been killed."""
    from evenflow.world.owned import is_owned

    for path in directory.glob("*.ui"):
        try:
            if not is_owned(path):
                path.unlink()
        except OSError:
            continue  # Another page has removed it.


def _check_installed() -> None:

    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise OptionError(f"the page needs {', '.join(missing)}: pip install 'evenflow[ui]'")


def _asking(address: Address) -> Callable[..., Mapping[str, Any]]:
    from evenflow.world.spark.driver.control_client import ask

    def carry_out(name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        return ask(address, name, say, **arguments)

    return carry_out


def _watch(address: Address, teller: Teller[Feed], given: str | None = None, exporter: Exporter | None = None) -> bool:
    """Tell what the engine says for as long as it lives. Broken connections are opened again; the last word says why there is none more.
    Returns whether the engine has ended; else this could not go on.

    While nobody looks, one reading in ten seconds is enough for the curves of the last minutes. Who exports looks at all of them.
    """
    from evenflow.monitor.reading import Reading
    from evenflow.world.spark.driver.control_client import ended, watch

    def looked_at() -> bool:
        return exporter is not None or teller.feed.busy

    pause, faults = threading.Event(), 0
    try:
        while True:
            try:
                busy = looked_at()
                with closing(watch(address)) as stream:
                    for told in stream:
                        teller.take(told)
                        if exporter is not None:
                            exporter.take(told)
                        faults = 0
                        if isinstance(told, Reading) and not (busy and looked_at()):
                            break
                if not looked_at():
                    teller.feed.wanted.wait(IDLE_S)
                    continue
                if not busy:
                    continue
            except EvenflowError as error:
                print(f"evenflow ui: {error}", file=sys.stderr)
            except Exception as error:  # A reading that cannot be understood is one; an engine that gives no other is of another version.
                faults += 1
                print(f"evenflow ui: {type(error).__name__}: {error}", file=sys.stderr)
                if faults >= FAULTS:
                    raise
            why = ended(address, given)
            if why is not None:
                teller.feed.end(why)
                return True
            pause.wait(RETRY_S)
    except Exception as error:
        teller.feed.end(f"this page can tell nothing more ({type(error).__name__}: {error}): start `evenflow ui` again")
    return False


def _leave(server: Server, feed: Feed) -> None:
    """The engine has ended: when nobody looks at what it was any more, the port is free for the page of the next one."""
    pause = threading.Event()
    while feed.busy:
        pause.wait(RETRY_S)
    print(f"evenflow ui: {feed.ended}", file=sys.stderr)
    server.should_exit = True


class Glances:
    """Single readings, for who asks for numbers now and then: the newest that a reader of the page was told, else one that is asked for."""

    def __init__(self, address: Address, teller: Teller[Feed]) -> None:
        self.address, self.teller = address, teller
        self._lock = threading.Lock()
        self._last: tuple[Scene, Reading] | None = None

    def fresh(self) -> tuple[Scene, Reading] | None:
        """A reading that is at most a second old, and its scene; None if the engine does not answer, or has ended. From any thread."""
        from evenflow.monitor.scene import Scene
        from evenflow.world.spark.driver.control_client import watch

        feed = self.teller.feed
        with self._lock:
            if feed.ended is not None:
                return None
            for found in (feed.latest, self._last):  # Between a scene and its first reading `latest` has none.
                if found is not None and found[1] is not None and time.time_ns() // 1000 - found[1].at_us < FRESH_US:
                    return found
            scene: Scene | None = None
            try:
                with closing(watch(self.address)) as stream:
                    for told in stream:
                        if isinstance(told, Scene):
                            scene = told
                        elif scene is not None:
                            self._last = scene, told
                            return self._last
            except EvenflowError:
                pass  # That there is none says so.
            return None

    def newest(self) -> tuple[Scene | None, Reading | None]:
        """The same; of an engine that does not answer the last one, whose age says so."""
        return self.fresh() or self.teller.feed.latest


def _exposition(glances: Glances) -> bytes | None:
    """None: the engine does not answer, and what it has said before is not so any more."""
    from evenflow.monitor.metrics import exposition

    found = glances.fresh()
    return None if found is None else exposition(*found)


def _unready(glances: Glances) -> str | None:
    from evenflow.monitor.health import readiness

    if glances.teller.feed.ended is not None:
        return glances.teller.feed.ended
    found = readiness(*glances.newest(), time.time_ns() // 1000)
    return None if found.ready else "\n".join(found.reasons)


def _end_with_parent(server: Server) -> None:
    """The standard input ends when the parent does, however that comes."""

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=wait, name="evenflow-ui-parent", daemon=True).start()
