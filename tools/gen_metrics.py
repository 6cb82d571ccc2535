"""Write docs/metrics.md and deploy/grafana.json from the table of metrics, or check that they are current.

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
PAGE, DASHBOARD = ROOT / "docs" / "metrics.md", ROOT / "deploy" / "grafana.json"

HEAD = """\
# Metrics

`evenflow ui` serves them at `/metrics`, in the text format of Prometheus. They are made of the engine's newest reading when somebody asks;
the engine itself is asked nothing then. `/healthz` says that the server answers; `/readyz` is 503, with the reasons, if the newest reading
is older than three seconds or an active run has fewer replicas of something than it shall have.

```yaml
scrape_configs:
  - job_name: evenflow
    static_configs: [{targets: ["127.0.0.1:4141"]}]
```

Every name begins with `evenflow_`. No metric has a label per partition or per run, so there are as many series as boxes and sites make:
below 3,000 of a hundred sites and two hundred boxes. Of two runs of one dataflow the newest counts. Counters begin anew when a run goes
on in another generation, which `rate()` knows how to take. What nobody knows has no sample. `deploy/grafana.json` is a dashboard of them.

This page is written by `tools/gen_metrics.py`.

| metric | kind | labels | |
| --- | --- | --- | --- |
"""

PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("Rows in", "sum by (dataflow) (rate(evenflow_rows_in_total[1m]))", "{{dataflow}}", "short"),
    ("Rows out", "sum by (dataflow) (rate(evenflow_rows_out_total[1m]))", "{{dataflow}}", "short"),
    (
        "Latency, 99 of 100 epochs",
        "histogram_quantile(0.99, sum by (dataflow, le) (rate(evenflow_latency_seconds_bucket[1m])))",
        "{{dataflow}}",
        "s",
    ),
    ("Watermark behind the clock", "evenflow_watermark_lag_seconds", "{{dataflow}} {{source}}", "s"),
    ("Redundancy", "evenflow_redundancy", "{{dataflow}}", "short"),
    ("Busy sites", "rate(evenflow_site_busy_seconds_total[1m])", "site {{site}} {{dataflow}}", "percentunit"),
    ("Whom the ingress waits for", "rate(evenflow_ingress_waited_seconds_total[1m])", "site {{site}} {{dataflow}}", "percentunit"),
    ("Busy boxes", "topk(10, rate(evenflow_box_busy_seconds_total[1m]))", "{{dataflow}} {{box}}", "s"),
    ("State", "sum by (dataflow, where) (evenflow_site_state_bytes)", "{{dataflow}} {{where}}", "bytes"),
    ("Memory", "evenflow_site_memory_bytes", "site {{site}}", "bytes"),
    ("Skew", "evenflow_partition_skew_ratio", "{{dataflow}} {{segment}}", "short"),
    ("Epochs in flight", "evenflow_epochs_in_flight", "{{dataflow}}", "short"),
    ("Late and failed rows", "rate(evenflow_late_rows_total[1m]) + rate(evenflow_failed_rows_total[1m])", "{{dataflow}}", "short"),
    (
        "Moves and take-overs",
        "increase(evenflow_moves_total[5m]) or increase(evenflow_takeovers_total[5m])",
        "{{dataflow}} {{state}}",
        "short",
    ),
)


def page() -> str:
    rows = [(row.name, row.kind, ("dataflow", *row.labels), row.text) for row in METRICS]
    rows += [(row.name, row.kind, row.labels, row.text) for row in BY_HAND]
    lines = [f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |" for name, kind, labels, text in sorted(rows)]
    return HEAD + "\n".join(lines) + "\n"


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
            "targets": [{"refId": "A", "datasource": source, "expr": expression, "legendFormat": legend}],
        }
        for number, (title, expression, legend, unit) in enumerate(PANELS)
    ]
    return {
        "__inputs": [{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}],
        "title": "Evenflow", "uid": "evenflow", "schemaVersion": 39, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "tags": ["evenflow"], "panels": panels,
    }  # fmt: skip


def written() -> dict[Path, str]:
    return {PAGE: page(), DASHBOARD: json.dumps(dashboard(), indent=1) + "\n"}


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
