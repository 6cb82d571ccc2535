"""What every server here has: a guard before its paths, answers, errors, and the files of the page.

The page of an engine (`app`) and the editor (`editor`) add their own paths to it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenflow.monitor.web.asking import Ask
from evenflow.monitor.web.feed import Feed, encoded
from evenflow.monitor.web.files import File, files
from evenflow.monitor.web.guard import ALWAYS, Right, Tokens, is_host, page_policy
from evenflow.monitor.web.problems import MEDIA, Problem

API: Final = "/api/v1"
BODY_BYTES: Final = 1 << 20
TYPE_HTML: Final = "text/html; charset=utf-8"

Exposition = Callable[[], bytes | None]
Ready = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """What the server serves. ask: carries operations out. exposition: the metrics as Prometheus reads them, None: nobody knows
    them now. ready: why not, or None.

    bound: the address. hosts: more names by which it is known, behind a proxy. ancestors: who may have it in a frame. besides: operations
    that this engine can be asked for and not every one.
    """

    feed: Feed
    ask: Ask
    exposition: Exposition
    ready: Ready
    tokens: Tokens = field(default_factory=Tokens)
    bound: str = "127.0.0.1"
    hosts: Sequence[str] = ()
    ancestors: str = "'none'"
    besides: Sequence[str] = ()


# ------------------------------------------------ who may ask


class Guard:
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
            await problem_answer(problem)(scope, receive, with_headers)

        if not is_host(headers.get(b"host", b"").decode("latin-1"), self._site.bound, self._site.hosts):
            return await end(
                Problem(421, "Not this host", "the Host header names no host of this server; a proxy's name is given by --host-name")
            )
        length = headers.get(b"content-length", b"0").decode("latin-1")
        if not length.isdigit() or int(length) > BODY_BYTES:
            return await end(Problem(413, "Too much", f"a request has {BODY_BYTES:,} bytes at most"))
        return await self._app(scope, receive, with_headers)


def right_of(site: Site, request: Request, *, change: bool = False) -> Right:
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


def json_answer(value: object, status: int = 200) -> Response:
    return Response(encoded(value), status, media_type="application/json")


def problem_answer(problem: Problem) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return Response(problem.body(), problem.status, headers, MEDIA)


def add_errors(app: FastAPI) -> None:
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return problem_answer(error)

    async def theirs(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem_answer(Problem(error.status_code, str(error.detail), f"{request.method} {request.url.path}: {error.detail}"))

    async def wrong(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem_answer(Problem(422, "Wrong", "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())[:500]))

    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(HTTPException, theirs)
    app.add_exception_handler(RequestValidationError, wrong)


def add_page(app: FastAPI, site: Site, index: str = "index.html", feed: str = "engine") -> None:
    """feed: what the page shows, which it reads in its own head."""
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
        text = there[index].plain.replace(b"{{nonce}}", nonce.encode()).replace(b"{{feed}}", feed.encode())
        return Response(text, media_type=TYPE_HTML, headers={"Content-Security-Policy": page_policy(nonce, site.ancestors)})

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon(request: Request) -> Response:
        return answer(request, there["icon.svg"])

    @app.get("/static/{path:path}", include_in_schema=False)
    async def static(request: Request, path: str) -> Response:
        if path not in there:
            raise Problem(404, "Not Found", f"the page has no file {path[:100]!r}")
        return answer(request, there[path])


async def given_in(request: Request) -> object:
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
