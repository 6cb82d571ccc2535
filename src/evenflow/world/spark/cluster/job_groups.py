"""Groups of Spark jobs: what is cancelled with one, and until when."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_AGAIN_S: Final = 0.5
"""A job that began just behind the word that cancels it is cancelled so much later."""

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
