"""Where the driver and the executors are, and tasks of Spark where they are wanted: a location is a preference, and no more than that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def driver_host(context: Any) -> str:
    """Where executors reach the driver: a name or an address. Spark has addresses of IPv6 in brackets."""
    return _plain(context.getConf().get("spark.driver.host", None) or "127.0.0.1")


def driver_listens(context: Any) -> str:
    """The address of this machine at which the driver listens, or a name of it."""
    return _plain(context.getConf().get("spark.driver.bindAddress", None) or driver_host(context))


def _plain(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")


@dataclass(frozen=True, slots=True)
class Executor:
    """id: Spark's. host: the name by which the other executors reach it."""

    id: str
    host: str

    @property
    def location(self) -> str:
        """How Spark's scheduler calls it in location preferences."""
        return f"executor_{self.host}_{self.id}"


def located(context: Any, locations: Sequence[str]) -> Any:
    """An RDD with a partition for each location, where Spark would rather compute it."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    jvm, jsc = context._jvm, context._jsc.sc()
    converters = jvm.scala.jdk.javaapi.CollectionConverters

    def seq(*items: Any) -> Any:
        array = jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return converters.asScala(array).toSeq()

    any_tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    pairs = [jvm.scala.Tuple2(bytearray(b"site"), seq(location)) for location in locations]
    return RDD(jsc.makeRDD(seq(*pairs), any_tag).toJavaRDD(), context, NoOpSerializer())
