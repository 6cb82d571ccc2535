"""Fill the tables of README.md from the results in bench/results, or check that they are current.

python tools/gen_readme_tables.py           # write them
python tools/gen_readme_tables.py --check   # exit code 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- tables: filled by tools/gen_readme_tables.py from bench/results -->", "<!-- end of tables -->"


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def rate(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:,.1f} k/s"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def throughput_table(result: dict[str, Any]) -> list[str]:
    lines = ["| rows per second | Evenflow | Structured Streaming | ratio |", "| --- | ---: | ---: | ---: |"]
    for row in result["workloads"]:
        ratio = "–" if row.get("ratio") is None else f"{row['ratio']:,.2f}x"
        lines.append(f"| {row['name']} | {rate(row.get('evenflow_rows_per_s'))} | {rate(row.get('spark_rows_per_s'))} | {ratio} |")
    return lines


def latency_table(result: dict[str, Any]) -> list[str]:
    def row(name: str, *keys: str) -> str:
        return f"| {name} | " + " | ".join(milliseconds(result.get(key)) if key else "" for key in keys) + " |"

    return [
        f"| latency at {result['rate']:,} rows/s | p50 | p99 | p99.9 |",
        "| --- | ---: | ---: | ---: |",
        row("Evenflow", "p50_ms", "p99_ms", "p999_ms"),
        row("Structured Streaming, micro-batch", "spark_p50_ms", "spark_p99_ms", ""),
        row("Structured Streaming, real-time mode", "", "spark_realtime_p99_ms", ""),
    ]


def failover_table(result: dict[str, Any]) -> list[str]:
    kills = f"executor killed, {result['rate']:,} packets/s, {result['kills']} kills"
    lost = f"{result['rows_lost']} lost, {result['rows_repeated']} repeated of {result['rows_compared']:,}"
    return [
        f"| {kills} | median gap | longest gap | rows |",
        "| --- | ---: | ---: | ---: |",
        f"| Evenflow, pairs and a spare | {milliseconds(result['gap_ms_p50'])} | {milliseconds(result['gap_ms_max'])} | {lost} |",
        f"| Structured Streaming | {milliseconds(result['spark_gap_ms_p50'])} | {milliseconds(result['spark_gap_ms_max'])} |  |",
    ]


def skew_table(result: dict[str, Any]) -> list[str]:
    lines = [
        f"| one of four executors at half speed, drifting Zipf keys | sustained | p99 at {result['rate']:,} rows/s |",
        "| --- | ---: | ---: |",
    ]
    names = {"static": "Evenflow, static", "balanced": "Evenflow, balancing", "spark": "Structured Streaming"}
    for key, name in names.items():
        lines.append(f"| {name} | {rate(result[key]['rows_per_s'])} | {milliseconds(result[key]['p99_ms'])} |")
    return lines


def moves_table(result: dict[str, Any]) -> list[str]:
    moved = f"{len(result['moves'])} moves of {result['bytes_p50'] / 1e6:.1f} MB, one after the other"
    return [
        f"| {moved} | median | longest | without moves |",
        "| --- | ---: | ---: | ---: |",
        f"| stall of the partition that moves | {milliseconds(result['stall_ms_p50'])} | {milliseconds(result['stall_ms_max'])} | |",
        f"| longest gap in the output of all others | {milliseconds(result['others_ms_p50'])} | {milliseconds(result['others_ms_max'])} | "
        f"{milliseconds(result['usual_longest_ms'])} |",
    ]


def nexmark_table(result: dict[str, Any]) -> list[str]:
    totals = result["totals"]
    least = next(row for row in result["queries"] if row["name"] == totals["least_ratio_of"])
    checked = f"{totals['equal']} of {len(result['queries'])} queries give what batch Spark gives"

    def row(name: str, of: dict[str, Any]) -> str:
        return f"| {name} | {rate(of['rows_per_s'])} | {rate(of['spark_rows_per_s'])} | {of['ratio']:.2f}x |"

    return [
        f"| Nexmark, rows per second; {checked} | Evenflow | Structured Streaming | ratio |",
        "| --- | ---: | ---: | ---: |",
        row(f"the {totals['ran_on_both']} queries that both run, together", totals),
        row(f"the one of them with the least ratio, {least['name']}", least),
    ]


TABLES: Final = {
    "throughput": throughput_table,
    "nexmark": nexmark_table,
    "latency": latency_table,
    "failover": failover_table,
    "skew": skew_table,
    "moves": moves_table,
}
"""By the name of the result, in their order."""


def tables() -> str:
    """What stands between the two marks."""
    lines: list[str] = []
    for name, table in TABLES.items():
        result = read(name)
        if result is not None:
            lines += [*table(result), ""]
    if not lines:
        return "Evenflow's own figures come from `evenflow bench` and are not recorded yet.\n"
    return "\n".join(lines) + "\nFrom `bench/results/`, which also has the machine, the versions and the command.\n"


def filled(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    text = README.read_text(encoding="utf-8")
    if "--check" in arguments:
        if filled(text) == text:
            return 0
        print("README.md is out of date: run python tools/gen_readme_tables.py", file=sys.stderr)
        return 1
    README.write_text(filled(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
