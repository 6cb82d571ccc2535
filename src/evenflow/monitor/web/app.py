"""The paths of the server: the page and its files, the stream, what happened to whom, operations, metrics, health.

    GET  /                              the page
    GET  /static/...                    its files
    GET  /api/v1/stream                 scenes, readings and events as they come (SSE; goes on behind Last-Event-ID)
    GET  /api/v1/scene, reading         the newest
    GET  /api/v1/openapi.json           this, for programs
    POST /api/v1/<operation>            as the command of that name; GET, too, where it changes nothing and needs no argument
    GET  /api/v1/requests/<number>      how far an operation is that has not ended when it was answered with 202
    GET  /metrics, /healthz, /readyz

Errors are RFC 9457. All URLs that the page uses are relative, so it works behind any prefix of a proxy.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import evenflow
from evenflow.coordinator.requests import OPERATIONS, WORDS, Argument, Operation, arguments_of
from evenflow.errors import EvenflowError, OperationRefused
from evenflow.monitor.web.asking import Ask, Asked, Desk
from evenflow.monitor.web.feed import Feed, Position
from evenflow.monitor.web.files import File, files
from evenflow.monitor.web.guard import ALWAYS, Right, Tokens, is_host, page_policy
from evenflow.monitor.web.problems import MEDIA, Problem

API: Final = "/api/v1"
STREAMS: Final = 256
"""Readers at a time; more are told to come later."""
BODY_BYTES: Final = 1 << 20
ANSWER_S: Final = 5.0
"""An operation that takes longer is answered with 202."""
BEAT_S: Final = 10.0
"""A line without meaning says so often that the stream is open."""

Exposition = Callable[[], bytes]
Ready = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """What the server serves. ask: carries operations out. exposition: the metrics as Prometheus reads them. ready: why not, or None.

    bound: the address. hosts: more names by which it is known, behind a proxy. ancestors: who may have it in a frame.
    """

    feed: Feed
    ask: Ask
    exposition: Exposition
    ready: Ready
    tokens: Tokens = field(default_factory=Tokens)
    bound: str = "127.0.0.1"
    hosts: Sequence[str] = ()
    ancestors: str = "'none'"


def make_app(site: Site) -> ASGIApp:
    """The application, behind its guard."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        site.feed.open()
        yield

    app = FastAPI(
        title="Evenflow", version=evenflow.__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan,
        description="A running engine: the same operations and bodies as the commands with --json.",
    )  # fmt: skip
    _add_errors(app)
    _add_page(app, site)
    _add_health(app, site)
    _add_readings(app, site)
    desk = Desk(site.ask, site.feed)
    for operation in OPERATIONS:
        _add_operation(app, site, desk, operation)
    _add_requests(app, site, desk)

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        _right(site, request)
        return _json(app.openapi())

    return _Guard(app, site)


# ------------------------------------------------ who may ask


class _Guard:
    """Before any path: the Host, and how much is sent. After it: headers that every answer has."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        headers = dict(scope["headers"])

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [(n.lower().encode(), v.encode()) for n, v in ALWAYS.items() if n.lower().encode() not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        async def end(problem: Problem) -> None:
            await _problem(problem)(scope, receive, with_headers)

        if not is_host(headers.get(b"host", b"").decode("latin-1"), self._site.bound, self._site.hosts):
            return await end(
                Problem(421, "Not this host", "the Host header names no host of this server; a proxy's name is given by --host-name")
            )
        length = headers.get(b"content-length", b"0").decode("latin-1")
        if not length.isdigit() or int(length) > BODY_BYTES:
            return await end(Problem(413, "Too much", f"a request has {BODY_BYTES:,} bytes at most"))
        return await self._app(scope, receive, with_headers)


def _right(site: Site, request: Request, *, change: bool = False) -> Right:
    """What the token of a request allows. Raises Problem where that is not enough."""
    right = site.tokens.right(request.headers.get("authorization"))
    if right is None:
        raise Problem(
            401, "Who asks?", "a token is needed, in the header Authorization: Bearer TOKEN; the command that opened this printed it"
        )
    if change and right != "operate":
        raise Problem(403, "Not allowed", "this token may look, and change nothing", "OperationRefused")
    return right


# ------------------------------------------------ answers


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value, default=str, allow_nan=False), status, media_type="application/json")


def _problem(problem: Problem) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return Response(problem.body(), problem.status, headers, MEDIA)


def _add_errors(app: FastAPI) -> None:
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return _problem(error)

    async def theirs(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _problem(Problem(error.status_code, str(error.detail), f"{request.method} {request.url.path}: {error.detail}"))

    async def wrong(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _problem(Problem(422, "Wrong", "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())[:500]))

    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(HTTPException, theirs)
    app.add_exception_handler(RequestValidationError, wrong)


def _add_page(app: FastAPI, site: Site, index: str = "index.html") -> None:
    there: Mapping[str, File] = files()

    def answer(request: Request, file: File) -> Response:
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media)
        return Response(file.plain, headers=headers, media_type=file.media)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe(12)
        text = there[index].plain.replace(b"{{nonce}}", nonce.encode())
        return Response(text, media_type=TYPE_HTML, headers={"Content-Security-Policy": page_policy(nonce, site.ancestors)})

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon(request: Request) -> Response:
        return answer(request, there["icon.svg"])

    @app.get("/static/{path:path}", include_in_schema=False)
    async def static(request: Request, path: str) -> Response:
        if path not in there:
            raise Problem(404, "Not Found", f"the page has no file {path[:100]!r}")
        return answer(request, there[path])


TYPE_HTML: Final = "text/html; charset=utf-8"


def _add_health(app: FastAPI, site: Site) -> None:
    @app.get("/healthz", summary="This server answers.", tags=["health"])
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", summary="Readings are new and redundancy is whole; else 503 with the reason.", tags=["health"])
    async def readyz() -> Response:
        why = site.ready()
        return Response("ready\n" if why is None else f"{why}\n", 200 if why is None else 503, media_type="text/plain")

    @app.get("/metrics", summary="Counters and gauges in the format of Prometheus.", tags=["health"])
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(site.exposition), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_readings(app: FastAPI, site: Site) -> None:
    open_streams = 0

    def newest(name: str, found: bytes | None) -> Response:
        if found is None:
            raise Problem(503, "Not there", f"no {name} has come yet", "EngineUnreachable", 3)
        return Response(found, media_type="application/json")

    @app.get(f"{API}/scene", summary="What changes seldom: sites, runs, network, placement.", tags=["readings"])
    async def scene(request: Request) -> Response:
        _right(site, request)
        return newest("scene", site.feed.scene_json)

    @app.get(f"{API}/reading", summary="Counters and gauges now.", tags=["readings"])
    async def reading(request: Request) -> Response:
        _right(site, request)
        return newest("reading", site.feed.reading_json)

    @app.get(f"{API}/stream", summary="Scenes, readings and events as they come, as server-sent events.", tags=["readings"])
    async def stream(request: Request) -> Response:
        nonlocal open_streams
        right = _right(site, request)
        if open_streams >= STREAMS:
            raise Problem(503, "Too many", f"{STREAMS} readers are there already", "ClusterError", 3)
        had = Position.of(request.headers.get("last-event-id"), site.feed.nonce)
        open_streams += 1

        async def frames() -> AsyncIterator[bytes]:
            nonlocal open_streams
            at = had
            try:
                yield b"retry: 1000\nevent: hello\ndata: %s\n\n" % json.dumps({"right": right, "version": evenflow.__version__}).encode()
                while True:
                    turn = site.feed.turn
                    at, found = site.feed.newer(at)
                    if found:
                        yield found
                    if site.feed.ended is not None or site.feed.closed:
                        return
                    try:
                        await asyncio.wait_for(turn.wait(), BEAT_S)
                    except TimeoutError:
                        yield b": beat\n\n"
            finally:
                open_streams -= 1

        return StreamingResponse(frames(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


# ------------------------------------------------ operations


def _add_operation(app: FastAPI, site: Site, desk: Desk, operation: Operation) -> None:
    async def endpoint(request: Request) -> Response:
        _right(site, request, change=operation.effect != "read")
        given = await _given(request)
        try:
            arguments = arguments_of(operation, given)
        except OperationRefused as error:
            raise Problem(422, "Wrong", str(error), "OperationRefused") from None
        asked = desk.begin(operation.name, arguments)
        try:
            await asyncio.wait_for(asked.over.wait(), ANSWER_S)
        except TimeoutError:
            return _json({**asked.to_json(), "status": f"requests/{asked.number}"}, 202)
        return _answer(asked)

    always = {"summary": operation.about, "tags": ["operations"], "responses": RESPONSES}
    body = {"requestBody": {"content": {"application/json": {"schema": schema_of(operation)}}}, "x-effect": operation.effect}
    name = operation.name.replace("-", "_")
    app.add_api_route(f"{API}/{operation.name}", endpoint, methods=["POST"], operation_id=name, openapi_extra=body, **always)  # type: ignore[arg-type]
    if operation.effect == "read" and not any(argument.required for argument in operation.arguments):
        app.add_api_route(f"{API}/{operation.name}", endpoint, methods=["GET"], operation_id=f"get_{name}", **always)  # type: ignore[arg-type]


async def _given(request: Request) -> object:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise Problem(413, "Too much", f"a request has {BODY_BYTES:,} bytes at most")
    if not body.strip():
        return {}
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise Problem(400, "Not JSON", "the body is not JSON: an object with the operation's arguments is expected") from None


def _answer(asked: Asked) -> Response:
    if asked.problem is not None:
        return _problem(asked.problem)
    return _json(asked.done)


def _add_requests(app: FastAPI, site: Site, desk: Desk) -> None:
    @app.get(f"{API}/requests/{{number}}", summary="How far an operation is; 202 while it is under way.", tags=["operations"])
    async def requests(request: Request, number: int) -> Response:
        _right(site, request)
        asked = desk.find(number)
        if asked is None:
            raise Problem(404, "Not Found", f"there is no request {number}, or it is forgotten")
        return _answer(asked) if asked.over.is_set() else _json(asked.to_json(), 202)


RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "What the command prints with --json.", "content": {"application/json": {"schema": {"type": "object"}}}},
    202: {"description": "It goes on; the stream and requests/<number> say how far it is."},
    "4XX": {"description": "Nothing was done.", "content": {MEDIA: {"schema": {"type": "object"}}}},
    "5XX": {"description": "It failed, or no engine answers.", "content": {MEDIA: {"schema": {"type": "object"}}}},
}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "whole": {"type": "integer", "minimum": 0},
    "number": {"type": "number", "exclusiveMinimum": 0},
    "text": {"type": "string", "minLength": 1},
    "yes": {"type": "boolean"},
    "wholes": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "values": {"type": "object", "additionalProperties": {"type": "string"}},
}
assert SCHEMAS.keys() == WORDS.keys()


def schema_of(operation: Operation) -> dict[str, Any]:
    """The arguments as JSON Schema."""

    def one(argument: Argument) -> dict[str, Any]:
        default = {} if argument.default is None else {"default": argument.default}
        return {**SCHEMAS[argument.kind], "description": argument.about, **default}

    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {argument.name: one(argument) for argument in operation.arguments},
        "required": [argument.name for argument in operation.arguments if argument.required],
    }


__all__ = ["API", "EvenflowError", "Site", "make_app", "schema_of"]
