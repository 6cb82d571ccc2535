"""Write docs/metrics.md, deploy/grafana.json and deploy/alerts.yaml from the table of metrics, or check that they are current.

python tools/gen_metrics.py           # write them
python tools/gen_metrics.py --check   # exit code 1 if one is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evenflow.monitor.metrics import BY_HAND, METRICS

ROOT = Path(__file__).resolve().parent.parent
PAGE, DASHBOARD, RULES = ROOT / "docs" / "metrics.md", ROOT / "deploy" / "grafana.json", ROOT / "deploy" / "alerts.yaml"

HEAD = """\
# Metrics

`evenflow ui` serves them at `/metrics`, in the text format of Prometheus. They are made of the newest reading, which is at most a second
old: while nobody looks at the page, each scrape asks the engine for one. `/healthz` says that the server answers; `/readyz` is 503, with
the reasons, if the newest reading is older than three seconds, an active run has fewer replicas of something than it shall have, or the
newest run of a dataflow has failed. An engine that does not answer has no numbers: `/metrics` is 503 then, and `up` is 0.

```yaml
scrape_configs:
  - job_name: evenflow
    static_configs: [{targets: ["127.0.0.1:4141"]}]
rule_files: [alerts.yaml]
```

Every name begins with `evenflow_`. No metric has a label per partition or per run, so there are as many series as boxes and sites make:
below 3,000 of a hundred sites and two hundred boxes. Of two runs of one dataflow the newest counts. Counters begin anew when a run goes
on in another generation, which `rate()` knows how to take. What nobody knows has no sample. A run that is over keeps its counters and has
no gauge, so that no alert stays of one that was stopped; of one that has failed `evenflow_run_failed` is 1 until the dataflow is begun
again.

`deploy/grafana.json` is a dashboard of all of them (import it in Grafana, which asks which Prometheus is meant). `deploy/alerts.yaml` has
rules for alerts, each with the part of [operations.md](operations.md) that says what to do. Its limits (a second of latency, a minute of
watermark) are a beginning.

This page is written by `tools/gen_metrics.py`.

| metric | kind | labels | |
| --- | --- | --- | --- |
"""

PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Rows in", "short", (("sum by (dataflow, source) (rate(evenflow_rows_in_total[1m]))", "{{dataflow}} {{source}}"),)),
    ("Rows out", "short", (("sum by (dataflow) (rate(evenflow_rows_out_total[1m]))", "{{dataflow}}"),)),
    (
        "Latency, 99 and 50 of 100 epochs", "s",
        (
            ("histogram_quantile(0.99, sum by (dataflow, le) (rate(evenflow_latency_seconds_bucket[1m])))", "{{dataflow}} 99"),
            ("histogram_quantile(0.5, sum by (dataflow, le) (rate(evenflow_latency_seconds_bucket[1m])))", "{{dataflow}} 50"),
        ),
    ),
    ("Watermark behind the clock", "s", (("evenflow_watermark_lag_seconds", "{{dataflow}} {{source}}"),)),
    ("Messages not read yet", "short", (("evenflow_source_behind_messages", "{{dataflow}} {{source}}"),)),
    ("Redundancy", "short", (("evenflow_redundancy", "{{dataflow}}"), ("evenflow_replicas", "{{dataflow}} wanted"))),
    ("Sites", "short", (("sum by (dataflow, role) (evenflow_sites)", "{{dataflow}} {{role}}"),)),
    ("Busy sites", "percentunit", (("rate(evenflow_site_busy_seconds_total[1m])", "site {{site}} {{dataflow}}"),)),
    ("Whom the ingress waits for", "percentunit", (("rate(evenflow_ingress_waited_seconds_total[1m])", "site {{site}} {{dataflow}}"),)),
    ("CPU of sites", "short", (("rate(evenflow_site_cpu_seconds_total[1m])", "site {{site}}"),)),
    ("Busy boxes", "s", (("topk(10, rate(evenflow_box_busy_seconds_total[1m]))", "{{dataflow}} {{box}}"),)),
    ("Rows of boxes", "short", (("topk(20, rate(evenflow_box_rows_total[1m]))", "{{dataflow}} {{box}} {{direction}}"),)),
    ("Skew", "short", (("evenflow_partition_skew_ratio", "{{dataflow}} {{segment}}"),)),
    ("State", "bytes", (("sum by (dataflow, where) (evenflow_site_state_bytes)", "{{dataflow}} {{where}}"),)),
    ("Frames that wait", "bytes", (("evenflow_site_waiting_bytes", "site {{site}} {{dataflow}}"),)),
    ("Memory", "bytes", (("evenflow_site_memory_bytes", "site {{site}}"),)),
    (
        "Epochs", "short",
        (
            ("rate(evenflow_epochs_total[1m])", "{{dataflow}} finished a second"),
            ("evenflow_epochs_in_flight", "{{dataflow}} in flight"),
        ),
    ),
    (
        "Late and failed rows", "short",
        (
            ("rate(evenflow_late_rows_total[1m])", "{{dataflow}} late"),
            ("rate(evenflow_failed_rows_total[1m])", "{{dataflow}} failed"),
            ("rate(evenflow_box_late_rows_total[1m]) > 0", "{{dataflow}} {{box}} late"),
            ("rate(evenflow_box_failed_rows_total[1m]) > 0", "{{dataflow}} {{box}} failed"),
        ),
    ),
    ("Delivered", "percentunit", (("evenflow_delivered_ratio", "{{dataflow}}"),)),
    (
        "Moves and take-overs", "short",
        (
            ("increase(evenflow_moves_total[5m])", "{{dataflow}} {{state}}"),
            ("increase(evenflow_takeovers_total[5m])", "{{dataflow}} take-overs"),
        ),
    ),
    (
        "Stall of a move, mean", "s",
        (("rate(evenflow_move_stall_seconds_sum[5m]) / rate(evenflow_move_stall_seconds_count[5m])", "{{dataflow}}"),),
    ),
    ("Age of the newest checkpoint", "s", (("evenflow_checkpoint_age_seconds", "{{dataflow}}"),)),
    ("Checkpoints given up since", "short", (("evenflow_checkpoint_failures", "{{dataflow}}"),)),
    ("Driver's clock behind the journal", "s", (("evenflow_clock_behind_seconds", "{{dataflow}}"),)),
    (
        "Runs", "short",
        (("evenflow_run_info * on () group_left (engine, name) evenflow_engine_info", "{{name}}: {{run}} version {{version}}"),),
    ),
    ("Failed", "short", (("evenflow_run_failed", "{{dataflow}}"),)),
)  # fmt: skip
"""Title, unit, and what is drawn: expression and legend of each."""

ALERTS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("EvenflowDown", 'up{job="evenflow"} == 0', "1m", "critical", "Nobody answers at {{ $labels.instance }}.", "degraded"),
    ("EvenflowFailed", "evenflow_run_failed == 1", "0m", "critical", "The newest run of {{ $labels.dataflow }} has failed.", "degraded"),
    (
        "EvenflowRedundancyShort", "evenflow_redundancy < evenflow_replicas", "1m", "critical",
        "{{ $labels.dataflow }} has {{ $value }} live replicas of some partition.", "degraded",
    ),
    (
        "EvenflowStands", "rate(evenflow_epochs_total[2m]) == 0 and on (dataflow) evenflow_run_info == 1", "2m", "critical",
        "{{ $labels.dataflow }} has finished no epoch for two minutes.", "slow",
    ),
    (
        "EvenflowSlow", "histogram_quantile(0.99, sum by (dataflow, le) (rate(evenflow_latency_seconds_bucket[5m]))) > 1", "5m", "warning",
        "An epoch in a hundred of {{ $labels.dataflow }} takes {{ $value | humanizeDuration }} and more.", "slow",
    ),
    (
        "EvenflowHeldBack", "rate(evenflow_ingress_waited_seconds_total[5m]) > 0.5", "5m", "warning",
        "The ingress of {{ $labels.dataflow }} waits for site {{ $labels.site }} half of the time.", "slow",
    ),
    (
        "EvenflowLate", "evenflow_watermark_lag_seconds > 60", "5m", "warning",
        "The watermark of {{ $labels.source }} of {{ $labels.dataflow }} is {{ $value | humanizeDuration }} behind the clock.", "late",
    ),
    (
        "EvenflowLateRows", "rate(evenflow_late_rows_total[5m]) > 0", "5m", "warning",
        "{{ $labels.dataflow }} leaves out {{ $value | humanize }} rows a second, which come behind the watermark.", "late",
    ),
    (
        "EvenflowSkew",
        "evenflow_partition_skew_ratio > 4 and on (dataflow) max by (dataflow) (rate(evenflow_site_busy_seconds_total[5m])) > 0.7", "10m",
        "warning", "The fullest partition of {{ $labels.segment }} has {{ $value | humanize }} times as many rows as the mean.",
        "unbalanced",
    ),
    (
        "EvenflowFailedRows", "rate(evenflow_failed_rows_total[5m]) > 0", "5m", "warning",
        "Boxes of {{ $labels.dataflow }} raise on {{ $value | humanize }} rows a second.", "degraded",
    ),
    (
        "EvenflowDelivers", "evenflow_delivered_ratio < 1", "5m", "warning",
        "{{ $labels.dataflow }} delivers {{ $value | humanizePercentage }} of its rows.", "degraded",
    ),
    (
        "EvenflowCheckpointOld", "evenflow_checkpoint_age_seconds > 600", "1m", "warning",
        "{{ $labels.dataflow }} has had no whole checkpoint for {{ $value | humanizeDuration }}.", "degraded",
    ),
)  # fmt: skip
"""Name, expression, for how long, severity, what is said, and the part of docs/operations.md."""


def page() -> str:
    rows = [(row.name, row.kind, ("dataflow", *row.labels), row.text) for row in METRICS]
    rows += [(row.name, row.kind, row.labels, row.text) for row in BY_HAND]
    lines = [f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |" for name, kind, labels, text in sorted(rows)]
    return HEAD + "\n".join(lines) + "\n"


def labels() -> dict[str, tuple[str, ...]]:
    """Of each metric by its name, without that of the dataflow."""
    return {row.name: row.labels for row in (*METRICS, *BY_HAND)}


def dashboard() -> dict[str, Any]:
    """For Grafana's import; it asks which Prometheus is meant."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = [
        {
            "id": number + 1,
            "title": title,
            "type": "timeseries",
            "datasource": source,
            "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": "ABCD"[place], "datasource": source, "expr": expression, "legendFormat": legend}
                for place, (expression, legend) in enumerate(drawn)
            ],
        }
        for number, (title, unit, drawn) in enumerate(PANELS)
    ]
    return {
        "__inputs": [{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}],
        "title": "Evenflow", "uid": "evenflow", "schemaVersion": 39, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "tags": ["evenflow"], "panels": panels,
    }  # fmt: skip


def alerts() -> str:
    """Rules as Prometheus reads them. A text in double quotes of JSON is one of YAML."""
    lines = [
        "# Written by tools/gen_metrics.py; limits are to be set to what a dataflow promises.",
        "groups:",
        "- name: evenflow",
        "  rules:",
    ]
    for name, expression, lasts, severity, said, part in ALERTS:
        lines += [
            f"  - alert: {name}", f"    expr: {json.dumps(expression)}", f"    for: {lasts}", f"    labels: {{severity: {severity}}}",
            "    annotations:", f"      summary: {json.dumps(said)}", f"      runbook: docs/operations.md#{part}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def written() -> dict[Path, str]:
    return {PAGE: page(), DASHBOARD: json.dumps(dashboard(), indent=1) + "\n", RULES: alerts()}


def main() -> int:
    old = [path for path, text in written().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date: run tools/gen_metrics.py", file=sys.stderr)
        return 1 if old else 0
    for path in old:
        path.write_text(written()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
