"""The page of a recording: the same as an engine's, with a scrubber instead of a stream. Nothing can be asked of what is over.

GET  /                              the page
GET  /api/v1/recording              when each reading was made, what happened, the curves, and why it ends where it does
GET  /api/v1/recording/part         readings and their scenes: `first`, `count`
GET  /healthz, /readyz
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp

import evenflow
from evenflow.errors import StatisticsError
from evenflow.monitor.web.problems import Problem
from evenflow.monitor.web.server import API, Guard, Site, add_errors, add_page, right_of
from evenflow.monitor.web.tape import Tape


def make_replay(site: Site, tape: Tape) -> ASGIApp:
    """The application, behind its guard."""
    app = FastAPI(title="Evenflow, a recording", version=evenflow.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    add_errors(app)
    add_page(app, site, feed="recording")

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        return Response("ready\n" if tape.length else "nothing has been read yet\n", 200 if tape.length else 503, media_type="text/plain")

    @app.get(f"{API}/recording")
    async def recording(request: Request) -> Response:
        right_of(site, request)
        return Response(await asyncio.to_thread(tape.index), media_type="application/json")

    @app.get(f"{API}/recording/part")
    async def part(request: Request, first: int = 0, count: int = 1) -> Response:
        right_of(site, request)
        if not 0 <= first < 1 << 40 or not 1 <= count < 1 << 40:
            raise Problem(422, "Wrong", "first is a whole number from 0 on, and count one from 1 on")
        try:
            return Response(await asyncio.to_thread(tape.part, first, count), media_type="application/json")
        except (OSError, StatisticsError) as error:
            raise Problem(503, "Not there", str(error), "StatisticsError", 1) from None

    return Guard(app, site)


__all__ = ["make_replay"]
