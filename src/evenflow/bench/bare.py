"""An engine whose sites are processes of their own, without Spark: real sockets, real files, real kills, and no JVM to wait for.

What is beside the engine here is only who starts the sites. Each has a shell above it that looks like an executor from below.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from typing import Any

import evenflow as ef
from evenflow.errors import ClusterError
from evenflow.stream.ids import SiteId
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.net.handshake import new_secret

HOST = "127.0.0.1"
PLACE_S = 120.0
SITE = "import sys; from evenflow.world.spark.executor.entry import start_site as s; a = sys.argv[1:]; "
SITE += "print(s(30, a[0], a[1], int(a[2]), int(a[3]), float(a[4]), None, bytes.fromhex(a[5])), file=sys.stderr, flush=True)"


class NoSession:
    """What an engine that starts no task has of Spark."""

    sparkContext = None


class BareEngine(ef.Engine):
    """Takes what `ef.Engine` does, but no session."""

    def __init__(self, sites: int = 2, replicas: int = 1, **options: Any) -> None:
        session: Any = NoSession()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._forsaken = False
        self._told = ("", "", 0, 0.0, "")
        made = EngineOptions(**options)
        self._prepared(session, sites, 0, replicas, "mirrored", made)

    @property
    def _session(self) -> None:
        return None

    def _ensure_sites(self) -> DriverLoop:
        with self._lock:
            if self._coordinator is None:
                name, secret = uuid.uuid4().hex[:12], new_secret()
                self._coordinator = DriverLoop(name, self.sites, secret, HOST, 0, self.replicas, self.options.lease_s)
                self._told = (name, HOST, self._coordinator.port, self.options.lease_s, secret.hex())
                self._start_sites(self.sites)
                deadline_s = time.monotonic() + PLACE_S
                with self._coordinator.changed:
                    while not self._coordinator.ready:
                        if time.monotonic() > deadline_s:
                            raise ClusterError(f"the sites have not come within {PLACE_S:.0f} s")
                        self._coordinator.changed.wait(0.05)
            return self._coordinator

    def _start_sites(self, count: int) -> None:
        name, host, port, lease_s, secret = self._told
        for _ in range(count):
            number = len(self._processes) + 1
            self._processes.append(site(number, name, host, str(port), str(number), str(lease_s), secret))

    def _sites_to_use(self) -> tuple[SiteId, ...]:
        """Those of lost sites are called for when they are needed, as the keeper of an engine on Spark does before."""
        if not self._stopped and not self._forsaken:
            self._start_sites(self.sites - sum(process.poll() is None for process in self._processes))
        return super()._sites_to_use()

    def forsake(self, forsaken: bool = True) -> None:
        """No site is started any more, whatever is lost; or they are again."""
        self._forsaken = forsaken

    def _stop(self) -> None:
        self._stopped = True
        if self._coordinator is not None:
            for run in self._runs:
                if run.is_active:
                    run._stop(drain=False, timeout_s=5.0, willed=self._willed)
            self._coordinator.dismiss("the engine has been stopped")
            for process in self._processes:
                process.wait(30.0)
        super()._stop()


def site(number: int, *told: str) -> subprocess.Popen[bytes]:
    command = f'"{sys.executable}" -W ignore -c "$0" "$@" & wait'
    looks = ("--executor-id", str(number), "--hostname", "localhost")
    words = ["sh", "-c", command, SITE, *told, *looks]
    return subprocess.Popen(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stderr=sys.stderr)
