"""A user's FILE.py: load it, call its `dataflow()` with the options of the command line.

    def dataflow(*, packets: str, rate: int = 20_000, spark=None) -> ef.Dataflow: ...

A parameter is an option of the same name (`--packets`, underscores may be dashes), converted by its annotation or its default. The
parameter `spark` is no option: it is given the session, if the command has one.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Final, Literal, get_args, get_origin

from evenflow.errors import EvenflowError, FileFailed, QueryError

SPARK: Final = "spark"
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class UserFlow:
    """The function `dataflow` of a file, with the options that it will be called with."""

    path: Path
    function: Callable[..., Any]
    options: dict[str, Any]
    takes_spark: bool
    needs_spark: bool

    def build(self, spark: Any = None) -> Any:
        """The dataflow. spark: the session, for a function that takes one. Raises QueryError if it returns something else."""
        given = dict(self.options)
        if self.takes_spark and (spark is not None or self.needs_spark):
            given[SPARK] = spark
        with failing(self.path, "dataflow()"):
            flow = self.function(**given)
        if not (hasattr(flow, "to_text") and hasattr(flow, "source")):
            raise QueryError(f"{self.path}: dataflow() returned {type(flow).__name__}; it must return the ef.Dataflow that it built")
        return flow


def load(path: Path, arguments: Sequence[str]) -> UserFlow:
    """Import `path` and match `arguments` (`--name value`, `--name=value`, a bare `--name` for a bool) with its dataflow().

    Raises QueryError with what to do if there is no such file or function, or an option is unknown, missing or of the wrong type.
    """
    module = load_module(path)
    function = getattr(module, "dataflow", None)
    if not callable(function):
        raise QueryError(f"{path} has no function dataflow(): define one that builds an ef.Dataflow and returns it")
    signature = inspect.signature(function)
    parameters = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_POSITIONAL}
    try:
        types = typing.get_type_hints(function)
    except Exception:  # An annotation that does not resolve here, such as one for type checkers only: the default decides.
        types = {}
    options = _options(path, arguments, parameters, types)
    missing = [name for name, p in parameters.items() if _is_required(p) and name not in options and name != SPARK]
    if missing:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise QueryError(f"{path}: dataflow() needs {names}; {_known(parameters)}")
    needs = SPARK in parameters and _is_required(parameters[SPARK])
    return UserFlow(path, function, options, SPARK in parameters, needs)


def load_module(path: Path) -> ModuleType:
    """The file as a module whose functions and classes travel to the executors by value. Its directory is importable meanwhile."""
    if not path.is_file():
        raise QueryError(f"there is no file {path}: give the path of a Python file that defines dataflow()")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise QueryError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        with failing(path, "the file, while it was imported,"):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        raise QueryError(f"{path}, line {error.lineno}: {error.msg}") from error
    _send_by_value(module)
    return module


def _send_by_value(module: Any) -> None:
    """Executors cannot import the file: it is only here. Where there is no PySpark, nothing is sent."""
    if importlib.util.find_spec("pyspark") is None:
        return
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    register(module)


@contextmanager
def failing(path: Path, what: str) -> Iterator[None]:
    """What the user's code raises becomes a FileFailed that says where; errors of Evenflow and of Python's grammar stay as they are."""
    try:
        yield
    except (EvenflowError, SyntaxError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [at for at, frame in enumerate(frames) if Path(frame.filename).resolve() == path.resolve()]
        where = f", line {frames[own[-1]].lineno}" if own else ""
        shown = traceback.StackSummary.from_list(frames[own[0] :] if own else frames)
        text = "".join(["Traceback (most recent call last):\n", *shown.format(), *traceback.format_exception_only(error)]).rstrip()
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise FileFailed(f"{path}{where}: {what} raised {said}; mend it there:\n{text}", text) from error


def _options(
    path: Path, arguments: Sequence[str], parameters: dict[str, inspect.Parameter], types: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    options: dict[str, Any] = {}
    for option, value in _pairs(path, arguments, parameters, types):
        name = option.replace("-", "_")
        parameter = parameters.get(name)
        if parameter is None and name.startswith("no_") and _is_bool(name[3:], parameters, types) and value is None:
            options[name[3:]] = False
            continue
        if (parameter is None and not anything) or name == SPARK:
            raise QueryError(f"{path}: dataflow() has no option --{option}; {_known(parameters)}")
        options[name] = _converted(path, option, value, _wanted(name, parameters, types))
    return options


def _pairs(
    path: Path, arguments: Sequence[str], parameters: dict[str, inspect.Parameter], types: dict[str, Any]
) -> Iterator[tuple[str, str | None]]:  # fmt: skip
    waiting = [a for a in arguments if a != "--"]
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--") or word == "--":
            raise QueryError(f"{path}: unexpected argument {word!r}; options of dataflow() are written --name value")
        option, given, value = word[2:].partition("=")
        name = option.replace("-", "_")
        bare = _is_bool(name, parameters, types) or (name.startswith("no_") and _is_bool(name[3:], parameters, types))
        if given:
            yield option, value
        elif bare and not (waiting and waiting[0].lower() in TRUE | FALSE):
            yield option, None
        elif waiting and (name in parameters or not waiting[0].startswith("--")):
            yield option, waiting.pop(0)
        else:
            yield option, None


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD


def _known(parameters: dict[str, inspect.Parameter]) -> str:
    names = [f"--{name.replace('_', '-')}" for name, p in parameters.items() if name != SPARK and p.kind is not p.VAR_KEYWORD]
    return f"its options are {', '.join(names)}" if names else "it takes no options"


def _wanted(name: str, parameters: dict[str, inspect.Parameter], types: dict[str, Any]) -> Any:
    """The type of a parameter: what is annotated, else the type of its default, else text."""
    if name in types:
        return types[name]
    parameter = parameters.get(name)
    if parameter is None or parameter.default in (None, parameter.empty):
        return str
    return type(parameter.default)


def _is_bool(name: str, parameters: dict[str, inspect.Parameter], types: dict[str, Any]) -> bool:
    return name in parameters and bool in _alternatives(_wanted(name, parameters, types))


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    if get_origin(wanted) in (typing.Union, UnionType):
        return tuple(t for t in get_args(wanted) if t is not type(None))
    return (wanted,)


def _converted(path: Path, option: str, text: str | None, wanted: Any) -> Any:
    if text is None:
        if bool in _alternatives(wanted):
            return True
        raise QueryError(f"{path}: --{option} needs a value")
    for type_ in _alternatives(wanted):
        if get_origin(type_) is Literal:
            for choice in get_args(type_):
                if str(choice) == text:
                    return choice
            continue
        try:
            return _read(text, type_)
        except ValueError:
            continue
    names = " or ".join(getattr(t, "__name__", str(t)) for t in _alternatives(wanted))
    raise QueryError(f"{path}: --{option} {text} is not {names}")


def _read(text: str, type_: Any) -> Any:
    if type_ is bool:
        if text.lower() not in TRUE | FALSE:
            raise ValueError(text)
        return text.lower() in TRUE
    if type_ is int:
        return int(text.replace("_", ""))
    if type_ in (float, Path):
        return type_(text)
    if type_ in (str, Any) or type_ is os.PathLike:
        return text
    return type_(text) if isinstance(type_, type) and issubclass(type_, str) else text
