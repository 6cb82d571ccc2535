"""What a command is told besides its own options: settings of Spark, options of the engine, and a file that has all of it.

What counts is said first: the command line, then the environment (`EVENFLOW_RUN_SITES=8`), then the file, then the default. A name
that there is not, or one that contradicts an option of the command's own, is wrong usage, and shows before Spark takes its time to start.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

if TYPE_CHECKING:
    from evenflow.policy.proposal import Parameters
    from evenflow.policy.scaling import Times

TABLES: Final = ("spark", "engine", "dataflow")
MOST_BYTES: Final = 1 << 20
MOST: Final = 1 << 63
"""No whole number is beyond this one."""
OWN: Final = {"balance": "--balance", "checkpoint_location": "--checkpoint-location"}
"""Options of the engine that a command has by a name of its own."""
PLACEMENT: Final = "placement"
"""An argument of the engine that is said as its options are."""
BALANCING: Final = "balance_parameters"
SCALING: Final = "autoscale_times"
ELSEWHERE: Final = {"spark.master": "--master"}
READ: Final = "evenflow.tables"


def _read(context: typer.Context, file: Path | None) -> Path | None:
    """Make what the file says the command's defaults, before any other option is looked at."""
    if file is None:
        return None
    content = _load(file)
    known = {each.name for each in context.command.params if each.name}
    defaults = {name.replace("-", "_"): value for name, value in content.items() if name not in TABLES}
    for name in defaults:
        if name not in known or name == "config":
            raise _wrong(f"{file} has {name!r}, which is no option of this command{_near(name, known)}; its tables are {', '.join(TABLES)}")
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[READ] = {table: _table(content, table, file) for table in TABLES}
    return file


Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; several times.")]
Option = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the engine, such as linger_ms=2; several times.")
]
HELP: Final = "TOML file: defaults of these options, and tables [spark], [engine] and [dataflow]."
Config = Annotated[
    Path | None,
    typer.Option("--config", is_eager=True, callback=_read, help=HELP),
]


@dataclass(frozen=True, slots=True)
class Settings:
    """conf: of Spark. engine: fields of `EngineOptions`, and `placement`. dataflow: arguments of the file's function that the command line
    does not have."""

    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)
    engine: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dataflow: tuple[str, ...] = ()


def settings_of(context: typer.Context, conf: Iterable[str] | None, option: Iterable[str] | None) -> Settings:
    """All that was said. Raises BadParameter for a name that there is not, or that contradicts; OptionError for a value that cannot be."""
    tables: Mapping[str, Mapping[str, Any]] = context.meta.get(READ, {table: {} for table in TABLES})
    spark = {name: _text(value) for name, value in tables["spark"].items()} | dict(_pair(each, "--conf") for each in conf or ())
    for name in spark:
        if name in ELSEWHERE:
            raise _wrong(f"{name} is said by {ELSEWHERE[name]}", "--conf")
        if not name.startswith("spark."):
            raise _wrong(f"{name!r} is no setting of Spark: all begin with spark.; options of the engine are given with --option", "--conf")
    engine = {**tables["engine"], **{name: _value(text) for name, text in (_pair(each, "--option") for each in option or ())}}
    engine = _checked(engine)
    given = {each.partition("=")[0] for each in context.args}
    dataflow = [f"--{name.replace('_', '-')}={_text(value)}" for name, value in tables["dataflow"].items()]
    return Settings(spark, engine, tuple(each for each in dataflow if each.partition("=")[0] not in given))


def _checked(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the engine, and its argument `placement`; parameters of the policy, a table, as what the engine takes."""
    from evenflow.plan.placement import Scheme
    from evenflow.world.spark.driver.options import EngineOptions

    known = [PLACEMENT, *(field.name for field in dataclasses.fields(EngineOptions))]
    for name in engine:
        if name in OWN:
            raise _wrong(f"{name} is said by {OWN[name]}", "--option")
        if name not in known:
            raise _wrong(f"the engine has no option {name!r}{_near(name, known)}; docs/options.md lists them", "--option")
    if PLACEMENT in engine and engine[PLACEMENT] not in get_args(Scheme):
        raise _wrong(f"placement is {engine[PLACEMENT]!r}; give one of {', '.join(get_args(Scheme))}", "--option")
    made = dict(engine)
    if made.get(BALANCING) is not None:
        made[BALANCING] = _parameters(made[BALANCING])
    if made.get(SCALING) is not None:
        made[SCALING] = _times(made[SCALING])
    EngineOptions(**{name: value for name, value in made.items() if name != PLACEMENT})
    return made


def _parameters(given: Any) -> Parameters:
    """Those of a policy. A list is a tuple: the segments."""
    from evenflow.policy.proposal import Parameters

    known = {field.name: str(field.type) for field in dataclasses.fields(Parameters)}
    if not isinstance(given, dict):
        raise _wrong(f"{BALANCING} is {given!r}; give a table, such as {{th_imb = 1.3}}", "--option")
    for name, value in given.items():
        if name not in known:
            raise _wrong(f"a policy has no parameter {name!r}{_near(name, known)}; docs/policies.md lists them", "--option")
        if why := _is_no(known[name], value):
            raise _wrong(f"the parameter {name} is {_short(value)}; give {why}", "--option")
    made: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Parameters(**made)


def _times(given: Any) -> Times:
    """When sites come and go."""
    from evenflow.policy.scaling import Times

    known = {field.name: str(field.type) for field in dataclasses.fields(Times)}
    if not isinstance(given, dict):
        raise _wrong(f"{SCALING} is {given!r}; give a table, such as {{calm_s = 600}}", "--option")
    for name, value in given.items():
        if name not in known:
            raise _wrong(f"{SCALING} has no {name!r}{_near(name, known)}; docs/options.md lists them", "--option")
        if (why := _is_no(known[name], value)) or value <= 0:
            raise _wrong(f"{name} of {SCALING} is {_short(value)}; give {why or 'a number above zero'}", "--option")
    return Times(**given)


def _is_no(kind: str, value: Any) -> str:
    """What a parameter of this type must be, if the value is something else; else empty."""
    if kind.startswith("tuple"):
        return "" if isinstance(value, list) and all(type(each) is int for each in value) else "a list of whole numbers"
    if kind == "int":
        return "" if type(value) is int and abs(value) <= MOST else "a whole number"
    return "" if type(value) is int and abs(value) <= MOST or type(value) is float and math.isfinite(value) else "a number"


def _short(value: Any) -> str:
    return "too large" if type(value) is int and abs(value) > MOST else repr(value)


def _load(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise _wrong(f"{file} has more than {MOST_BYTES:,} bytes; give a TOML file with options")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise _wrong(f"cannot read {file}: {error.strerror or error}; give a TOML file with options") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(f"{file} is no TOML: {error}") from error


def _table(content: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise _wrong(f"{file}: {name} is a table; write [{name}] above its lines")
    # `spark.executor.memory = "2g"` without quotes is a table of tables in TOML.
    return dict(_flat(table, "")) if name == "spark" else table


def _flat(table: Mapping[str, Any], before: str) -> Iterable[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _pair(text: str, param: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip()):
        raise _wrong(f"{text!r} has no value; write {name or 'name'}=value", param)
    return name.strip(), value


def _value(text: str) -> Any:
    """As TOML would read it; what it cannot read is a text, and none is None."""
    if text.strip().lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}" if found else ""


def _wrong(message: str, param: str = "--config") -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=param)
