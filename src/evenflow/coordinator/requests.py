"""What can be asked of a running engine, as one table: names, arguments with their types, what it does to the run.

The control port, the commands, the paths of the REST interface, its OpenAPI document and the buttons of the page derive from it, or are
held to it by a test. Carrying a request out is the world's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from evenflow.errors import OperationRefused

Effect = Literal["read", "change", "code"]
"""read: the run does nothing else; what it keeps is looked at, for which a checkpoint may be made. change: the run does something else
from now on. code: the engine's process runs code that the request names."""

Kind = Literal["whole", "number", "text", "yes", "wholes", "texts", "values"]
"""Of an argument: a whole number from 0 on, a number of seconds above 0, a text, true or false, a list of whole numbers or texts, an object
of texts."""

MOST: Final = 2**31 - 1
LONGEST_S: Final = 1e6
LONGEST_TEXT: Final = 4096
MANY: Final = 100_000


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a request. default: what it has where it is left out; a required one has none. about: a sentence for people. most:
    of a number, from 1 on, where somebody asks who may only look; None: any."""

    name: str
    kind: Kind
    about: str
    required: bool = False
    default: Any = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked. command: what comes after `evenflow` in a terminal. again: people are asked a second time, and write the
    name of what it is done to."""

    name: str
    about: str
    arguments: tuple[Argument, ...]
    effect: Effect
    command: tuple[str, ...]
    again: bool = False


def _timeout(about: str, default: float | None, most: int | None = None) -> Argument:
    return Argument("timeout_s", "number", about, default=default, most=most)


_RUN: Final = Argument("run", "text", "Run or dataflow; may be left out if only one is active.")
_BOX: Final = Argument("box", "text", "Name of the box.", required=True)
_WANTED: Final = "Seconds after which it is not wanted any more."
_WHOLE: Final = "Seconds after which a checkpoint that is not whole is waited for no more."
_STAYS: Final = "Seconds after which the site stays, with what has not moved yet."
_FLOW: Final = (
    Argument("file", "text", "File where the engine runs: Python with a function dataflow(), or a dataflow saved as JSON.", required=True),
    Argument("arguments", "texts", "Options of dataflow().", default=()),
    Argument("modules", "texts", "Modules whose functions and processors a saved dataflow may name; they are imported."),
)

OPERATIONS: Final = (
    Operation("sites", "The engine's sites, its runs, and what has moved.", (), "read", ("sites",)),
    Operation(
        "drain", "Empty a site and let it go, while everything runs.",
        (Argument("site", "whole", "Index of the site.", required=True), _timeout(_STAYS, 300.0)), "change", ("drain",), again=True,
    ),
    Operation(
        "add-sites", "Start more sites.",
        (Argument("count", "whole", "How many.", required=True), _timeout("Seconds to wait for executors and sites.", None)),
        "change", ("add-sites",),
    ),
    Operation(
        "remove-sites", "Drain the sites that host least, and let them go.",
        (Argument("count", "whole", "How many.", required=True), _timeout(_STAYS, 300.0)), "change", ("remove-sites",), again=True,
    ),
    Operation(
        "rebalance", "Balance the load of every run now, in a few rounds.",
        (_timeout("Seconds after which no round of moves begins.", 60.0),), "change", ("rebalance",),
    ),
    Operation(
        "pin", "Keep the partitions of a box where they are: no policy moves them.",
        (
            _BOX, Argument("sites", "wholes", "Bring its replicas to these sites first."),
            Argument("partitions", "wholes", "Only these partitions; without it, all."), _RUN,
            Argument("off", "yes", "Let policies move them again.", default=False),
        ),
        "change", ("pin",),
    ),
    Operation(
        "repartition", "Divide the state of a keyed box into more partitions, or fewer, while it runs.",
        (_BOX, Argument("partitions", "whole", "How many.", required=True), _RUN, _timeout(_WANTED, 300.0)), "change", ("repartition",),
    ),
    Operation(
        "availability", "Give a box another mode of availability, while it runs.",
        (
            Argument("box", "text", "Name of the box; *: all.", required=True),
            Argument("mode", "text", "pairs, passive, upstream or amnesia.", required=True), _RUN, _timeout(_WANTED, 300.0),
        ),
        "change", ("availability",),
    ),
    Operation(
        "refresh", "Read a refreshed table now.",
        (
            Argument("table", "text", "Name of the table; may be left out if there is only one."), _RUN,
            _timeout("Seconds to wait for it.", 300.0),
        ),
        "change", ("refresh",),
    ),
    Operation("checkpoint", "Make a checkpoint now.", (_RUN, _timeout(_WHOLE, 120.0)), "change", ("checkpoints", "take")),
    Operation(
        "savepoint", "Make a savepoint; the run goes on.",
        (
            Argument("target", "text", "Empty directory or URL; relative to where the engine runs.", required=True), _RUN,
            _timeout(_WHOLE, 120.0),
        ),
        "change", ("savepoint",),
    ),
    Operation(
        "suspend", "Make a last checkpoint and end the run, so that it can go on exactly where it stands.",
        (Argument("target", "text", "Also make a savepoint there."), _RUN, _timeout(_WHOLE, 120.0)), "change", ("suspend",), again=True,
    ),
    Operation(
        "stop", "End a run; results under way are dropped, or finished first.",
        (
            Argument("drain", "yes", "Take no more input, and finish what has been taken in.", default=False), _RUN,
            _timeout("Seconds for which it may finish what has been taken in; then it ends as without.", 60.0),
        ),
        "change", ("stop",), again=True,
    ),
    Operation(
        "start", "Start another dataflow beside those that run. The engine's process runs the file.",
        (
            *_FLOW, Argument("replicas", "whole", "Of every partition; default the engine's."),
            Argument("checkpoint_location", "text", "Directory or URL for what a restart needs."),
            Argument("durability", "text", "With a location: precise, or no-loss; default as it was begun, or the engine's."),
            Argument("take_over", "yes", "Replace a driver that still writes at the location, at once.", default=False),
            Argument("from_savepoint", "text", "What the first start at the location begins with."),
            Argument("drop_state", "texts", "Boxes whose state in the savepoint may go."),
            Argument("earlier", "texts", "Files of what the run at the location was before it was replaced."),
            Argument("allow_pickle", "yes", "Run the code of what it was from the location: if you trust who writes there.", default=False),
            Argument("availability", "text", "What boxes that do not say do so that a lost site costs little; default the engine's."),
            Argument("cut", "text", "What decides which rows form an epoch, of all sources: content, or leader; default the file's."),
            Argument("width_ms", "number", "Width of an epoch, where the cut is content."),
            Argument("cut_by", "text", "Log times (time) or places of rows (place), where the cut is content."),
            Argument("width_rows", "whole", "Rows of an epoch that is cut by place."),
            Argument("cut_ahead_ms", "number", "Most that a log time may be ahead, where producers set it."),
            Argument("mirrored", "yes", "A mirror of a topic keeps the origin's times and places.", default=False),
            Argument("group", "text", "Run it as one region of that group."),
            Argument("group_begin", "text", "When the group's first epoch begins, such as 2026-11-23T08:00:00Z."),
            Argument("group_sites", "whole", "For how many sites the group's layouts are made; default the engine's."),
            Argument("group_place", "whole", "Of this region in the group's list, from 0.", default=0),
            Argument("group_peers", "texts", "Stream sinks of other regions, HOST:PORT or SINK=HOST:PORT: begin near the present."),
            Argument("group_ca", "text", "File in PEM: who has signed the peers' certificates."),
        ),
        "code", ("start",),
    ),
    Operation(
        "compare", "What `replace` would do, box by box. Nothing changes, but the engine's process runs the file.",
        (*_FLOW, _RUN), "code", ("compare",),
    ),
    Operation(
        "replace", "Let a dataflow go on as another version of itself, with its state. The engine's process runs the file.",
        (
            *_FLOW, Argument("version", "whole", "Only if this one runs, as `compare` has told it; 0: as it was started."), _RUN,
            _timeout(_WANTED, 300.0),
        ),
        "code", ("replace",), again=True,
    ),
    Operation(
        "state", "The rows that a box keeps, of one epoch.",
        (
            _BOX, Argument("key", "values", "Rows that have these values, by column.", default=None),
            Argument("kind", "text", "Of which step of the box, where it has several with state."),
            Argument("limit", "whole", "So many rows at most; 0: all.", default=20, most=100), _RUN, _timeout(_WHOLE, 120.0, most=120),
        ),
        "read", ("state",),
    ),
    Operation(
        "profile", "Where the time of a site goes: its process is sampled while it goes on.",
        (
            Argument("site", "whole", "Index of the site.", required=True),
            Argument("seconds", "number", "For so long.", default=5.0, most=60),
        ),
        "read", ("profile",),
    ),
)  # fmt: skip

KILL: Final = Operation(
    "kill", "Kill the executor of a site (kill -9), and see what comes of it.",
    (Argument("site", "whole", "Index of the site.", required=True),), "change", ("demo",), again=True,
)  # fmt: skip
"""Only an engine that is there to be shown can be asked for it: the demo's, whose executors are this machine's and nobody else's."""

BY_NAME: Final[Mapping[str, Operation]] = {operation.name: operation for operation in (*OPERATIONS, KILL)}


def arguments_of(operation: Operation, given: object) -> dict[str, Any]:
    """What was given, checked, with the defaults of what was not. Raises OperationRefused and names the argument."""
    if not isinstance(given, Mapping):
        raise OperationRefused(f"{operation.name} takes an object with its arguments, not {_short(given)}")
    known = {argument.name for argument in operation.arguments}
    strange = [name for name in given if name not in known]
    if strange:
        raise OperationRefused(f"{operation.name} has no argument {_short(strange[0])}; it has {', '.join(sorted(known)) or 'none'}")
    found = {}
    for argument in operation.arguments:
        value = given.get(argument.name)
        if value is None:
            if argument.required:
                raise OperationRefused(f"{operation.name} needs {argument.name}: {argument.about}")
            value = argument.default
        elif not _is(argument.kind, value):
            raise OperationRefused(f"{argument.name} of {operation.name} is {WORDS[argument.kind]}, not {_short(value)}")
        found[argument.name] = list(value) if isinstance(value, tuple) else value
    return found


WORDS: Final[Mapping[str, str]] = {
    "whole": f"a whole number from 0 to {MOST:,}",
    "number": f"a number of seconds above 0, at most {LONGEST_S:,.0f}",
    "text": f"a text of 1 to {LONGEST_TEXT:,} characters without NUL",
    "yes": "true or false",
    "wholes": "a list of whole numbers",
    "texts": "a list of texts",
    "values": "an object of texts by column",
}


def check_viewer(operation: Operation, arguments: Mapping[str, Any]) -> None:
    """arguments: checked. Raises OperationRefused for more than somebody gets who may only look."""
    for argument in operation.arguments:
        if argument.most is not None and not 1 <= arguments[argument.name] <= argument.most:
            raise OperationRefused(f"who may only look gets {argument.name} from 1 to {argument.most:,} of {operation.name}")


def _is(kind: str, value: object) -> bool:
    if kind == "whole":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= LONGEST_S
    if kind == "text":
        return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and "\0" not in value
    if kind == "yes":
        return isinstance(value, bool)
    if kind == "values":
        return isinstance(value, Mapping) and len(value) <= MANY and all(_is("text", key) and isinstance(value[key], str) for key in value)
    return isinstance(value, list) and len(value) <= MANY and all(_is("whole" if kind == "wholes" else "text", each) for each in value)


def _short(value: object) -> str:
    return f"{value!r:.60}"
