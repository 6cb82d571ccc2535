"""The Spark job of one site: a single task, which runs as long as the site lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from evenflow.world.spark.cluster.located import Executor, located


class SiteJob:
    """The Spark job of one site, in a thread of its own. number: which start of a site of this engine it is. executor: where it would
    rather be. ended: it is over, which `on_end` was told. why: what the site said, or the error's text.
    again: it could not stay there, and may elsewhere.
    """

    def __init__(self, spark: Any, group: str, number: int, executor: Executor | None, task: Any, on_end: Callable[[], None]) -> None:
        from pyspark import InheritableThread

        self.group, self.number, self.executor, self.ended = group, number, executor, False
        self.why, self.again = "", False
        self._context, self._task, self._on_end = spark.sparkContext, task, on_end
        self._over = threading.Event()
        self._thread = InheritableThread(target=self._run, session=spark)
        self._thread.daemon = True
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        return self._over.wait(timeout_s)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self.group)

    def _run(self) -> None:
        context = self._context
        try:
            context.setJobGroup(self.group, f"Evenflow site, start {self.number}", interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", f"evenflow-site-{self.number}")
            rdd = located(context, [self.executor.location]) if self.executor else context.parallelize([0], 1)
            task = self._task

            def body(rows: Any) -> list[tuple[str, bool]]:
                # An exception would make Spark try again, up to spark.task.maxFailures, and nobody would see why.
                import traceback

                try:
                    return [task()]
                except Exception:
                    return [("failed: " + traceback.format_exc(), False)]

            [(self.why, self.again)] = rdd.mapPartitions(body).collect()
        except Exception as error:
            self.why = str(error)
        finally:
            self.ended = True
            self._over.set()
            self._on_end()
