"""Store the names of all functions of the installed Spark, with the group that its documentation puts each in.

python tools/spark_functions.py    # writes tools/spark_functions.json; starts a Spark session
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

STORED: Final = Path(__file__).resolve().parent / "spark_functions.json"


def main() -> None:
    from pyspark import __version__

    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    spark = embedded_session("local[1]", "evenflow-functions", {"spark.ui.enabled": "false"})
    try:
        names = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
        groups = {name: _group(spark, name) for name in sorted(names)}
    finally:
        stop_session(spark)
    STORED.write_text(json.dumps({"spark": __version__, "functions": groups}, indent=1) + "\n", encoding="utf-8")


def _group(spark: Any, name: str) -> str:
    """What Spark calls the group; operators have none."""
    session = spark._jsparkSession.sessionState().catalog()
    try:
        info = session.lookupBuiltinOrTempFunction(name)
        found = info if info.isDefined() else session.lookupBuiltinOrTempTableFunction(name)
        return str(found.get().getGroup()) if found.isDefined() else ""
    except Exception:  # Operators that are syntax are not in the registry.
        return ""


if __name__ == "__main__":
    main()
