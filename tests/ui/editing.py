"""The editor of a file, served for a test."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenflow.cli.editing import FileShelf, edit
from evenflow.monitor.web.serve import Server, bound
from tests.ui.serving import TOKENS


@dataclass(frozen=True)
class Edited:
    """at: the page's address. path: of the file."""

    at: str
    path: Path

    def url(self, token: str = "act") -> str:
        return f"{self.at}#token={token}"

    def ask(self, name: str, body: Mapping[str, Any] | None = None, token: str = "act") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.at}api/v1/editor/{name}", data, headers, method="GET" if body is None else "POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextlib.contextmanager
def editing(path: Path, make: Callable[..., FileShelf] = FileShelf, **more: Any) -> Iterator[Edited]:
    listening, begun, servers = bound("127.0.0.1", 0), threading.Event(), list[Server]()

    def note(server: Server) -> None:
        servers.append(server)
        begun.set()

    shelf = make(path, **more)
    thread = threading.Thread(target=edit, args=(shelf, listening, TOKENS, "127.0.0.1", (), "'none'", note), daemon=True)
    thread.start()
    assert begun.wait(20)
    try:
        yield Edited(f"http://127.0.0.1:{listening.getsockname()[1]}/", path)
    finally:
        servers[0].should_exit = True
        thread.join(20)
        listening.close()


__all__ = ["Edited", "editing"]
