"""What a collector is sent: a real receiver in this process understands it, and it is what Prometheus would read."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.sdk.metrics.export import MetricExportResult

from evenflow.coordinator.kinds import Kind
from evenflow.errors import OptionError
from evenflow.monitor.metrics import EngineCollector
from evenflow.monitor.otel import Exporter, attributes_of, interval_s, severity_of, wanted
from evenflow.monitor.reading import Event
from tests.monitor.simulated import readings_of, scenes_of, stream

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass
class Collector:
    """url: of an OTLP receiver over HTTP. came: something has. The others: what did."""

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    logs: list[ExportLogsServiceRequest] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer: Any
            if self.path == "/v1/metrics":
                found.metrics.append(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse()
            else:
                assert self.path == "/v1/logs"
                found.logs.append(ExportLogsServiceRequest.FromString(body))
                answer = ExportLogsServiceResponse()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(answer.SerializeToString())
            found.came.set()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield found
    server.shutdown()
    server.server_close()
    thread.join(10)


def attributes(told: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in told}


def test_a_collector_gets_the_metrics_of_the_table_and_every_event_once(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=streams")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    told = stream(8.0, kill_s=4.0)
    exporter = Exporter(True, True, 0.05)
    for each in told:
        exporter.take(each)
        exporter.take(each)  # A reading that comes again brings nothing new.
    assert collector.came.wait(20)
    exporter.close()
    (scene, reading) = scenes_of(told)[-1], readings_of(told)[-1]
    (resource,) = collector.metrics[-1].resource_metrics
    of = attributes(resource.resource.attributes)
    assert (of["service.name"], of["service.instance.id"], of["deployment.environment"]) == ("evenflow", scene.engine, "test")
    assert all(each["x-tenant"] == "streams" for each in collector.headers)
    (scope,) = resource.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    families = {family.name: family for family in EngineCollector(scene, reading).collect()}
    assert metrics.keys() == families.keys()
    compared = 0
    for name, family in families.items():
        metric = metrics[name]
        if family.type in ("counter", "gauge"):
            points = metric.sum.data_points if family.type == "counter" else metric.gauge.data_points
            assert metric.sum.is_monotonic is (family.type == "counter")
            found = [(attributes(point.attributes), point.as_double) for point in points]
            assert found == [(dict(sample.labels), sample.value) for sample in family.samples]
            assert all(0 <= point.start_time_unix_nano <= point.time_unix_nano == 1000 * reading.at_us for point in points)
            compared += len(found)
    assert compared > 40
    (latency,) = metrics["evenflow_latency_seconds"].histogram.data_points
    assert latency.count == sum(latency.bucket_counts) == sum(count for _, count in reading.runs[0].latency) > 0
    assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1 and latency.sum > 0
    records = [r for request in collector.logs for rs in request.resource_logs for s in rs.scope_logs for r in s.log_records]
    events = [event for each in readings_of(told) for event in each.runs[0].events]
    assert [(r.body.string_value, r.event_name) for r in records] == [(e.text, f"evenflow.{e.kind}") for e in events]
    lost = next(record for record in records if record.event_name == "evenflow.site_lost")
    assert (lost.severity_text, attributes(lost.attributes)["dataflow"]) == ("WARN", "counts")


def test_a_run_that_has_failed_is_an_error() -> None:
    event = Event(3, 1, str(Kind.FAILED), -1, "box 'kept' raised", {"error": "BoxFailed", "message": "all of it"})
    assert severity_of(event)[1] == "ERROR"
    scene = scenes_of(stream(1.0))[-1]
    told = attributes_of(scene.runs[0], event)
    assert (told["kind"], told["error"], told["message"], told["dataflow"]) == ("failed", "BoxFailed", "all of it", "counts")


def test_a_collector_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    exporter = Exporter(True, False, 30.0)
    for each in stream(8.0, kill_s=4.0):
        exporter.take(each)
    exporter.close()


def test_a_collector_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: what is sent is answered when everything has been taken, and not before."""
    sending, answer, ended = threading.Event(), threading.Event(), list[bool]()

    def export(sender: OTLPMetricExporter, *given: Any, **named: Any) -> MetricExportResult:
        sending.set()
        ended.append(answer.wait(10))
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    scene, *told = stream(8.0, kill_s=4.0)
    exporter = Exporter(True, False, 0.001)
    exporter.take(scene)
    exporter.take(told[0])
    assert sending.wait(20)
    for each in told:
        exporter.take(each)
    assert ended == [], "taking has waited for the answer"
    answer.set()
    exporter.close()
    assert ended[0]


def test_it_is_sent_where_somebody_has_said_where_to() -> None:
    assert wanted({}) == (False, False)
    assert wanted({ENDPOINT: "http://c:4318"}) == (True, True)
    assert wanted({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "true"}) == (False, False)
    assert wanted({ENDPOINT: "http://c:4318", "OTEL_LOGS_EXPORTER": "none"}) == (True, False)
    assert wanted({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c:4318/v1/logs"}) == (False, True)
    with pytest.raises(OptionError, match="speaks http/protobuf"):
        wanted({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert interval_s({}) == 60 and interval_s({"OTEL_METRIC_EXPORT_INTERVAL": "250"}) == 0.25
    for wrong in ("soon", "0", "nan", "-1"):
        with pytest.raises(OptionError, match="number of milliseconds"):
            interval_s({"OTEL_METRIC_EXPORT_INTERVAL": wrong})
