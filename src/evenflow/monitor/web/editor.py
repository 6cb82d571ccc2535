"""The server of the editor: a page, and what it asks while somebody draws. The dataflow is one file, which is saved as a whole.

    GET  /                          the page
    GET  /api/v1/editor/document    the file
    GET  /api/v1/editor/forms       kinds of boxes, sources and sinks, with their fields
    POST /api/v1/editor/check       every box judged; nothing is imported
    POST /api/v1/editor/fitting     where an arrow could lead
    POST /api/v1/editor/tidy        a place for each box
    POST /api/v1/editor/picture     the picture as SVG, with its segments
    POST /api/v1/editor/made        a source or a sink of its arguments
    POST /api/v1/editor/arguments   the arguments of a source or a sink
    POST /api/v1/editor/cell        a statement of SQL as boxes
    POST /api/v1/editor/export      the dataflow as Python
    POST /api/v1/editor/preview     rows at every arrow
    POST /api/v1/editor/save        the file is written, if nobody else has written it meanwhile
    POST /api/v1/editor/compare, replace, start   by the running engine, of the file as it was saved last

It is guarded as the page of an engine is: the Host, tokens, and no cookies.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp

import evenflow
from evenflow import sinks, sources
from evenflow.coordinator.requests import BY_NAME
from evenflow.coordinator.requests import arguments_of as asked_for
from evenflow.errors import OperationRefused, QueryError
from evenflow.monitor.web.calling import Calls
from evenflow.monitor.web.problems import Problem, problem_of
from evenflow.monitor.web.server import API, Guard, Site, add_errors, add_page, given_in, json_answer, right_of
from evenflow.query.checking import Checker, filled
from evenflow.query.draw import to_svg
from evenflow.query.editing import tidied, with_cell
from evenflow.query.ends import arguments_of, described
from evenflow.query.export import to_python
from evenflow.query.forms import forms
from evenflow.query.network import Network
from evenflow.query.planner import layout
from evenflow.query.serial import Consent, document_of, network_from_json

PREFIX: Final = f"{API}/editor"
AT_ONCE: Final = 2
"""Previews, each of which may take a core."""
SLOW_AT_ONCE: Final = 16
"""Requests that wait for an engine or a preview."""
QUICK_AT_ONCE: Final = 8
SLOW: Final = frozenset({"preview", "compare", "replace", "start"})
SHELF: Final = ("file", "arguments", "modules")
"""Arguments of operations that the shelf gives."""
Body = Mapping[str, Any]


class Shelf(Protocol):
    """Where the file is, what tries it, and who runs it. Each raises EvenflowError."""

    @property
    def name(self) -> str: ...

    def read(self) -> str: ...

    def write(self, text: str) -> None: ...

    def preview(self, document: str, samples: Mapping[str, Any] | None, taps: Any, rows: int) -> Mapping[str, Any]: ...

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]: ...


class Editor:
    """What the paths do. consent: modules that the file may name."""

    def __init__(self, shelf: Shelf, consent: Consent | None = None) -> None:
        self.shelf, self.consent = shelf, consent or Consent()
        self._checker = Checker(self.consent)
        self._judging = threading.Lock()
        self._trying = threading.BoundedSemaphore(AT_ONCE)
        self._writing = threading.Lock()
        self.quick, self.slow = Calls(QUICK_AT_ONCE), Calls(SLOW_AT_ONCE, patient=False)

    def close(self) -> None:
        """The server ends. Called in its loop."""
        self.quick.close()
        self.slow.close()

    def _filled(self, given: Body) -> dict[str, Any]:
        """The document with the schemas that were found. Requests come in threads, and what is known of boxes is one."""
        document = _document(given)
        with self._judging:
            return filled(document, self._checker.check(document))

    def document(self) -> dict[str, Any]:
        text = self.shelf.read()
        return {"file": self.shelf.name, "document": document_of(text), "tag": tag_of(text), "modules": list(self.consent.modules)}

    def check(self, given: Body) -> dict[str, Any]:
        with self._judging:
            return self._checker.check(_document(given)).to_json()

    def fitting(self, given: Body) -> dict[str, Any]:
        name, port = given.get("box"), given.get("port", 0)
        if not isinstance(name, str) or isinstance(port, bool) or not isinstance(port, int):
            raise QueryError("an arrow begins at a box and a port of it")
        with self._judging:
            return dict(self._checker.fitting(_document(given), name, port))

    def tidy(self, given: Body) -> dict[str, Any]:
        sizes = given.get("sizes") or {}
        if not isinstance(sizes, dict) or not all(_is_size(size) for size in sizes.values()):
            raise QueryError("sizes are a width and a height for each box")
        return {"at": tidied(_document(given), sizes)}

    def picture(self, given: Body) -> dict[str, Any]:
        network = self._network(given)
        marks = given.get("marks")
        told = {str(box): (str(mark[0]), str(mark[1])) for box, mark in marks.items()} if isinstance(marks, dict) else None
        return {"svg": to_svg(network, None if network.dangling() else layout(network, sites=4), told)}

    def made(self, given: Body) -> dict[str, Any]:
        end, kind, arguments = given.get("end"), given.get("kind"), given.get("arguments", {})
        if end not in ("source", "sink") or not isinstance(kind, str) or not isinstance(arguments, dict):
            raise QueryError("a source or a sink is made of its kind and its arguments")
        return {"value": described(end, kind, arguments)}

    def arguments(self, given: Body) -> dict[str, Any]:
        match given.get("value"):
            case {"$source": dict(told)}:
                return {"arguments": _plain(arguments_of(sources.from_json(told)))}
            case {"$sink": dict(told)}:
                return {"arguments": _plain(arguments_of(sinks.from_json(told)))}
        return {"arguments": None}

    def cell(self, given: Body) -> dict[str, Any]:
        cell, text = given.get("cell"), given.get("text")
        if not isinstance(cell, str) or not isinstance(text, str):
            raise QueryError("a cell has a name and a text")
        with self._judging:
            return {"document": with_cell(_document(given), self._checker, cell, text)}

    def export(self, given: Body) -> dict[str, Any]:
        return {"python": to_python(self._network(given))}

    def preview(self, given: Body) -> Mapping[str, Any]:
        document = self._filled(given)
        rows = given.get("rows", 200)
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 < rows <= 100_000:
            raise QueryError(f"rows is {rows!r:.40}; it is a whole number from 1 to 100,000")
        if not self._trying.acquire(blocking=False):
            raise Problem(429, "Too many", f"{AT_ONCE} previews are under way: wait for one of them", "OperationRefused")
        try:
            return self.shelf.preview(json.dumps(document), given.get("samples"), given.get("taps"), rows)
        finally:
            self._trying.release()

    def save(self, given: Body) -> dict[str, Any]:
        text = json.dumps(self._filled(given), indent=2) + "\n"
        with self._writing:
            self._must_be(given.get("tag"))
            self.shelf.write(text)
        return {"tag": tag_of(text), "file": self.shelf.name}

    def operate(self, operation: str) -> Callable[[Body], Mapping[str, Any]]:
        """As the table of operations has it. The file is the shelf's affair. tag: of what was saved last; without one any file will do."""

        def carry_out(given: Body) -> Mapping[str, Any]:
            told = {name: value for name, value in given.items() if name != "tag"}
            wrong = next((name for name in SHELF if name in told), None)
            if wrong is not None:
                raise Problem(422, "Wrong", f"{operation} here is of the file that is edited: leave out {wrong}", "OperationRefused")
            try:
                checked = asked_for(BY_NAME[operation], {**told, "file": self.shelf.name})
            except OperationRefused as error:
                raise Problem(422, "Wrong", str(error), "OperationRefused") from None
            if given.get("tag") is not None:
                self._must_be(given["tag"])
            return self.shelf.ask(operation, {name: value for name, value in checked.items() if name not in SHELF and value is not None})

        return carry_out

    def _must_be(self, tag: object) -> None:
        """Raises Problem if the file is no longer what whoever asks has seen."""
        if tag != tag_of(self.shelf.read()):
            raise Problem(409, "Changed", f"{self.shelf.name} was changed by somebody else since it was opened here", "VersionChanged")

    def _network(self, given: Body) -> Network:
        return network_from_json(json.dumps(self._filled(given)), modules=self.consent.modules)


def make_editor(site: Site, editor: Editor) -> ASGIApp:
    """The application, behind its guard."""
    app = FastAPI(title="Evenflow editor", version=evenflow.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    add_errors(app)
    add_page(app, site, "editor.html")
    plain: dict[str, Callable[[Body], Any]] = {
        "check": editor.check,
        "fitting": editor.fitting,
        "tidy": editor.tidy,
        "picture": editor.picture,
        "arguments": editor.arguments,
    }
    changing: dict[str, Callable[[Body], Any]] = {
        "made": editor.made,
        "cell": editor.cell,
        "export": editor.export,
        "preview": editor.preview,
        "save": editor.save,
    }
    asked = {name: editor.operate(name) for name in ("compare", "replace", "start")}
    quick, slow = editor.quick, editor.slow
    _add(app, site, "document", lambda _: editor.document(), "GET", quick, change=False)
    _add(app, site, "forms", lambda _: forms(), "GET", quick, change=False)
    for name, make in plain.items():
        _add(app, site, name, make, "POST", quick, change=False)
    for name, make in {**changing, **asked}.items():
        _add(app, site, name, make, "POST", slow if name in SLOW else quick, change=True)
    return Guard(app, site)


def _add(app: FastAPI, site: Site, name: str, make: Callable[[Body], Any], method: str, calls: Calls, *, change: bool) -> None:
    async def endpoint(request: Request) -> Response:
        right_of(site, request, change=change)
        given = await given_in(request)
        if not isinstance(given, Mapping):
            raise Problem(422, "Wrong", "the body is an object")
        try:
            return json_answer(await calls.call(make, given))
        except Problem:
            raise
        except Exception as error:
            raise problem_of(error) from error

    app.add_api_route(f"{PREFIX}/{name}", endpoint, methods=[method], operation_id=f"editor_{name}")


def _document(given: Body) -> Mapping[str, Any]:
    document = given.get("document")
    return document_of(json.dumps(document)) if isinstance(document, dict) else document_of("null")


def _is_size(size: object) -> bool:
    return isinstance(size, list) and len(size) == 2 and all(isinstance(each, int | float) and 0 < each < 1e5 for each in size)


def _plain(arguments: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Arguments that JSON can have; None where one is none."""
    try:
        told: dict[str, Any] | None = json.loads(json.dumps(arguments))
    except TypeError:
        return None
    return told


def tag_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


__all__ = ["Editor", "Shelf", "make_editor", "tag_of"]
