"""What the terminal shows of a run, from the numbers that a run gives."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

import pytest
from rich.console import Console

from evenflow.monitor.live import Results, View, bar, sparkline
from evenflow.monitor.picture import picture
from evenflow.monitor.summary import milliseconds, plain_line, report, summary_table

PROGRESS: dict[str, Any] = {
    "run": "r1", "dataflow": "network_sessions", "epoch": 1234, "epochs_in_flight": 3, "rows_in": 300_000, "rows_out": 2_000,
    "rows_in_per_s": 20_012.3, "rows_out_per_s": 133.1, "p50_ms": 6.2, "p99_ms": 17.9, "late_rows": 5, "seconds": 15.02,
    "sites": [
        {"site": s, "executor": str(s), "host": "127.0.0.1", "pid": 100 + s, "cpu_share": 0.1 * s, "rows_in_per_s": 5_003.0,
         "state_bytes": 2**20, "rss_bytes": 250 * 2**20, "epoch": 1234} for s in range(4)
    ],
}  # fmt: skip
DOCUMENTED = {
    "dataflow", "run", "master", "rows_in", "rows_out", "late_rows", "rows_in_per_s", "rows_out_per_s", "epoch", "p50_ms", "p99_ms",
    "sites", "seconds", "interrupted", "per_site",
}  # fmt: skip


def drawn(thing: Any, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


def test_a_sparkline_scales_to_its_maximum_and_keeps_the_newest() -> None:
    assert sparkline([0, 1, 2, 4, 8], 5) == "▁▁▂▄▇"
    assert sparkline([9, 9, 1, 2], 2) == "▄▇"
    assert sparkline([5, None, 5], 4) == " ▇ ▇"
    assert sparkline([], 3) == "   " and sparkline([0, 0], 2) == "▁▁"


def test_a_bar_is_full_at_one_core_and_never_longer() -> None:
    assert bar(0.5, 10).plain.startswith("━" * 10) and "50%" in bar(0.5).plain
    assert "250%" in bar(2.5).plain and bar(None).plain == "–"


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.50 ms"), (6.21, "6.2 ms"), (1234.0, "1,234 ms"), (None, "–")])
def test_milliseconds_have_the_digits_that_matter(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_the_view_shows_rates_latency_sites_and_results() -> None:
    results = Results(keys=("app", "src"))
    results.take([{"app": "dns", "src": "10.0.0.1", "max_dur": 1.0}, {"app": "ssh", "src": "10.0.0.2", "max_dur": 2.0}])
    results.take([{"app": "dns", "src": "10.0.0.1", "max_dur": 3.5}])
    view = View("network_sessions", "local-cluster[4,2,1024]", results)
    for _ in range(3):
        view.update(PROGRESS)
    text = drawn(view)
    for wanted in ("20,012/s", "6.2 ms", "17.9 ms", "1,234", "local-cluster[4,2,1024]", "250 MiB", "00:15", "3.500", "Ctrl-C"):
        assert wanted in text, f"{wanted} is missing in\n{text}"
    assert text.index("3.500") < text.index("2.000"), "the newest result comes first"
    assert "1.000" not in text, "a newer result of a key replaces the older one"


def test_the_view_stands_a_run_that_knows_nothing_yet() -> None:
    view = View("flow", "local[1]")
    assert "flow" in drawn(view)
    view.update({"sites": [{"site": 0}], "p50_ms": math.nan})
    assert "–" in drawn(view, width=80)


def test_results_are_bounded() -> None:
    results = Results(keys=("k",), limit=3)
    results.take([{"k": i} for i in range(10)])
    assert [row["k"] for row in results.newest(9)] == [9, 8, 7]


def test_the_report_has_the_documented_keys_and_is_json() -> None:
    found = report(PROGRESS, master="m", interrupted=False)
    assert set(found) == DOCUMENTED and found["sites"] == 4 and found["rows_in"] == 300_000
    empty = report({"p50_ms": math.nan}, master="m", interrupted=True)
    assert set(empty) == DOCUMENTED and empty["p50_ms"] is None
    json.dumps(empty, allow_nan=False)


def test_the_plain_line_and_the_summary_say_the_same() -> None:
    line, table = plain_line(PROGRESS), drawn(summary_table(PROGRESS))
    for wanted in ("300,000", "6.2 ms", "17.9 ms"):
        assert wanted in line and wanted in table
    assert "late rows" in table and "late rows" not in drawn(summary_table({**PROGRESS, "late_rows": 0}))


def test_the_picture_places_text_behind_blanks_without_the_blanks() -> None:
    view = View("network_sessions", "local-cluster[4,2,1024]")
    view.update(PROGRESS)
    svg = picture(view, "demo")
    assert svg.startswith("<svg") and "20,012/s" in svg
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    assert [t for t in texts if t.startswith("&#160;") and t.replace("&#160;", "")] == []
