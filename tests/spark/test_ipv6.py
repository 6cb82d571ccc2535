"""An engine on a cluster without IPv4, as there are on Kubernetes: sites, Spark's tasks and the driver reach each other, in clear and
encrypted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from evenflow.world.spark.net.listener import open_port
from tests.spark.on_ipv6 import KEYS, ROWS


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["clear", "tls"])
def test_counts_are_exact_where_all_addresses_are_of_ipv6(way: str) -> None:
    try:
        open_port("::1").close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 ({error})")
    program = [sys.executable, "-W", "ignore", "-m", "tests.spark.on_ipv6", way]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=220, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout.strip().splitlines()[-1])
    assert said == {"where": ["::1", "::1"], "keys": KEYS, "rows": ROWS}
