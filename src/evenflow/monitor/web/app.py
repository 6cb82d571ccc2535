"""The paths of the server: the page and its files, the stream, what happened to whom, operations, metrics, health.

    GET  /                              the page
    GET  /static/...                    its files
    GET  /api/v1/stream                 scenes, readings and events as they come (SSE; goes on behind Last-Event-ID)
    GET  /api/v1/scene, reading         the newest
    GET  /api/v1/happened               events, behind the first `since`, for who cannot read the stream
    GET  /api/v1/openapi.json           this, for programs
    POST /api/v1/<operation>            as the command of that name; GET, too, where it changes nothing and needs no argument
    GET  /api/v1/requests/<number>      how far an operation is that has not ended when it was answered with 202
    GET  /metrics, /healthz, /readyz

Errors are RFC 9457. All URLs that the page uses are relative, so it works behind any prefix of a proxy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import evenflow
from evenflow.coordinator.requests import BY_NAME, OPERATIONS, WORDS, Argument, Operation, arguments_of, check_viewer
from evenflow.errors import OperationRefused
from evenflow.monitor.web.asking import Asked, Desk
from evenflow.monitor.web.feed import Position
from evenflow.monitor.web.problems import MEDIA, Problem
from evenflow.monitor.web.server import API, Guard, Site, add_errors, add_page, given_in, json_answer, problem_answer, right_of

STREAMS: Final = 256
"""Readers at a time; more are told to come later."""
ANSWER_S: Final = 5.0
"""An operation that takes longer is answered with 202."""
BEAT_S: Final = 10.0
"""A line without meaning says so often that the stream is open."""


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
    add_errors(app)
    add_page(app, site)
    _add_health(app, site)
    _add_readings(app, site)
    desk = Desk(site.ask, site.feed)
    for operation in (*OPERATIONS, *(BY_NAME[name] for name in site.besides)):
        _add_operation(app, site, desk, operation)
    _add_requests(app, site, desk)

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        right_of(site, request)
        return json_answer(app.openapi())

    return Guard(app, site)


def _add_health(app: FastAPI, site: Site) -> None:
    @app.get("/healthz", summary="This server answers.", tags=["health"])
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", summary="Readings are new, redundancy is whole and nothing has failed; else 503 with the reason.", tags=["health"])
    async def readyz() -> Response:
        why = await asyncio.to_thread(site.ready)
        return Response("ready\n" if why is None else f"{why}\n", 200 if why is None else 503, media_type="text/plain")

    @app.get("/metrics", summary="Counters and gauges in the format of Prometheus; 503 if the engine does not answer.", tags=["health"])
    async def metrics() -> Response:
        found = await asyncio.to_thread(site.exposition)
        if found is None:
            return Response("the engine does not answer, or has ended: /readyz says more\n", 503, media_type="text/plain")
        return Response(found, media_type="text/plain; version=0.0.4; charset=utf-8")


class Stream(StreamingResponse):
    """gone: is called once when the reader has gone, also one who went before the first frame, whose generator has never begun."""

    def __init__(self, frames: AsyncIterator[bytes], gone: Callable[[], None]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._gone()


def _add_readings(app: FastAPI, site: Site) -> None:
    def newest(name: str, found: bytes | None) -> Response:
        if found is None:
            raise Problem(503, "Not there", f"no {name} has come yet", "EngineUnreachable", 3)
        return Response(found, media_type="application/json")

    @app.get(f"{API}/scene", summary="What changes seldom: sites, runs, network, placement.", tags=["readings"])
    async def scene(request: Request) -> Response:
        right_of(site, request)
        site.feed.looked()
        return newest("scene", site.feed.scene_json)

    @app.get(f"{API}/reading", summary="Counters and gauges now.", tags=["readings"])
    async def reading(request: Request) -> Response:
        right_of(site, request)
        site.feed.looked()
        return newest("reading", site.feed.reading_json)

    @app.get(f"{API}/happened", summary="What happened behind the first `since` events.", tags=["readings"])
    async def happened(request: Request, since: int = 0) -> Response:
        right = right_of(site, request)
        told = site.feed.happened_json(max(0, since), {"right": right, "version": evenflow.__version__})
        return Response(told, media_type="application/json")

    @app.get(f"{API}/stream", summary="Scenes, readings and events as they come, as server-sent events.", tags=["readings"])
    async def stream(request: Request) -> Response:
        right = right_of(site, request)
        if site.feed.readers >= STREAMS:
            raise Problem(503, "Too many", f"{STREAMS} readers are there already", "ClusterError", 3)
        had = Position.of(request.headers.get("last-event-id"), site.feed.nonce)

        async def frames() -> AsyncIterator[bytes]:
            at = had
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

        site.feed.came()
        return Stream(frames(), site.feed.went)


# ------------------------------------------------ operations


def _add_operation(app: FastAPI, site: Site, desk: Desk, operation: Operation) -> None:
    async def endpoint(request: Request) -> Response:
        right = right_of(site, request, change=operation.effect != "read")
        given = await given_in(request)
        try:
            arguments = arguments_of(operation, given)
        except OperationRefused as error:
            raise Problem(422, "Wrong", str(error), "OperationRefused") from None
        try:
            if right != "operate":
                check_viewer(operation, arguments)
        except OperationRefused as error:
            raise Problem(403, "Not allowed", str(error), "OperationRefused") from None
        asked = desk.begin(operation.name, arguments, right)
        try:
            await asyncio.wait_for(asked.over.wait(), ANSWER_S)
        except TimeoutError:
            return json_answer({**asked.to_json(), "status": f"requests/{asked.number}"}, 202)
        return _answer(asked)

    always = {"summary": operation.about, "tags": ["operations"], "responses": RESPONSES}
    body = {
        "requestBody": {"content": {"application/json": {"schema": schema_of(operation)}}},
        "x-effect": operation.effect,
        "x-again": operation.again,
    }
    name = operation.name.replace("-", "_")
    app.add_api_route(f"{API}/{operation.name}", endpoint, methods=["POST"], operation_id=name, openapi_extra=body, **always)  # type: ignore[arg-type]
    if operation.effect == "read" and not any(argument.required for argument in operation.arguments):
        app.add_api_route(f"{API}/{operation.name}", endpoint, methods=["GET"], operation_id=f"get_{name}", **always)  # type: ignore[arg-type]


def _answer(asked: Asked) -> Response:
    if asked.problem is not None:
        return problem_answer(asked.problem)
    return json_answer(asked.done)


def _add_requests(app: FastAPI, site: Site, desk: Desk) -> None:
    @app.get(f"{API}/requests/{{number}}", summary="How far an operation is; 202 while it is under way.", tags=["operations"])
    async def requests(request: Request, number: int) -> Response:
        asked = desk.find(number, right_of(site, request))
        return _answer(asked) if asked.over.is_set() else json_answer(asked.to_json(), 202)


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


__all__ = ["make_app", "schema_of"]
