"""The editor of one file: what `evenflow ui FLOW.json` opens. No engine is needed; one that runs is asked where a person wants that."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenflow.cli.document import network_of, read
from evenflow.errors import QueryError

if TYPE_CHECKING:
    from evenflow.monitor.web.guard import Tokens
    from evenflow.monitor.web.serve import Server

EMPTY: Final = {"evenflow": 1, "name": "dataflow", "boxes": []}


@dataclass(frozen=True, slots=True)
class FileShelf:
    """One file here. modules: that it may name. engine: that is asked to start, compare and replace; None: the only one. first: what it
    says before it is there; None: an empty dataflow."""

    path: Path
    modules: tuple[str, ...] = ()
    engine: str | None = None
    first: str | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def read(self) -> str:
        """What it says; where there is no file yet, what it begins with."""
        if not self.path.exists():
            return self.first if self.first is not None else json.dumps({**EMPTY, "name": self.path.stem})
        return read(self.path)

    def write(self, text: str) -> None:
        """All of it or nothing. The file that a link leads to is written, and has the mode that it had."""
        new = None
        try:
            target = self.path.resolve()
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
            with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.", encoding="utf-8", delete=False) as file:
                new = file.name
                os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, target)
            new = None
        except (OSError, UnicodeError, RuntimeError) as error:
            raise QueryError(f"cannot write {self.path}: {error}") from error
        finally:
            if new is not None:
                with contextlib.suppress(OSError):
                    os.unlink(new)

    def preview(self, document: str, samples: Mapping[str, Any] | None, taps: Any, rows: int) -> Mapping[str, Any]:
        from evenflow.testing.preview import preview

        return preview(document, samples, taps, rows=rows, modules=self.modules)

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from evenflow.world.spark.driver.control_client import ask, find

        given = {"timeout_s": 300.0, **arguments} if operation == "replace" else dict(arguments)
        return ask(find(self.engine), operation, None, file=str(self.path.resolve()), modules=list(self.modules), **given)


def shelf_of_code(path: Path, modules: Sequence[str] = (), engine: str | None = None) -> FileShelf:
    """The dataflow that a Python file draws, to be saved as JSON beside it: the Python file is never written. Runs the file.

    Its boxes may name what the file defines; functions that have no name there are locked. Raises QueryError where a dataflow has been
    saved there already, which may be another by now.
    """
    from evenflow.query.serial import network_to_json

    target = path.with_suffix(".json")
    if target.exists():
        raise QueryError(
            f"{path} is saved as {target} already: `evenflow ui {target} --module {path.stem}` goes on with that; or move it away"
        )
    return FileShelf(target, (path.stem, *modules), engine, network_to_json(network_of(path, None, [])))


def _umask() -> int:
    """What the process takes away from modes. It can only be read by setting it, but the kernel tells it, too."""
    with open("/proc/self/status", encoding="ascii") as told:
        return next((int(line.split()[1], 8) for line in told if line.startswith("Umask:")), 0o022)


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
