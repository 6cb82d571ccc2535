"""Logs as lines of JSON, for those who collect them: `EVENFLOW_LOG=json`.

A line is an object: at (ISO 8601, UTC), level, message, pid, error (the traceback, if there is one), and of what is said about a run its
engine, dataflow, run, site, epoch and kind, as far as they are known. Whoever logs gives these as `extra=about(...)`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

TEXT: Final = "%(asctime)s %(levelname)s evenflow[%(process)d]: %(message)s"
FIELD: Final = "evenflow"
NAMES: Final = ("engine", "dataflow", "run", "site", "epoch", "kind")


def wants_json() -> bool:
    return os.environ.get("EVENFLOW_LOG", "").lower() == "json"


def formatter() -> logging.Formatter:
    """What the environment asks for."""
    return JsonLines() if wants_json() else logging.Formatter(TEXT)


def about(**facts: Any) -> dict[str, Mapping[str, Any]]:
    """For `extra=` of a record: what it is about, of NAMES. None is not said."""
    return {FIELD: {name: facts[name] for name in NAMES if facts.get(name) is not None}}


class JsonLines(logging.Formatter):
    """One object a line, whatever is in the message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "level": record.levelname.lower(), "message": record.getMessage(), "pid": record.process}
        line |= getattr(record, FIELD, {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
