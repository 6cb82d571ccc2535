"""User functions: Python functions of values, pandas functions of Series, Arrow functions of arrays; one value per row, or per group.

    @ef.udf("bigint")
    def bucket(length):
        return None if length is None else length // 64

    @ef.pandas_udf("double")
    def median(x: pd.Series) -> float:
        return x.median()

Functions decorated by PySpark's `udf`, `pandas_udf` and `arrow_udf` are taken as they are: `as_function` reads what they say of
themselves. Nothing here imports PySpark or pandas.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Literal

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.user.aggregator import Aggregator
from evenflow.query.user.formula import Formula
from evenflow.stream.schema import parse_type

Takes = Literal["rows", "pandas", "arrow"]


@dataclass(frozen=True)
class UserFunction:
    """One function. type: of its results. takes: the values of a row, or whole columns as Series or as Arrow arrays.

    aggregate: it makes one value of the rows of a group, not one per row. iterates: it is given an iterator of columns (of tuples of them,
    if it has several arguments), and gives one back. Calling it with columns or expressions makes a `Formula`.
    """

    name: str
    function: Callable[..., Any]
    type: pa.DataType
    takes: Takes = "rows"
    aggregate: bool = False
    iterates: bool = False

    def __call__(self, *arguments: str | Formula) -> Formula:
        return Formula.of_call(self.name, self, arguments)


_OF_SPARK: Final[dict[int, tuple[Takes, bool, bool]]] = {
    100: ("rows", False, False), 101: ("rows", False, False),
    200: ("pandas", False, False), 202: ("pandas", True, False), 204: ("pandas", False, True), 217: ("pandas", True, True),
    250: ("arrow", False, False), 252: ("arrow", True, False), 251: ("arrow", False, True), 254: ("arrow", True, True),
}  # fmt: skip
"""PySpark's evalType (`pyspark.util.PythonEvalType`): what it takes, whether it aggregates, whether it iterates."""


def of_spark(name: str, function: Callable[..., Any], type: Any, eval_type: int) -> UserFunction:
    """A function as PySpark has it. type: a DataType of PySpark's, or DDL. Raises QueryError for what is no function of columns."""
    if eval_type not in _OF_SPARK:
        raise QueryError(
            f"the function {name!r} (evalType {eval_type}) is none of columns; what makes rows of rows is a flat_map or a process box"
        )
    takes, aggregate, iterates = _OF_SPARK[eval_type]
    return UserFunction(name, function, _type(name, type), takes, aggregate, iterates)


def as_function(name: str, given: Any) -> UserFunction | Aggregator:
    """What a user gives as a function, known as `name`: ours, an `Aggregator`, or one that PySpark has decorated.

    Raises QueryError for anything else, and for a function that is declared not to be deterministic.
    """
    if isinstance(given, UserFunction | Aggregator):
        return given
    if inspect.iscoroutinefunction(getattr(given, "func", given)):
        raise QueryError(f"the function {name!r} is async, and an expression waits for nothing; .lookup({name}, ...) awaits its answers")
    if isinstance(given, type) and issubclass(given, Aggregator):
        raise QueryError(f"the function {name!r} is the class {given.__name__}; give an instance, {given.__name__}()")
    if callable(given) and hasattr(given, "evalType") and hasattr(given, "func"):
        if not getattr(given, "deterministic", True):
            raise QueryError(
                f"the function {name!r} is not deterministic, and a row that is replayed must give the same result; "
                "take what it adds from a column of the source, or call it in .flat_map(..., deterministic=False) or .lookup(...)"
            )
        return of_spark(name, given.func, given.returnType, given.evalType)
    hint = f"decorate it with its result's type, @ef.udf('bigint'), or give ef.udf({name}, 'bigint')"
    raise QueryError(f"the function {name!r} is {given!r}, which does not say what it returns; {hint}")


def expr(text: str, **functions: Any) -> Formula:
    """An expression that calls functions of yours by name: `ef.expr("bucket(length) + 1", bucket=bucket)`."""
    return Formula(text, {name.lower(): as_function(name, function) for name, function in functions.items()})


def functions_in(module: ModuleType) -> dict[str, UserFunction | Aggregator]:
    """The functions that a module has, by their names there. Raises QueryError if it has none."""
    found = {
        name: as_function(name, value)
        for name, value in vars(module).items()
        if isinstance(value, UserFunction | Aggregator) or (hasattr(value, "evalType") and hasattr(value, "func"))
    }
    if not found:
        raise QueryError(
            f"{module.__name__} has no functions to call; decorate them, @ef.udf('bigint'), or give instances of aggregators a name"
        )
    return found


def udf(f: Any = None, returnType: Any = None, *, name: str | None = None) -> Any:
    """A Python function of values as a function in expressions, as PySpark's `udf`: `@ef.udf("bigint")` or `ef.udf(f, "bigint")`.

    It is called once per row, with None for null; None is null. returnType: DDL such as "bigint" or "array<string>", or a DataType of
    PySpark's. name: by which messages know it, default the function's own. A function that PySpark has decorated is taken as it is.
    """
    if f is not None and returnType is None and hasattr(f, "evalType"):
        return as_function(name or _name(f), f)
    return _decorated("udf", f, returnType, lambda function, type: UserFunction(name or _name(function), function, type))


def pandas_udf(f: Any = None, returnType: Any = None, *, name: str | None = None) -> Any:
    """A function of pandas Series, as PySpark's `pandas_udf`. Its annotations say what it is:

        Series, ... -> Series                       one value per row
        Iterator[Series] -> Iterator[Series]        the same; of several arguments, Iterator[tuple[Series, ...]]
        Series, ... -> float (any scalar)           an aggregate: one value per group

    How rows are cut into batches may not matter to it; an aggregate is given all rows of its group at once.
    """
    return _of_columns("pandas_udf", "pandas", "Series", f, returnType, name)


def arrow_udf(f: Any = None, returnType: Any = None, *, name: str | None = None) -> Any:
    """The same of Arrow arrays, as PySpark's `arrow_udf`: pa.Array, ... -> pa.Array, or -> pa.Scalar or any scalar for an aggregate."""
    return _of_columns("arrow_udf", "arrow", "Array", f, returnType, name)


def _of_columns(decorator: str, takes: Takes, column: str, f: Any, type: Any, name: str | None) -> Any:
    def made(function: Callable[..., Any], type_: pa.DataType) -> UserFunction:
        returned = _annotation(inspect.signature(function).return_annotation)
        if not returned:
            raise QueryError(
                f"{decorator} of {_name(function)!r}: its annotations say what it is; write -> {column} for one value per row, "
                "-> float (or another scalar) for an aggregate"
            )
        parameters = [_annotation(p.annotation) for p in inspect.signature(function).parameters.values()]
        iterates = any("Iterator" in text for text in parameters)
        return UserFunction(name or _name(function), function, type_, takes, column not in returned, iterates)

    return _decorated(decorator, f, type, made)


def _decorated(decorator: str, f: Any, type: Any, made: Callable[[Callable[..., Any], pa.DataType], UserFunction]) -> Any:
    """The function, or what decorates it. A type may come in its place, as in `@udf("bigint")`."""
    if f is not None and not callable(f):
        f, type = None, f
    if inspect.iscoroutinefunction(f):
        raise QueryError(f"{decorator}: {_name(f)} is async, and an expression waits for nothing; .lookup(...) awaits its answers")
    if type is None:
        raise QueryError(f"{decorator} needs the type of what the function returns, such as {decorator}('bigint')")
    found = _type(decorator, type)
    return (lambda function: made(function, found)) if f is None else made(f, found)


def _type(name: str, given: Any) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    text = given if isinstance(given, str) else getattr(given, "simpleString", lambda: repr(given))()
    try:
        return parse_type(text)
    except QueryError as error:
        raise QueryError(f"{name}: the function returns {text!r}: {error}") from error


def _name(function: Any) -> str:
    """A name that an expression can have a call of it by."""
    found = re.sub(r"\W+", "_", str(getattr(function, "__name__", type(function).__name__))).strip("_")
    if found != "lambda":
        return found or "function"
    code = getattr(getattr(function, "func", function), "__code__", None)
    if code is None:
        return "lambda_"
    # Its line, and where its body begins in it, so that several of them have several names. An interpreter may not know places in lines.
    begins = next((begin for _, _, begin, _ in code.co_positions() if begin), None)
    return f"lambda_{code.co_firstlineno}" + ("" if begins is None else f"_{begins}")


def _annotation(found: Any) -> str:
    """An annotation as text, "" if there is none."""
    if found is inspect.Signature.empty:
        return ""
    return found if isinstance(found, str) else str(found) if getattr(found, "__args__", None) else getattr(found, "__name__", str(found))
