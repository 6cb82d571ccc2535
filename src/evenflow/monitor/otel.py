"""What goes to an OpenTelemetry collector: the metrics of the table (`metrics`), and events as log records. OTLP over HTTP with Protobuf.

Readings come with counters and buckets already, so that nothing is counted a second time here: the samples that Prometheus would read are
the data points, cumulative since the run's start. Where to, how often and with which headers is said by the usual variables `OTEL_*`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

from prometheus_client.core import Metric as Family

from evenflow.errors import OptionError
from evenflow.monitor.metrics import EngineCollector
from evenflow.monitor.reading import Event, Reading, RunReading
from evenflow.monitor.scene import Scene, SceneRun
from evenflow.monitor.unheard import Unheard

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
EVERY_S: Final = 60.0
"""From export to export, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise; what OpenTelemetry has decided."""
UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
WARNINGS: Final = frozenset({"kill", "site_lost", "rows_lost", "take_over", "copy_dropped", "move_dropped", "move_refused", "shedding"})
ERRORS: Final = frozenset({"failed"})
SCOPE: Final = "evenflow"


def wanted(environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether metrics, and whether events are to be sent: somebody has said where to, and has not switched it off.

    Raises OptionError where that cannot be done: another protocol, or the extra `otel` is not installed."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False, False
    found = []
    for signal in ("METRICS", "LOGS"):
        said = any(environ.get(f"{PREFIX}{name}", "").strip() for name in ("ENDPOINT", f"{signal}_ENDPOINT"))
        exporters = [each.strip() for each in environ.get(f"OTEL_{signal}_EXPORTER", "otlp").split(",")]
        found.append(said and "otlp" in exporters)
        protocol = environ.get(f"{PREFIX}{signal}_PROTOCOL") or environ.get(f"{PREFIX}PROTOCOL") or "http/protobuf"
        if found[-1] and protocol.strip() != "http/protobuf":
            raise OptionError(f"{PREFIX}PROTOCOL is {protocol!r}; Evenflow speaks http/protobuf, to port 4318 of a collector as a rule")
    if any(found) and find_spec("opentelemetry.exporter.otlp.proto.http" if find_spec("opentelemetry") else "opentelemetry") is None:
        raise OptionError(f"{PREFIX}ENDPOINT is set, and OpenTelemetry is not installed: pip install 'evenflow[otel]'")
    return found[0], found[1]


def interval_s(environ: Mapping[str, str]) -> float:
    given = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        milliseconds = float(given) if given.strip() else EVERY_S * 1e3
    except ValueError:
        milliseconds = 0.0
    if not 1 <= milliseconds < 1e9:
        raise OptionError(f"OTEL_METRIC_EXPORT_INTERVAL is {given!r}; it is a number of milliseconds from 1 on")
    return milliseconds / 1e3


class Exporter:
    """Told scenes and readings by one thread (`take`); sends in threads of its own. A collector that does not answer holds nobody up."""

    def __init__(self, metrics: bool, events: bool, every_s: float) -> None:
        self._metrics, self._events, self._every_s = metrics, events, every_s
        self._lock = threading.Lock()
        self._scene: Scene | None = None
        self._reading: Reading | None = None
        self._sent = 0
        self._unheard = Unheard()
        self._provider: Any = None
        self._sender: Any = None
        self._resource: Any = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, told: Scene | Reading) -> None:
        """What comes next."""
        if isinstance(told, Scene):
            if self._resource is None:
                self._open(told)
            self._scene = told
            return
        scene = self._scene
        if scene is None or told.scene != scene.number:
            return
        with self._lock:
            self._reading = told
        if self._provider is not None:
            for run, now in zip(scene.runs, told.runs):
                self._emit(scene, run, now, told.at_us)

    def close(self) -> None:
        """Send what is there, and end."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(15)
        if self._sender is not None:
            self._send()
            self._sender.shutdown()
        if self._provider is not None:
            self._provider.shutdown()

    def _open(self, scene: Scene) -> None:
        from opentelemetry.sdk.resources import Resource

        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "evenflow"}
        mine = {**named, "service.instance.id": scene.engine, "evenflow.application": scene.name}
        self._resource = Resource(mine).merge(Resource.create()) if not named else Resource.create().merge(Resource(mine))
        if self._metrics:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            self._sender = OTLPMetricExporter()
            self._thread = threading.Thread(target=self._go_on, name="evenflow-otlp", daemon=True)
            self._thread.start()
        if self._events:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

            self._provider = LoggerProvider(resource=self._resource, shutdown_on_exit=False)
            self._provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))

    # ------------------------------------------------ metrics

    def _go_on(self) -> None:
        while not self._over.wait(self._every_s):
            self._send()

    def _send(self) -> None:
        """The newest reading, unless it has been sent."""
        with self._lock:
            scene, reading = self._scene, self._reading
        if scene is None or reading is None or reading.scene != scene.number or reading.number == self._sent:
            return
        self._sent = reading.number
        self._sender.export(metrics_data(scene, reading, self._resource))

    # ------------------------------------------------ events

    def _emit(self, scene: Scene, run: SceneRun, now: RunReading, at_us: int) -> None:
        from opentelemetry._logs import LogRecord

        for event in self._unheard.of(now)[0]:
            number, text = severity_of(event)
            record = LogRecord(
                timestamp=1000 * (at_us - now.elapsed_us + event.at_us) if run.active else 1000 * at_us,
                severity_number=number, severity_text=text, body=event.text, event_name=f"evenflow.{event.kind}",
                attributes={"engine": scene.engine, **attributes_of(run, event)},
            )  # fmt: skip
            self._provider.get_logger(SCOPE).emit(record)


def attributes_of(run: SceneRun, event: Event) -> dict[str, str | int | float | bool]:
    """Flat: what an event says besides its text, as far as it is a number or a text."""
    details = event.details if isinstance(event.details, dict) else {}
    plain = {str(name): value for name, value in details.items() if isinstance(value, str | int | float | bool)}
    site = {} if event.site < 0 else {"site": event.site}
    return {**plain, "dataflow": run.dataflow, "run": run.run, "kind": event.kind, **site}


def severity_of(event: Event) -> tuple[Any, str]:
    from opentelemetry._logs import SeverityNumber

    if event.kind in ERRORS:
        return SeverityNumber.ERROR, "ERROR"
    return (SeverityNumber.WARN, "WARN") if event.kind in WARNINGS else (SeverityNumber.INFO, "INFO")


def metrics_data(scene: Scene, reading: Reading, resource: Any) -> Any:
    """All metrics of one reading, as OpenTelemetry's SDK hands them to an exporter."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    begun = begun_ns(scene, reading)
    found = [_metric(family, begun, 1000 * reading.at_us) for family in EngineCollector(scene, reading).collect()]
    scopes = [ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=found, schema_url="")]
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=scopes, schema_url="")])


def begun_ns(scene: Scene, reading: Reading) -> dict[str, int]:
    """When the counters of each dataflow began, nanoseconds since 1970; under "" those of the engine."""
    begun = {}
    for run in scene.counted():
        now = reading.run(run.run)
        if now is not None:
            begun[run.dataflow] = 1000 * (reading.at_us - now.elapsed_us)
    return {"": min(begun.values(), default=1000 * reading.at_us), **begun}


def _metric(family: Family, begun: Mapping[str, int], now_ns: int) -> Any:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, NumberDataPoint, Sum

    def points() -> Iterator[Any]:
        for sample in family.samples:
            start = begun.get(sample.labels.get("dataflow", ""), begun[""])
            yield NumberDataPoint(dict(sample.labels), start, now_ns, float(sample.value))

    kind, cumulative = family.type, AggregationTemporality.CUMULATIVE
    data: Any
    if kind == "counter":
        data = Sum(list(points()), cumulative, True)
    elif kind == "gauge":
        data = Gauge(list(points()))
    else:
        data = Histogram(list(_histograms(family, begun, now_ns)), cumulative)
    unit = next((unit for word, unit in UNITS.items() if family.name.endswith(word)), "1")
    return Metric(name=family.name, description=family.documentation, unit=unit, data=data)


def _histograms(family: Family, begun: Mapping[str, int], now_ns: int) -> Iterable[Any]:
    """Of a histogram, whose buckets Prometheus adds up; a summary has none, and is one of a single bucket."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    by: dict[str, dict[str, float]] = {}
    for sample in family.samples:
        part = sample.name.removeprefix(family.name)
        by.setdefault(sample.labels["dataflow"], {})[sample.labels.get("le", part)] = sample.value
    for dataflow, values in by.items():
        ends = sorted(float(name) for name in values if not name.startswith("_") and name != "+Inf")
        below = [values[str(end)] for end in ends]
        count = int(values.get("_count", values.get("+Inf", 0.0)))
        counts = [int(b - a) for a, b in zip([0.0, *below], [*below, float(count)])]
        yield HistogramDataPoint(
            {"dataflow": dataflow}, begun.get(dataflow, begun[""]), now_ns, count, values.get("_sum", 0.0), counts, ends, None, None,  # type: ignore[arg-type]
        )  # fmt: skip


__all__ = ["Exporter", "interval_s", "metrics_data", "wanted"]
