"""What no option and no argument of any command can be: a number that is not finite or beyond all use, an empty path or text, NUL.

The limits hold for the whole tree of commands, so a new option has them, besides its own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import typer

MOST: Final = 2**31 - 1
LONGEST: Final = 1e6
"""Of a number that is no whole one: seconds, milliseconds or a ratio."""


def bounded(command: Any) -> Any:
    """The command, and those below it, with these limits on everything that they take."""
    for below in getattr(command, "commands", {}).values():
        bounded(below)
    for parameter in command.params:
        parameter.process_value = _checked(parameter.process_value, parameter)
    return command


def _checked(process: Any, parameter: Any) -> Any:
    def checked(context: Any, value: Any) -> Any:
        given = [each for each in (value if isinstance(value, list | tuple) else (value,)) if isinstance(each, str)]
        if any("\0" in each for each in given):
            raise typer.BadParameter("it has the character NUL", ctx=context, param=parameter)
        found = process(context, value)
        made = found if isinstance(found, list | tuple) else (found,)
        if any(isinstance(each, Path) for each in made) and any(not each.strip() for each in given):
            raise typer.BadParameter("an empty path; give the path of a file", ctx=context, param=parameter)
        if parameter.param_type_name == "option" and any(isinstance(each, str) and not each.strip() for each in made):
            raise typer.BadParameter("an empty text; leave the option out, or say what it is", ctx=context, param=parameter)
        for each in made:
            if isinstance(each, float) and (not math.isfinite(each) or abs(each) > LONGEST):
                raise typer.BadParameter(f"{each} is not a number of at most {LONGEST:,.0f}", ctx=context, param=parameter)
            if isinstance(each, int) and abs(each) > MOST:
                raise typer.BadParameter(f"{str(each)[:40]} is more than {MOST:,}", ctx=context, param=parameter)
        return found

    return checked


__all__ = ["bounded"]
