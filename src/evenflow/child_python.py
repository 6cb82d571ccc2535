"""How a process starts another Python: with the path that it has itself, and nothing of the current directory before Python's own modules.

By itself Python looks into the current directory first, so that a file there with the name of a module is run in its place.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_BEGIN: Final = "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); "


def command_of(code: str, *arguments: str) -> list[str]:
    """What starts it. code: statements on one line."""
    path = "\n".join(each.replace("\n", "") for each in _path_of_child())
    return [sys.executable, "-P", "-c", _BEGIN + code, path, *arguments]


def _path_of_child() -> list[str]:
    """The path of this process, but the current directory stands behind all others."""
    here = os.getcwd()
    first = [each for each in sys.path if each and os.path.realpath(each) != os.path.realpath(here)]
    return list(dict.fromkeys([*first, here]))


__all__ = ["command_of"]
