"""A command as it is typed, in this process: what it is told, how it ends, and the object that it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evenflow.cli.app import main


def run(*arguments: str) -> int:
    """The exit code of `evenflow ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def object_of(text: str) -> dict[str, Any]:
    """What --json has printed."""
    lines = text.splitlines()
    assert len(lines) == 1, f"standard output must be one object and nothing else: {text!r}"
    found: dict[str, Any] = json.loads(lines[0])
    return found
