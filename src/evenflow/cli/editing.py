"""The editor of one file: what `evenflow ui FLOW.json` opens. No engine is needed; one that runs is asked where a person wants that."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenflow.cli.document import read
from evenflow.errors import QueryError

if TYPE_CHECKING:
    from evenflow.monitor.web.guard import Tokens
    from evenflow.monitor.web.serve import Server

EMPTY: Final = {"evenflow": 1, "name": "dataflow", "boxes": []}


@dataclass(frozen=True, slots=True)
class FileShelf:
    """One file here. modules: that it may name. engine: that is asked to start, compare and replace; None: the only one."""

    path: Path
    modules: tuple[str, ...] = ()
    engine: str | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def read(self) -> str:
        """What it says; an empty dataflow of the file's name where there is no file yet."""
        if not self.path.exists():
            return json.dumps({**EMPTY, "name": self.path.stem})
        return read(self.path)

    def write(self, text: str) -> None:
        """All of it or nothing."""
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path.parent, prefix=f".{self.path.name}.", encoding="utf-8", delete=False
            ) as new:
                new.write(text)
            os.replace(new.name, self.path)
        except OSError as error:
            raise QueryError(f"cannot write {self.path}: {error}") from error

    def preview(self, document: str, samples: Mapping[str, Any] | None, taps: Any, rows: int) -> Mapping[str, Any]:
        from evenflow.testing.preview import preview

        return preview(document, samples, taps, rows=rows, modules=self.modules)

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from evenflow.world.spark.driver.control_client import ask, find

        given = {"timeout_s": 300.0, **arguments} if operation == "replace" else dict(arguments)
        return ask(find(self.engine), operation, None, file=str(self.path.resolve()), modules=list(self.modules), **given)


def edit(
    shelf: FileShelf, listening: Any, tokens: Tokens, host: str, hosts: Sequence[str], frame: str, begun: Callable[[Server], None]
) -> None:
    """Serve the editor of a file until the server is told to end."""
    from evenflow.monitor.web.editor import Editor, make_editor
    from evenflow.monitor.web.feed import Feed
    from evenflow.monitor.web.serve import serve_app
    from evenflow.monitor.web.server import Site
    from evenflow.monitor.web.teller import CURVES
    from evenflow.query.serial import Consent

    shelf.read()

    def nobody(name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        raise QueryError("this page has a file, and no engine")

    site = Site(Feed("editor", CURVES), nobody, lambda: b"", lambda: None, tokens, host, tuple(hosts), frame)
    editor = Editor(shelf, Consent(modules=shelf.modules))
    serve_app(make_editor(site, editor), listening, begun, editor.close)


__all__ = ["FileShelf", "edit"]
