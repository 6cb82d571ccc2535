"""The page of an engine as a child of its process: it is started, says its address once it listens, and ends with its parent."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from evenflow.child_python import command_of
from evenflow.errors import EngineUnreachable

PATIENCE_S: Final = 30.0
"""A machine that is starting Spark at the same time is slow."""


class UiProcess:
    """control: the engine's control file. port: None: the first free one from 4141 on. frame: who may show it in a frame; None: nobody.
    besides: what else this engine can be asked for. It dies alone: nothing waits for it."""

    def __init__(self, control: Path, port: int | None = None, *, frame: str | None = None, besides: Sequence[str] = ()) -> None:
        self.frame = frame
        options = [] if port is None else ["--port", str(port)]
        options += [] if frame is None else ["--frame", frame]
        options += [word for name in besides for word in ("--besides", name)]
        self._process = subprocess.Popen(
            command_of("from evenflow.cli import main; main()", "ui", str(control), "--child", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is the parent's affair.
        )
        self._said: Mapping[str, str] | None = None
        self._wrong = ""
        self._heard = threading.Event()
        threading.Thread(target=self._hear, name="evenflow-ui", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def url(self, timeout_s: float = PATIENCE_S, *, operate: bool = True) -> str:
        """Address of the page, with the operator's token behind the #, or that of who may only look. Waits until it listens. Raises
        EngineUnreachable if it does not."""
        if not self._heard.wait(timeout_s):
            raise EngineUnreachable(f"the page does not listen after {timeout_s:.0f} s; `evenflow ui` may be started by hand")
        if self._said is None:
            raise EngineUnreachable(f"there is no page: {self._wrong or 'its process has ended'}")
        return self._said["operate" if operate else "view"]

    def when_there(self, say: Callable[[str], None], missing: Callable[[str], None]) -> None:
        """Tell the address, or why there is none, in a thread of its own, once that is known."""

        def tell() -> None:
            try:
                say(self.url())
            except EngineUnreachable as error:
                missing(str(error))

        threading.Thread(target=tell, name="evenflow-ui-address", daemon=True).start()

    def close(self) -> None:
        """May be called again."""
        for stream in (self._process.stdin,):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        try:
            self._said = json.loads(line)
        except ValueError:
            self._wrong = " ".join(process.stderr.read().split()).removeprefix("error: ")
        self._heard.set()
        for stream in (process.stderr, process.stdout):
            with contextlib.suppress(ValueError):
                while stream.read(1 << 16):
                    pass
