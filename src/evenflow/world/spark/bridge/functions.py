"""Python functions that Spark knows: those of an analysed plan, and those that are registered in a session.

Spark keeps a function as the pickle of (function, type of its results), which is what its workers load. It is loaded here as they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evenflow.errors import QueryError
from evenflow.query.ported.expressions import function_name
from evenflow.query.sql.functions import AGGREGATES, FUNCTIONS
from evenflow.query.user.function import UserFunction, of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS = ("PythonUDF", "PythonUDAF")


def functions_of(node: Any, jvm: Any) -> dict[str, UserFunction]:
    """The Python functions that the expressions of one node of an analysed plan call, by `function_name`. Raises QueryError for one that
    is not deterministic, cannot be loaded, or is none of columns."""
    return {function_name(str(call.name()), int(call.resultId().id())): _loaded(call, jvm) for call in _calls(node)}


def _calls(node: Any) -> Iterator[Any]:
    """Calls of Python functions in the expressions of a node, as the JVM has them."""
    waiting = list(_each(node.expressions()))
    while waiting:
        found = waiting.pop()
        if found.getClass().getSimpleName() in _KINDS:
            yield found
        waiting += _each(found.children())


def _loaded(call: Any, jvm: Any) -> UserFunction:
    name = str(call.name())
    if not call.udfDeterministic():
        raise QueryError(f"the function {name!r} is not deterministic, and a row that is replayed must give the same result")
    function, type_ = unpickled(call, jvm)
    return of_spark(name, function, type_, int(call.evalType()))


def unpickled(call: Any, jvm: Any) -> tuple[Any, Any]:
    """(function, type of its results) of a call of a Python function. Raises QueryError if it cannot be loaded."""
    from pyspark import cloudpickle

    name = str(call.name())
    pickled = bytes(call.func().command().toArray(jvm.scala.reflect.ClassTag.Byte()))
    loads: Any = cloudpickle.loads
    try:
        function, type_ = loads(pickled)
    except Exception as error:  # Anything can go wrong in it; one of more than a megabyte is a broadcast, which only workers can load.
        raise QueryError(f"the function {name!r} cannot be read out of Spark ({type(error).__name__}: {error})") from error
    return function, type_


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))


class Registered(Mapping[str, UserFunction]):
    """The Python functions that are registered in a session, asked for one by one. Functions that Evenflow has itself come first."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._found = spark, dict[str, UserFunction | None]()

    def __getitem__(self, name: str) -> UserFunction:
        name = name.lower()
        if name not in self._found:
            self._found[name] = self._asked(name)
        found = self._found[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (function.name.lower() for function in self._spark.catalog.listFunctions() if function.name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _asked(self, name: str) -> UserFunction | None:
        if name in FUNCTIONS or name in AGGREGATES or not name.isidentifier() or not self._spark.catalog.functionExists(name):
            return None
        from pyspark.errors import AnalysisException

        try:
            plan: Any = self._spark.sql(f"SELECT {name}(NULL)")._jdf.queryExecution().analyzed()
        except AnalysisException:
            return None  # One of Spark's own, which wants other arguments.
        found = functions_of(plan, self._spark.sparkContext._jvm)
        return next(iter(found.values()), None)


def registered(spark: SparkSession) -> Mapping[str, UserFunction]:
    """The Python and pandas functions that `spark.udf.register` has registered in a session: `ef.sql(text, streams,
    functions=ef.registered(spark))`. Raises QueryError for a session of Spark Connect."""
    if not hasattr(spark, "_jsparkSession"):
        raise QueryError(f"registered takes a classic Spark session, not {type(spark).__name__}; give the functions by name")
    return Registered(spark)


__all__ = ["functions_of", "registered", "unpickled"]
