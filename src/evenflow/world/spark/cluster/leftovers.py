"""What drivers leave when they are killed: removed by the next one that starts, if its owner is proved to be dead.

Their control files are removed by whoever looks for engines (driver/control_client.py).
"""

from __future__ import annotations

import shutil
from typing import Final

from evenflow.world.owned import abandoned
from evenflow.world.spark.cluster.processes import end_marked

MARK: Final = "EVENFLOW_SESSION"
"""Environment variable of the processes of a session that was started here; its value is the text of the session's directory."""
SESSION: Final = "evenflow-session-"
INGEST: Final = "evenflow-ingest-"
"""Prefixes of directories: a session's files; what Spark notes of a streaming source, where it runs on one machine."""


def clear() -> None:
    """End the processes and remove the files of owners that have died. Costs a look at the temporary files if there are none."""
    for path, mark in abandoned(SESSION):
        if mark:
            end_marked(MARK, mark)
        shutil.rmtree(path, ignore_errors=True)
    for path, _ in abandoned(INGEST):
        shutil.rmtree(path, ignore_errors=True)
