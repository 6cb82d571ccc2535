"""Fill the tables of docs/measured.md and docs/availability.md, and the short one of README.md, from the results in bench/results, or
check that they are current.

python tools/gen_measured.py           # write them
python tools/gen_measured.py --check   # exit code 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- tables: filled by tools/gen_measured.py from bench/results -->", "<!-- end of tables -->"


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


def checkpoint_table(result: dict[str, Any]) -> list[str]:
    setting = f"checkpoints of {result['state_mb'] / 1024:.0f} GB, {result['rows_per_s']:,} rows/s, {result['checkpoints']} checkpoints"
    return [
        f"| {setting} | with | without | ratio |",
        "| --- | ---: | ---: | ---: |",
        f"| p99 | {milliseconds(result['p99_ms'])} | {milliseconds(result['p99_ms_without'])} | {result['p99_ratio']:.2f} |",
        f"| longest gap | {milliseconds(result['longest_gap_ms'])} | {milliseconds(result['longest_gap_ms_without'])} | "
        f"{result['longest_gap_ms'] / result['longest_gap_ms_without']:.2f} |",
        f"| CPU |  |  | {result['cpu_ratio']:.2f} |",
        f"| bytes written, beside those of the rows that changed |  |  | {result['bytes_ratio']:.2f} |",
    ]


def restore_table(result: dict[str, Any]) -> list[str]:
    def seconds(name: str) -> str:
        value, each = result[f"{name}_s"], result.get(f"{name}_s_each") or ()
        return "–" if value is None else f"{value:.1f} s ({len(each)})"

    compared = f"{result['rows_lost']} lost, {result['rows_repeated']} repeated of {result['rows_compared']:,} rows"
    return [
        f"| all state lost, {result['state_mb'] / 1024:.0f} GB; {compared} | until results come again: median (of how many) |",
        "| --- | ---: |",
        f"| every executor killed, the driver lives | {seconds('in_place')} |",
        f"| the same of Flink, incremental checkpoints in RocksDB | {seconds('flink')} |",
        f"| the same of Structured Streaming, changelog in RocksDB | {seconds('spark')} |",
        f"| executors and driver killed, everything | {seconds('cluster')} |",
        f"| of which Spark's own start | {seconds('cluster_spark')} |",
    ]


def restart_table(result: dict[str, Any]) -> list[str]:
    wrong = f"{result['rows_lost']} lost, {result['rows_repeated']} repeated, {result['rows_wrong']} wrong"
    return [
        f"| {result['kills']} losses of driver and cluster, {result['stale_drivers']} drivers replaced while they hang; {wrong} of "
        f"{result['rows_compared']:,} rows | median (of how many) |",
        "| --- | ---: |",
        f"| new rows, on a Spark cluster, after | {result['restart_s_p50']:.1f} s ({len(result['restart_s_each'])}) |",
        f"| Structured Streaming, the same | {result['spark_restart_s_p50']:.1f} s ({len(result['spark_restart_s_each'])}) |",
    ]


TABLES: Final[dict[str, Callable[[dict[str, Any]], list[str]]]] = {
    "throughput": throughput_table,
    "nexmark": nexmark_table,
    "latency": latency_table,
    "failover": failover_table,
    "skew": skew_table,
    "moves": moves_table,
    "checkpoint": checkpoint_table,
    "restore": restore_table,
    "restart": restart_table,
}
"""By the name of the result, in their order."""


def tables() -> str:
    """All of them."""
    lines: list[str] = []
    for name, table in TABLES.items():
        result = read(name)
        if result is not None:
            lines += [*table(result), ""]
    return "\n".join(lines) + "\nFrom `bench/results/`, which also has the machine, the versions and the command.\n"


def throughput_line(result: dict[str, Any]) -> list[str]:
    return [
        f"| {row['name']}, rows per second | {rate(row['evenflow_rows_per_s'])} | {rate(row['spark_rows_per_s'])} |"
        for row in result["workloads"]
        if row["name"].startswith("grouped, 16,384 keys, uniform")
    ]


def nexmark_line(result: dict[str, Any]) -> list[str]:
    totals = result["totals"]
    rates = f"{rate(totals['rows_per_s'])} | {rate(totals['spark_rows_per_s'])}"
    return [f"| Nexmark, {totals['ran_on_both']} queries together, rows per second | {rates} |"]


def latency_line(result: dict[str, Any]) -> list[str]:
    return [f"| p99 at {result['rate']:,} rows/s | {milliseconds(result['p99_ms'])} | {milliseconds(result['spark_p99_ms'])} |"]


def failover_line(result: dict[str, Any]) -> list[str]:
    gaps = f"{milliseconds(result['gap_ms_max'])} | {milliseconds(result['spark_gap_ms_max'])}"
    return [f"| longest gap in the output of {result['kills']} killed executors | {gaps} |"]


def skew_line(result: dict[str, Any]) -> list[str]:
    p99 = f"{milliseconds(result['balanced']['p99_ms'])} | {milliseconds(result['spark']['p99_ms'])}"
    return [f"| p99 with one of four executors at half speed and hot keys that drift | {p99} |"]


LINES: Final[dict[str, Callable[[dict[str, Any]], list[str]]]] = {
    "throughput": throughput_line,
    "nexmark": nexmark_line,
    "latency": latency_line,
    "failover": failover_line,
    "skew": skew_line,
}


def summary() -> str:
    """A line for each that a reader asks first."""
    lines = ["| | Evenflow | Structured Streaming |", "| --- | ---: | ---: |"]
    for name, line in LINES.items():
        result = read(name)
        if result is not None:
            lines += line(result)
    return "\n".join(lines) + "\n"


GUARANTEES: Final = {"amnesia": "gap", "upstream": "precise", "passive": "precise", "pairs": "precise"}
"""Of windows that close by event time, which is what the experiment runs."""


def modes() -> str:
    """What each mode of availability costs on executors, and what the machines of the thesis paid."""
    result = read("experiments/availability-modes-spark")
    if result is None:
        return ""
    found, thesis = result["measured"], result["paper"]
    rows = f"gap after a kill, median | longest of {found['kills_pairs']} | rows lost or wrong, repeated"
    lines = [
        f"| mode | guarantee | CPU | bytes | {rows} | thesis: bytes | recovery |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for mode, guarantee in GUARANTEES.items():
        harm = f"{found[f'rows_lost_{mode}'] + found[f'rows_wrong_{mode}']:,}, {found[f'rows_repeated_{mode}']:,}"
        more, recovery = (thesis.get(f"{figure}_{mode}_aggregate") for figure in ("bytes_more", "recovery_ms"))
        told = f"{'–' if more is None else f'{1 + more:.2f}x'} | {milliseconds(recovery)}"
        costs = f"{found[f'cpu_by_none_{mode}']:.2f}x | {found[f'bytes_by_none_{mode}']:.2f}x"
        gaps = f"{milliseconds(found[f'gap_ms_{mode}'])} | {milliseconds(found[f'gap_ms_max_{mode}'])}"
        lines.append(f"| `{mode}` | {guarantee} | {costs} | {gaps} | {harm} of {found[f'rows_compared_{mode}']:,} | {told} |")
    return "\n".join(lines) + "\n"


PAGES: Final = {
    ROOT / "docs" / "measured.md": tables,
    ROOT / "docs" / "availability.md": modes,
    ROOT / "README.md": summary,
}


def filled(text: str, between: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{between}\n{END}{after}"


def main(arguments: list[str]) -> int:
    old = {page: page.read_text(encoding="utf-8") for page in PAGES}
    new = {page: filled(old[page], between()) for page, between in PAGES.items()}
    if "--check" in arguments:
        stale = [str(page.relative_to(ROOT)) for page in PAGES if old[page] != new[page]]
        for name in stale:
            print(f"{name} is out of date: run python tools/gen_measured.py", file=sys.stderr)
        return 1 if stale else 0
    for page, text in new.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
