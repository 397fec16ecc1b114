"""A collector on loopback: speaks OTLP over HTTP and remembers what it was sent, decoded."""

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.waiting import wait_until

Attributes = dict[str, Any]


class Collector:
    """What arrived; `address` is what OTEL_EXPORTER_OTLP_ENDPOINT wants."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.metrics: list[tuple[Attributes, Metric]] = []
        self.spans: list[tuple[Attributes, Span]] = []
        """Each with the attributes of its resource."""

    def take(self, path: str, body: bytes) -> bool:
        """Decode one export; False for a path that is no signal."""
        if path == "/v1/metrics":
            for numbers in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                origin = attributes(numbers.resource.attributes)
                self.metrics += [(origin, metric) for scope in numbers.scope_metrics for metric in scope.metrics]
        elif path == "/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                origin = attributes(traces.resource.attributes)
                self.spans += [(origin, span) for scope in traces.scope_spans for span in scope.spans]
        return path in {"/v1/metrics", "/v1/traces"}

    def points(self, name: str) -> list[tuple[Attributes, float]]:
        """The newest points of a counter or a gauge."""
        found = [metric for _, metric in self.metrics if metric.name == name]
        if not found:
            return []
        last = found[-1]
        points = last.sum.data_points if last.HasField("sum") else last.gauge.data_points
        return [
            (attributes(point.attributes), point.as_int if point.HasField("as_int") else point.as_double)
            for point in points
        ]

    def names(self) -> set[str]:
        """Every metric that was ever exported."""
        return {metric.name for _, metric in self.metrics}

    def attribute_names(self) -> set[str]:
        """Every attribute that any point of any metric carried."""
        kinds = [getattr(metric, str(metric.WhichOneof("data"))) for _, metric in self.metrics]
        return {pair.key for kind in kinds for point in kind.data_points for pair in point.attributes}

    def wait_for_metric(self, name: str, seconds: float = 40.0) -> None:
        wait_until(lambda: name in self.names(), timeout=seconds, what=f"{name} at the collector")

    def wait_for_points(self, name: str, wanted: list[tuple[Attributes, float]], seconds: float = 40.0) -> None:
        wait_until(lambda: self.points(name) == wanted, timeout=seconds, what=f"{name} at {wanted}")


def attributes(pairs: "Iterator[KeyValue] | Any") -> Attributes:
    """Attributes as plain values."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Exchange(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            fits = self.headers["Content-Type"] == "application/x-protobuf" and collector.take(self.path, body)
            self.send_response(200 if fits else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature is the library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def collecting_grpc() -> Iterator[Collector]:
    """A collector that speaks OTLP over gRPC on a free port."""
    services: dict[str, tuple[str, Any]] = {
        "metrics": ("opentelemetry.proto.collector.metrics.v1.MetricsService", ExportMetricsServiceResponse()),
        "traces": ("opentelemetry.proto.collector.trace.v1.TraceService", ExportTraceServiceResponse()),
    }

    def handler(signal: str) -> grpc.GenericRpcHandler:
        name, answer = services[signal]

        def export(body: bytes, _context: grpc.ServicerContext) -> bytes:
            collector.take(f"/v1/{signal}", body)
            return bytes(answer.SerializeToString())

        return grpc.method_handlers_generic_handler(name, {"Export": grpc.unary_unary_rpc_method_handler(export)})

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([handler(signal) for signal in services])
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(f"http://127.0.0.1:{port}")
    server.start()
    try:
        yield collector
    finally:
        server.stop(None)
