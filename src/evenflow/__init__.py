"""Evenflow: continuous queries on Spark executors that keep running.

    import evenflow as ef

    flow = ef.Dataflow("traffic")
    packets = flow.source(ef.sources.generator(...)).with_watermark("ts", "10 seconds")
    packets.group_by("src").window("1 minute").agg(bytes="sum(length)").to(ef.sinks.console())
    with ef.Engine(spark, sites=4) as engine:
        engine.start(flow).await_termination()

Dataflows are built, checked, printed and drawn without Spark: `Engine` is imported when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenflow import errors, sinks, sources
from evenflow.errors import EvenflowError
from evenflow.processor import BatchProcessor, Groups, Processor
from evenflow.query.builder import Dataflow, GroupedStream, KeyedStream, RowWindowedStream, Stream, WindowedStream

if TYPE_CHECKING:
    from evenflow.world.spark.engine import Engine, EngineOptions

__version__: Final = "0.1.0"

_LAZY: Final = {"Engine": "evenflow.world.spark.engine", "EngineOptions": "evenflow.world.spark.engine"}
"""Names whose modules need PySpark."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'evenflow' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "BatchProcessor", "Dataflow", "Engine", "EngineOptions", "EvenflowError", "GroupedStream", "Groups", "KeyedStream",
    "Processor", "RowWindowedStream", "Stream", "WindowedStream", "__version__", "errors", "sinks", "sources",
]  # fmt: skip
