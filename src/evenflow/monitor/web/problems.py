"""Errors as RFC 9457 has them: `application/problem+json`, with the type and the exit code that a command would have."""

from __future__ import annotations

import json
from typing import Any, Final

from evenflow import errors

MEDIA: Final = "application/problem+json"

STATUS: Final = (
    (errors.EngineUnreachable, 503, 3),
    (errors.OperationRefused, 409, 2),
    (errors.QueryError, 422, 2),
    (errors.PreviewFailed, 422, 1),
    (errors.PolicyError, 422, 2),
    (errors.ClusterError, 503, 3),
)
"""Class, HTTP status, exit code; the first that fits."""


class Problem(Exception):
    """What a request ends with. detail: a sentence for people. kind: the class of the error, as in `--json`."""

    def __init__(self, status: int, title: str, detail: str, kind: str = "UsageError", exit_code: int = 2) -> None:
        self.status, self.title, self.detail, self.kind, self.exit_code = status, title, detail, kind, exit_code
        super().__init__(detail)

    def body(self) -> bytes:
        told: dict[str, Any] = {
            "type": f"urn:evenflow:error:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "exit_code": self.exit_code,
        }
        return json.dumps(told).encode()


def problem_of(error: Exception) -> Problem:
    """What a failed operation is to whoever asked."""
    kind = type(error).__name__
    for cls, status, exit_code in STATUS:
        if isinstance(error, cls):
            return Problem(status, {409: "Refused", 422: "Wrong", 503: "Not there"}[status], str(error), kind, exit_code)
    if isinstance(error, errors.EvenflowError):
        return Problem(500, "Failed", str(error), kind, 1)
    return Problem(500, "Failed", f"{kind}: {error}", kind, 1)
