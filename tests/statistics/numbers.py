"""How a run goes, to test with."""

from __future__ import annotations

from typing import Any

from evenflow.statistics.progress import Progress, SiteProcess, SiteProgress


def process_of(site: int, **given: Any) -> SiteProcess:
    known: dict[str, Any] = {"executor": str(site), "host": "127.0.0.1", "pid": 100 + site, "rss_bytes": 0, "pss_bytes": 0, "refused": 0}
    return SiteProcess(**{"site": site, "leaving": False, **known, **given})


def site_progress(site: int, **given: Any) -> SiteProgress:
    """A site that has just come; `given` is what is known of it."""
    fresh: dict[str, Any] = {
        "role": "spare", "partitions": 0, "coming": 0, "cpu_share": 0.0, "rows_in_per_s": 0.0, "state_bytes": 0, "spilled_bytes": 0,
        "buffered_bytes": 0, "messages": 0, "epoch": 0, "utilization": None,
    }  # fmt: skip
    return SiteProgress(**{**process_of(site).to_json(), **fresh, **given})


def progress(**given: Any) -> Progress:
    """A run that has just begun; `given` is what is known of it."""
    fresh: dict[str, Any] = {
        "run": "r1", "dataflow": "flow", "active": True, "epoch": 0, "epochs_in_flight": 0, "rows_in": 0, "rows_out": 0,
        "rows_in_per_s": 0.0, "rows_out_per_s": 0.0, "p50_ms": None, "p99_ms": None, "total_p50_ms": None, "total_p99_ms": None,
        "late_rows": 0, "failed_rows": 0, "replicas": 1, "redundancy": 1, "membership": 0, "moved_whole": (), "slow": (), "sites": (),
        "boxes": (), "seconds": 0.0,
    }  # fmt: skip
    return Progress(**{**fresh, **given})
