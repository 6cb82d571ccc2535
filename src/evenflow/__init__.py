"""Evenflow: continuous queries on Spark executors that keep running.

    import evenflow as ef

    flow = ef.Dataflow("traffic")
    packets = flow.source(ef.sources.generator(...)).with_watermark("ts", "10 seconds")
    packets.group_by("src").window("1 minute").agg(bytes="sum(length)").to(ef.sinks.console())
    with ef.Engine(spark, sites=4) as engine:
        engine.start(flow).await_termination()

Dataflows are built, checked, printed and drawn without Spark. Everything is imported when it is first named: a task of Spark that
only hands rows over needs neither the parser of expressions nor the engine, and it waits for every import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from evenflow import errors, sinks, sources, testing
    from evenflow.errors import EvenflowError
    from evenflow.processor import BatchProcessor, Groups, Processor, Timer, Timers
    from evenflow.query.builder import Dataflow, GroupedStream, KeyedStream, RowWindowedStream, Stream, WindowedStream
    from evenflow.query.estimates import estimate
    from evenflow.query.qos import qos
    from evenflow.query.script import sql
    from evenflow.query.user.aggregator import Aggregator
    from evenflow.query.user.function import arrow_udf, expr, pandas_udf, udf
    from evenflow.world.grouping import group
    from evenflow.world.locations.checkpoints import checkpoints
    from evenflow.world.spark.bridge.analysed import from_streaming
    from evenflow.world.spark.bridge.functions import registered
    from evenflow.world.spark.bridge.state_frame import read_state
    from evenflow.world.spark.cluster.doctor import doctor
    from evenflow.world.spark.driver.engine import Engine
    from evenflow.world.spark.driver.options import EngineOptions
    from evenflow.world.spark.regions.subscriber import subscribe

__version__: Final = "0.1.0"

_HOMES: Final = {
    "evenflow.errors": ("EvenflowError",),
    "evenflow.processor": ("BatchProcessor", "Groups", "Processor", "Timer", "Timers"),
    "evenflow.query.builder": ("Dataflow", "GroupedStream", "KeyedStream", "RowWindowedStream", "Stream", "WindowedStream"),
    "evenflow.query.estimates": ("estimate",),
    "evenflow.query.qos": ("qos",),
    "evenflow.query.script": ("sql",),
    "evenflow.query.user.aggregator": ("Aggregator",),
    "evenflow.query.user.function": ("arrow_udf", "expr", "pandas_udf", "udf"),
    "evenflow.world.locations.checkpoints": ("checkpoints",),
    "evenflow.world.spark.bridge.analysed": ("from_streaming",),
    "evenflow.world.spark.cluster.doctor": ("doctor",),
    "evenflow.world.spark.driver.engine": ("Engine",),
    "evenflow.world.spark.driver.options": ("EngineOptions",),
    "evenflow.world.grouping": ("group",),
    "evenflow.world.spark.regions.subscriber": ("subscribe",),
    "evenflow.world.spark.bridge.functions": ("registered",),
    "evenflow.world.spark.bridge.state_frame": ("read_state",),
}
"""Where each name comes from."""

_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}
_MODULES: Final = ("errors", "sinks", "sources", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"evenflow.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'evenflow' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Aggregator", "BatchProcessor", "Dataflow", "Engine", "EngineOptions", "EvenflowError", "GroupedStream", "Groups", "KeyedStream",
    "Processor", "RowWindowedStream", "Stream", "Timer", "Timers", "WindowedStream", "__version__", "arrow_udf", "checkpoints", "doctor",
    "errors", "estimate", "expr", "from_streaming", "group", "pandas_udf", "qos", "read_state", "registered", "sinks", "sources", "sql",
    "subscribe", "testing", "udf",
]  # fmt: skip
