"""Write docs/functions.md, every function of Spark SQL and whether Evenflow's expressions have it, or check that it is current.

python tools/gen_function_table.py           # write it
python tools/gen_function_table.py --check   # exit code 1 if it is out of date

Spark's names are in tools/spark_functions.json, which tools/spark_functions.py writes; ours are those of the catalogue.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from evenflow.query.script.lateral import GENERATORS
from evenflow.query.sql import xpaths
from evenflow.query.sql.composed import COMPOSED, WITHIN
from evenflow.query.sql.functions import AGGREGATES, FUNCTIONS, IMPURE
from evenflow.query.sql.lambdas import HIGHER

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "functions.md"
STORED: Final = Path(__file__).resolve().parent / "spark_functions.json"

OPERATORS: Final = "! != % & * + - / < << <= <=> <> = == > >= >> ^ | || ~ and or not in between case when cast decimal"
SYNTAX: Final = frozenset([
    *OPERATORS.split(), *GENERATORS, ">>>", "window", "session_window", "window_time", "arrays_zip", "grouping", "grouping_id",
    "make_interval", "make_ym_interval", "row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist", "lag", "lead",
    "nth_value", "collate",
])  # fmt: skip
"""What is written in its own way, or is a word of FROM, GROUP BY or OVER."""
GROUPS: Final = {
    "sketch_funcs": "sketches are of one engine's library; `approx_count_distinct` counts about",
    "variant_funcs": "not yet; take what is wanted out with `variant_get`",
    "xml_funcs": "XML is read in Spark, or by a Python function; a part of it by `xpath_string` and its like",
    "avro_funcs": "Avro is read at the source",
    "protobuf_funcs": "messages of Protobuf are read at the source",
    "st_funcs": "columns cannot be geometries",
    "generator_funcs": "a stream is read from a source",
    "table_funcs": "a stream is read from a source",
    "window_funcs": "of rows in an order there are places, neighbours, aggregates of the rows around, and patterns",
}  # fmt: skip
"""Why a whole group of Spark's is not there."""
REASONS: Final = {
    name: reason
    for reason, names in (
        ("a replayed row must give the same result; take the value from a column",
         " ".join([*sorted(IMPURE), "current_timezone", "randstr", "uniform", "localtime"])),
        ("says something of Spark's session, which a site does not have",
         "current_catalog current_database current_path current_schema current_user session_user user version input_file_block_length "
         "input_file_block_start"),
        ("calls a method of the JVM", "java_method reflect try_reflect"),
        ("an interval has days to microseconds; months and years have no fixed length",
         "try_make_interval"),
        ("it depends on the language of the texts", "sentences"),
        ("a timestamp has microseconds", "timestamp_nanos unix_nanos"),
        ("columns cannot be times of a day",
         "time make_time to_time try_to_time time_diff time_from_micros time_from_millis time_from_seconds time_to_micros "
         "time_to_millis time_to_seconds time_trunc"),
        ("texts are compared by their bytes, or by their small letters with `COLLATE UTF8_LCASE`; there are no others", "collations"),
    )
    for name in names.split()
}  # fmt: skip
"""Why one is not there."""
NARROWER: Final = {
    **dict.fromkeys(("make_interval", "make_ym_interval"), "where it moves a date or a timestamp, as in `ts + make_interval(0, n)`"),
    "collate": "with `'UTF8_LCASE'`, where it says how texts are compared ([collations](sql.md#collations))",
    "approx_top_k": "exact: the values are kept",
    **dict.fromkeys(xpaths.FUNCTIONS, "with the package `lxml`: `pip install 'evenflow[xml]'`"),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), "with `WITHIN GROUP (ORDER BY x)`"),
    "aes_encrypt": "with the start vector given, or in the mode `ECB`",
    "to_csv": "with the options `sep`, `delimiter`, `dateFormat` and `timestampFormat`",
    "schema_of_csv": "with the options `sep` and `delimiter` only",
}
"""Those that are there in fewer forms than Spark has, and in which."""
LATER: Final = "not yet; Spark does it right above a watermark, elsewhere a Python function"


def known(name: str) -> bool:
    """Whether Evenflow's expressions have it."""
    return name in FUNCTIONS or name in AGGREGATES or name in HIGHER or name in COMPOSED or name in WITHIN or name in SYNTAX


def why_not(name: str, group: str) -> str:
    """The reason why a function is not there, and what to do."""
    return REASONS.get(name) or GROUPS.get(group) or LATER


def page() -> str:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    functions: dict[str, str] = stored["functions"]
    there = sum(map(known, functions))
    lines = [
        "# Functions",
        "",
        f"Every function of Spark SQL {stored['spark']}, and whether Evenflow's expressions have it: {there} of {len(functions)}.",
        "The table is made from Spark's own list and Evenflow's catalogue by `tools/gen_function_table.py`; a test holds it. What is there",
        "is compared with batch Spark over edge values, function by function: calls that are drawn by a fixed seed, and for `sequence` and",
        "functions of functions chosen ones. Other seeds are drawn by `make conformance`; they still find rare differences.",
        "Functions of JSON, variants, CSV, XML, URLs, hashes and distances, and times that are read by a pattern, are a pass over the rows",
        "in Python.",
        "",
        "What is missing is missing above the first stateful part only: below it, and in `select`, `where` and `explode` right above",
        "`withWatermark`, [a ported query](porting.md) has all of Spark's functions, since Spark computes them there.",
    ]
    for group in sorted({group or "operators" for group in functions.values()}):
        names = [name for name, own in functions.items() if (own or "operators") == group]
        yes, no = [name for name in names if known(name)], [name for name in names if not known(name)]
        lines += ["", f"## {group.removesuffix('_funcs').replace('agg', 'aggregates').replace('lambda', 'higher-order')}", ""]
        lines += ["| function | | |", "| --- | --- | --- |"]
        for form in sorted({NARROWER.get(name, "") for name in yes}):
            lines.append(f"| {', '.join(_code(name) for name in yes if NARROWER.get(name, '') == form)} | yes | {form}{' ' * bool(form)}|")
        for reason in dict.fromkeys(why_not(name, group) for name in no):
            lines.append(f"| {', '.join(_code(name) for name in no if why_not(name, group) == reason)} | no | {reason} |")
    return "\n".join(lines) + "\n"


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")


def main() -> int:
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
