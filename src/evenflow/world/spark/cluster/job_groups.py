"""Spark jobs that nobody waits for any more are cancelled, by their group: also those that are about to begin."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from evenflow.world.spark.cluster.interrupts import called_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_AGAIN_S: Final = 0.5
"""A job that began just behind the word that cancels it is cancelled so much later."""
CANCELS_S: Final = 2.0
"""For so long it is waited that Spark has heard the word."""

log = logging.getLogger("evenflow")


def cancel_until_over(spark: SparkSession, group: str, thread: threading.Thread) -> None:
    """Cancel what a thread lets Spark do, in a thread of its own, and return at once.

    It is done again until the thread is over: that may be about to begin a job, and Spark cancels those of a group that there are."""

    def cancel() -> None:
        try:
            while thread.is_alive():
                spark.sparkContext.cancelJobGroup(group)
                thread.join(CANCEL_AGAIN_S)
        except Exception as error:
            log.debug("while jobs of %s were cancelled: %r", group, error)  # The JVM may be gone already.

    threading.Thread(target=cancel, daemon=True, name=f"{group}-end").start()


@contextmanager
def grouped(spark: SparkSession, what: str) -> Iterator[None]:
    """Jobs that this thread lets Spark do meanwhile are a group of their own, and cancelled if this is broken off.

    what: as Spark's UI describes them. Afterwards the thread has the properties that it had, its own group among them. Another thread
    cancels: this one may be waiting for the JVM, or have no connection to it any more.
    """
    context: Any = spark.sparkContext
    jvm, group, said = context._jsc.sc(), f"evenflow-{uuid.uuid4().hex[:12]}", SimpleQueue[bool]()
    before = jvm.getLocalProperties()

    def cancel() -> None:
        try:
            if said.get():
                jvm.cancelJobGroupAndFutureJobs(group)
        except Exception as error:
            log.debug("while jobs of %s were cancelled: %r", group, error)  # The JVM may be gone already.

    canceller = threading.Thread(target=cancel, daemon=True, name=f"{group}-end")
    canceller.start()
    try:
        with called_off(lambda: said.put(True)):
            jvm.setLocalProperties(before.clone())
            context.setJobGroup(group, what, interruptOnCancel=False)
            yield
    except BaseException:
        said.put(True)
        canceller.join(CANCELS_S)
        raise
    finally:
        said.put(False)
        try:
            jvm.setLocalProperties(before)
        except Exception as error:
            log.debug("while the properties of a thread were put back: %r", error)
