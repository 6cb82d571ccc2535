"""The sites of an engine: they are started when they are first needed, and are there until its end."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from evenflow.errors import ClusterError
from evenflow.kernels import prepare
from evenflow.policy.scaling import Bounds, Times
from evenflow.world.spark.cluster.leftovers import clear
from evenflow.world.spark.cluster.located import driver_host, driver_listens
from evenflow.world.spark.cluster.placement import Placement
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.beginnings import Begins
from evenflow.world.spark.driver.driver_loop import STOPPED, DriverLoop
from evenflow.world.spark.driver.network import cannot_listen, new_trust
from evenflow.world.spark.driver.operations import Operations
from evenflow.world.spark.driver.run import Run
from evenflow.world.spark.driver.scaling import Autoscaler
from evenflow.world.spark.driver.standing_by import Standbys
from evenflow.world.spark.net.tls import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sited(Begins):
    """For an engine. Whoever starts sites, or chooses among them, has its lock; who ends it may not."""

    spark: SparkSession
    replicas: int
    _placement: Placement | None
    _autoscaler: Autoscaler | None
    _operations: Operations
    _standbys: Standbys

    @property
    def runs(self) -> tuple[Run, ...]:
        raise NotImplementedError

    def _ensure_sites(self) -> DriverLoop:
        """Wait for the sites: at first for all, the spares too, later for as many as a dataflow is laid out for."""
        with self._lock:
            if self._stopped:
                raise ClusterError(f"{STOPPED}: make a new one")
            first = self._placement is None
            if self._coordinator is None or self._placement is None:
                self._coordinator, self._placement = self._open()
                self._end_if_stopped()
            if first or not self._coordinator.enough(self.sites):
                self._placement.ensure(None if first else self.sites)
            options = self.options
            if options.autoscale is not None and self._autoscaler is None:  # Not before they are there, be it at the second call.
                bounds, times = Bounds(*options.autoscale), options.autoscale_times or Times()
                self._autoscaler = Autoscaler(self, self._operations, self._coordinator, bounds, times, options.place_timeout_s)
                self._autoscaler.begin()
            return self._there()

    def _once_there(self) -> DriverLoop:
        """Wait for the first sites, if nobody has placed any. Later there is who there is: a site that is missing is what people look for,
        drain around or add to, and the runs that need the lock for its loss wait for none of them."""
        return self._ensure_sites() if self._coordinator is None else self._there()

    def _open(self) -> tuple[DriverLoop, Placement]:
        """Where sites say that they are there, and who starts them: both, or none."""
        clear()
        control_client.clear()
        prepare(lambda: None)  # What the coordinator imports later must not hold its thread up.
        host, bind = driver_host(self.spark.sparkContext), driver_listens(self.spark.sparkContext)
        options, name = self.options, uuid.uuid4().hex[:12]
        wait_s, lease_s, trust = options.place_timeout_s, options.lease_s, new_trust(options)
        if trust.tls is not None:
            check(trust.tls, host)
        try:
            coordinator = DriverLoop(name, self.sites, trust, bind, self.spares, self.replicas, lease_s, options.ports)
        except OSError as error:
            raise cannot_listen(bind, error) from error
        try:
            return coordinator, Placement(self.spark, coordinator, host, trust, lease_s, wait_s, options.bind, options.ports)
        except BaseException:
            coordinator.close()
            raise

    def _end_if_stopped(self) -> None:
        """Whoever has stopped it meanwhile may have found nothing to end. Raises ClusterError."""
        if self._stopped:
            self._end_sites()
            raise ClusterError(STOPPED)

    def _end_sites(self) -> None:
        try:
            if self._placement is not None:
                self._placement.stop()
        except Exception:  # A signal is none: behind one the engine ends them once more.
            self._forget_sites()
            raise
        self._forget_sites()

    def _forget_sites(self) -> None:
        """Whatever became of them, nobody listens for them any more."""
        if self._coordinator is not None:
            self._coordinator.close()
        self._placement = self._coordinator = None
