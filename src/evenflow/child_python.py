"""How a process starts another Python: with the path that it has itself, and nothing of the current directory before Python's own modules.

By itself Python looks into the current directory first, so that a file there with the name of a module is run in its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_BEGIN = "import sys; sys.path[:] = sys.argv.pop(1).split('\\0'); "


def path_of_child(folders: Sequence[str] = ()) -> list[str]:
    """The path of this process, without the current directory; behind all others that, and folders."""
    here = os.getcwd()
    first = [each for each in sys.path if each and os.path.realpath(each) != os.path.realpath(here)]
    return list(dict.fromkeys([*first, here, *folders]))


def command_of(code: str, *arguments: str, folders: Sequence[str] = ()) -> list[str]:
    """What starts it. code: statements on one line. folders: where it may find modules, too."""
    path = [each.replace("\n", "") for each in path_of_child(folders)]
    return [sys.executable, "-P", "-c", _BEGIN.replace("'\\0'", "chr(10)") + code, "\n".join(path), *arguments]


__all__ = ["command_of", "path_of_child"]
